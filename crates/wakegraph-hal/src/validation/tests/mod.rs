//! Every condition once, against a backend that runs nothing: the wrong call is refused with its
//! kind and its numbers, and the backend hears nothing of it.
#![expect(
    unsafe_code,
    reason = "enqueues on a backend that touches no memory, and makes pointers nobody follows"
)]

mod control;
mod kernels;
mod operands;
mod states;
mod updates;

use std::sync::Arc;

use super::{ValidatedCommandBuffer, ValidatedDevice, ValidatedQueue};
use crate::fake::{FakeControl, FakeDevice, FakeOptions};
use crate::{
    AccessMode, Appended, Capabilities, Command, CommandBufferDesc, CommandKinds, Error, ErrorKind, Event,
    EventDesc, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind,
    MemoryView, Param, ParamKind, QueueDesc, QueueOrder, Range, Result, Signal, SyncPoint,
    UpdateCapabilities, UsmPointer, WaitList,
};

/// A validated device that runs nothing, and what it hears.
struct Fixture {
    device: ValidatedDevice,
    control: FakeControl,
}

impl Fixture {
    fn new() -> Self {
        Self::with(everything())
    }

    fn with(capabilities: Capabilities) -> Self {
        Self::open(FakeOptions::new().capabilities(|all| *all = capabilities).kernel_work_group(32))
    }

    /// A device on which work stays pending.
    fn manual() -> Self {
        Self::open(
            FakeOptions::new().capabilities(|all| *all = everything()).manual(true).kernel_work_group(32),
        )
    }

    fn open(options: FakeOptions) -> Self {
        let (device, control) = FakeDevice::open(options.logs_calls(true).peers(true));
        Self { device: ValidatedDevice::new(device), control }
    }

    /// The calls that the backend has heard since the last time.
    fn heard(&self) -> Vec<String> {
        self.control.take_calls()
    }

    /// Makes the backend refuse the next change of a command-buffer, as a driver may.
    fn inject_fault(&self) {
        self.control.refuse_change(Error::new(ErrorKind::Driver, "the driver refused"));
    }

    /// An event that an enqueue signals.
    fn enqueued(&self) -> Arc<dyn Event> {
        let event = self.event();
        enqueue(&self.queue(), &Command::Empty, &[], &event).unwrap();
        self.heard();
        event
    }

    fn memory(&self, len: usize) -> MemoryView {
        self.allocate(len, MemoryKind::Device)
    }

    fn host_memory(&self, len: usize) -> MemoryView {
        self.allocate(len, MemoryKind::Host)
    }

    fn allocate(&self, len: usize, kind: MemoryKind) -> MemoryView {
        let view = MemoryView::whole(self.device.allocate(&MemoryDesc::new(len, kind)).unwrap());
        self.heard();
        view
    }

    fn buffer(&self) -> ValidatedCommandBuffer {
        self.device.create_command_buffer(&CommandBufferDesc::default()).unwrap()
    }

    fn updatable_buffer(&self) -> ValidatedCommandBuffer {
        self.device
            .create_command_buffer(&CommandBufferDesc { updatable: true, ..CommandBufferDesc::default() })
            .unwrap()
    }

    fn queue(&self) -> Arc<ValidatedQueue> {
        let desc = QueueDesc::new(QueueOrder::InOrder);
        self.device.create_queue(&desc).unwrap()
    }

    fn event(&self) -> Arc<dyn Event> {
        self.device.create_event(&EventDesc::default()).unwrap()
    }

    /// A kernel of this signature.
    fn kernel(&self, name: &str, params: &[Param]) -> Arc<dyn Kernel> {
        let desc = KernelDesc { name, params, sources: &KernelSources::default() };
        let kernel = self.device.create_kernel(&desc).unwrap();
        self.heard();
        kernel
    }

