//! Gives the same device object to everyone who opens an index.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::Result;

/// The open devices of a backend by index. It does not keep them open.
#[derive(Debug)]
pub struct OpenDevices<D>(Mutex<BTreeMap<usize, Weak<D>>>);

impl<D> OpenDevices<D> {
    /// No device is open.
    #[expect(clippy::new_without_default, reason = "made in statics only")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// The device of this index that is open and still works, else a new one, which `open` makes.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn get_or_open(
        &self,
        index: usize,
        works: impl Fn(&D) -> bool,
        open: impl FnOnce() -> Result<D>,
    ) -> Result<Arc<D>> {
        let mut devices = self.0.lock();
        let known = devices.get(&index).and_then(Weak::upgrade);
        if let Some(device) = known.filter(|device| works(device)) {
            return Ok(device);
        }
        let device = Arc::new(open()?);
        devices.insert(index, Arc::downgrade(&device));
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_device_is_given_again_while_it_works() {
        let devices = OpenDevices::new();
        let open = |index, works, number| devices.get_or_open(index, |_| works, || Ok(number)).unwrap();
        let first = open(0, true, 1);
        assert!(Arc::ptr_eq(&first, &open(0, true, 2)));
        assert_eq!(*open(1, true, 3), 3);
        let renewed = open(0, false, 4);
        assert_eq!(*renewed, 4);
        assert!(Arc::ptr_eq(&renewed, &open(0, true, 5)));
        drop(renewed);
        assert_eq!(*open(0, true, 6), 6, "nobody had it open");
    }
}
