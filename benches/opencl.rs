//! What awaiting a graph on an OpenCL device costs, beside the driver calls that one would write by hand.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `chain_1`, `_10`, `_100` | `submit().await` of a graph of that many tiny kernels | enqueue them, wait | 1.15 |
//! | `hop` | kernel, async host task, kernel as one graph | enqueue, wait, await a spawned task, enqueue, wait | 1.15 |
//! | `update` | a kernel's new argument into a command-buffer, enqueue, wait | `clSetKernelArg`, enqueue, wait | 1.2 |
//! | `update_100` | the same for 100 kernels | the same for 100 kernels | 1.1 |
//! | `deep_10`, `_1000` | so many submissions of one kernel, then awaited; per submission | so many enqueues, then a wait | 1.2 |
//! | `deep_10_each`, `_1000_each` | the same | the same, with an event for each enqueue, and a wait for each | 1.2 |
//! | `linear` | a submission at depth 1,000 | one at depth 10 | 1.5 |
//! | `busy_chain_1`, `busy_hop` | `chain_1` and `hop`, while another program keeps every core busy | as above | 1.3 |
//! | `busy_chain_1_spin`, `busy_hop_spin` | the same | the loops that spin | 1.3 |
//! | `busy_chain_1_async`, `busy_hop_async` | the same | the loops that, as ours, let other tasks run | 1.3 |
//!
//! The base is the fastest, in the same run, of six loops: plain in-order enqueues or a
//! command-buffer, each with `clFinish`, `clWaitForEvents`, or a spin on the event's status that
//! yields; the row tells which one it was. All of these keep a thread of the runtime's until the device is
//! done, so that no other task runs there. The bases of the rows `_async` do not: a callback of the driver's
//! wakes the task, a thread of the runtime's own waits, or the task asks and yields to other tasks.
//! Each device that OpenCL offers is measured, in a tokio
//! runtime of the current thread and in one of two workers: `opencl:0/multi/hop`.
#![expect(unsafe_code, reason = "declares device code, enqueues by the backend contract")]

#[path = "support/raw_opencl.rs"]
mod raw_opencl;
mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use raw_opencl::{Chain, Lowering, RawDevice, Waiting};
use support::load::Load;
use support::{Contender, Report, Row};
use tokio::runtime::Runtime;
use wakegraph::hal::{
    Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, EventDesc, EventStatus, KernelArg,
    KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Notification, Notify, Param,
    ParamKind, QueueDesc, QueueOrder, Signal, ValidatedCommandBuffer, ValidatedQueue, ValueBytes, WaitList,
};
use wakegraph::memory::AccessMode;
use wakegraph::{Device, ExecutableGraph, Graph, Range, Submission, write};

const ELEMENTS: usize = 16;

/// How long the runtime spins at most for the end of a run that the host's cores compute.
const SPIN: Duration = Duration::from_micros(50);

const SOURCE: &str = "KERNEL(bump, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }";

