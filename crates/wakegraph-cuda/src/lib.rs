//! The CUDA backend: NVIDIA's GPUs through the driver's API, loaded at run time.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | the primary context of a device, or one of the application's, bound for each call |
//! | memory | from a stream-ordered pool, or pinned host memory; in one address space |
//! | kernel | a module and its function: cubin, PTX, or C that NVRTC, if it is there, compiles |
//! | command-buffer | a graph of explicit nodes, mostly in one part, instantiated at finalize |
//! | queue | a stream; single commands are graphs that are launched once |
//! | event | the driver's events, and a signal: what the last enqueue depends on and how it ended |
//!
//! # Reading order
//!
//! Each file uses only files before it in this list.
//!
//! | files | about |
//! |---|---|
//! | `sys`, `error`, `context`, `handle`, `stream` | the driver and its objects |
//! | `memory_pool`, `allocation`, `completion_counter`, `function` | memory and code |
//! | `device_inner`, `memory` | a device and its memory |
//! | `program`, `kernel`, `launch` | kernels |
//! | `transfer`, `graph`, `graph_exec`, `builtin_kernels`, `control_flow` | graphs |
//! | `lower`, `loop_stop`, `low_latency`, `node_place`, `parts`, `recording` | from commands to a graph |
//! | `graph_instance` | what is launched |
//! | `command_buffer`, `enqueue`, `foreign`, `device` | the contract's objects |
//!
//! What is the same for all drivers of this kind is below the backends: queues, events and their signals,
//! profiling, and streams that are lent in `hal::support::streams`, which `stream`, `device_inner`, `memory`
//! and `device` connect with this driver; recordings, instances and updates in `hal::support::graphs`, which
//! `command_buffer` connects with it.
//!
//! A new kind of node goes into `lower`, which adds it, and into `graph`, which makes the call.
//!
//! # Completion
//!
//! The driver does not notify: a host function would cost more than most graphs take
//! (`docs/measurements.md`). An event is recorded behind every launch, and a query of it takes a
//! fifth of a microsecond. Where the caller polls in a loop, a completion counter can take the
//! event's place (`low_latency`).
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
//! Imports `types` and `hal` only.

mod allocation;
mod builtin_kernels;
mod command_buffer;
mod completion_counter;
mod context;
mod control_flow;
mod device;
mod device_inner;
mod enqueue;
mod error;
mod foreign;
mod function;
mod graph;
mod graph_exec;
mod graph_instance;
mod handle;
mod kernel;
mod launch;
mod loop_stop;
mod low_latency;
mod lower;
mod memory;
mod memory_pool;
mod node_place;
mod overlap;
mod parts;
mod program;
mod recording;
mod registered;
mod stream;
mod stream_command;
mod sys;
#[cfg(test)]
mod tests;
mod transfer;

use std::ffi::c_void;
use std::sync::Arc;

use device::CudaDevice;
use wakegraph_hal::support::open_devices::OpenDevices;
use wakegraph_hal::{Backend, Device, Result};

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
        let open = || device::open(error::driver()?, index);
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
/// `Arc<cudarc::driver::CudaContext>`.
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
/// [`InvalidArgument`](wakegraph_hal::ErrorKind::InvalidArgument) for a null handle, and for what the driver does not
/// know as a context; [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without a driver.
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
    Ok(Arc::new(unsafe { device::open_in_context(driver, context, keep_alive) }?))
}
