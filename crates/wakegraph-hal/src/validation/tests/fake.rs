//! A backend that runs nothing and writes down what it is asked to do.

use std::any::Any;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::{
    Appended, Capabilities, ClockSample, Command, CommandBuffer, CommandBufferDesc, CommandBufferId,
    CommandBufferInfo, CommandBufferState, CommandChange, CommandKinds, CommandUpdate, Device, DeviceId,
    DeviceInfo, Enqueued, Error, ErrorKind, Event, EventDesc, EventProfile, EventStatus, Kernel, KernelDesc,
    Memory, MemoryDesc, MemoryKind, Param, Queue, QueueDesc, ResourceId, Result, Signal, SyncPoint,
    UpdateCapabilities, UsmPointer, WaitList,
};

/// What the backend was asked to do, in order.
#[derive(Clone, Default, Debug)]
pub(super) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(super) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }

    fn note(&self, call: String) {
        self.0.lock().push(call);
    }
}

/// Makes the next call of a command-buffer fail, as a driver might.
#[derive(Clone, Default, Debug)]
pub(super) struct Fault(Arc<Mutex<bool>>);

impl Fault {
    pub(super) fn inject(&self) {
        *self.0.lock() = true;
    }

    fn strike(&self) -> Result<()> {
        match std::mem::take(&mut *self.0.lock()) {
            true => Err(Error::new(ErrorKind::Driver, "the driver refused")),
            false => Ok(()),
        }
    }
}

#[derive(Debug)]
pub(super) struct FakeDevice {
    info: DeviceInfo,
    capabilities: Capabilities,
    log: Log,
    pub(super) fault: Fault,
}

impl FakeDevice {
    pub(super) fn new(capabilities: Capabilities) -> Self {
        let info = DeviceInfo::new("fake", "fake:0".into(), "fake".into());
        Self { info, capabilities, log: Log::default(), fault: Fault::default() }
    }

    pub(super) fn log(&self) -> Log {
        self.log.clone()
    }
}

pub(super) fn everything() -> Capabilities {
    Capabilities {
        commands: CommandKinds::all(),
        update: UpdateCapabilities::all(),
        profiling: true,
        notifies: false,
        prefers_polls: false,
        out_of_order_queues: true,
        max_work_group_size: 64,
        max_work_item_sizes: [64, 32, 16],
        max_work_groups: [1 << 20, 16, 16],
        max_global_index: 1 << 40,
        concurrent_parts: true,
        global_offset: true,
        view_alignment: 4,
        local_memory: 1024,
        max_allocation: 1 << 20,
        progress: crate::Progress::Device,
        batches: false,
        queue_priorities: false,
        stream_tasks: true,
    }
}

// SAFETY: nothing touches any memory.
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
        Ok(())
    }

    fn clock(&self) -> Result<ClockSample> {
        Ok(ClockSample::new(0, Instant::now()))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        self.log.note(format!("allocate {desc:?}"));
        let storage = (desc.kind == MemoryKind::Host)
            .then(|| Mutex::new(vec![Line { _bytes: [0; 64] }; desc.len.div_ceil(64)].into_boxed_slice()));
        Ok(Arc::new(FakeMemory {
            resource: ResourceId::unique(),
            device: self.info.id,
            desc: *desc,
            storage,
        }))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        self.log.note(format!("create kernel {}", desc.name));
        Ok(Arc::new(FakeKernel { name: desc.name.into(), params: desc.params.into() }))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(FakeQueue { device: self.info.id, desc: *desc, log: self.log() }))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(FakeEvent::at(self.info.id, EventStatus::Idle))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        let info = CommandBufferInfo {
            id: CommandBufferId::unique(),
            device: self.info.id,
            desc: *desc,
            state: CommandBufferState::Recording,
            commands: 0,
            lowering: "nothing",
            reason: "",
        };
        Ok(Box::new(FakeCommandBuffer {
            info,
            commands: Vec::new(),
            log: self.log(),
            fault: self.fault.clone(),
        }))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.device() == self.info.id
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.as_any().is::<Self>()
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        Ok((0..count.get()).map(|_| Arc::new(Self::new(self.capabilities.clone())) as _).collect())
    }
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    _bytes: [u8; 64],
}

