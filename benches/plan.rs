//! How long planning takes, beside `petgraph::algo::toposort` on the same graph in the same run.
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
//! - `scale_*`: by how much the time per item grows from 100,000 nodes to 200,000, beside the same of
//!   petgraph. Items are nodes and edges, and for ours also the partitions and dependencies of the plan: of
//!   `random`, twice the nodes have three times the distinct signatures, and so three times the partitions.
//!   Both contenders outgrow the caches between the two.
//! - `arenas_many_buffers`, `arenas_many_uses`: places for half as many scratch buffers as nodes,
//!   each used twice, and for 4,096 buffers with as many uses as nodes: ours = the time for 200,000
//!   nodes, base = ours for 100,000, limit 3.
//! - `slope_param_8000`, `slope_update_from_10000`: by which power of their number the CPU time of an
//!   update grows, from a quarter of it to all: of the nodes in a chain whose memory is one parameter's, and
//!   of graphs nested in each other. The base is 1, the limit 1.1.
//! - `bytes_per_node`: what the plan of `random` holds, the largest of the three; base = the limit.
mod support;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use petgraph::graph::{DiGraph, NodeIndex};
use support::counting::Counting;
use support::{Report, Row, cpu};
use wakegraph::capabilities::{CommandKinds, DeviceId};
use wakegraph::graph::{CommandKind, Content, Graph};
use wakegraph::plan::{Plan, PlanOptions, Transient};
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Range};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const NODES: usize = 100_000;
const BYTES_LIMIT: f64 = 200.0;

fn main() -> ExitCode {
    let mut report = Report::from_args();
    let shapes: [(&str, Build, f64); 3] =
        [("chain", chain, 2.5), ("random", random, 2.5), ("random_local", random_local, 2.5)];
    for (name, shape, limit) in shapes {
        race(&mut report, Row::new(name).limit(limit).rounds(41, 1), || shape(NODES));
    }
    race(&mut report, Row::new("diamonds").limit(2.5).rounds(401, 20), || diamonds(40, false));
    race(&mut report, Row::new("diamonds_host_tasks").rounds(401, 20), || diamonds(40, true));
    race(&mut report, Row::new("chain_1m").limit(2.5).rounds(7, 1), || chain(1_000_000));
    for (name, shape, _) in shapes {
        race_growth(&mut report, &format!("scale_{name}"), shape);
    }
    arenas(&mut report, "arenas_many_buffers", |nodes| scratch(nodes, nodes / 2, 2));
    arenas(&mut report, "arenas_many_uses", |nodes| scratch(nodes, 4096, nodes / 4096));
    report.slope("slope_param_8000", 8_000, time_param);
    report.slope("slope_update_from_10000", 10_000, time_update_from);
    if report.wants("bytes_per_node") {
        let bytes =
            shapes.map(|(_, shape, _)| plan(&shape(NODES).graph()).heap_bytes() as f64 / NODES as f64);
        let most = bytes.into_iter().fold(0.0, f64::max);
        report.figure("bytes_per_node", most, BYTES_LIMIT, "bytes", most > BYTES_LIMIT);
    }
    report.finish()
}

wakegraph::kernel! {
    fn bump(x: &mut [u32]) {
        host: |_range, x| x[0] = x[0].wrapping_add(1),
    }
}

/// Seconds to move a chain of kernels to other memory.
fn time_param(nodes: usize) -> f64 {
    let device = Device::open("host").expect("a host device");
    let [from, to] = [(); 2].map(|()| device.buffer::<u32>(1).expect("a small buffer"));
    let mut graph = wakegraph::Graph::new(&device);
    let memory = graph.param::<[u32]>(&from);
    for _ in 0..nodes {
        graph.launch(bump(&from), Range::linear(1)).param("x", &memory);
    }
    let exec = updatable(&graph);
    let update = exec.update().param(&memory, &to);
    seconds(|| support::current_thread().block_on(update.apply()).expect("an update"))
}

/// Seconds to update an executable from a graph of so many levels.
fn time_update_from(depth: usize) -> f64 {
    let device = Device::open("host").expect("a host device");
    let x = device.buffer::<u32>(1).expect("a small buffer");
    let mut graph = wakegraph::Graph::new(&device);
    graph.launch(bump(&x), Range::linear(1));
    for _ in 0..depth {
        let mut outer = wakegraph::Graph::new(&device);
        outer.sub_graph(&graph);
        graph = outer;
    }
    let exec = updatable(&graph);
    seconds(|| support::current_thread().block_on(exec.update_from(&graph)).expect("an update"))
}

fn seconds(work: impl FnOnce()) -> f64 {
    let start = cpu::seconds();
    work();
    cpu::seconds() - start
}

fn updatable(graph: &wakegraph::Graph) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().updatable(true)).expect("a valid graph")
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

/// Nanoseconds, without the time to drop the result.
fn time<T>(run: impl FnOnce() -> T) -> f64 {
    let start = Instant::now();
    let result = black_box(run());
    let nanoseconds = start.elapsed().as_nanos() as f64;
    drop(result);
    nanoseconds
}

fn time_plan(graph: &Graph<()>) -> f64 {
    time(|| plan(black_box(graph)))
}

fn time_sort(graph: &DiGraph<(), ()>) -> f64 {
    time(|| petgraph::algo::toposort(black_box(graph), None).expect("there is no cycle"))
}

fn race(report: &mut Report, row: Row<'_>, shape: impl FnOnce() -> Shape) {
    report.race_timed(row, "ns", || {
        let shape = shape();
        let (graph, petgraph) = (shape.graph(), shape.petgraph());
        (move || time_plan(&graph), move || time_sort(&petgraph))
    });
}

/// By how much the time per item grows when the graph doubles, in pairs of one after the other. Both
/// contenders walk nodes and edges; a plan consists of partitions and dependencies besides, which may more
/// than double.
fn race_growth(report: &mut Report, name: &str, shape: Build) {
    report.race_timed(Row::new(name).limit(1.1).rounds(21, 1), "times", || {
        let [double, single] = [2 * NODES, NODES].map(|nodes| {
            let shape = shape(nodes);
            let (graph, petgraph) = (shape.graph(), shape.petgraph());
            let items = nodes + shape.edges.len();
            let planned = items + size(&plan(&graph));
            (graph, petgraph, planned as f64, items as f64)
        });
        let growth = double.2 / single.2;
        let base_growth = double.3 / single.3;
        let [(double, double_base, ..), (single, single_base, ..)] = [double, single];
        (
            move || time_plan(&double) / time_plan(&single) / growth,
            move || time_sort(&double_base) / time_sort(&single_base) / base_growth,
        )
    });
}

/// The number of partitions and dependencies.
fn size(plan: &Plan) -> usize {
    (0..plan.partitions().len()).map(|partition| 1 + plan.predecessors(partition).len()).sum()
}

/// The time for twice the nodes, beside that for once.
fn arenas(report: &mut Report, name: &str, scratch: fn(usize) -> (Plan, Vec<Transient>)) {
    report.race_timed(Row::new(name).limit(3.0).rounds(11, 1), "ns", || {
        let [double, single] = [2 * NODES, NODES].map(scratch);
        let time_places = |(plan, buffers): &(Plan, Vec<Transient>)| time(|| plan.plan_memory(buffers, 256));
        (move || time_places(&double), move || time_places(&single))
    });
}
