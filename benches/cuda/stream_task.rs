//! A stream task between two kernels, beside the same calls by hand on one stream.
#![expect(unsafe_code, reason = "calls the driver, and vouches for a stream task")]

use std::ffi::c_void;

use wakegraph::interop::NativeAccess;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, Range};

use crate::raw::{Raw, RawGraph, workspace};
use crate::support::{Contender, Report, Row};
use crate::{One, POLICIES, busy, memory_of, runtimes};

/// Nanoseconds that each of the kernels takes.
const KERNELS: [(&str, u64, Option<f64>); 2] =
    [("stream_task", 20_000, Some(1.1)), ("stream_task_short", 0, None)];

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    raw.keep_freed_memory();
    for (flavour, runtime) in runtimes() {
        for (policy_name, policy) in POLICIES {
            device.set_wake_policy(policy);
            for (what, nanoseconds, limit) in KERNELS {
                let name = format!("{what}_{policy_name}_{flavour}");
                let row = Row::new(&name).rounds(100, 50);
                let row = limit.map_or(row, |limit| row.limit(limit));
                let x = memory_of(device);
                let kernel = || raw.busy_on(nanoseconds, &x);
                let base =
                    ByHand { first: kernel(), second: kernel(), address: address(&x), bytes: 4 * x.len() };
                report.race(row, &runtime, One(live(device, &x, nanoseconds)), base);
            }
        }
        device.set_wake_policy(wakegraph::WakePolicy::default());
    }
}

fn address(x: &Buffer<u32>) -> u64 {
    x.address().expect("an address") as u64
}

/// Kernel, a call that allocates, kernel.
fn live(device: &Device, x: &Buffer<u32>, nanoseconds: u64) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.launch(busy(nanoseconds, x), Range::linear(1));
    // SAFETY: the work is on the stream, and writes the memory.
    unsafe {
        graph.stream_task("workspace", [NativeAccess::write(x)], |stream, [x]| {
            workspace(stream.stream(), x.address().unwrap_or(0) as u64, x.len());
            Ok(())
        })
    };
    graph.launch(busy(nanoseconds, x), Range::linear(1));
    graph.finalize().expect("a valid graph")
}

/// Launch, the same call, launch, synchronize.
struct ByHand {
    first: RawGraph,
    second: RawGraph,
    address: u64,
    bytes: usize,
}

impl Contender for ByHand {
    async fn once(&mut self) {
        let Self { first, second, address, bytes } = self;
        first.bind();
        first.launch();
        let stream: *mut c_void = first.stream();
        workspace(stream, *address, *bytes);
        second.launch_on(first);
        first.synchronize();
    }
}
