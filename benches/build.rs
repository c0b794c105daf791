//! What it costs to record a graph, and to run a command of a queue, beside the plain form of either.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `record_*` | a node, when 1,000 commands of a queue are recorded into a new graph | when they are added one by one, with the same edges | 1.3 |
//! | `eager_fill`, `eager_launch` | a command of a queue, awaited | the same command on a queue of the contract, `hal::Queue`, and its notification awaited | 1.2 |
//! | `eager_fill_64`, `eager_launch_64` | 64 commands in flight, then the last awaited, each | the same on a queue of the contract | 1.2 |
//! | `eager_alternating_64` | 64 commands on eight buffers in turn | the same on a queue of the contract | 1.2 |
//! | `update_1_of_100` | an update of one parameter, of 100 that are bound to a kernel each | the same update of a command-buffer of the contract | |
//! | `update_100_of_100` | an update of all of them, each | the same update of a command-buffer of the contract | |
//! | `cycles` | bytes that 10,000 cycles of record, finalize, submit and drop leave behind, each | none | 16 |
//!
//! On the host device, with two threads, in a tokio runtime of the current thread. `--device=NAME` runs the
//! `eager_*` rows on another device. Where that device does not notify, the base polls its event in the task.
#![expect(unsafe_code, reason = "the base enqueues commands whose order it vouches for itself")]

mod support;
#[path = "support/updates.rs"]
mod updates;

use std::future::poll_fn;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use support::counting::{self, Counting};
use support::{Contender, Report, Row};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::hal::{
    self, Command, EventDesc, KernelArg, KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind,
    MemoryView, Notification, Notify, Param, ParamKind, QueueDesc, QueueOrder, Signal, WaitList,
};
use wakegraph::memory::AccessMode;
use wakegraph::{Buffer, Device, Graph, Queue, Range};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 16;
const NODES: usize = 1_000;
const CYCLES: usize = 10_000;

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| bump_all(x),
        // SAFETY: a work-item uses the element with its index.
        c: unsafe { BUMP },
    }
}

const BUMP: &str = "KERNEL(bump, (SLICE(u32, x))) { x[GLOBAL_ID(0)] += 1; }";

fn bump_all(x: &mut [u32]) {
    x.iter_mut().for_each(|x| *x = x.wrapping_add(1));
    black_box(x);
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let runtime = support::current_thread();
    let mut options = std::env::args().skip(1);
    if let Some(name) = options.find_map(|option| option.strip_prefix("--device=").map(String::from)) {
        let device = Device::open(&name).unwrap_or_else(|error| panic!("nothing to measure: {error}"));
        eager(&mut report, &runtime, &device);
        return report.finish();
    }
    let device = Device::from_hal(host::open(HostOptions::new().threads(2)).expect("a host device"));
    for in_order in [true, false] {
        for (what, kernels) in [("launches", true), ("fills", false)] {
            let name = format!("record_{what}_{}", if in_order { "in_order" } else { "out_of_order" });
            let row = Row::new(&name).limit(1.3).operations(NODES).rounds(30, 10);
            let program = Program::new(&device, in_order, kernels);
            report.race(row, &runtime, Recorded(program.clone()), Added(program));
        }
    }
    eager(&mut report, &runtime, &device);
    for count in [1, updates::PARAMS] {
        let name = format!("update_{count}_of_{}", updates::PARAMS);
        let row = Row::new(&name).operations(count);
        let (ours, base) = (updates::Params::new(&device, count), updates::Commands::new(&device, count));
        report.race(row, &runtime, ours, base);
    }
    cycles(&mut report, &runtime, &device);
    report.finish()
}

