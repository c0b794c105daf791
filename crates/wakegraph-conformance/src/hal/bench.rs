//! The objects that a test of the contract works with, made short. The only file of `hal` with `unsafe`.
#![expect(unsafe_code, reason = "every enqueue and every raw access vouches for its order")]

use std::sync::Arc;

use wakegraph::hal::{
    AccessMode, Appended, Command, CommandBufferDesc, Event, EventStatus, HostArgs, Kernel, KernelArg,
    KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, NativeCommand, NativeStream,
    Notification, Param, ParamKind, QueueDesc, QueueOrder, Signal, SyncPoint, UsmPointer,
    ValidatedCommandBuffer, ValidatedDevice, ValidatedQueue, WaitList,
};
use wakegraph::{Error, Range, Result};

use crate::in_flight;
use crate::suite::Setup;

/// A device with a queue: in order, unless the setup says otherwise.
pub(crate) struct Bench {
    pub(crate) device: ValidatedDevice,
    pub(crate) queue: Arc<ValidatedQueue>,
}

impl Bench {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self { device: setup.hal().clone(), queue: queue(setup.hal(), setup.queue_order()) }
    }

    pub(crate) fn on(device: &ValidatedDevice) -> Self {
        Self { device: device.clone(), queue: queue(device, QueueOrder::InOrder) }
    }

    pub(crate) fn another_queue(&self) -> Arc<ValidatedQueue> {
        queue(&self.device, QueueOrder::InOrder)
    }

    pub(crate) fn out_of_order_queue(&self) -> Arc<ValidatedQueue> {
        queue(&self.device, QueueOrder::OutOfOrder)
    }

    pub(crate) fn event(&self) -> Arc<dyn Event> {
        self.device
            .create_event(&wakegraph::hal::EventDesc::new().profiling(self.device.capabilities().profiling))
            .unwrap()
    }

    /// Device memory with these bytes.
    pub(crate) fn memory(&self, bytes: &[u8]) -> MemoryView {
        self.allocate(MemoryKind::Device, bytes)
    }

    /// Host memory with these bytes.
    pub(crate) fn host_memory(&self, bytes: &[u8]) -> MemoryView {
        self.allocate(MemoryKind::Host, bytes)
    }

    fn allocate(&self, kind: MemoryKind, bytes: &[u8]) -> MemoryView {
        let view = MemoryView::whole(self.device.allocate(&MemoryDesc::new(bytes.len(), kind)).unwrap());
        write(&view, bytes);
        view
    }

    /// A recording command-buffer.
    pub(crate) fn buffer(&self, desc: CommandBufferDesc) -> ValidatedCommandBuffer {
        self.device.create_command_buffer(&desc).unwrap()
    }

    /// A finalized, in-order command-buffer of these commands.
    pub(crate) fn recorded(&self, commands: &[Command]) -> ValidatedCommandBuffer {
        self.recorded_as(CommandBufferDesc::new().in_order(true), commands)
    }

    /// A finalized command-buffer of these commands.
    pub(crate) fn recorded_as(
        &self,
        desc: CommandBufferDesc,
        commands: &[Command],
    ) -> ValidatedCommandBuffer {
        let mut buffer = self.buffer(desc);
        for command in commands {
            buffer.append(command, &[]).unwrap();
        }
        buffer.finalize().unwrap();
        buffer
    }

    /// Runs the command in a command-buffer twice, then outside one: three times in all.
    pub(crate) fn run(&self, command: &Command) {
        let buffer = self.recorded(std::slice::from_ref(command));
        let event = self.event();
        for _ in 0..2 {
            enqueue(&buffer, &self.queue, &event).unwrap();
            complete(&event);
        }
        enqueue_command(command, &self.queue, WaitList::NONE, &event).unwrap();
        complete(&event);
    }

    /// Enqueues a command-buffer and waits for it.
    pub(crate) fn run_buffer(&self, buffer: &ValidatedCommandBuffer) {
        let event = self.event();
        enqueue(buffer, &self.queue, &event).unwrap();
        complete(&event);
    }

    pub(crate) fn kernel(
        &self,
        name: &str,
        params: &[Param],
        code: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn Kernel> {
        let sources = KernelSources::new().host(code).c(source(name, params));
        self.device.create_kernel(&KernelDesc::new(name, params, &sources)).unwrap()
    }

    /// A launch of a kernel without parameters.
    pub(crate) fn call(&self, name: &str, code: impl Fn() -> Result<()> + Send + Sync + 'static) -> Command {
        launch(&self.kernel(name, &[], move |_, _| code()), Vec::new(), Range::linear(1))
    }
}

/// A kernel with these parameters that does nothing, in the portable dialect.
pub(crate) fn source(name: &str, params: &[Param]) -> String {
    let mut list = Vec::new();
    for (index, param) in params.iter().enumerate() {
        list.push(match &param.kind {
            ParamKind::Value { size } => format!("u{} p{index}", 8 * size),
            ParamKind::Buffer { access, element_size, .. } if access.writes() => {
                format!("SLICE(u{}, p{index})", 8 * element_size)
            }
            ParamKind::Buffer { element_size, .. } => format!("SLICE(const u{}, p{index})", 8 * element_size),
            ParamKind::Local { element_size } => format!("LOCAL_SLICE(u{}, p{index})", 8 * element_size),
        });
    }
    format!("KERNEL({name}, ({})) {{}}\n", list.join(", "))
}

