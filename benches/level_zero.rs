//! What a graph on Level Zero costs, beside the driver calls that one would write by hand.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `chain_1`, `_10`, `_100` | `submit().await` of a graph of that many tiny kernels | hand over a closed list, wait | 1.15 |
//! | `hop` | kernel, async host task, kernel as one graph | run, await a spawned task, run | 1.15 |
//! | `enqueue` | a run of a command-buffer of one kernel, and its status | hand over a list, ask for the event | 1.1 |
//! | `update` | a kernel's new argument into an idle command-buffer | change the list in place, close it | 1.1 |
//! | `allocations` | heap allocations of a run of a command-buffer in the steady state | none | 0 |
//! | `memory_runs` | KiB that 100,000 runs add to the process | the same by hand | 1,024 KiB more |
//! | `memory_cycles` | KiB that 10,000 recordings, runs and drops add | the same by hand | 1,024 KiB more |
//!
//! All rows are measured in both lowerings, the base by the same call of the driver: an append to an in-order
//! immediate list with an event that counts, or an execute of one list that signals its event. The base of
//! the first two is the faster of two loops: one blocks in `zeEventHostSynchronize`, the other spins on it
//! and yields.
//!
//! Without a GPU there are two drivers to run it on (`scripts/level-zero-bench.sh`): the test driver, which
//! computes on the CPU, and Intel's without hardware, which computes nothing, so that the first two are left
//! out.
#![expect(unsafe_code, reason = "declares device code, enqueues by the backend contract")]

#[path = "support/raw_level_zero.rs"]
mod raw_level_zero;
#[allow(clippy::unwrap_used, reason = "a file of the tests")]
#[path = "../tests/spirv/mod.rs"]
mod spirv;
mod support;

use std::process::ExitCode;
use std::sync::Arc;

use raw_level_zero::{Chain, Handover, RawDevice, Waiting};
use support::counting::{self, Counting};
use support::resident::growth;
use support::{Contender, Report, Row};
use tokio::runtime::Runtime;
use wakegraph::backend::level_zero::{self, LevelZeroOptions, Lowering};
use wakegraph::hal::{
    self, Command, CommandBuffer, CommandBufferDesc, CommandHandle, CommandUpdate, Event, EventDesc,
    EventStatus, Kernel, KernelArg, KernelDesc, KernelLaunch, KernelSources, Memory, MemoryDesc, MemoryKind,
    MemoryView, Param, ParamKind, Progress, Queue, QueueDesc, QueueOrder, Signal, ValueBytes, WaitList,
};
use wakegraph::kernel::RawKernel;
use wakegraph::memory::AccessMode;
use wakegraph::{Device, ExecutableGraph, Graph, Range, write};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 16;
/// How names of the test driver's devices begin.
const TEST_DEVICE: &str = "wakegraph test device";

fn main() -> ExitCode {
    let mut report = Report::from_args();
    if let Err(error) = level_zero::open(0, LevelZeroOptions::new()) {
        println!("no Level Zero device: {error}");
        return report.finish();
    }
    let raw = RawDevice::open(&spirv::add(), ELEMENTS);
    for (name, lowering, handover) in
        [("append", Lowering::Append, Handover::Append), ("execute", Lowering::Execute, Handover::Execute)]
    {
        let options = LevelZeroOptions::new().lowering(lowering);
        let mut device = level_zero::open(0, options.clone()).expect("a device");
        println!("{name}: {:?}", device.info());
        if device.info().name.starts_with(TEST_DEVICE) {
            // It computes on threads of its own, which need cores of the host.
            device = level_zero::open(0, options.progress(Progress::HostCores)).expect("a device");
            for (flavour, runtime) in
                [("current", support::current_thread()), ("multi", support::multi_thread())]
            {
                let device = Device::from_hal(device.clone());
                graphs(&mut report, &format!("{name}/{flavour}"), &runtime, &device, &raw, handover);
            }
        }
        let bench = Bench { prefix: name, device, raw: raw.clone(), handover };
        bench.rows(&mut report);
    }
    report.finish()
}