fn eager(report: &mut Report, runtime: &tokio::runtime::Runtime, device: &Device) {
    for (what, kind) in [("fill", Kind::Fill), ("launch", Kind::Launch)] {
        let name = format!("eager_{what}");
        let row = Row::new(&name).limit(1.2);
        report.race(row, runtime, Eager::new(device, kind, 1, 1), Plain::new(device, kind, 1, 1));
        let name = format!("eager_{what}_64");
        let row = Row::new(&name).limit(1.2).operations(64).rounds(60, 20);
        report.race(row, runtime, Eager::new(device, kind, 64, 1), Plain::new(device, kind, 64, 1));
    }
    let (ours, base) = (Eager::new(device, Kind::Launch, 64, 8), Plain::new(device, Kind::Launch, 64, 8));
    let row = Row::new("eager_alternating_64").limit(1.2).operations(64).rounds(60, 20);
    report.race(row, runtime, ours, base);
}

/// What is recorded, or added.
#[derive(Clone)]
struct Program {
    device: Device,
    queue: Queue,
    buffers: Vec<Buffer<u32>>,
    kernels: bool,
}

impl Program {
    fn new(device: &Device, in_order: bool, kernels: bool) -> Self {
        let queue = if in_order { device.queue() } else { device.out_of_order_queue() };
        let buffers = (0..8).map(|_| device.buffer(ELEMENTS).expect("a small buffer")).collect();
        Self { device: device.clone(), queue: queue.expect("a queue"), buffers, kernels }
    }

    fn buffers(&self) -> impl Iterator<Item = &Buffer<u32>> {
        self.buffers.iter().cycle().take(NODES)
    }
}

struct Recorded(Program);

impl Contender for Recorded {
    async fn once(&mut self) {
        let program = &self.0;
        let mut graph = Graph::new(&program.device);
        let recording = graph.record([&program.queue]).expect("a queue that does not record");
        for buffer in program.buffers() {
            let event = match program.kernels {
                true => program.queue.launch(bump(buffer), Range::linear(ELEMENTS)),
                false => program.queue.fill(buffer, 1),
            };
            black_box(event);
        }
        drop(recording);
        black_box(graph);
    }
}

struct Added(Program);

impl Contender for Added {
    async fn once(&mut self) {
        let program = &self.0;
        let mut graph = Graph::new(&program.device);
        let mut last = None;
        for buffer in program.buffers() {
            let node = match program.kernels {
                true => graph.launch(bump(buffer), Range::linear(ELEMENTS)),
                false => graph.fill(buffer, 1),
            };
            let node = if program.queue.is_in_order() { node.after(last) } else { node };
            last = Some(node.id());
        }
        black_box(graph);
    }
}

/// Which command is run.
#[derive(Clone, Copy)]
enum Kind {
    Fill,
    Launch,
}

/// Commands of a queue.
struct Eager {
    queue: Queue,
    buffers: Vec<Buffer<u32>>,
    kind: Kind,
    count: usize,
}

impl Eager {
    fn new(device: &Device, kind: Kind, count: usize, buffers: usize) -> Self {
        let buffers = (0..buffers).map(|_| device.buffer(ELEMENTS).expect("a small buffer")).collect();
        Self { queue: device.queue().expect("a queue"), buffers, kind, count }
    }
}

impl Contender for Eager {
    async fn once(&mut self) {
        let mut last = None;
        for buffer in self.buffers.iter().cycle().take(self.count) {
            last = Some(match self.kind {
                Kind::Fill => self.queue.fill(buffer, 1),
                Kind::Launch => self.queue.launch(bump(buffer), Range::linear(ELEMENTS)),
            });
        }
        last.expect("a command").wait().await.expect("a command that runs");
    }
}

/// The same commands on a queue of the contract.
struct Plain {
    queue: Arc<hal::ValidatedQueue>,
    memory: Vec<Arc<dyn hal::Memory>>,
    kernel: Arc<dyn hal::Kernel>,
    kind: Kind,
    done: Vec<(Arc<dyn hal::Event>, Arc<Done>)>,
    notifies: bool,
}

/// Wakes a task when an event is final.
#[derive(Default)]
struct Done {
    waker: AtomicWaker,
    is_set: AtomicBool,
}

