//! The driver's streams and events as objects that destroy themselves.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::{CaptureRelaxed, CudaContext};
use super::sys::{
    CUevent, CUevent_flags_enum, CUstream, CUstream_flags_enum, CudaFailure, NOT_READY, SUCCESS, call,
};

/// A stream that runs independently of the default stream.
#[derive(Debug)]
pub(super) struct CudaStream {
    context: Arc<CudaContext>,
    raw: CUstream,
    /// How many events have been recorded by [`record`](Self::record). Each has a sequence number.
    recorded: Mutex<u64>,
    /// The largest sequence number that is known to be complete, and with it all smaller ones.
    complete: AtomicU64,
}

// SAFETY: any thread may use the driver's streams, and several may do so at a time.
unsafe impl Send for CudaStream {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is bound; the pointer is valid for a pointer.
        unsafe { call!(context.driver, cuStreamCreate(&raw mut raw, flags)) }?;
        let (recorded, complete) = (Mutex::new(0), AtomicU64::new(0));
        Ok(Self { context: Arc::clone(context), raw, recorded, complete })
    }

    /// Records an event behind everything that is on the stream now, and returns its sequence
    /// number. The caller has bound the context.
    pub(super) fn record(&self, event: &RawEvent) -> Result<u64, CudaFailure> {
        let mut recorded = self.recorded.lock();
        event.record(self)?;
        *recorded += 1;
        Ok(*recorded)
    }

    /// Whether the event with this sequence number is complete. The driver is asked only if no later
    /// event of the stream is known to be.
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
        self.raw
    }

    /// Blocks until everything on the stream is done.
    pub(super) fn synchronize(&self) -> Result<(), CudaFailure> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream is alive, its context bound.
        unsafe { call!(self.context.driver, cuStreamSynchronize(self.raw)) }
    }

    /// Whether everything on the stream is done.
    pub(super) fn is_idle(&self) -> Result<bool, CudaFailure> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream is alive, its context bound.
        let code = unsafe { (self.context.driver.cuStreamQuery)(self.raw) };
        is_ready("cuStreamQuery", code)
    }

    /// Makes work that is enqueued from now on wait for the last record of the event.
    pub(super) fn wait(&self, event: &RawEvent) -> Result<(), CudaFailure> {
        // SAFETY: both are alive; the caller has bound the context.
        unsafe { call!(self.context.driver, cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }
}

impl Drop for CudaStream {
    /// Work in flight goes on.
    fn drop(&mut self) {
        self.context.destroy(|| {
            // SAFETY: created by `create`, destroyed once.
            unsafe { call!(self.context.driver, cuStreamDestroy(self.raw)) }
        });
    }
}

/// An event of the driver's.
#[derive(Debug)]
pub(super) struct RawEvent {
    context: Arc<CudaContext>,
    raw: CUevent,
}

// SAFETY: any thread may use the driver's events, and several may do so at a time.
unsafe impl Send for RawEvent {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(super) fn create(context: &Arc<CudaContext>, timing: bool) -> Result<Self, CudaFailure> {
        let _bound = context.bind()?;
        let flags = match timing {
            true => CUevent_flags_enum::CU_EVENT_DEFAULT,
            false => CUevent_flags_enum::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound; the pointer is valid for a pointer.
        unsafe { call!(context.driver, cuEventCreate(&raw mut raw, flags as u32)) }?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    /// A new event that is recorded behind everything that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn recorded_on(stream: &CudaStream) -> Result<Self, CudaFailure> {
        let event = Self::create(&stream.context, false)?;
        event.record(stream)?;
        Ok(event)
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Makes the event complete once everything is done that is on the stream now. The caller has
    /// bound the context.
    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), CudaFailure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.context.driver, cuEventRecord(self.raw, stream.raw)) }
    }

    /// Whether everything before the last record is done.
    pub(super) fn is_complete(&self) -> Result<bool, CudaFailure> {
        let _relaxed = CaptureRelaxed::enter(self.context.driver)?;
        // SAFETY: the event is alive. A query needs no context, so a loop of queries does not bind one.
        let code = unsafe { (self.context.driver.cuEventQuery)(self.raw) };
        is_ready("cuEventQuery", code)
    }

    /// Nanoseconds from `earlier` to this event, both of which are complete. Negative if this is the
    /// earlier one.
    pub(super) fn since(&self, earlier: &Self) -> Result<i64, CudaFailure> {
        let _bound = self.context.bind()?;
        let mut milliseconds = 0f32;
        let (from, to) = (earlier.raw, self.raw);
        // SAFETY: both are alive; the pointer is valid for a number.
        unsafe { call!(self.context.driver, cuEventElapsedTime(&raw mut milliseconds, from, to)) }?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        self.context.destroy(|| {
            // SAFETY: created by `create`, destroyed once. A stream that waits for it has taken its
            // record by now.
            unsafe { call!(self.context.driver, cuEventDestroy(self.raw)) }
        });
    }
}

fn is_ready(call: &'static str, code: u32) -> Result<bool, CudaFailure> {
    match code {
        SUCCESS => Ok(true),
        NOT_READY => Ok(false),
        code => Err(CudaFailure { call, code }),
    }
}
