//! Pass 5: groups nodes into partitions.
//!
//! Every host task and every stream task is a partition of its own. Two other nodes share one exactly when
//! they have the same device and the same class; the [policy](PartitionPolicy) says what a class is.
//!
//! # Why the partitions have no cycle
//!
//! **Signature**: the class is [`S(n)`](super::signature). Along an edge `S` only grows, so on a
//! cycle of partitions it is the same everywhere. The cycle must leave a partition; take that edge
//! `u -> v`. If `u` is a host task or a stream task, or the devices of two other nodes differ, the edge is
//! cut: `u` is in `S(v) = S(u)`, and `u` would be its own ancestor. Otherwise `v` is a host task or a stream
//! task (the same device and the same signature would be the same partition), the cycle leaves `v` by an
//! edge that is cut, and `v` is its own ancestor.
//!
//! **Eager**: the class is `S(n)` and the set of host tasks after `n`. The latter only shrinks
//! along an edge, so it is the same all around a cycle too, and the argument is the same. All nodes
//! of a partition that some host task depends on have that host task after them: they are its
//! ancestors.
//!
//! **Fewest**: the class is the largest number of cut edges on a path to `n`. It never falls along
//! an edge and rises along a cut one, so a cycle has no cut edge; the edges left inside a class
//! join a device to itself, or lead into a host task or a stream task, which only cut edges leave.

use rustc_hash::FxHashMap;

use super::PartitionPolicy;
use super::csr::Csr;
use super::placement::is_alone;
use super::signature::{self, is_device_change};

/// The partition of every position. Partitions are numbered in the order of their first nodes.
pub(super) struct Groups {
    /// The partition of each position.
    pub(super) of: Vec<u32>,
    /// The place of every partition.
    pub(super) places: Vec<u32>,
}

/// Groups the positions of a graph into partitions.
pub(super) fn partition(preds: &Csr, places: &[u32], policy: PartitionPolicy) -> Groups {
    if let Some(&place) = places.first()
        && !is_alone(place)
        && places.iter().all(|&other| other == place)
    {
        // Nothing is cut.
        return Groups { of: vec![0; places.len()], places: vec![place] };
    }
    match policy {
        PartitionPolicy::Signature => {
            let signatures = signature::ancestors(preds, places);
            group(places, signatures.of, signatures.bound)
        }
        PartitionPolicy::Fewest => {
            let levels = cut_levels(preds, places);
            let bound = levels.iter().max().map_or(0, |&last| last as usize + 1);
            group(places, levels, bound)
        }
        PartitionPolicy::Eager => {
            let before = signature::ancestors(preds, places);
            let after = signature::descendants(preds, places);
            // Numbers the pairs in the order in which they first occur.
            let mut pairs = FxHashMap::default();
            let mut classes = before.of;
            for (class, &after) in classes.iter_mut().zip(&after.of) {
                let next = pairs.len() as u32;
                *class = *pairs.entry((*class, after)).or_insert(next);
            }
            group(places, classes, pairs.len())
        }
    }
}

/// The largest number of cut edges on a path to every position.
fn cut_levels(preds: &Csr, places: &[u32]) -> Vec<u32> {
    let mut levels: Vec<u32> = Vec::with_capacity(places.len());
    for (preds, &place) in preds.iter().zip(places) {
        let after = |&pred: &u32| {
            let from = places[pred as usize];
            levels[pred as usize] + u32::from(is_alone(from) || is_device_change(from, place))
        };
        let level = preds.iter().map(after).max().unwrap_or(0);
        levels.push(level);
    }
    levels
}

const NONE: u32 = u32::MAX;

/// Numbers the partitions. Replaces the class of each position, which is below `bound`, by its partition.
fn group(places: &[u32], mut classes: Vec<u32>, bound: usize) -> Groups {
    let mut group_places: Vec<u32> = Vec::new();
    // The partitions of a class form a linked list. It is short: there is at most one per device.
    let mut first = vec![NONE; bound];
    let mut next: Vec<u32> = Vec::new();
    for (&place, class) in places.iter().zip(&mut classes) {
        let new = group_places.len() as u32;
        if is_alone(place) {
            group_places.push(place);
            next.push(NONE);
            *class = new;
            continue;
        }
        let first = &mut first[*class as usize];
        let mut group = *first;
        while group != NONE && group_places[group as usize] != place {
            group = next[group as usize];
        }
        if group == NONE {
            group_places.push(place);
            next.push(std::mem::replace(first, new));
            group = new;
        }
        *class = group;
    }
    Groups { of: classes, places: group_places }
}
