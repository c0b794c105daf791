//! Runs whose tokio runtime shut down before they could start.
//!
//! Such a run never starts, but it must not be over before the runs it was ordered behind are:
//! a caller that sees it finished relies on that. No task is left to await them, so the wait is
//! driven by their wakers alone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::execution::conflicts::Predecessor;
use crate::runtime::execution::run::Run;
use crate::types::Error;
use crate::util::panics::catch_and_log;

struct AbandonedStart {
    run: Arc<Run>,
    order_after: Vec<Predecessor>,
    error: Error,
}

/// Ends `run` with `error` once everything in `order_after` is over.
pub(crate) fn abandon_after(run: Arc<Run>, order_after: Vec<Predecessor>, error: Error) {
    Arc::new(AbandonedStart { run, order_after, error }).wake();
}

thread_local! {
    // One start's end may be what the next waits for. A queue instead of nested calls: there may
    // be thousands.
    static TURN: (RefCell<VecDeque<Arc<AbandonedStart>>>, Cell<bool>) =
        const { (RefCell::new(VecDeque::new()), Cell::new(false)) };
}

impl Wake for AbandonedStart {
    fn wake(self: Arc<Self>) {
        let start = self.clone();
        let queued = TURN.try_with(|(queue, busy)| {
            queue.borrow_mut().push_back(start);
            if busy.replace(true) {
                return;
            }
            while let Some(next) = { queue.borrow_mut().pop_front() } {
                // Ending a run wakes others; a waker that panics must not leave the queue busy for ever.
                catch_and_log("a waker", || next.check());
            }
            busy.set(false);
        });
        if queued.is_err() {
            // The thread is ending and has no queue any more.
            self.check();
        }
    }
}

impl AbandonedStart {
    fn check(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let cx = Context::from_waker(&waker);
        if self
            .order_after
            .iter()
            .all(|earlier| earlier.latch().poll(&cx, &mut WaiterKey::default()).is_ready())
        {
            self.run.abandon(&self.error);
        }
    }
}
