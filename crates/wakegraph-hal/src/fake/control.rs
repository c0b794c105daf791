//! What a test does to a fake device.

use std::fmt::{self, Debug};
use std::sync::Arc;

use super::queue::FakeQueue;
use super::schedule::FakeSchedule;
use crate::{Error, Queue};

/// Completes what is pending on a [`FakeDevice`](super::FakeDevice), and injects faults.
///
/// Clones control the same device. All methods may be called on any thread; notifications are
/// called by the thread that completes work.
#[derive(Clone)]
pub struct FakeControl(Arc<FakeSchedule>);

impl FakeControl {
    pub(super) fn new(schedule: &Arc<FakeSchedule>) -> Self {
        Self(Arc::clone(schedule))
    }

    /// How many enqueues are pending.
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// How often the device was asked for the status of an event.
    pub fn polls(&self) -> u64 {
        self.0.polls()
    }

    /// Completes the oldest enqueue, of `queue` if one is given, that may complete: its in-order
    /// queue, earlier enqueues of its command-buffer and its wait list hold it back. Returns false
    /// when there is none.
    pub fn complete_next(&self, queue: Option<&dyn Queue>) -> bool {
        match queue.map(|queue| queue.as_any().downcast_ref::<FakeQueue>()) {
            None => self.0.complete_next(None),
            Some(Some(queue)) => self.0.complete_next(Some(queue.id())),
            Some(None) => false,
        }
    }

    /// Completes everything, in an order that respects queues, command-buffers and wait lists.
    /// Returns how many enqueues that were.
    pub fn complete_all(&self) -> usize {
        self.0.complete_all()
    }

    /// With `true`, the device keeps its notifications back. With `false` it delivers them, the newest
    /// first: drivers notify in no particular order.
    pub fn hold_notifications(&self, hold: bool) {
        self.0.hold_notifications(hold);
    }

    /// Makes the next enqueue that is completed fail with `error` instead.
    pub fn fail_next(&self, error: Error) {
        self.0.fail_next(error);
    }

    /// Makes the enqueue after so many more panic, as what listens to a backend's log may.
    pub fn panic_after(&self, enqueues: usize) {
        self.0.panic_after(enqueues);
    }

    /// Fails the newest enqueue at once, also before what it waits for, as OpenCL's drivers do. Returns false
    /// when nothing is pending.
    pub fn fail_newest(&self, error: Error) -> bool {
        self.0.fail_newest(error)
    }

    /// Fails what signals this event at once, also before what it waits for. Returns false when it is not
    /// pending.
    pub fn fail(&self, event: &dyn crate::Event, error: Error) -> bool {
        let event = event.as_any().downcast_ref::<super::event::FakeEvent>();
        event.is_some_and(|event| self.0.fail(event.completion(), error))
    }

    /// Makes the device refuse the next enqueue.
    pub fn refuse_next(&self, error: Error) {
        self.0.refuse_next(error);
    }

    /// Whether the device may be running what signals this event: it is pending, and nothing holds it back.
    pub fn may_run(&self, event: &dyn crate::Event) -> bool {
        let event = event.as_any().downcast_ref::<super::event::FakeEvent>();
        event.is_some_and(|event| self.0.may_run(event.completion()))
    }

    /// Loses the device, as one whose driver says no more whether work is over.
    pub fn give_up(&self) {
        self.0.give_up();
    }

    /// Loses the device: everything pending fails, and the device refuses everything from now on.
    pub fn lose_device(&self) {
        self.0.lose_device();
    }
}

impl Debug for FakeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeControl")
            .field("device", &self.0.name())
            .field("pending", &self.pending())
            .finish()
    }
}
