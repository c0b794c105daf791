//! The device: what it is made of.
#![expect(unsafe_code, reason = "vouches for the backend")]

use std::num::NonZeroUsize;
use std::sync::Arc;

use wakegraph_hal::support::streams::{GpuBackend, GpuDevice, PeerAccess};
use wakegraph_hal::{Capabilities, CommandBufferDesc, Error, ErrorKind, KernelDesc, Result};

use super::command_buffer::HipCommandBuffer;
use super::context::HipContext;
use super::device_inner::HipDeviceInner;
use super::foreign;
use super::kernel::HipKernel;
use super::sys::{Driver, HipFailure};

pub(super) type HipDevice = GpuDevice<HipDeviceInner>;

pub(super) fn open(driver: &'static Driver, index: usize) -> Result<HipDevice> {
    let inner = HipContext::new(driver, index)
        .and_then(HipDeviceInner::open)
        .map_err(|error| error.on_device(format!("hip:{index}")))?;
    Ok(HipDevice::new(inner))
}

// SAFETY: memory comes from the driver and is set to zero; the rest is that of streams and events.
unsafe impl GpuBackend for HipDeviceInner {
    type Kernel = HipKernel;
    type CommandBuffer = HipCommandBuffer;
    const NAME: &'static str = "HIP";

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<HipKernel> {
        HipKernel::load(self, desc)
    }

    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<HipCommandBuffer> {
        HipCommandBuffer::create(device, desc)
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        foreign::check_address(self, address, len)
    }

    fn peers(&self) -> &PeerAccess {
        &self.peers
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
