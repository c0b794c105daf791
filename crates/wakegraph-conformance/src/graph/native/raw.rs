//! The driver's calls that native commands make here.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;

use cudarc::driver::sys::{self, CUevent, CUgraph, CUresult, CUstream};
use wakegraph::backend::cuda::capture_graph;
use wakegraph::hal::{NativeStream, UsmPointer};
use wakegraph::{Error, ErrorKind, Result};

fn check(call: &str, code: CUresult) -> Result<()> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(Error::new(ErrorKind::Driver, format!("{call} failed with {code:?}"))),
    }
}

/// Makes the first device's context current on this thread.
pub(crate) fn bind() {
    let (mut device, mut context) = (0, ptr::null_mut());
    // SAFETY: the driver is loaded; the place is a number's.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, 0) }).unwrap();
    // SAFETY: the device is the driver's; the place is a pointer's.
    let retained = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
    check("cuDevicePrimaryCtxRetain", retained).unwrap();
    // SAFETY: the context has just been retained.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) }).unwrap();
}

/// The context that is current on this thread.
pub(crate) fn current() -> *mut c_void {
    let mut context = ptr::null_mut();
    // SAFETY: the place is a pointer's.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) }).unwrap();
    context.cast()
}

/// Makes none current, as a library might that means well.
pub(crate) fn forget_current() {
    // SAFETY: none is a context, too.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(ptr::null_mut()) }).unwrap();
}

/// Sets every word.
pub(crate) fn set(stream: *mut c_void, words: UsmPointer, word: u32) -> Result<()> {
    let (at, count) = (words.address() as u64, words.len() / 4);
    // SAFETY: so many words are there, as the command's access says.
    check("cuMemsetD32Async", unsafe { sys::cuMemsetD32Async(at, word, count, stream.cast()) })
}

pub(crate) fn copy(stream: *mut c_void, from: UsmPointer, to: UsmPointer) -> Result<()> {
    let (source, target, len) = (from.address() as u64, to.address() as u64, from.len());
    // SAFETY: so many bytes are there, as the command's accesses say.
    check("cuMemcpyDtoDAsync", unsafe { sys::cuMemcpyDtoDAsync_v2(target, source, len, stream.cast()) })
}

/// Allocates this many bytes in the order of the stream.
pub(crate) fn allocate(stream: *mut c_void, len: usize) -> Result<UsmPointer> {
    let mut address = 0;
    // SAFETY: the stream is alive; the place is an address'.
    check("cuMemAllocAsync", unsafe { sys::cuMemAllocAsync(&raw mut address, len, stream.cast()) })?;
    // SAFETY: so many bytes have just been allocated; callers use them in the order of the stream.
    Ok(unsafe { UsmPointer::new(address as usize, len) })
}

/// Frees them in the order of the stream.
pub(crate) fn free(stream: *mut c_void, memory: UsmPointer) -> Result<()> {
    // SAFETY: allocated by `allocate`; callers free it once.
    check("cuMemFreeAsync", unsafe { sys::cuMemFreeAsync(memory.address() as u64, stream.cast()) })
}

/// Waits for the stream, which no capture can do.
pub(crate) fn synchronize(stream: *mut c_void) -> Result<()> {
    // SAFETY: the stream is alive.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.cast()) })
}

/// A graph of the application.
pub(crate) struct TheirGraph(CUgraph);

// SAFETY: used by one thread at a time: the one that finalizes.
unsafe impl Send for TheirGraph {}
// SAFETY: as for `Send`.
unsafe impl Sync for TheirGraph {}

impl TheirGraph {
    /// A graph of what `enqueue` enqueues on the stream that it is given.
    pub(crate) fn of(enqueue: impl FnOnce(*mut c_void) -> Result<()>) -> Self {
        let (stream, mut graph) = (Branch::new(), ptr::null_mut());
        let relaxed = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the stream is alive.
        let begun = unsafe { sys::cuStreamBeginCapture_v2(stream.stream, relaxed) };
        check("cuStreamBeginCapture", begun).unwrap();
        enqueue(stream.stream()).unwrap();
        // SAFETY: the stream is alive; the place is a pointer's.
        let ended = unsafe { sys::cuStreamEndCapture(stream.stream, &raw mut graph) };
        check("cuStreamEndCapture", ended).unwrap();
        Self(graph)
    }

    /// Adds a copy to what the stream captures.
    pub(crate) fn add_to(&self, stream: &NativeStream<'_>) -> Result<()> {
        // SAFETY: the graph is alive; tests declare what it uses.
        unsafe { capture_graph(stream, self.0.cast()) }
    }
}

impl Drop for TheirGraph {
    fn drop(&mut self) {
        // SAFETY: created by `of`, destroyed once.
        unsafe { sys::cuGraphDestroy(self.0) };
    }
}

/// A second stream of the first device, that branches off another and joins it again.
pub(crate) struct Branch {
    stream: CUstream,
    event: CUevent,
}

// SAFETY: used by one thread at a time: the one that finalizes.
unsafe impl Send for Branch {}
// SAFETY: as for `Send`.
unsafe impl Sync for Branch {}

impl Branch {
    pub(crate) fn new() -> Self {
        bind();
        let (mut stream, mut event) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the place is a pointer's; 1 is a stream that waits for no other.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut stream, 1) }).unwrap();
        // SAFETY: the place is a pointer's; 2 is an event without times.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut event, 2) }).unwrap();
        Self { stream, event }
    }

    pub(crate) fn stream(&self) -> *mut c_void {
        self.stream.cast()
    }

    pub(crate) fn branch_off(&self, stream: &NativeStream<'_>) -> Result<()> {
        follow(self.event, stream.stream().cast(), self.stream)
    }

    pub(crate) fn join(&self, stream: &NativeStream<'_>) -> Result<()> {
        follow(self.event, self.stream, stream.stream().cast())
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once.
        unsafe { sys::cuEventDestroy_v2(self.event) };
        // SAFETY: created by `new`, destroyed once.
        unsafe { sys::cuStreamDestroy_v2(self.stream) };
    }
}

fn follow(event: CUevent, first: CUstream, second: CUstream) -> Result<()> {
    // SAFETY: event and stream are alive.
    check("cuEventRecord", unsafe { sys::cuEventRecord(event, first) })?;
    // SAFETY: event and stream are alive.
    check("cuStreamWaitEvent", unsafe { sys::cuStreamWaitEvent(second, event, 0) })
}
