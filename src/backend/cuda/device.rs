//! The device: it creates everything on it.
#![expect(unsafe_code, reason = "vouches for the backend, and takes handles that the caller vouches for")]

use std::any::Any;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command_buffer::CudaCommandBuffer;
use super::context::CudaContext;
use super::device_inner::CudaDeviceInner;
use super::foreign;
use super::kernel::CudaKernel;
use super::memory::CudaMemory;
use super::registered::register;
use super::sys::{CUcontext, Driver};
use crate::hal::support::streams::{
    DriverContext as _, StreamEvent, StreamQueue, import_event, nanoseconds_at, order_stream_after,
};
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
        let inner = CudaContext::retain(driver, index)
            .and_then(CudaDeviceInner::open)
            .map_err(|error| error.on_device(format!("cuda:{index}")))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The device of a context that the application has created, and that lives as long as `keep_alive`.
    ///
    /// # Safety
    /// The context is null or live.
    pub(super) unsafe fn open_in_context(
        driver: &'static Driver,
        context: CUcontext,
        keep_alive: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        // SAFETY: passed on to the caller.
        let context = unsafe { CudaContext::lent(driver, context, keep_alive) }?;
        Ok(Self { inner: Arc::new(CudaDeviceInner::open(context)?) })
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
        Ok(ClockSample::new(nanoseconds_at(host), host).error(error))
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
        Ok(Arc::new(self.create(|| StreamQueue::create(&self.inner, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(self.create(|| StreamEvent::create(&self.inner, desc.profiling))?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(self.create(|| CudaCommandBuffer::create(&self.inner, *desc))?))
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.create(|| foreign::check_address(&self.inner, address, len))
    }

    unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        // SAFETY: passed on to the caller.
        Ok(Arc::new(self.create(|| unsafe { import_event(&self.inner, handle.cast()) })?))
    }

    unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        // SAFETY: passed on to the caller.
        self.create(|| unsafe { order_stream_after(&*self.inner, queue.cast(), events) })
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
