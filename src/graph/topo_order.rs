//! An incremental topological order, which detects a cycle when the edge that closes it is made.
//!
//! Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", ACM
//! Journal of Experimental Algorithmics 11, 2006. Every node has a rank, and every edge goes from a
//! lower to a higher one. An edge that agrees with the ranks costs nothing. One that does not, from
//! `x` down to `y`, concerns only nodes ranked between the two: those that `y` reaches and those
//! that reach `x`. If `y` reaches `x` there is a cycle; otherwise the two sets trade the ranks they
//! already hold, those that reach `x` first.
//!
//! The paper searches depth first. The order of the search does not matter to the algorithm, so
//! this one is breadth first: iterative with the result as its queue, and the cycle it finds is a
//! shortest one.

use fixedbitset::FixedBitSet;

use super::adjacency::Adjacency;

/// A topological order: a rank for each node, kept valid as edges are inserted.
#[derive(Clone, Debug, Default)]
pub(super) struct TopologicalOrder {
    ranks: Vec<u32>,
    /// Empty between searches.
    visited: FixedBitSet,
}

/// A node that the forward search has reached, and the position in the search of the node before it.
#[derive(Clone, Copy)]
struct Reached {
    node: u32,
    via: usize,
}

impl TopologicalOrder {
    /// Ranks a new node last.
    pub(super) fn push_node(&mut self) {
        // The graph has checked that the index fits.
        self.ranks.push(self.ranks.len() as u32);
    }

    /// The rank of each node: a permutation of `0..nodes`.
    #[cfg(test)]
    pub(super) fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Makes room for the edge `from -> to`, which is not in `edges` yet.
    ///
    /// # Errors
    /// The nodes of a shortest path from `to` to `from`, both included, when there is one. The
    /// order is unchanged then.
    pub(super) fn admit(&mut self, edges: &Adjacency, from: u32, to: u32) -> Result<(), Vec<u32>> {
        let (lower, upper) = (self.rank(to), self.rank(from));
        if upper < lower {
            return Ok(());
        }
        self.visited.grow(self.ranks.len());
        let after = self.reached_from(edges, to, upper)?;
        let before = self.reaching(edges, from, lower);
        self.trade_ranks(before, after);
        Ok(())
    }

    fn rank(&self, node: u32) -> u32 {
        self.ranks[node as usize]
    }

    /// All nodes that `start` reaches, ranked no higher than `upper`, unless the one that holds
    /// `upper` is among them.
    fn reached_from(&mut self, edges: &Adjacency, start: u32, upper: u32) -> Result<Vec<u32>, Vec<u32>> {
        let mut found = vec![Reached { node: start, via: 0 }];
        let mut cycle = None;
        let mut at = 0;
        'search: while let Some(&Reached { node, .. }) = found.get(at) {
            for next in edges.successors(node) {
                let rank = self.rank(next);
                if rank == upper {
                    cycle = Some(path(&found, at, next));
                    break 'search;
                }
                if rank < upper && !self.visited.put(next as usize) {
                    found.push(Reached { node: next, via: at });
                }
            }
            at += 1;
        }
        let found: Vec<u32> = found.into_iter().map(|reached| reached.node).collect();
        self.forget(&found);
        cycle.map_or(Ok(found), Err)
    }

    /// All nodes that reach `start`, ranked no lower than `lower`.
    fn reaching(&mut self, edges: &Adjacency, start: u32, lower: u32) -> Vec<u32> {
        let mut found = vec![start];
        let mut at = 0;
        while let Some(&node) = found.get(at) {
            for next in edges.predecessors(node) {
                if self.rank(next) > lower && !self.visited.put(next as usize) {
                    found.push(next);
                }
            }
            at += 1;
        }
        self.forget(&found);
        found
    }

    fn forget(&mut self, visited: &[u32]) {
        for &node in visited {
            self.visited.remove(node as usize);
        }
    }

    /// Reassigns the ranks of both sets: `before` first, each set in its old order.
    fn trade_ranks(&mut self, mut before: Vec<u32>, mut after: Vec<u32>) {
        before.sort_unstable_by_key(|&node| self.rank(node));
        after.sort_unstable_by_key(|&node| self.rank(node));
        let nodes = || before.iter().chain(&after).copied();
        let mut pool: Vec<u32> = nodes().map(|node| self.rank(node)).collect();
        pool.sort_unstable();
        for (node, rank) in nodes().zip(pool) {
            self.ranks[node as usize] = rank;
        }
    }
}

/// The path of the search from its start to the node at position `at`, and one step on to `last`.
fn path(found: &[Reached], mut at: usize, last: u32) -> Vec<u32> {
    let mut nodes = vec![last, found[at].node];
    while at != 0 {
        at = found[at].via;
        nodes.push(found[at].node);
    }
    nodes.reverse();
    nodes
}
