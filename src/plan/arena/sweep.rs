//! One sweep over the nodes, in the order of the plan: a buffer takes a place at its first use, and gives it
//! back after its last.
//!
//! Devices may run the nodes in other orders than this one, so a free place goes to a buffer only if the plan
//! runs every use of what lay there before every use of the buffer. What was there earlier is over then, too.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ops::Range;

use super::Life;
use super::order::{Moments, Order, is_over, keep_latest};

/// The start of each buffer, in their order. Each device has at most `most` free places at a time.
pub(super) fn places(lives: &[Life<'_>], order: &Order, most: usize) -> Vec<usize> {
    // The largest of those that start together first.
    let mut by_start: Vec<usize> = (0..lives.len()).collect();
    by_start.sort_by_key(|&at| (lives[at].first, Reverse(lives[at].len)));
    let mut by_end: Vec<usize> = (0..lives.len()).collect();
    by_end.sort_by_key(|&at| lives[at].last);
    let mut by_end = by_end.into_iter().peekable();

    let mut starts = vec![0; lives.len()];
    let mut memory: HashMap<_, Memory> = HashMap::new();
    for at in by_start {
        let life = &lives[at];
        while let Some(at) = by_end.next_if(|&at| lives[at].last < life.first) {
            let Life { transient, uses, last, len, .. } = &lives[at];
            let place = Place { start: starts[at], len: *len, given_at: *last, after: order.after(uses) };
            memory.entry(transient.device).or_default().give(place, most);
        }
        let ready = order.ready(&life.uses);
        starts[at] = memory.entry(life.transient.device).or_default().take(life.len, &ready);
    }
    starts
}

/// Memory that has been used.
struct Place {
    start: usize,
    len: usize,
    /// The rank of the last use.
    given_at: u32,
    /// Which nodes have to have run before it can be used again.
    after: Moments,
}

impl Place {
    fn end(&self) -> usize {
        self.start.saturating_add(self.len)
    }
}

/// The memory of one device.
#[derive(Default)]
struct Memory {
    /// By their starts.
    free: Vec<Place>,
    bytes: usize,
}

impl Memory {
    /// Finds `len` bytes for a buffer whose uses have these clocks: a place of this size, else the smallest
    /// run of adjacent places that is large enough, else the end of the memory, which grows.
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
            // The place that was given back last may be of use to the fewest others.
            if one.len == len && exact.as_ref().is_none_or(|(latest, _)| one.given_at > *latest) {
                exact = Some((one.given_at, at..at + 1));
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

    /// Takes a place back.
    fn give(&mut self, place: Place, most: usize) {
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

    /// Makes one place of those that touch, to be used when all of them can be.
    fn join_adjacent(&mut self) {
        self.free.dedup_by(|next, place| {
            let touches = place.end() == next.start;
            if touches {
                place.len += next.len;
                place.given_at = place.given_at.max(next.given_at);
                place.after.extend(next.after.drain(..));
                keep_latest(&mut place.after);
            }
            touches
        });
    }
}
