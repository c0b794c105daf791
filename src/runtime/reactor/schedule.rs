//! When to look at which event: pure data, the time is an argument.
//!
//! Each lane is an in-order queue, so only its oldest entry can be the next to complete: a look costs one query a lane,
//! however much is in flight. An entry is looked at shortly before its predicted completion, then again and again around
//! it, and from then on with growing pauses; without a prediction, with these from the start.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

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
    pub(super) expected: Option<Duration>,
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

/// What the moment at which something was found to be over says about when it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// It had been seen in flight shortly before, or nothing had put off the look.
    InTime,
    /// It was over at the first look, which a prediction had put off: it took less than predicted.
    Overslept,
    /// It was over at the first look, and until then it had been left to somebody else: it took at most so long.
    Late,
}

/// Something in flight that was found to be over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Finished<W> {
    pub(super) watch: W,
    pub(super) seen: Seen,
    /// Nanoseconds from when it had become the oldest of its lane until it was found over, where both were seen.
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
}

#[derive(Debug)]
struct Lane<W> {
    entries: VecDeque<Entry<W>>,
    next_look: u64,
    pause: u64,
    /// When the oldest entry became it, where that was seen.
    since: Option<u64>,
    /// The next look at the oldest entry is the first, and a prediction has put it off.
    put_off: bool,
    /// The look planned next is only to find somebody who looks, if the oldest entry is not over by then.
    scout: bool,
    /// And it was not the prediction that put it off: somebody else was to look.
    left: bool,
    /// Until when looks follow each other without a pause.
    eager_until: u64,
    /// When the oldest entry was last seen not to be over.
    seen_pending: Option<u64>,
}

#[derive(Debug)]
struct Entry<W> {
    watch: W,
    expected: Option<u64>,
    grace: u64,
}

/// Emptied lanes are kept, with their memory, up to this many: executables come and go, steady ones repeat.
const MOST_EMPTY_LANES: usize = 256;

impl<W> Schedule<W> {
    pub(super) fn new(pace: Pace) -> Self {
        Self { lanes: HashMap::new(), in_flight: 0, pace, scouting_until: 0 }
    }

    pub(super) fn set_pace(&mut self, pace: Pace) {
        self.pace = pace;
    }

    /// Adds what was enqueued last on its lane, and forgets what others have found over meanwhile. Gives the time of the
    /// lane's next look.
    pub(super) fn watch(
        &mut self,
        now: u64,
        lane: u64,
        watch: W,
        Times { expected, grace }: Times,
        is_over: impl Fn(&W) -> bool,
        forgotten: &mut impl Extend<W>,
    ) -> u64 {
        let (expected, grace) = (expected.map(nanoseconds), nanoseconds(grace));
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
        });
        let before = lane.entries.len();
        while lane.entries.front().is_some_and(|oldest| is_over(&oldest.watch)) {
            forgotten.extend(lane.entries.pop_front().map(|entry| entry.watch));
        }
        let forgotten = before - lane.entries.len();
        lane.entries.push_back(Entry { watch, expected, grace });
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
            let since = lane.since;
            lane.aim(since.unwrap_or(now), &self.pace);
            lane.since = since;
        }
        self.in_flight = self.in_flight - forgotten + 1;
        lane.next_look
    }

    /// The entries that a look at this time is about.
    pub(super) fn due(&self, now: u64) -> impl Iterator<Item = &W> {
        let lanes = self.lanes.values().filter(move |lane| lane.next_look <= now);
        lanes.filter_map(|lane| lane.entries.front()).map(|oldest| &oldest.watch)
    }

    /// Looks at the oldest entry of each lane whose time has come; moves what `is_final` to `finished`. `find_scout` gives
    /// who is to look for the end of an entry, if somebody waits for it.
    pub(super) fn look(
        &mut self,
        now: u64,
        mut is_final: impl FnMut(&W) -> bool,
        mut find_scout: impl FnMut(&W) -> Option<W>,
        finished: &mut Vec<Finished<W>>,
        scouts: &mut Vec<Scout<W>>,
    ) -> Next {
        let mut earliest = u64::MAX;
        for lane in self.lanes.values_mut() {
            let before = lane.entries.len();
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
            if !lane.entries.is_empty() {
                earliest = earliest.min(lane.next_look);
            }
        }
        if self.lanes.len() > MOST_EMPTY_LANES {
            self.lanes.retain(|_, lane| !lane.entries.is_empty());
        }
        match self.in_flight {
            0 => Next::Idle,
            _ => Next::After(Duration::from_nanos(earliest.saturating_sub(now))),
        }
    }
}

