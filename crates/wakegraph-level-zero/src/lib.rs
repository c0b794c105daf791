//! The Level Zero backend: Intel's GPUs through the loader of their drivers, loaded at run time.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a device or sub-device of a driver. All devices of a driver share its context |
//! | memory | the device's, or the host's that all devices of the driver see, in one address space |
//! | kernel | a module and a kernel's name: SPIR-V, or C that `libocloc`, if it is there, compiles |
//! | queue | an immediate list to which closed lists are appended, or a queue that executes them |
//! | event | the driver's event of the last run that signals it: each run has one of its own |
//! | command-buffer | closed lists; another set of them where it is enqueued while it runs |
//!
//! # Files
//!
//! Each imports only from those above it: `sys` `error` `options` `driver` `features` `clock`
//! `event_pool` `immediate_pool` `context` `driver_event` `memory` `ocloc` `program` `kernel` `list`
//! `operation` `lower` `mutable` `run_slot` `recording` `profiling` `signal` `handover`
//! `immediate_list` `append` and `execute` `queue` (with `stream_task`) `command_buffer` `device`. The
//! backend imports `types` and `hal` only.

mod append;
mod clock;
mod command_buffer;
mod context;
mod device;
mod driver;
mod driver_event;
mod enqueue_work;
mod error;
mod event_pool;
mod execute;
mod features;
mod handover;
mod immediate_list;
mod immediate_pool;
mod kernel;
mod list;
mod lower;
mod memory;
mod mutable;
mod ocloc;
mod operation;
mod options;
mod profiling;
mod program;
mod queue;
mod queue_driver;
mod recording;
mod run_slot;
mod signal;
mod single_run;
mod start_event;
mod stream_task;
mod sys;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::LevelZeroDevice;
pub use options::{LevelZeroOptions, Lowering};
use wakegraph_hal::support::open_devices::OpenDevices;
use wakegraph_hal::{Backend, Device, Result};

/// The backend that finds the GPUs of Level Zero's drivers.
#[derive(Clone, Copy, Debug)]
pub struct LevelZeroBackend;

impl Backend for LevelZeroBackend {
    fn name(&self) -> &'static str {
        "level_zero"
    }

    /// The GPUs of all drivers, in the loader's order. `ZE_FLAT_DEVICE_HIERARCHY` decides whether
    /// the parts of a GPU are devices, and `ZE_AFFINITY_MASK` which ones there are.
    fn device_names(&self) -> Result<Vec<String>> {
        let name = |found: driver::DriverDevice| {
            Ok(format!("{} ({})", driver::text(&found.properties()?.name), found.driver.name))
        };
        driver::devices()?.into_iter().map(name).collect()
    }

    fn device_count(&self) -> Result<usize> {
        Ok(driver::devices()?.len())
    }

    fn gpu_count(&self) -> Result<usize> {
        self.device_count()
    }

    /// While a device is open and works, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<LevelZeroDevice> = OpenDevices::new();
        let open = || LevelZeroDevice::open(index, LevelZeroOptions::from_environment());
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

/// Opens the device with this index with options of its own. Each call returns a new object for the same
/// hardware. [`LevelZeroBackend`]'s [`device_names`](Backend::device_names) says in which order devices are
/// counted.
///
/// ```no_run
/// use wakegraph::backend::level_zero::{self, LevelZeroOptions, Lowering};
/// let device = level_zero::open(0, LevelZeroOptions::new().lowering(Lowering::Execute))?;
/// # Ok::<(), wakegraph::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without a loader or a driver, or without a device of this
/// index.
pub fn open(index: usize, options: LevelZeroOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(LevelZeroDevice::open(index, options)?))
}
