//! The check that new accesses are ordered. It keeps updates by safe code free of data races.
//!
//! The plan orders two nodes exactly if one is reached from the other along the graph's edges.
//! Those follow from the accesses that the graph was built with, so a new one may meet another
//! node's without any edge between the two.
//!
//! Of the nodes that use some bytes, only neighbours are checked: each node, with the last one before it
//! that writes them, and those that have read them since. If edges order these, they order all the others.

use std::collections::HashSet;

use smallvec::SmallVec;
use wakegraph_hal::{Access, Error, ErrorKind, ResourceId, Result};

use crate::graph::{self, AccessTracker};
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::finalize::updatable::CurrentGraph;

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
    let is_new = |one: &Changed<'_>, access: &Access| !is_covered(*access, current.accesses_of(one.node));
    let new = changed.iter().flat_map(|one| one.accesses.iter().filter(|access| is_new(one, access)));
    let touched: HashSet<ResourceId> = new.map(|access| access.resource).collect();
    if touched.is_empty() {
        return Ok(());
    }
    let nodes: HashSet<Origin> = changed.iter().map(|one| one.node).collect();
    let others = touched.iter().flat_map(|resource| current.uses.of(*resource));
    let others = others.filter(|(node, _)| !nodes.contains(node));
    let changed = changed.iter().flat_map(|one| one.accesses.iter().map(|access| (one.node, *access)));
    let changed = changed.filter(|(_, access)| touched.contains(&access.resource));
    let mut users: Vec<(Origin, Access)> = others.chain(changed).collect();
    // The plan puts each node behind those that it waits for.
    users.sort_by_key(|(node, _)| (current.index.place(*node), *node));
    let users = users.chunk_by(|(one, _), (other, _)| one == other);
    let users = users.map(|uses| (uses[0].0, uses.iter().map(|(_, access)| *access).collect()));
    let mut reachability = Reachability::default();
    let unordered = find_unordered(users, |one, other, searched| {
        let is_changed = nodes.contains(&one) || nodes.contains(&other);
        !is_changed || reachability.orders(current, one, other, searched)
    });
    unordered.map_or(Ok(()), |(one, other)| {
        let both = if nodes.contains(&other) { [other, one] } else { [one, other] };
        let [one, other] = both.map(|node| current.label(node));
        Err(unordered_error(&one, &other))
    })
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
    let (mut touched, mut nodes) = (HashSet::new(), HashSet::new());
    for (node, before) in changed {
        let new = graph.accesses_at(node as usize).iter().filter(|access| !is_covered(**access, &before));
        touched.extend(new.map(|access| access.resource));
        nodes.insert(node);
    }
    if touched.is_empty() {
        return Ok(());
    }
    let users = graph.in_order().into_iter().map(|node| {
        let accesses = graph.accesses_at(node as usize).iter().copied();
        (node, accesses.filter(|access| touched.contains(&access.resource)).collect())
    });
    let mut reachability = Reachability::default();
    let unordered = find_unordered(users, |one, other, searched| {
        let is_changed = nodes.contains(&one) || nodes.contains(&other);
        let [one, other] = [one, other].map(|node| Origin { instance: 0, node });
        !is_changed || reachability.orders_within(graph, one, other, searched)
    });
    unordered.map_or(Ok(()), |(one, other)| {
        let both = if nodes.contains(&other) { [other, one] } else { [one, other] };
        let [one, other] = both.map(|node| graph.label_at(node as usize));
        Err(unordered_error(&one, &other))
    })
}

#[cold]
fn unordered_error(one: &str, other: &str) -> Error {
    let why =
        format!("{one} would use memory that {other} uses, one of them writes, and no edge orders the two");
    Error::new(ErrorKind::InvalidArgument, why)
        .in_node(one)
        .help("finalize a graph with these arguments, so that an edge follows, or make the edge before")
}

/// Whether an access does nothing that an earlier one of the same node, which is ordered, did not.
fn is_covered(new: Access, old: &[Access]) -> bool {
    old.iter().any(|old| {
        let within = old.resource == new.resource && old.start <= new.start && new.end <= old.end;
        within && (old.mode.writes() || !new.mode.writes())
    })
}

/// Finds two nodes that conflict and are not ordered, among nodes that come each behind those that it waits
/// for. `is_ordered` is asked about neighbours only, with the one of the two that others are likely to be
/// asked about together with.
fn find_unordered<N: Copy>(
    users: impl Iterator<Item = (N, SmallVec<[Access; 2]>)>,
    mut is_ordered: impl FnMut(N, N, Searched) -> bool,
) -> Option<(N, N)> {
    let (mut tracker, mut nodes) = (AccessTracker::default(), Vec::new());
    for (node, accesses) in users {
        let earlier = tracker.record(nodes.len() as u32, &accesses);
        let searched = if earlier.len() > 1 { Searched::Later } else { Searched::Earlier };
        for &one in earlier {
            let one = nodes[one as usize];
            if !is_ordered(one, node, searched) {
                return Some((one, node));
            }
        }
        nodes.push(node);
    }
    None
}

