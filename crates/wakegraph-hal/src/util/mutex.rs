//! A lock that gives its core away only to wait.

use std::sync::{MutexGuard, PoisonError};

/// A mutex for locks that many threads take often, such as the queue of a service.
///
/// A thread that finds one of `parking_lot` taken yields its core several times before it waits. On a busy
/// machine another program then has the core for its whole time slice, while the lock has long been free: a
/// worker of tokio's has lost up to 30 ms for a yield. This one is the standard library's, which spins for a
/// moment and then waits to be woken. A panic under the lock does not poison it.
#[derive(Debug, Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// A free lock around a value.
    pub const fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
