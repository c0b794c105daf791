//! Pass 6, second half: removes the dependencies that others imply (transitive reduction), so that
//! the runtime waits for as few events as possible.
//!
//! A dependency on `p` is redundant if another predecessor depends on `p`, directly or not. Most are
//! decided without a search:
//!
//! - The depth-first order knows a range of ancestors of every partition ([`Dag::ancestors_from`]).
//! - *Hubs*, the [`HUBS`] partitions that most others depend on, have one bit each, and every
//!   partition has the bits of all hubs behind it. Few partitions make up most of what is
//!   redundant: the first of all, and those right after the first host tasks.
//! - `p` can only be behind partitions that are later in the order, deeper (longest path), and have
//!   all the host tasks and hubs of `p` behind them; for host tasks as far as a word of 64 bits can
//!   tell.
//!
//! # Cost
//!
//! For what is left, a search for `p` walks back over dependencies already reduced, through
//! partitions that can have `p` behind them. That visits a handful of partitions on the graphs we
//! know, but there are graphs on which exact reduction costs as much as multiplying matrices. So
//! all searches of one plan share a budget of [`STEPS_EACH`] steps a partition and a dependency,
//! and at least [`STEPS_MIN`]. When it is spent, dependencies not known to be redundant stay. They
//! are true, only not needed. Where partitions times dependencies are below `STEPS_MIN`, the budget
//! cannot run out.

use std::cmp::Reverse;

use super::csr::Csr;
use super::order::Dag;
use super::placement::HOST;

/// Steps of search that each partition and each dependency pays for.
const STEPS_EACH: usize = 8;
/// Steps of search there always are.
const STEPS_MIN: usize = 1 << 16;

/// Returns the dependencies of every partition that others do not imply, ascending. `places` has the
/// place of each partition, in the order of `quotient`.
pub(super) fn reduce(quotient: &Dag, places: &[u32]) -> Csr {
    let size = quotient.preds.len() + quotient.preds.items().len();
    reduce_within(quotient, places, STEPS_MIN.max(STEPS_EACH * size))
}

/// Like [`reduce`], with a budget of `steps` steps of search.
pub(super) fn reduce_within(quotient: &Dag, places: &[u32], steps: usize) -> Csr {
    let count = quotient.preds.len();
    let mut search = Search {
        marks: Vec::with_capacity(count),
        visited_by: vec![u32::MAX; count],
        reduced: Csr::with_capacity(count, quotient.preds.items().len()),
        targets: Vec::new(),
        stack: Vec::new(),
        steps_left: steps,
    };
    let hubs = hubs(&quotient.preds);
    let mut next_hub = hubs.iter().zip(0u8..).peekable();
    let mut host_tasks = 0u32;
    let mut kept = Vec::new();
    for (partition, preds) in (0u32..).zip(quotient.preds.iter()) {
        kept.clear();
        kept.extend_from_slice(preds);
        kept.sort_unstable();
        let mut mark = search.drop_known(&mut kept);
        mark.ancestors_from = quotient.ancestors_from[partition as usize];
        if let Some((_, hub)) = next_hub.next_if(|&(&hub, _)| hub == partition) {
            mark.hub = hub;
        }
        if places[partition as usize] == HOST {
            mark.hosts |= 1 << (host_tasks.wrapping_mul(0x9e37_79b9) >> 26);
            host_tasks += 1;
        }
        search.marks.push(mark);
        if kept.len() > 1 {
            search.drop_reachable(&mut kept, partition);
        }
        search.reduced.add(kept.iter().copied());
    }
    search.reduced
}

/// The number of hubs: as many as a word has bits.
pub(super) const HUBS: usize = 64;
const NO_HUB: u8 = HUBS as u8;
/// The fewest dependents that justify a bit.
pub(super) const HUB_DEPENDENTS: u32 = 4;

/// The partitions that most others depend on, ascending.
fn hubs(preds: &Csr) -> Vec<u32> {
    let mut dependents = vec![0u32; preds.len()];
    for &pred in preds.items() {
        dependents[pred as usize] += 1;
    }
    let mut hubs: Vec<u32> = (0u32..)
        .zip(&dependents)
        .filter(|&(_, &dependents)| dependents >= HUB_DEPENDENTS)
        .map(|(partition, _)| partition)
        .collect();
    if hubs.len() > HUBS {
        hubs.select_nth_unstable_by_key(HUBS, |&hub| (Reverse(dependents[hub as usize]), hub));
        hubs.truncate(HUBS);
        hubs.sort_unstable();
    }
    hubs
}

