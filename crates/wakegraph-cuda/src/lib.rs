//! The CUDA backend: NVIDIA's GPUs through the driver's API, loaded at run time.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | the primary context of a device, or one of the application's, bound for each call |
//! | share of a device | a green context beside the primary one |
//! | memory | from a pool, in the order of a stream, or pinned host memory; in one address space |
//! | kernel | a module and its function: cubin, PTX, or C that NVRTC, if it is there, compiles |
//! | command-buffer | a graph of explicit nodes, mostly in one part, instantiated at finalize |
//! | queue | a borrowed stream while work is in flight; single kernels, most copies and fills are one call |
//! | event | the driver's events, and a signal: what the last enqueue depends on and how it ended |
//!
//! # Reading order
//!
//! Each file uses only files before it in this list.
//!
//! | file | about |
//! |---|---|
//! | `sys`, `error` | the driver's declarations; its start, and its codes as errors |
//! | `share` | green contexts, of some of the multiprocessors |
//! | `context` | the context, and the driver's objects that belong to it: streams, events .. |
//! | `free_blocks` | blocks kept for later, on devices without memory pools |
//! | `memory` | the pool, allocations, registered memory, addresses of other libraries |
//! | `events` | words in pinned memory that tell of a run's end, and stop its loops |
//! | `program` | code: compiled, and loaded |
//! | `device` | what the objects of a device share |
//! | `kernel` | kernels and their launches |
//! | `graph` | the driver's graphs, and what is instantiated of them |
//! | `lower`, `recording` | from commands to a graph: the nodes of a command, the order of all |
//! | `queue` | how single commands and command-buffers are launched |
//! | `lib` | the backend and its device |
//!
//! What is the same for all drivers of this kind is below the backends: queues, events and their signals,
//! profiling, and streams that are lent in `hal::support::streams`, which `context`, `device` and `lib`
//! connect with this driver; recordings, instances and updates in `hal::support::graphs`, which `queue`
//! connects with it.
//!
//! A new kind of node goes into `lower`, which adds it, and into `graph`, which makes the call.
//!
//! # Completion
//!
//! The driver does not notify: a host function would cost more than most graphs take
//! (`docs/adr/0003-completion-by-polling.md`). An event is recorded behind every launch, and a query of it
//! takes a fifth of a microsecond. Where the caller polls in a loop, a completion counter can take the
//! event's place (`events`).
//!
//! # Lost devices
//!
//! A fault ends the context, and with it everything on the device: every pending event and every
//! later call fails with [`DeviceLost`](wakegraph_hal::ErrorKind::DeviceLost). It also ends the contexts of
//! all other CUDA devices of the process, even of those that do no common work, so that no stream
//! waits forever for an event of the faulty device (measured on two H200s, with and without peer
//! access). The process lives, and devices of other backends still work. The process cannot use a
//! CUDA device again: releasing and retaining the context, resetting it and creating another one
//! all fail (measured).
//!
//! Of this workspace, it knows `wakegraph-hal` only.

mod context;
mod device;
mod error;
mod events;
mod free_blocks;
mod graph;
mod kernel;
mod lower;
mod memory;
mod program;
mod queue;
mod recording;
mod share;
mod sys;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;

use context::CudaContext;
use device::CudaDeviceInner;
use kernel::CudaKernel;
use queue::CudaCommandBuffer;
use sys::{
    CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_SUPPORTED, CUcontext,
    CUstreamCaptureStatus, CudaFailure, Driver,
};
use wakegraph_hal::support::library::OpenDevices;
use wakegraph_hal::support::streams::{GpuBackend, GpuDevice};
use wakegraph_hal::{Backend, CommandBufferDesc, Device, Error, ErrorKind, KernelDesc, NativeStream, Result};

/// The backend that finds NVIDIA's GPUs.
#[derive(Clone, Copy, Debug)]
pub struct CudaBackend;

