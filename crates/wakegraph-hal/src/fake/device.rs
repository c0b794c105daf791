//! The fake device with its memory and kernels, and the control over it.
#![expect(unsafe_code, reason = "vouches for the fake, and hands out memory that the caller orders")]

use std::fmt::{self, Debug};
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::options::FakeOptions;
use super::queue::{FakeCommandBuffer, FakeEvent, FakeQueue};
use super::schedule::FakeSchedule;
use crate::support::memory::HeapBlock;
use crate::{
    Capabilities, ClockSample, CodeOrigin, CommandBuffer, CommandBufferDesc, Compilation, Device, DeviceId,
    DeviceInfo, Error, ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, MemoryKind,
    Param, Queue, QueueDesc, ResourceId, Result, UsmPointer,
};

/// Largest number of devices that one can be split into.
const MAX_SUB_DEVICES: usize = 8;

/// A device that runs nothing, and whose [control](FakeControl) decides when work completes and how.
#[derive(Debug)]
pub struct FakeDevice {
    info: DeviceInfo,
    options: FakeOptions,
    schedule: Arc<FakeSchedule>,
}

impl FakeDevice {
    /// Byte that memory holds which was not to be zeroed.
    pub const UNWRITTEN: u8 = 0xA5;

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
        let name = options.name.clone();
        let info = DeviceInfo { driver: "none".into(), ..DeviceInfo::new("fake", name.clone(), name) };
        let schedule = Arc::new(FakeSchedule::new(&options));
        let control = FakeControl(Arc::clone(&schedule));
        (Arc::new(Self { info, options, schedule }), control)
    }
}

