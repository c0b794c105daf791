//! Which node runs before which, in every order that a plan allows.
//!
//! The nodes that use buffers are gathered into *chains*, in each of which every node runs after the one
//! before it. A node's *clock* says of each chain how many of its nodes have run when that node has, which
//! tells exactly what comes before it. There are at most [`Limits::chains`] chains. A use on none counts as
//! one of a later node that is on one: a buffer may then seem to be needed for longer than it is, never for
//! less.
//!
//! It takes time in proportion to the nodes, edges and uses, times the chains.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{Life, Limits};
use crate::plan::Plan;

/// Nodes on chains: the chain, and the node's number there, from 1 on. Each chain once.
pub(super) type Moments = SmallVec<[(u32, u32); 2]>;

/// Whether all of these nodes have run, by a clock.
pub(super) fn is_over(moments: &Moments, clock: &[u32]) -> bool {
    moments.iter().all(|&(chain, number)| clock.get(chain as usize).is_some_and(|&count| number <= count))
}

/// Keeps the last node of each chain.
pub(super) fn keep_latest(moments: &mut Moments) {
    moments.sort_unstable_by_key(|&(chain, number)| (chain, Reverse(number)));
    moments.dedup_by_key(|&mut (chain, _)| chain);
}

/// By rank: the nodes of the same partition that one waits for.
fn waits(plan: &Plan, partition: usize, position: usize) -> impl Iterator<Item = usize> + '_ {
    let first = plan.nodes.start(partition);
    let last = (plan.partitions[partition].in_order && position > 0).then(|| first + position - 1);
    plan.waits.get(first + position).iter().map(move |&at| first + at as usize).chain(last)
}

/// By rank: whether some node comes after it.
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

/// Which node runs before which.
pub(super) struct Order {
    /// By rank: after which moment a use there is over.
    moments: Vec<(u32, u32)>,
    clocks: Clocks,
}

/// No chain.
const NONE: u32 = u32::MAX;
/// Never over.
const NEVER: (u32, u32) = (0, u32::MAX);
/// There may be as many chains, however large the plan is.
const FEW_CHAINS: usize = 8;

impl Order {
    pub(super) fn new(plan: &Plan, lives: &[Life<'_>], limits: Limits) -> Self {
        let followed = followed(plan);
        // What nothing comes after is never over for another use, and needs no chain.
        let mut is_source = vec![false; followed.len()];
        for &rank in lives.iter().flat_map(|life| &life.uses) {
            is_source[rank as usize] = followed[rank as usize];
        }
        let rows = followed.len() + plan.partitions.len();
        let affordable = limits.clocks.checked_div(rows).unwrap_or(0).max(FEW_CHAINS);
        let mut chains = Chains { ends: Vec::new(), most: affordable.min(limits.chains) };
        let mut clocks = Clocks { values: Vec::new(), starts: vec![0] };
        let mut moments = vec![(NONE, 0); followed.len()];
        // By partition: a clock that is behind all its nodes.
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
                    moments[rank] = chains.put(rank as u32, &mut clock);
                }
                advance(&mut all, &clock);
                clocks.push(&clock);
            }
            over.push(all);
        }
        if moments.iter().zip(&is_source).any(|(moment, is_source)| *is_source && moment.0 == NONE) {
            move_to_chains(plan, &mut moments);
        }
        Self { moments, clocks }
    }

    /// After which moments uses, by their ranks, are over.
    pub(super) fn after(&self, uses: &[u32]) -> Moments {
        let moment = |&rank: &u32| match self.moments[rank as usize] {
            (NONE, _) => NEVER,
            moment => moment,
        };
        let mut after: Moments = uses.iter().map(moment).collect();
        keep_latest(&mut after);
        after
    }

    /// A clock of what has run before each of these uses, and of some of the uses themselves.
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

/// By rank, the clock of each node: how many nodes of each chain have run when it has. It ends where zeroes
/// follow.
struct Clocks {
    values: Vec<u32>,
    starts: Vec<usize>,
}

impl Clocks {
    fn of(&self, rank: usize) -> &[u32] {
        &self.values[self.starts[rank]..self.starts[rank + 1]]
    }

    fn push(&mut self, clock: &[u32]) {
        self.values.extend_from_slice(clock);
        self.starts.push(self.values.len());
    }
}

/// Lets a clock come after another.
fn advance(clock: &mut Vec<u32>, other: &[u32]) {
    if clock.len() < other.len() {
        clock.resize(other.len(), 0);
    }
    clock.iter_mut().zip(other).for_each(|(clock, &other)| *clock = other.max(*clock));
}

/// The chains so far.
struct Chains {
    /// By chain: the rank of its last node, and how many nodes there are.
    ends: Vec<(u32, u32)>,
    most: usize,
}

impl Chains {
    /// Puts a node behind the latest end of a chain that it comes after, or on a chain of its own, and says
    /// so in its clock.
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

/// Puts the next node on a chain in the place of every node that is on none.
fn move_to_chains(plan: &Plan, moments: &mut [(u32, u32)]) {
    let mut next: Vec<u32> =
        (0..).zip(&*moments).map(|(rank, &(chain, _))| if chain == NONE { NONE } else { rank }).collect();
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
    for rank in 0..moments.len() {
        if moments[rank].0 == NONE && next[rank] != NONE {
            moments[rank] = moments[next[rank] as usize];
        }
    }
}
