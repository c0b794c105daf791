//! The schedule of polls: when to poll which event. Pure data; the time is an argument.
//!
//! Each queue is in order, so only its oldest entry can be the next to end: a turn polls one event
//! per queue, however much is in flight. An entry is polled around its estimated end as the
//! [`Tuning`] says, and after that with growing pauses. An entry without an estimate is polled with growing
//! pauses from the start.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;
use wakegraph_hal::Result;

use crate::runtime::completion::estimate::{Estimate, Sample};
use crate::runtime::completion::tuning::{PollPlan, Tuning};

/// Something on a device whose end the schedule waits for.
pub(super) trait Work {
    /// Whether it is known to have ended; asks no device.
    fn has_ended(&self) -> bool;

    /// Outcome, once there is one. Asks the device.
    fn poll(&self) -> Option<Result<()>>;

    /// Whether a submission polls for its end, so that the reactor's hosts can leave it alone for a while.
    fn has_poller(&self) -> bool;
}

/// Work in flight.
#[derive(Debug)]
pub(super) struct Entry<W> {
    pub(super) work: W,
    /// Time that it should take as the oldest of its queue.
    pub(super) estimate: Option<Estimate>,
    /// Time until which no host polls it, as long as a submission does.
    pub(super) left_until: u64,
}

/// The actor that takes a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// A host of the reactor.
    Host,
    /// A submission that spins.
    Submission,
}

/// A finding of a turn.
#[derive(Debug)]
pub(super) enum Found<W> {
    /// The work has ended.
    Ended { work: W, result: Result<()>, sample: Option<Sample> },
    /// Another thread has seen it end. The caller drops it without locks.
    KnownToHaveEnded { work: W },
}

/// The work in flight, by queue.
#[derive(Debug)]
pub(super) struct Schedule<W> {
    /// Queues with entries, and queues that the last turn has emptied, in no order.
    active: Vec<PendingQueue<W>>,
    /// Where in `active` a queue is, by its number.
    places: FxHashMap<u64, usize>,
    /// Memory of queues that were active.
    spare: Vec<VecDeque<Entry<W>>>,
    /// Time before which no queue has to be polled.
    next_poll: u64,
    /// Time until which the hosts leave some entry alone, at the latest.
    left_until: u64,
    planner: Planner,
    /// Number of queues that turns have visited.
    #[cfg(test)]
    visits: usize,
}

/// The parameters that the plans of all queues depend on.
#[derive(Debug)]
struct Planner {
    tuning: Tuning,
    /// Entries of all queues.
    in_flight: usize,
    /// Active queues with long work.
    long: usize,
    /// Maximum of `long` in the current and in the previous busy period.
    most_long: [usize; 2],
}

/// The entries of one in-order queue, and when to poll the oldest.
#[derive(Debug)]
struct PendingQueue<W> {
    number: u64,
    entries: VecDeque<Entry<W>>,
    /// Time at which the oldest entry became the oldest.
    started: u64,
    /// Whether that time was seen, and not just assumed.
    is_start_known: bool,
    plan: PollPlan,
    /// Time of the next poll by a submission that spins, which makes no pauses.
    next_poll: u64,
    /// Time of the next poll by a host.
    host_poll: u64,
    /// The hosts' next pause.
    pause: u64,
    /// Time at which the oldest entry was last seen in flight.
    last_pending: Option<u64>,
    is_long: bool,
}

/// Maximum of deques that are kept for queues that become active.
const MOST_SPARE: usize = 256;

/// Nanoseconds that a driver takes to answer a poll. With many queues, turns are so far apart that this
/// is not most of what a core does.
const POLL_COST: u64 = 300;

/// Part of the work's time (a divisor) within which the work has to be seen in flight before its end, for the
/// end to count as seen: then the next entry of the queue has started at that time. [`SHORTLY`] nanoseconds
/// are enough for any work.
const SHORTLY_PART: u64 = 16;
const SHORTLY: u64 = 10_000;

impl<W: Work> Schedule<W> {
    pub(super) fn new(tuning: Tuning) -> Self {
        Self {
            active: Vec::new(),
            places: FxHashMap::default(),
            spare: Vec::new(),
            next_poll: u64::MAX,
            left_until: 0,
            planner: Planner { tuning, in_flight: 0, long: 0, most_long: [0; 2] },
            #[cfg(test)]
            visits: 0,
        }
    }

    pub(super) fn set_tuning(&mut self, tuning: Tuning) {
        self.planner.tuning = tuning;
    }

