//! The device: it creates everything on it.
#![expect(unsafe_code, reason = "vouches for the backend, and takes handles that the caller vouches for")]

use std::any::Any;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command_buffer::HipCommandBuffer;
use super::context::HipContext;
use super::device_inner::HipDeviceInner;
use super::foreign;
use super::kernel::HipKernel;
use super::memory::HipMemory;
use super::registered::register;
use super::sys::Driver;
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
pub(super) struct HipDevice {
    inner: Arc<HipDeviceInner>,
}

impl HipDevice {
    pub(super) fn open(driver: &'static Driver, index: usize) -> Result<Self> {
        let inner = HipContext::new(driver, index)
            .and_then(HipDeviceInner::open)
            .map_err(|error| error.on_device(format!("hip:{index}")))?;
        Ok(Self { inner: Arc::new(inner) })
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
unsafe impl Device for HipDevice {
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
        Ok(Arc::new(self.create(|| HipMemory::allocate(&self.inner, desc))?))
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
        Ok(Arc::new(self.create(|| HipKernel::load(&self.inner, desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        if desc.order == QueueOrder::OutOfOrder {
            return Err(self.unsupported("HIP has no out-of-order queues"));
        }
        Ok(Arc::new(self.create(|| StreamQueue::create(&self.inner, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(self.create(|| StreamEvent::create(&self.inner, desc.profiling))?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(self.create(|| HipCommandBuffer::create(&self.inner, *desc))?))
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

    /// This device's memory, the host memory that HIP knows, and peers' memory.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.as_any().downcast_ref::<HipMemory>().is_some_and(|memory| {
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
            .unsupported(format!(
                "a HIP device cannot be split into {count}: graphs ignore masks of compute units"
            ))
            .help("partition the GPU with amd-smi, and open the parts through HIP_VISIBLE_DEVICES"))
    }
}