#[derive(Debug)]
struct FakeMemory {
    resource: ResourceId,
    device: DeviceId,
    desc: MemoryDesc,
    storage: Option<Mutex<Box<[Line]>>>,
}

impl Memory for FakeMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn kind(&self) -> MemoryKind {
        self.desc.kind
    }

    fn len(&self) -> usize {
        self.desc.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        let storage = self.storage.as_ref()?;
        NonNull::new(storage.lock().as_mut_ptr().cast())
    }

    fn usm(&self) -> Option<UsmPointer> {
        None
    }

    unsafe fn write(&self, _offset: usize, _bytes: &[u8]) -> Result<()> {
        Ok(())
    }

    unsafe fn read(&self, _offset: usize, _bytes: &mut [u8]) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct FakeKernel {
    name: String,
    params: Vec<Param>,
}

impl Kernel for FakeKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn params(&self) -> &[Param] {
        &self.params
    }

    fn max_work_group_size(&self) -> usize {
        32
    }
}

#[derive(Debug)]
pub(super) struct FakeQueue {
    device: DeviceId,
    desc: QueueDesc,
    log: Log,
}

impl Queue for FakeQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let token = signal.notification.map(|notification| notification.token);
        self.log.note(format!("queue {command:?} after {} events, token {token:?}", wait.events().count()));
        Ok(())
    }

    unsafe fn enqueue_batch(&self, buffers: &[&dyn CommandBuffer], _: Signal<'_>) -> Enqueued {
        self.log.note(format!("batch of {}", buffers.len()));
        Enqueued::new(buffers.len(), None)
    }

    fn flush(&self) -> Result<()> {
        self.log.note("flush".into());
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.log.note("finish".into());
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct FakeEvent {
    device: DeviceId,
    status: EventStatus,
}

impl FakeEvent {
    pub(super) fn at(device: DeviceId, status: EventStatus) -> Arc<dyn Event> {
        Arc::new(Self { device, status })
    }
}

impl Event for FakeEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.status.clone()
    }

    fn wait(&self, _timeout: Option<Duration>) -> EventStatus {
        self.status()
    }

    fn profile(&self) -> Result<EventProfile> {
        Ok(EventProfile::default())
    }
}

#[derive(Debug)]
pub(super) struct FakeCommandBuffer {
    info: CommandBufferInfo,
    commands: Vec<Command>,
    log: Log,
    fault: Fault,
}

impl CommandBuffer for FakeCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        self.info.clone()
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.fault.strike()?;
        let after_indices: Vec<_> = after.iter().map(|point| point.index).collect();
        self.log.note(format!("append {command:?} after {after_indices:?}"));
        self.info.commands += 1;
        self.commands.push(command.clone());
        Ok(Appended::new(self.info.id, self.info.commands as u32 - 1, command, &self.info.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.commands.get(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.fault.strike()?;
        self.log.note("finalize".into());
        self.info.state = CommandBufferState::Executable;
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        assert!(queue.as_any().is::<FakeQueue>(), "a backend is handed its own queue");
        let token = signal.notification.map(|notification| notification.token);
        self.log.note(format!("enqueue after {} events, token {token:?}", wait.events().count()));
        Ok(())
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.fault.strike()?;
        self.log.note(format!("update {updates:?}"));
        for change in CommandChange::of(updates, |index| self.commands.get(index))? {
            if let Some(command) = change.command {
                self.commands[change.index] = command;
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let theirs = other.as_any().downcast_ref::<Self>().expect("a backend is handed its own buffer");
        self.fault.strike()?;
        self.commands.clone_from(&theirs.commands);
        self.log.note(format!("update from a buffer of {}", other.info().commands));
        Ok(())
    }
}
