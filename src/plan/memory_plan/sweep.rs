//! Places buffers in one sweep over the nodes, in the order of the plan: a buffer takes a block at its
//! first use and returns it after its last.
//!
//! Devices may run the nodes in other orders, so a free block goes to a buffer only if the plan runs every
//! use of the block's previous buffer before every use of the new one. Earlier buffers have ended then, too.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::Lifetime;
use super::use_order::{ChainPositions, UseOrder, is_over, keep_latest};

/// Returns the start of each buffer, in their order. A device has at most `most` free blocks at a time.
pub(super) fn places(lifetimes: &[Lifetime<'_>], order: &UseOrder, most: usize) -> Vec<usize> {
    // Of those that start together, the largest first.
    let mut by_start: Vec<usize> = (0..lifetimes.len()).collect();
    by_start.sort_by_key(|&at| (lifetimes[at].first, Reverse(lifetimes[at].len)));
    let mut by_end: Vec<usize> = (0..lifetimes.len()).collect();
    by_end.sort_by_key(|&at| lifetimes[at].last);
    let mut by_end = by_end.into_iter().peekable();

    let mut starts = vec![0; lifetimes.len()];
    let mut memory: HashMap<_, FreeList> = HashMap::new();
    for at in by_start {
        let lifetime = &lifetimes[at];
        while let Some(at) = by_end.next_if(|&at| lifetimes[at].last < lifetime.first) {
            let Lifetime { transient, uses, last, len, .. } = &lifetimes[at];
            let place =
                FreeBlock { start: starts[at], len: *len, returned_at: *last, after: order.after(uses) };
            memory.entry(transient.device).or_default().give(place, most);
        }
        let ready = order.ready(&lifetime.uses);
        starts[at] = memory.entry(lifetime.transient.device).or_default().take(lifetime.len, &ready);
    }
    starts
}

/// A block of memory that was in use and is free again.
struct FreeBlock {
    start: usize,
    len: usize,
    /// The rank of the last use.
    returned_at: u32,
    /// The chain positions that must have run before the block can be used again.
    after: ChainPositions,
}

impl FreeBlock {
    fn end(&self) -> usize {
        self.start.saturating_add(self.len)
    }
}

/// The free blocks of one device's arena.
#[derive(Default)]
struct FreeList {
    /// Sorted by start.
    free: Vec<FreeBlock>,
    bytes: usize,
}

impl FreeList {
    /// Finds `len` bytes for a buffer whose uses come after the clock `ready`: a block of this size, else the
    /// smallest run of adjacent blocks that is large enough, else the end of the arena, which grows.
    fn take(&mut self, len: usize, ready: &[u32]) -> usize {
        let mut exact: Option<(u32, Range<usize>)> = None;
        let mut run: Option<(usize, Range<usize>)> = None;
        let mut at_end = None;
        let mut first = 0;
        for (at, one) in self.free.iter().enumerate() {
            if !is_over(&one.after, ready) {
                first = at + 1;
                continue;
            }
            if at > first && self.free[at - 1].end() != one.start {
                first = at;
            }
            // The block that was returned last suits the fewest other buffers.
            if one.len == len && exact.as_ref().is_none_or(|(latest, _)| one.returned_at > *latest) {
                exact = Some((one.returned_at, at..at + 1));
            }
            let found = one.end() - self.free[first].start;
            if found >= len && run.as_ref().is_none_or(|(best, _)| found < *best) {
                run = Some((found, first..at + 1));
            }
            if one.end() == self.bytes {
                at_end = Some(first..at + 1);
            }
        }
        let best = exact.map(|(_, place)| place).or(run.map(|(_, run)| run));
        let Some(run) = best.or(at_end) else {
            let start = self.bytes;
            self.bytes = start.saturating_add(len);
            return start;
        };
        let start = self.free[run.start].start;
        let end = start.saturating_add(len);
        self.bytes = end.max(self.bytes);
        let taken = run.start..run.start + self.free[run.clone()].partition_point(|place| place.end() <= end);
        if let Some(cut) = self.free[taken.end..run.end].first_mut() {
            cut.len = cut.end() - end;
            cut.start = end;
        }
        self.free.drain(taken);
        start
    }

    /// Returns a block.
    fn give(&mut self, place: FreeBlock, most: usize) {
        let at = self.free.partition_point(|other| other.start < place.start);
        self.free.insert(at, place);
        if self.free.len() > most {
            self.join_adjacent();
        }
        if self.free.len() > most
            && let Some(smallest) = (0..self.free.len()).min_by_key(|&at| self.free[at].len)
        {
            self.free.remove(smallest);
        }
    }

    /// Merges adjacent blocks. A merged block can be used when all its parts can.
    fn join_adjacent(&mut self) {
        self.free.dedup_by(|next, place| {
            let touches = place.end() == next.start;
            if touches {
                place.len += next.len;
                place.returned_at = place.returned_at.max(next.returned_at);
                place.after.extend(next.after.drain(..));
                keep_latest(&mut place.after);
            }
            touches
        });
    }
}
