//! Runs that are left to the reactor's thread to be launched.

use std::sync::Arc;
use std::thread;

use super::Run;
use crate::hal;
use crate::runtime::batching::Batcher;
use crate::runtime::device::Device;
use crate::runtime::submit::{enqueue, enqueue_on};
use crate::sync::Ordering;

/// `submit` launches it.
pub(super) const AT_SUBMIT: u8 = 0;
/// Nobody has launched it yet.
const HANDED_OVER: u8 = 1;
/// Somebody does.
const LAUNCHING: u8 = 2;
/// Launched on a queue that executables share.
const ON_SHARED_QUEUE: u8 = 3;
/// Launched on its executable's queue after all.
const ON_OWN_QUEUE: u8 = 4;

impl Run {
    /// Who launches it and looks for its end, if it was handed over.
    pub(crate) fn batcher(&self) -> Option<&Arc<Batcher>> {
        self.batcher.as_ref().filter(|_| self.launch.load(Ordering::Acquire) != AT_SUBMIT)
    }

    /// Somebody else is going to launch it.
    pub(crate) fn set_handed_over(&self) {
        self.launch.store(HANDED_OVER, Ordering::Release);
    }

    /// Launches it if nobody has, on a queue that executables share, if `queue` gives one. Whether it is there now, and for
    /// the caller to look for its end.
    pub(crate) fn launch_handed_over(
        self: &Arc<Self>,
        queue: impl FnOnce(&Device) -> Option<Arc<dyn hal::Queue>>,
    ) -> bool {
        let taken = self.launch.compare_exchange(HANDED_OVER, LAUNCHING, Ordering::AcqRel, Ordering::Acquire);
        if taken.is_err() {
            return false;
        }
        // There until the run is over, which it cannot be yet.
        let Some(shared) = self.inner.lock().owner.clone() else { return false };
        let queue = shared.partitions.first().and_then(|partition| partition.device()).and_then(queue);
        let (place, enqueued) = match &queue {
            Some(queue) => (ON_SHARED_QUEUE, enqueue_on(&shared, self, &**queue)),
            None => (ON_OWN_QUEUE, enqueue(&shared, self, 0, &[], &[])),
        };
        if enqueued {
            self.set_all_enqueued();
        }
        self.launch.store(place, Ordering::Release);
        enqueued && queue.is_some()
    }

    /// Whether everything of it is on devices, so that they can wait for it. Sees to it, if it was handed over.
    pub(crate) fn is_all_enqueued(self: &Arc<Self>) -> bool {
        match self.launch.load(Ordering::Acquire) {
            HANDED_OVER => _ = self.launch_handed_over(|_| None),
            // A call of the driver's.
            LAUNCHING => {}
            _ => return self.enqueued.load(Ordering::Acquire),
        }
        while self.launch.load(Ordering::Acquire) == LAUNCHING {
            thread::yield_now();
        }
        self.enqueued.load(Ordering::Acquire)
    }

    /// Whether the queue of its executable's later runs does not order them after this one.
    pub(crate) fn is_on_shared_queue(&self) -> bool {
        self.launch.load(Ordering::Acquire) == ON_SHARED_QUEUE
    }

    /// It keeps a shared queue for too long.
    pub(crate) fn set_too_long(&self) {
        self.too_long.store(true, Ordering::Relaxed);
    }

    /// Whether it kept the queue that it shared for no longer than it should, if it was on one.
    pub(crate) fn shared_well(&self) -> Option<bool> {
        self.is_on_shared_queue().then(|| !self.too_long.load(Ordering::Relaxed))
    }
}