impl Backend for CudaBackend {
    fn name(&self) -> &'static str {
        "cuda"
    }

    fn device_names(&self) -> Result<Vec<String>> {
        let driver = error::driver()?;
        let name = |index| Ok(context::name(driver, context::device(driver, index)?)?);
        (0..context::count(driver)?).map(name).collect()
    }

    /// Without asking for names.
    fn device_count(&self) -> Result<usize> {
        context::count(error::driver()?)
    }

    fn gpu_count(&self) -> Result<usize> {
        self.device_count()
    }

    /// Opens the device with this index. While one is open and works, opening its index again gives
    /// the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<CudaDevice> = OpenDevices::new();
        let open = || open_device(error::driver()?, index);
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

/// Opens the device of a context that the application has created: a `CUcontext`. Addresses, events
/// and streams of any context of a device can be used with any device of this backend, so there is
/// mostly no need for this; the device that `Device::open` gives is that of
/// the primary context, as in `cudarc`, PyTorch and ONNX Runtime. Each call returns a new object
/// for the same hardware.
///
/// Contexts that the application creates are not counted: what is given as `keep_alive` is dropped
/// when nothing uses the context any more. It is mostly what owns the context, such as an
/// `Arc<cudarc::driver::CudaContext>`. Shares of the device are in the primary context, not in this one.
///
/// ```no_run
/// # #![allow(unsafe_code)]
/// # fn example(theirs: std::sync::Arc<cudarc::driver::CudaContext>) -> wakegraph::Result<()> {
/// use wakegraph::{Device, backend::cuda};
/// // SAFETY: the context lives as long as the clone.
/// let device = unsafe { cuda::open_in_context(theirs.cu_ctx().cast(), theirs.clone()) }?;
/// let device = Device::from_hal(device);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidArgument`](wakegraph_hal::ErrorKind::InvalidArgument) for a null handle, and for what the
/// driver does not know as a context; [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without a
/// driver.
///
/// # Safety
/// `context` is null or a live context, and lives until `keep_alive` is dropped.
#[expect(unsafe_code, reason = "takes a handle of another library")]
pub unsafe fn open_in_context(
    context: *mut c_void,
    keep_alive: impl Send + Sync + 'static,
) -> Result<Arc<dyn Device>> {
    let (driver, context, keep_alive) = (error::driver()?, context.cast(), Box::new(keep_alive));
    // SAFETY: passed on to the caller.
    Ok(Arc::new(unsafe { open_lent(driver, context, keep_alive) }?))
}

/// Adds a graph of the application, a `CUgraph`, to a native command: a copy of it, behind the work that the
/// closure has enqueued on the stream so far.
///
/// The graph stays the application's, which may change or destroy it after the call. The closure is called
/// again for each finalize and `update_from`.
///
/// On a share of a device, the kernels of the graph keep the multiprocessors that they were captured for: of
/// a graph that was captured in the primary context, they run on all.
///
/// ```no_run
/// # #![allow(unsafe_code)]
/// # struct Theirs(*mut std::ffi::c_void);
/// # // SAFETY: a handle.
/// # unsafe impl Send for Theirs {}
/// # // SAFETY: as for `Send`.
/// # unsafe impl Sync for Theirs {}
/// # impl Theirs { fn cu_graph(&self) -> *mut std::ffi::c_void { self.0 } }
/// # fn example(x: &wakegraph::Buffer<f32>, graph: &mut wakegraph::Graph, theirs: Theirs) {
/// use wakegraph::{backend::cuda, interop::NativeAccess};
/// // SAFETY: the graph writes `x`, and the closure keeps it.
/// unsafe {
///     graph.native("their graph", [NativeAccess::write(x)], move |stream, [_]| {
///         // SAFETY: the graph is alive.
///         unsafe { cuda::capture_graph(stream, theirs.cu_graph()) }
///     })
/// };
/// # }
/// ```
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for a null handle, and for a stream of another backend;
/// [`InvalidOperation`](ErrorKind::InvalidOperation) for a stream that is not captured, as in a stream task;
/// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for a graph with memory nodes or conditional
/// nodes, which the driver does not copy; [`Driver`](ErrorKind::Driver) for others that it refuses, and where
/// a call before has made the capture invalid.
///
/// # Safety
/// `graph` is null or a live graph, which no other thread uses during the call. What its nodes use is
/// declared by the native command, and stays valid for as long as the executable may run.
#[expect(unsafe_code, reason = "takes a handle of another library")]
pub unsafe fn capture_graph(stream: &NativeStream<'_>, graph: *mut c_void) -> Result<()> {
    let invalid = |why: String| Err(Error::new(ErrorKind::InvalidArgument, why));
    if graph.is_null() {
        return invalid("the handle of the graph is null".into());
    }
    if stream.backend() != CudaBackend.name() {
        return invalid(format!("a stream of the backend '{}' cannot capture a CUgraph", stream.backend()));
    }
    // SAFETY: the stream is lent; the caller vouches for the graph.
    match unsafe { graph::add_to_capture(error::driver()?, stream.stream().cast(), graph.cast()) } {
        Ok(CU_STREAM_CAPTURE_STATUS_ACTIVE) => Ok(()),
        Ok(status) => Err(no_capture(status)),
        Err(failure) => Err(not_added(failure)),
    }
}

