//! How long planning takes, beside `petgraph::algo::toposort` on the same graph in the same run.
//!
//! One line a row: medians, ours and the base interleaved, and the 99th percentile of ours. With
//! `--check` (or `PLAN_BENCH_CHECK` in the environment) the process fails when a limit is exceeded:
//! 6 times petgraph for the three large graphs, 200 bytes a node, and below.
//!
//! Every hundredth node is a host task, all others are kernels of one device. The graphs:
//!
//! - `chain`: each node after the one before.
//! - `random`: each node after two earlier ones, uniformly out of all of them. Nearly every node
//!   has a signature of its own, so there are nearly as many partitions as nodes.
//! - `random_local`: each node after two out of the previous 50. Signatures are large and share
//!   nearly everything.
//! - `diamonds`: 40 diamonds in a row, 2^40 paths, without host tasks and with one in every diamond.
//! - `chain_1m`: a chain of a million nodes.
//! - `scale_*`: by how much the time grows from 100,000 nodes to 200,000; base = the same of petgraph,
//!   limit 1.1. Both outgrow the caches between the two. (Of `random`, twice the nodes have three times
//!   the distinct signatures, and so three times the partitions.)
//! - `arenas_many_buffers`, `arenas_many_uses`: places for half as many scratch buffers as nodes,
//!   each used twice, and for 4,096 buffers with as many uses as nodes: ours = the time for 200,000
//!   nodes, base = ours for 100,000, limit 3.
//! - `bytes_per_node`: what the plan of `random` holds, the largest of the three; base = the limit.
#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use petgraph::graph::{DiGraph, NodeIndex};
use wakegraph::graph::{Content, Graph};
use wakegraph::plan::{Plan, PlanOptions, Transient};
use wakegraph::{CommandKind, CommandKinds, DeviceId};

const NODES: usize = 100_000;
const TIME_LIMIT: f64 = 6.0;
const SCALE_LIMIT: f64 = 1.1;
const ARENA_SCALE_LIMIT: f64 = 3.0;
const BYTES_LIMIT: f64 = 200.0;

