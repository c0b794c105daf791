//! The HIP backend: AMD's GPUs through the HIP runtime of ROCm 5.5 or newer, loaded at run time.
//!
//! It has the shape of the CUDA backend, and its files have the same names. `docs/backends/hip.md`
//! says what differs, call by call.
//!
//! # Reading order
//!
//! Each file uses only files before it in this list.
//!
//! | file | about |
//! |---|---|
//! | `sys` | the driver's declarations |
//! | `release` | frees that wait for the device, kept away from other threads |
//! | `error` | the driver's start, and its codes as errors |
//! | `context` | the device made current, and the driver's objects that belong to it: streams, events .. |
//! | `memory` | the pool, allocations, registered memory, addresses of other libraries |
//! | `program` | code: compiled, and loaded |
//! | `device` | what the objects of a device share |
//! | `kernel` | kernels and their launches |
//! | `graph` | the driver's graphs, and what is instantiated of them |
//! | `lower` | from commands to a graph |
//! | `updates_in_flight` | whether an update may meet a launch in flight |
//! | `queue` | how single commands and command-buffers are launched |
//! | `lib` | the backend and its device |
//!
//! Of this workspace, it knows `wakegraph-hal` only.
#![allow(non_upper_case_globals, reason = "the vendor's names")]

mod context;
mod device;
mod error;
mod graph;
mod kernel;
mod lower;
mod memory;
mod program;
mod queue;
mod release;
mod sys;
mod updates_in_flight;

use std::num::NonZeroUsize;
use std::sync::Arc;

use context::HipContext;
use device::HipDeviceInner;
use kernel::HipKernel;
use queue::HipCommandBuffer;
use sys::HipFailure;
use wakegraph_hal::support::library::OpenDevices;
use wakegraph_hal::support::streams::{GpuBackend, GpuDevice};
use wakegraph_hal::{Backend, CommandBufferDesc, Device, Error, ErrorKind, KernelDesc, Result};

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
        static OPEN: OpenDevices<GpuDevice<HipDeviceInner>> = OpenDevices::new();
        let open = || {
            let context = HipContext::new(error::driver()?, index);
            let inner = context.and_then(HipDeviceInner::open);
            Ok(GpuDevice::new(inner.map_err(|error| error.on_device(format!("hip:{index}")))?))
        };
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

// SAFETY: memory comes from the driver, and is counted on the memory stream behind the clear that was asked
// for; the rest is that of streams and events.
#[expect(unsafe_code, reason = "vouches for the backend")]
unsafe impl GpuBackend for HipDeviceInner {
    type Kernel = HipKernel;
    type CommandBuffer = HipCommandBuffer;
    const NAME: &'static str = "HIP";

    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<HipKernel> {
        HipKernel::load(self, desc)
    }

    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<HipCommandBuffer> {
        HipCommandBuffer::create(device, desc)
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        memory::check_address(&self.context, address, len)
    }

    fn open_to(&self, user: &Self) -> Result<bool, HipFailure> {
        Self::open_to(self, user)
    }

    fn cannot_split(count: NonZeroUsize) -> Error {
        let why = format!("a HIP device cannot be split into {count}: graphs ignore masks of compute units");
        Error::new(ErrorKind::FeatureNotSupported, why)
            .help("partition the GPU with amd-smi, and open the parts through HIP_VISIBLE_DEVICES")
    }
}