// SAFETY: memory is heap memory, which lives as long as its object, and no command touches any.
unsafe impl Device for FakeDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.options.capabilities
    }

    fn status(&self) -> Result<()> {
        self.schedule.status()
    }

    fn may_still_run(&self) -> bool {
        self.schedule.may_still_run()
    }

    /// A count of events, not of time: it advances with every enqueue and completion.
    fn clock(&self) -> Result<ClockSample> {
        Ok(ClockSample::new(self.schedule.timestamp(), Instant::now()).error(self.options.clock_error))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        self.status()?;
        self.schedule.log(|| format!("allocate {desc:?}"));
        let (resource, block) = (ResourceId::unique(), HeapBlock::zeroed(desc.len)?);
        if !desc.zeroed {
            // SAFETY: nothing else has the block.
            unsafe { block.write(0, &vec![Self::UNWRITTEN; desc.len]) }?;
        }
        Ok(Arc::new(FakeMemory { resource, device: self.info.id, kind: desc.kind, block }))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        self.status()?;
        self.schedule.log(|| format!("create kernel {}", desc.name));
        let max_work_group_size = self.capabilities().max_work_group_size.min(self.options.kernel_work_group);
        Ok(Arc::new(FakeKernel { name: desc.name.into(), params: desc.params.into(), max_work_group_size }))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        Ok(Arc::new(FakeQueue::new(self.info.id, *desc, &self.schedule, self.options.peers)))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        self.status()?;
        Ok(Arc::new(FakeEvent::new(self.info.id, &self.schedule)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        self.status()?;
        Ok(Box::new(FakeCommandBuffer::new(self.info.id, *desc, &self.schedule)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        self.options.memory_of_peers || memory.device() == self.info.id
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        self.options.peers && other.downcast_ref::<Self>().is_some() || other.info().id == self.info.id
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        if count.get() > MAX_SUB_DEVICES {
            let why = format!("the fake device cannot be split into {count}");
            return Err(Error::new(ErrorKind::FeatureNotSupported, why).on_device(&self.info.selector));
        }
        Ok((0..count.get()).map(|_| Self::open(self.options.clone()).0).collect())
    }
}

/// Completes what is pending on a [`FakeDevice`], and injects faults.
///
/// Clones control the same device. All methods may be called on any thread; notifications are
/// called by the thread that completes work.
#[derive(Clone)]
pub struct FakeControl(Arc<FakeSchedule>);

impl FakeControl {
    /// Returns the number of pending enqueues.
    pub fn pending(&self) -> usize {
        self.0.pending()
    }

    /// Returns how often the device was asked for the status of an event.
    pub fn polls(&self) -> u64 {
        self.0.polls()
    }

    /// Completes the oldest enqueue, of `queue` if one is given, that may complete: its in-order
    /// queue, earlier enqueues of its command-buffer and its wait list hold it back. Returns false
    /// when there is none.
    pub fn complete_next(&self, queue: Option<&dyn Queue>) -> bool {
        match queue.map(|queue| queue.downcast_ref::<FakeQueue>()) {
            None => self.0.complete_next(None),
            Some(Some(queue)) => self.0.complete_next(Some(queue.id())),
            Some(None) => false,
        }
    }

    /// Completes everything, in an order that respects queues, command-buffers and wait lists.
    /// Returns how many enqueues that were.
    pub fn complete_all(&self) -> usize {
        self.0.complete_all()
    }

    /// Holds notifications back with `true`. With `false` the device delivers them, the newest
    /// first: drivers notify in no particular order.
    pub fn hold_notifications(&self, hold: bool) {
        self.0.hold_notifications(hold);
    }

    /// Makes the next enqueue that is completed fail with `error` instead.
    pub fn fail_next(&self, error: Error) {
        self.0.fail_next(error);
    }

    /// Makes an enqueue panic, the one after `enqueues` more, as a listener to a backend's log may.
    pub fn panic_after(&self, enqueues: usize) {
        self.0.panic_after(enqueues);
    }

    /// Fails the newest enqueue at once, also before what it waits for, as OpenCL's drivers do. Returns false
    /// when nothing is pending.
    pub fn fail_newest(&self, error: Error) -> bool {
        self.0.fail_newest(error)
    }

    /// Fails what signals this event at once, also before what it waits for. Returns false when it is not
    /// pending.
    pub fn fail(&self, event: &dyn Event, error: Error) -> bool {
        let event = event.downcast_ref::<FakeEvent>();
        event.is_some_and(|event| self.0.fail(event.completion(), error))
    }

    /// Makes the device refuse the next enqueue.
    pub fn refuse_next(&self, error: Error) {
        self.0.refuse_next(error);
    }

    /// Makes the device refuse the next append, finalize or update of a command-buffer.
    pub fn refuse_change(&self, error: Error) {
        self.0.refuse_change(error);
    }

    /// Takes the calls that the device has heard since the last time, in order, if it
    /// [logs](FakeOptions::logs_calls) them: allocations, kernels, and all that queues and command-buffers
    /// do.
    pub fn take_calls(&self) -> Vec<String> {
        self.0.take_calls()
    }

    /// Whether the device may be running what signals this event: it is pending, and nothing holds it back.
    pub fn may_run(&self, event: &dyn Event) -> bool {
        let event = event.downcast_ref::<FakeEvent>();
        event.is_some_and(|event| self.0.may_run(event.completion()))
    }

    /// Loses the device, as one whose driver says no more whether work has ended.
    pub fn give_up(&self) {
        self.0.give_up();
    }

    /// Loses the device: everything pending fails, and the device refuses everything from now on.
    pub fn lose_device(&self) {
        self.0.lose_device();
    }
}

impl Debug for FakeControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeControl")
            .field("device", &self.0.name())
            .field("pending", &self.pending())
            .finish()
    }
}

/// Real host memory, so that a read finds zeros or what the host wrote.
#[derive(Debug)]
struct FakeMemory {
    resource: ResourceId,
    device: DeviceId,
    kind: MemoryKind,
    block: HeapBlock,
}

impl Memory for FakeMemory {
    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn len(&self) -> usize {
        self.block.len()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.kind == MemoryKind::Host).then_some(self.block.start())
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.block.start().as_ptr().expose_provenance();
        // SAFETY: these bytes are valid, and the device never touches them.
        Some(unsafe { UsmPointer::new(address, self.len()) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.block.write(offset, bytes) }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.block.read(offset, bytes) }
    }
}

/// A signature without code. Half of the device's largest work-group is its limit, as for code that uses many
/// registers.
#[derive(Debug)]
struct FakeKernel {
    name: String,
    params: Vec<Param>,
    max_work_group_size: usize,
}

impl Kernel for FakeKernel {
    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        self.max_work_group_size
    }

    fn compilation(&self) -> Compilation {
        Compilation { origin: CodeOrigin::Compiled, time: Duration::ZERO }
    }
}
