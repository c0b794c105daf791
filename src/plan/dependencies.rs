//! Pass 6: which partitions wait for which.
//!
//! Every edge that crosses partitions is a dependency. Partitions are then put into topological order, and dependencies
//! that follow from others are dropped (transitive reduction), so that the runtime waits for as few events as possible.
//!
//! # Cost
//!
//! A dependency on `p` is dropped when some other predecessor has `p` behind it. The search for `p` walks back over
//! dependencies already reduced, and only through partitions that can have `p` behind them: later in the order, deeper
//! (longest path), and with all the host tasks of `p` among their own, as far as a word of 64 bits can tell. That visits
//! a handful of partitions on the graphs we know, but there are graphs on which exact reduction costs as much as
//! multiplying matrices. So all searches of one plan share a budget of [`STEPS_EACH`] steps a partition and a
//! dependency, and at least [`STEPS_MIN`]. When it is spent, dependencies not known to be redundant stay. They are true,
//! only not needed. Where partitions times dependencies are below `STEPS_MIN`, the budget cannot run out.

use super::check::HOST;
use super::lists::Lists;
use super::order::{Dag, depth_first};
use super::partition::Groups;

/// Steps of search that each partition and each dependency pays for.
pub(super) const STEPS_EACH: usize = 8;
/// Steps of search there always are.
pub(super) const STEPS_MIN: usize = 1 << 16;

/// The positions in every partition, in order.
pub(super) fn members(groups: &Groups) -> Lists {
    let pairs = groups.of.iter().enumerate().map(|(position, &group)| (group, position as u32));
    Lists::gather(groups.places.len(), pairs)
}

/// The graph's edges, told apart.
pub(super) struct Edges {
    /// Between partitions: the partitions as a graph of their own, with every dependency once.
    pub(super) quotient: Dag,
    /// Inside partitions: for every member, partition after partition, its predecessors' positions.
    pub(super) inner: Lists,
}

/// Tells edges inside partitions from dependencies, and puts the partitions into topological order.
///
/// # Errors
/// The partitions of a cycle. There is none unless partitioning is wrong.
pub(super) fn split(preds: &Lists, groups: &Groups, members: &Lists) -> Result<Edges, Vec<u32>> {
    let mut inner = Lists::with_capacity(preds.len(), preds.items().len());
    let mut dependencies = Lists::with_capacity(members.len(), members.len());
    let mut met_by = vec![u32::MAX; members.len()];
    for (group, members) in members.iter().enumerate() {
        for &member in members {
            for &pred in preds.get(member as usize) {
                let from = groups.of[pred as usize];
                if from == group as u32 {
                    inner.push(pred);
                } else if std::mem::replace(&mut met_by[from as usize], group as u32) != group as u32 {
                    dependencies.push(from);
                }
            }
            inner.close();
        }
        dependencies.close();
    }
    Ok(Edges { quotient: depth_first(&dependencies)?, inner })
}

/// The dependencies that do not follow from others, of every partition, ascending. `places` are the partitions', in the
/// order of the quotient.
pub(super) fn reduce(quotient: &Dag, places: &[u32]) -> Lists {
    let count = quotient.preds.len();
    let mut search = Search {
        marks: marks(&quotient.preds, places),
        reduced: Lists::with_capacity(count, quotient.preds.items().len()),
        sought: Vec::new(),
        stack: Vec::new(),
        steps_left: STEPS_MIN.max(STEPS_EACH * (count + quotient.preds.items().len())),
    };
    let mut kept = Vec::new();
    for (partition, preds) in quotient.preds.iter().enumerate() {
        if let &[] | &[_] = preds {
            search.reduced.add(preds.iter().copied());
            continue;
        }
        kept.clear();
        kept.extend_from_slice(preds);
        kept.sort_unstable();
        drop_covered(&mut kept, &quotient.since);
        if kept.len() > 1 {
            search.drop_reachable(&mut kept, partition as u32);
        }
        search.reduced.add(kept.iter().copied());
    }
    search.reduced
}

