use proptest::prelude::*;
use wakegraph_hal::{Access, AccessMode, ResourceId};

use super::{closure, edges, kernel, read, write};
use crate::graph::Graph;

//   write --> read --> write      read-after-write, write-after-read
//       '---> read ----^
#[test]
fn readers_stand_between_two_writers() {
    let memory = ResourceId::unique();
    let mut graph = Graph::new();
    kernel(&mut graph, &[write(memory, 0, 8)]);
    kernel(&mut graph, &[read(memory, 0, 8)]);
    kernel(&mut graph, &[read(memory, 4, 8)]);
    kernel(&mut graph, &[write(memory, 0, 8)]);
    assert_eq!(edges(&graph), [(0, 1), (0, 2), (1, 3), (2, 3)]);
}

//   write [0, 4)  --.
//   write [4, 8)     '--> write [2, 4)      write-after-write on the bytes in common only
#[test]
fn disjoint_ranges_and_resources_are_independent() {
    let (memory, other) = (ResourceId::unique(), ResourceId::unique());
    let mut graph = Graph::new();
    kernel(&mut graph, &[write(memory, 0, 4)]);
    kernel(&mut graph, &[write(memory, 4, 8)]);
    kernel(&mut graph, &[write(other, 0, 8)]);
    kernel(&mut graph, &[write(memory, 2, 4)]);
    kernel(&mut graph, &[read(memory, 4, 4), write(memory, 6, 5)]);
    assert_eq!(edges(&graph), [(0, 3)]);
}

//  old --> new         before the accesses are replaced, the newer node comes first by hand
//   ^-------'
#[test]
fn replaced_accesses_keep_to_edges_by_hand() {
    let memory = ResourceId::unique();
    let mut graph = Graph::new();
    let [old, new] = [0; 2].map(|_| kernel(&mut graph, &[]));
    graph.make_edge(new, old).unwrap();
    graph.replace_accesses(old.index(), &[write(memory, 0, 8)]);
    graph.rederive_edges();
    graph.replace_accesses(new.index(), &[write(memory, 0, 8)]);
    graph.rederive_newest_edges();
    assert_eq!(edges(&graph), [(1, 0)]);
    kernel(&mut graph, &[read(memory, 0, 8)]);
    assert_eq!(edges(&graph), [(1, 0), (0, 2)], "behind the last writer");
}

/// An access to one of two resources.
type RawAccess = (usize, usize, usize, AccessMode);

fn with_resources(nodes: Vec<Vec<RawAccess>>, resources: [ResourceId; 2]) -> Vec<Vec<Access>> {
    let access =
        |(which, start, end, mode): RawAccess| Access { resource: resources[which], start, end, mode };
    nodes.into_iter().map(|accesses| accesses.into_iter().map(access).collect()).collect()
}

fn conflict(earlier: &[Access], later: &[Access]) -> bool {
    let touches = |access: &&Access| access.start < access.end;
    let mut later = later.iter().filter(touches);
    later.any(|b| earlier.iter().filter(touches).any(|a| a.conflicts_with(b)))
}

/// Accesses to a few bytes of two resources, empty and reversed ranges among them.
fn nodes() -> impl Strategy<Value = Vec<Vec<RawAccess>>> {
    let mode = prop::sample::select(vec![AccessMode::Read, AccessMode::Write, AccessMode::ReadWrite]);
    let access = (0..2usize, 0..BYTES, 0..=BYTES, mode);
    prop::collection::vec(prop::collection::vec(access, 0..4), 0..24)
}

const BYTES: usize = 12;

/// What the tracker says, worked out byte by byte: last writer, and readers since.
fn naive(nodes: &[Vec<Access>], resources: [ResourceId; 2]) -> Vec<(u32, u32)> {
    let mut edges = Vec::new();
    for resource in resources {
        for byte in 0..BYTES {
            let mut writer = None;
            let mut readers = Vec::new();
            for (node, accesses) in nodes.iter().enumerate() {
                let here = |access: &&Access| {
                    access.resource == resource && (access.start..access.end).contains(&byte)
                };
                let node = node as u32;
                let (reads, writes) = accesses.iter().filter(here).fold((false, false), |(r, w), access| {
                    (r | access.mode.reads(), w | access.mode.writes())
                });
                if reads || writes {
                    edges.extend(writer.map(|writer| (writer, node)));
                }
                if writes {
                    edges.extend(readers.drain(..).map(|reader| (reader, node)));
                    writer = Some(node);
                } else if reads {
                    readers.push(node);
                }
            }
        }
    }
    edges
}

proptest! {
    #[test]
    fn edges_are_exactly_the_conflicts(nodes in nodes()) {
        let resources = [ResourceId::unique(), ResourceId::unique()];
        let nodes = with_resources(nodes, resources);
        let mut graph = Graph::new();
        for accesses in &nodes {
            kernel(&mut graph, accesses);
        }

        let made = edges(&graph);
        let reaches = closure(nodes.len(), made.iter().copied());
        for (to, later) in nodes.iter().enumerate() {
            for (from, earlier) in nodes[..to].iter().enumerate() {
                prop_assert!(!conflict(earlier, later) || reaches[from][to], "{} {}", from, to);
            }
        }
        for &(from, to) in &made {
            let conflicts = conflict(&nodes[from as usize], &nodes[to as usize]);
            prop_assert!(from < to && conflicts, "{} {}", from, to);
        }
        let mut distinct = made.clone();
        distinct.sort_unstable();
        distinct.dedup();
        prop_assert_eq!(distinct.len(), made.len());
        prop_assert_eq!(closure(nodes.len(), naive(&nodes, resources)), reaches);
    }
    // As when dynamic parameters get other memory.
    #[test]
    fn conflicts_are_ordered_after_accesses_are_replaced(
        before in nodes(),
        after in nodes(),
        by_hand in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..12),
        more in nodes(),
    ) {
        let resources = [ResourceId::unique(), ResourceId::unique()];
        let [before, after, more] = [before, after, more].map(|nodes| with_resources(nodes, resources));
        let mut graph = Graph::new();
        let ids: Vec<_> = before.iter().map(|accesses| kernel(&mut graph, accesses)).collect();
        for (from, to) in by_hand.iter().filter(|_| !ids.is_empty()) {
            let _ = graph.make_edge(ids[from.index(ids.len())], ids[to.index(ids.len())]);
        }
        let old = edges(&graph);
        let mut now = before.clone();
        for (index, accesses) in after.into_iter().enumerate().take(before.len()) {
            graph.replace_accesses(index, &accesses);
            now[index] = accesses;
            if index + 1 == before.len() {
                graph.rederive_newest_edges();
            } else {
                graph.rederive_edges();
            }
        }
        prop_assert!(edges(&graph).starts_with(&old));
        for accesses in more {
            kernel(&mut graph, &accesses);
            now.push(accesses);
        }
        let reaches = closure(now.len(), edges(&graph));
        let ranks = graph.topological_ranks().unwrap();
        for (from, to) in graph.edges() {
            prop_assert!(ranks[from as usize] < ranks[to as usize]);
        }
        prop_assert!(!graph.is_insertion_ordered() || graph.edges().all(|(from, to)| from < to));
        for (two, later) in now.iter().enumerate() {
            for (one, earlier) in now[..two].iter().enumerate() {
                let is_ordered = reaches[one].contains(two) || reaches[two].contains(one);
                prop_assert!(is_ordered || !conflict(earlier, later), "{} {}", one, two);
            }
        }
    }
}
