//! Copies between host addresses, in their place in a queue: for drivers that read memory which is not
//! theirs when a write is enqueued, and not when the write has its turn.
#![expect(unsafe_code, reason = "copies memory in a callback of the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::sys::{self, Core, DriverResult, Event, OpenclFailure, Owned, call};
use crate::hal::QueueOrder;

/// A copy that the driver's callback thread makes. Its event is that of a marker behind it, so that times of
/// an enqueue which begins with one begin behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct HostCopy {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) len: usize,
}

/// A copy that is made when the driver calls back.
struct PendingCopy {
    copy: HostCopy,
    core: &'static Core,
    /// Complete after the copy.
    done: Arc<Owned<Event>>,
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
        let done = Arc::new(context.user_event()?);
        // Before the callback is set: from then on the copy is made, whatever happens here.
        let behind = queue.marker(&[done.raw()])?;
        let pending = Box::into_raw(Box::new(PendingCopy { copy: self, core, done }));
        let complete = sys::CL_COMPLETE as sys::cl_int;
        // SAFETY: the event is alive. The callback is called once, and takes the box then.
        let set =
            unsafe { call!(core, clSetEventCallback(turn.raw(), complete, Some(on_turn), pending.cast())) };
        if let Err(OpenclFailure { call, code }) = set {
            tracing::warn!(target: "wakegraph::opencl", call, code, "a callback was refused");
            let event = turn.raw();
            // SAFETY: the event is alive.
            let waited = unsafe { call!(core, clWaitForEvents(1, &raw const event)) };
            // SAFETY: made above; a refused callback is not called.
            unsafe { Box::from_raw(pending) }.end(waited.err().map_or(complete, |failure| failure.code));
        }
        // Without a flush the driver need not come to the marker.
        if let Err(OpenclFailure { call, code }) = queue.flush() {
            tracing::warn!(target: "wakegraph::opencl", call, code, "a queue was not flushed");
        }
        Ok(behind)
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

impl PendingCopy {
    /// What the copy waits for has ended with this status.
    fn end(self, status: sys::cl_int) {
        let complete = sys::CL_COMPLETE as sys::cl_int;
        if status == complete {
            // SAFETY: what the copy waits for is over, and nothing behind it has begun.
            unsafe { self.copy.run() };
        }
        // SAFETY: the event is a user event whose status has not been set before.
        let set = unsafe { call!(self.core, clSetUserEventStatus(self.done.raw(), status.min(complete))) };
        if let Err(OpenclFailure { call, code }) = set {
            tracing::warn!(target: "wakegraph::opencl", call, code, "a copy could not be completed");
        }
    }
}

/// The driver's callback.
unsafe extern "C" fn on_turn(_: sys::cl_event, status: sys::cl_int, pending: *mut c_void) {
    // SAFETY: the box that `enqueue` gave to the driver, which gives it back once.
    unsafe { Box::from_raw(pending.cast::<PendingCopy>()) }.end(status);
}
