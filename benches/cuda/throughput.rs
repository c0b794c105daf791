//! Many tasks, each awaiting its own small graph again and again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use wakegraph::{Device, ExecutableGraph, WakePolicy};

use crate::raw::{Raw, RawGraph};
use crate::support::{self, Report, cpu};
use crate::{POLICIES, chain, runtimes};

/// Short: what a launch takes by hand changes by a half from one second to the next.
const WINDOW: Duration = Duration::from_millis(50);

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    for (policy_name, policy) in POLICIES {
        device.set_wake_policy(policy);
        policy_rows(report, device, raw, policy_name);
    }
    device.set_wake_policy(WakePolicy::default());
}

fn policy_rows(report: &mut Report, device: &Device, raw: &Raw, policy: &str) {
    for (flavour, runtime) in runtimes() {
        for tasks in [16, 64, 256] {
            let name = format!("throughput_{tasks}_{policy}_{flavour}");
            if !report.wants(&name) {
                continue;
            }
            let execs: Vec<_> = (0..tasks).map(|_| chain(device, 1)).collect();
            let graph = raw.chain(1);
            let graphs: Vec<_> = (0..tasks).map(|_| raw.chain(1)).collect();
            let (mut ours, mut base, mut by_hand) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..report.reduced(30) {
                ours.push(awaited(&runtime, &execs));
                base.push(pipelined(&graph));
                by_hand.push(each_again(&graphs));
            }
            let [rate, cores] = medians(&ours[1..]);
            let [base_rate, base_cores] = medians(&base[1..]);
            let [by_hand, _] = medians(&by_hand[1..]);
            report.figure(&format!("{name}_by_hand"), rate, by_hand, "per_second", false);
            let Limits { least, most_cores } = limits(flavour);
            report.figure(&name, rate, base_rate, "per_second", rate < least * base_rate);
            report.figure(&format!("{name}_cores"), cores, base_cores, "cores", cores > most_cores);
        }
    }
}

/// What `--check` accepts.
struct Limits {
    /// Of the base's rate.
    least: f64,
    most_cores: f64,
}

fn limits(flavour: &str) -> Limits {
    match flavour {
        "current" => Limits { least: 0.95, most_cores: 2.0 },
        _ => Limits { least: 0.85, most_cores: 2.5 },
    }
}

/// Submissions a second, and cores busy.
type Rate = [f64; 2];

fn medians(rates: &[Rate]) -> Rate {
    [0, 1].map(|part| support::median(&rates.iter().map(|rate| rate[part]).collect::<Vec<_>>()))
}

fn awaited(runtime: &Runtime, execs: &[ExecutableGraph]) -> Rate {
    let (stop, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    runtime.block_on(async {
        let (cpu, start) = (cpu::seconds(), Instant::now());
        let tasks: Vec<_> = execs
            .iter()
            .map(|exec| {
                let (exec, stop, count) = (exec.clone(), stop.clone(), count.clone());
                tokio::spawn(async move {
                    let mut own = 0;
                    while !stop.load(Relaxed) {
                        exec.submit().await.expect("a run");
                        own += 1;
                        if own % 64 == 0 && start.elapsed() > WINDOW {
                            stop.store(true, Relaxed);
                        }
                    }
                    count.fetch_add(own, Relaxed);
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        let wall = start.elapsed().as_secs_f64();
        [count.load(Relaxed) as f64 / wall, (cpu::seconds() - cpu) / wall]
    })
}

fn pipelined(graph: &RawGraph) -> Rate {
    graph.bind();
    let (cpu, start) = (cpu::seconds(), Instant::now());
    let mut count = 0;
    while start.elapsed() < WINDOW {
        for _ in 0..256 {
            graph.launch();
            graph.record();
        }
        count += 256;
    }
    graph.synchronize();
    let wall = start.elapsed().as_secs_f64();
    [f64::from(count) / wall, (cpu::seconds() - cpu) / wall]
}

/// One thread that launches each of many graphs again as soon as it sees it complete, without any runtime.
fn each_again(graphs: &[RawGraph]) -> Rate {
    graphs[0].bind();
    let (cpu, start) = (cpu::seconds(), Instant::now());
    let launch = |graph: &RawGraph| {
        graph.launch();
        graph.record();
    };
    graphs.iter().for_each(launch);
    let mut count = graphs.len();
    while start.elapsed() < WINDOW {
        for graph in graphs.iter().filter(|graph| graph.is_complete()) {
            launch(graph);
            count += 1;
        }
    }
    graphs.iter().for_each(RawGraph::synchronize);
    let wall = start.elapsed().as_secs_f64();
    [count as f64 / wall, (cpu::seconds() - cpu) / wall]
}
