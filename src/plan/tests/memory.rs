//! Memory plans of transient buffers.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::cases::cases;
use super::properties::any_options;
use super::*;
use crate::plan::Transient;
use crate::plan::memory_plan::MemoryPlanLimits;

const ALIGNMENT: usize = 256;

/// For each planned node, the nodes that the plan runs before it.
fn before(plan: &Plan) -> BTreeMap<u32, BTreeSet<u32>> {
    let mut all: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (index, partition) in plan.partitions().iter().enumerate() {
        let mut entry = BTreeSet::new();
        for &earlier in plan.predecessors(index) {
            for node in plan.nodes(earlier as usize) {
                entry.insert(*node);
                entry.extend(&all[node]);
            }
        }
        for (position, &node) in plan.nodes(index).iter().enumerate() {
            let mut set = entry.clone();
            let waits = plan.waits(index, position).iter().map(|&at| at as usize);
            let in_order = if partition.in_order { 0..position } else { 0..0 };
            for earlier in waits.chain(in_order).map(|at| plan.nodes(index)[at]) {
                set.insert(earlier);
                set.extend(&all[&earlier]);
            }
            all.insert(node, set);
        }
    }
    all
}

/// The device nodes of a plan and their devices.
fn device_nodes(plan: &Plan) -> Vec<(u32, DeviceId)> {
    let partitions = plan.partitions().iter().enumerate();
    let on_device = partitions.filter_map(|(index, partition)| Some((index, partition.kind.device()?)));
    on_device.flat_map(|(index, device)| plan.nodes(index).iter().map(move |&node| (node, device))).collect()
}

/// Limits so low that small graphs reach them.
fn any_limits() -> impl Strategy<Value = MemoryPlanLimits> {
    let largest_first = prop_oneof![Just(0), Just(usize::MAX)];
    (1usize..8, largest_first, 1usize..8).prop_map(|(chains, largest_first, free_blocks)| MemoryPlanLimits {
        chains,
        clocks: usize::MAX,
        largest_first,
        free_blocks,
    })
}

proptest! {
    #![proptest_config(random_cases(800))]

    #[test]
    fn buffers_in_use_together_do_not_overlap(
        case in cases(3),
        options in any_options(),
        wanted in prop::collection::vec(
            (1usize..2000, prop::collection::vec(any::<prop::sample::Index>(), 0..4)), 0..90),
        limits in any_limits(),
    ) {
        let plan = case.plan(&options);
        let nodes = device_nodes(&plan);
        prop_assume!(!nodes.is_empty());
        let transients: Vec<Transient> = wanted
            .iter()
            .map(|(bytes, uses)| {
                let uses: Vec<_> = uses.iter().map(|index| nodes[index.index(nodes.len())]).collect();
                let device = uses.first().map_or(nodes[0].1, |(_, device)| *device);
                Transient { device, bytes: *bytes, uses: uses.into_iter().map(|(node, _)| node).collect() }
            })
            .collect();
        let memory = plan.plan_memory_within(&transients, ALIGNMENT, limits);
        let before = before(&plan);
        let first = |a: &Transient, b: &Transient| {
            b.uses.iter().all(|late| a.uses.iter().all(|early| before[late].contains(early)))
        };
        let all = transients.iter().zip(memory.offsets());
        let used: Vec<_> = all.filter(|(transient, _)| !transient.uses.is_empty()).collect();
        for (at, (a, start)) in used.iter().enumerate() {
            prop_assert!(start.is_multiple_of(ALIGNMENT));
            let size = memory.sizes().iter().find(|size| size.device == a.device).unwrap();
            prop_assert!(*start + a.bytes <= size.bytes);
            for (b, other) in &used[..at] {
                let overlap = **start < **other + b.bytes && **other < **start + a.bytes;
                if a.device == b.device && overlap {
                    prop_assert!(first(a, b) || first(b, a), "{a:?} and {b:?} share memory");
                }
            }
        }
        for size in memory.sizes() {
            let own = used.iter().filter(|(t, _)| t.device == size.device);
            let unshared: usize = own.clone().map(|(t, _)| t.bytes.next_multiple_of(ALIGNMENT)).sum();
            prop_assert_eq!(size.unshared, unshared);
            prop_assert!(size.bytes <= unshared);
            prop_assert!(size.bytes >= own.map(|(t, _)| t.bytes).max().unwrap());
        }
    }
}

