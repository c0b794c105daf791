//! The driver's streams and events as objects that destroy themselves.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::{Context, Relaxed};
use super::sys::{
    CUevent, CUevent_flags_enum, CUstream, CUstream_flags_enum, Failure, NOT_READY, SUCCESS, call,
};

/// A stream that waits for no other.
#[derive(Debug)]
pub(super) struct Stream {
    context: Arc<Context>,
    raw: CUstream,
    /// How many events have been recorded, each in its place.
    recorded: Mutex<u64>,
    /// The last place that was seen to be over, and with it all before.
    passed: AtomicU64,
}

// SAFETY: the driver's streams may be used from any thread, by several at a time.
unsafe impl Send for Stream {}
// SAFETY: as for `Send`.
unsafe impl Sync for Stream {}

impl Stream {
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, Failure> {
        let _bound = context.bind()?;
        let mut raw = ptr::null_mut();
        let flags = CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is bound; the place is a pointer's.
        unsafe { call!(context.driver, cuStreamCreate(&raw mut raw, flags)) }?;
        Ok(Self { context: Arc::clone(context), raw, recorded: Mutex::new(0), passed: AtomicU64::new(0) })
    }

    /// Records an event behind everything that is on the stream now; gives its place among those
    /// recorded so. The caller has bound the context.
    pub(super) fn record(&self, event: &RawEvent) -> Result<u64, Failure> {
        let mut recorded = self.recorded.lock();
        event.record(self)?;
        *recorded += 1;
        Ok(*recorded)
    }

    /// Whether the event in this place is complete, which is asked of the driver only if nobody has
    /// seen a later one so.
    pub(super) fn has_passed(&self, place: u64, event: &RawEvent) -> Result<bool, Failure> {
        if self.passed.load(Ordering::Acquire) >= place {
            return Ok(true);
        }
        let complete = event.is_complete()?;
        if complete {
            self.passed.fetch_max(place, Ordering::AcqRel);
        }
        Ok(complete)
    }

    pub(super) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Blocks until everything on the stream is done.
    pub(super) fn synchronize(&self) -> Result<(), Failure> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream is alive, its context bound.
        unsafe { call!(self.context.driver, cuStreamSynchronize(self.raw)) }
    }

    /// Whether everything on the stream is done.
    pub(super) fn is_idle(&self) -> Result<bool, Failure> {
        let _bound = self.context.bind()?;
        // SAFETY: the stream is alive, its context bound.
        let code = unsafe { (self.context.driver.cuStreamQuery)(self.raw) };
        ready("cuStreamQuery", code)
    }

    /// What is enqueued from now on comes after what the event was last recorded behind.
    pub(super) fn wait(&self, event: &RawEvent) -> Result<(), Failure> {
        // SAFETY: both are alive; the caller has bound the context.
        unsafe { call!(self.context.driver, cuStreamWaitEvent(self.raw, event.raw, 0)) }
    }
}

impl Drop for Stream {
    /// What is in flight goes on.
    fn drop(&mut self) {
        let destroy = || {
            let _bound = self.context.bind()?;
            // SAFETY: created by `create`, destroyed once.
            unsafe { call!(self.context.driver, cuStreamDestroy(self.raw)) }
        };
        self.context.dropped(destroy());
    }
}

/// An event of the driver's.
#[derive(Debug)]
pub(super) struct RawEvent {
    context: Arc<Context>,
    raw: CUevent,
}

// SAFETY: the driver's events may be used from any thread, by several at a time.
unsafe impl Send for RawEvent {}
// SAFETY: as for `Send`.
unsafe impl Sync for RawEvent {}

impl RawEvent {
    pub(super) fn create(context: &Arc<Context>, timing: bool) -> Result<Self, Failure> {
        let _bound = context.bind()?;
        let flags = match timing {
            true => CUevent_flags_enum::CU_EVENT_DEFAULT,
            false => CUevent_flags_enum::CU_EVENT_DISABLE_TIMING,
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound; the place is a pointer's.
        unsafe { call!(context.driver, cuEventCreate(&raw mut raw, flags as u32)) }?;
        Ok(Self { context: Arc::clone(context), raw })
    }

    pub(super) fn raw(&self) -> CUevent {
        self.raw
    }

    /// Is complete once everything that is on the stream now is. The caller has bound the context.
    pub(super) fn record(&self, stream: &Stream) -> Result<(), Failure> {
        // SAFETY: both are alive and of one context.
        unsafe { call!(self.context.driver, cuEventRecord(self.raw, stream.raw)) }
    }

    /// Whether what it was last recorded behind is done.
    pub(super) fn is_complete(&self) -> Result<bool, Failure> {
        let _relaxed = Relaxed::enter(self.context.driver)?;
        // SAFETY: the event is alive; a query needs no context, so a loop of queries does not bind one.
        let code = unsafe { (self.context.driver.cuEventQuery)(self.raw) };
        ready("cuEventQuery", code)
    }

    /// Nanoseconds from `earlier`, which is complete like this one; less than 0 if it is not the earlier one.
    pub(super) fn since(&self, earlier: &Self) -> Result<i64, Failure> {
        let _bound = self.context.bind()?;
        let mut milliseconds = 0f32;
        let (from, to) = (earlier.raw, self.raw);
        // SAFETY: both are alive; the place is a number's.
        unsafe { call!(self.context.driver, cuEventElapsedTime(&raw mut milliseconds, from, to)) }?;
        Ok((f64::from(milliseconds) * 1e6) as i64)
    }
}

impl Drop for RawEvent {
    fn drop(&mut self) {
        let destroy = || {
            let _bound = self.context.bind()?;
            // SAFETY: created by `create`, destroyed once; what waits for it has taken its record by now.
            unsafe { call!(self.context.driver, cuEventDestroy(self.raw)) }
        };
        self.context.dropped(destroy());
    }
}

fn ready(call: &'static str, code: u32) -> Result<bool, Failure> {
    match code {
        SUCCESS => Ok(true),
        NOT_READY => Ok(false),
        code => Err(Failure { call, code }),
    }
}