/// The error of a stream whose capture has this status.
fn no_capture(status: CUstreamCaptureStatus) -> Error {
    match status {
        CU_STREAM_CAPTURE_STATUS_NONE => {
            Error::new(ErrorKind::InvalidOperation, "the stream is not captured")
                .help("use a native command, or instantiate the graph and launch it on the stream")
        }
        _ => Error::new(ErrorKind::Driver, "a call before has made the capture invalid"),
    }
}

/// The error of a graph that was not added to a capture.
fn not_added(failure: CudaFailure) -> Error {
    match failure {
        CudaFailure { call: "cuGraphAddChildGraphNode", code: CUDA_ERROR_NOT_SUPPORTED, .. } => {
            let why = "the driver copies no graph with memory nodes or conditional nodes";
            Error::new(ErrorKind::FeatureNotSupported, why)
                .help("call what the graph was captured from in the closure, which may allocate")
                .caused_by(Error::from(failure))
        }
        failure => failure.into(),
    }
}

type CudaDevice = GpuDevice<CudaDeviceInner>;

fn open_device(driver: &'static Driver, index: usize) -> Result<CudaDevice> {
    let inner = CudaContext::retain(driver, index)
        .and_then(CudaDeviceInner::open)
        .map_err(|error| error.on_device(format!("cuda:{index}")))?;
    Ok(CudaDevice::new(inner))
}

/// Opens the device of a context that the application has created, and that lives as long as `keep_alive`.
///
/// # Safety
/// The context is null or live.
#[expect(unsafe_code, reason = "takes a handle of another library")]
unsafe fn open_lent(
    driver: &'static Driver,
    context: CUcontext,
    keep_alive: Box<dyn Any + Send + Sync>,
) -> Result<CudaDevice> {
    // SAFETY: passed on to the caller.
    let context = unsafe { CudaContext::lent(driver, context, keep_alive) }?;
    Ok(CudaDevice::new(CudaDeviceInner::open(context)?))
}

// SAFETY: memory comes from the driver, and is counted on the memory stream behind the clear that was asked
// for; the rest is that of streams and events.
#[expect(unsafe_code, reason = "vouches for the backend")]
unsafe impl GpuBackend for CudaDeviceInner {
    type Kernel = CudaKernel;
    type CommandBuffer = CudaCommandBuffer;
    const NAME: &'static str = "CUDA";

    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<CudaKernel> {
        CudaKernel::load(self, desc)
    }

    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<CudaCommandBuffer> {
        CudaCommandBuffer::create(device, desc)
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        memory::check_address(&self.context, address, len)
    }

    fn open_to(&self, user: &Self) -> Result<bool, CudaFailure> {
        Self::open_to(self, user)
    }

    fn share(&self, units: usize) -> Result<[Self; 2]> {
        let [share, rest] = self.context.share(units)?;
        Ok([Self::open(share)?, Self::open(rest)?])
    }

    fn cannot_split(count: NonZeroUsize) -> Error {
        let why = format!("a CUDA device cannot be split into {count}");
        Error::new(ErrorKind::FeatureNotSupported, why)
            .help("divide it with `share`, or with MIG, whose parts CUDA_VISIBLE_DEVICES opens")
    }
}
