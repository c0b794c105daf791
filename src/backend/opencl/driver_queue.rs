//! Queues of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use super::sys::{self, CommandQueue, Core, DriverResult, Event, MemObject, Owned, adopt, call};
use crate::hal::QueueOrder;

/// A queue of the driver.
#[derive(Debug)]
pub(super) struct DriverQueue {
    pub(super) core: &'static Core,
    pub(super) raw: Owned<CommandQueue>,
    pub(super) order: QueueOrder,
    pub(super) profiling: bool,
    /// With profiling, where the driver's markers have no times: four bytes, of which a fill stands in for
    /// a marker.
    pub(super) marker_word: Option<Owned<MemObject>>,
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
        let own_event = wants_event && self.marker_word.is_none();
        let place = if own_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueBarrierWithWaitList(queue, waits, list, place)) }?;
        match &self.marker_word {
            Some(word) if wants_event => self.fill(word, &[]).map(Some),
            _ => own_event.then(|| adopt(self.core, event)).transpose(),
        }
    }

    /// The event of a marker behind `wait` or, if that is empty, behind everything enqueued so far.
    /// If the driver refuses even a marker, this blocks until both are over, and there is no event.
    pub(super) fn marker(&self, wait: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        let Some(word) = &self.marker_word else { return self.plain_marker(wait) };
        if self.order == QueueOrder::InOrder || !wait.is_empty() {
            return self.fill(word, wait).map(Some).or_else(|_| self.plain_marker(wait));
        }
        // A fill without a wait list would not wait for what else is in the queue.
        let Some(marker) = self.plain_marker(&[])? else { return Ok(None) };
        Ok(Some(self.fill(word, &[marker.raw()]).unwrap_or(marker)))
    }

    /// The event of a fill of the queue's own memory.
    fn fill(&self, word: &Owned<MemObject>, wait: &[sys::cl_event]) -> DriverResult<Owned<Event>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let (to, zero, place) = (word.raw(), 0_u32, &raw mut event);
        let (from, len) = ((&raw const zero).cast(), size_of::<u32>());
        // SAFETY: the memory has as many bytes, nothing reads it, and the driver copies the pattern; the
        // events are alive.
        unsafe { call!(self.core, clEnqueueFillBuffer(queue, to, from, len, 0, len, waits, list, place)) }?;
        adopt(self.core, event)
    }

    fn plain_marker(&self, wait: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
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
