//! What a graph on HIP costs, beside the driver calls that one would write by hand.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `chain_1`, `_10`, `_100` | CPU time of `submit().await` of a graph of that many tiny kernels | launch an instantiated graph, record an event, query it until it is complete | 1.1 |
//! | `enqueue` | time of a run of a command-buffer of one kernel | the same by hand | 1.1 |
//! | `update` | CPU time of an update of one kernel's argument, and a run | set the node's parameters, and the same | 1.1 |
//! | `allocations` | heap allocations of ours, of a run in the steady state | none | 0 |
//! | `memory_runs` | KiB that 100,000 submissions add to the process | the same by hand | 2,048 KiB more |
//! | `memory_cycles` | KiB that 10,000 finalizes, submissions and drops add | the same by hand | 2,048 KiB more |
//!
//! CPU time is that of the process, so that of a stand-in for the GPU is part of it, on both sides. The base
//! yields between two queries.
//!
//! Without a GPU, `scripts/hip-bench.sh` runs it on AMD's library over the HSA runtime of
//! `crates/wakegraph-hip/tests/hsa_runtime`.
#![expect(unsafe_code, reason = "declares device code, enqueues by the backend contract")]

#[allow(
    dead_code,
    unsafe_code,
    clippy::unwrap_used,
    clippy::too_many_arguments,
    reason = "a file of the tests"
)]
#[path = "../crates/wakegraph-hip/tests/hip_raw/api.rs"]
mod api;
#[allow(dead_code, clippy::unwrap_used, reason = "a file of the tests")]
#[path = "../crates/wakegraph-hip/tests/hip_raw/device.rs"]
mod device;
mod support;

use std::process::ExitCode;
use std::sync::Arc;

use api::KernelNode;
use device::{by, kernel, ok};
use support::counting::{self, Counting};
use support::resident::growth;
use support::{Contender, Report, Row, cpu, median};
use tokio::runtime::Runtime;
use wakegraph::hal::{
    CommandBuffer, CommandBufferDesc, CommandHandle, CommandUpdate, Event, EventDesc, EventStatus, Kernel,
    KernelArg, KernelDesc, KernelLaunch, KernelSources, Memory, MemoryDesc, MemoryKind, MemoryView, Param,
    ParamKind, Queue, QueueDesc, QueueOrder, Signal, ValueBytes, WaitList,
};
use wakegraph::kernel::RawKernel;
use wakegraph::memory::AccessMode;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range, backend, hal};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 16;
const SOURCE: &str = "extern \"C\" __global__ void add(unsigned n, unsigned *x) { x[threadIdx.x] += n; }";
/// How many times as much as the base ours may take.
const LIMIT: f64 = 1.1;
/// KiB that ours may grow by, beyond the base.
const MORE_MEMORY: f64 = 2048.0;

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let hal = match backend::open("hip:0") {
        Ok(hal) => hal,
        Err(error) => {
            println!("no HIP device: {error}");
            return report.finish();
        }
    };
    println!("{:?}", hal.info());
    let raw: &'static device::Device = Box::leak(Box::new(device::Device::open()));
    let runtime = support::multi_thread();
    let device = Device::from_hal(hal.clone());
    for (length, rounds, samples) in [(1, 40, 100), (10, 40, 50), (100, 20, 20)] {
        let name = format!("chain_{length}");
        let (graph, base) = (Submit::new(&device, length), RawChain::new(raw, length));
        race_cpu(&mut report, &name, &runtime, (rounds, samples), graph, base);
    }
    let row = Row::new("enqueue").limit(LIMIT).rounds(100, 50);
    report.race(row, &runtime, Enqueue(Runs::new(&hal, false)), RawChain::new(raw, 1));
    let (ours, base) = (Change(Runs::new(&hal, true)), RawChange(RawChain::new(raw, 1)));
    race_cpu(&mut report, "update", &runtime, (40, 100), ours, base);
    allocations(&mut report, &hal);
    memory(&mut report, &runtime, &device, raw);
    report.finish()
}