    pub(super) fn is_idle(&self) -> bool {
        self.planner.in_flight == 0
    }

    /// Adds an entry that was enqueued `at` this time, behind all others of its queue.
    pub(super) fn add(&mut self, at: u64, number: u64, entry: Entry<W>, found: &mut impl Extend<Found<W>>) {
        if self.is_idle() {
            self.planner.most_long = [0, self.planner.most_long[0]];
        }
        self.left_until = self.left_until.max(entry.left_until);
        let place = *self.places.entry(number).or_insert(self.active.len());
        if place == self.active.len() {
            let entries = self.spare.pop().unwrap_or_default();
            self.active.push(PendingQueue::new(number, entries));
        }
        let (queue, planner) = (&mut self.active[place], &mut self.planner);
        let had_entries = !queue.entries.is_empty();
        queue.drop_over(at, planner, found);
        queue.entries.push_back(entry);
        planner.in_flight += 1;
        if queue.entries.len() == 1 {
            queue.begin(at, !had_entries, planner);
        }
        self.next_poll = self.next_poll.min(queue.next_poll);
        if planner.long > planner.most_long[0] {
            planner.most_long[0] = planner.long;
            if planner.long == planner.tuning.few.saturating_add(1) {
                self.replan();
            }
        }
    }

    /// Plans the polls again: there are many queues of long work by now, and a poll serves many at once.
    fn replan(&mut self) {
        for queue in &mut self.active {
            if queue.is_long && queue.last_pending.is_none() {
                queue.begin(queue.started, queue.is_start_known, &mut self.planner);
            }
        }
        self.next_poll = self.active.iter().map(|queue| queue.next_poll).min().unwrap_or(u64::MAX);
    }

    /// Polls the queues whose time has come.
    pub(super) fn turn(&mut self, now: u64, by: By, found: &mut impl Extend<Found<W>>) {
        if now < self.next_poll {
            return;
        }
        let queues = self.active.len().min(self.planner.in_flight);
        let least_pause = POLL_COST * queues.saturating_sub(1) as u64;
        let mut next_poll = u64::MAX;
        let mut index = 0;
        while let Some(queue) = self.active.get_mut(index) {
            #[cfg(test)]
            {
                self.visits += 1;
            }
            if queue.entries.is_empty() {
                self.retire(index);
                continue;
            }
            if queue.is_due(now, by) {
                queue.turn(now, by, &mut self.planner, found);
                queue.next_poll = queue.next_poll.max(now + least_pause);
                queue.host_poll = queue.host_poll.max(now + least_pause);
            }
            // The queue of steady work is used again before the next turn.
            if !queue.entries.is_empty() {
                next_poll = next_poll.min(queue.next_poll);
            }
            index += 1;
        }
        self.next_poll = next_poll;
    }

    fn retire(&mut self, index: usize) {
        let queue = self.active.swap_remove(index);
        self.places.remove(&queue.number);
        if let Some(moved) = self.active.get(index) {
            self.places.insert(moved.number, index);
        }
        if self.spare.len() < MOST_SPARE {
            self.spare.push(queue.entries);
        }
    }

    /// Returns when a host has to take the next turn: as late as every queue allows, but not later than the
    /// last one that is due by then.
    pub(super) fn next_for_host(&self) -> Option<u64> {
        let queues = || self.active.iter().filter(|queue| !queue.entries.is_empty());
        let latest = queues().map(|queue| queue.next_for_host().saturating_add(queue.plan.window)).min()?;
        let due = queues().map(PendingQueue::next_for_host).filter(|&poll| poll <= latest);
        Some(due.max().unwrap_or(latest))
    }

    /// Returns when a host wakes up although nothing is in flight: when it would have stopped leaving the
    /// last
    /// run to its submission. Until then, runs that are left to their submissions as well need not wake it.
    pub(super) fn idle_until(&self, now: u64) -> Option<u64> {
        Some(self.left_until).filter(|&until| until > now)
    }

    /// Whether there are so many queues of long work that polls serve several at once.
    pub(super) fn has_many(&self) -> bool {
        self.planner.has_many()
    }
}

impl Planner {
    fn has_many(&self) -> bool {
        self.long.max(self.most_long[0]).max(self.most_long[1]) > self.tuning.few
    }
}

impl<W: Work> PendingQueue<W> {
    fn new(number: u64, entries: VecDeque<Entry<W>>) -> Self {
        Self {
            number,
            entries,
            started: 0,
            is_start_known: false,
            plan: PollPlan::default(),
            next_poll: 0,
            host_poll: 0,
            pause: 0,
            last_pending: None,
            is_long: false,
        }
    }

