//! Tells which uses run before which, in every order that a plan allows.
//!
//! The nodes that use buffers are grouped into *chains*, in which each node runs after the one
//! before it. The *vector clock* of a node has, for each chain, the number of its nodes that run no
//! later than that node, so it tells exactly what comes before it. There are at most
//! [`MemoryPlanLimits::chains`] chains. A use outside the chains counts as a use by a later node on
//! a chain: a buffer may then seem to be in use for longer than it is, never for less.
//!
//! The time is proportional to the number of nodes, edges and uses, times the number of chains.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{Lifetime, MemoryPlanLimits};
use crate::plan::Plan;

/// Positions on chains: the chain, and the node's number there, starting at 1. Each chain occurs once.
pub(super) type ChainPositions = SmallVec<[(u32, u32); 2]>;

/// Whether all of these nodes have run according to a clock.
pub(super) fn is_over(positions: &ChainPositions, clock: &[u32]) -> bool {
    positions.iter().all(|&(chain, number)| clock.get(chain as usize).is_some_and(|&count| number <= count))
}

/// Keeps the last node of each chain.
pub(super) fn keep_latest(positions: &mut ChainPositions) {
    positions.sort_unstable_by_key(|&(chain, number)| (chain, Reverse(number)));
    positions.dedup_by_key(|&mut (chain, _)| chain);
}

/// The nodes (by rank) of the same partition that a node waits for.
fn waits(plan: &Plan, partition: usize, position: usize) -> impl Iterator<Item = usize> + '_ {
    let first = plan.nodes.start(partition);
    let last = (plan.partitions[partition].in_order && position > 0).then(|| first + position - 1);
    plan.waits.get(first + position).iter().map(move |&at| first + at as usize).chain(last)
}

/// For each rank, whether another node comes after it.
fn followed(plan: &Plan) -> Vec<bool> {
    let mut followed = vec![false; plan.nodes.items().len()];
    for partition in 0..plan.partitions.len() {
        let first = plan.nodes.start(partition);
        let count = plan.nodes(partition).len();
        if !plan.successors(partition).is_empty() {
            followed[first..first + count].fill(true);
            continue;
        }
        for position in 0..count {
            waits(plan, partition, position).for_each(|earlier| followed[earlier] = true);
        }
    }
    followed
}

/// The order of the uses of buffers.
pub(super) struct UseOrder {
    /// For each rank, the chain position after which a use by that node has ended.
    positions: Vec<(u32, u32)>,
    clocks: VectorClocks,
}

/// Not on a chain.
const NONE: u32 = u32::MAX;
/// The position of a use that is never over.
const NEVER: (u32, u32) = (0, u32::MAX);
/// This many chains are allowed however large the plan is.
const FEW_CHAINS: usize = 8;

