//! Graphs that tasks of tokio await again and again: ours beside those of the crate `cuda-async` 0.5, by
//! turns in one process, with the same kernel on the same memory.
//!
//! `scripts/peers.sh build DIR`, then `DIR/bench_peers [--quick] [--check] [ROW]...`
//!
//! | row | each task |
//! |---|---|
//! | `peer_chain_N_runtime` | awaits N kernels in a chain; one task |
//! | `peer_host_hop_runtime` | awaits a kernel, an async host task that does nothing, and a kernel; one task |
//! | `peer_tasks_N_runtime` | awaits one kernel; N tasks, each with a graph of its own |
//! | `..._time` | the same in ns a run, with percentiles, where there is one task |
//! | `..._cores` | cores that the process keeps busy meanwhile |
//!
//! The base is cuda-async, and rows are runs a second: `--check` fails where ours are fewer. `current` is a
//! runtime of one thread, `multi` one of four workers. Every kernel adds to a word, which is compared with
//! the number of runs.
//!
//! cuda-async runs each task's graph on a stream of the task's own: its plain `.await` makes five streams a
//! run. Where there are several tasks, each of them yields after a run, since awaits that end within 20 us do
//! not let others run.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark prints its results")]

#[path = "../support/mod.rs"]
mod support;

mod by_cuda_async;
mod ours;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use support::{Contender, Report, Row, Times, cpu, median};
use tokio::runtime::{Builder, Runtime};
use wakegraph::{Buffer, Device};

const WINDOW: Duration = Duration::from_millis(200);

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let device = match Device::open("cuda:0") {
        Ok(device) => device,
        Err(error) => {
            eprintln!("nothing to measure: {error}");
            return ExitCode::SUCCESS;
        }
    };
    println!("{device:?}");
    let peer = by_cuda_async::Peer::open();
    let four_workers =
        Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a tokio runtime");
    for (flavour, runtime) in [("current", support::current_thread()), ("multi", four_workers)] {
        for shape in &SHAPES {
            row(&mut report, &format!("peer_{}_{flavour}", shape.name), &runtime, shape, &device, &peer);
        }
    }
    report.finish()
}

/// The work of a row's tasks.
struct Shape {
    name: &'static str,
    /// Lengths of chains of kernels, with an async host task between two chains.
    chains: &'static [usize],
    tasks: usize,
}

const SHAPES: [Shape; 7] = [
    Shape { name: "chain_1", chains: &[1], tasks: 1 },
    Shape { name: "chain_10", chains: &[10], tasks: 1 },
    Shape { name: "chain_100", chains: &[100], tasks: 1 },
    Shape { name: "host_hop", chains: &[1, 1], tasks: 1 },
    Shape { name: "tasks_16", chains: &[1], tasks: 16 },
    Shape { name: "tasks_64", chains: &[1], tasks: 64 },
    Shape { name: "tasks_256", chains: &[1], tasks: 256 },
];

fn row(
    report: &mut Report,
    name: &str,
    runtime: &Runtime,
    shape: &Shape,
    device: &Device,
    peer: &by_cuda_async::Peer,
) {
    if !report.wants(name) {
        return;
    }
    let memory: Vec<Buffer<u32>> =
        (0..shape.tasks).map(|_| device.buffer(16).expect("a small buffer")).collect();
    let ours: Vec<_> = memory.iter().map(|x| ours::Task::new(device, shape.chains, x)).collect();
    let base: Vec<_> = memory.iter().map(|x| peer.task(shape.chains, shape.tasks > 1, x)).collect();
    let mut sides = [Side::default(), Side::default()];
    // The first round fills caches.
    for round in 0..=report.reduced(5) {
        sides[0].add(round > 0, again_and_again(runtime, &ours));
        sides[1].add(round > 0, again_and_again(runtime, &base));
    }
    let kernels: usize = shape.chains.iter().sum();
    for (task, x) in memory.iter().enumerate() {
        let runs: usize = sides.iter().map(|side| side.runs[task]).sum();
        let counted = runtime.block_on(x.to_vec()).expect("the words")[0];
        assert_eq!(counted as usize, runs * kernels, "{name}: task {task}");
    }
    let [ours, base] = &sides;
    let [rate, base_rate] = [ours, base].map(|side| median(&side.rates));
    report.figure(name, rate, base_rate, "per_second", rate < base_rate);
    report.figure(&format!("{name}_cores"), median(&ours.cores), median(&base.cores), "cores", false);
    if shape.tasks == 1 {
        report.compare(Row::new(&format!("{name}_time")), &ours.times, &base.times);
    }
}

/// The figures of one contender's rounds.
#[derive(Default)]
struct Side {
    rates: Vec<f64>,
    cores: Vec<f64>,
    times: Times,
    /// Of each task.
    runs: Vec<usize>,
}

impl Side {
    fn add(&mut self, counts: bool, round: Round) {
        self.runs.resize(round.tasks.len(), 0);
        for (runs, task) in self.runs.iter_mut().zip(&round.tasks) {
            *runs += task.runs;
        }
        if counts {
            let runs: usize = round.tasks.iter().map(|task| task.runs).sum();
            self.rates.push(runs as f64 / round.seconds);
            self.cores.push(round.cpu_seconds / round.seconds);
            self.times.add_by_median(&round.tasks[0].nanoseconds);
        }
    }
}

struct Round {
    seconds: f64,
    cpu_seconds: f64,
    tasks: Vec<OfTask>,
}

#[derive(Default)]
struct OfTask {
    runs: usize,
    /// Of each run, if the task is the only one.
    nanoseconds: Vec<f64>,
}

/// Has each contender run in a task of its own until the window is over.
fn again_and_again<C: Contender + Clone>(runtime: &Runtime, contenders: &[C]) -> Round {
    let (is_alone, stop) = (contenders.len() == 1, Arc::new(AtomicBool::new(false)));
    runtime.block_on(async {
        let (cpu, start) = (cpu::seconds(), Instant::now());
        let spawn =
            |contender: &C| tokio::spawn(until(start + WINDOW, stop.clone(), is_alone, contender.clone()));
        let handles: Vec<_> = contenders.iter().map(spawn).collect();
        let mut tasks = Vec::with_capacity(handles.len());
        for handle in handles {
            tasks.push(handle.await.expect("no panic"));
        }
        Round { seconds: start.elapsed().as_secs_f64(), cpu_seconds: cpu::seconds() - cpu, tasks }
    })
}

async fn until(end: Instant, stop: Arc<AtomicBool>, is_alone: bool, mut contender: impl Contender) -> OfTask {
    let mut task = OfTask::default();
    while !stop.load(Relaxed) {
        let start = is_alone.then(Instant::now);
        contender.once().await;
        task.runs += 1;
        task.nanoseconds.extend(start.map(|start| start.elapsed().as_nanos() as f64));
        if task.runs.is_multiple_of(16) && Instant::now() > end {
            stop.store(true, Relaxed);
        }
    }
    task
}
