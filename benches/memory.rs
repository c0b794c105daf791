//! What things cost in memory, and what copies and fills cost in time.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `in_flight_bytes` | heap bytes of one of 10,000 submissions in flight | of one of 10,000 hand-offs | 400 bytes |
//! | `growth_bytes` | heap bytes more after a million submissions than after the first ten thousand | of hand-offs | 16 KiB |
//! | `executable_bytes` | heap bytes of an executable of one kernel | of a boxed closure of its arguments | 3,072 bytes |
//! | `executable_run_bytes` | of one that has run, which keeps that run for the next submission | likewise | 3,328 bytes |
//! | `node_bytes` | heap bytes a node of an executable of 10,000 kernels | of a boxed closure of its arguments | 1,024 bytes |
//! | `copy_64m`, `fill_64m` | a graph that copies or fills 64 MiB | `copy_from_slice`, `slice::fill` | 1.2 |
//! | `rect` | a graph that copies 4,096 rows of 4 KiB out of rows of 8 KiB | the same row by row | 1.2 |
//!
//! `--check` fails when a limit is exceeded.

mod support;

use std::future::Future;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use support::barrier::Barrier;
use support::counting::{self, Counting};
use support::handoff::WorkerPool;
use support::{Contender, Report, Row};
use tokio::runtime::Runtime;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{Device, ExecutableGraph, Graph, Range, Submission};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const THREADS: usize = 2;
const IN_FLIGHT: usize = 10_000;
const NODES: usize = 10_000;
const EXECUTABLES: usize = 100;
const SUBMISSIONS: usize = 1_000_000;
/// `u32`s in 64 MiB.
const LARGE: usize = 16 << 20;
const ROWS: usize = 4096;
/// `u32`s in a row that is copied; as many follow that are not.
const ROW: usize = 1024;

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| x.iter_mut().for_each(|x| *x = x.wrapping_add(1)),
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let runtime = support::current_thread();
    let device = Device::from_hal(host::open(HostOptions::new().threads(THREADS)).expect("a host device"));
    let pool = WorkerPool::start(THREADS);

    in_flight(&mut report, &runtime, &device, &pool);
    growth(&mut report, &runtime, &device, &pool);
    executables(&mut report, &runtime, &device);
    nodes(&mut report, &device);
    bandwidth(&mut report, &runtime, &device);
    report.finish()
}

fn in_flight(report: &mut Report, runtime: &Runtime, device: &Device, pool: &WorkerPool) {
    if !report.wants("in_flight_bytes") {
        return;
    }
    let barrier = Barrier::default();
    let exec = barrier.executable(device);

    let ours = runtime.block_on(async {
        let mut submissions: Vec<Submission> = Vec::with_capacity(IN_FLIGHT);
        counting::start();
        submissions.extend((0..IN_FLIGHT).map(|_| exec.submit()));
        let bytes = counting::stop().bytes;
        barrier.open();
        for submission in submissions {
            submission.await.expect("a run");
        }
        bytes
    });
    let barrier = Barrier::default();
    let base = runtime.block_on(async {
        let mut hand_offs = Vec::with_capacity(IN_FLIGHT);
        counting::start();
        hand_offs.extend((0..IN_FLIGHT).map(|_| {
            let waits = barrier.clone();
            pool.hand_off(move || waits.pass())
        }));
        let bytes = counting::stop().bytes;
        barrier.open();
        for hand_off in hand_offs {
            hand_off.await;
        }
        bytes
    });
    let (ours, base) = (ours as f64 / IN_FLIGHT as f64, base as f64 / IN_FLIGHT as f64);
    report.figure("in_flight_bytes", ours, base, "bytes", ours > 400.0);
}

fn growth(report: &mut Report, runtime: &Runtime, device: &Device, pool: &WorkerPool) {
    if !report.wants("growth_bytes") {
        return;
    }
    let count = report.reduced(SUBMISSIONS);
    let data = device.buffer::<u32>(16).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.launch(bump(&data), Range::linear(16));
    let exec = graph.finalize().expect("a valid graph");
    let ours = runtime.block_on(grown(count, || async { exec.submit().await.expect("a run") }));
    let base = runtime.block_on(grown(count, || pool.hand_off(|| black_box(()))));
    report.figure("growth_bytes", ours, base, "bytes", ours > 16_384.0);
}

async fn grown<F: Future<Output = ()>>(count: usize, mut once: impl FnMut() -> F) -> f64 {
    for _ in 0..10_000 {
        once().await;
    }
    counting::start();
    for _ in 0..count {
        once().await;
    }
    counting::stop().bytes as f64
}