fn queue(device: &ValidatedDevice, order: QueueOrder) -> Arc<ValidatedQueue> {
    device.create_queue(&QueueDesc::new(order)).unwrap()
}

pub(crate) fn launch(kernel: &Arc<dyn Kernel>, args: Vec<KernelArg>, range: Range) -> Command {
    Command::Kernel(Arc::new(KernelLaunch::new(kernel.clone(), args, range)))
}

/// A native command that touches no memory.
pub(crate) fn native(run: impl Fn(&NativeStream<'_>) -> Result<()> + Send + Sync + 'static) -> NativeCommand {
    // SAFETY: what tests enqueue touches nothing.
    unsafe { NativeCommand::new("mine", Vec::new(), run) }
}

pub(crate) fn value(name: &'static str, size: usize) -> Param {
    Param { name: name.into(), kind: ParamKind::Value { size } }
}

pub(crate) fn bytes(name: &'static str, access: AccessMode) -> Param {
    Param { name: name.into(), kind: ParamKind::Buffer { access, element_size: 1, element_align: 1 } }
}

pub(crate) fn part(view: &MemoryView, offset: usize, len: usize) -> MemoryView {
    MemoryView::new(view.memory().clone(), view.offset() + offset, len).unwrap()
}

pub(crate) fn usm(view: &MemoryView) -> Option<UsmPointer> {
    let whole = view.memory().usm()?;
    Some(pointer(whole.address() + view.offset(), view.len()))
}

pub(crate) fn pointer(address: usize, len: usize) -> UsmPointer {
    // SAFETY: inside an allocation that the test keeps, or refused before anybody follows it.
    unsafe { UsmPointer::new(address, len) }
}

pub(crate) fn write(view: &MemoryView, bytes: &[u8]) {
    // SAFETY: tests write before they enqueue or after they have waited.
    unsafe { view.memory().write(view.offset(), bytes) }.unwrap();
}

pub(crate) fn read(view: &MemoryView) -> Vec<u8> {
    let mut bytes = vec![0; view.len()];
    // SAFETY: tests read after they have waited.
    unsafe { view.memory().read(view.offset(), &mut bytes) }.unwrap();
    bytes
}

/// Reads or writes beyond the end, which the memory refuses.
pub(crate) fn access_outside(view: &MemoryView, offset: usize, len: usize) -> [Result<()>; 2] {
    let mut bytes = vec![0; len];
    // SAFETY: nothing is in flight.
    let read = unsafe { view.memory().read(offset, &mut bytes) };
    // SAFETY: nothing is in flight.
    let written = unsafe { view.memory().write(offset, &bytes) };
    [read, written]
}

pub(crate) fn enqueue(
    buffer: &ValidatedCommandBuffer,
    queue: &ValidatedQueue,
    event: &Arc<dyn Event>,
) -> Result<()> {
    enqueue_after(buffer, queue, WaitList::NONE, event)
}

pub(crate) fn enqueue_after(
    buffer: &ValidatedCommandBuffer,
    queue: &ValidatedQueue,
    wait: WaitList<'_>,
    event: &Arc<dyn Event>,
) -> Result<()> {
    // SAFETY: tests order conflicting work through wait lists and queues, and keep what pointers lead to.
    unsafe { buffer.enqueue(queue, wait, Signal::new(event)) }.inspect(|()| in_flight::note(event))
}

pub(crate) fn enqueue_notifying(
    buffer: &ValidatedCommandBuffer,
    queue: &ValidatedQueue,
    wait: WaitList<'_>,
    event: &Arc<dyn Event>,
    notification: Notification,
) -> Result<()> {
    // SAFETY: as in `enqueue_after`.
    unsafe { buffer.enqueue(queue, wait, Signal::new(event).notification(Some(notification))) }
        .inspect(|()| in_flight::note(event))
}

pub(crate) fn enqueue_command(
    command: &Command,
    queue: &ValidatedQueue,
    wait: WaitList<'_>,
    event: &Arc<dyn Event>,
) -> Result<()> {
    // SAFETY: as in `enqueue_after`.
    unsafe { queue.enqueue(&Arc::new(command.clone()), wait, Signal::new(event)) }
        .inspect(|()| in_flight::note(event))
}

/// Waits for an event, which must succeed.
#[track_caller]
pub(crate) fn complete(event: &Arc<dyn Event>) {
    match event.wait(None) {
        EventStatus::Complete => {}
        other => panic!("expected completion, found {other:?}"),
    }
}

/// Waits for an event, which must fail.
#[track_caller]
pub(crate) fn failed(event: &Arc<dyn Event>) -> Error {
    match event.wait(None) {
        EventStatus::Failed(error) => error,
        other => panic!("expected a failure, found {other:?}"),
    }
}

#[track_caller]
pub(crate) fn pending(event: &Arc<dyn Event>) {
    let status = event.status();
    assert!(matches!(status, EventStatus::Pending), "expected pending, found {status:?}");
}

/// Appends in a sub-range of a DAG: after the commands with these indices.
pub(crate) fn append(
    buffer: &mut ValidatedCommandBuffer,
    command: &Command,
    points: &mut Vec<SyncPoint>,
    after: &[usize],
) -> Appended {
    let after: Vec<_> = after.iter().map(|&index| points[index]).collect();
    let appended = buffer.append(command, &after).unwrap();
    points.push(appended.sync_point);
    appended
}
