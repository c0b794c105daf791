//! A place where work is held back until a test lets it go on: order without clocks.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The test's side. Dropping it lets everybody go on for good, so that a test that fails does not hang.
#[derive(Debug)]
pub(crate) struct Hold(Held);

/// The side of what is held: a kernel or a blocking host task.
#[derive(Clone, Debug)]
pub(crate) struct Held(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    arrived: usize,
    permits: usize,
    open: bool,
}

impl Hold {
    pub(crate) fn new() -> Self {
        Self(Held(Arc::default()))
    }

    pub(crate) fn held(&self) -> Held {
        self.0.clone()
    }

    /// Blocks until `count` have arrived, counting from the start.
    pub(crate) fn wait_for(&self, count: usize) {
        let inner = &self.0.0;
        inner.changed.wait_while(&mut self.0.state(), |state| state.arrived < count);
    }

    /// How many have arrived so far.
    pub(crate) fn arrived(&self) -> usize {
        self.0.state().arrived
    }

    /// Lets one go on, now or when it arrives.
    pub(crate) fn release_one(&self) {
        self.0.state().permits += 1;
        self.0.0.changed.notify_all();
    }

    /// Lets everybody go on from now on.
    pub(crate) fn open(&self) {
        self.0.state().open = true;
        self.0.0.changed.notify_all();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.open();
    }
}

impl Held {
    /// Arrives, and blocks until it may go on.
    pub(crate) fn pass(&self) {
        let mut state = self.state();
        state.arrived += 1;
        self.0.changed.notify_all();
        let waiting = |state: &mut State| !state.open && state.permits == 0;
        self.0.changed.wait_while(&mut state, waiting);
        state.permits = state.permits.saturating_sub(1);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }
}