/// The rows of graphs, in one runtime.
fn graphs(
    report: &mut Report,
    prefix: &str,
    runtime: &Runtime,
    device: &Device,
    raw: &Arc<RawDevice>,
    handover: Handover,
) {
    let by_hand = |length, hops| {
        [Waiting::Event, Waiting::Spin].map(|waiting| {
            let chain = Chain::new(raw, length, false, handover, waiting);
            (format!("{waiting:?}"), ByHand { chain, hops })
        })
    };
    for (length, rounds, samples) in [(1, 50, 100), (10, 50, 30), (100, 30, 10)] {
        let name = format!("{prefix}/chain_{length}");
        let row = Row::new(&name).limit(1.15).rounds(rounds, samples);
        report.race_best(row, runtime, Submit(chain(device, length)), by_hand(length, false).into());
    }
    let name = format!("{prefix}/hop");
    let row = Row::new(&name).limit(1.15).rounds(50, 50);
    report.race_best(row, runtime, Submit(hop(device)), by_hand(1, true).into());
}

fn kernel() -> Arc<RawKernel> {
    let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x");
    // SAFETY: a work-item changes the element with its index, and the range is bounded by the slice's length.
    unsafe { kernel.with_sources(KernelSources::new().spirv(spirv::add())) }.build()
}

fn chain(device: &Device, length: usize) -> ExecutableGraph {
    let (kernel, x) = (kernel(), device.buffer::<u32>(ELEMENTS).expect("a small buffer"));
    let mut graph = Graph::new(device);
    for _ in 0..length {
        graph.launch(kernel.call().value(1u32).memory(&x), Range::linear(ELEMENTS));
    }
    graph.finalize().expect("a valid graph")
}

fn hop(device: &Device) -> ExecutableGraph {
    let (kernel, x) = (kernel(), device.host_buffer::<u32>(ELEMENTS).expect("a small buffer"));
    let mut graph = Graph::new(device);
    graph.launch(kernel.call().value(1u32).memory(&x), Range::linear(ELEMENTS));
    graph.host_task((write(&x),), async |(mut x,)| x[0] += 1);
    graph.launch(kernel.call().value(1u32).memory(&x), Range::linear(ELEMENTS));
    graph.finalize().expect("a valid graph")
}

struct Submit(ExecutableGraph);

impl Contender for Submit {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}

struct ByHand {
    chain: Chain,
    /// Whether it awaits a task between two runs.
    hops: bool,
}

impl Contender for ByHand {
    async fn once(&mut self) {
        self.chain.run();
        if self.hops {
            tokio::spawn(async { std::hint::black_box(()) }).await.expect("a task");
            self.chain.run();
        }
    }
}

/// The rows of the backend contract, in one lowering.
struct Bench {
    prefix: &'static str,
    device: Arc<dyn hal::Device>,
    raw: Arc<RawDevice>,
    handover: Handover,
}

impl Bench {
    fn rows(&self, report: &mut Report) {
        let runtime = support::current_thread();
        let name = |row: &str| format!("{}/{row}", self.prefix);
        let by_hand = |is_mutable| Chain::new(&self.raw, 1, is_mutable, self.handover, Waiting::Spin);
        let row = name("enqueue");
        let row = Row::new(&row).limit(1.1).rounds(100, 50).calls(10);
        report.race(row, &runtime, Enqueue(self.runs(false)), RawEnqueue(by_hand(false)));
        let row = name("update");
        let row = Row::new(&row).limit(1.1).rounds(100, 50).calls(10);
        report.race(row, &runtime, Change(self.runs(true)), RawChange { chain: by_hand(true), value: 0 });

        let row = name("allocations");
        if report.wants(&row) {
            let mut runs = self.runs(false);
            (0..100).for_each(|_| runs.run());
            counting::start();
            (0..1000).for_each(|_| runs.run());
            let count = counting::stop();
            report.figure(&row, count.allocations as f64 / 1000.0, 0.0, "allocations", count.allocations > 0);
        }
        let row = name("memory_runs");
        if report.wants(&row) {
            let count = report.reduced(100_000);
            let (mut chain, mut runs) = (by_hand(false), self.runs(false));
            let base = growth(count, || chain.run());
            let ours = growth(count, || runs.run());
            report.figure(&row, ours, base, "KiB", ours > base + 1024.0);
        }
        let row = name("memory_cycles");
        if report.wants(&row) {
            let count = report.reduced(10_000);
            let (mut chain, mut runs) = (by_hand(false), self.runs(false));
            let base = growth(count, || {
                chain.record(false);
                chain.run();
            });
            let ours = growth(count, || {
                runs.record();
                runs.run();
            });
            report.figure(&row, ours, base, "KiB", ours > base + 1024.0);
        }
    }

