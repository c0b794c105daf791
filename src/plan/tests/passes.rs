//! Tests of single passes: refusals, wide joins, sets, queues, budgets.

use std::collections::BTreeSet;
use std::sync::Arc;

use fixedbitset::FixedBitSet;
use proptest::prelude::*;

use super::*;
use crate::graph::GraphProperties;
use crate::plan::PartitionKind;
use crate::plan::hash_consed_sets::{EMPTY_SET, HashConsedSets};

const DEVICE: DeviceId = DeviceId::from_raw(0);

fn add(graph: &mut Graph<()>, kind: CommandKind) -> NodeId {
    graph.add(
        kind,
        DEVICE,
        if kind == CommandKind::Empty { Content::Empty } else { Content::Command(()) },
        &[],
    )
}

#[test]
fn an_unsupported_command_is_refused_by_name() {
    let mut child = Graph::new();
    let fill = add(&mut child, CommandKind::BufferFill);
    child.set_name(fill, "clear").unwrap();
    let mut root = Graph::new();
    let sub = root.add(CommandKind::SubGraph, DEVICE, Content::SubGraph(Arc::new(child)), &[]);
    root.set_name(sub, "stage").unwrap();

    let refused = Plan::new(&root, |_| CommandKinds::KERNEL, &SIGNATURE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::FeatureNotSupported);
    assert_eq!(refused.device(), Some("device#0"));
    let text = refused.to_string();
    for part in ["buffer fill", "stage", "clear", "passes.rs"] {
        assert!(text.contains(part), "{text} names {part}");
    }
    assert!(Plan::new(&root, |_| CommandKinds::BUFFER_FILL, &SIGNATURE).is_ok());
}

// A --> B --> C --> D
//       ^---- C
#[test]
fn a_cycle_is_refused_with_its_nodes() {
    let mut graph = Graph::with_properties(GraphProperties::default().no_cycle_check(true));
    let nodes = ["A", "B", "C", "D"].map(|name| {
        let node = add(&mut graph, CommandKind::Kernel);
        graph.set_name(node, name).unwrap();
        node
    });
    for (from, to) in [(0, 1), (1, 2), (2, 3), (2, 1)] {
        graph.make_edge(nodes[from], nodes[to]).unwrap();
    }
    let refused = Plan::new(&graph, |_| CommandKinds::all(), &SIGNATURE).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Cycle);
    let named = |name: &str| refused.message().contains(name);
    assert!(named("B") && named("C") && !named("A") && !named("D"), "{refused}");
}

// A <--> B, and nothing leads out
#[test]
fn a_cycle_without_a_sink_is_found_too() {
    let mut graph = Graph::with_properties(GraphProperties::default().no_cycle_check(true));
    let (a, b) = (add(&mut graph, CommandKind::Kernel), add(&mut graph, CommandKind::Kernel));
    graph.make_edge(a, b).unwrap();
    graph.make_edge(b, a).unwrap();
    assert_eq!(Plan::new(&graph, |_| CommandKinds::all(), &SIGNATURE).unwrap_err().kind(), ErrorKind::Cycle);
}

/// `wide` kernels, a chain of `joins` empty nodes, `wide` kernels.
///
/// ```text
/// A1 --\             /--> B1
/// A2 ---(E)-->..-->(E)--> B2
/// ..  --/             \--> ..
/// ```
fn bow_tie(wide: usize, joins: usize) -> Graph<()> {
    let mut graph = Graph::new();
    let left: Vec<_> = (0..wide).map(|_| add(&mut graph, CommandKind::Kernel)).collect();
    let middle: Vec<_> = (0..joins).map(|_| add(&mut graph, CommandKind::Empty)).collect();
    for pair in middle.windows(2) {
        graph.make_edge(pair[0], pair[1]).unwrap();
    }
    for from in left {
        graph.make_edge(from, middle[0]).unwrap();
    }
    for _ in 0..wide {
        let to = add(&mut graph, CommandKind::Kernel);
        graph.make_edge(middle[joins - 1], to).unwrap();
    }
    graph
}

