//! Layer 0: what most of its owners never need.

/// A value that is made when it is first needed, and kept. Until then it takes no more than a pointer.
#[derive(Debug)]
pub struct OnDemand<T>(Option<Box<T>>);

impl<T> Default for OnDemand<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Default> OnDemand<T> {
    /// The value, which the first call makes.
    pub fn get_or_make(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }

    /// The value, if it has been made.
    pub fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    /// What `read` finds in the value, or the default where there is none.
    pub fn read<R: Default>(&self, read: impl FnOnce(&T) -> R) -> R {
        self.get().map(read).unwrap_or_default()
    }

    /// What `change` does to the value if there is one; otherwise the default.
    pub fn if_made<R: Default>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        self.0.as_deref_mut().map(change).unwrap_or_default()
    }
}
