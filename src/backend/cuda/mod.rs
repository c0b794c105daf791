//! The CUDA backend: NVIDIA's GPUs through the driver's API, loaded at run time.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | the primary context of a device, bound per call, and a stream for reads, writes and allocations |
//! | memory | a stream-ordered pool's, or pinned host memory; one address space |
//! | kernel | a module and its function: cubin, PTX, or C compiled by NVRTC where that is installed |
//! | command-buffer | a graph of explicit nodes, instantiated at finalize |
//! | queue | a stream that waits for no other; single commands are graphs that are launched once |
//! | event | the driver's event, and a `signal`: what it depends on and how each of its uses ended |
//!
//! # Learning of completions
//!
//! Nothing notifies: a host function would cost more than most graphs take (`docs/benchmarks.md`).
//! An event is recorded behind every launch, and whoever wants to know asks the driver for it,
//! which takes a fifth of a microsecond.
//!
//! # Failure
//!
//! A fault ends the context, and with it everything on the device: every pending event fails with
//! [`DeviceLost`](crate::ErrorKind::DeviceLost), as does whatever is tried from then on. It ends
//! the contexts of all other CUDA devices of the process as well, also of those that have nothing
//! to do with it, so that nothing waits for ever for an event of the faulty one (measured on two
//! H200s, with and without peer access). The process lives, and devices of other backends work on;
//! the driver lets nobody use a CUDA device again before the process ends (measured: neither a
//! released and retained, nor a reset, nor another context does).
//!
//! Imports `types` and `hal` only.

mod alone;
mod clock;
mod command_buffer;
mod compile;
mod condition;
mod context;
mod demand;
mod device;
mod error;
mod event;
mod graph;
mod instance;
mod kernel;
mod launch;
mod lower;
mod memory;
mod native;
mod nodes;
mod place;
mod programs;
mod prompt;
mod queue;
mod shape;
mod signal;
mod stream;
mod sys;
#[cfg(test)]
mod tests;
mod tick;
mod ticking;
mod times;
mod update;
mod update_in_place;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;

use crate::hal::{Backend, Device};
use crate::types::Result;
use device::CudaDevice;

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

    /// Opens the device with this index; while one is open that works, opening its index again
    /// gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: LazyLock<Mutex<HashMap<usize, Weak<CudaDevice>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock();
        if let Some(device) =
            open.get(&index).and_then(Weak::upgrade).filter(|device| device.status().is_ok())
        {
            return Ok(device);
        }
        open.retain(|_, device| device.strong_count() > 0);
        let device = Arc::new(CudaDevice::open(error::driver()?, index)?);
        open.insert(index, Arc::downgrade(&device));
        Ok(device)
    }
}