fn executables(report: &mut Report, runtime: &Runtime, device: &Device) {
    let (finalized, run) = ("executable_bytes", "executable_run_bytes");
    if !report.wants(finalized) && !report.wants(run) {
        return;
    }
    let graph = || {
        let mut graph = Graph::new(device);
        let data = device.buffer::<u32>(16).expect("a small buffer");
        graph.launch(bump(&data), Range::linear(16));
        graph
    };
    let graphs: Vec<Graph> = (0..EXECUTABLES).map(|_| graph()).collect();
    let mut execs = Vec::with_capacity(EXECUTABLES);
    counting::start();
    execs.extend(graphs.iter().map(|graph| graph.finalize().expect("a valid graph")));
    let bytes = counting::stop().bytes as f64 / EXECUTABLES as f64;
    let base = closure_bytes(EXECUTABLES);
    if report.wants(finalized) {
        report.figure(finalized, bytes, base, "bytes", bytes > 3072.0);
    }
    counting::start();
    runtime.block_on(async {
        for exec in &execs {
            exec.submit().await.expect("a run");
        }
    });
    let bytes = bytes + counting::stop().bytes as f64 / EXECUTABLES as f64;
    if report.wants(run) {
        report.figure(run, bytes, base, "bytes", bytes > 3328.0);
    }
}

fn nodes(report: &mut Report, device: &Device) {
    if !report.wants("node_bytes") {
        return;
    }
    let data = device.buffer::<u32>(16).expect("a small buffer");
    counting::start();
    let exec = {
        let mut graph = Graph::new(device);
        for _ in 0..NODES {
            graph.launch(bump(&data), Range::linear(16));
        }
        graph.finalize().expect("a valid graph")
    };
    let ours = counting::stop().bytes as f64 / NODES as f64;
    drop(exec);

    report.figure("node_bytes", ours, closure_bytes(NODES), "bytes", ours > 1024.0);
}

/// Heap bytes of one of so many boxed closures of a kernel's arguments.
fn closure_bytes(count: usize) -> f64 {
    let data = Arc::new(Mutex::new(vec![0u32; 16]));
    counting::start();
    let closures: Vec<Box<dyn Fn() + Send>> = (0..count)
        .map(|_| {
            let (data, range) = (data.clone(), Range::linear(16));
            Box::new(move || _ = black_box((&data, &range))) as Box<dyn Fn() + Send>
        })
        .collect();
    let bytes = counting::stop().bytes as f64 / count as f64;
    drop(closures);
    bytes
}

fn bandwidth(report: &mut Report, runtime: &Runtime, device: &Device) {
    let row = |name| Row::new(name).limit(1.2).rounds(21, 3);
    let buffer = |elements: usize| device.buffer_from(&vec![1u32; elements]).expect("memory");
    let finalized = |graph: Graph| ByGraph(graph.finalize().expect("a valid graph"));
    if report.wants("copy_64m") {
        let mut graph = Graph::new(device);
        graph.copy(buffer(LARGE), buffer(LARGE));
        let (from, mut to) = (vec![1u32; LARGE], vec![2u32; LARGE]);
        let base = ByHand(move || black_box(&mut to[..]).copy_from_slice(black_box(&from)));
        report.race(row("copy_64m"), runtime, finalized(graph), base);
    }
    if report.wants("fill_64m") {
        let mut graph = Graph::new(device);
        graph.fill(&buffer(LARGE), 0x0102_0304u32);
        let mut to = vec![1u32; LARGE];
        let base = ByHand(move || black_box(&mut to[..]).fill(black_box(0x0102_0304)));
        report.race(row("fill_64m"), runtime, finalized(graph), base);
    }
    if report.wants("rect") {
        let mut graph = Graph::new(device);
        graph.copy_rect(
            buffer(2 * ROWS * ROW),
            buffer(ROWS * ROW),
            RectCopy::new([ROW, ROWS], Layout::rows(2 * ROW), Layout::rows(ROW)),
        );
        let (from, mut to) = (vec![1u32; 2 * ROWS * ROW], vec![2u32; ROWS * ROW]);
        let base = ByHand(move || {
            let rows = black_box(&from[..]).chunks_exact(2 * ROW);
            for (to, from) in black_box(&mut to[..]).chunks_exact_mut(ROW).zip(rows) {
                to.copy_from_slice(&from[..ROW]);
            }
        });
        report.race(row("rect"), runtime, finalized(graph), base);
    }
}

struct ByGraph(ExecutableGraph);

impl Contender for ByGraph {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}

struct ByHand<F>(F);

impl<F: FnMut() + Send + 'static> Contender for ByHand<F> {
    async fn once(&mut self) {
        (self.0)();
    }
}