fn waits(plan: &Plan) -> usize {
    (0..plan.partitions().len())
        .flat_map(|partition| (0..plan.nodes(partition).len()).map(move |position| (partition, position)))
        .map(|(partition, position)| plan.waits(partition, position).len())
        .sum()
}

#[test]
fn a_wide_join_stays_and_a_narrow_one_vanishes() {
    let narrow = plan(&bow_tie(8, 5), &SIGNATURE);
    assert_eq!((narrow.node_count(), waits(&narrow)), (16, 64));
    const WIDE: usize = if cfg!(miri) { 100 } else { 1_000 };
    let wide = plan(&bow_tie(WIDE, 50), &SIGNATURE);
    assert_eq!((wide.node_count(), waits(&wide)), (2 * WIDE + 1, 2 * WIDE));
    // Without an empty command on the device the edges multiply, but the plan is right.
    let supported = |_| CommandKinds::KERNEL;
    let spread = Plan::new(&bow_tie(20, 3), supported, &SIGNATURE).unwrap();
    assert_eq!((spread.node_count(), waits(&spread)), (40, 400));
}

// [H1] [H2] ..  ==> (E) ==>  [H'1] [H'2] ..
#[test]
fn a_wide_join_of_host_tasks_is_a_partition_of_its_own() {
    let mut graph = Graph::new();
    let left: Vec<_> = (0..100).map(|_| add(&mut graph, CommandKind::HostTask)).collect();
    let join = add(&mut graph, CommandKind::Empty);
    for from in left {
        graph.make_edge(from, join).unwrap();
    }
    for _ in 0..100 {
        let to = add(&mut graph, CommandKind::HostTask);
        graph.make_edge(join, to).unwrap();
    }
    let plan = plan(&graph, &SIGNATURE);
    assert_eq!(plan.partitions().len(), 201);
    let joins = plan.partitions().iter().filter(|partition| partition.kind == PartitionKind::Device(DEVICE));
    assert_eq!(joins.count(), 1);
    assert_eq!(plan.instructions().count(), 203);
}

// a binary tree of empty nodes 12 deep over 100 kernels, kernels at its 4,096 leaves
#[test]
fn a_tree_of_empty_nodes_is_linear() {
    const DEPTH: u32 = if cfg!(miri) { 5 } else { 12 };
    const LEAVES: usize = 1 << DEPTH;
    let mut graph = Graph::new();
    let left: Vec<_> = (0..100).map(|_| add(&mut graph, CommandKind::Kernel)).collect();
    let mut row = vec![add(&mut graph, CommandKind::Empty)];
    for from in left {
        graph.make_edge(from, row[0]).unwrap();
    }
    for depth in (0..DEPTH).rev() {
        let kind = if depth == 0 { CommandKind::Kernel } else { CommandKind::Empty };
        let next: Vec<_> = (0..2 * row.len()).map(|_| add(&mut graph, kind)).collect();
        for (index, &node) in next.iter().enumerate() {
            graph.make_edge(row[index / 2], node).unwrap();
        }
        row = next;
    }
    let plan = plan(&graph, &SIGNATURE);
    assert_eq!((plan.node_count(), waits(&plan)), (100 + LEAVES + 1, 100 + LEAVES));
}

// K --> [H1] [H2] .. [H10000] --> K
#[test]
fn wide_fans_of_host_tasks_are_planned() {
    const WIDE: usize = if cfg!(miri) { 50 } else { 10_000 };
    let mut graph = Graph::new();
    let first = add(&mut graph, CommandKind::Kernel);
    let tasks: Vec<_> = (0..WIDE).map(|_| add(&mut graph, CommandKind::HostTask)).collect();
    let last = add(&mut graph, CommandKind::Kernel);
    graph.make_edge(first, last).unwrap();
    for task in tasks {
        graph.make_edge(first, task).unwrap();
        graph.make_edge(task, last).unwrap();
    }
    for options in [SIGNATURE, FEWEST, EAGER] {
        let plan = plan(&graph, &options);
        assert_eq!(plan.partitions().len(), WIDE + 2);
        assert_eq!(plan.predecessors(WIDE + 1).len(), WIDE);
        assert_eq!(plan.successors(0).len(), WIDE);
    }
}

