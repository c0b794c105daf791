//! What the tests of backends share: kernels from closures, enqueues in one line, holds for workers.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unsafe_code, reason = "enqueues; every test orders what it enqueues")]

use std::borrow::Cow;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use wakegraph::hal::{
    Command, CommandBuffer, CommandBufferDesc, Device, Event, EventDesc, EventStatus, HostArgs, Kernel,
    KernelArg, KernelDesc, KernelLaunch, KernelSources, Memory, MemoryDesc, MemoryKind, Notification, Notify,
    Param, ParamKind, Queue, QueueDesc, QueueOrder, Signal, SyncPoint, WaitList,
};
use wakegraph::{Range, Result};

pub(crate) fn queue(device: &dyn Device, order: QueueOrder) -> Arc<dyn Queue> {
    device.create_queue(&QueueDesc::new(order)).unwrap()
}

pub(crate) fn memory(device: &dyn Device, len: usize) -> Arc<dyn Memory> {
    device.allocate(&MemoryDesc::new(len, MemoryKind::Device)).unwrap()
}

/// Writes memory that no command in flight uses.
pub(crate) fn write(memory: &dyn Memory, bytes: &[u8]) {
    // SAFETY: as above.
    unsafe { memory.write(0, bytes) }.unwrap();
}

/// Reads memory that no command in flight uses.
pub(crate) fn read(memory: &dyn Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len()];
    // SAFETY: as above.
    unsafe { memory.read(0, &mut bytes) }.unwrap();
    bytes
}

pub(crate) fn kernel_with_params(
    device: &dyn Device,
    name: &str,
    params: &[Param],
    function: impl Fn(&Range, &mut HostArgs<'_>) -> Result<()> + Send + Sync + 'static,
) -> Arc<dyn Kernel> {
    let sources = KernelSources::new().host(function);
    device.create_kernel(&KernelDesc::new(name, params, &sources)).unwrap()
}

pub(crate) fn value_param(name: &'static str, size: usize) -> Param {
    Param { name: Cow::Borrowed(name), kind: ParamKind::Value { size } }
}

/// A launch, with no arguments, of a kernel that calls the closure.
pub(crate) fn call(
    device: &dyn Device,
    function: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Command {
    launch(kernel_with_params(device, "call", &[], move |_, _| function()), Vec::new())
}

pub(crate) fn launch(kernel: Arc<dyn Kernel>, args: Vec<KernelArg>) -> Command {
    let range = Range::linear(1);
    Command::Kernel(Arc::new(KernelLaunch::new(kernel, args, range)))
}

/// A finalized command-buffer; `after[i]` are the commands that command `i` follows.
pub(crate) fn buffer(
    device: &dyn Device,
    desc: CommandBufferDesc,
    commands: &[Command],
    after: &[Vec<usize>],
) -> Box<dyn CommandBuffer> {
    let mut buffer = device.create_command_buffer(&desc).unwrap();
    let mut points = Vec::<SyncPoint>::new();
    for (i, command) in commands.iter().enumerate() {
        let after: Vec<_> = after.get(i).into_iter().flatten().map(|&p| points[p]).collect();
        points.push(buffer.append(command, &after).unwrap().sync_point);
    }
    buffer.finalize().unwrap();
    buffer
}

pub(crate) const IN_ORDER: CommandBufferDesc = CommandBufferDesc::new().in_order(true);

/// An in-order command-buffer of one call.
pub(crate) fn one(
    device: &dyn Device,
    function: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Box<dyn CommandBuffer> {
    buffer(device, IN_ORDER, &[call(device, function)], &[])
}

pub(crate) fn event(device: &dyn Device) -> Arc<dyn Event> {
    device.create_event(&EventDesc::new()).unwrap()
}

pub(crate) fn enqueue(
    buffer: &dyn CommandBuffer,
    queue: &dyn Queue,
    wait: &[&dyn Event],
    event: &Arc<dyn Event>,
    notification: Option<Notification>,
) -> Result<()> {
    // SAFETY: the tests' commands touch memory that nothing else touches meanwhile.
    unsafe {
        buffer.enqueue(queue, WaitList::dependencies(wait), Signal::new(event).notification(notification))
    }
}

/// Enqueues with a fresh event.
pub(crate) fn start(
    device: &dyn Device,
    buffer: &dyn CommandBuffer,
    queue: &dyn Queue,
    wait: &[&dyn Event],
) -> Arc<dyn Event> {
    let event = event(device);
    enqueue(buffer, queue, wait, &event, None).unwrap();
    event
}

pub(crate) fn enqueue_command(
    queue: &dyn Queue,
    command: &Command,
    wait: &[&dyn Event],
    event: &Arc<dyn Event>,
) -> Result<()> {
    // SAFETY: as for `enqueue`.
    unsafe { queue.enqueue(&Arc::new(command.clone()), WaitList::dependencies(wait), Signal::new(event)) }
}

pub(crate) fn run_command(device: &dyn Device, queue: &dyn Queue, command: &Command) {
    let event = event(device);
    enqueue_command(queue, command, &[], &event).unwrap();
    assert_complete(&*event);
}

#[track_caller]
pub(crate) fn assert_complete(event: &dyn Event) {
    let status = event.wait(None);
    assert!(matches!(status, EventStatus::Complete), "{status:?}");
}

#[track_caller]
pub(crate) fn failure(event: &dyn Event) -> wakegraph::Error {
    match event.wait(None) {
        EventStatus::Failed(error) => error,
        status => panic!("not failed but {status:?}"),
    }
}

/// Tells the tokens of notifications.
pub(crate) struct Notifier(Sender<u64>);

impl Notify for Notifier {
    fn notify(&self, token: u64) {
        self.0.send(token).unwrap();
    }
}

pub(crate) fn notifier() -> (Arc<Notifier>, Receiver<u64>) {
    let (sender, receiver) = channel();
    (Arc::new(Notifier(sender)), receiver)
}

pub(crate) fn notification(target: &Arc<Notifier>, token: u64) -> Option<Notification> {
    Some(Notification::new(target.clone(), token))
}

/// Holds kernels until it is opened, once for each; dropping it opens it for good.
pub(crate) struct Release(Sender<()>);

impl Release {
    pub(crate) fn open(&self) {
        self.0.send(()).unwrap();
    }
}

/// What holds a kernel, and what the kernel calls to be held.
pub(crate) fn held() -> (Release, impl Fn() + Send + Sync + Clone + 'static) {
    let (open, opened) = channel();
    let opened = Arc::new(Mutex::new(opened));
    let hold = move || {
        let _ = opened.lock().unwrap_or_else(|e| e.into_inner()).recv();
    };
    (Release(open), hold)
}
