//! Copies between host addresses, in their place in a queue: for drivers that read memory which is not
//! theirs when a write is enqueued, and not when the write has its turn.
#![expect(unsafe_code, reason = "copies memory in a callback of the driver")]

use std::ptr;

use wakegraph_hal::QueueOrder;

use super::callback::when_over;
use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::sys::{self, DriverResult, Event, Owned, call};

/// A copy that the driver's callback thread makes. Its event is that of a marker behind it, so that times of
/// an enqueue which begins with one begin behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCopy {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

impl HostCopy {
    /// Enqueues it behind the events in `wait`. Gives its event.
    ///
    /// # Safety
    /// Both sides are valid for `len` bytes, do not overlap, and nothing else touches them in a
    /// conflicting way, until the copy is over. The events are alive.
    pub(super) unsafe fn enqueue(
        self,
        context: &OpenclContext,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
    ) -> DriverResult<Option<Owned<Event>>> {
        if wait.is_empty() && queue.order == QueueOrder::OutOfOrder {
            // Its turn is now. A marker without a wait list would wait for everything in the queue.
            // SAFETY: passed on to the caller.
            unsafe { self.run() };
            return context.completed_event().map(Some);
        }
        let core = context.core;
        let Some(turn) = queue.marker(wait)? else {
            // The driver has taken no marker, so everything before is over.
            // SAFETY: passed on to the caller.
            unsafe { self.run() };
            return Ok(None);
        };
        let done = context.user_event()?;
        // Before the callback is set: from then on the copy is made, whatever happens here. Until then
        // nothing signals `done`, so this must not wait for it.
        let behind = queue.marker_behind(&done)?;
        when_over(core, turn.raw(), move |status| {
            // It lives until the driver has called back.
            drop(turn);
            if status == sys::CL_SUCCESS {
                // SAFETY: what the copy waits for is over, and nothing behind it has begun.
                unsafe { self.run() };
            }
            // SAFETY: the event is a user event whose status has not been set before.
            let set = unsafe { call!(core, clSetUserEventStatus(done.raw(), status)) };
            sys::report(set, "a copy could not be completed");
        });
        // Without a flush the driver need not come to the marker.
        queue.flush_enqueued();
        Ok(Some(behind))
    }

    /// # Safety
    /// As for [`enqueue`](Self::enqueue), now.
    unsafe fn run(self) {
        let from = ptr::with_exposed_provenance::<u8>(self.from);
        let to = ptr::with_exposed_provenance_mut::<u8>(self.to);
        // SAFETY: the caller promises it.
        unsafe { ptr::copy_nonoverlapping(from, to, self.len) };
    }
}
