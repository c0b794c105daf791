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

/// Elements, and the limits of chains of 10 and of 100. 1,056 work-groups of 256 fit on 132
/// multiprocessors at once; beyond that nothing overlaps, and the row shows what the dialect's own
/// parameters cost.
const SIZES: [(usize, Option<[f64; 2]>); 6] = [
    (32, Some([0.9, 0.8])),
    (4_096, Some([0.9, 0.8])),
    (33_792, Some([0.95, 0.85])),
    (135_168, Some([1.0, 0.95])),
    (270_336, Some([1.05, 1.05])),
    (1_048_576, None),
];

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    let runtime = support::current_thread();
    device.set_wake_policy(WakePolicy::Latency);
    for (elements, limits) in SIZES {
        for (index, len) in [10, 100].into_iter().enumerate() {
            let name = format!("overlap_{len}_of_{elements}");
            if !report.wants(&name) {
                continue;
            }
            let x = device.buffer(elements).expect("a buffer");
            let (ours, base) = (One(chain(device, len, &x)), Synchronized(raw.scale_chain_on(len, &x)));
            let row = Row::new(&name).rounds(60, 50);
            let row = if let Some(limits) = limits { row.limit(limits[index]) } else { row };
            report.race(row, &runtime, ours, base);
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
