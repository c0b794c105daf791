//! The entries of one in-order queue, and when to look at the oldest.

use std::collections::VecDeque;
use std::time::Duration;

use crate::runtime::completion::clock::nanoseconds;
use crate::runtime::completion::pending::Seen;
use crate::runtime::completion::reactor::schedule::{Finished, Pace, Scout};

#[derive(Debug)]
pub(super) struct Lane<W> {
    pub(super) entries: VecDeque<Entry<W>>,
    pub(super) next_look: u64,
    pub(super) pause: u64,
    /// When the oldest entry became it, where that was seen.
    pub(super) since: Option<u64>,
    /// The next look at the oldest entry is the first, and a prediction has put it off.
    pub(super) put_off: bool,
    /// The look planned next is only to find somebody who looks, if the oldest entry is not over by then.
    pub(super) scout: bool,
    /// And it was not the prediction that put it off: somebody else was to look.
    pub(super) left: bool,
    /// Until when looks follow each other without a pause.
    pub(super) eager_until: u64,
    /// When the oldest entry was last seen not to be over.
    pub(super) seen_pending: Option<u64>,
    /// How long a look may be put off so that it is one with others, 0 for short work.
    pub(super) slack: u64,
    /// Looks are shared with other lanes.
    pub(super) shares: bool,
    /// For how long the next look can wait for others.
    pub(super) wait: u64,
    /// Somebody who waits was asked to look, and nobody has looked here since.
    pub(super) scouted: bool,
}

/// How many deviations before the mean an end has to be looked for.
const SPREAD: u64 = 3;

/// What part of its time the look at one of many lanes can wait for others, a divisor.
const WINDOW: u64 = 32;

/// For how many slacks after its predicted end a lane waits for others.
const WAITS: u64 = 4;

#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) watch: W,
    pub(super) expected: Option<u64>,
    pub(super) deviation: u64,
    pub(super) grace: u64,
}

/// How a lane shares looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Share {
    /// One for many: a little late, and then seldom.
    Many,
    /// Somebody looks for another lane's end at the same time, and keeps the threads awake.
    Scouted,
}

impl<W> Lane<W> {
    /// Plans the first look at the entry that has just become the oldest, and so, in an in-order
    /// queue, started now.
    pub(super) fn aim(&mut self, now: u64, pace: &Pace) {
        let oldest = self.entries.front().map(|entry| (entry.expected, entry.deviation, entry.grace));
        let (expected, deviation, grace) = oldest.unwrap_or_default();
        let scouts = expected.and_then(|expected| (pace.scouts)(Duration::from_nanos(expected)));
        // Where the end is nearer than that anyway, nobody has to be woken for it.
        let margin = scouts.map(nanoseconds).filter(|&margin| margin > pace.margin && grace == 0);
        // What always takes the same time has to be looked for from the time on that threads take to wake up.
        let margin = margin.map(|most| most.min(pace.lead.saturating_add(SPREAD * deviation)));
        self.scout = margin.is_some();
        self.slack = expected.map_or(0, |expected| nanoseconds((pace.slack)(Duration::from_nanos(expected))));
        (self.shares, self.scouted) = (false, false);
        self.wait = if pace.late { self.slack } else { 0 };
        let before = match expected {
            Some(expected) if pace.late => expected.saturating_add(self.slack),
            expected => expected.unwrap_or(0).saturating_sub(margin.unwrap_or(pace.margin)),
        };
        self.next_look = now.saturating_add(before.max(grace));
        self.left = grace > before;
        self.put_off = self.next_look > now;
        self.eager_until = match expected {
            Some(expected) if pace.spins => now.saturating_add(expected).saturating_add(pace.margin / 2),
            _ => 0,
        };
        self.seen_pending = None;
        self.since = Some(now);
        self.pause = pace.first_pause.max(if pace.late { 2 * self.slack } else { 0 });
    }

    /// Plans that look anew, for the same entry.
    pub(super) fn aim_again(&mut self, now: u64, pace: &Pace) {
        let since = self.since;
        self.aim(since.unwrap_or(now), pace);
        self.since = since;
    }

    pub(super) fn is_long(&self) -> bool {
        self.slack > 0
    }

    /// When the oldest entry should end.
    pub(super) fn end(&self) -> Option<u64> {
        Some(self.since?.saturating_add(self.entries.front()?.expected?))
    }

    /// Whether one that should end before, and is in flight, is reason enough not to ask for this
    /// one, which should end then.
    pub(super) fn can_wait(&self, now: u64, end: u64) -> bool {
        self.shares && now < end.saturating_add(WAITS * self.slack)
    }

