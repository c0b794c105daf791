//! The OpenCL backend: every device of every platform that the system's loader finds.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a device of a platform, or a part of one; one context for a platform's whole devices, one for each split |
//! | memory | fine-grained shared virtual memory with a buffer object over it; where a device has none, a buffer object, and plain memory on the host's side |
//! | kernel | a built program and a name; each recorded launch has a `cl_kernel` of its own, with its arguments set |
//! | command-buffer | a list of driver commands, replayed, or a `cl_khr_command_buffer` of them |
//! | queue | a `cl_command_queue`, and a second one with profiling once a profiled command-buffer needs it |
//! | event | a `signal`: the driver's event of the last enqueue, and the signals it depends on |
//!
//! # Two lowerings
//!
//! A command-buffer is always kept as a list that can be replayed: an in-order queue takes the
//! commands one by one, with the wait list on the first and an event on the last. Where the device
//! has `cl_khr_command_buffer` and can record every command of the list, a recording exists beside
//! it. Which one an enqueue uses is measured once for each device and size (`choice`), and can be
//! [forced](OpenclOptions::lowering).
//!
//! # Failure
//!
//! Drivers do not agree on what an event reports whose wait list failed, so a signal keeps what it
//! depends on, and looks there first.
//!
//! Imports `types` and `hal` only.

mod choice;
mod command_buffer;
mod device;
mod error;
mod event;
mod features;
mod flatten;
mod hint;
mod kernel;
mod lower;
mod memory;
mod mutate;
mod notify;
mod op;
mod options;
mod platform;
mod program;
mod query;
mod queue;
mod record;
mod rect;
mod replay;
mod signal;
mod spirv;
mod sys;
#[cfg(test)]
mod tests;
mod update;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::hal::{Backend, Device};
use crate::types::{Error, ErrorKind, Result};
use device::OpenclDevice;

pub use options::{Lowering, OpenclOptions};

/// The backend that finds OpenCL's devices.
#[derive(Clone, Copy, Debug)]
pub struct OpenclBackend;

impl Backend for OpenclBackend {
    fn name(&self) -> &'static str {
        "opencl"
    }

    /// The devices of all platforms: GPUs first, then accelerators, then others, CPUs last; among
    /// these in the alphabetical order of their platforms' names and versions, and within a
    /// platform in the driver's order. The order in which the loader finds the platforms does not
    /// matter, unless two of them have the same name and version.
    ///
    /// Each has the names of the device, the vendor and the platform, and the platform's short
    /// name, such as `POCL`.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(platform::devices()?.iter().map(|found| found.names.clone()).collect())
    }

    /// While a device is open, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: LazyLock<Mutex<HashMap<usize, Weak<OpenclDevice>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock();
        if let Some(device) = open.get(&index).and_then(Weak::upgrade) {
            return Ok(device);
        }
        open.retain(|_, device| device.strong_count() > 0);
        let device = Arc::new(OpenclDevice::open(index, OpenclOptions::from_environment())?);
        open.insert(index, Arc::downgrade(&device));
        Ok(device)
    }
}

/// Opens the device with this index, with options: an object that no other call gives; the hardware
/// behind it is shared. [`OpenclBackend`]'s [`device_names`](Backend::device_names) says in which
/// order devices are counted.
///
/// ```no_run
/// use wakegraph::backend::opencl::{self, Lowering, OpenclOptions};
/// let device = opencl::open(0, OpenclOptions::new().lowering(Lowering::Replay))?;
/// # Ok::<(), wakegraph::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without an OpenCL library, or without a device of this index.
pub fn open(index: usize, options: OpenclOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(OpenclDevice::open(index, options)?))
}

/// The error for an object that another device made.
fn foreign(what: &str) -> Error {
    Error::new(ErrorKind::InvalidArgument, format!("the {what} belongs to another device"))
        .help(format!("create the {what} on the device that is to use it"))
}

fn invalid_operation(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