wakegraph::kernel! {
    fn bump(n: u32, x: &mut [u32]) {
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice's length.
        c: unsafe { SOURCE },
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let runtimes = [("current", support::current_thread()), ("multi", support::multi_thread())];
    for index in 0.. {
        let Ok(device) = Device::open(&format!("opencl:{index}")) else { break };
        let Some(raw) = RawDevice::find(&device.info().name, SOURCE, "bump", ELEMENTS) else { continue };
        println!("{device:?}");
        for (flavour, runtime) in &runtimes {
            rows(&mut report, &format!("opencl:{index}/{flavour}"), runtime, &device, &raw);
        }
    }
    report.finish()
}

/// All rows of one device in one runtime.
fn rows(report: &mut Report, prefix: &str, runtime: &Runtime, device: &Device, raw: &Arc<RawDevice>) {
    let name = |row: &str| format!("{prefix}/{row}");
    for (length, rounds, samples) in [(1, 50, 200), (10, 50, 50), (100, 30, 20)] {
        let row = name(&format!("chain_{length}"));
        let row = Row::new(&row).limit(1.15).rounds(rounds, samples);
        report.race_best(row, runtime, Graphs::new(chain(device, length)), by_hand(raw, length, Work::Run));
    }
    let row = name("hop");
    let row = Row::new(&row).limit(1.15).rounds(50, 100);
    report.race_best(row, runtime, Graphs::new(hop(device)), by_hand(raw, 1, Work::Hop));

    for (row, kernels, limit, samples) in [("update", 1, 1.2, 100), ("update_100", 100, 1.1, 20)] {
        let row = name(row);
        let row = Row::new(&row).limit(limit).rounds(50, samples);
        report.race_best(row, runtime, Updated::new(device, kernels), by_hand(raw, kernels, Work::Update));
    }

    let deep = |depth| Graphs { depth, ..Graphs::new(chain(device, 1)) };
    for (depth, rounds) in [(10, 50), (1000, 10)] {
        let row = name(&format!("deep_{depth}"));
        let row = Row::new(&row).limit(1.2).rounds(rounds, 3).operations(depth);
        report.race_best(row, runtime, deep(depth), by_hand(raw, 1, Work::Deep(depth)));
        let row = name(&format!("deep_{depth}_each"));
        let row = Row::new(&row).limit(1.2).rounds(rounds, 3).operations(depth);
        report.race_best(row, runtime, deep(depth), by_hand(raw, 1, Work::DeepEach(depth)));
    }
    let row = name("linear");
    let row = Row::new(&row).limit(1.5).rounds(10, 3).operations(1000);
    report.race(row, runtime, deep(1000), Shallow(deep(10)));

    busy_rows(report, prefix, runtime, device);
}

/// The rows under load, which slows down both sides.
fn busy_rows(report: &mut Report, prefix: &str, runtime: &Runtime, device: &Device) {
    type Ours = fn(&Device) -> ExecutableGraph;
    let rows: [(&str, Ours, Work); 2] =
        [("busy_chain_1", |device| chain(device, 1), Work::Run), ("busy_hop", hop, Work::Hop)];
    for (name, ours, work) in rows {
        let bases = [("", &Waiting::BLOCKING[..]), ("_spin", &[Waiting::Spin]), ("_async", &Waiting::ASYNC)];
        for (suffix, waiting) in bases {
            let name = format!("{prefix}/{name}{suffix}");
            if !report.wants(&name) {
                continue;
            }
            // Each has a device of its own: where one blocks, the driver's threads fall asleep, which lets
            // the others wake them sooner.
            let own = || RawDevice::find(&device.info().name, SOURCE, "bump", ELEMENTS);
            let loops = |&waiting| Some(by_hand_with(&own()?, 1, work, &[waiting]));
            let base: Vec<_> = waiting.iter().filter_map(loops).flatten().collect();
            let _load = Load::on_every_core();
            let row = Row::new(&name).limit(1.3).rounds(20, 30);
            report.race_best(row, runtime, Graphs::new(ours(device)), base);
        }
    }
}

fn chain(device: &Device, length: usize) -> ExecutableGraph {
    let x = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
    let mut graph = Graph::new(device);
    for _ in 0..length {
        graph.launch(bump(1, &x), Range::linear(ELEMENTS));
    }
    graph.finalize().expect("a valid graph")
}

fn hop(device: &Device) -> ExecutableGraph {
    let x = device.host_buffer::<u32>(ELEMENTS).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.launch(bump(1, &x), Range::linear(ELEMENTS));
    graph.host_task((write(&x),), async |(mut x,)| x[0] += 1);
    graph.launch(bump(1, &x), Range::linear(ELEMENTS));
    graph.finalize().expect("a valid graph")
}

/// `depth` submissions, then awaited.
struct Graphs {
    exec: ExecutableGraph,
    depth: usize,
}

impl Graphs {
    fn new(exec: ExecutableGraph) -> Self {
        Self { exec, depth: 1 }
    }
}

impl Contender for Graphs {
    async fn once(&mut self) {
        if self.depth == 1 {
            return self.exec.submit().await.expect("a run");
        }
        let submissions: Vec<Submission> = (0..self.depth).map(|_| self.exec.submit()).collect();
        for submission in submissions {
            submission.await.expect("a run");
        }
    }
}

/// As many submissions as at depth 1,000, ten at a time.
struct Shallow(Graphs);

impl Contender for Shallow {
    async fn once(&mut self) {
        for _ in 0..1000 / self.0.depth {
            self.0.once().await;
        }
    }
}

/// What a hand-written loop does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Run,
    Hop,
    Update,
    Deep(usize),
    DeepEach(usize),
}

struct ByHand {
    chain: Chain,
    work: Work,
    runs: u32,
}

/// The loops that the device can do, by name.
fn by_hand(raw: &Arc<RawDevice>, length: usize, work: Work) -> Vec<(String, ByHand)> {
    by_hand_with(raw, length, work, &Waiting::BLOCKING)
}

/// Those of them that wait in one of these ways.
fn by_hand_with(
    raw: &Arc<RawDevice>,
    length: usize,
    work: Work,
    all_waiting: &[Waiting],
) -> Vec<(String, ByHand)> {
    let mut loops = Vec::new();
    for lowering in [Lowering::Enqueues, Lowering::CommandBuffer] {
        // A command-buffer has copied its arguments.
        if (lowering, work) == (Lowering::CommandBuffer, Work::Update) {
            continue;
        }
        for &waiting in all_waiting {
            let chain = Chain::new(raw, length, lowering, waiting);
            loops.extend(
                chain.map(|chain| (format!("{lowering:?}/{waiting:?}"), ByHand { chain, work, runs: 0 })),
            );
        }
    }
    loops
}