    fn runs(&self, updatable: bool) -> Runs {
        let buffer = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let value = ParamKind::Value { size: 4 };
        let params = [Param { name: "n".into(), kind: value }, Param { name: "x".into(), kind: buffer }];
        let sources = KernelSources::new().spirv(spirv::add());
        let device = &self.device;
        let kernel = device.create_kernel(&KernelDesc::new("add", &params, &sources)).expect("a kernel");
        let memory =
            device.allocate(&MemoryDesc::new(4 * ELEMENTS, MemoryKind::Device)).expect("a small buffer");
        let (buffer, handle) = record(&**device, &kernel, &memory, updatable);
        Runs {
            buffer,
            handle,
            queue: device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).expect("a queue"),
            event: device.create_event(&EventDesc::new()).expect("an event"),
            device: device.clone(),
            kernel,
            memory,
            value: 0,
        }
    }
}

/// A command-buffer of one kernel, through the backend contract.
struct Runs {
    buffer: Box<dyn CommandBuffer>,
    handle: Option<CommandHandle>,
    queue: Arc<dyn Queue>,
    event: Arc<dyn Event>,
    device: Arc<dyn hal::Device>,
    kernel: Arc<dyn Kernel>,
    memory: Arc<dyn Memory>,
    value: u32,
}

fn record(
    device: &dyn hal::Device,
    kernel: &Arc<dyn Kernel>,
    memory: &Arc<dyn Memory>,
    updatable: bool,
) -> (Box<dyn CommandBuffer>, Option<CommandHandle>) {
    let desc = CommandBufferDesc::new().updatable(updatable).in_order(true);
    let mut buffer = device.create_command_buffer(&desc).expect("a command-buffer");
    let args = vec![value(1), KernelArg::Memory(MemoryView::whole(memory.clone()))];
    let launch = KernelLaunch::new(kernel.clone(), args, Range::linear(ELEMENTS));
    let appended = buffer.append(&Command::Kernel(Arc::new(launch)), &[]).expect("a command");
    buffer.finalize().expect("a valid command-buffer");
    (buffer, appended.handle)
}

fn value(value: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&value.to_ne_bytes()))
}

impl Runs {
    /// Hands it over and waits for it.
    fn run(&mut self) {
        // SAFETY: nothing else uses the memory, and all of it lives as long as `self`, which waits.
        unsafe { self.buffer.enqueue(&*self.queue, WaitList::NONE, Signal::new(&self.event)) }
            .expect("an enqueue");
        loop {
            match self.event.status() {
                EventStatus::Complete => return,
                EventStatus::Failed(error) => panic!("{error}"),
                _ => std::thread::yield_now(),
            }
        }
    }

    /// Drops the command-buffer, and records it anew.
    fn record(&mut self) {
        (self.buffer, self.handle) = record(&*self.device, &self.kernel, &self.memory, false);
    }
}

struct Enqueue(Runs);

impl Contender for Enqueue {
    async fn once(&mut self) {
        self.0.run();
    }
}

struct RawEnqueue(Chain);

impl Contender for RawEnqueue {
    async fn once(&mut self) {
        self.0.run();
    }
}

struct Change(Runs);

impl Contender for Change {
    async fn once(&mut self) {
        self.0.value += 1;
        let mut update = CommandUpdate::new(self.0.handle.expect("an updatable command"));
        update.args.push((0, value(self.0.value)));
        self.0.buffer.update(&[update]).expect("an update");
    }
}

struct RawChange {
    chain: Chain,
    value: u32,
}

impl Contender for RawChange {
    async fn once(&mut self) {
        self.value += 1;
        self.chain.set_value(self.value);
    }
}
