//! Queues of the driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use wakegraph_hal::QueueOrder;

use super::callback::wait;
use super::sys::{self, CommandQueue, Core, DriverResult, Event, MemObject, Owned, adopt_event, call};

/// A queue of the driver.
#[derive(Debug)]
pub(super) struct DriverQueue {
    pub(super) core: &'static Core,
    pub(super) raw: Owned<CommandQueue>,
    pub(super) order: QueueOrder,
    pub(super) profiling: bool,
    /// With profiling, where the driver's markers have no times: a byte, of which a fill stands in for a
    /// marker.
    pub(super) marker_byte: Option<Owned<MemObject>>,
}

impl DriverQueue {
    pub(super) fn raw(&self) -> sys::cl_command_queue {
        self.raw.raw()
    }

    /// Flushes after an enqueue, which does not fail any more.
    pub(super) fn flush_enqueued(&self) {
        sys::report(self.flush(), "a queue was not flushed");
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
        if let Some(marker) = self.marker(&[])? {
            wait(self.core, marker.raw());
        }
        Ok(())
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
        let own_event = wants_event && self.marker_byte.is_none();
        let place = if own_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueBarrierWithWaitList(queue, waits, list, place)) }?;
        match &self.marker_byte {
            Some(byte) if wants_event => self.clear(byte, 1, &[]).map(Some),
            _ => own_event.then(|| adopt_event(self.core, event)).transpose(),
        }
    }

    /// The event of a marker behind `wait` or, if that is empty, behind everything enqueued so far.
    /// If the driver refuses even a marker, this blocks until both are over, and there is no event.
    pub(super) fn marker(&self, wait: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        let Some(byte) = &self.marker_byte else { return self.plain_marker(wait) };
        if self.order == QueueOrder::InOrder || !wait.is_empty() {
            return self.clear(byte, 1, wait).map(Some).or_else(|_| self.plain_marker(wait));
        }
        // A fill without a wait list would not wait for what else is in the queue.
        let Some(marker) = self.plain_marker(&[])? else { return Ok(None) };
        Ok(Some(self.clear(byte, 1, &[marker.raw()]).unwrap_or(marker)))
    }

    /// The event of a marker behind an event that need not be over before the call returns.
    pub(super) fn marker_behind(&self, event: &Owned<Event>) -> DriverResult<Owned<Event>> {
        let events = [event.raw()];
        match &self.marker_byte {
            Some(byte) => self.clear(byte, 1, &events).or_else(|_| self.enqueue_marker(&events)),
            None => self.enqueue_marker(&events),
        }
    }

    /// Fills memory that nothing else uses yet, of `len` bytes, with 0. Gives the event of the fill.
    pub(super) fn clear(
        &self,
        memory: &Owned<MemObject>,
        len: usize,
        wait: &[sys::cl_event],
    ) -> DriverResult<Owned<Event>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let (to, zero, place) = (memory.raw(), 0_u8, &raw mut event);
        let from = (&raw const zero).cast();
        // SAFETY: the memory has as many bytes, nothing reads it, and the driver copies the pattern; the
        // events are alive.
        unsafe { call!(self.core, clEnqueueFillBuffer(queue, to, from, 1, 0, len, waits, list, place)) }?;
        adopt_event(self.core, event)
    }

    fn plain_marker(&self, events: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        if let Ok(event) = self.enqueue_marker(events) {
            return Ok(Some(event));
        }
        self.finish()?;
        for &event in events {
            wait(self.core, event);
        }
        Ok(None)
    }

    fn enqueue_marker(&self, events: &[sys::cl_event]) -> DriverResult<Owned<Event>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(events), ptr::null_mut());
        let place = &raw mut event;
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueMarkerWithWaitList(queue, waits, list, place)) }?;
        adopt_event(self.core, event)
    }
}