impl Notify for Done {
    fn notify(&self, _: u64) {
        self.is_set.store(true, Ordering::Release);
        self.waker.wake();
    }
}

impl Plain {
    fn new(device: &Device, kind: Kind, count: usize, buffers: usize) -> Self {
        let device = device.hal();
        let param = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [Param { name: "x".into(), kind: param }];
        let sources = KernelSources::new()
            .host(|_, args| {
                bump_all(args.write::<u32>()?);
                Ok(())
            })
            .c(BUMP);
        let desc = KernelDesc::new("bump", &params, &sources);
        let memory = MemoryDesc::new(ELEMENTS * size_of::<u32>(), MemoryKind::Device);
        let event = || (device.create_event(&EventDesc::new()).expect("an event"), Arc::<Done>::default());
        Self {
            queue: device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).expect("a queue"),
            memory: (0..buffers).map(|_| device.allocate(&memory).expect("small memory")).collect(),
            kernel: device.create_kernel(&desc).expect("a kernel"),
            kind,
            done: (0..count).map(|_| event()).collect(),
            notifies: device.capabilities().notifies,
        }
    }

    fn command(&self, memory: &Arc<dyn hal::Memory>) -> Command {
        let view = MemoryView::whole(memory.clone());
        match self.kind {
            Kind::Fill => {
                let pattern = hal::SmallVec::from_slice(&1u32.to_ne_bytes());
                Command::BufferFill { dst: view, pattern }
            }
            Kind::Launch => {
                let args = vec![KernelArg::Memory(view)];
                let range = Range::linear(ELEMENTS);
                Command::Kernel(Arc::new(KernelLaunch::new(self.kernel.clone(), args, range)))
            }
        }
    }
}

impl Contender for Plain {
    async fn once(&mut self) {
        for ((event, done), memory) in self.done.iter().zip(self.memory.iter().cycle()) {
            done.is_set.store(false, Ordering::Relaxed);
            let notification = self.notifies.then(|| Notification::new(done.clone(), 0));
            let signal = Signal::new(event).notification(notification);
            // SAFETY: the queue is in order, nothing else uses the memory, and `self` keeps it.
            let enqueued =
                unsafe { self.queue.enqueue(&Arc::new(self.command(memory)), WaitList::NONE, signal) };
            enqueued.expect("a valid command");
        }
        let (event, done) = self.done.last().expect("an event");
        poll_fn(|cx| {
            if !self.notifies {
                let is_final = !matches!(event.status(), hal::EventStatus::Pending);
                cx.waker().wake_by_ref();
                return if is_final { Poll::Ready(()) } else { Poll::Pending };
            }
            done.waker.register(cx.waker());
            if done.is_set.load(Ordering::Acquire) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        // An event may be signalled again only when it is final, and so are all before the last.
    }
}

/// Memory over many cycles of record, finalize, submit and drop.
fn cycles(report: &mut Report, runtime: &tokio::runtime::Runtime, device: &Device) {
    if !report.wants("cycles") {
        return;
    }
    let (queue, x) = (device.queue().expect("a queue"), device.buffer::<u32>(ELEMENTS).expect("a buffer"));
    let cycle = async || {
        let mut graph = Graph::new(device);
        let recording = graph.record([&queue]).expect("a queue that does not record");
        for _ in 0..4 {
            queue.launch(bump(&x), Range::linear(ELEMENTS));
        }
        drop(recording);
        graph.finalize().expect("a valid graph").submit().await.expect("a run");
        queue.fill(&x, 1).await.expect("a command that runs");
    };
    let count = report.reduced(CYCLES);
    let left = runtime.block_on(async {
        for _ in 0..count / 10 {
            cycle().await;
        }
        counting::start();
        for _ in 0..count {
            cycle().await;
        }
        counting::stop().bytes as f64 / count as f64
    });
    report.figure("cycles", left, 0.0, "bytes", left > 16.0);
}
