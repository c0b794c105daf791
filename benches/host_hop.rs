//! What an async host task between two kernels costs, beside the same by hand: a worker pool,
//! oneshots, `tokio::spawn`. And what a busy machine does to it.
//!
//! | row | ours | base | limit |
//! |---|---|---|---|
//! | `hop_*` | a graph: kernel, host task, kernel | hand off, await, spawn a task, await it, hand off, await | 1.5 |
//! | `fan_out_8_*` | a graph: kernel, eight host tasks side by side, kernel | the same with eight spawned tasks | 1.5 |
//! | `busy_chain_1_*` | a graph of one kernel, while another program keeps every core busy | hand off, await | 1.3 |
//! | `busy_hop_*` | `hop` under the same load | as for `hop` | 1.3 |
//!
//! Each in a tokio runtime of the current thread and in one of two workers. Both pools have two threads.

mod support;

use std::hint::black_box;
use std::process::ExitCode;

use support::handoff::WorkerPool;
use support::load::Load;
use support::{Contender, Report, Row};
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::{Device, ExecutableGraph, Graph, Range, write};

const THREADS: usize = 2;
const FAN_OUT: usize = 8;
/// Elements of each host task's part.
const PART: usize = 16;

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| bump_all(x),
    }
}

fn bump_all(x: &mut [u32]) {
    x.iter_mut().for_each(|x| *x = x.wrapping_add(1));
    black_box(x);
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let device = Device::from_hal(host::open(HostOptions::new().threads(THREADS)).expect("a host device"));
    let pool = WorkerPool::start(THREADS);

    for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())] {
        for (row, tasks) in [("hop", 1), ("fan_out_8", FAN_OUT)] {
            let row = format!("{row}_{flavour}");
            let base = ByHand { pool: pool.clone(), parts: vec![vec![0; PART]; tasks] };
            report.race(Row::new(&row).limit(1.5), &runtime, ByGraph(graph(&device, tasks)), base);
        }
    }
    busy(&mut report, &device, &pool);
    report.finish()
}

/// The rows under load, which slows down both sides.
fn busy(report: &mut Report, device: &Device, pool: &WorkerPool) {
    for (flavour, runtime) in [("current", support::current_thread()), ("multi", support::multi_thread())] {
        let (chain_1, hop) = (format!("busy_chain_1_{flavour}"), format!("busy_hop_{flavour}"));
        if !report.wants(&chain_1) && !report.wants(&hop) {
            continue;
        }
        let _load = Load::on_every_core();
        let row = |name| Row::new(name).limit(1.3).rounds(50, 200);
        let base = HandOff { pool: pool.clone(), data: vec![0; PART] };
        report.race(row(&chain_1), &runtime, ByGraph(one_kernel(device)), base);
        let base = ByHand { pool: pool.clone(), parts: vec![vec![0; PART]] };
        report.race(row(&hop), &runtime, ByGraph(graph(device, 1)), base);
    }
}

fn one_kernel(device: &Device) -> ExecutableGraph {
    let data = device.buffer::<u32>(PART).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.launch(bump(&data), Range::linear(PART));
    graph.finalize().expect("a valid graph")
}

fn graph(device: &Device, tasks: usize) -> ExecutableGraph {
    let data = device.host_buffer::<u32>(PART * tasks).expect("a small buffer");
    let mut graph = Graph::new(device);
    graph.launch(bump(&data), Range::linear(data.len()));
    for task in 0..tasks {
        let part = data.slice(task * PART..(task + 1) * PART).expect("a part of the buffer");
        graph.host_task((write(&part),), async |(mut part,)| bump_all(&mut part));
    }
    graph.launch(bump(&data), Range::linear(data.len()));
    graph.finalize().expect("a valid graph")
}

struct ByGraph(ExecutableGraph);

impl Contender for ByGraph {
    async fn once(&mut self) {
        self.0.submit().await.expect("a run");
    }
}

/// The data moves to the worker and back.
struct HandOff {
    pool: WorkerPool,
    data: Vec<u32>,
}

impl Contender for HandOff {
    async fn once(&mut self) {
        let mut data = std::mem::take(&mut self.data);
        let kernel = move || {
            bump_all(&mut data);
            data
        };
        self.data = self.pool.hand_off(kernel).await;
    }
}

/// The parts move from step to step, so nothing is locked.
struct ByHand {
    pool: WorkerPool,
    parts: Vec<Vec<u32>>,
}

impl ByHand {
    async fn kernel(&self, mut parts: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
        let kernel = move || {
            parts.iter_mut().for_each(|part| bump_all(part));
            parts
        };
        self.pool.hand_off(kernel).await
    }
}

impl Contender for ByHand {
    async fn once(&mut self) {
        let mut parts = std::mem::take(&mut self.parts);
        parts = self.kernel(parts).await;
        let tasks: Vec<_> = parts
            .drain(..)
            .map(|mut part| {
                tokio::spawn(async move {
                    bump_all(&mut part);
                    part
                })
            })
            .collect();
        for task in tasks {
            parts.push(task.await.expect("a task"));
        }
        self.parts = self.kernel(parts).await;
    }
}