impl<W> Lane<W> {
    /// Plans the first look at the entry that has just become the oldest, and so, in an in-order queue, started now.
    fn aim(&mut self, now: u64, pace: &Pace) {
        let oldest = self.entries.front().map(|entry| (entry.expected, entry.grace));
        let (expected, grace) = oldest.unwrap_or_default();
        let scouts = expected.and_then(|expected| (pace.scouts)(Duration::from_nanos(expected)));
        // Where the end is nearer than that anyway, nobody has to be woken for it.
        let margin = scouts.map(nanoseconds).filter(|&margin| margin > pace.margin && grace == 0);
        self.scout = margin.is_some();
        let before = expected.unwrap_or(0).saturating_sub(margin.unwrap_or(pace.margin));
        self.next_look = now.saturating_add(before.max(grace));
        self.left = grace > before;
        self.put_off = self.next_look > now;
        self.eager_until = match expected {
            Some(expected) if pace.spins => now.saturating_add(expected).saturating_add(pace.margin / 2),
            _ => 0,
        };
        self.seen_pending = None;
        self.since = Some(now);
        self.pause = pace.first_pause;
    }

    /// Puts off the next look if the oldest entry is not over: for long, if somebody else looks meanwhile.
    fn send_scout(
        &mut self,
        now: u64,
        pace: &Pace,
        scouting_until: &mut u64,
        is_final: &mut impl FnMut(&W) -> bool,
        find_scout: &mut impl FnMut(&W) -> Option<W>,
        scouts: &mut Vec<Scout<W>>,
    ) {
        let Some(oldest) = self.entries.front() else { return };
        let (Some(since), Some(expected)) = (self.since, oldest.expected) else { return };
        if is_final(&oldest.watch) {
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
            (self.next_look, self.eager_until) = (until, 0);
        }
    }

