//! What a partition runs: fixed, or to be replaced by updates.

use parking_lot::RwLock;

/// A value that costs no lock where it cannot be updated. Updates change it only while nothing reads it, so nobody waits.
pub(crate) enum Versioned<T> {
    Fixed(T),
    Updatable(RwLock<T>),
}

impl<T> Versioned<T> {
    pub(crate) fn new(value: T, updatable: bool) -> Self {
        if updatable { Self::Updatable(RwLock::new(value)) } else { Self::Fixed(value) }
    }

    pub(crate) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        match self {
            Self::Fixed(value) => read(value),
            Self::Updatable(value) => read(&value.read()),
        }
    }

    /// Changes it; `None` where it is fixed.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self {
            Self::Fixed(_) => None,
            Self::Updatable(value) => Some(change(&mut value.write())),
        }
    }
}
