//! The driver's streams and events.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::Priority;
use wakegraph_hal::support::streams::{CaptureContext, DriverStream, RawEvent, StreamContext};

use super::context::HipContext;
use super::handle::HipObject;
use super::sys::{
    Driver, HipFailure, call, get, hipErrorInvalidHandle, hipErrorInvalidValue, hipEvent_t, hipEventDefault,
    hipEventDisableTiming, hipGraph_t, hipStream_t, hipStreamCaptureModeThreadLocal,
    hipStreamCaptureStatusNone, hipStreamNonBlocking, ihipEvent_t, ihipGraph, ihipStream_t,
};

pub(super) type HipStream = DriverStream<HipContext>;
pub(super) type HipRawEvent = RawEvent<HipContext>;

/// That of a stream that is created without one.
const NORMAL_PRIORITY: c_int = 0;

fn highest_priority(driver: &Driver) -> Result<c_int, HipFailure> {
    let (mut lowest, mut highest) = (0, 0);
    // SAFETY: the context is bound, the places valid.
    unsafe { call!(driver, hipDeviceGetStreamPriorityRange(&raw mut lowest, &raw mut highest)) }?;
    Ok(highest)
}

impl StreamContext for HipContext {
    type StreamKind = ihipStream_t;
    type EventKind = ihipEvent_t;
    const BAD_HANDLE: &'static [u32] = &[hipErrorInvalidValue, hipErrorInvalidHandle];

    fn create_stream(context: &Arc<Self>, priority: Priority) -> Result<HipObject<ihipStream_t>, HipFailure> {
        let (driver, flags) = (context.driver, hipStreamNonBlocking);
        let priority = match priority {
            Priority::High => highest_priority(driver)?,
            _ => NORMAL_PRIORITY,
        };
        if let Some(idle) = context.idle_streams.take(priority) {
            // SAFETY: nothing else has the stream.
            return Ok(unsafe { HipObject::new(Arc::clone(context), idle) });
        }
        HipObject::create_by(context, |driver, place| {
            if priority == NORMAL_PRIORITY {
                // SAFETY: the context is bound, the place valid.
                return unsafe { call!(driver, hipStreamCreateWithFlags(place, flags)) };
            }
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipStreamCreateWithPriority(place, flags, priority)) }
        })
    }

    fn create_event(context: &Arc<Self>, timing: bool) -> Result<HipObject<ihipEvent_t>, HipFailure> {
        let flags = if timing { hipEventDefault } else { hipEventDisableTiming };
        HipObject::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipEventCreateWithFlags(place, flags)) }
        })
    }

    unsafe fn record(&self, event: hipEvent_t, stream: hipStream_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipEventRecord(event, stream)) }
    }

    unsafe fn wait(&self, stream: hipStream_t, event: hipEvent_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamWaitEvent(stream, event, 0)) }
    }

    unsafe fn query_event(&self, event: hipEvent_t) -> Result<bool, HipFailure> {
        // SAFETY: passed on to the caller.
        HipFailure::check_ready("hipEventQuery", unsafe { (self.driver.hipEventQuery)(event) })
    }

    unsafe fn query_stream(&self, stream: hipStream_t) -> Result<bool, HipFailure> {
        // SAFETY: passed on to the caller.
        HipFailure::check_ready("hipStreamQuery", unsafe { (self.driver.hipStreamQuery)(stream) })
    }

    unsafe fn synchronize(&self, stream: hipStream_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamSynchronize(stream)) }
    }

    unsafe fn elapsed(&self, from: hipEvent_t, to: hipEvent_t) -> Result<f32, HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { get!(self.driver, hipEventElapsedTime(from, to)) }
    }
}

impl CaptureContext for HipContext {
    type GraphKind = ihipGraph;
    const BACKEND: &'static str = "hip";

    fn native_context(&self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn begin_capture(&self, stream: hipStream_t) -> Result<(), HipFailure> {
        let mode = hipStreamCaptureModeThreadLocal;
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamBeginCapture(stream, mode)) }
    }

    unsafe fn end_capture(&self, stream: hipStream_t, graph: &mut hipGraph_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamEndCapture(stream, graph)) }
    }

    unsafe fn is_capturing(&self, stream: hipStream_t) -> Result<bool, HipFailure> {
        let mut status = hipStreamCaptureStatusNone;
        // SAFETY: passed on to the caller; the pointer is valid for a status.
        unsafe { call!(self.driver, hipStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != hipStreamCaptureStatusNone)
    }
}
