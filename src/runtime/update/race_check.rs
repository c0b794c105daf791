//! Whether new accesses are ordered: what keeps an update of safe code free of data races.
//!
//! The plan orders two nodes exactly if one is reached from the other along the graph's edges.
//! Those follow from the accesses that the graph was built with, so a new one may meet another
//! node's without any edge between the two.

use std::collections::{HashMap, HashSet};

use crate::graph;
use crate::runtime::builder::command::Command;
use crate::runtime::finalize::updatable::CurrentGraph;
use crate::types::{Access, Error, ErrorKind, ResourceId, Result};

/// The new accesses of one node.
pub(super) struct Changed<'a> {
    pub(super) node: u32,
    pub(super) accesses: &'a [Access],
}

/// Checks all nodes of an update at once.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming both nodes, for two that may run at the same time.
pub(super) fn check(current: &CurrentGraph, changed: &[Changed<'_>]) -> Result<()> {
    let nodes: HashSet<u32> = changed.iter().map(|one| one.node).collect();
    let mut by_resource: HashMap<ResourceId, Vec<(u32, Access)>> = HashMap::new();
    for one in changed {
        for access in one.accesses {
            by_resource.entry(access.resource).or_default().push((one.node, *access));
        }
    }
    for one in changed {
        let mut others: Vec<u32> = Vec::new();
        for access in one.accesses {
            if is_covered(*access, current.accesses_of(one.node as usize)) {
                continue;
            }
            others.extend(current.uses.conflicts(*access).filter(|node| !nodes.contains(node)));
            let changed = by_resource.get(&access.resource).into_iter().flatten();
            others.extend(changed.filter(|(_, theirs)| theirs.conflicts_with(access)).map(|(node, _)| *node));
        }
        others.retain(|&other| other != one.node);
        if others.is_empty() {
            continue;
        }
        let reached = reached(&current.graph, one.node);
        if let Some(&other) = others.iter().find(|&&other| !reached[other as usize]) {
            let [one, other] = [one.node, other].map(|node| current.graph.label_at(node as usize));
            let why = format!(
                "{one} would use memory that {other} uses, one of them writes, and no edge orders the two"
            );
            return Err(Error::new(ErrorKind::InvalidArgument, why).in_node(one).help(
                "finalize a graph with these arguments, so that an edge follows, or make the edge before",
            ));
        }
    }
    Ok(())
}

/// Whether an access does nothing that an earlier one of the same node, which is ordered, did not.
fn is_covered(new: Access, old: &[Access]) -> bool {
    old.iter().any(|old| {
        let within = old.resource == new.resource && old.start <= new.start && new.end <= old.end;
        within && (old.mode.writes() || !new.mode.writes())
    })
}

/// Which nodes are before or after `node`.
fn reached(graph: &graph::Graph<Command>, node: u32) -> Vec<bool> {
    let mut reached = vec![false; graph.len()];
    for forward in [true, false] {
        let mut pending = vec![node];
        while let Some(at) = pending.pop() {
            let Some(at) = graph.id_at(at as usize).and_then(|id| graph.node(id).ok()) else { continue };
            let mut visit = |next: graph::NodeId| {
                if !std::mem::replace(&mut reached[next.index()], true) {
                    pending.push(next.index() as u32);
                }
            };
            if forward {
                at.successors().for_each(&mut visit);
            } else {
                at.predecessors().for_each(&mut visit);
            }
        }
    }
    reached
}