impl Contender for ByHand {
    async fn once(&mut self) {
        self.runs += 1;
        match self.work {
            Work::Run => self.chain.run().await,
            Work::Deep(depth) => self.chain.run_deep(depth).await,
            Work::DeepEach(depth) => self.chain.run_deep_each(depth).await,
            Work::Update => {
                self.chain.set_values(self.runs);
                self.chain.run().await;
            }
            Work::Hop => {
                self.chain.run().await;
                let runs = self.runs;
                tokio::spawn(async move { std::hint::black_box(runs) }).await.expect("a task");
                self.chain.run().await;
            }
        }
    }
}

/// An updatable command-buffer of kernels, all of which get another value, through the backend contract.
struct Updated {
    buffer: ValidatedCommandBuffer,
    handles: Vec<CommandHandle>,
    queue: Arc<ValidatedQueue>,
    event: Arc<dyn Event>,
    /// Where the runtime has the device notify.
    end: Option<Arc<End>>,
    runs: u32,
}

/// The end of a run, of which the device notifies.
#[derive(Default)]
struct End {
    is_reached: AtomicBool,
    changed: tokio::sync::Notify,
}

impl Notify for End {
    fn notify(&self, _: u64) {
        self.is_reached.store(true, Ordering::Release);
        self.changed.notify_one();
    }
}

impl End {
    /// Spins for as long as the runtime does, and then has itself woken.
    async fn reached(&self) {
        let start = Instant::now();
        while !self.is_reached.swap(false, Ordering::Acquire) {
            if start.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.changed.notified().await;
            }
        }
    }
}

impl Updated {
    fn new(device: &Device, kernels: usize) -> Self {
        let device = device.hal();
        let buffer = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let params = [
            Param { name: "n".into(), kind: ParamKind::Value { size: 4 } },
            Param { name: "x".into(), kind: buffer },
        ];
        let sources = KernelSources::new().c(SOURCE);
        let desc = KernelDesc::new("bump", &params, &sources);
        let kernel = device.create_kernel(&desc).expect("a kernel");
        let memory = MemoryDesc::new(4 * ELEMENTS, MemoryKind::Device);
        let memory = MemoryView::whole(device.allocate(&memory).expect("a small buffer"));
        let args = vec![Self::value(1), KernelArg::Memory(memory)];
        let launch = Command::Kernel(Arc::new(KernelLaunch::new(kernel, args, Range::linear(ELEMENTS))));
        let desc = CommandBufferDesc::new().updatable(true).in_order(true);
        let mut buffer = device.create_command_buffer(&desc).expect("a command-buffer");
        let append =
            |_| buffer.append(&launch, &[]).expect("a command").handle.expect("an updatable command");
        let handles = (0..kernels).map(append).collect();
        buffer.finalize().expect("a valid command-buffer");
        let queue = QueueDesc::new(QueueOrder::InOrder);
        Self {
            buffer,
            handles,
            queue: device.create_queue(&queue).expect("a queue"),
            event: device.create_event(&EventDesc::new()).expect("an event"),
            end: device.capabilities().notifies.then(Arc::default),
            runs: 0,
        }
    }

    fn value(value: u32) -> KernelArg {
        KernelArg::Value(ValueBytes::from_slice(&value.to_ne_bytes()))
    }
}

impl Contender for Updated {
    async fn once(&mut self) {
        self.runs += 1;
        let update = |&handle| CommandUpdate::new(handle).args([(0, Self::value(self.runs))]);
        let updates: Vec<_> = self.handles.iter().map(update).collect();
        self.buffer.update(&updates).expect("an update");
        let of = |end: &Arc<End>| Notification::new(end.clone(), 0);
        let mut signal = Signal::new(&self.event);
        signal.notification = self.end.as_ref().map(of);
        // SAFETY: nothing else uses the memory, and all of it lives as long as `self`, which waits.
        unsafe { self.buffer.enqueue(&self.queue, WaitList::NONE, signal) }.expect("an enqueue");
        // Waits as the runtime does: Intel's runtime sometimes lets a thread that blocks sleep for 75 us.
        if let Some(end) = &self.end {
            end.reached().await;
        }
        while matches!(self.event.status(), EventStatus::Pending) {
            std::thread::yield_now();
        }
        assert!(matches!(self.event.status(), EventStatus::Complete));
    }
}
