use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const PACE: Pace = Pace {
    margin: 10,
    first_pause: 4,
    longest_pause: 16,
    growth: 1,
    spins: false,
    scouts: |_| None,
    lead: u64::MAX,
    slack: |_| Duration::ZERO,
    few: 2,
    late: false,
};

fn expecting(nanos: u64) -> Times {
    let expected = Guess { mean: Duration::from_nanos(nanos), deviation: Duration::ZERO };
    Times { expected: Some(expected), grace: Duration::ZERO }
}

/// Looks at time `now`; what is in `done` is final. Returns what was found, how many queries it
/// took, and what next.
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
        let watched = schedule.watch(0, u64::from(lane), lane, expecting(1000), in_flight, &mut Vec::new());
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

// |-- 100, looked at by somebody until 500 --|
#[test]
fn what_a_submission_no_longer_looks_at_is_looked_at_by_its_prediction() {
    let mut schedule = Schedule::new(PACE);
    let times = Times { grace: Duration::from_nanos(500), ..expecting(100) };
    assert_eq!(schedule.watch(0, 0, 1, times, in_flight, &mut Vec::new()), 500);
    assert_eq!(schedule.leave_alone_no_longer(20, 0, |&watch| watch == 7), None, "not there");
    assert_eq!(schedule.leave_alone_no_longer(20, 0, |&watch| watch == 1), Some(90));
    assert_eq!(look(&mut schedule, 90, &[]), (vec![], 1, after(4)));
    // What should have ended already is looked at at once.
    assert_eq!(schedule.watch(200, 1, 2, times, in_flight, &mut Vec::new()), 700);
    assert_eq!(schedule.leave_alone_no_longer(400, 1, |&watch| watch == 2), Some(290));
}

