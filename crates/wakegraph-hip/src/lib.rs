//! The HIP backend: AMD's GPUs through the HIP runtime of ROCm 5.5 or newer, loaded at run time.
//!
//! It has the shape of the CUDA backend, and its files have the same names. `docs/backends/hip.md`
//! says what differs, call by call.
//!
//! Imports `types` and `hal` only.
#![allow(non_upper_case_globals, reason = "the vendor's names")]

mod address_lock;
mod allocation;
mod argument_lock;
mod builtin_kernels;
mod command_buffer;
mod context;
mod device;
mod device_inner;
mod enqueue;
mod error;
mod foreign;
mod function;
mod graph;
mod graph_exec;
mod handle;
mod idle_streams;
mod kernel;
mod launch;
mod lower;
mod memory;
mod memory_pool;
mod program;
mod registered;
mod release;
mod stream;
mod sys;
mod transfer;
mod updates_in_flight;

use std::sync::Arc;

use device::HipDevice;
use wakegraph_hal::support::open_devices::OpenDevices;
use wakegraph_hal::{Backend, Device, Result};

/// The backend that finds AMD's GPUs.
#[derive(Clone, Copy, Debug)]
pub struct HipBackend;

impl Backend for HipBackend {
    fn name(&self) -> &'static str {
        "hip"
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
        static OPEN: OpenDevices<HipDevice> = OpenDevices::new();
        let open = || device::open(error::driver()?, index);
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}
