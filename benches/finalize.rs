//! What finalizing a graph costs as a whole, beside adding the same nodes by hand to what the driver offers.
//!
//! | row | ours | base |
//! |---|---|---|
//! | `host/finalize_N` | `finalize` of N kernels in a chain, and the drop of the executable | a vector of N boxed closures, each with the node that it waits for |
//! | `opencl:0/finalize_N` | the same | the faster of N kernels with arguments, and these recorded into a `cl_khr_command_buffer` |
//!
//! Figures are per node, for 10, 1,000 and 100,000 nodes; the latter are left out where the driver alone
//! takes longer than a second for a tenth of them, as PoCL 3.1 does. Limits are about 1.4 times what was
//! measured. A node of ours has been checked, planned, ordered, and entered in what names it in errors and
//! finds conflicts over memory; a closure of the host's base is only stored. The rows of CUDA are in the
//! bench `cuda`.
#![expect(unsafe_code, reason = "declares device code")]
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

#[path = "support/raw_opencl.rs"]
mod raw_opencl;
mod support;

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use raw_opencl::{Chain, Lowering, RawDevice, Waiting};
use support::counting::Counting;
use support::{Contender, Report, Row};
use wakegraph::{Device, Graph, Range};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ELEMENTS: usize = 16;
const SOURCE: &str = "KERNEL(bump, (u32 n, SLICE(u32, x))) { x[GLOBAL_ID(0)] += n; }";
/// Nodes, rounds, and samples of a round.
const SIZES: [(usize, usize, usize); 3] = [(10, 100, 20), (LARGE / 100, 30, 3), (LARGE, 7, 1)];
const LARGE: usize = 100_000;

wakegraph::kernel! {
    fn bump(n: u32, x: &mut [u32]) {
        host: |_range, n, x| x.iter_mut().for_each(|x| *x = x.wrapping_add(n)),
        // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice's length.
        c: unsafe { SOURCE },
    }
}

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let runtime = support::current_thread();
    let host = Device::open("host").expect("a host device");
    for (nodes, rounds, samples) in SIZES {
        let name = format!("host/finalize_{nodes}");
        if report.wants(&name) {
            let limit = if nodes == 10 { 60.0 } else { 35.0 };
            let row = Row::new(&name).limit(limit).operations(nodes).rounds(rounds, samples);
            report.race(row, &runtime, Finalized::new(&host, nodes), Closures { nodes });
        }
    }
    opencl(&mut report, &runtime);
    report.finish()
}

/// The rows of each device that OpenCL offers.
fn opencl(report: &mut Report, runtime: &tokio::runtime::Runtime) {
    for index in 0.. {
        let Ok(device) = Device::open(&format!("opencl:{index}")) else { break };
        let Some(raw) = RawDevice::find(&device.info().name, SOURCE, "bump", ELEMENTS) else { continue };
        println!("{device:?}");
        for (nodes, rounds, samples) in SIZES {
            let name = format!("opencl:{index}/finalize_{nodes}");
            if !report.wants(&name) || nodes == LARGE && is_slow(&raw) {
                continue;
            }
            let lowerings = [Lowering::Enqueues, Lowering::CommandBuffer].into_iter();
            let lowerings = lowerings
                .filter(|&lowering| lowering == Lowering::Enqueues || raw.has_command_buffers())
                .map(|lowering| (format!("{lowering:?}"), Calls { raw: raw.clone(), nodes, lowering }));
            let limit = if nodes == 10 { 20.0 } else { 2.0 };
            let row = Row::new(&name).limit(limit).operations(nodes).rounds(rounds, samples);
            report.race_best(row, runtime, Finalized::new(&device, nodes), lowerings.collect());
        }
    }
}

/// Whether the driver takes longer than a second for a tenth of the largest graph.
fn is_slow(raw: &Arc<RawDevice>) -> bool {
    let start = Instant::now();
    drop(Chain::new(raw, LARGE / 10, Lowering::Enqueues, Waiting::Event));
    start.elapsed() > Duration::from_secs(1)
}

struct Finalized(Graph);

impl Finalized {
    fn new(device: &Device, nodes: usize) -> Self {
        let x = device.buffer::<u32>(ELEMENTS).expect("a small buffer");
        let mut graph = Graph::new(device);
        for _ in 0..nodes {
            graph.launch(bump(1, &x), Range::linear(ELEMENTS));
        }
        Self(graph)
    }
}

impl Contender for Finalized {
    async fn once(&mut self) {
        black_box(self.0.finalize().expect("a valid graph"));
    }
}

/// A graph of the host by hand: closures, and the one that each waits for.
struct Closures {
    nodes: usize,
}

type Closure = Box<dyn Fn() + Send + Sync>;

impl Contender for Closures {
    async fn once(&mut self) {
        let memory: Arc<[AtomicU32]> = (0..ELEMENTS).map(|_| 0.into()).collect();
        let node = |index: usize| {
            let (memory, n) = (memory.clone(), 1);
            let run = move || {
                for x in &*memory {
                    x.fetch_add(n, Ordering::Relaxed);
                }
            };
            (Box::new(run) as Closure, index.checked_sub(1))
        };
        black_box((0..self.nodes).map(node).collect::<Vec<_>>());
    }
}

/// The driver's calls by hand.
struct Calls {
    raw: Arc<RawDevice>,
    nodes: usize,
    lowering: Lowering,
}

impl Contender for Calls {
    async fn once(&mut self) {
        black_box(Chain::new(&self.raw, self.nodes, self.lowering, Waiting::Event).expect("a chain"));
    }
}
