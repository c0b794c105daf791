//! When to look at which event: pure data, the time is an argument.
//!
//! Each lane is an in-order queue, so only its oldest entry can be the next to complete: a look
//! costs one query a lane, however much is in flight. An entry is looked at shortly before its
//! predicted completion, then again and again around it, and from then on with growing pauses;
//! without a prediction, with these from the start.
//!
//! Where much long work is in flight, its lanes share looks: each may come a little later so that
//! one wake-up does for many, and those are asked in the order of their predicted ends until one is
//! found in flight.

mod lane;
mod rhythm;
mod visits;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use smallvec::SmallVec;

use crate::runtime::completion::clock::nanoseconds;
use crate::runtime::completion::estimate::Guess;
use crate::runtime::completion::pending::Seen;
use lane::{Entry, Lane, Share};
use rhythm::Rhythm;
use visits::Visits;

/// How eagerly to look, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// How long before the predicted completion the first look is.
    pub(super) margin: u64,
    /// The pause after the first look that finds nothing.
    pub(super) first_pause: u64,
    /// The longest pause.
    pub(super) longest_pause: u64,
    /// Each pause is longer than the one before by this part of it, a divisor.
    pub(super) growth: u64,
    /// Whether there is no pause from the first look until half a margin after the predicted completion.
    pub(super) spins: bool,
    /// How long before the predicted completion somebody who waits is asked to look.
    pub(super) scouts: fn(Duration) -> Option<Duration>,
    /// And how long before at most, beside what the work's times differ by: how long threads take to wake up.
    pub(super) lead: u64,
    /// How long a look at something that takes so long may be put off so that it is one with
    /// others; none if never.
    pub(super) slack: fn(Duration) -> Duration,
    /// So many lanes with long work get looks of their own.
    pub(super) few: usize,
    /// Whether the first look is not before the predicted completion but this slack after it, and
    /// pauses are twice as long.
    pub(super) late: bool,
}

/// Somebody who waits for an entry is to look for its end until a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scout<W> {
    pub(super) watch: W,
    pub(super) until: u64,
}

/// What is known of an entry's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Times {
    /// How long it should take.
    pub(super) expected: Option<Guess>,
    /// How long nobody needs to look, as somebody else does.
    pub(super) grace: Duration,
}

/// What to do after a look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    /// Nothing is in flight.
    Idle,
    /// Look again after this time.
    After(Duration),
}

/// Something in flight that was found to be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finished<W> {
    pub(super) watch: W,
    pub(super) seen: Seen,
    /// Nanoseconds from when it had become the oldest of its lane until it was found over, where
    /// both were seen.
    pub(super) took: Option<u64>,
}

/// What is in flight, by lane.
#[derive(Debug)]
pub(super) struct Schedule<W> {
    lanes: HashMap<u64, Lane<W>>,
    in_flight: usize,
    pace: Pace,
    /// Until when somebody has been asked to look: one is enough to keep the threads that wait awake.
    scouting_until: u64,
    /// Lanes whose oldest entry has slack.
    long: usize,
    /// The most there have been since nothing was in flight, and the time before.
    most_long: [usize; 2],
    /// Before this time nothing is looked at. Without long work it is never later than the next
    /// look at any lane, and so need not be worked out from all of them again.
    plan: u64,
    rhythm: Rhythm,
    visits: Visits,
}

/// A lane whose time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Due<W> {
    pub(super) watch: W,
    /// It can wait if one that should end before it is in flight.
    pub(super) can_wait: bool,
}

/// Emptied lanes are kept, with their memory, up to this many: executables come and go, steady ones repeat.
const MOST_EMPTY_LANES: usize = 256;