fn main() -> ExitCode {
    let check =
        std::env::args().any(|arg| arg == "--check") || std::env::var_os("PLAN_BENCH_CHECK").is_some();
    let mut report = Report { exceeded: false };

    let shapes: [(&str, Build); 3] = [("chain", chain), ("random", random), ("random_local", random_local)];
    let mut single = Vec::new();
    for (name, shape) in shapes {
        let times = race(&shape(NODES), 41);
        report.times(name, &times, Some(TIME_LIMIT));
        single.push(times.ours);
    }
    report.times("diamonds", &race(&diamonds(40, false), 401), None);
    report.times("diamonds_host_tasks", &race(&diamonds(40, true), 401), None);
    report.times("chain_1m", &race(&chain(1_000_000), 7), None);
    for (name, shape) in shapes {
        let (double, single) = (shape(2 * NODES), shape(NODES));
        let growth = race_growth(&double, &single, 21);
        report.row(
            &format!("scale_{name}"),
            growth.ours,
            growth.base,
            growth.p99,
            "times",
            Some(SCALE_LIMIT),
        );
    }
    let many_buffers: fn(usize) -> _ = |nodes| scratch(nodes, nodes / 2, 2);
    let many_uses: fn(usize) -> _ = |nodes| scratch(nodes, 4096, nodes / 4096);
    for (name, scratch) in [("arenas_many_buffers", many_buffers), ("arenas_many_uses", many_uses)] {
        let (double, single) = (scratch(2 * NODES), scratch(NODES));
        let (mut twice, mut once) = (Vec::new(), Vec::new());
        for _ in 0..11 {
            twice.push(time(|| double.0.plan_memory(&double.1, 256)));
            once.push(time(|| single.0.plan_memory(&single.1, 256)));
        }
        report.times(name, &Times::of(twice, once), Some(ARENA_SCALE_LIMIT));
    }
    let bytes = shapes.map(|(_, shape)| plan(&shape(NODES).graph()).heap_bytes() as f64 / NODES as f64);
    let most = bytes.into_iter().fold(0.0, f64::max);
    report.row("bytes_per_node", most, BYTES_LIMIT, most, "bytes", Some(1.0));

    if check && report.exceeded { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Makes a graph of about so many nodes.
type Build = fn(usize) -> Shape;

/// A graph before it is one: nodes, and edges in the order of their ends.
struct Shape {
    host_task: fn(usize) -> bool,
    nodes: usize,
    edges: Vec<(usize, usize)>,
}

fn every_hundredth(node: usize) -> bool {
    node % 100 == 99
}

fn chain(nodes: usize) -> Shape {
    Shape { host_task: every_hundredth, nodes, edges: (1..nodes).map(|node| (node - 1, node)).collect() }
}

fn random(nodes: usize) -> Shape {
    two_out_of_previous(nodes, usize::MAX)
}

fn random_local(nodes: usize) -> Shape {
    two_out_of_previous(nodes, 50)
}

fn two_out_of_previous(nodes: usize, window: usize) -> Shape {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |bound: usize| {
        // xorshift64*: good enough to scatter edges, and the same everywhere.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        ((u128::from(state.wrapping_mul(0x2545_f491_4f6c_dd1d)) * bound as u128) >> 64) as usize
    };
    let mut edges = Vec::new();
    for node in 1..nodes {
        let reach = node.min(window);
        let first = node - 1 - below(reach);
        edges.push((first, node));
        let second = node - 1 - below(reach);
        if second != first {
            edges.push((second, node));
        }
    }
    Shape { host_task: every_hundredth, nodes, edges }
}

/// The plan of 64 chains side by side, and buffers that are used along a chain: so many of them,
/// with so many uses each.
fn scratch(nodes: usize, buffers: usize, uses: usize) -> (Plan, Vec<Transient>) {
    const CHAINS: usize = 64;
    let edges = (CHAINS..nodes).map(|node| (node - CHAINS, node)).collect();
    let plan = plan(&Shape { host_task: |_| false, nodes, edges }.graph());
    let transient = |buffer: usize| Transient {
        device: DeviceId::from_raw(0),
        bytes: 256 * (1 + buffer % 7),
        uses: (0..uses).map(|at| ((nodes / buffers * buffer + at * CHAINS) % nodes) as u32).collect(),
    };
    (plan, (0..buffers).map(transient).collect())
}

/// Tops, and between each two of them a left and a right side.
fn diamonds(count: usize, host_tasks: bool) -> Shape {
    let edges = (0..count).flat_map(|diamond| {
        let top = 3 * diamond;
        [(top, top + 1), (top, top + 2), (top + 1, top + 3), (top + 2, top + 3)]
    });
    let host_task: fn(usize) -> bool = if host_tasks { |node| node % 3 == 1 } else { |_| false };
    Shape { host_task, nodes: 3 * count + 1, edges: edges.collect() }
}

impl Shape {
    fn graph(&self) -> Graph<()> {
        let mut graph = Graph::new();
        let mut ids = Vec::with_capacity(self.nodes);
        let mut edges = self.edges.iter().peekable();
        for node in 0..self.nodes {
            let kind = if (self.host_task)(node) { CommandKind::HostTask } else { CommandKind::Kernel };
            ids.push(graph.add(kind, DeviceId::from_raw(0), Content::Command(()), &[]));
            while let Some(&(from, to)) = edges.next_if(|edge| edge.1 == node) {
                graph.make_edge(ids[from], ids[to]).expect("edges go forward");
            }
        }
        for &(from, to) in edges {
            graph.make_edge(ids[from], ids[to]).expect("edges go forward");
        }
        graph
    }

    fn petgraph(&self) -> DiGraph<(), ()> {
        let mut graph = DiGraph::with_capacity(self.nodes, self.edges.len());
        for _ in 0..self.nodes {
            graph.add_node(());
        }
        for &(from, to) in &self.edges {
            graph.add_edge(NodeIndex::new(from), NodeIndex::new(to), ());
        }
        graph
    }
}

fn plan(graph: &Graph<()>) -> Plan {
    Plan::new(graph, |_| CommandKinds::all(), &PlanOptions::default()).expect("the graph can be planned")
}

/// Microseconds, without the time to drop the result.
fn time<T>(run: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = black_box(run());
    let micros = start.elapsed().as_secs_f64() * 1e6;
    drop(result);
    micros
}

struct Times {
    ours: f64,
    base: f64,
    p99: f64,
}

impl Times {
    fn of(mut ours: Vec<f64>, mut base: Vec<f64>) -> Self {
        ours.sort_by(f64::total_cmp);
        base.sort_by(f64::total_cmp);
        let p99 = ours[(ours.len() * 99).div_ceil(100) - 1];
        Self { ours: ours[ours.len() / 2], base: base[base.len() / 2], p99 }
    }
}

fn race(shape: &Shape, rounds: usize) -> Times {
    let (graph, petgraph) = (shape.graph(), shape.petgraph());
    let (mut ours, mut base) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(time(|| plan(black_box(&graph))));
        base.push(time(|| petgraph::algo::toposort(black_box(&petgraph), None).expect("there is no cycle")));
    }
    Times::of(ours, base)
}

/// By how much the time grows from one graph to the other, in pairs of one after the other.
fn race_growth(double: &Shape, single: &Shape, rounds: usize) -> Times {
    let [(double, double_base), (single, single_base)] =
        [double, single].map(|shape| (shape.graph(), shape.petgraph()));
    let sorted = |graph: &DiGraph<(), ()>| petgraph::algo::toposort(graph, None).expect("there is no cycle");
    let (mut ours, mut base) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        ours.push(time(|| plan(&double)) / time(|| plan(&single)));
        base.push(time(|| sorted(&double_base)) / time(|| sorted(&single_base)));
    }
    Times::of(ours, base)
}

struct Report {
    exceeded: bool,
}

impl Report {
    fn times(&mut self, name: &str, times: &Times, limit: Option<f64>) {
        self.row(name, times.ours, times.base, times.p99, "us", limit);
    }

    fn row(&mut self, name: &str, ours: f64, base: f64, p99: f64, unit: &str, limit: Option<f64>) {
        let ratio = ours / base;
        println!("BENCH {name} ours={ours:.2} base={base:.2} unit={unit} ratio={ratio:.2} p99={p99:.2}");
        self.exceeded |= limit.is_some_and(|limit| ratio > limit);
    }
}
