//! The device: it creates everything on it.
#![expect(unsafe_code, reason = "vouches for the backend")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command_buffer::CudaCommandBuffer;
use super::device_inner::CudaDeviceInner;
use super::event::CudaEvent;
use super::kernel::CudaKernel;
use super::memory::CudaMemory;
use super::profiling;
use super::queue::CudaQueue;
use super::registered::register;
use super::sys::Driver;
use crate::hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Event, EventDesc,
    Kernel, KernelDesc, Memory, MemoryDesc, MemoryKind, Queue, QueueDesc, QueueOrder, UserMemory,
};
use crate::types::{Error, ErrorKind, Result};

/// A device. Its objects hold its private core, so the device itself may be dropped before them.
#[derive(Debug)]
pub(super) struct CudaDevice {
    inner: Arc<CudaDeviceInner>,
}

impl CudaDevice {
    pub(super) fn open(driver: &'static Driver, index: usize) -> Result<Self> {
        let inner =
            CudaDeviceInner::open(driver, index).map_err(|error| error.on_device(format!("cuda:{index}")))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    #[cfg(test)]
    pub(super) fn inner(&self) -> &Arc<CudaDeviceInner> {
        &self.inner
    }

    /// Creates an object, unless the device is lost. An error names the device.
    fn create<T, E: Into<Error>>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<T> {
        self.status()?;
        create().map_err(|error| self.inner.context.error(error))
    }

    fn unsupported(&self, why: impl Into<String>) -> Error {
        self.inner.context.error(Error::new(ErrorKind::FeatureNotSupported, why.into()))
    }
}

// SAFETY: the backend meets the contract: memory is the driver's, zeroed, and lives as long as its
// object; streams and wait lists order work; an event is final when the driver says that its record
// is complete, or that its context has ended.
unsafe impl Device for CudaDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.inner.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.inner.capabilities
    }

    fn status(&self) -> Result<()> {
        self.inner.context.health.status()
    }

    /// The host's own clock: device times are converted to it.
    fn clock(&self) -> Result<ClockSample> {
        let host = Instant::now();
        let error = Duration::from_nanos(self.inner.clock.error());
        Ok(ClockSample::new(profiling::nanoseconds_at(host), host).error(error))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(self.create(|| CudaMemory::allocate(&self.inner, desc))?))
    }

    fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        self.status()?;
        self.inner.context.run(|| register(&self.inner, memory))
    }

    /// Waits for the stream on which memory is freed.
    fn trim(&self) -> Result<()> {
        self.status()?;
        self.inner.context.run(|| self.inner.pool.trim())
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(self.create(|| CudaKernel::load(&self.inner, desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        if desc.order == QueueOrder::OutOfOrder {
            return Err(self.unsupported("CUDA has no out-of-order queues"));
        }
        Ok(Arc::new(self.create(|| CudaQueue::create(&self.inner, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(self.create(|| CudaEvent::create(&self.inner, desc.profiling))?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(self.create(|| CudaCommandBuffer::create(&self.inner, *desc))?))
    }

    /// This device's memory, the memory that CUDA has pinned, and peers' memory.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.as_any().downcast_ref::<CudaMemory>().is_some_and(|memory| {
            let owner = &memory.device;
            Arc::ptr_eq(owner, &self.inner)
                || memory.kind() == MemoryKind::Host
                || owner.is_open_to(&self.inner)
        })
    }

    /// A stream can wait for events of any context.
    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.as_any().is::<Self>()
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        Err(self
            .unsupported(format!("a CUDA device cannot be split into {count}"))
            .help("split it with MIG, and open the parts through CUDA_VISIBLE_DEVICES"))
    }
}