/// Facts about a partition that need no search. Along a dependency, `level` rises, and `hosts`
/// and `hubs` only gain bits.
#[derive(Clone, Copy)]
struct Mark {
    /// The host tasks before the partition, and itself if it is one, each hashed to one bit.
    hosts: u64,
    /// The hubs before it.
    hubs: u64,
    level: u32,
    /// As in [`Dag::ancestors_from`].
    ancestors_from: u32,
    /// Number among the hubs, or `NO_HUB`.
    hub: u8,
}

/// The target of a search: one partition, or the common properties of many.
struct Target {
    partition: u32,
    level: u32,
    hosts: u64,
    hubs: u64,
}

/// Up to this many predecessors are searched for one by one.
const TARGETS_EACH: usize = 16;

struct Search {
    marks: Vec<Mark>,
    /// The last partition whose search visited each partition.
    visited_by: Vec<u32>,
    reduced: Csr,
    targets: Vec<Target>,
    stack: Vec<u32>,
    steps_left: usize,
}

impl Search {
    /// Drops from an ascending list what is known to be an ancestor of a later entry. Gives what
    /// the list says about the partition that it belongs to.
    fn drop_known(&self, kept: &mut Vec<u32>) -> Mark {
        let mut all = Mark { hosts: 0, hubs: 0, level: 0, ancestors_from: 0, hub: NO_HUB };
        let mut own_hubs = 0;
        let mut covered_from = u32::MAX;
        let mut write = kept.len();
        for read in (0..kept.len()).rev() {
            let entry = kept[read];
            let mark = self.marks[entry as usize];
            let own_hub = 1u64.checked_shl(mark.hub.into()).unwrap_or(0);
            if entry < covered_from && own_hub & all.hubs == 0 {
                write -= 1;
                kept[write] = entry;
                covered_from = covered_from.min(mark.ancestors_from);
            }
            own_hubs |= own_hub;
            all.hosts |= mark.hosts;
            all.hubs |= mark.hubs;
            all.level = all.level.max(mark.level + 1);
        }
        all.hubs |= own_hubs;
        kept.drain(..write);
        all
    }

    /// Drops from an ascending list what is an ancestor of another entry, as far as the budget goes.
    fn drop_reachable(&mut self, kept: &mut Vec<u32>, partition: u32) {
        self.seek(kept);
        let mut found = false;
        self.stack.clear();
        self.stack.extend_from_slice(&kept[1..]);
        'search: while let Some(at) = self.stack.pop() {
            if !self.can_follow_target(at) {
                continue;
            }
            for &pred in self.reduced.get(at as usize).iter().rev() {
                if pred < kept[0] {
                    break;
                }
                if self.steps_left == 0 {
                    break 'search;
                }
                self.steps_left -= 1;
                let visited_by = &mut self.visited_by[pred as usize];
                if std::mem::replace(visited_by, partition) == partition {
                    continue;
                }
                // One of the list is on the stack already.
                if kept.binary_search(&pred).is_err() {
                    self.stack.push(pred);
                    continue;
                }
                found = true;
                if kept.len() <= TARGETS_EACH {
                    self.targets.retain(|target| target.partition != pred);
                    if self.targets.is_empty() {
                        break 'search;
                    }
                }
            }
        }
        if found {
            kept.retain(|&entry| self.visited_by[entry as usize] != partition);
        }
    }

    /// Targets all entries of an ascending list but the last, which none of the others can depend on.
    fn seek(&mut self, kept: &[u32]) {
        let marks = &self.marks;
        self.targets.clear();
        self.targets.extend(kept[..kept.len() - 1].iter().map(|&partition| {
            let Mark { level, hosts, hubs, .. } = marks[partition as usize];
            Target { partition, level, hosts, hubs }
        }));
        if kept.len() > TARGETS_EACH {
            let all = self.targets.drain(..).reduce(|a, b| Target {
                partition: a.partition.min(b.partition),
                level: a.level.min(b.level),
                hosts: a.hosts & b.hosts,
                hubs: a.hubs & b.hubs,
            });
            self.targets.extend(all);
        }
    }

    /// Whether a target of the search can be an ancestor of `at`.
    fn can_follow_target(&self, at: u32) -> bool {
        let mark = self.marks[at as usize];
        self.targets.iter().any(|target| {
            let missing = target.hosts & !mark.hosts | target.hubs & !mark.hubs;
            target.partition < at && target.level < mark.level && missing == 0
        })
    }
}