// Somebody who waits was asked to look until 1050, and is gone.
#[test]
fn what_a_lost_scout_was_sent_to_look_at_is_looked_at_at_once() {
    let mut schedule = Schedule::new(SHARING);
    schedule.watch(0, 0, 1, expecting(1000), in_flight, &mut Vec::new());
    let mut scouts = Vec::new();
    schedule.look(900, |_| false, |&watch| Some(watch), &mut Vec::new(), &mut scouts);
    assert_eq!(scouts, [Scout { watch: 1, until: 1050 }]);
    assert_eq!(schedule.leave_alone_no_longer(910, 0, |&watch| watch == 1), Some(910));
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
    assert_eq!(schedule.look(1000, |&watch| watch == 1, |_| None, &mut found, &mut Vec::new()), after(40));
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
    (0..2).for_each(|watch| _ = schedule.watch(200, 0, watch, Times::default(), in_flight, &mut Vec::new()));
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

/// One pass as the reactor makes it: asks in order, and not for what can wait. Returns what was
/// found and asked, and what next.
fn pass(schedule: &mut Schedule<u32>, now: u64, done: &[u32]) -> (Vec<u32>, Vec<u32>, Next) {
    let (mut due, mut asked, mut in_flight) = (Vec::new(), Vec::new(), false);
    let now = schedule.moment(now);
    schedule.due_in_order(now, |&watch| watch, &mut due);
    for Due { watch, can_wait } in due {
        if !(can_wait && in_flight) {
            asked.push(watch);
            in_flight |= can_wait && !done.contains(&watch);
        }
    }
    let (mut found, mut scouts) = (Vec::new(), Vec::new());
    let answer = |watch: &u32| asked.contains(watch).then(|| done.contains(watch));
    let next = schedule.look(now, answer, |&watch| Some(watch), &mut found, &mut scouts);
    assert_eq!(scouts, []);
    let mut found: Vec<_> = found.into_iter().map(|finished| finished.watch).collect();
    found.sort_unstable();
    (found, asked, next)
}

const SHARING: Pace = Pace {
    margin: 50,
    spins: true,
    scouts: |_| Some(Duration::from_nanos(100)),
    slack: |expected| expected.checked_div(50).unwrap_or_default(),
    longest_pause: 1000,
    ..PACE
};

/// Six lanes, submitted one after the other from then on, of 1000 each but the last:
///
///     0 |------- 1000 -------|
///      1 |------- 1000 -------|    ...
///          5 |------- 1200 -----------|
fn six(schedule: &mut Schedule<u32>, from: u64) -> Vec<u64> {
    let lanes = (0..6).zip([1000, 1000, 1000, 1000, 1000, 1200]);
    let watch = |(lane, expected)| {
        let now = from + u64::from(5 * lane);
        schedule.watch(now, u64::from(lane), lane, expecting(expected), in_flight, &mut Vec::new())
    };
    lanes.map(watch).collect()
}

#[test]
fn many_that_take_long_share_looks_and_are_asked_until_one_is_in_flight() {
    let mut schedule = Schedule::new(SHARING);
    six(&mut schedule, 0);
    // Nobody is sent to look, and nobody spins: the first look is when the fifth should have ended,
    // and 20 later.
    assert_eq!(pass(&mut schedule, 100, &[]), (vec![], vec![], after(940)));
    assert_eq!(pass(&mut schedule, 1030, &[0, 1]), (vec![0, 1], vec![0, 1, 2], after(40)), "and not again");
    assert_eq!(pass(&mut schedule, 1080, &[2, 3, 4]), (vec![2, 3, 4], vec![2, 3, 4], after(169)));
    assert_eq!(pass(&mut schedule, 1249, &[5]), (vec![5], vec![5], Next::Idle));
}

// Lanes 0 to 2 should end at 1000, 1005 and 1010; the first look is 20 after the last of them.
#[test]
fn a_look_after_the_predicted_end_tells_how_long_it_took_at_most_and_one_in_flight_tells_for_all() {
    let submitted = || {
        let mut schedule = Schedule::new(SHARING);
        for lane in 0..3_u32 {
            schedule.watch(
                5 * u64::from(lane),
                u64::from(lane),
                lane,
                expecting(1000),
                in_flight,
                &mut Vec::new(),
            );
        }
        schedule
    };
    let seen = |found: &[Finished<u32>]| {
        let mut seen: Vec<_> = found.iter().map(|it| (it.watch, it.seen, it.took)).collect();
        seen.sort_unstable_by_key(|&(watch, ..)| watch);
        seen
    };
    let mut all_over = submitted();
    let mut found = Vec::new();
    let next = all_over.look(1030, |_| true, |_| None, &mut found, &mut Vec::new());
    let took = |watch, took| (watch, Seen::Expected, Some(took));
    assert_eq!((next, seen(&found)), (Next::Idle, vec![took(0, 1030), took(1, 1025), took(2, 1020)]));
    found.clear();
    let mut one_in_flight = submitted();
    // The others are not asked.
    let asked = |watch: &u32| (*watch == 0).then_some(false);
    let next = one_in_flight.look(1030, asked, |_| None, &mut found, &mut Vec::new());
    assert_eq!((next, found.len()), (after(40), 0));
    one_in_flight.look(1070, |_| true, |_| None, &mut found, &mut Vec::new());
    let took = |watch, took| (watch, Seen::InTime, Some(took));
    assert_eq!(seen(&found), [took(0, 1035), took(1, 1030), took(2, 1025)]);
}

#[test]
fn those_that_are_many_again_need_nobody_to_be_woken_before_the_look_at_all() {
    let mut schedule = Schedule::new(SHARING);
    assert_eq!(schedule.next_in_rhythm(), None);
    let first = six(&mut schedule, 0);
    assert_eq!(first[0], 900, "a scout for the only one");
    assert_eq!(pass(&mut schedule, 1040, &[0, 1, 2, 3, 4]).0, [0, 1, 2, 3, 4]);
    assert_eq!(pass(&mut schedule, 1250, &[5]).2, Next::Idle);
    assert_eq!(schedule.next_in_rhythm(), None, "nobody knows when the next are submitted");
    six(&mut schedule, 1300);
    assert_eq!(pass(&mut schedule, 2340, &[0, 1, 2, 3, 4]).0, [0, 1, 2, 3, 4]);
    assert_eq!(pass(&mut schedule, 2560, &[5]).2, Next::Idle);
    // 50 until the next is submitted, and 1040 until the look.
    let asleep_until = 2560 + 1090;
    assert_eq!(schedule.next_in_rhythm(), Some(asleep_until));
    assert!(six(&mut schedule, 2610).into_iter().all(|latest_look| latest_look >= asleep_until));
    assert_eq!(pass(&mut schedule, asleep_until, &[0, 1, 2, 3, 4]).0, [0, 1, 2, 3, 4]);
}

#[test]
fn one_that_is_long_overdue_is_asked_whatever_the_others_do() {
    let mut schedule = Schedule::new(SHARING);
    for (watch, expected) in [1000, 1060, 1100, 1300].into_iter().enumerate() {
        let watch = watch as u32;
        schedule.watch(0, u64::from(watch), watch, expecting(expected), in_flight, &mut Vec::new());
    }
    schedule.look(0, |_| false, |_| None, &mut Vec::new(), &mut Vec::new());
    assert_eq!(pass(&mut schedule, 1079, &[2]).1, [0]);
    assert_eq!(pass(&mut schedule, 1122, &[2]).1, [0, 1], "nobody waits for what is overdue");
    let (found, mut asked, next) = pass(&mut schedule, 1210, &[2]);
    asked.sort_unstable();
    assert_eq!((found, asked, next), (vec![2], vec![0, 1, 2], after(116)));
}

#[test]
fn what_always_takes_the_same_time_is_looked_for_later() {
    let mut schedule = Schedule::new(Pace { scouts: |_| Some(Duration::from_nanos(100)), lead: 40, ..PACE });
    for (lane, (deviation, look)) in [(0, 960), (10, 930), (20, 900), (200, 900)].into_iter().enumerate() {
        let (mean, deviation) = (Duration::from_nanos(1000), Duration::from_nanos(deviation));
        let times = Times { expected: Some(Guess { mean, deviation }), grace: Duration::ZERO };
        assert_eq!(schedule.watch(0, lane as u64, 7, times, in_flight, &mut Vec::new()), look);
    }
}

#[test]
fn few_that_take_long_and_many_that_do_not_have_looks_of_their_own() {
    let mut schedule = Schedule::new(Pace { scouts: |_| None, ..SHARING });
    let short = |_| Duration::ZERO;
    for (pace, lanes) in
        [(Pace { scouts: |_| None, ..SHARING }, 0..2), (Pace { slack: short, ..SHARING }, 0..9)]
    {
        schedule.set_pace(Pace { scouts: |_| None, ..pace });
        for lane in lanes.clone() {
            schedule.watch(0, u64::from(lane), lane, expecting(1000), in_flight, &mut Vec::new());
        }
        assert_eq!(pass(&mut schedule, 0, &[]), (vec![], vec![], after(950)));
        let (found, asked, next) = pass(&mut schedule, 950, &[]);
        assert_eq!((found.len(), asked.len(), next), (0, lanes.len(), after(0)), "without a pause");
        let all: Vec<u32> = lanes.collect();
        assert_eq!(pass(&mut schedule, 960, &all).0, all);
    }
}

// Two lanes that end at 1000; somebody looks for the end of one.
#[test]
fn what_ends_while_somebody_looks_for_another_end_is_not_looked_for_without_a_pause() {
    let mut schedule = Schedule::new(Pace { few: 9, ..SHARING });
    (0..2).for_each(|lane| {
        _ = schedule.watch(0, u64::from(lane), lane, expecting(1000), in_flight, &mut Vec::new())
    });
    let mut scouts = Vec::new();
    schedule.look(900, |_| false, |&watch| Some(watch), &mut Vec::new(), &mut scouts);
    let [Scout { watch, until: 1050 }] = scouts[..] else { panic!("{scouts:?}") };
    let other = 1 - watch;
    assert_eq!(pass(&mut schedule, 950, &[]), (vec![], vec![], after(50)));
    assert_eq!(pass(&mut schedule, 1000, &[]), (vec![], vec![other], after(20)));
    assert_eq!(pass(&mut schedule, 1020, &[other]), (vec![other], vec![other], after(30)));
}

#[test]
fn looks_late_and_seldom_where_nothing_is_to_be_spent() {
    let mut schedule = Schedule::new(Pace { late: true, few: 1, longest_pause: 1000, ..SHARING });
    schedule.set_pace(Pace {
        scouts: |_| None,
        spins: false,
        late: true,
        few: 1,
        longest_pause: 1000,
        ..SHARING
    });
    schedule.watch(0, 0, 7, expecting(1000), in_flight, &mut Vec::new());
    assert_eq!(look(&mut schedule, 0, &[]), (vec![], 0, after(1020)));
    assert_eq!(look(&mut schedule, 1020, &[]), (vec![], 1, after(40)));
    assert_eq!(look(&mut schedule, 1060, &[7]), (vec![7], 1, Next::Idle));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Watch {
        lane: u64,
        expected: Option<u64>,
        grace: u64,
    },
    /// The oldest entry of a lane is over.
    End(u64),
    /// Nobody else looks for the end of any entry of the lane any more.
    LookInstead(u64),
    Look,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let watch = (0..4_u64, proptest::option::of(0..2000_u64), prop_oneof![Just(0), 1..3000_u64]);
    prop_oneof![
        4 => watch.prop_map(|(lane, expected, grace)| Step::Watch { lane, expected, grace }),
        3 => (0..4_u64).prop_map(Step::End),
        1 => (0..4_u64).prop_map(Step::LookInstead),
        4 => Just(Step::Look),
        4 => (1..1000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    // A look that comes when the schedule says finds all that is over and due, in the lanes' order,
    // and the schedule never says so later than a lane needs it.
    #[test]
    fn no_lane_is_looked_at_later_than_it_needs(steps in proptest::collection::vec(step(), 1..80)) {
        let (mut schedule, mut now, mut next) = (Schedule::new(PACE), 0, 0);
        let mut lanes: [VecDeque<u32>; 4] = Default::default();
        let mut over = HashSet::new();
        for step in steps {
            match step {
                Step::Watch { lane, expected, grace } => {
                    let expected = expected.and_then(|expected| expecting(expected).expected);
                    let times = Times { expected, grace: Duration::from_nanos(grace) };
                    let mut forgotten = Vec::new();
                    schedule.watch(now, lane, next, times, |watch| over.contains(watch), &mut forgotten);
                    let entries = &mut lanes[lane as usize];
                    prop_assert_eq!(forgotten.clone(), entries.drain(..forgotten.len()).collect::<Vec<_>>());
                    entries.push_back(next);
                    next += 1;
                }
                Step::End(lane) => {
                    let ended = lanes[lane as usize].iter().find(|watch| !over.contains(*watch)).copied();
                    over.extend(ended);
                }
                Step::LookInstead(lane) => {
                    for &watch in &lanes[lane as usize] {
                        schedule.leave_alone_no_longer(now, lane, |&other| other == watch);
                    }
                }
                Step::Look => {
                    let mut found = Vec::new();
                    let is_final = |watch: &u32| over.contains(watch);
                    let result = schedule.look(now, is_final, |_| None, &mut found, &mut Vec::new());
                    for Finished { watch, .. } in found {
                        let lane = lanes.iter_mut().find(|lane| lane.front() == Some(&watch));
                        prop_assert!(lane.is_some_and(|lane| lane.pop_front().is_some()), "found in order");
                    }
                    prop_assert_eq!(result == Next::Idle, lanes.iter().all(VecDeque::is_empty));
                }
                Step::Wait(time) => now += time,
            }
            let needed = schedule.lanes.values().filter(|lane| !lane.entries.is_empty());
            let needed = needed.map(Lane::latest_look).min();
            prop_assert!(needed.is_none_or(|needed| schedule.plan <= needed));
        }
    }
}

/// Polls as the reactor does: finds out what is due, asks for its status and looks. Returns how often
/// that visited a queue.
fn visits_of_a_poll(schedule: &mut Schedule<u32>, now: u64) -> usize {
    schedule.visits.take();
    let at = schedule.moment(now);
    if schedule.due(at).nth(1).is_some() {
        schedule.due_in_order(at, |watch| *watch, &mut Vec::new());
    }
    look(schedule, at, &[]);
    schedule.visits.take()
}

#[test]
fn a_poll_visits_each_queue_twice() {
    // Fewer and more queues than are kept when they are empty.
    for queues in [10, MOST_EMPTY_LANES as u64 + 50] {
        let mut schedule = Schedule::new(PACE);
        for queue in 0..queues {
            schedule.watch(0, queue, queue as u32, Times::default(), in_flight, &mut Vec::new());
        }
        for now in [0, 4, 12] {
            let visits = visits_of_a_poll(&mut schedule, now);
            // Two more tell that several are due.
            assert!(visits <= 2 * queues as usize + 2, "{visits} visits of {queues} queues at {now}");
        }
        // Before the next poll is due, none.
        assert_eq!(visits_of_a_poll(&mut schedule, 13), 0);
    }
}
