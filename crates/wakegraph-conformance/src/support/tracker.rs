//! Counts what is still alive: tokens are captured by closures and dropped with them.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Counts its [`Token`]s.
#[derive(Debug, Default)]
pub(crate) struct Tracker(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    alive: Mutex<usize>,
    changed: Condvar,
}

/// One thing that is alive.
#[derive(Debug)]
pub(crate) struct Token(Arc<Inner>);

impl Tracker {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn token(&self) -> Token {
        *self.0.alive() += 1;
        Token(self.0.clone())
    }

    pub(crate) fn alive(&self) -> usize {
        *self.0.alive()
    }

    /// Blocks until every token is dropped. A leak shows as a test that does not end.
    pub(crate) fn wait_until_freed(&self) {
        self.0.changed.wait_while(&mut self.0.alive(), |alive| *alive > 0);
    }
}

impl Inner {
    fn alive(&self) -> MutexGuard<'_, usize> {
        self.alive.lock()
    }
}

impl Clone for Token {
    fn clone(&self) -> Self {
        *self.0.alive() += 1;
        Self(self.0.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        *self.0.alive() -= 1;
        self.0.changed.notify_all();
    }
}
