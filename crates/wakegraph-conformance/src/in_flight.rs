//! Nothing that a test of the contract has enqueued is in flight when the test ends.
//!
//! Until an event is final its operands are the test's to keep (`CommandBuffer::enqueue`). A kernel
//! that runs longer writes to memory that others have been given since, and what fails then is
//! anything but the test.

use std::cell::RefCell;
use std::sync::Arc;

use wakegraph::hal::{Event, EventStatus};

thread_local! {
    /// Events that this thread's test has enqueued, if they have to end before it. Threads that tests
    /// start are not examined.
    static ENQUEUED: RefCell<Option<Vec<Arc<dyn Event>>>> = const { RefCell::new(None) };
}

/// A test has enqueued something that signals this event.
pub(crate) fn note(event: &Arc<dyn Event>) {
    ENQUEUED.with_borrow_mut(|enqueued| {
        if let Some(enqueued) = enqueued {
            enqueued.push(event.clone());
        }
    });
}

/// Runs a test, which fails where it leaves something in flight; `drops` says that it may.
pub(crate) fn run(test: impl FnOnce(), drops: bool) {
    ENQUEUED.set((!drops).then(Vec::new));
    test();
    let enqueued = ENQUEUED.take().unwrap_or_default();
    let in_flight: Vec<_> =
        enqueued.iter().filter(|event| matches!(event.status(), EventStatus::Pending)).collect();
    for event in &in_flight {
        event.wait(None);
    }
    assert!(in_flight.is_empty(), "{} of {} enqueues were in flight", in_flight.len(), enqueued.len());
}