    fn look(
        &mut self,
        now: u64,
        pace: &Pace,
        is_final: &mut impl FnMut(&W) -> bool,
        finished: &mut Vec<Finished<W>>,
    ) {
        while self.next_look <= now {
            match self.entries.front() {
                None => return,
                Some(oldest) if is_final(&oldest.watch) => {
                    let seen = match (self.put_off, self.left) {
                        (false, _) => Seen::InTime,
                        (true, false) => Seen::Overslept,
                        (true, true) => Seen::Late,
                    };
                    // Somewhere between the last two looks; what is rather too short makes the next first look early enough.
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
                    if self.entries.front().is_some_and(|next| is_final(&next.watch)) {
                        self.next_look = now;
                        self.put_off = false;
                        self.since = None;
                    }
                }
                Some(_) => {
                    self.put_off = false;
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

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACE: Pace =
        Pace { margin: 10, first_pause: 4, longest_pause: 16, growth: 1, spins: false, scouts: |_| None };

    fn expecting(nanos: u64) -> Times {
        Times { expected: Some(Duration::from_nanos(nanos)), grace: Duration::ZERO }
    }

    /// Looks at time `now`; what is in `done` is final. Returns what was found, how many queries it took, and what next.
    fn look(schedule: &mut Schedule<u32>, now: u64, done: &[u32]) -> (Vec<u32>, usize, Next) {
        let (mut found, mut queries) = (Vec::new(), 0);
        let next = schedule.look(
            now,
            |watch| {
                queries += 1;
                done.contains(watch)
            },
            |_| None,
            &mut found,
            &mut Vec::new(),
        );
        (found.into_iter().map(|Finished { watch, .. }| watch).collect(), queries, next)
    }

    /// Nobody else has seen it finished.
    fn in_flight(_: &u32) -> bool {
        false
    }

    fn after(nanos: u64) -> Next {
        Next::After(Duration::from_nanos(nanos))
    }

    #[test]
    fn sleeps_until_shortly_before_the_prediction_then_backs_off() {
        let mut schedule = Schedule::new(PACE);
        assert_eq!(look(&mut schedule, 0, &[]), (vec![], 0, Next::Idle));
        schedule.watch(100, 0, 7, expecting(50), in_flight, &mut Vec::new());
        assert_eq!(look(&mut schedule, 100, &[]), (vec![], 0, after(40)));
        assert_eq!(look(&mut schedule, 140, &[]), (vec![], 1, after(4)));
        assert_eq!(look(&mut schedule, 144, &[]), (vec![], 1, after(8)));
        assert_eq!(look(&mut schedule, 152, &[]), (vec![], 1, after(16)));
        assert_eq!(look(&mut schedule, 168, &[]), (vec![], 1, after(16)));
        assert_eq!(look(&mut schedule, 184, &[7]), (vec![7], 1, Next::Idle));
    }

    #[test]
    fn looks_without_a_pause_around_the_prediction() {
        let mut schedule = Schedule::new(Pace { spins: true, growth: 2, ..PACE });
        schedule.watch(0, 0, 7, expecting(100), in_flight, &mut Vec::new());
        assert_eq!(look(&mut schedule, 0, &[]), (vec![], 0, after(90)));
        for now in [90, 95, 100, 104] {
            assert_eq!(look(&mut schedule, now, &[]), (vec![], 1, after(0)));
        }
        assert_eq!(look(&mut schedule, 105, &[]), (vec![], 1, after(4)));
        assert_eq!(look(&mut schedule, 109, &[]), (vec![], 1, after(6)));
        assert_eq!(look(&mut schedule, 115, &[7]), (vec![7], 1, Next::Idle));
    }

    // Two lanes, both expected to end at 1000; somebody waits for each.
    #[test]
    fn one_who_waits_is_asked_to_look_and_keeps_the_reactor_out_of_it() {
        let scouts = |_| Some(Duration::from_nanos(100));
        let mut schedule = Schedule::new(Pace { scouts, spins: true, ..PACE });
        for lane in 0..2u32 {
            let watched =
                schedule.watch(0, u64::from(lane), lane, expecting(1000), in_flight, &mut Vec::new());
            assert_eq!(watched, 900);
        }
        let (mut found, mut asked) = (Vec::new(), Vec::new());
        let mut look = |now, done: bool| {
            let find = |&lane: &u32| Some(lane);
            let next = schedule.look(now, |_| done, find, &mut found, &mut asked);
            (next, found.len(), asked.len())
        };
        assert_eq!(look(900, false), (after(90), 0, 1), "one is enough");
        // The other is looked at here.
        assert_eq!(look(990, false), (after(0), 0, 1));
        assert_eq!(look(1000, true), (after(10), 1, 1));
        assert_eq!(look(1010, true), (Next::Idle, 2, 1));
        assert_eq!(asked[0].until, 1010);
    }

    #[test]
    fn where_nobody_waits_the_reactor_looks_itself() {
        let scouts = |_| Some(Duration::from_nanos(100));
        let mut schedule = Schedule::new(Pace { scouts, ..PACE });
        schedule.watch(0, 0, 7, expecting(1000), in_flight, &mut Vec::new());
        assert_eq!(look(&mut schedule, 900, &[]), (vec![], 1, after(90)));
        assert_eq!(look(&mut schedule, 990, &[]), (vec![], 1, after(4)));
        assert_eq!(schedule.due(993).count(), 0);
        assert_eq!(schedule.due(994).collect::<Vec<_>>(), [&7]);
        assert_eq!(look(&mut schedule, 994, &[7]), (vec![7], 1, Next::Idle));
    }

    #[test]
    fn leaves_alone_for_a_while_what_somebody_else_looks_at() {
        let mut schedule = Schedule::new(PACE);
        let times = Times { grace: Duration::from_nanos(500), ..expecting(100) };
        assert_eq!(schedule.watch(0, 0, 7, times, in_flight, &mut Vec::new()), 500);
        assert_eq!(look(&mut schedule, 499, &[7]), (vec![], 0, after(1)));
        // Seen over by the other one: the next has a time of its own.
        assert_eq!(schedule.watch(200, 0, 8, times, |&watch| watch == 7, &mut Vec::new()), 700);
        let mut found = Vec::new();
        assert_eq!(schedule.look(700, |_| true, |_| None, &mut found, &mut Vec::new()), Next::Idle);
        assert_eq!(found, [Finished { watch: 8, seen: Seen::Late, took: Some(500) }]);
    }

    // |-- 100, looked at by somebody until 500 --|-- 100 --|
    #[test]
    fn what_is_behind_something_that_somebody_looks_at_is_not_left_alone() {
        let mut schedule = Schedule::new(PACE);
        let times = Times { grace: Duration::from_nanos(500), ..expecting(100) };
        assert_eq!(schedule.watch(0, 0, 1, times, in_flight, &mut Vec::new()), 500);
        assert_eq!(schedule.watch(10, 0, 2, expecting(100), in_flight, &mut Vec::new()), 90);
        assert_eq!(schedule.watch(20, 0, 3, expecting(100), in_flight, &mut Vec::new()), 90);
        let (found, _, next) = look(&mut schedule, 90, &[1]);
        assert_eq!((found, next), (vec![1], after(90)));
        // Seen by the one who looked: the next is the oldest from then on.
        let mut schedule = Schedule::new(PACE);
        schedule.watch(0, 0, 1, times, in_flight, &mut Vec::new());
        assert_eq!(schedule.watch(50, 0, 2, times, |&watch| watch == 1, &mut Vec::new()), 550);
    }

    #[test]
    fn looks_only_at_the_oldest_of_each_lane() {
        let mut schedule = Schedule::new(PACE);
        (0..1000).for_each(|watch| {
            _ = schedule.watch(0, u64::from(watch % 4), watch, Times::default(), in_flight, &mut Vec::new())
        });
        let (found, queries, next) = look(&mut schedule, 0, &[]);
        assert_eq!((found.len(), queries, next), (0, 4, after(4)));
    }

    #[test]
    fn finds_everything_that_completed_while_it_slept() {
        let mut schedule = Schedule::new(PACE);
        (0..5).for_each(|watch| _ = schedule.watch(0, 0, watch, expecting(100), in_flight, &mut Vec::new()));
        let (found, _, next) = look(&mut schedule, 90, &[0, 1, 2]);
        assert_eq!((found, next), (vec![0, 1, 2], after(90)));
    }

    #[test]
    fn a_prediction_that_was_too_long_shows() {
        let mut schedule = Schedule::new(PACE);
        let mut found = Vec::new();
        let long = expecting(1000);
        assert_eq!(schedule.watch(0, 0, 1, long, in_flight, &mut Vec::new()), 990);
        schedule.look(990, |_| true, |_| None, &mut found, &mut Vec::new());
        assert_eq!(found, [Finished { watch: 1, seen: Seen::Overslept, took: Some(990) }]);
        found.clear();
        assert_eq!(schedule.watch(990, 0, 2, long, in_flight, &mut Vec::new()), 1980);
        schedule.look(1980, |_| false, |_| None, &mut found, &mut Vec::new());
        schedule.look(2000, |_| true, |_| None, &mut found, &mut Vec::new());
        assert_eq!(found, [Finished { watch: 2, seen: Seen::InTime, took: Some(992) }]);
        found.clear();
        schedule.watch(2000, 0, 3, Times::default(), in_flight, &mut Vec::new());
        schedule.look(2000, |_| true, |_| None, &mut found, &mut Vec::new());
        assert_eq!(found, [Finished { watch: 3, seen: Seen::InTime, took: Some(0) }]);
    }

    // One lane, in which a long one comes before a short one:
    //
    //     |------- 1000 -------|- 50 -|
    #[test]
    fn each_entry_is_looked_at_by_its_own_prediction_and_timed_by_itself() {
        let mut schedule = Schedule::new(PACE);
        schedule.watch(0, 0, 1, expecting(1000), in_flight, &mut Vec::new());
        schedule.watch(0, 0, 2, expecting(50), in_flight, &mut Vec::new());
        let mut found = Vec::new();
        assert_eq!(schedule.look(990, |_| false, |_| None, &mut found, &mut Vec::new()), after(4));
        assert_eq!(
            schedule.look(1000, |&watch| watch == 1, |_| None, &mut found, &mut Vec::new()),
            after(40)
        );
        assert_eq!(found, [Finished { watch: 1, seen: Seen::InTime, took: Some(991) }]);
        found.clear();
        assert_eq!(schedule.look(1040, |_| false, |_| None, &mut found, &mut Vec::new()), after(4));
        assert_eq!(schedule.look(1050, |_| true, |_| None, &mut found, &mut Vec::new()), Next::Idle);
        assert_eq!(found, [Finished { watch: 2, seen: Seen::InTime, took: Some(41) }]);
    }

    #[test]
    fn what_was_found_late_does_not_tell_how_long_the_next_took() {
        let mut schedule = Schedule::new(PACE);
        let mut found = Vec::new();
        (0..3).for_each(|watch| _ = schedule.watch(0, 0, watch, expecting(100), in_flight, &mut Vec::new()));
        schedule.look(90, |&watch| watch < 2, |_| None, &mut found, &mut Vec::new());
        schedule.look(200, |_| true, |_| None, &mut found, &mut Vec::new());
        let took: Vec<_> = found.iter().map(|finished| finished.took).collect();
        assert_eq!(took, [Some(90), None, Some(110)]);
        // Somebody else saw the first of two over, some time ago.
        found.clear();
        (0..2).for_each(|watch| {
            _ = schedule.watch(200, 0, watch, Times::default(), in_flight, &mut Vec::new())
        });
        schedule.watch(300, 0, 2, Times::default(), |&watch| watch == 0, &mut Vec::new());
        schedule.look(310, |&watch| watch == 1, |_| None, &mut found, &mut Vec::new());
        assert_eq!(found, [Finished { watch: 1, seen: Seen::InTime, took: None }]);
    }

    #[test]
    fn tells_when_a_new_entry_needs_the_next_look() {
        let mut schedule = Schedule::new(PACE);
        assert_eq!(schedule.watch(0, 0, 1, expecting(1000), in_flight, &mut Vec::new()), 990);
        assert_eq!(schedule.watch(5, 1, 2, Times::default(), in_flight, &mut Vec::new()), 5);
        assert_eq!(
            schedule.watch(6, 0, 3, Times::default(), in_flight, &mut Vec::new()),
            990,
            "its lane's oldest comes first"
        );
    }

    #[test]
    fn forgets_what_others_have_found_over() {
        let mut schedule = Schedule::new(PACE);
        (0..5).for_each(|watch| _ = schedule.watch(0, 0, watch, expecting(100), in_flight, &mut Vec::new()));
        assert_eq!(schedule.watch(50, 0, 5, expecting(100), |&watch| watch < 4, &mut Vec::new()), 140);
        assert_eq!(look(&mut schedule, 140, &[4, 5]), (vec![4, 5], 3, Next::Idle));
    }

    #[test]
    fn without_a_prediction_it_looks_at_once() {
        let mut schedule = Schedule::new(PACE);
        schedule.watch(5, 0, 1, Times::default(), in_flight, &mut Vec::new());
        assert_eq!(look(&mut schedule, 5, &[1]), (vec![1], 1, Next::Idle));
    }
}