    /// Until when the next look can be put off.
    pub(super) fn latest_look(&self) -> u64 {
        self.next_look.saturating_add(self.wait)
    }

    /// How much before its time a first look may be rather than to sleep once more.
    pub(super) fn early(&self) -> u64 {
        if self.put_off { self.slack / 2 } else { 0 }
    }

    /// From now on the lane's looks come when others do, and nobody is asked for more.
    pub(super) fn share(&mut self, share: Share) {
        if self.shares && (share == Share::Scouted || self.wait > self.slack) {
            return;
        }
        let (late, pause, wait) = match share {
            Share::Many => {
                let expected = self.entries.front().and_then(|oldest| oldest.expected);
                (self.slack, 2 * self.slack, expected.unwrap_or(0) / WINDOW)
            }
            Share::Scouted => (0, self.slack, self.slack),
        };
        (self.shares, self.wait) = (true, wait.max(self.slack));
        if let Some(end) = self.end().filter(|_| self.put_off && !self.left) {
            self.next_look = self.next_look.max(end.saturating_add(late));
        }
        self.pause = self.pause.max(pause);
        (self.scout, self.eager_until) = (false, 0);
    }

    /// Puts off the next look if the oldest entry is not over: for long, if somebody else looks meanwhile.
    pub(super) fn send_scout(
        &mut self,
        now: u64,
        pace: &Pace,
        scouting_until: &mut u64,
        is_final: &mut impl FnMut(&W) -> Option<bool>,
        find_scout: &mut impl FnMut(&W) -> Option<W>,
        scouts: &mut Vec<Scout<W>>,
    ) {
        let Some(oldest) = self.entries.front() else { return };
        let (Some(since), Some(expected)) = (self.since, oldest.expected) else { return };
        if is_final(&oldest.watch) != Some(false) {
            return;
        }
        let end = since.saturating_add(expected);
        let until = end.max(now).saturating_add(pace.margin);
        self.put_off = false;
        self.seen_pending = Some(now);
        self.next_look = end.saturating_sub(pace.margin);
        if *scouting_until > now {
            return;
        }
        if let Some(watch) = find_scout(&oldest.watch) {
            scouts.push(Scout { watch, until });
            *scouting_until = until;
            (self.next_look, self.eager_until, self.scouted) = (until, 0, true);
        }
    }

    pub(super) fn look(
        &mut self,
        now: u64,
        pace: &Pace,
        is_final: &mut impl FnMut(&W) -> Option<bool>,
        finished: &mut Vec<Finished<W>>,
    ) {
        while self.next_look <= now {
            let Some(oldest) = self.entries.front() else { return };
            match is_final(&oldest.watch) {
                // Not asked: another one that should end before is in flight.
                None => {
                    // Most likely so is this one.
                    self.put_off = false;
                    self.seen_pending = Some(now);
                    self.next_look = now.saturating_add(self.pause.max(1));
                    return;
                }
                Some(true) => {
                    let after_its_end = self.shares || (pace.late && self.put_off);
                    let seen = match (self.put_off, self.left) {
                        // Nobody knows for how long.
                        _ if self.scouted => Seen::Late,
                        (true, true) => Seen::Late,
                        _ if after_its_end && self.seen_pending.is_none() => Seen::Expected,
                        (false, _) => Seen::InTime,
                        (true, false) => Seen::Overslept,
                    };
                    // Somewhere between the last two looks; what is rather too short makes the next
                    // first look early enough.
                    let ended = self.seen_pending.map_or(now, |pending| pending + (now - pending) / 8);
                    let took = self.since.map(|since| ended.saturating_sub(since));
                    let oldest = self.entries.pop_front().map(|entry| entry.watch);
                    finished.extend(oldest.map(|watch| Finished { watch, seen, took }));
                    self.aim(now, pace);
                    if seen != Seen::InTime {
                        // The next has been the oldest for nobody knows how long.
                        self.since = None;
                    }
                    // What completed while nobody looked is found now, not one prediction later.
                    if self.entries.front().is_some_and(|next| is_final(&next.watch) == Some(true)) {
                        self.next_look = now;
                        self.put_off = false;
                        self.since = None;
                    }
                }
                Some(false) => {
                    (self.put_off, self.scouted) = (false, false);
                    self.seen_pending = Some(now);
                    if now < self.eager_until {
                        self.next_look = now;
                        return;
                    }
                    self.next_look = now.saturating_add(self.pause);
                    let longer = (self.pause / pace.growth.max(1)).max(1);
                    let longest = pace.longest_pause.max(1);
                    self.pause = self.pause.saturating_add(longer).min(longest);
                    return;
                }
            }
        }
    }
}
