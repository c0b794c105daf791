//! Reasons why a partition is one of its own: what tells it from its neighbour on the same device.
//!
//! Reads the finished plan only, so that plans need not remember it.

use std::collections::BTreeSet;

use super::{PartitionKind, PartitionPolicy, Plan};

/// Reason why a partition is one of its own: [`Plan::separation`]. Numbers are of partitions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Separation {
    /// The host runs it: a host task, or a conditional or loop that its device cannot drive. Each is a
    /// partition of its own.
    Host,
    /// The partition is a stream task. Each is a partition of its own.
    StreamTask,
    /// No partition of its device comes before it.
    FirstOnDevice,
    /// The partition waits for `partitions`, and `other`, an earlier partition of its device, does not.
    WaitsFor {
        /// Host tasks, stream tasks, and partitions of other devices.
        partitions: Vec<u32>,
        /// The neighbour.
        other: u32,
    },
    /// `other`, an earlier partition of its device, waits for `partitions`, and it does not.
    StartsBefore {
        /// Host tasks, stream tasks, and partitions of other devices.
        partitions: Vec<u32>,
        /// The neighbour.
        other: u32,
    },
    /// The partition and `other`, an earlier partition of its device, wait for the same `partitions`, but for
    /// results of different nodes there.
    OtherResults {
        /// Host tasks, stream tasks, and partitions of other devices.
        partitions: Vec<u32>,
        /// The neighbour.
        other: u32,
    },
    /// Only one of the partition and `other`, an earlier partition of its device, is waited for by
    /// `host_tasks`: [`Eager`](PartitionPolicy::Eager) keeps the two apart.
    HostTasksAfter {
        /// The host tasks.
        host_tasks: Vec<u32>,
        /// The neighbour.
        other: u32,
    },
}

/// The neighbours of a partition in one direction, and whether a partition lies beyond a bound there.
struct EdgeDirection {
    next: fn(&Plan, usize) -> &[u32],
    is_beyond: fn(u32, u32) -> bool,
}

const BACK: EdgeDirection = EdgeDirection { next: Plan::predecessors, is_beyond: |at, bound| at < bound };
const FORTH: EdgeDirection = EdgeDirection { next: Plan::successors, is_beyond: |at, bound| at > bound };

impl Plan {
    /// Returns the reason why a partition is one of its own.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn separation(&self, partition: usize) -> Separation {
        match self.partitions[partition].kind {
            PartitionKind::HostTask => return Separation::Host,
            PartitionKind::StreamTask(_) => return Separation::StreamTask,
            PartitionKind::Device(_) => {}
        }
        let Some(other) = self.neighbour(partition) else { return Separation::FirstOnDevice };
        let is_on_another = |at: u32| self.partitions[at as usize].kind != self.partitions[partition].kind;
        let own = self.nearest(&BACK, partition, is_on_another);
        let partitions = self.not_reached(&BACK, other as usize, &own);
        if !partitions.is_empty() {
            return Separation::WaitsFor { partitions, other };
        }
        let others = self.nearest(&BACK, other as usize, is_on_another);
        let partitions = self.not_reached(&BACK, partition, &others);
        if !partitions.is_empty() {
            return Separation::StartsBefore { partitions, other };
        }
        if self.policy == PartitionPolicy::Eager {
            let is_host = |at: u32| self.partitions[at as usize].kind == PartitionKind::HostTask;
            let [after, others] =
                [partition, other as usize].map(|partition| self.nearest(&FORTH, partition, is_host));
            let mut host_tasks = self.not_reached(&FORTH, other as usize, &after);
            host_tasks.extend(self.not_reached(&FORTH, partition, &others));
            if !host_tasks.is_empty() {
                host_tasks.sort_unstable();
                return Separation::HostTasksAfter { host_tasks, other };
            }
        }
        Separation::OtherResults { partitions: own.into_iter().collect(), other }
    }

    /// The last partition of the same device that it waits for directly, else the last one before it.
    fn neighbour(&self, partition: usize) -> Option<u32> {
        let is_same = |&other: &u32| self.partitions[other as usize].kind == self.partitions[partition].kind;
        let directly = self.predecessors(partition).iter().rev().copied().find(is_same);
        directly.or_else(|| (0..partition as u32).rev().find(is_same))
    }

    /// The first partitions in this direction that are wanted, on all paths.
    fn nearest(
        &self,
        direction: &EdgeDirection,
        partition: usize,
        is_wanted: impl Fn(u32) -> bool,
    ) -> BTreeSet<u32> {
        let (mut found, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), vec![partition]);
        while let Some(at) = open.pop() {
            for &next in (direction.next)(self, at) {
                if is_wanted(next) {
                    found.insert(next);
                } else if seen.insert(next) {
                    open.push(next as usize);
                }
            }
        }
        found
    }

    /// Returns the nodes of `wanted` that no path in this direction leads to.
    fn not_reached(&self, direction: &EdgeDirection, from: usize, wanted: &BTreeSet<u32>) -> Vec<u32> {
        let is_beyond_all = |at: u32| wanted.iter().all(|&wanted| (direction.is_beyond)(at, wanted));
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(at) = open.pop() {
            for &next in (direction.next)(self, at) {
                if !is_beyond_all(next) && seen.insert(next) {
                    open.push(next as usize);
                }
            }
        }
        wanted.difference(&seen).copied().collect()
    }
}
