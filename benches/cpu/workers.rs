//! Rows about the host device's workers.
//!
//! | row | ours | base |
//! |---|---|---|
//! | `scaling_N` | `madds` over 2^22 elements, for the oldest processors: how many times as fast N workers are; 14 with 16 | 1 |
//! | `scaling_lanes_N` | the same for this processor: two threads of a core share its vector units | 1 |
//! | `two_kernels_at_once` | two `madds` over 2^20 elements in one graph | one over 2^21 |
//! | `deadline_of_a_long_kernel` | when a kernel of some ten seconds ends, whose deadline is after 50 ms; 1.2 | 50 ms |
//! | `tiny_of_rayon` | a graph of one tiny kernel, awaited | a closure on rayon's pool that wakes the task |
//! | `tiny_apart_of_rayon` | the same, 1 ms after the one before | the same |
//! | `tiny_apart_cpu_of_rayon` | the time on all cores that these take, with the pause | the same |
//! | `tiny_allocations_of_rayon` | allocations of one | the same |
//!
//! The last rows are about rayon's pool as the workers of the device: it allocates for each closure that it
//! is given, and its threads look for work for a while before they sleep.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::sync::Notify;
use wakegraph::backend::host::{self, CpuLevel, HostOptions};
use wakegraph::{Device, Graph, Range};

use crate::kernels;
use crate::support::{Report, Row, Times, counting, cpu};
use crate::turns::{Work, take_turns};

const WORKERS: [usize; 5] = [1, 2, 4, 8, 16];
const NEWEST: Option<CpuLevel> = Some(CpuLevel::X86_64V4);

pub(crate) fn rows(report: &mut Report, runtime: &Runtime) {
    scaling(report, runtime, "scaling", None);
    scaling(report, runtime, "scaling_lanes", NEWEST);
    two_kernels(report, runtime);
    deadline(report, runtime);
    tiny(report, runtime);
}

/// A graph with so many kernels beside each other, on so many workers; 0 workers means one per core.
fn madds(workers: usize, level: Option<CpuLevel>, kernels: usize, elements: usize) -> Work {
    let device = host::open(HostOptions::new().threads(workers).level(level)).expect("a host device");
    let device = Device::from_hal(device);
    let mut graph = Graph::new(&device);
    for _ in 0..kernels {
        let [x, y] = [1.0, 0.0].map(|value| device.buffer_from(&vec![value; elements]).expect("memory"));
        graph.launch(kernels::madds(&x, &y), Range::linear(elements));
    }
    Work::Graph(graph.finalize().expect("a valid graph"))
}

fn scaling(report: &mut Report, runtime: &Runtime, row: &str, level: Option<CpuLevel>) {
    let most = crate::cores();
    let name = |workers| format!("{row}_{workers}");
    let wanted = WORKERS.into_iter().filter(|workers| *workers <= most && report.wants(&name(*workers)));
    let wanted: Vec<_> = wanted.collect();
    if wanted.is_empty() {
        return;
    }
    let mut all: Vec<_> = [1]
        .iter()
        .chain(wanted.iter().filter(|workers| **workers > 1))
        .map(|workers| (name(*workers), madds(*workers, level, 1, 1 << 22)))
        .collect();
    for attempt in 1..=report.attempts() {
        let times = take_turns(runtime, &mut all, report.reduced(70).min(15));
        let speed_up = |workers| times[&name(1)].median() / times[&name(workers)].median();
        let exceeded = |workers| level.is_none() && workers == 16 && speed_up(workers) < 14.0;
        if attempt == report.attempts() || !wanted.iter().any(|workers| exceeded(*workers)) {
            for workers in wanted {
                report.figure(&name(workers), speed_up(workers), 1.0, "x", exceeded(workers));
            }
            return;
        }
    }
}

fn deadline(report: &mut Report, runtime: &Runtime) {
    const NAME: &str = "deadline_of_a_long_kernel";
    const LIMIT: Duration = Duration::from_millis(50);
    if !report.wants(NAME) {
        return;
    }
    let device = Device::open("host:0").expect("a host device");
    let x = device.buffer::<f32>(1 << 20).expect("memory");
    let mut graph = Graph::new(&device);
    graph.launch(kernels::long(40_000 * crate::cores() as u32, &x), Range::linear(x.len()));
    let exec = graph.finalize().expect("a valid graph");
    let mut times: Vec<f64> = (0..5)
        .map(|_| {
            let start = Instant::now();
            runtime.block_on(async {
                exec.prepare().deadline(start + LIMIT).submit().await.expect_err("it is late");
                // The guard waits for the kernel itself.
                let _ = x.to_vec().await;
            });
            start.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    let (ours, base) = (times[2], LIMIT.as_secs_f64() * 1e3);
    report.figure(NAME, ours, base, "ms", ours > 1.2 * base);
}

fn two_kernels(report: &mut Report, runtime: &Runtime) {
    const NAME: &str = "two_kernels_at_once";
    if report.wants(NAME) {
        let mut all =
            [("two".into(), madds(0, NEWEST, 2, 1 << 20)), ("one".into(), madds(0, NEWEST, 1, 1 << 21))];
        let times = take_turns(runtime, &mut all, report.reduced(70).min(15));
        report.compare(Row::new(NAME), &times["two"], &times["one"]);
    }
}

fn tiny(report: &mut Report, runtime: &Runtime) {
    let device = Device::open("host").expect("a host device");
    let x = device.buffer::<u32>(1).expect("memory");
    let mut graph = Graph::new(&device);
    graph.launch(kernels::tiny(&x), Range::linear(1));
    let ours = Work::Graph(graph.finalize().expect("a valid graph"));
    let mut all = [("ours".into(), ours), ("rayon".into(), Work::Spawn(Arc::new(Notify::new())))];
    if report.wants("tiny_of_rayon") {
        let times = take_turns(runtime, &mut all, report.reduced(200));
        report.compare(Row::new("tiny_of_rayon"), &times["ours"], &times["rayon"]);
    }
    let [(_, ours), (_, rayon)] = &mut all;
    if report.wants("tiny_apart") {
        let [ours, rayon] = [ours, rayon].map(|work| runtime.block_on(apart(work, report.reduced(500))));
        report.compare(Row::new("tiny_apart_of_rayon"), &ours.0, &rayon.0);
        report.figure("tiny_apart_cpu_of_rayon", ours.1, rayon.1, "us", false);
    }
    let [(_, ours), (_, rayon)] = &mut all;
    if report.wants("tiny_allocations_of_rayon") {
        let [ours, rayon] = [ours, rayon].map(|work| runtime.block_on(allocations(work)));
        report.figure("tiny_allocations_of_rayon", ours, rayon, "allocations", false);
    }
}

/// Runs 1 ms apart: how long they take, and microseconds of all cores for each, with the pause.
async fn apart(work: &mut Work, runs: usize) -> (Times, f64) {
    let (mut times, before) = (Times::default(), cpu::seconds());
    for _ in 0..runs {
        std::thread::sleep(Duration::from_millis(1));
        let start = Instant::now();
        work.once().await;
        times.add_by_median(&[start.elapsed().as_nanos() as f64]);
    }
    (times, (cpu::seconds() - before) * 1e6 / runs as f64)
}

async fn allocations(work: &mut Work) -> f64 {
    const RUNS: u32 = 10_000;
    work.once().await;
    counting::start();
    for _ in 0..RUNS {
        work.once().await;
    }
    counting::stop().allocations as f64 / f64::from(RUNS)
}