/// Drops from an ascending list what the depth-first order shows to be an ancestor of a later entry.
pub(super) fn drop_covered(kept: &mut Vec<u32>, since: &[u32]) {
    let mut covered_from = u32::MAX;
    let mut write = kept.len();
    for read in (0..kept.len()).rev() {
        let entry = kept[read];
        if entry < covered_from {
            write -= 1;
            kept[write] = entry;
            covered_from = covered_from.min(since[entry as usize]);
        }
    }
    kept.drain(..write);
}

/// What a search knows of a partition without walking. Along a dependency, `level` rises and `hosts` only gains bits.
#[derive(Clone, Copy)]
struct Mark {
    /// The host tasks before it and itself, each hashed to one bit.
    hosts: u64,
    level: u32,
    /// The last partition whose search came by.
    visited_by: u32,
}

fn marks(preds: &Lists, places: &[u32]) -> Vec<Mark> {
    let mut marks: Vec<Mark> = Vec::with_capacity(places.len());
    let mut host_tasks = 0u32;
    for (preds, &place) in preds.iter().zip(places) {
        let mut mark = Mark { hosts: 0, level: 0, visited_by: u32::MAX };
        for &pred in preds {
            let pred = marks[pred as usize];
            mark.hosts |= pred.hosts;
            mark.level = mark.level.max(pred.level + 1);
        }
        if place == HOST {
            mark.hosts |= 1 << (host_tasks.wrapping_mul(0x9e37_79b9) >> 26);
            host_tasks += 1;
        }
        marks.push(mark);
    }
    marks
}

/// What a search looks for: one partition, or where there are many the least that is true of all of them.
struct Sought {
    partition: u32,
    level: u32,
    hosts: u64,
}

/// Up to so many predecessors are looked for one by one.
const SOUGHT_EACH: usize = 16;

struct Search {
    marks: Vec<Mark>,
    reduced: Lists,
    sought: Vec<Sought>,
    stack: Vec<u32>,
    steps_left: usize,
}

impl Search {
    /// Drops from an ascending list what is an ancestor of another entry, as far as the budget goes.
    fn drop_reachable(&mut self, kept: &mut Vec<u32>, partition: u32) {
        self.seek(kept);
        let mut found = false;
        self.stack.clear();
        self.stack.extend_from_slice(&kept[1..]);
        'search: while let Some(at) = self.stack.pop() {
            if !self.can_follow_sought(at) {
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
                let visited_by = &mut self.marks[pred as usize].visited_by;
                if std::mem::replace(visited_by, partition) == partition {
                    continue;
                }
                // One of the list is on the stack already.
                if kept.binary_search(&pred).is_err() {
                    self.stack.push(pred);
                    continue;
                }
                found = true;
                if kept.len() <= SOUGHT_EACH {
                    self.sought.retain(|sought| sought.partition != pred);
                    if self.sought.is_empty() {
                        break 'search;
                    }
                }
            }
        }
        if found {
            kept.retain(|&entry| self.marks[entry as usize].visited_by != partition);
        }
    }

    /// Looks for all of an ascending list but the last, which none of the others can follow.
    fn seek(&mut self, kept: &[u32]) {
        let marks = &self.marks;
        self.sought.clear();
        self.sought.extend(kept[..kept.len() - 1].iter().map(|&partition| {
            let Mark { level, hosts, .. } = marks[partition as usize];
            Sought { partition, level, hosts }
        }));
        if kept.len() > SOUGHT_EACH {
            let all = self.sought.drain(..).reduce(|a, b| Sought {
                partition: a.partition.min(b.partition),
                level: a.level.min(b.level),
                hosts: a.hosts & b.hosts,
            });
            self.sought.extend(all);
        }
    }

    /// Whether something sought can be an ancestor of `at`.
    fn can_follow_sought(&self, at: u32) -> bool {
        let mark = self.marks[at as usize];
        self.sought.iter().any(|sought| {
            sought.partition < at && sought.level < mark.level && sought.hosts & !mark.hosts == 0
        })
    }
}
