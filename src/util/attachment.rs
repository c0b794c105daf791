//! Values that a higher layer keeps with objects of a lower layer, which knows nothing of them.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::OnceLock;

/// A slot for one value of one type, made when it is asked for the first time.
///
/// The object that has the slot drops the value.
#[derive(Default)]
pub(crate) struct Attachment(OnceLock<Box<dyn Any + Send + Sync>>);

impl Attachment {
    /// The value.
    ///
    /// # Panics
    /// Panics if the slot is used for two types. Each slot says which module uses it.
    pub(crate) fn get_or_default<T: Default + Send + Sync + 'static>(&self) -> &T {
        let value = self.0.get_or_init(|| Box::new(T::default()));
        value.downcast_ref().expect("one module uses the slot, for one type")
    }
}

impl Debug for Attachment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attachment").field("is_used", &self.0.get().is_some()).finish()
    }
}
