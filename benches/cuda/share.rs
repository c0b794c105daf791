//! A small graph beside long kernels: on a share of the multiprocessors with the long kernels on the rest,
//! and with both on the whole device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use wakegraph::hal::{Priority, RangeBound};
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range};

use crate::support::{Report, Row, Times};
use crate::{bump, four_workers, memory_of};

wakegraph::kernel! {
    fn occupy(nanoseconds: u64) {
        range: |_| RangeBound::ANY,
        // SAFETY: it uses no memory.
        ptx: unsafe { include_str!("kernels.ptx") },
    }
}

/// Multiprocessors of the share.
const UNITS: usize = 16;
/// Kernels of the small graph, one after the other.
const CHAIN: usize = 4;
/// A long kernel: 40 rounds of all work-groups that an H200 has room for, 4 ms.
const GROUPS: usize = 40 * 2 * 132;
const GROUP: usize = 1024;
const NANOSECONDS: u64 = 100_000;
/// Long kernels in flight.
const IN_FLIGHT: usize = 3;

pub(crate) fn rows(report: &mut Report, device: &Device) {
    if !report.wants("share") {
        return;
    }
    let (share, rest) = match device.share(UNITS) {
        Ok(parts) => parts,
        Err(error) => return println!("no rows of shares: {error}"),
    };
    let runtime = four_workers();
    let on_share = small(&share, Priority::Normal);
    let [normal, high] = [Priority::Normal, Priority::High].map(|priority| small(device, priority));
    // The runtime learns how long an executable takes.
    let unloaded = [&share, device].map(|device| small(device, Priority::Normal));
    let [long_on_rest, long_on_all] = [long(&rest), long(device)];
    let mut beside = [(); 3].map(|()| Times::default());
    let mut alone = [(); 2].map(|()| Times::default());
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..report.reduced(10) {
        for (exec, times) in unloaded.iter().zip(&mut alone) {
            times.add_by_median(&samples(&runtime, exec));
        }
        let pairs = [(&on_share, &long_on_rest), (&normal, &long_on_all), (&high, &long_on_all)];
        for (place, (exec, load)) in pairs.into_iter().enumerate() {
            let load = Load::start(&runtime, load);
            beside[place].add_by_median(&samples(&runtime, exec));
            if let Some(rates) = rates.get_mut(place) {
                rates.push(load.stop(&runtime));
            } else {
                load.stop(&runtime);
            }
        }
    }
    let [ours, normal, high] = &beside;
    report.compare(Row::new("share_beside_long_work").limit(0.1), ours, normal);
    report.compare(Row::new("share_beside_long_work_of_high_priority"), ours, high);
    report.compare(Row::new("share_alone").limit(1.2), &alone[0], &alone[1]);
    let [rest, all] = rates.map(|rates| crate::support::median(&rates));
    report.figure("share_long_work", rest, all, "per_second", false);
}

/// The graph that should be over soon.
fn small(device: &Device, priority: Priority) -> ExecutableGraph {
    let (mut graph, x) = (Graph::new(device), memory_of(device));
    for _ in 0..CHAIN {
        graph.launch(bump(1, &x), Range::linear(1));
    }
    graph.finalize_with(FinalizeOptions::new().priority(priority)).expect("a valid graph")
}

/// A kernel that fills the device.
fn long(device: &Device) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(occupy(NANOSECONDS), Range::linear(GROUPS * GROUP).local([GROUP]));
    graph.finalize().expect("a valid graph")
}

/// Nanoseconds from submission to completion.
fn samples(runtime: &Runtime, exec: &ExecutableGraph) -> Vec<f64> {
    const SAMPLES: usize = 30;
    runtime.block_on(async {
        let mut samples = Vec::with_capacity(SAMPLES);
        exec.submit().await.expect("a run");
        for _ in 0..SAMPLES {
            let start = Instant::now();
            exec.submit().await.expect("a run");
            samples.push(start.elapsed().as_nanos() as f64);
        }
        samples
    })
}

/// A task that keeps a device busy.
struct Load {
    stop: Arc<AtomicBool>,
    start: Instant,
    task: JoinHandle<usize>,
}

impl Load {
    fn start(runtime: &Runtime, exec: &ExecutableGraph) -> Self {
        let (stop, exec) = (Arc::new(AtomicBool::new(false)), exec.clone());
        let is_over = stop.clone();
        let task = runtime.spawn(async move {
            let (mut in_flight, mut count) = (VecDeque::new(), 0);
            while !is_over.load(Relaxed) {
                in_flight.push_back(exec.submit());
                if in_flight.len() >= IN_FLIGHT
                    && let Some(oldest) = in_flight.pop_front()
                {
                    oldest.await.expect("a run");
                    count += 1;
                }
            }
            for last in in_flight {
                last.await.expect("a run");
                count += 1;
            }
            count
        });
        Self { stop, start: Instant::now(), task }
    }

    /// Long kernels a second.
    fn stop(self, runtime: &Runtime) -> f64 {
        self.stop.store(true, Relaxed);
        let count = runtime.block_on(self.task).expect("no panic");
        count as f64 / self.start.elapsed().as_secs_f64()
    }
}