impl UseOrder {
    pub(super) fn new(plan: &Plan, lifetimes: &[Lifetime<'_>], limits: MemoryPlanLimits) -> Self {
        let followed = followed(plan);
        // A node without successors is never over before another use, and needs no chain.
        let mut is_source = vec![false; followed.len()];
        for &rank in lifetimes.iter().flat_map(|lifetime| &lifetime.uses) {
            is_source[rank as usize] = followed[rank as usize];
        }
        let rows = followed.len() + plan.partitions.len();
        let affordable = limits.clocks.checked_div(rows).unwrap_or(0).max(FEW_CHAINS);
        let mut chains = Chains { ends: Vec::new(), most: affordable.min(limits.chains) };
        let mut clocks = VectorClocks { values: Vec::new(), starts: vec![0] };
        let mut positions = vec![(NONE, 0); followed.len()];
        // For each partition, a clock that comes after all its nodes.
        let mut over: Vec<Vec<u32>> = Vec::with_capacity(plan.partitions.len());
        for partition in 0..plan.partitions.len() {
            let mut entry = Vec::new();
            for &earlier in plan.predecessors(partition) {
                advance(&mut entry, &over[earlier as usize]);
            }
            let mut all = entry.clone();
            let mut clock = Vec::new();
            for position in 0..plan.nodes(partition).len() {
                let rank = plan.nodes.start(partition) + position;
                clock.clear();
                clock.extend_from_slice(&entry);
                for earlier in waits(plan, partition, position) {
                    advance(&mut clock, clocks.of(earlier));
                }
                if is_source[rank] {
                    positions[rank] = chains.put(rank as u32, &mut clock);
                }
                advance(&mut all, &clock);
                clocks.push(&clock);
            }
            over.push(all);
        }
        if positions.iter().zip(&is_source).any(|(position, is_source)| *is_source && position.0 == NONE) {
            move_to_chains(plan, &mut positions);
        }
        Self { positions, clocks }
    }

    /// The chain positions after which the uses with these ranks have ended.
    pub(super) fn after(&self, uses: &[u32]) -> ChainPositions {
        let position = |&rank: &u32| match self.positions[rank as usize] {
            (NONE, _) => NEVER,
            position => position,
        };
        let mut after: ChainPositions = uses.iter().map(position).collect();
        keep_latest(&mut after);
        after
    }

    /// A clock of the nodes that have run before each of these uses, or that are among them.
    pub(super) fn ready(&self, uses: &[u32]) -> Vec<u32> {
        let mut clocks = uses.iter().map(|&rank| self.clocks.of(rank as usize));
        let mut ready = clocks.next().unwrap_or_default().to_vec();
        for clock in clocks {
            ready.truncate(clock.len());
            ready.iter_mut().zip(clock).for_each(|(ready, &clock)| *ready = clock.min(*ready));
        }
        ready
    }
}

/// The vector clock of each rank: how many nodes of each chain have run when that node has. Trailing zeros
/// are left out.
struct VectorClocks {
    values: Vec<u32>,
    starts: Vec<usize>,
}

impl VectorClocks {
    fn of(&self, rank: usize) -> &[u32] {
        &self.values[self.starts[rank]..self.starts[rank + 1]]
    }

    fn push(&mut self, clock: &[u32]) {
        self.values.extend_from_slice(clock);
        self.starts.push(self.values.len());
    }
}

/// Advances a clock so that it comes after another.
fn advance(clock: &mut Vec<u32>, other: &[u32]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    clock.iter_mut().zip(other).for_each(|(clock, &other)| *clock = other.max(*clock));
}

/// The chains so far.
struct Chains {
    /// For each chain, the rank of its last node and the number of its nodes.
    ends: Vec<(u32, u32)>,
    most: usize,
}

impl Chains {
    /// Appends a node to the chain with the latest end that it comes after, or to a new chain, and advances
    /// its clock.
    fn put(&mut self, rank: u32, clock: &mut Vec<u32>) -> (u32, u32) {
        let comes_after = |&(chain, (_, count)): &(usize, (u32, u32))| clock.get(chain) == Some(&count);
        let behind =
            self.ends.iter().copied().enumerate().filter(comes_after).max_by_key(|(_, (end, _))| *end);
        let chain = match behind {
            Some((chain, _)) => chain,
            None if self.ends.len() < self.most => {
                self.ends.push((rank, 0));
                self.ends.len() - 1
            }
            None => return (NONE, 0),
        };
        let end = &mut self.ends[chain];
        *end = (rank, end.1 + 1);
        if clock.len() <= chain {
            clock.resize(chain + 1, 0);
        }
        clock[chain] = end.1;
        (chain as u32, end.1)
    }
}

/// Gives every node outside the chains the position of the next node on a chain.
fn move_to_chains(plan: &Plan, positions: &mut [(u32, u32)]) {
    let mut next: Vec<u32> =
        (0..).zip(&*positions).map(|(rank, &(chain, _))| if chain == NONE { NONE } else { rank }).collect();
    for partition in (0..plan.partitions.len()).rev() {
        let first = plan.nodes.start(partition);
        let behind = plan.successors(partition).iter().map(|&later| next[plan.nodes.start(later as usize)]);
        let behind = behind.min().unwrap_or(NONE);
        for position in (0..plan.nodes(partition).len()).rev() {
            let rank = first + position;
            if next[rank] == NONE {
                next[rank] = behind;
            }
            for earlier in waits(plan, partition, position) {
                next[earlier] = next[earlier].min(next[rank]);
            }
        }
    }
    for rank in 0..positions.len() {
        if positions[rank].0 == NONE && next[rank] != NONE {
            positions[rank] = positions[next[rank] as usize];
        }
    }
}