/// Plans buffers with these sizes and uses on a graph from words, and checks offsets and total in units of
/// the alignment.
#[track_caller]
fn assert_places(nodes: &str, paths: &str, buffers: &[(usize, &str)], offsets: &[usize], total: usize) {
    let (graph, names) = graph(nodes, paths);
    let plan = plan(&graph, &SIGNATURE);
    let number = |name: &str| names.iter().position(|known| known == name).unwrap() as u32;
    let transients: Vec<_> = buffers
        .iter()
        .map(|(units, uses)| Transient {
            device: DeviceId::from_raw(0),
            bytes: units * ALIGNMENT,
            uses: uses.split_whitespace().map(number).collect(),
        })
        .collect();
    let memory = plan.plan_memory(&transients, ALIGNMENT);
    let found: Vec<_> = memory.offsets().iter().map(|offset| offset / ALIGNMENT).collect();
    assert_eq!(found, offsets);
    assert_eq!(memory.sizes().iter().map(|size| size.bytes / ALIGNMENT).sum::<usize>(), total);
}

#[test]
fn every_other_buffer_of_a_chain_shares_memory() {
    let buffers = [(4, "A B"), (4, "B C"), (4, "C D"), (4, "D E")];
    assert_places("A B C D E", "A>B>C>D>E", &buffers, &[0, 4, 0, 4], 8);
}

#[test]
fn branches_do_not_share_but_their_join_does() {
    let buffers = [(4, "A B"), (4, "A C"), (8, "E")];
    assert_places("A B C D E", "A>B>D A>C>D D>E", &buffers, &[0, 4, 0], 8);
}

#[test]
fn sharing_across_partitions_follows_their_order() {
    // B runs on another device, C behind it.
    assert_places("A B@1 C", "A>B>C", &[(2, "A B"), (2, "C")], &[0, 0], 2);
    assert_places("A H! C", "A>H>C", &[(2, "A"), (2, "C")], &[0, 0], 2);
    // Nothing orders A and C.
    assert_places("A H! C", "H>C", &[(2, "A"), (2, "C")], &[0, 2], 4);
}

#[test]
fn a_buffer_takes_the_smallest_gap_that_fits() {
    // Those of A and B leave gaps of 7 and 5 for what comes later.
    let buffers = [(8, "A B C"), (7, "A B"), (6, "A B C"), (5, "A B"), (4, "A B C"), (4, "C")];
    assert_places("A B C", "A>B>C", &buffers, &[0, 8, 15, 21, 26, 21], 30);
}

#[test]
fn an_unused_buffer_takes_no_memory() {
    assert_places("A", "", &[(4, ""), (2, "A")], &[0, 0], 2);
    let (graph, _) = graph("A", "");
    assert_eq!(plan(&graph, &SIGNATURE).plan_memory(&[], ALIGNMENT).sizes(), []);
}

// U --> E --> D      Z --> E      U --> V --> D
#[test]
fn a_use_outside_the_chains_lasts_until_a_later_chain_node() {
    let (graph, names) = graph("U Z E V D", "U>E Z>E U>V E>D V>D");
    let plan = plan(&graph, &SIGNATURE);
    let number = |name: &str| names.iter().position(|known| known == name).unwrap() as u32;
    let transients = ["U E", "Z", "V", "D"].map(|uses| Transient {
        device: DeviceId::from_raw(0),
        bytes: ALIGNMENT,
        uses: uses.split_whitespace().map(number).collect(),
    });
    // U and E are the only chain. Nothing orders Z and V.
    let limits = MemoryPlanLimits { chains: 1, clocks: usize::MAX, largest_first: 0, free_blocks: 8 };
    let memory = plan.plan_memory_within(&transients, ALIGNMENT, limits);
    assert_eq!(memory.offsets().iter().map(|offset| offset / ALIGNMENT).collect::<Vec<_>>(), [0, 1, 2, 0]);
}