    /// A launch of `saxpy(a: f32, x: &[f32], y: &mut [f32])` over 16 elements.
    fn saxpy(&self) -> KernelLaunch {
        KernelLaunch {
            kernel: self.kernel("saxpy", &saxpy_params()),
            args: vec![
                value(&[0; 4]),
                KernelArg::Memory(self.memory(64)),
                KernelArg::Memory(self.memory(64)),
            ],
            range: Range::linear(16),
            alternatives: Vec::new(),
        }
    }

    /// Appends to a fresh command-buffer, and enqueues on a queue, which must judge alike.
    fn run(&self, command: &Command) -> Result<()> {
        let eager = enqueue(&self.queue(), command, &[], &self.event());
        let appended = self.buffer().append(command, &[]);
        let heard = self.heard().len();
        match (&eager, &appended) {
            (Ok(()), Ok(_)) => assert_eq!(heard, 2, "{command:?} is passed on once each"),
            (Err(eager), Err(appended)) => {
                assert_eq!(heard, 0, "{command:?} must not reach the backend");
                assert_eq!(eager.to_string(), appended.to_string());
            }
            _ => panic!("a queue says {eager:?}, a command-buffer {appended:?}"),
        }
        appended.map(drop)
    }

    fn refuses(&self, command: &Command, kind: ErrorKind, message: &str) {
        refused(self.run(command), kind, message);
    }

    fn refuses_launch(&self, launch: KernelLaunch, kind: ErrorKind, message: &str) {
        self.refuses(&Command::Kernel(Arc::new(launch)), kind, message);
    }
}

fn everything() -> Capabilities {
    Capabilities {
        update: UpdateCapabilities::all(),
        profiling: true,
        out_of_order_queues: true,
        stream_tasks: true,
        max_work_group_size: 64,
        max_work_item_sizes: [64, 32, 16],
        max_work_groups: [1 << 20, 16, 16],
        max_global_index: 1 << 40,
        concurrent_parts: true,
        global_offset: true,
        view_alignment: 4,
        local_memory: 1024,
        max_allocation: 1 << 20,
        ..Capabilities::new(CommandKinds::all())
    }
}

fn saxpy_params() -> Vec<Param> {
    vec![
        param("a", ParamKind::Value { size: 4 }),
        param("x", floats(AccessMode::Read)),
        param("y", floats(AccessMode::ReadWrite)),
    ]
}

fn param(name: &'static str, kind: ParamKind) -> Param {
    Param { name: name.into(), kind }
}

fn floats(access: AccessMode) -> ParamKind {
    ParamKind::Buffer { access, element_size: 4, element_align: 4 }
}

fn value(bytes: &[u8]) -> KernelArg {
    KernelArg::Value(bytes.into())
}

fn part(view: &MemoryView, offset: usize, len: usize) -> MemoryView {
    MemoryView::new(Arc::clone(view.memory()), offset, len).unwrap()
}

fn usm(address: usize, len: usize) -> UsmPointer {
    // SAFETY: nobody follows it.
    unsafe { UsmPointer::new(address, len) }
}

fn signal(event: &Arc<dyn Event>) -> Signal<'_> {
    Signal::new(event)
}

fn enqueue(
    queue: &ValidatedQueue,
    command: &Command,
    wait: &[&dyn Event],
    done: &Arc<dyn Event>,
) -> Result<()> {
    // SAFETY: the fake backend touches no memory.
    unsafe { queue.enqueue(&Arc::new(command.clone()), WaitList::dependencies(wait), signal(done)) }
}

fn submit(
    buffer: &ValidatedCommandBuffer,
    queue: &ValidatedQueue,
    wait: &[&dyn Event],
    done: &Arc<dyn Event>,
) -> Result<()> {
    // SAFETY: the fake backend touches no memory.
    unsafe { buffer.enqueue(queue, WaitList::dependencies(wait), signal(done)) }
}

fn empty(buffer: &mut ValidatedCommandBuffer, after: &[SyncPoint]) -> Result<Appended> {
    buffer.append(&Command::Empty, after)
}

#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind, message: &str) {
    let error = result.err().expect("the call is wrong");
    assert_eq!((error.kind(), error.message()), (kind, message));
    assert_eq!(error.device(), Some("fake"), "{error}");
}
