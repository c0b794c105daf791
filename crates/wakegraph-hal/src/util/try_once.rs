//! A value whose making may fail, and is tried again then.

use std::sync::OnceLock;

use parking_lot::Mutex;

/// A value that the first call makes, while others that need it wait. Where that fails, the next call tries
/// again: drivers start late, devices come and go, and memory becomes free.
#[derive(Debug)]
pub struct TryOnce<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> TryOnce<T> {
    /// A value that has not been requested yet.
    pub const fn new() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    /// The value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// The value. Unless it has been made, `make` makes it, for one caller at a time.
    ///
    /// # Errors
    /// The errors of `make`.
    pub fn get_or_make<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let _making = self.making.lock();
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let value = make()?;
        Ok(self.value.get_or_init(|| value))
    }
}

impl<T> Default for TryOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_is_tried_again() {
        let value = TryOnce::new();
        assert_eq!(value.get_or_make(|| Err("not ready")), Err("not ready"));
        assert_eq!(value.get(), None);
        assert_eq!(value.get_or_make(|| Ok::<_, &str>(7)), Ok(&7));
        assert_eq!(value.get_or_make(|| Err("it is made once")), Ok(&7));
    }
}
