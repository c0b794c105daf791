//! The driver's streams and events.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::{HipCaptureRelaxed, HipContext};
use super::handle::HipObject;
use super::sys::{
    Driver, HipFailure, call, get, hipErrorNotReady, hipEvent_t, hipEventDefault, hipEventDisableTiming,
    hipStream_t, hipStreamNonBlocking, hipSuccess, ihipEvent_t, ihipStream_t,
};
use crate::types::Priority;

/// A stream that runs independently of the default stream.
#[derive(Debug)]
pub(super) struct HipStream {
    stream: HipObject<ihipStream_t>,
    /// How many events have been recorded by [`record`](Self::record). Each has a sequence number.
    recorded: Mutex<u64>,
    /// The largest sequence number that is known to be complete, and with it all smaller ones.
    complete: AtomicU64,
}

impl HipStream {
    pub(super) fn create(context: &Arc<HipContext>) -> Result<Self, HipFailure> {
        Self::create_with(context, Priority::Normal)
    }

    /// A stream of this priority. The driver's streams have the lowest, unless they are created with another.
    pub(super) fn create_with(context: &Arc<HipContext>, priority: Priority) -> Result<Self, HipFailure> {
        let flags = hipStreamNonBlocking;
        let stream = HipObject::create_by(context, |driver, place| {
            if priority != Priority::High {
                // SAFETY: the context is bound, the place valid.
                return unsafe { call!(driver, hipStreamCreateWithFlags(place, flags)) };
            }
            let (mut lowest, mut highest) = (0, 0);
            // SAFETY: the context is bound, the places valid.
            unsafe { call!(driver, hipDeviceGetStreamPriorityRange(&raw mut lowest, &raw mut highest)) }?;
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipStreamCreateWithPriority(place, flags, highest)) }
        })?;
        Ok(Self { stream, recorded: Mutex::new(0), complete: AtomicU64::new(0) })
    }

    /// Records an event behind everything that is on the stream now, and returns its sequence
    /// number. The caller has bound the context.
    pub(super) fn record(&self, event: &HipRawEvent) -> Result<u64, HipFailure> {
        let mut recorded = self.recorded.lock();
        event.record(self)?;
        *recorded += 1;
        Ok(*recorded)
    }

    /// Whether the event with this sequence number is complete. The driver is asked only if no
    /// later event of the stream is known to be.
    pub(super) fn has_completed(&self, sequence: u64, event: &HipRawEvent) -> Result<bool, HipFailure> {
        if self.complete.load(Ordering::Acquire) >= sequence {
            return Ok(true);
        }
        let is_complete = event.is_complete()?;
        if is_complete {
            self.complete.fetch_max(sequence, Ordering::AcqRel);
        }
        Ok(is_complete)
    }

    pub(super) fn raw(&self) -> hipStream_t {
        self.stream.raw()
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.stream.driver()
    }

    /// Blocks until everything on the stream is done.
    pub(super) fn synchronize(&self) -> Result<(), HipFailure> {
        let _bound = self.stream.context().bind()?;
        // SAFETY: the stream is alive, its context bound.
        unsafe { call!(self.stream.driver(), hipStreamSynchronize(self.raw())) }
    }

    /// Whether everything on the stream is done.
    pub(super) fn is_idle(&self) -> Result<bool, HipFailure> {
        let _bound = self.stream.context().bind()?;
        // SAFETY: the stream is alive, its context bound.
        let code = unsafe { (self.stream.driver().hipStreamQuery)(self.raw()) };
        is_ready("hipStreamQuery", code)
    }

    /// Makes work that is enqueued from now on wait for the last record of the event.
    pub(super) fn wait(&self, event: &HipRawEvent) -> Result<(), HipFailure> {
        // SAFETY: both are alive; the caller has bound the context.
        unsafe { call!(self.stream.driver(), hipStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }
}

/// Streams on which nothing runs: each waits for an event of another library.
#[derive(Default, Debug)]
pub(super) struct HipImportStreams(Mutex<Vec<Arc<HipStream>>>);

impl HipImportStreams {
    /// Has `then` recorded once the last record of another library's event is complete. Gives the stream that
    /// it is recorded on, and its sequence number there. Each event that is still awaited has a stream of its
    /// own, so that none waits for another. The caller has bound the context.
    ///
    /// # Safety
    /// The event is live.
    pub(super) unsafe fn follow(
        &self,
        event: hipEvent_t,
        then: &HipRawEvent,
    ) -> Result<(Arc<HipStream>, u64), HipFailure> {
        let mut streams = self.0.lock();
        let mut idle = None;
        for stream in &*streams {
            if stream.is_idle()? {
                idle = Some(Arc::clone(stream));
                break;
            }
        }
        let stream = match idle {
            Some(stream) => stream,
            None => {
                let stream = Arc::new(HipStream::create(then.context())?);
                streams.push(Arc::clone(&stream));
                stream
            }
        };
        // SAFETY: the stream is alive; the caller vouches for the event, and has bound the context.
        unsafe { call!(then.driver(), hipStreamWaitEvent(stream.raw(), event, 0)) }?;
        let sequence = stream.record(then)?;
        Ok((stream, sequence))
    }
}

/// An event of the driver's. A stream that waits for it takes its record at once.
pub(super) type HipRawEvent = HipObject<ihipEvent_t>;

impl HipObject<ihipEvent_t> {
    pub(super) fn create(context: &Arc<HipContext>, timing: bool) -> Result<Self, HipFailure> {
        let flags = match timing {
            true => hipEventDefault,
            false => hipEventDisableTiming,
        };
        Self::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipEventCreateWithFlags(place, flags)) }
        })
    }

    /// A new event that is recorded behind everything that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn recorded_on(stream: &HipStream) -> Result<Self, HipFailure> {
        let event = Self::create(stream.stream.context(), false)?;
        event.record(stream)?;
        Ok(event)
    }

    /// Makes the event complete once everything is done that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn record(&self, stream: &HipStream) -> Result<(), HipFailure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.driver(), hipEventRecord(self.raw(), stream.raw())) }
    }

    /// Whether everything before the last record is done.
    pub(super) fn is_complete(&self) -> Result<bool, HipFailure> {
        let _relaxed = HipCaptureRelaxed::enter(self.driver())?;
        // SAFETY: the event is alive. A query needs no context, so a loop of queries does not bind
        // one.
        let code = unsafe { (self.driver().hipEventQuery)(self.raw()) };
        is_ready("hipEventQuery", code)
    }

    /// Nanoseconds from `earlier` to this event, both of which are complete. Negative if this is
    /// the earlier one.
    pub(super) fn since(&self, earlier: &Self) -> Result<i64, HipFailure> {
        let _bound = self.context().bind()?;
        // SAFETY: both are alive.
        let milliseconds: f32 =
            unsafe { get!(self.driver(), hipEventElapsedTime(earlier.raw(), self.raw())) }?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

/// Whether a query has found that the work is done.
pub(super) fn is_ready(call: &'static str, code: u32) -> Result<bool, HipFailure> {
    match code {
        hipSuccess => Ok(true),
        hipErrorNotReady => Ok(false),
        code => Err(HipFailure { call, code }),
    }
}
