//! Tests of plans as data.

mod cases;
mod examples;
mod layers;
mod memory;
mod model;
mod passes;
mod properties;
mod separations;
mod weaknesses;

use std::collections::BTreeSet;

use proptest::prelude::ProptestConfig;
use wakegraph_hal::{CommandKind, CommandKinds, DeviceId, ErrorKind};

use super::{ExecutionOrder, PartitionPolicy, Plan, PlanOptions};
use crate::graph::{Content, Graph, NodeId};

const SIGNATURE: PlanOptions = options(PartitionPolicy::Signature);
const FEWEST: PlanOptions = options(PartitionPolicy::Fewest);
const EAGER: PlanOptions = options(PartitionPolicy::Eager);

const fn options(partition: PartitionPolicy) -> PlanOptions {
    PlanOptions {
        partition,
        order: ExecutionOrder::DepthFirst,
        profiling: false,
        in_order: false,
        max_queues: 8,
    }
}

/// As many cases as `PROPTEST_CASES` says, or so many. A failure is reported as the smallest input
/// that fails, and belongs into a test with a name, not into a file of seeds.
fn random_cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(if cfg!(miri) { 2 } else { count })
    }
}

/// A graph from words: nodes `A` (kernel), `A@1` (kernel on device 1), `H!` (host task), `T~` (stream
/// task) and `E?` (empty), and edges as paths, `A>H>B`.
fn graph(nodes: &str, paths: &str) -> (Graph<()>, Vec<String>) {
    let mut graph = Graph::new();
    let mut names: Vec<String> = Vec::new();
    let mut ids: Vec<NodeId> = Vec::new();
    for word in nodes.split_whitespace() {
        let (word, device) = word.split_once('@').unwrap_or((word, "0"));
        let device = DeviceId::from_raw(device.parse().unwrap());
        let (kind, content) = match word.chars().last().unwrap() {
            '!' => (CommandKind::HostTask, Content::Command(())),
            '~' => (CommandKind::StreamTask, Content::Command(())),
            '?' => (CommandKind::Empty, Content::Empty),
            _ => (CommandKind::Kernel, Content::Command(())),
        };
        let name = word.trim_end_matches(['!', '~', '?']);
        let id = graph.add(kind, device, content, &[]);
        graph.set_name(id, name).unwrap();
        names.push(name.to_owned());
        ids.push(id);
    }
    for path in paths.split_whitespace() {
        let at = |name: &str| ids[names.iter().position(|known| known == name).unwrap()];
        let steps: Vec<_> = path.split('>').map(at).collect();
        for edge in steps.windows(2) {
            graph.make_edge(edge[0], edge[1]).unwrap();
        }
    }
    (graph, names)
}

fn plan(graph: &Graph<()>, options: &PlanOptions) -> Plan {
    Plan::new(graph, |_| CommandKinds::all(), options).unwrap()
}

/// The plan's instruction list with the nodes' names.
#[track_caller]
fn assert_plan(nodes: &str, paths: &str, options: &PlanOptions, expected: &str) {
    let (graph, names) = graph(nodes, paths);
    let text = plan(&graph, options).display(|node| names[node as usize].clone()).to_string();
    let expected: String = expected.trim().lines().map(|line| format!("{}\n", line.trim())).collect();
    let found: String = text.lines().map(|line| format!("{}\n", line.trim())).collect();
    assert_eq!(found, expected, "\n{text}");
}
