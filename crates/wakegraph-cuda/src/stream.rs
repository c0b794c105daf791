//! The driver's streams and events.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::sync::Arc;

use wakegraph_hal::Priority;
use wakegraph_hal::support::streams::{CaptureContext, DriverStream, RawEvent, StreamContext};

use super::context::CudaContext;
use super::handle::CudaObject;
use super::sys::{
    CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
    CU_STREAM_CAPTURE_STATUS_NONE, CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUevent, CUevent_st, CUgraph, CUgraph_st, CUstream,
    CUstream_st, CudaFailure, call, get,
};

pub(super) type CudaStream = DriverStream<CudaContext>;
pub(super) type CudaRawEvent = RawEvent<CudaContext>;

impl StreamContext for CudaContext {
    type StreamKind = CUstream_st;
    type EventKind = CUevent_st;
    const BAD_HANDLE: &'static [u32] =
        &[CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE];

    fn create_stream(
        context: &Arc<Self>,
        priority: Priority,
    ) -> Result<CudaObject<CUstream_st>, CudaFailure> {
        let flags = CU_STREAM_NON_BLOCKING;
        CudaObject::create_by(context, |driver, place| {
            if priority != Priority::High {
                // SAFETY: the context is bound, the place valid.
                return unsafe { call!(driver, cuStreamCreate(place, flags)) };
            }
            let (mut lowest, mut highest) = (0, 0);
            // SAFETY: the context is bound, the places valid.
            unsafe { call!(driver, cuCtxGetStreamPriorityRange(&raw mut lowest, &raw mut highest)) }?;
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, cuStreamCreateWithPriority(place, flags, highest)) }
        })
    }

    fn create_event(context: &Arc<Self>, timing: bool) -> Result<CudaObject<CUevent_st>, CudaFailure> {
        let flags = if timing { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING };
        CudaObject::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, cuEventCreate(place, flags)) }
        })
    }

    unsafe fn record(&self, event: CUevent, stream: CUstream) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuEventRecord(event, stream)) }
    }

    unsafe fn wait(&self, stream: CUstream, event: CUevent) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamWaitEvent(stream, event, 0)) }
    }

    unsafe fn query_event(&self, event: CUevent) -> Result<bool, CudaFailure> {
        // SAFETY: passed on to the caller.
        CudaFailure::check_ready("cuEventQuery", unsafe { (self.driver.cuEventQuery)(event) })
    }

    unsafe fn query_stream(&self, stream: CUstream) -> Result<bool, CudaFailure> {
        // SAFETY: passed on to the caller.
        CudaFailure::check_ready("cuStreamQuery", unsafe { (self.driver.cuStreamQuery)(stream) })
    }

    unsafe fn synchronize(&self, stream: CUstream) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamSynchronize(stream)) }
    }

    unsafe fn elapsed(&self, from: CUevent, to: CUevent) -> Result<f32, CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { get!(self.driver, cuEventElapsedTime(from, to)) }
    }
}

impl CaptureContext for CudaContext {
    type GraphKind = CUgraph_st;
    const BACKEND: &'static str = "cuda";

    fn native_context(&self) -> *mut c_void {
        self.raw.cast()
    }

    unsafe fn begin_capture(&self, stream: CUstream) -> Result<(), CudaFailure> {
        let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamBeginCapture(stream, mode)) }
    }

    unsafe fn end_capture(&self, stream: CUstream, graph: &mut CUgraph) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamEndCapture(stream, graph)) }
    }

    unsafe fn is_capturing(&self, stream: CUstream) -> Result<bool, CudaFailure> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: passed on to the caller; the pointer is valid for a status.
        unsafe { call!(self.driver, cuStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
    }
}