/// Rounds of both in turn, by the CPU time of the process.
fn race_cpu(
    report: &mut Report,
    name: &str,
    runtime: &Runtime,
    (rounds, samples): (usize, usize),
    mut ours: impl Contender,
    mut base: impl Contender,
) {
    if !report.wants(name) {
        return;
    }
    let rounds = report.reduced(rounds);
    let race = async move {
        let mut times = (Vec::new(), Vec::new());
        for counts in (0..rounds + 2).map(|round| round >= 2) {
            let (own, other) = (round(&mut ours, samples).await, round(&mut base, samples).await);
            if counts {
                times.0.push(own);
                times.1.push(other);
            }
        }
        times
    };
    let (ours, base) = runtime.block_on(runtime.spawn(race)).expect("no panic");
    let (ours, base) = (median(&ours), median(&base));
    report.figure(name, ours, base, "us CPU", ours > LIMIT * base);
}

/// Microseconds of CPU time.
async fn round(contender: &mut impl Contender, samples: usize) -> f64 {
    let start = cpu::seconds();
    for _ in 0..samples {
        contender.once().await;
    }
    (cpu::seconds() - start) * 1e6 / samples as f64
}

/// Of our own: the libraries of the vendor have an allocator of theirs.
fn allocations(report: &mut Report, hal: &Arc<dyn hal::Device>) {
    if report.wants("allocations") {
        let mut runs = Runs::new(hal, false);
        (0..100).for_each(|_| runs.run());
        counting::start();
        (0..1000).for_each(|_| runs.run());
        let count = counting::stop();
        let each = count.allocations as f64 / 1000.0;
        report.figure("allocations", each, 0.0, "allocations", count.allocations > 0);
    }
}

fn memory(report: &mut Report, runtime: &Runtime, device: &Device, raw: &'static device::Device) {
    if report.wants("memory_runs") {
        let (count, mut chain, submit) =
            (report.reduced(100_000), RawChain::new(raw, 1), Submit::new(device, 1));
        let base = growth(count, || chain.run());
        let ours = growth(count, || runtime.block_on(submit.exec.submit()).expect("a run"));
        report.figure("memory_runs", ours, base, "KiB", ours > base + MORE_MEMORY);
    }
    if report.wants("memory_cycles") {
        let (count, mut chain, mut submit) =
            (report.reduced(10_000), RawChain::new(raw, 1), Submit::new(device, 1));
        let base = growth(count, || {
            chain.record();
            chain.run();
        });
        let ours = growth(count, || {
            submit.exec = submit.finalize();
            runtime.block_on(submit.exec.submit()).expect("a run");
        });
        report.figure("memory_cycles", ours, base, "KiB", ours > base + MORE_MEMORY);
    }
}

/// A chain of kernels as a graph.
struct Submit {
    device: Device,
    kernel: Arc<RawKernel>,
    x: Buffer<u32>,
    length: usize,
    exec: ExecutableGraph,
}

impl Submit {
    fn new(device: &Device, length: usize) -> Self {
        let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x");
        // SAFETY: a work-item changes the element with its index, and the range is as long as the slice.
        let kernel = unsafe { kernel.with_sources(KernelSources::new().hip_c(SOURCE)) }.build();
        let x = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
        let exec = finalize(device, &kernel, &x, length);
        Self { device: device.clone(), kernel, x, length, exec }
    }

    fn finalize(&self) -> ExecutableGraph {
        finalize(&self.device, &self.kernel, &self.x, self.length)
    }
}

fn finalize(device: &Device, kernel: &Arc<RawKernel>, x: &Buffer<u32>, length: usize) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    for _ in 0..length {
        graph.launch(kernel.call().value(1_u32).memory(x), Range::linear(ELEMENTS).local([ELEMENTS]));
    }
    graph.finalize().expect("a valid graph")
}

impl Contender for Submit {
    async fn once(&mut self) {
        self.exec.submit().await.expect("a run");
    }
}

/// The same by hand: nodes in one path, on one stream.
struct RawChain {
    raw: &'static device::Device,
    function: usize,
    memory: usize,
    length: usize,
    stream: usize,
    event: usize,
    graph: usize,
    instance: usize,
    node: usize,
}

