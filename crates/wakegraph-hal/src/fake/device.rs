//! The fake device.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::command_buffer::FakeCommandBuffer;
use super::control::FakeControl;
use super::event::FakeEvent;
use super::options::{FakeOptions, null_device};
use super::queue::FakeQueue;
use super::schedule::FakeSchedule;
use crate::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Event, EventDesc,
    Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, Result,
};

/// A device that runs nothing, and whose [control](FakeControl) decides when work completes and how.
#[derive(Debug)]
pub struct FakeDevice {
    /// Makes memory, kernels and command-buffers.
    null: Arc<dyn Device>,
    info: DeviceInfo,
    capabilities: Capabilities,
    schedule: Arc<FakeSchedule>,
    clock_error: Duration,
    /// Whether it waits for others of its kind.
    peers: bool,
}

impl FakeDevice {
    /// Opens a device, and gives the control over it.
    ///
    /// ```
    /// use wakegraph::testing::{FakeDevice, FakeOptions};
    /// let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    /// assert_eq!(control.pending(), 0);
    /// control.lose_device();
    /// assert!(device.status().is_err());
    /// ```
    pub fn open(options: FakeOptions) -> (Arc<dyn Device>, FakeControl) {
        let null = null_device();
        let (selector, name) = (options.name.clone(), options.name.clone());
        let info = DeviceInfo { backend: "fake", selector, name, ..null.info().clone() };
        let schedule = Arc::new(FakeSchedule::new(&options));
        let control = FakeControl::new(&schedule);
        let FakeOptions { capabilities, clock_error, peers, .. } = options;
        (Arc::new(Self { null, info, capabilities, schedule, clock_error, peers }), control)
    }
}

// SAFETY: memory is the null device's heap memory, which lives as long as its object, and no
// command touches any.
#[expect(unsafe_code, reason = "vouches for the fake")]
unsafe impl Device for FakeDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn status(&self) -> Result<()> {
        self.schedule.status()
    }

    fn may_still_run(&self) -> bool {
        self.schedule.may_still_run()
    }

    /// A count of events, not of time: it advances with every enqueue and completion.
    fn clock(&self) -> Result<ClockSample> {
        Ok(ClockSample::new(self.schedule.timestamp(), Instant::now()).error(self.clock_error))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        self.status()?;
        self.null.allocate(desc)
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        self.status()?;
        self.null.create_kernel(desc)
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        Ok(Arc::new(FakeQueue::new(self.info.id, *desc, &self.schedule, self.peers)))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        self.status()?;
        Ok(Arc::new(FakeEvent::new(self.info.id, &self.schedule)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        self.status()?;
        Ok(Box::new(FakeCommandBuffer::new(self.null.create_command_buffer(desc)?)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        self.null.can_access(memory)
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        self.peers && other.as_any().is::<Self>() || self.null.can_wait_for(other)
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        self.null.sub_devices(count)
    }
}
