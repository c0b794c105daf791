//! What a partition runs: fixed, or to be replaced by updates.

use std::ops::Deref;

use parking_lot::{RwLock, RwLockReadGuard};

/// A value that costs no lock where it cannot be updated. Updates change it only while nothing
/// reads it, so no thread waits.
pub(crate) enum UpdatableCell<T> {
    Fixed(T),
    Updatable(RwLock<T>),
}

impl<T> UpdatableCell<T> {
    pub(crate) fn new(value: T, updatable: bool) -> Self {
        if updatable { Self::Updatable(RwLock::new(value)) } else { Self::Fixed(value) }
    }

    pub(crate) fn read(&self) -> CellRef<'_, T> {
        match self {
            Self::Fixed(value) => CellRef::Fixed(value),
            Self::Updatable(value) => CellRef::Updatable(value.read()),
        }
    }

    pub(crate) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.read())
    }

    /// Changes it; `None` where it is fixed.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self {
            Self::Fixed(_) => None,
            Self::Updatable(value) => Some(change(&mut value.write())),
        }
    }
}

/// The value as long as this lives.
pub(crate) enum CellRef<'a, T> {
    Fixed(&'a T),
    Updatable(RwLockReadGuard<'a, T>),
}

impl<T> Deref for CellRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Fixed(value) => value,
            Self::Updatable(value) => value,
        }
    }
}