#[test]
fn many_buffers_share_too() {
    let (graph, _) = graph("A B", "A>B");
    let transient =
        |index: u32| Transient { device: DeviceId::from_raw(0), bytes: ALIGNMENT, uses: vec![index % 2] };
    const COUNT: u32 = if cfg!(miri) { 200 } else { 10_000 };
    let transients: Vec<_> = (0..COUNT).map(transient).collect();
    let memory = plan(&graph, &SIGNATURE).plan_memory(&transients, ALIGNMENT);
    assert_eq!(memory.sizes()[0].bytes, COUNT as usize / 2 * ALIGNMENT);
    assert_eq!(memory.sizes()[0].unshared, COUNT as usize * ALIGNMENT);
}

/// Blocks of `wide` chains of ten nodes between two joins. Each node hands a buffer on to the next.
///
/// ```text
///   /--> n --> .. --> n --\   /--> ..
/// J ---> n --> .. --> n ---> J
///   \--> n --> .. --> n --/   \--> ..
/// ```
#[test]
#[cfg_attr(miri, ignore = "takes more than 4096 buffers, an hour under Miri")]
fn parallel_chains_share_memory_after_each_join() {
    const WIDE: u32 = 50;
    let mut graph = Graph::<()>::new();
    let mut transients = Vec::new();
    let mut add = || graph.add(CommandKind::Kernel, DeviceId::from_raw(0), Content::Command(()), &[]);
    let mut edges = Vec::new();
    let mut join = add();
    for _ in 0..12 {
        let mut ends = Vec::new();
        for _ in 0..WIDE {
            let mut last = join;
            for _ in 0..10 {
                let node = add();
                edges.push((last, node));
                last = node;
            }
            ends.push(last);
        }
        join = add();
        edges.extend(ends.into_iter().map(|end| (end, join)));
    }
    for &(from, to) in &edges {
        graph.make_edge(from, to).unwrap();
        let uses = [from, to].map(|node| node.index() as u32).to_vec();
        transients.push(Transient { device: DeviceId::from_raw(0), bytes: ALIGNMENT, uses });
    }
    assert!(transients.len() > 4096);
    let memory = plan(&graph, &SIGNATURE).plan_memory(&transients, ALIGNMENT);
    assert_eq!(memory.sizes()[0].bytes, 2 * WIDE as usize * ALIGNMENT);
}

#[test]
fn a_long_chain_needs_no_more_than_its_live_buffers() {
    // A chain of nodes; every buffer is used by 40 in a row, and one by all.
    const NODES: u32 = if cfg!(miri) { 200 } else { 20_000 };
    let mut graph = Graph::<()>::new();
    let mut last: Option<NodeId> = None;
    for _ in 0..NODES {
        let node = graph.add(CommandKind::Kernel, DeviceId::from_raw(0), Content::Command(()), &[]);
        if let Some(last) = last {
            graph.make_edge(last, node).unwrap();
        }
        last = Some(node);
    }
    let plan = plan(&graph, &SIGNATURE);
    let transient = |uses| Transient { device: DeviceId::from_raw(0), bytes: ALIGNMENT, uses };
    let mut transients: Vec<_> =
        (0..NODES / 5).map(|index| transient((index * 5..(index * 5 + 40).min(NODES)).collect())).collect();
    transients.push(transient((0..NODES).collect()));
    let memory = plan.plan_memory(&transients, ALIGNMENT);
    assert_eq!(memory.sizes()[0].bytes, 9 * ALIGNMENT);
}
