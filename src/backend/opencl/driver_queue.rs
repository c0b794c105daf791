//! Queues of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::sys::{self, CommandQueue, Core, DriverResult, Event, Owned, adopt, call};
use crate::hal::QueueOrder;

/// A queue of the driver.
#[derive(Debug)]
pub(super) struct DriverQueue {
    pub(super) core: &'static Core,
    pub(super) raw: Owned<CommandQueue>,
    pub(super) order: QueueOrder,
    pub(super) profiling: bool,
}

impl DriverQueue {
    pub(super) fn raw(&self) -> sys::cl_command_queue {
        self.raw.raw()
    }

    pub(super) fn flush(&self) -> DriverResult {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFlush(self.raw())) }
    }

    pub(super) fn finish(&self) -> DriverResult {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFinish(self.raw())) }
    }

    /// Waits until the event of a marker behind everything enqueued so far is complete.
    pub(super) fn wait_for_marker(&self) -> DriverResult {
        let Some(marker) = self.marker(&[])? else { return Ok(()) };
        let event = marker.raw();
        // SAFETY: the event is alive.
        unsafe { call!(self.core, clWaitForEvents(1, &raw const event)) }
    }

    /// Has everything that is enqueued from now on wait for these events. Gives an event of that moment, if
    /// one is wanted.
    pub(super) fn barrier(
        &self,
        wait: &[sys::cl_event],
        wants_event: bool,
    ) -> DriverResult<Option<Owned<Event>>> {
        if wait.is_empty() && !wants_event {
            return Ok(None);
        }
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let place = if wants_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueBarrierWithWaitList(queue, waits, list, place)) }?;
        wants_event.then(|| adopt(self.core, event)).transpose()
    }

    /// The event of a marker behind `wait` or, if that is empty, behind everything enqueued so far.
    /// If the driver refuses even a marker, this blocks until both are over, and there is no event.
    pub(super) fn marker(&self, wait: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let place = &raw mut event;
        // SAFETY: the queue and the events are alive.
        if unsafe { call!(self.core, clEnqueueMarkerWithWaitList(queue, waits, list, place)) }.is_ok() {
            return adopt(self.core, event).map(Some);
        }
        self.finish()?;
        if waits > 0 {
            // SAFETY: the events are alive. An error says that one of them has failed, so it is over.
            let _ = unsafe { call!(self.core, clWaitForEvents(waits, list)) };
        }
        Ok(None)
    }
}