impl<W> Schedule<W> {
    pub(super) fn new(pace: Pace) -> Self {
        Self {
            lanes: HashMap::new(),
            in_flight: 0,
            pace,
            scouting_until: 0,
            long: 0,
            most_long: [0; 2],
            plan: 0,
            rhythm: Rhythm::default(),
            visits: Visits::default(),
        }
    }

    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.in_flight > 0
    }

    /// Adds what was enqueued last on its lane, and forgets what others have found over meanwhile.
    /// Gives the time until when the lane's next look can wait.
    pub(super) fn watch(
        &mut self,
        now: u64,
        lane: u64,
        watch: W,
        Times { expected, grace }: Times,
        is_over: impl Fn(&W) -> bool,
        forgotten: &mut impl Extend<W>,
    ) -> u64 {
        if self.in_flight == 0 {
            self.plan = u64::MAX;
            self.rhythm.begin(now);
            self.most_long = [0, self.most_long[0]];
        }
        let deviation = expected.map_or(0, |expected| nanoseconds(expected.deviation));
        let (expected, grace) = (expected.map(|expected| nanoseconds(expected.mean)), nanoseconds(grace));
        let lane = self.lanes.entry(lane).or_insert_with(|| Lane {
            entries: VecDeque::new(),
            next_look: 0,
            pause: 0,
            since: None,
            put_off: false,
            scout: false,
            left: false,
            eager_until: 0,
            seen_pending: None,
            slack: 0,
            shares: false,
            wait: 0,
            scouted: false,
        });
        let was_long = lane.is_long();
        let before = lane.entries.len();
        while lane.entries.front().is_some_and(|oldest| is_over(&oldest.watch)) {
            forgotten.extend(lane.entries.pop_front().map(|entry| entry.watch));
        }
        let forgotten = before - lane.entries.len();
        lane.entries.push_back(Entry { watch, expected, deviation, grace });
        if forgotten > 0 || before == 0 {
            lane.aim(now, &self.pace);
        }
        if forgotten > 0 && lane.entries.len() > 1 {
            // It may have been the oldest for long.
            lane.since = None;
        }
        if lane.left && lane.entries.len() > 1 {
            // Whoever looks at the oldest does not look for those behind it.
            if let Some(oldest) = lane.entries.front_mut() {
                oldest.grace = 0;
            }
            lane.aim_again(now, &self.pace);
        }
        self.in_flight = self.in_flight - forgotten + 1;
        self.long = self.long + usize::from(lane.is_long()) - usize::from(was_long);
        let [most, before] = &mut self.most_long;
        *most = self.long.max(*most);
        if lane.is_long() && self.long.max(*before) > self.pace.few {
            lane.share(Share::Many);
        }
        let latest_look = lane.latest_look();
        self.plan = self.plan.min(latest_look);
        latest_look
    }

    /// Nobody else looks for the end of an entry any more, by its deadline or as somebody who waits
    /// was asked to: the next look at it is when its prediction says. Gives the time until when
    /// that can wait, if the entry is the oldest of its lane.
    pub(super) fn leave_alone_no_longer(
        &mut self,
        now: u64,
        lane: u64,
        is_it: impl Fn(&W) -> bool,
    ) -> Option<u64> {
        let lane = self.lanes.get_mut(&lane)?;
        let was_long = lane.is_long();
        let position = lane.entries.iter().position(|entry| is_it(&entry.watch))?;
        lane.entries[position].grace = 0;
        if position > 0 {
            return None;
        }
        if lane.left {
            lane.aim_again(now, &self.pace);
        }
        if std::mem::take(&mut lane.scouted) {
            lane.next_look = now;
        }
        self.long = self.long + usize::from(lane.is_long()) - usize::from(was_long);
        let latest_look = lane.latest_look();
        self.plan = self.plan.min(latest_look);
        Some(latest_look)
    }

    /// The time to look at: now, or that of a look planned so soon that there is no use in sleeping
    /// until then.
    pub(super) fn moment(&mut self, now: u64) -> u64 {
        if self.long == 0 {
            return now;
        }
        self.share();
        let (plan, early) = self.plan();
        let early = early.filter(|_| plan.saturating_sub(now) <= early.unwrap_or(0));
        self.plan = plan;
        if early.is_some() {
            self.rhythm.look(plan);
            return now.max(plan);
        }
        now
    }

    /// Whether much long work is in flight, or was before and will be again as soon as all is submitted.
    fn are_many(&self) -> bool {
        self.long > 0 && self.long.max(self.most_long[1]) > self.pace.few
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane<W>> {
        self.lanes.values().inspect(|_| self.visits.count())
    }

    fn share(&mut self) {
        if self.are_many() {
            let lanes = self.lanes.values_mut().inspect(|_| self.visits.count());
            let lanes = lanes.filter(|lane| lane.is_long());
            lanes.for_each(|lane| lane.share(Share::Many));
        }
    }

    /// Where long work is in flight, when to look next: as late as all can wait, but when the last
    /// is due that is until then. And how much earlier that can be, if it is the first look at
    /// something long.
    fn plan(&self) -> (u64, Option<u64>) {
        let lanes = || self.lanes().filter(|lane| !lane.entries.is_empty());
        let latest = lanes().map(Lane::latest_look).min().unwrap_or(u64::MAX);
        let last = lanes().filter(|lane| lane.next_look <= latest).max_by_key(|lane| lane.next_look);
        last.map_or((latest, None), |lane| {
            (lane.next_look, Some(lane.early()).filter(|_| lane.put_off && lane.is_long()))
        })
    }

    /// When the next look will be, if nothing is in flight and what is submitted next is like what
    /// was before.
    pub(super) fn next_in_rhythm(&self) -> Option<u64> {
        self.rhythm.next_look()
    }

    /// The entries that a look at this time is about.
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = &W> {
        let lanes = (self.plan <= now).then(|| self.lanes()).into_iter().flatten();
        let lanes = lanes.filter(move |lane| lane.next_look <= now);
        lanes.filter_map(|lane| lane.entries.front()).map(|oldest| &oldest.watch)
    }

    /// The same in the order in which to ask, as `copy` gives them.
    pub(super) fn due_in_order(&self, now: u64, copy: impl Fn(&W) -> W, due: &mut Vec<Due<W>>) {
        let lanes = self.lanes().filter(|lane| self.plan <= now && lane.next_look <= now);
        let mut lanes: SmallVec<[(Option<u64>, &W); 64]> = lanes
            .filter_map(|lane| {
                let end = lane.end().filter(|&end| lane.can_wait(now, end));
                Some((end, &lane.entries.front()?.watch))
            })
            .collect();
        // Those that cannot wait come first.
        lanes.sort_unstable_by_key(|&(end, _)| end);
        due.extend(lanes.into_iter().map(|(end, watch)| Due { watch: copy(watch), can_wait: end.is_some() }));
    }

    /// Looks at the oldest entry of each lane whose time has come; moves what `is_final` to
    /// `finished`, and comes back soon to what that knows nothing of. `find_scout` gives who is to
    /// look for the end of an entry, if somebody waits for it.
    pub(super) fn look<A: Into<Option<bool>>>(
        &mut self,
        now: u64,
        mut is_final: impl FnMut(&W) -> A,
        mut find_scout: impl FnMut(&W) -> Option<W>,
        finished: &mut Vec<Finished<W>>,
        scouts: &mut Vec<Scout<W>>,
    ) -> Next {
        let mut is_final = |watch: &W| is_final(watch).into();
        if self.in_flight == 0 {
            return Next::Idle;
        }
        let now = self.moment(now);
        if self.plan > now {
            return Next::After(Duration::from_nanos(self.plan - now));
        }
        let (mut latest_look, mut empty) = (u64::MAX, 0);
        for lane in self.lanes.values_mut() {
            self.visits.count();
            let (before, was_long) = (lane.entries.len(), lane.is_long());
            if was_long && lane.end().is_some_and(|end| end <= self.scouting_until) {
                lane.share(Share::Scouted);
            }
            if lane.scout && lane.next_look <= now {
                lane.scout = false;
                lane.send_scout(
                    now,
                    &self.pace,
                    &mut self.scouting_until,
                    &mut is_final,
                    &mut find_scout,
                    scouts,
                );
            }
            lane.look(now, &self.pace, &mut is_final, finished);
            self.in_flight -= before - lane.entries.len();
            self.long = self.long + usize::from(lane.is_long()) - usize::from(was_long);
            match lane.entries.is_empty() {
                true => empty += 1,
                false => latest_look = latest_look.min(lane.latest_look()),
            }
        }
        if empty > MOST_EMPTY_LANES {
            self.lanes.retain(|_, lane| {
                self.visits.count();
                !lane.entries.is_empty()
            });
        }
        match self.in_flight {
            0 => {
                self.rhythm.end(now);
                Next::Idle
            }
            _ => {
                self.plan = latest_look;
                if self.long > 0 {
                    self.share();
                    self.plan = self.plan().0;
                }
                Next::After(Duration::from_nanos(self.plan.saturating_sub(now)))
            }
        }
    }
}

#[cfg(test)]
mod tests;
