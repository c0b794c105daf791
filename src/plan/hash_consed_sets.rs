//! Hash-consed sets of small numbers: equal sets have equal ids, so comparing two sets is comparing
//! two numbers.
//!
//! A set is a big-endian Patricia tree (Okasaki and Gill, "Fast Mergeable Integer Maps", 1998)
//! whose leaves are blocks of 64 numbers as one word. Trees share their common parts: a union
//! rebuilds only the paths where its operands differ, and earlier unions are cached. Each distinct
//! node is created once and found again through a map, which makes ids exact: two ids differ if
//! and only if the sets do.
//!
//! A tree is at most 32 deep, but unions keep an explicit stack all the same: no pass of the plan recurses.

use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

/// A set: index of its root node.
pub(super) type SetId = u32;

/// The set without elements.
pub(super) const EMPTY_SET: SetId = 0;

/// A block of 64 numbers (`label` is the block's index, `low` and `high` its word), or a fork of
/// two sub-trees (`low` and `high` are their ids).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SetNode {
    /// For a fork: [`FORK`], then the prefix that all its blocks share, then a 1 at the bit where
    /// they differ, then zeros.
    label: u32,
    low: u32,
    high: u32,
}

const FORK: u32 = 1 << 31;

impl SetNode {
    fn is_fork(self) -> bool {
        self.label & FORK != 0
    }

    /// The bit at which the sub-trees of a fork differ.
    fn bit(self) -> u32 {
        self.label & self.label.wrapping_neg()
    }

    /// A block index below this node. Callers use only the shared prefix.
    fn block(self) -> u32 {
        self.label & !FORK
    }

    /// Whether a fork's prefix is that of `block`.
    fn covers(self, block: u32) -> bool {
        (self.label ^ block) & !FORK & !(self.bit() | (self.bit() - 1)) == 0
    }
}

/// All sets of one plan.
pub(super) struct HashConsedSets {
    nodes: Vec<SetNode>,
    ids: FxHashMap<SetNode, SetId>,
    /// Cached unions, `[smaller id, larger id, union]`. A newer entry replaces the older one in its slot.
    memo: Vec<[u32; 3]>,
    tasks: Vec<Task>,
    results: Vec<SetId>,
}

/// A pending step of a union.
enum Task {
    Unite(SetId, SetId),
    /// Push a tree as it is.
    Keep(SetId),
    /// Join the last two results under a fork with the label of this one, which often is the result.
    Fork(SetId),
    /// Cache the last result as the union of these two.
    Remember(SetId, SetId),
}

const MEMO_SLOTS: usize = 1 << 14;

impl HashConsedSets {
    pub(super) fn new() -> Self {
        Self {
            nodes: vec![SetNode { label: 0, low: 0, high: 0 }],
            ids: FxHashMap::default(),
            memo: Vec::new(),
            tasks: Vec::new(),
            results: Vec::new(),
        }
    }

    /// One more than the largest id there is.
    pub(super) fn id_bound(&self) -> usize {
        self.nodes.len()
    }

    /// The set of one number.
    pub(super) fn singleton(&mut self, element: u32) -> SetId {
        let word = 1u64 << (element % 64);
        self.make(SetNode { label: element / 64, low: word as u32, high: (word >> 32) as u32 })
    }

    /// The union of two sets.
    pub(super) fn union(&mut self, a: SetId, b: SetId) -> SetId {
        if let Some(simple) = self.simple_union(a, b) {
            return simple;
        }
        self.tasks.push(Task::Unite(a, b));
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Unite(a, b) => match self.simple_union(a, b) {
                    Some(simple) => self.results.push(simple),
                    None => self.descend(a, b),
                },
                Task::Keep(set) => self.results.push(set),
                Task::Fork(like) => {
                    if let (Some(high), Some(low)) = (self.results.pop(), self.results.pop()) {
                        let model = self.nodes[like as usize];
                        let fork = SetNode { label: model.label, low, high };
                        let fork = if fork == model { like } else { self.make(fork) };
                        self.results.push(fork);
                    }
                }
                Task::Remember(a, b) => {
                    if let Some(&union) = self.results.last() {
                        self.memo[memo_slot(a, b)] = [a, b, union];
                    }
                }
            }
        }
        self.results.pop().unwrap_or(EMPTY_SET)
    }

    /// Returns the union if no descent is needed.
    fn simple_union(&mut self, a: SetId, b: SetId) -> Option<SetId> {
        if a == b || b == EMPTY_SET {
            return Some(a);
        }
        if a == EMPTY_SET {
            return Some(b);
        }
        let (x, y) = (self.nodes[a as usize], self.nodes[b as usize]);
        if x.is_fork() && y.is_fork() {
            let (a, b) = (a.min(b), a.max(b));
            return match self.memo.get(memo_slot(a, b)) {
                Some(&[first, second, union]) if (first, second) == (a, b) => Some(union),
                _ => None,
            };
        }
        if x.is_fork() || y.is_fork() {
            return None;
        }
        if x.label != y.label {
            return Some(self.fork((a, x), (b, y)));
        }
        // One operand often contains the other, which saves the table access.
        let both = SetNode { label: x.label, low: x.low | y.low, high: x.high | y.high };
        Some(if both == x {
            a
        } else if both == y {
            b
        } else {
            self.make(both)
        })
    }

    /// A fork of two trees without a block in common.
    fn fork(&mut self, (a, x): (SetId, SetNode), (b, y): (SetId, SetNode)) -> SetId {
        let differ = x.block() ^ y.block();
        let bit = 1 << differ.ilog2();
        let label = FORK | (x.block() & !(bit | (bit - 1))) | bit;
        let (low, high) = if x.block() & bit == 0 { (a, b) } else { (b, a) };
        self.make(SetNode { label, low, high })
    }

    /// One step of a union in which at least one side is a fork.
    fn descend(&mut self, a: SetId, b: SetId) {
        let (x, y) = (self.nodes[a as usize], self.nodes[b as usize]);
        if x.is_fork() && y.is_fork() {
            if self.memo.is_empty() {
                self.memo = vec![[0; 3]; MEMO_SLOTS];
            }
            self.tasks.push(Task::Remember(a.min(b), a.max(b)));
        }
        if x.label == y.label {
            self.tasks.extend([Task::Fork(a), Task::Unite(x.high, y.high), Task::Unite(x.low, y.low)]);
        } else if x.is_fork() && x.covers(y.block()) && !(y.is_fork() && y.bit() > x.bit()) {
            self.descend_into(a, y.block(), b);
        } else if y.is_fork() && y.covers(x.block()) {
            self.descend_into(b, x.block(), a);
        } else {
            let fork = self.fork((a, x), (b, y));
            self.results.push(fork);
        }
    }

    /// Unites `other`, whose blocks all share the prefix of `fork`, with one of the fork's sub-trees.
    fn descend_into(&mut self, into: SetId, block: u32, other: SetId) {
        let fork = self.nodes[into as usize];
        self.tasks.push(Task::Fork(into));
        // Results are taken in the order low, high, so the low task goes last onto the stack.
        if block & fork.bit() == 0 {
            self.tasks.extend([Task::Keep(fork.high), Task::Unite(fork.low, other)]);
        } else {
            self.tasks.extend([Task::Unite(fork.high, other), Task::Keep(fork.low)]);
        }
    }

    /// Returns the id of this node, which is created if it is new.
    fn make(&mut self, node: SetNode) -> SetId {
        *self.ids.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() as SetId - 1
        })
    }
}

fn memo_slot(a: SetId, b: SetId) -> usize {
    FxBuildHasher.hash_one((a, b)) as usize % MEMO_SLOTS
}
