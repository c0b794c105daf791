//! Devices: each makes everything on it.
#![expect(unsafe_code, reason = "vouches for the backend")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;

use wakegraph_hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Error, ErrorKind, Event,
    EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, Result,
};

use super::command_buffer::LevelZeroCommandBuffer;
use super::context::LevelZeroContext;
use super::driver::{self, DriverDevice};
use super::kernel::LevelZeroKernel;
use super::memory::{self, LevelZeroMemory};
use super::options::LevelZeroOptions;
use super::queue::LevelZeroQueue;
use super::signal::LevelZeroEvent;

/// A device. Its objects keep its context alive, so the device itself may be dropped before them.
#[derive(Debug)]
pub(super) struct LevelZeroDevice {
    context: Arc<LevelZeroContext>,
}

impl LevelZeroDevice {
    pub(super) fn open(index: usize, options: LevelZeroOptions) -> Result<Self> {
        let devices = driver::devices()?;
        let Some(found) = devices.get(index) else {
            let why = format!("there is no Level Zero device {index}: there are {}", devices.len());
            return Err(Error::new(ErrorKind::Unavailable, why)
                .help("count from 0, or select by name; ZE_FLAT_DEVICE_HIERARCHY changes what a device is"));
        };
        let selector = format!("level_zero:{index}");
        Self::of(*found, selector.clone(), options).map_err(|error| error.on_device(selector))
    }

    #[cfg(test)]
    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    fn of(found: DriverDevice, selector: String, options: LevelZeroOptions) -> Result<Self> {
        Ok(Self { context: Arc::new(LevelZeroContext::new(found, selector, options)?) })
    }

    /// Creates an object, unless the device is lost. An error names the device.
    fn create<T, E: Into<Error>>(&self, create: impl FnOnce() -> std::result::Result<T, E>) -> Result<T> {
        self.context.health()?;
        create().map_err(|error| self.context.error(error))
    }
}

// SAFETY: the backend meets the contract, as the conformance suite shows on a driver that computes:
// memory is the driver's, zeroed, and lives as long as its object; work starts after its wait list;
// and an event is final once the driver says so of the last command.
unsafe impl Device for LevelZeroDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.context.capabilities
    }

    fn status(&self) -> Result<()> {
        self.context.status()
    }

    fn may_still_run(&self) -> bool {
        self.context.health.may_still_run()
    }

    fn clock(&self) -> Result<ClockSample> {
        if !self.context.capabilities.profiling {
            let why = "the driver cannot read the device's clock";
            return Err(self.context.error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        self.create(|| self.context.clock())
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(self.create(|| LevelZeroMemory::allocate(&self.context, desc))?))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(self.create(|| LevelZeroKernel::load(&self.context, desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(self.create(|| LevelZeroQueue::create(&self.context, *desc))?))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(LevelZeroEvent::new(&self.context)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(LevelZeroCommandBuffer::new(&self.context, *desc)))
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.create(|| memory::check_address(&self.context, address, len))
    }

    /// Memory does not leave its driver.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory
            .as_any()
            .downcast_ref::<LevelZeroMemory>()
            .is_some_and(|memory| memory.is_open_to(&self.context))
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.context.can_wait_for(&other.context))
    }

    /// The parts that the hardware has. They share memory and events with each other and with the
    /// whole device.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let (found, count) = (self.context.found, count.get());
        let parts = self.create(|| found.parts())?;
        if parts.len() != count {
            let why = match parts.len() {
                0 => format!("the device has no parts, so it cannot be split into {count}"),
                fixed => format!("the device has {fixed} parts, so it cannot be split into {count}"),
            };
            return Err(self.context.error(Error::new(ErrorKind::FeatureNotSupported, why)).help(
                "split into as many devices as the hardware has; \
                     ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE shows them",
            ));
        }
        let parts = parts.into_iter().enumerate().map(|(number, part)| {
            let selector = format!("{} (part {number} of {count})", self.context.info.selector);
            let device = Self::of(part, selector, self.context.options.clone());
            Ok(Arc::new(device.map_err(|error| self.context.error(error))?) as Arc<dyn Device>)
        });
        parts.collect()
    }
}
