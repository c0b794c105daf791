//! The driver's streams and events.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::{CaptureRelaxed, CudaContext};
use super::handle::CudaObject;
use super::sys::{
    CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CU_STREAM_NON_BLOCKING, CUDA_ERROR_NOT_READY, CUDA_SUCCESS,
    CUevent, CUevent_st, CUstream, CUstream_st, CudaFailure, Driver, call, get,
};
use crate::types::Priority;

/// A stream that runs independently of the default stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    stream: CudaObject<CUstream_st>,
    /// How many events have been recorded by [`record`](Self::record). Each has a sequence number.
    recorded: Mutex<u64>,
    /// The largest sequence number that is known to be complete, and with it all smaller ones.
    complete: AtomicU64,
}

impl CudaStream {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        Self::create_with(context, Priority::Normal)
    }

    /// A stream of this priority. The driver's streams have the lowest, unless they are created with another.
    pub(super) fn create_with(context: &Arc<CudaContext>, priority: Priority) -> Result<Self, CudaFailure> {
        let flags = CU_STREAM_NON_BLOCKING;
        let stream = CudaObject::create_by(context, |driver, place| {
            if priority != Priority::High {
                // SAFETY: the context is bound, the place valid.
                return unsafe { call!(driver, cuStreamCreate(place, flags)) };
            }
            let (mut lowest, mut highest) = (0, 0);
            // SAFETY: the context is bound, the places valid.
            unsafe { call!(driver, cuCtxGetStreamPriorityRange(&raw mut lowest, &raw mut highest)) }?;
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, cuStreamCreateWithPriority(place, flags, highest)) }
        })?;
        Ok(Self { stream, recorded: Mutex::new(0), complete: AtomicU64::new(0) })
    }

    /// Records an event behind everything that is on the stream now, and returns its sequence
    /// number. The caller has bound the context.
    pub(super) fn record(&self, event: &RawEvent) -> Result<u64, CudaFailure> {
        let mut recorded = self.recorded.lock();
        event.record(self)?;
        *recorded += 1;
        Ok(*recorded)
    }

    /// Whether the event with this sequence number is complete. The driver is asked only if no
    /// later event of the stream is known to be.
    pub(super) fn has_completed(&self, sequence: u64, event: &RawEvent) -> Result<bool, CudaFailure> {
        if self.complete.load(Ordering::Acquire) >= sequence {
            return Ok(true);
        }
        let is_complete = event.is_complete()?;
        if is_complete {
            self.complete.fetch_max(sequence, Ordering::AcqRel);
        }
        Ok(is_complete)
    }

    pub(super) fn raw(&self) -> CUstream {
        self.stream.raw()
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.stream.driver()
    }

    /// Blocks until everything on the stream is done.
    pub(super) fn synchronize(&self) -> Result<(), CudaFailure> {
        let _bound = self.stream.context().bind()?;
        // SAFETY: the stream is alive, its context bound.
        unsafe { call!(self.stream.driver(), cuStreamSynchronize(self.raw())) }
    }

    /// Whether everything on the stream is done.
    pub(super) fn is_idle(&self) -> Result<bool, CudaFailure> {
        let _bound = self.stream.context().bind()?;
        // SAFETY: the stream is alive, its context bound.
        let code = unsafe { (self.stream.driver().cuStreamQuery)(self.raw()) };
        is_ready("cuStreamQuery", code)
    }

    /// Makes work that is enqueued from now on wait for the last record of the event.
    pub(super) fn wait(&self, event: &RawEvent) -> Result<(), CudaFailure> {
        // SAFETY: both are alive; the caller has bound the context.
        unsafe { call!(self.stream.driver(), cuStreamWaitEvent(self.raw(), event.raw(), 0)) }
    }
}

/// Streams on which nothing runs: each waits for an event of another library.
#[derive(Default, Debug)]
pub(super) struct ImportStreams(Mutex<Vec<Arc<CudaStream>>>);

impl ImportStreams {
    /// Has `then` recorded once the last record of another library's event is complete. Gives the stream that
    /// it is recorded on, and its sequence number there. Each event that is still awaited has a stream of its
    /// own, so that none waits for another. The caller has bound the context.
    ///
    /// # Safety
    /// The event is live.
    pub(super) unsafe fn follow(
        &self,
        event: CUevent,
        then: &RawEvent,
    ) -> Result<(Arc<CudaStream>, u64), CudaFailure> {
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
                let stream = Arc::new(CudaStream::create(then.context())?);
                streams.push(Arc::clone(&stream));
                stream
            }
        };
        // SAFETY: the stream is alive; the caller vouches for the event, and has bound the context.
        unsafe { call!(then.driver(), cuStreamWaitEvent(stream.raw(), event, 0)) }?;
        let sequence = stream.record(then)?;
        Ok((stream, sequence))
    }
}

/// An event of the driver's. A stream that waits for it takes its record at once.
pub(super) type RawEvent = CudaObject<CUevent_st>;

impl CudaObject<CUevent_st> {
    pub(super) fn create(context: &Arc<CudaContext>, timing: bool) -> Result<Self, CudaFailure> {
        let flags = match timing {
            true => CU_EVENT_DEFAULT,
            false => CU_EVENT_DISABLE_TIMING,
        };
        Self::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, cuEventCreate(place, flags)) }
        })
    }

    /// A new event that is recorded behind everything that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn recorded_on(stream: &CudaStream) -> Result<Self, CudaFailure> {
        let event = Self::create(stream.stream.context(), false)?;
        event.record(stream)?;
        Ok(event)
    }

    /// Makes the event complete once everything is done that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), CudaFailure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.driver(), cuEventRecord(self.raw(), stream.raw())) }
    }

    /// Whether everything before the last record is done.
    pub(super) fn is_complete(&self) -> Result<bool, CudaFailure> {
        let _relaxed = CaptureRelaxed::enter(self.driver())?;
        // SAFETY: the event is alive. A query needs no context, so a loop of queries does not bind
        // one.
        let code = unsafe { (self.driver().cuEventQuery)(self.raw()) };
        is_ready("cuEventQuery", code)
    }

    /// Nanoseconds from `earlier` to this event, both of which are complete. Negative if this is
    /// the earlier one.
    pub(super) fn since(&self, earlier: &Self) -> Result<i64, CudaFailure> {
        let _bound = self.context().bind()?;
        // SAFETY: both are alive.
        let milliseconds: f32 =
            unsafe { get!(self.driver(), cuEventElapsedTime(earlier.raw(), self.raw())) }?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

/// Whether a query has found that the work is done.
pub(super) fn is_ready(call: &'static str, code: u32) -> Result<bool, CudaFailure> {
    match code {
        CUDA_SUCCESS => Ok(true),
        CUDA_ERROR_NOT_READY => Ok(false),
        code => Err(CudaFailure { call, code }),
    }
}
