//! Places buffers largest first, each into the smallest gap between those that it cannot share memory with.

use std::cmp::Reverse;

use wakegraph_hal::DeviceId;

use super::Lifetime;
use super::use_order::{ChainPositions, UseOrder, is_over};

/// A buffer that is placed.
struct Placed {
    at: usize,
    device: DeviceId,
    first: u32,
    last: u32,
    start: usize,
    end: usize,
}

/// Returns the start of each buffer, in their order.
pub(super) fn places(lifetimes: &[Lifetime<'_>], order: &UseOrder) -> Vec<usize> {
    let after: Vec<ChainPositions> = lifetimes.iter().map(|lifetime| order.after(&lifetime.uses)).collect();
    let ready: Vec<Vec<u32>> = lifetimes.iter().map(|lifetime| order.ready(&lifetime.uses)).collect();
    let mut largest_first: Vec<usize> = (0..lifetimes.len()).collect();
    largest_first.sort_by_key(|&at| Reverse(lifetimes[at].len));

    let mut starts = vec![0; lifetimes.len()];
    // Sorted by start.
    let mut placed: Vec<Placed> = Vec::with_capacity(lifetimes.len());
    for at in largest_first {
        let lifetime = &lifetimes[at];
        let device = lifetime.transient.device;
        // Ranks decide most cases, and that two buffers of one node must not overlap, which clocks
        // do not tell.
        let is_apart = |other: &Placed| match other {
            _ if other.last < lifetime.first => is_over(&after[other.at], &ready[at]),
            _ if lifetime.last < other.first => is_over(&after[at], &ready[other.at]),
            _ => false,
        };
        let in_the_way = placed.iter().filter(|other| other.device == device && !is_apart(other));
        let start = best_fit(in_the_way, lifetime.len);
        starts[at] = start;
        let end = start.saturating_add(lifetime.len);
        let place = Placed { at, device, first: lifetime.first, last: lifetime.last, start, end };
        placed.insert(placed.partition_point(|other| other.start < start), place);
    }
    starts
}

/// Returns the start of the smallest gap between these, which are sorted by start, or the end of the last.
fn best_fit<'a>(in_the_way: impl Iterator<Item = &'a Placed>, len: usize) -> usize {
    let (mut free, mut best) = (0, None);
    for other in in_the_way {
        let gap = other.start.saturating_sub(free);
        if gap >= len && best.is_none_or(|(smallest, _)| gap < smallest) {
            best = Some((gap, free));
        }
        free = free.max(other.end);
    }
    best.map_or(free, |(_, start)| start)
}
