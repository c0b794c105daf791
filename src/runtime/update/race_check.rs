//! Whether new accesses are ordered: what keeps an update of safe code free of data races.
//!
//! The plan orders two nodes exactly if one is reached from the other along the graph's edges.
//! Those follow from the accesses that the graph was built with, so a new one may meet another
//! node's without any edge between the two.

use std::collections::HashMap;

use crate::graph;
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::finalize::updatable::CurrentGraph;
use crate::types::{Access, Error, ErrorKind, ResourceId, Result};

/// The new accesses of one node.
pub(super) struct Changed<'a> {
    pub(super) node: Origin,
    pub(super) accesses: &'a [Access],
}

/// Checks all nodes of an update at once.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), naming both nodes, for two that may run at the same time.
pub(super) fn check(current: &CurrentGraph, changed: &[Changed<'_>]) -> Result<()> {
    let mut reachability = Reachability::default();
    let mut index = None;
    for one in changed {
        let mut others: Vec<Origin> = Vec::new();
        for access in one.accesses {
            if is_covered(*access, current.accesses_of(one.node)) {
                continue;
            }
            let by_resource = index.get_or_insert_with(|| Index::of(changed));
            others
                .extend(current.uses.conflicts(*access).filter(|node| !by_resource.nodes.contains_key(node)));
            others.extend(by_resource.conflicts(*access));
        }
        others.retain(|&other| other != one.node);
        let is_unordered = |&&other: &&Origin| !reachability.orders(current, one.node, other);
        if let Some(&other) = others.iter().find(is_unordered) {
            let [one, other] = [one.node, other].map(|node| current.label(node));
            return Err(unordered(&one, &other));
        }
    }
    Ok(())
}

/// Checks changed nodes, given with the accesses that they had before, among all nodes of one graph. An
/// update of nodes inside a body is checked so in each graph around them.
///
/// # Errors
/// As for [`check`].
pub(super) fn check_within(
    graph: &graph::Graph<Command>,
    changed: impl IntoIterator<Item = (u32, Vec<Access>)>,
) -> Result<()> {
    for (node, before) in changed {
        let new = |access: &&Access| !is_covered(**access, &before);
        let mut ordered = None;
        for access in graph.accesses_at(node as usize).iter().filter(new) {
            let conflicts = |other: &u32| {
                let theirs = graph.accesses_at(*other as usize);
                *other != node && theirs.iter().any(|theirs| theirs.conflicts_with(access))
            };
            for other in (0..graph.len() as u32).filter(conflicts) {
                if !ordered.get_or_insert_with(|| reached(graph, node))[other as usize] {
                    let [one, other] = [node, other].map(|node| graph.label_at(node as usize));
                    return Err(unordered(&one, &other));
                }
            }
        }
    }
    Ok(())
}

#[cold]
fn unordered(one: &str, other: &str) -> Error {
    let why =
        format!("{one} would use memory that {other} uses, one of them writes, and no edge orders the two");
    Error::new(ErrorKind::InvalidArgument, why)
        .in_node(one)
        .help("finalize a graph with these arguments, so that an edge follows, or make the edge before")
}

/// The new accesses of all changed nodes.
struct Index {
    nodes: HashMap<Origin, ()>,
    by_resource: HashMap<ResourceId, Vec<(Origin, Access)>>,
}

impl Index {
    fn of(changed: &[Changed<'_>]) -> Self {
        let mut by_resource: HashMap<ResourceId, Vec<(Origin, Access)>> = HashMap::new();
        for one in changed {
            for access in one.accesses {
                by_resource.entry(access.resource).or_default().push((one.node, *access));
            }
        }
        Self { nodes: changed.iter().map(|one| (one.node, ())).collect(), by_resource }
    }

    fn conflicts(&self, access: Access) -> impl Iterator<Item = Origin> + '_ {
        let users = self.by_resource.get(&access.resource).into_iter().flatten();
        users.filter(move |(_, theirs)| theirs.conflicts_with(&access)).map(|(node, _)| *node)
    }
}

/// Whether an access does nothing that an earlier one of the same node, which is ordered, did not.
fn is_covered(new: Access, old: &[Access]) -> bool {
    old.iter().any(|old| {
        let within = old.resource == new.resource && old.start <= new.start && new.end <= old.end;
        within && (old.mode.writes() || !new.mode.writes())
    })
}

/// Which nodes of a graph are before or after one of them, for the nodes that were asked about. The newest
/// answer is last, as it is mostly asked for again.
#[derive(Default)]
struct Reachability(Vec<(Origin, Vec<bool>)>);

impl Reachability {
    /// Whether the edges put one of the two before the other. Edges of a sub-graph node hold for all
    /// nodes inside it, so the graph decides in which the ways to the two nodes part.
    fn orders(&mut self, current: &CurrentGraph, one: Origin, other: Origin) -> bool {
        let way = |node| std::iter::successors(Some(node), |at: &Origin| current.index.parent(at.instance));
        let together = way(one).find_map(|one| {
            let other = way(other).find(|other| other.instance == one.instance)?;
            Some((one, other))
        });
        together.is_some_and(|(one, other)| self.from(current, one)[other.node as usize])
    }

    fn from(&mut self, current: &CurrentGraph, node: Origin) -> &[bool] {
        let known = self.0.iter().rposition(|(known, _)| *known == node);
        let place = known.unwrap_or_else(|| {
            self.0.push((node, reached(current.graph(node), node.node)));
            self.0.len() - 1
        });
        &self.0[place].1
    }
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
