//! What it costs to wait for a kernel of 10 ms: time and CPU.

use std::time::Instant;

use wakegraph::{Device, ExecutableGraph, Graph, Range, WakePolicy};

use crate::raw::{Raw, RawGraph};
use crate::support::{self, Report, cpu};
use crate::{busy, memory_of};

const NANOSECONDS: u64 = 10_000_000;
const QUEUES: usize = 64;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    for (name, policy, core) in
        [("balanced", WakePolicy::Balanced, 3.0), ("efficient", WakePolicy::Efficient, 1.0)]
    {
        device.set_wake_policy(policy);
        let base = [raw.busy(NANOSECONDS)];
        let ours = vec![exec(device)];
        // Several rounds, so that the prediction has something to go by; the first are not counted.
        let one = measure(report.reduced(40), || spin(&base), || runtime.block_on(all(&ours)));
        print(report, &format!("wait_10ms_{name}"), &one, Limits { added: Some(30.0), time: None, core });
        let base: Vec<_> = (0..QUEUES).map(|_| raw.busy(NANOSECONDS)).collect();
        let ours: Vec<_> = (0..QUEUES).map(|_| exec(device)).collect();
        let many = measure(report.reduced(30), || spin(&base), || runtime.block_on(all(&ours)));
        let limits =
            Limits { added: None, time: Some(10_600.0), core: if name == "balanced" { 5.0 } else { 1.0 } };
        print(report, &format!("wait_64_{name}"), &many, limits);
    }
    device.set_wake_policy(WakePolicy::default());
}

fn exec(device: &Device) -> ExecutableGraph {
    let x = memory_of(device);
    let mut graph = Graph::new(device);
    graph.launch(busy(NANOSECONDS, &x), Range::linear(1));
    graph.finalize().expect("a valid graph")
}

/// Submits all, each from a task of its own, as a service would.
async fn all(execs: &[ExecutableGraph]) {
    let tasks: Vec<_> = execs
        .iter()
        .map(|exec| {
            let exec = exec.clone();
            tokio::spawn(async move { exec.submit().await.expect("a run") })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

fn spin(graphs: &[RawGraph]) {
    graphs[0].bind();
    for graph in graphs {
        graph.launch();
        graph.record();
    }
    for graph in graphs {
        while !graph.is_complete() {
            std::hint::spin_loop();
        }
    }
}

/// Microseconds and percent of a core, each of ours and of the base.
struct Measured {
    time: [f64; 2],
    core: [f64; 2],
}

fn measure(rounds: usize, mut base: impl FnMut(), mut ours: impl FnMut()) -> Measured {
    let (mut times, mut cores) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for round in 0..rounds + 3 {
        for side in 0..2 {
            let (cpu, start) = (cpu::seconds(), Instant::now());
            if side == 0 {
                ours()
            } else {
                base()
            }
            let wall = start.elapsed().as_secs_f64();
            if round >= 3 {
                times[side].push(wall * 1e6);
                cores[side].push((cpu::seconds() - cpu) / wall * 100.0);
            }
        }
    }
    Measured {
        time: times.each_ref().map(|times| support::median(times)),
        core: cores.each_ref().map(|values| mean(values)),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

struct Limits {
    /// Microseconds more than the base.
    added: Option<f64>,
    /// Microseconds.
    time: Option<f64>,
    /// Percent of a core.
    core: f64,
}

fn print(report: &mut Report, name: &str, measured: &Measured, limits: Limits) {
    let ([ours, base], [core, base_core]) = (measured.time, measured.core);
    let late =
        limits.added.is_some_and(|added| ours > base + added) || limits.time.is_some_and(|time| ours > time);
    if report.wants(name) {
        report.figure(name, ours, base, "us", late);
        report.figure(&format!("{name}_core"), core, base_core, "percent", core > limits.core);
    }
}
