//! What it costs to wait for a kernel of 10 ms, time and CPU, and for many shorter ones.

use std::time::Instant;

use tokio::runtime::Runtime;
use wakegraph::{Device, ExecutableGraph, Graph, Range, WakePolicy};

use crate::by_hand::ByHand;
use crate::raw::{Raw, RawGraph};
use crate::support::{self, Contender, Report, Row, cpu};
use crate::{busy, memory_of};

const NANOSECONDS: u64 = 10_000_000;
const QUEUES: usize = 64;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    let policies =
        [("balanced", WakePolicy::Balanced, 3.0, 5.0), ("efficient", WakePolicy::Efficient, 1.0, 1.0)];
    for reactor in ["", "_task"] {
        if reactor == "_task" {
            device.run_reactor_on(runtime.handle()).expect("a runtime with timers");
        }
        for (name, policy, one, many) in policies {
            device.set_wake_policy(policy);
            // The task's timer has milliseconds.
            let is_precise = reactor.is_empty();
            let added = (is_precise && policy == WakePolicy::Balanced).then_some(100.0);
            let limits = Limits { added, time: None, core: one };
            row(report, &format!("wait_10ms_{name}{reactor}"), device, raw, &runtime, 1, &limits);
            let limits = Limits { added: None, time: is_precise.then_some(10_600.0), core: many };
            row(report, &format!("wait_64_{name}{reactor}"), device, raw, &runtime, QUEUES, &limits);
        }
    }
    device.set_wake_policy(WakePolicy::default());
}

fn row(
    report: &mut Report,
    name: &str,
    device: &Device,
    raw: &Raw,
    runtime: &Runtime,
    count: usize,
    limits: &Limits,
) {
    if !report.wants(name) {
        return;
    }
    let ours: Vec<_> = (0..count).map(|_| exec(device)).collect();
    let base: Vec<_> = (0..count).map(|_| raw.busy(NANOSECONDS)).collect();
    let by_hand = ByHand::new(raw, runtime, count, NANOSECONDS);
    let rounds = report.reduced(40);
    let sides: [&mut dyn FnMut(); 3] =
        [&mut || runtime.block_on(all(&ours)), &mut || spin(&base), &mut || {
            runtime.block_on(by_hand.round())
        }];
    let measured = measure(rounds, sides);
    print(report, name, &measured, limits);
}

/// Many kernels that each leave room for the others, and are too long to share a stream.
pub(crate) fn side_by_side(report: &mut Report, device: &Device, raw: &Raw) {
    const NAME: &str = "side_by_side_64";
    const NANOSECONDS: u64 = 200_000;
    if report.wants(NAME) {
        let ours = Ours((0..QUEUES).map(|_| exec_of(device, NANOSECONDS)).collect());
        let base = ByHandInTurn((0..QUEUES).map(|_| raw.busy(NANOSECONDS)).collect());
        let row = Row::new(NAME).limit(1.5).rounds(40, 5);
        report.race(row, &support::current_thread(), ours, base);
    }
}

struct Ours(Vec<ExecutableGraph>);

impl Contender for Ours {
    async fn once(&mut self) {
        all(&self.0).await;
    }
}

struct ByHandInTurn(Vec<RawGraph>);

impl Contender for ByHandInTurn {
    async fn once(&mut self) {
        spin(&self.0);
    }
}

fn exec(device: &Device) -> ExecutableGraph {
    exec_of(device, NANOSECONDS)
}

fn exec_of(device: &Device, nanoseconds: u64) -> ExecutableGraph {
    let x = memory_of(device);
    let mut graph = Graph::new(device);
    graph.launch(busy(nanoseconds, &x), Range::linear(1));
    graph.finalize().expect("a valid graph")
}

/// Submits all, each from a task of its own, as a service would; a single one is awaited right
/// here, as in the other rows.
async fn all(execs: &[ExecutableGraph]) {
    if let [exec] = execs {
        return exec.submit().await.expect("a run");
    }
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

/// Microseconds and percent of a core, each of ours, of the base, and by hand in tokio.
struct Measured {
    time: [f64; 3],
    core: [f64; 3],
}

fn measure(rounds: usize, sides: [&mut dyn FnMut(); 3]) -> Measured {
    let (mut times, mut cores) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    // Several rounds, so that the prediction has something to go by; the first are not counted.
    for round in 0..rounds + 5 {
        // Each comes after a spin, which leaves the core awake.
        for side in [0, 1, 2, 1] {
            let (cpu, start) = (cpu::seconds(), Instant::now());
            sides[side]();
            let wall = start.elapsed().as_secs_f64();
            if round >= 5 {
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

fn print(report: &mut Report, name: &str, measured: &Measured, limits: &Limits) {
    let ([ours, base, time_by_hand], [core, _, by_hand]) = (measured.time, measured.core);
    let late =
        limits.added.is_some_and(|added| ours > base + added) || limits.time.is_some_and(|time| ours > time);
    report.figure(name, ours, base, "us", late);
    report.figure(&format!("{name}_by_hand"), ours, time_by_hand, "us", false);
    report.figure(&format!("{name}_core"), core, by_hand, "percent", core > limits.core);
}