impl RawChain {
    fn new(raw: &'static device::Device, length: usize) -> Self {
        let function = raw.function(raw.module(SOURCE), "add");
        let (memory, stream) = (raw.memory(4 * ELEMENTS), raw.stream());
        let event = {
            const DISABLE_TIMING: u32 = 2;
            let mut event = 0;
            ok!(raw.hip.hipEventCreateWithFlags(&mut event, DISABLE_TIMING));
            event
        };
        let mut chain = Self { raw, function, memory, length, stream, event, graph: 0, instance: 0, node: 0 };
        chain.record();
        chain
    }

    /// The node's parameters with this value, for a call that reads them.
    fn with_params<R>(&self, n: u32, use_it: impl FnOnce(&KernelNode) -> R) -> R {
        let arguments = [by(&n), by(&self.memory)];
        use_it(&kernel(self.function, [1; 3], [ELEMENTS as u32, 1, 1], &arguments))
    }

    /// Makes graph and instance anew.
    fn record(&mut self) {
        if self.graph != 0 {
            ok!(self.raw.hip.hipGraphExecDestroy(self.instance));
            ok!(self.raw.hip.hipGraphDestroy(self.graph));
        }
        self.graph = self.raw.graph();
        let mut after = Vec::new();
        for _ in 0..self.length {
            self.node = self.with_params(1, |params| self.raw.kernel_node(self.graph, &after, params));
            after = vec![self.node];
        }
        self.instance = self.raw.instance(self.graph);
        ok!(self.raw.hip.hipGraphUpload(self.instance, self.stream));
    }

    fn run(&mut self) {
        ok!(self.raw.hip.hipGraphLaunch(self.instance, self.stream));
        ok!(self.raw.hip.hipEventRecord(self.event, self.stream));
        self.raw.wait(self.event);
    }
}

impl Contender for RawChain {
    async fn once(&mut self) {
        self.run();
    }
}

struct RawChange(RawChain);

impl Contender for RawChange {
    async fn once(&mut self) {
        let chain = &mut self.0;
        chain.with_params(2, |params| {
            ok!(chain.raw.hip.hipGraphExecKernelNodeSetParams(chain.instance, chain.node, params));
        });
        chain.run();
    }
}

/// A command-buffer of one kernel, through the backend contract.
struct Runs {
    buffer: Box<dyn CommandBuffer>,
    handle: Option<CommandHandle>,
    queue: Arc<dyn Queue>,
    event: Arc<dyn Event>,
    _memory: Arc<dyn Memory>,
}

impl Runs {
    fn new(device: &Arc<dyn hal::Device>, updatable: bool) -> Self {
        let buffer = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
        let number = ParamKind::Value { size: 4 };
        let params = [Param { name: "n".into(), kind: number }, Param { name: "x".into(), kind: buffer }];
        let sources = KernelSources::new().hip_c(SOURCE);
        let kernel = device.create_kernel(&KernelDesc::new("add", &params, &sources)).expect("a kernel");
        let memory =
            device.allocate(&MemoryDesc::new(4 * ELEMENTS, MemoryKind::Device)).expect("a small buffer");
        let (buffer, handle) = record(&**device, &kernel, &memory, updatable);
        Self {
            buffer,
            handle,
            queue: device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).expect("a queue"),
            event: device.create_event(&EventDesc::new()).expect("an event"),
            _memory: memory,
        }
    }

    /// Enqueues it and waits for it.
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
    let range = Range::linear(ELEMENTS).local([ELEMENTS]);
    let launch = KernelLaunch::new(kernel.clone(), args, range);
    let appended = buffer.append(&hal::Command::Kernel(Arc::new(launch)), &[]).expect("a command");
    buffer.finalize().expect("a valid command-buffer");
    (buffer, appended.handle)
}

fn value(value: u32) -> KernelArg {
    KernelArg::Value(ValueBytes::from_slice(&value.to_ne_bytes()))
}

struct Enqueue(Runs);

impl Contender for Enqueue {
    async fn once(&mut self) {
        self.0.run();
    }
}

struct Change(Runs);

impl Contender for Change {
    async fn once(&mut self) {
        let mut update = CommandUpdate::new(self.0.handle.expect("an updatable command"));
        update.args.push((0, value(2)));
        self.0.buffer.update(&[update]).expect("an update");
        self.0.run();
    }
}