    /// Plans the polls of the entry that has become the oldest, and so, in an in-order queue, has started
    /// then.
    fn begin(&mut self, started: u64, is_start_known: bool, planner: &mut Planner) {
        let Some(oldest) = self.entries.front() else { return self.set_long(false, planner) };
        let estimate = oldest.estimate;
        self.set_long(estimate.is_some_and(|estimate| planner.tuning.delay(estimate.mean) > 0), planner);
        self.plan = planner.tuning.plan(estimate, planner.has_many());
        (self.started, self.is_start_known) = (started, is_start_known);
        self.set_next(started.saturating_add(self.plan.first));
        self.pause = self.plan.pause;
        self.last_pending = None;
    }

    /// Sets the time before which neither a submission nor a host polls.
    fn set_next(&mut self, time: u64) {
        (self.next_poll, self.host_poll) = (time, time);
    }

    fn set_long(&mut self, is_long: bool, planner: &mut Planner) {
        planner.long = planner.long + usize::from(is_long) - usize::from(self.is_long);
        self.is_long = is_long;
    }

    /// Takes out the oldest entries that other threads have seen end.
    fn drop_over(&mut self, now: u64, planner: &mut Planner, found: &mut impl Extend<Found<W>>) {
        while self.entries.front().is_some_and(|oldest| oldest.work.has_ended()) {
            found.extend(self.entries.pop_front().map(|Entry { work, .. }| Found::KnownToHaveEnded { work }));
            planner.in_flight -= 1;
            // The next may have been the oldest for long.
            self.begin(now, false, planner);
        }
    }

    /// Returns when a host should poll next.
    fn next_for_host(&self) -> u64 {
        let left = self.entries.front().filter(|oldest| oldest.work.has_poller());
        self.host_poll.max(left.map_or(0, |oldest| oldest.left_until))
    }

    fn is_due(&self, now: u64, by: By) -> bool {
        let at = if by == By::Submission { self.next_poll } else { self.next_for_host() };
        at <= now
    }

    fn turn(&mut self, now: u64, by: By, planner: &mut Planner, found: &mut impl Extend<Found<W>>) {
        let mut is_due = true;
        while is_due {
            self.drop_over(now, planner, found);
            let Some(oldest) = self.entries.front() else { return };
            let Some(result) = oldest.work.poll() else {
                return self.is_pending(now, by, planner.tuning);
            };
            let Some(Entry { work, .. }) = self.entries.pop_front() else { return };
            planner.in_flight -= 1;
            let sample = self.sample(now).filter(|_| result.is_ok());
            let was_end_seen = self.was_end_seen(now);
            found.extend([Found::Ended { work, result, sample }]);
            self.begin(now, was_end_seen, planner);
            // Where the end of the last one was not seen, the next may have ended as well.
            is_due = self.next_poll <= now || !self.is_start_known;
        }
    }

    /// Plans the next poll of the oldest entry, which is in flight.
    fn is_pending(&mut self, now: u64, by: By, tuning: Tuning) {
        let is_first = self.last_pending.replace(now).is_none();
        if !self.is_start_known && is_first {
            return self.set_next(now.saturating_add(self.plan.first.max(self.pause)));
        }
        self.next_poll = now;
        if now < self.started.saturating_add(self.plan.spin_until) {
            self.host_poll = now;
        } else if by == By::Host || self.host_poll <= now {
            self.host_poll = now.saturating_add(self.pause);
            self.pause = tuning.longer(self.pause).max(self.plan.pause);
        }
    }

    /// Whether the oldest entry was seen in flight shortly before now.
    fn was_end_seen(&self, now: u64) -> bool {
        let was_seen = |pending: u64| {
            now.saturating_sub(pending) <= SHORTLY.max(now.saturating_sub(self.started) / SHORTLY_PART)
        };
        self.last_pending.map_or(self.plan.first == 0, was_seen)
    }

    /// Measures how long the oldest entry took, whose end is seen now.
    fn sample(&self, now: u64) -> Option<Sample> {
        let took = now.saturating_sub(self.started);
        let sample = match self.last_pending {
            // Rather too short, which makes the next first poll early enough.
            Some(pending) => {
                Sample::Exact((pending + now.saturating_sub(pending) / 8).saturating_sub(self.started))
            }
            None if self.plan.first > 0 => Sample::AtMost(took),
            None => Sample::Exact(took),
        };
        self.is_start_known.then_some(sample)
    }
}

#[cfg(test)]
mod tests;