// each node after two earlier ones, and every tenth a host task: far more candidates than hubs
#[test]
fn a_large_random_graph_is_reduced_exactly() {
    const NODES: usize = if cfg!(miri) { 200 } else { 3_000 };
    // In a small graph a partition has more nodes.
    const PARTITIONS: usize = if cfg!(miri) { 40 } else { NODES / 2 };
    let mut graph = Graph::new();
    let mut nodes = Vec::new();
    let mut edges = BTreeSet::new();
    let mut state = 7u64;
    for node in 0..NODES {
        let kind = if node % 10 == 9 { CommandKind::HostTask } else { CommandKind::Kernel };
        nodes.push(add(&mut graph, kind));
        for _ in 0..2.min(node) {
            // A linear congruential generator (Knuth's MMIX).
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let from = (state >> 33) as usize % node;
            graph.make_edge(nodes[from], nodes[node]).unwrap();
            edges.insert((from, node));
        }
    }
    let plan = plan(&graph, &SIGNATURE);
    let count = plan.partitions().len();
    let mut partition_of = vec![0; NODES];
    for partition in 0..count {
        plan.nodes(partition).iter().for_each(|&node| partition_of[node as usize] = partition);
    }
    let mut direct = vec![BTreeSet::new(); count];
    for (from, to) in edges {
        let (from, to) = (partition_of[from], partition_of[to]);
        if from != to {
            direct[to].insert(from);
        }
    }
    let mut before = vec![FixedBitSet::with_capacity(count); count];
    for partition in 0..count {
        let mut all = FixedBitSet::with_capacity(count);
        for &pred in &direct[partition] {
            all.union_with(&before[pred]);
        }
        let needed = direct[partition].iter().filter(|&&pred| !all.contains(pred)).map(|&pred| pred as u32);
        assert_eq!(plan.predecessors(partition), needed.collect::<Vec<_>>());
        all.extend(direct[partition].iter().copied());
        before[partition] = all;
    }
    assert!(count >= PARTITIONS);
}

// eleven independent pairs of a host task and a kernel after it
#[test]
fn queues_open_up_to_the_limit_and_fill_evenly() {
    let mut graph = Graph::new();
    for _ in 0..11 {
        let (task, kernel) = (add(&mut graph, CommandKind::HostTask), add(&mut graph, CommandKind::Kernel));
        graph.make_edge(task, kernel).unwrap();
    }
    for (max_queues, loads) in [(4, vec![3, 3, 3, 2]), (1, vec![11]), (0, vec![11]), (20, vec![1; 11])] {
        let plan = plan(&graph, &PlanOptions { max_queues, ..SIGNATURE });
        let mut found = vec![0; loads.len()];
        for partition in
            plan.partitions().iter().filter(|partition| partition.kind != PartitionKind::HostTask)
        {
            found[usize::from(partition.queue)] += 1;
        }
        assert_eq!(found, loads);
    }
}

#[test]
fn a_plan_is_small() {
    let mut graph = Graph::new();
    let nodes: Vec<_> = (0..1_000).map(|_| add(&mut graph, CommandKind::Kernel)).collect();
    for pair in nodes.windows(2) {
        graph.make_edge(pair[0], pair[1]).unwrap();
    }
    assert!(plan(&graph, &SIGNATURE).heap_bytes() < 10_000);
}

proptest! {
    #![proptest_config(random_cases(256))]

    #[test]
    fn sets_are_equal_exactly_if_their_ids_are(
        steps in prop::collection::vec((0u32..3_000, 0usize..40, 0usize..40), 1..120),
    ) {
        let mut sets = HashConsedSets::new();
        let mut known = vec![(EMPTY_SET, BTreeSet::new())];
        for (element, a, b) in steps {
            let one = sets.singleton(element);
            known.push((one, BTreeSet::from([element])));
            let ((x, left), (y, right)) = (&known[a % known.len()], &known[b % known.len()]);
            let union = left | right;
            known.push((sets.union(*x, *y), union));
        }
        for (x, left) in &known {
            for (y, right) in &known {
                prop_assert_eq!(x == y, left == right);
            }
        }
    }
}
