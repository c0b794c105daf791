//! The device: what it is made of.
#![expect(unsafe_code, reason = "vouches for the backend")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;

use wakegraph_hal::support::streams::{GpuBackend, GpuDevice, PeerAccess};
use wakegraph_hal::{Capabilities, CommandBufferDesc, Error, ErrorKind, KernelDesc, Result};

use super::command_buffer::CudaCommandBuffer;
use super::context::CudaContext;
use super::device_inner::CudaDeviceInner;
use super::foreign;
use super::kernel::CudaKernel;
use super::sys::{CUcontext, CudaFailure, Driver};

pub(super) type CudaDevice = GpuDevice<CudaDeviceInner>;

pub(super) fn open(driver: &'static Driver, index: usize) -> Result<CudaDevice> {
    let inner = CudaContext::retain(driver, index)
        .and_then(CudaDeviceInner::open)
        .map_err(|error| error.on_device(format!("cuda:{index}")))?;
    Ok(CudaDevice::new(inner))
}

/// The device of a context that the application has created, and that lives as long as `keep_alive`.
///
/// # Safety
/// The context is null or live.
pub(super) unsafe fn open_in_context(
    driver: &'static Driver,
    context: CUcontext,
    keep_alive: Box<dyn Any + Send + Sync>,
) -> Result<CudaDevice> {
    // SAFETY: passed on to the caller.
    let context = unsafe { CudaContext::lent(driver, context, keep_alive) }?;
    Ok(CudaDevice::new(CudaDeviceInner::open(context)?))
}

// SAFETY: memory comes from the driver and is set to zero; the rest is that of streams and events.
unsafe impl GpuBackend for CudaDeviceInner {
    type Kernel = CudaKernel;
    type CommandBuffer = CudaCommandBuffer;
    const NAME: &'static str = "CUDA";

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<CudaKernel> {
        CudaKernel::load(self, desc)
    }

    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<CudaCommandBuffer> {
        CudaCommandBuffer::create(device, desc)
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        foreign::check_address(self, address, len)
    }

    fn peers(&self) -> &PeerAccess {
        &self.peers
    }

    fn open_to(&self, user: &Self) -> Result<bool, CudaFailure> {
        Self::open_to(self, user)
    }

    fn cannot_split(count: NonZeroUsize) -> Error {
        let why = format!("a CUDA device cannot be split into {count}");
        Error::new(ErrorKind::FeatureNotSupported, why)
            .help("split it with MIG, and open the parts through CUDA_VISIBLE_DEVICES")
    }
}
