//! Whether this thread calls the closure of a stream task, which is code of the user's and may submit.
//!
//! A submission that comes after a run which another thread is just enqueueing waits for that
//! thread, so that its devices can do the rest of the waiting. Inside a closure it must not: the
//! run may be the closure's own, or its thread may wait for this one. It then waits as for a run
//! that needs the host.

use std::cell::Cell;

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, the thread calls the closure of a stream task.
#[must_use = "the thread calls only as long as this lives"]
pub(crate) struct StreamTaskCall {
    outer: bool,
}

impl StreamTaskCall {
    pub(crate) fn enter() -> Self {
        Self { outer: IS_CALLING.replace(true) }
    }

    /// Whether this thread is inside such a call.
    pub(crate) fn is_inside() -> bool {
        IS_CALLING.get()
    }
}

impl Drop for StreamTaskCall {
    fn drop(&mut self) {
        IS_CALLING.set(self.outer);
    }
}
