//! The OpenCL backend: every device of every platform that the system's loader finds.
//!
//! - A device is a device of a platform or a part of one. The whole devices of a platform share a
//!   context, and so do the parts of one device.
//! - Memory is fine-grained shared virtual memory with a buffer object over it; on a device without
//!   that, a buffer object, or plain host memory.
//! - A kernel is a built program and a name. Each recorded launch has a `cl_kernel` of its own.
//! - A command-buffer is a list of driver calls that is replayed, or a `cl_khr_command_buffer` of them.
//! - A queue is a `cl_command_queue`, and a second one for what is timed.
//! - An event has a signal: the driver's event of the last enqueue, and the signals that it depends on.
//!
//! # Two lowerings
//!
//! Every command-buffer has a list that can be replayed: an in-order queue takes its operations one by
//! one, with the wait list on the first and an event on the last. If the device has
//! `cl_khr_command_buffer` 0.9.5 or newer and can record every operation of the list, there may be a
//! recording beside it: on devices other than CPUs, which enqueue plain commands faster. The choice can be
//! [forced](OpenclOptions::lowering).
//!
//! # Failure
//!
//! Drivers do not agree on what an event reports whose wait list failed, so a signal keeps the signals
//! that it depends on, and inherits their failures.
//!
//! # Files
//!
//! Each imports only from those above it: `sys` `error` `query` `options` `features` `platform`
//! `callback` `driver_queue` `context` `program` `memory` `kernel` `operation` `lower` `signal`
//! `replay` `recording` `foreign` `queue` `mutable` `update` `command_buffer` `device`. The backend
//! imports only `types`, `util` and `hal`.

mod callback;
mod command_buffer;
mod context;
mod device;
mod driver_queue;
mod error;
mod features;
mod foreign;
mod host_copy;
mod kernel;
mod late_callbacks;
mod lower;
mod memory;
mod mutable;
mod operation;
mod options;
mod platform;
mod program;
mod query;
mod queue;
mod recording;
mod replay;
mod signal;
mod stream_task;
mod sys;
#[cfg(test)]
mod tests;
mod update;

use std::ffi::c_void;
use std::sync::Arc;

use device::OpenclDevice;
pub use options::{Lowering, OpenclOptions};
use wakegraph_hal::support::open_devices::OpenDevices;
use wakegraph_hal::{Backend, Device, Result};

/// The backend that finds OpenCL's devices.
#[derive(Clone, Copy, Debug)]
pub struct OpenclBackend;

impl Backend for OpenclBackend {
    fn name(&self) -> &'static str {
        "opencl"
    }

    /// The devices of all platforms: first GPUs, then accelerators, then others, and CPUs last. Devices
    /// of the same kind are in the alphabetical order of their platforms' names and versions, and
    /// within a platform in the driver's order. The order in which the loader finds the platforms
    /// matters only if two of them have the same name and version.
    ///
    /// Each entry holds the names of the device, the vendor and the platform, and the platform's short
    /// name, such as `POCL`.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(platform::devices()?.iter().map(|found| found.names.clone()).collect())
    }

    fn gpu_count(&self) -> Result<usize> {
        Ok(platform::devices()?.iter().filter(|found| found.is_gpu()).count())
    }

    /// While a device is open and works, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<OpenclDevice> = OpenDevices::new();
        let open = || OpenclDevice::open(index, OpenclOptions::from_environment());
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

/// Opens the device with this index with options of its own. Each call returns a new object for the
/// same hardware. [`OpenclBackend`]'s [`device_names`](Backend::device_names) says in which order
/// devices are counted.
///
/// ```no_run
/// use wakegraph::backend::opencl::{self, Lowering, OpenclOptions};
/// let device = opencl::open(0, OpenclOptions::new().lowering(Lowering::Replay))?;
/// # Ok::<(), wakegraph::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without an OpenCL library, or without a device of this
/// index.
pub fn open(index: usize, options: OpenclOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(OpenclDevice::open(index, options)?))
}

/// Opens a device in a context that the application has, such as one of `opencl3`: memory objects and events
/// of that context can then be used in graphs (`Device::import_memory`,
/// `Device::import_event`), and its queues can wait for submissions. `context`
/// is a `cl_context` and `device` a `cl_device_id` of it, a whole device. The context is retained. Each call
/// returns a new object for the same hardware.
///
/// # Errors
/// [`InvalidArgument`](wakegraph_hal::ErrorKind::InvalidArgument) when the context does not have the device, or the
/// device is only a part of one; [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without an OpenCL library.
///
/// # Safety
/// `context` is null or a live context of the OpenCL library that this crate loads.
#[expect(unsafe_code, reason = "takes handles of other libraries")]
pub unsafe fn open_in_context(
    context: *mut c_void,
    device: *mut c_void,
    options: OpenclOptions,
) -> Result<Arc<dyn Device>> {
    // SAFETY: passed on to the caller.
    Ok(Arc::new(unsafe { OpenclDevice::open_in_context(context, device, options) }?))
}
