//! Chains of kernels that are started while the ones before them end.

use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range, WakePolicy};

use crate::One;
use crate::latency::Synchronized;
use crate::raw::Raw;
use crate::support::{self, Report, Row};

wakegraph::kernel! {
    fn scale(x: &mut [u32]) {
        // SAFETY: each work-item changes its own element.
        c: unsafe { "KERNEL(scale, (SLICE(u32, x))) { x[GLOBAL_ID(0)] = 3 * x[GLOBAL_ID(0)] + 1; }" },
    }
}

/// Elements, and the limits of chains of 10 and of 100. 132 multiprocessors hold 528 work-groups of 256 twice:
/// with more elements than in the fourth row nothing overlaps, as that takes up to 1.5 times as long.
const SIZES: [(usize, [f64; 2]); 6] = [
    (32, [0.9, 0.8]),
    (4_096, [0.9, 0.8]),
    (33_792, [0.95, 0.85]),
    (135_168, [1.0, 0.95]),
    (270_336, [1.05, 1.05]),
    (1_048_576, [1.05, 1.05]),
];

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    device.set_wake_policy(WakePolicy::Latency);
    for (elements, limits) in SIZES {
        for (len, limit) in [10, 100].into_iter().zip(limits) {
            let name = format!("overlap_{len}_of_{elements}");
            if !report.wants(&name) {
                continue;
            }
            let x = device.buffer(elements).expect("a buffer");
            let (ours, base) = (One(chain(device, len, &x)), Synchronized(raw.scale_chain_on(len, &x)));
            report.race(Row::new(&name).limit(limit).rounds(60, 50), &runtime, ours, base);
        }
    }
    device.set_wake_policy(WakePolicy::default());
}

fn chain(device: &Device, len: usize, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    for _ in 0..len {
        graph.launch(scale(x), Range::linear(x.len()));
    }
    graph.finalize().expect("a valid graph")
}
