//! The edges of a graph, and the neighbours of its nodes, in compact form.
//!
//! All edges lie in one flat vector in insertion order. Each is a link in two circular lists, the
//! edges out of its `from` and the edges into its `to`; a node holds the last link of both, from
//! which the first is one step away. That is 16 bytes an edge and 16 a node, appends in constant
//! time, and neighbours in insertion order.
//!
//! Nodes and edges are only ever added. Nodes are identified by index.

/// No edge.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Edge {
    from: u32,
    to: u32,
    next_out: u32,
    next_in: u32,
}

#[derive(Clone, Copy, Debug)]
struct Ends {
    last_out: u32,
    last_in: u32,
    out_degree: u32,
    in_degree: u32,
}

/// The edges of a graph.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjacency {
    edges: Vec<Edge>,
    nodes: Vec<Ends>,
    roots: Boundary,
    leaves: Boundary,
}

impl Adjacency {
    /// Adds a node without edges.
    pub(super) fn push_node(&mut self) {
        // The graph has checked that the index fits.
        let node = self.nodes.len() as u32;
        self.nodes.push(Ends { last_out: NONE, last_in: NONE, out_degree: 0, in_degree: 0 });
        self.roots.members.push(node);
        self.leaves.members.push(node);
    }

    /// Adds a new edge.
    ///
    /// # Panics
    /// If there are 2^32 - 1 edges already.
    pub(super) fn insert(&mut self, from: u32, to: u32) {
        let edge = u32::try_from(self.edges.len()).ok().filter(|&edge| edge != NONE);
        let edge = edge.expect("a graph holds fewer than 2^32 - 1 edges");

        let source = &mut self.nodes[from as usize];
        let last_out = std::mem::replace(&mut source.last_out, edge);
        source.out_degree += 1;
        let was_leaf = source.out_degree == 1;
        let target = &mut self.nodes[to as usize];
        let last_in = std::mem::replace(&mut target.last_in, edge);
        target.in_degree += 1;
        let was_root = target.in_degree == 1;

        let next_out = match last_out {
            NONE => edge,
            last => std::mem::replace(&mut self.edges[last as usize].next_out, edge),
        };
        let next_in = match last_in {
            NONE => edge,
            last => std::mem::replace(&mut self.edges[last as usize].next_in, edge),
        };
        self.edges.push(Edge { from, to, next_out, next_in });

        if was_leaf {
            self.leaves.left(|node| self.nodes[node as usize].out_degree == 0);
        }
        if was_root {
            self.roots.left(|node| self.nodes[node as usize].in_degree == 0);
        }
    }

    /// Whether the edge exists. Walks the shorter of the two lists that would contain it.
    pub(super) fn contains(&self, from: u32, to: u32) -> bool {
        if self.nodes[from as usize].out_degree <= self.nodes[to as usize].in_degree {
            self.successors(from).any(|node| node == to)
        } else {
            self.predecessors(to).any(|node| node == from)
        }
    }

    pub(super) fn successors(&self, node: u32) -> Neighbours<'_, true> {
        let ends = self.nodes[node as usize];
        Neighbours { edges: &self.edges, last: ends.last_out, left: ends.out_degree }
    }

    pub(super) fn predecessors(&self, node: u32) -> Neighbours<'_, false> {
        let ends = self.nodes[node as usize];
        Neighbours { edges: &self.edges, last: ends.last_in, left: ends.in_degree }
    }

    /// Nodes without a predecessor, in insertion order.
    pub(super) fn roots(&self) -> impl Iterator<Item = u32> + Clone + '_ {
        self.roots.members.iter().copied().filter(|&node| self.nodes[node as usize].in_degree == 0)
    }

    /// Nodes without a successor, in insertion order.
    pub(super) fn leaves(&self) -> impl DoubleEndedIterator<Item = u32> + Clone + '_ {
        self.leaves.members.iter().copied().filter(|&node| self.nodes[node as usize].out_degree == 0)
    }

    /// All edges in insertion order.
    pub(super) fn edges(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + Clone + '_ {
        self.edges.iter().map(|edge| (edge.from, edge.to))
    }
}

/// The successors (`OUT`) or predecessors of a node.
#[derive(Clone, Debug)]
pub(super) struct Neighbours<'a, const OUT: bool> {
    edges: &'a [Edge],
    last: u32,
    left: u32,
}

impl<const OUT: bool> Iterator for Neighbours<'_, OUT> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let last = &self.edges[self.last as usize];
        self.last = if OUT { last.next_out } else { last.next_in };
        let edge = &self.edges[self.last as usize];
        Some(if OUT { edge.to } else { edge.from })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl<const OUT: bool> ExactSizeIterator for Neighbours<'_, OUT> {}

/// The roots or the leaves: every node starts as a member, leaves at most once and never returns.
///
/// Members that have left stay in the vector until they are the majority. So both a departure and a
/// step of an iteration over those who are left are constant time, amortised.
#[derive(Clone, Debug, Default)]
struct Boundary {
    members: Vec<u32>,
    stale: usize,
}

impl Boundary {
    /// Below this many stale members a compaction saves nothing.
    const FEW: usize = 16;

    fn left(&mut self, is_member: impl Fn(u32) -> bool) {
        self.stale += 1;
        if self.stale > Self::FEW && self.stale > self.members.len() / 2 {
            self.members.retain(|&node| is_member(node));
            self.stale = 0;
        }
    }
}
