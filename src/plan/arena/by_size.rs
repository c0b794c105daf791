//! The largest buffer first, each into the smallest gap between those that it cannot share memory with.

use std::cmp::Reverse;

use super::Life;
use super::order::{Moments, Order, is_over};
use crate::types::DeviceId;

/// A buffer that has its place.
struct Placed {
    at: usize,
    device: DeviceId,
    first: u32,
    last: u32,
    start: usize,
    end: usize,
}

/// The start of each buffer, in their order.
pub(super) fn places(lives: &[Life<'_>], order: &Order) -> Vec<usize> {
    let after: Vec<Moments> = lives.iter().map(|life| order.after(&life.uses)).collect();
    let ready: Vec<Vec<u32>> = lives.iter().map(|life| order.ready(&life.uses)).collect();
    let mut largest_first: Vec<usize> = (0..lives.len()).collect();
    largest_first.sort_by_key(|&at| Reverse(lives[at].len));

    let mut starts = vec![0; lives.len()];
    // By their starts.
    let mut placed: Vec<Placed> = Vec::with_capacity(lives.len());
    for at in largest_first {
        let life = &lives[at];
        let device = life.transient.device;
        // The ranks settle most, and that buffers are in each other's way which one node uses: clocks do not
        // tell that.
        let is_apart = |other: &Placed| match other {
            _ if other.last < life.first => is_over(&after[other.at], &ready[at]),
            _ if life.last < other.first => is_over(&after[at], &ready[other.at]),
            _ => false,
        };
        let in_the_way = placed.iter().filter(|other| other.device == device && !is_apart(other));
        let start = best_fit(in_the_way, life.len);
        starts[at] = start;
        let end = start.saturating_add(life.len);
        let place = Placed { at, device, first: life.first, last: life.last, start, end };
        placed.insert(placed.partition_point(|other| other.start < start), place);
    }
    starts
}

/// The start of the smallest gap between these, sorted by their starts, or of what is behind them all.
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
