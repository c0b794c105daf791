//! Chains of kernels that are started while the ones before them end.

use wakegraph::kernel::KernelCall;
use wakegraph::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, NodeId, Range, WakePolicy};

use crate::One;
use crate::latency::Synchronized;
use crate::raw::Raw;
use crate::support::{self, Report, Row};

wakegraph::kernel! {
    fn scale(x: &mut [u32]) {
        // SAFETY: each work-item changes its own element.
        c: unsafe { "KERNEL(scale, (SLICE(u32, x))) { x[GLOBAL_ID(0)] = 3 * x[GLOBAL_ID(0)] + 1; }" },
    }
    fn scale_early(n: u32, x: &mut [u32]) {
        range: |n, x| if n as usize <= x.len() { n as usize } else { 0 },
        // SAFETY: each work-item below `n`, which the bound keeps within the slice, changes its own
        // element.
        ptx: unsafe { include_str!("kernels_90.ptx") },
        // SAFETY: waiting is the second thing that every thread does.
        cuda_waits: unsafe { true },
    }
}

/// Elements, and the limits of chains of 10 and of 100. 132 multiprocessors hold 528 work-groups of 256
/// twice: with more elements than in the fourth row nothing overlaps, as that takes up to 1.5 times as long.
const SIZES: [(usize, [f64; 2]); 6] = [
    (32, [0.9, 0.8]),
    (4_096, [0.9, 0.8]),
    (33_792, [0.95, 0.85]),
    (135_168, [1.0, 0.95]),
    (270_336, [1.05, 1.05]),
    (1_048_576, [1.05, 1.05]),
];

/// The sizes with programmatic edges.
const OVERLAPPING: usize = 4;

/// Elements of which an updatable chain consists first, if an update makes it grow.
const SMALL: usize = 4_096;

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    device.set_wake_policy(WakePolicy::Latency);
    let mut row =
        |name: String, len, elements, limit, ours: &dyn Fn(&Buffer<u32>) -> Option<ExecutableGraph>| {
            if !report.wants(&name) {
                return;
            }
            let x = device.buffer(elements).expect("a buffer");
            if let Some(ours) = ours(&x) {
                let (ours, base) = (One(ours), Synchronized(raw.scale_chain_on(len, &x)));
                report.race(Row::new(&name).limit(limit).rounds(60, 50), &runtime, ours, base);
            }
        };
    for (elements, limits) in SIZES {
        for (len, limit) in [10, 100].into_iter().zip(limits) {
            let name = format!("overlap_{len}_of_{elements}");
            row(name, len, elements, limit, &|x| Some(chain(device, len, x)));
        }
    }
    for (elements, limits) in SIZES.into_iter().take(OVERLAPPING) {
        for (len, limit) in [10, 100].into_iter().zip(limits) {
            let name = format!("overlap_updatable_{len}_of_{elements}");
            row(name, len, elements, limit, &|x| Some(updated(&runtime, device, len, x, elements)));
            let name = format!("overlap_ptx_{len}_of_{elements}");
            row(name, len, elements, limit, &|x| early_chain(device, len, x));
        }
    }
    for (elements, limits) in SIZES.into_iter().skip(OVERLAPPING) {
        let name = format!("overlap_grown_10_of_{elements}");
        row(name, 10, elements, limits[0], &|x| Some(updated(&runtime, device, 10, x, SMALL)));
    }
    device.set_wake_policy(WakePolicy::default());
}

fn chain(device: &Device, len: usize, x: &Buffer<u32>) -> ExecutableGraph {
    let graph = graph(device, len, || scale(x), x.len()).0;
    graph.finalize().expect("a valid graph")
}

/// The kernels in PTX; none on devices that do not know their instructions.
fn early_chain(device: &Device, len: usize, x: &Buffer<u32>) -> Option<ExecutableGraph> {
    let graph = graph(device, len, || scale_early(x.len() as u32, x), x.len()).0;
    graph.finalize().ok()
}

/// A chain of which an update has set all arguments and ranges; before that it had `elements`.
fn updated(
    runtime: &tokio::runtime::Runtime,
    device: &Device,
    len: usize,
    x: &Buffer<u32>,
    elements: usize,
) -> ExecutableGraph {
    let (graph, nodes) = graph(device, len, || scale(x), elements);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).expect("a valid graph");
    let mut update = exec.update();
    for node in nodes {
        update = update.launch(node, scale(x)).range(node, Range::linear(x.len()));
    }
    runtime.block_on(async { update.apply().await }).expect("a valid update");
    exec
}

fn graph(
    device: &Device,
    len: usize,
    call: impl Fn() -> KernelCall,
    elements: usize,
) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::new(device);
    let nodes = (0..len).map(|_| graph.launch(call(), Range::linear(elements)).id()).collect();
    (graph, nodes)
}