/// The node of two to search from.
#[derive(Clone, Copy)]
enum Searched {
    Earlier,
    Later,
}

/// Nodes before or after one of them, for the nodes that were searched from last.
#[derive(Default)]
struct Reachability([Option<(Origin, Vec<bool>)>; 2]);

impl Reachability {
    /// Whether the edges put one of the two before the other. Edges of a sub-graph node hold for all
    /// nodes inside it, so the graph decides in which the ways to the two nodes part.
    fn orders(&mut self, current: &CurrentGraph, one: Origin, other: Origin, searched: Searched) -> bool {
        let (mut one, mut other) = (one, other);
        while one.instance != other.instance {
            // An instance comes behind the one that it lies in.
            let inner = if one.instance > other.instance { &mut one } else { &mut other };
            let Some(around) = current.index.parent(inner.instance) else { return false };
            *inner = around;
        }
        self.orders_within(current.graph(one), one, other, searched)
    }

    /// Returns whether edges order two nodes of one graph.
    fn orders_within(
        &mut self,
        graph: &graph::Graph<Command>,
        one: Origin,
        other: Origin,
        searched: Searched,
    ) -> bool {
        #[cfg(test)]
        tests::ASKED.set(tests::ASKED.get() + 1);
        // Nearly always: edges follow from accesses, and the nodes that an update moves often move together.
        if graph.has_edge_at(one.node, other.node) {
            return true;
        }
        let (slot, from, to) = match searched {
            Searched::Earlier => (0, one, other),
            Searched::Later => (1, other, one),
        };
        if self.0[slot].as_ref().is_none_or(|(known, _)| *known != from) {
            self.0[slot] = Some((from, reached(graph, from.node)));
        }
        self.0[slot].as_ref().is_some_and(|(_, reached)| reached[to.node as usize])
    }
}

/// Nodes before or after `node`.
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::Range;
    use crate::runtime::{Device, FinalizeOptions, Graph};

    thread_local! {
        /// About how many pairs of nodes it was asked on this thread whether they are ordered.
        pub(super) static ASKED: Cell<usize> = const { Cell::new(0) };
    }

    crate::kernel! {
        fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
        fn sum(x: &[u32], y: &mut [u32]) { item: |i, x, y| y[i] += x[i] }
    }

    const NODES: usize = 300;

    fn asked(update: impl FnOnce()) -> usize {
        let before = ASKED.get();
        update();
        ASKED.get() - before
    }

    fn block_on<F: Future>(future: F) -> F::Output {
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
    }

    #[test]
    fn an_update_of_many_nodes_compares_neighbours() {
        let device = Device::open("host:947").unwrap();
        let [x, y, z] = [(); 3].map(|()| device.buffer::<u32>(1).unwrap());
        let mut graph = Graph::new(&device);
        let memory = graph.param::<[u32]>(&x);
        // Writers, each behind the one before, and readers between the last two of them.
        for node in 0..NODES {
            if node == NODES - 1 {
                for _ in 0..NODES {
                    let own = device.buffer::<u32>(1).unwrap();
                    graph.launch(sum(&x, &own), Range::linear(1)).param("x", &memory);
                }
            }
            graph.launch(add(1, &x), Range::linear(1)).param("x", &memory);
        }
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let pairs = asked(|| block_on(exec.update().param(&memory, &y).apply()).unwrap());
        assert!((NODES..=4 * NODES).contains(&pairs), "{pairs}");
        block_on(exec.submit()).unwrap();
        assert_eq!(block_on(y.to_vec()).unwrap(), [NODES as u32]);
        // In a body, which holds the nodes' edges and nothing else.
        let flag = device.buffer_from(&[1u32]).unwrap();
        let mut outer = Graph::new(&device);
        outer.if_nonzero(&flag, &graph);
        let exec = outer.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let pairs = asked(|| block_on(exec.update().param(&memory, &z).apply()).unwrap());
        assert!((NODES..=4 * NODES).contains(&pairs), "{pairs}");
    }

    /// Two chains, of which one node of the first moves to the memory of the second.
    #[test]
    fn a_node_is_compared_with_those_that_are_no_neighbours() {
        let device = Device::open("host:948").unwrap();
        let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
        let range = Range::linear(4);
        for (at, is_ordered) in [(0, false), (4, false), (9, true)] {
            let mut graph = Graph::new(&device);
            let moved = graph.launch(add(1, &x), range).id();
            let all: Vec<_> = (0..10).map(|n| graph.launch(add(n, &y), range).id()).collect();
            graph.make_edge(all[at], moved).unwrap();
            let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
            let update = block_on(exec.update().launch(moved, add(1, &y)).apply());
            assert_eq!(update.is_ok(), is_ordered, "{update:?}");
        }
    }
}
