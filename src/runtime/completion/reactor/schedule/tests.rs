use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use wakegraph_hal::{Error, ErrorKind};

use super::*;

/// Nanoseconds as figures that are easy to read.
const TUNING: Tuning = Tuning {
    poll_lead: Duration::from_nanos(10),
    wake_lead: Duration::from_nanos(40),
    long_lead: None,
    spins: false,
    first_pause: Duration::from_nanos(4),
    longest_pause: Duration::from_nanos(16),
    pause_growth: 1,
    coalescing: None,
    few: 2,
    late: false,
};

/// Work that ends when the test says so.
#[derive(Clone, Debug, Default)]
struct Fake(Rc<State>);

#[derive(Debug, Default)]
struct State {
    result: RefCell<Option<Result<()>>>,
    has_ended: Cell<bool>,
    has_poller: Cell<bool>,
    polls: Cell<usize>,
}

impl Fake {
    fn end(&self) {
        *self.0.result.borrow_mut() = Some(Ok(()));
    }

    fn polls(&self) -> usize {
        self.0.polls.take()
    }

    fn is(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Work for Fake {
    fn has_ended(&self) -> bool {
        self.0.has_ended.get()
    }

    fn poll(&self) -> Option<Result<()>> {
        self.0.polls.set(self.0.polls.get() + 1);
        self.0.result.borrow().clone()
    }

    fn has_poller(&self) -> bool {
        self.0.has_poller.get()
    }
}

const HOST: By = By::Host;

/// Adds work that should take so long.
fn add(schedule: &mut Schedule<Fake>, at: u64, queue: u64, mean: Option<u64>) -> Fake {
    let work = Fake::default();
    add_left(schedule, at, queue, mean, 0, &work);
    work
}

fn add_left(
    schedule: &mut Schedule<Fake>,
    at: u64,
    queue: u64,
    mean: Option<u64>,
    left_until: u64,
    work: &Fake,
) {
    let estimate = mean.map(|mean| Estimate { mean, deviation: 0 });
    let mut found = Vec::new();
    schedule.add(at, queue, Entry { work: work.clone(), estimate, left_until }, &mut found);
    assert!(found.iter().all(|found| matches!(found, Found::KnownToHaveEnded { .. })));
}

fn turn(schedule: &mut Schedule<Fake>, now: u64, by: By) -> Vec<Found<Fake>> {
    let mut found = Vec::new();
    schedule.turn(now, by, &mut found);
    found
}

/// The samples of what a turn of the host finds complete.
fn samples(schedule: &mut Schedule<Fake>, now: u64) -> Vec<Option<Sample>> {
    let found = turn(schedule, now, HOST).into_iter();
    found
        .filter_map(|found| if let Found::Ended { sample, .. } = found { Some(sample) } else { None })
        .collect()
}

#[test]
fn polls_shortly_before_the_estimated_end_then_backs_off() {
    let mut schedule = Schedule::new(TUNING);
    assert_eq!(schedule.next_for_host(), None);
    let work = add(&mut schedule, 100, 0, Some(50));
    assert_eq!(schedule.next_for_host(), Some(140));
    assert!(turn(&mut schedule, 139, HOST).is_empty());
    assert_eq!(work.polls(), 0);
    for (now, next) in [(140, 144), (144, 152), (152, 168), (168, 184)] {
        assert!(turn(&mut schedule, now, HOST).is_empty());
        assert_eq!((work.polls(), schedule.next_for_host()), (1, Some(next)));
    }
    work.end();
    assert_eq!(samples(&mut schedule, 184), [Some(Sample::Exact(70))]);
    assert!(schedule.is_idle());
}

#[test]
fn an_idle_host_comes_by_when_it_would_no_longer_leave_the_last_run_alone() {
    let mut schedule = Schedule::new(TUNING);
    let (polled, not_polled) = (Fake::default(), Fake::default());
    add_left(&mut schedule, 100, 0, Some(50), 1000, &polled);
    add_left(&mut schedule, 200, 1, Some(50), 0, &not_polled);
    [&polled, &not_polled].into_iter().for_each(Fake::end);
    assert_eq!(turn(&mut schedule, 300, By::Submission).len(), 2);
    assert_eq!(schedule.next_for_host(), None);
    assert_eq!([300, 999, 1000].map(|now| schedule.idle_until(now)), [Some(1000), Some(1000), None]);
}

#[test]
fn polls_without_a_pause_around_the_estimated_end() {
    let mut schedule = Schedule::new(Tuning { spins: true, ..TUNING });
    let work = add(&mut schedule, 100, 0, Some(50));
    for now in [140, 141, 154] {
        assert!(turn(&mut schedule, now, HOST).is_empty());
        assert_eq!(schedule.next_for_host(), Some(now));
    }
    assert!(turn(&mut schedule, 155, HOST).is_empty());
    assert_eq!(schedule.next_for_host(), Some(159));
    assert_eq!(work.polls(), 4);
}

#[test]
fn polls_at_once_without_an_estimate() {
    let mut schedule = Schedule::new(TUNING);
    let work = add(&mut schedule, 100, 0, None);
    work.end();
    assert_eq!(samples(&mut schedule, 103), [Some(Sample::Exact(3))]);
}

#[test]
fn polls_only_the_oldest_of_each_queue() {
    let mut schedule = Schedule::new(TUNING);
    let works: Vec<_> = (0..4).map(|index| add(&mut schedule, 0, index % 2, None)).collect();
    assert!(turn(&mut schedule, 0, HOST).is_empty());
    assert_eq!(works.iter().map(Fake::polls).collect::<Vec<_>>(), [1, 1, 0, 0]);
}

#[test]
fn finds_everything_that_completed_meanwhile() {
    let mut schedule = Schedule::new(TUNING);
    let works: Vec<_> = (0..4).map(|index| add(&mut schedule, 0, index % 2, Some(100))).collect();
    works.iter().for_each(Fake::end);
    // When the second of a queue started was not seen, so its time is not known.
    let at_most = Some(Sample::AtMost(500));
    assert_eq!(samples(&mut schedule, 500), [at_most, None, at_most, None]);
}

#[test]
fn each_entry_is_timed_from_the_end_of_the_one_before() {
    let mut schedule = Schedule::new(TUNING);
    let [first, second] = [50, 30].map(|mean| add(&mut schedule, 100, 0, Some(mean)));
    assert!(turn(&mut schedule, 145, HOST).is_empty());
    first.end();
    assert_eq!(samples(&mut schedule, 149), [Some(Sample::Exact(45))]);
    assert_eq!((second.polls(), schedule.next_for_host()), (0, Some(169)));
    assert!(turn(&mut schedule, 170, HOST).is_empty());
    second.end();
    assert_eq!(samples(&mut schedule, 174), [Some(Sample::Exact(21))]);
}

#[test]
fn a_late_first_poll_gives_an_upper_bound() {
    let mut schedule = Schedule::new(TUNING);
    add(&mut schedule, 100, 0, Some(50)).end();
    assert_eq!(samples(&mut schedule, 141), [Some(Sample::AtMost(41))]);
}

#[test]
fn a_failure_gives_no_sample() {
    let mut schedule = Schedule::new(TUNING);
    let work = add(&mut schedule, 0, 0, None);
    *work.0.result.borrow_mut() = Some(Err(Error::new(ErrorKind::Driver, "failed")));
    let found = turn(&mut schedule, 0, HOST);
    assert!(matches!(&found[..], [Found::Ended { result: Err(_), sample: None, .. }]), "{found:?}");
}

#[test]
fn the_host_leaves_work_alone_that_a_submission_polls() {
    let mut schedule = Schedule::new(TUNING);
    let work = Fake::default();
    work.0.has_poller.set(true);
    add_left(&mut schedule, 0, 0, None, 1000, &work);
    assert_eq!(schedule.next_for_host(), Some(1000));
    assert!(turn(&mut schedule, 10, HOST).is_empty());
    assert_eq!(work.polls(), 0);
    assert!(turn(&mut schedule, 10, By::Submission).is_empty());
    assert_eq!(work.polls(), 1);
    // The submission is gone.
    work.0.has_poller.set(false);
    assert!(schedule.next_for_host().unwrap() < 20);
    turn(&mut schedule, 20, HOST);
    assert_eq!(work.polls(), 1);
}

#[test]
fn polls_of_long_work_begin_as_early_as_a_thread_wakes_up() {
    let long = Tuning { long_lead: Some((4, Duration::from_nanos(100))), spins: true, ..TUNING };
    let mut schedule = Schedule::new(long);
    add(&mut schedule, 0, 0, Some(200));
    assert_eq!(schedule.next_for_host(), Some(160));
    assert!(turn(&mut schedule, 160, HOST).is_empty());
    assert_eq!(schedule.next_for_host(), Some(160));
}

/// Work of at least 100 nanoseconds can wait for a twentieth of its time.
const SHARING: Tuning = Tuning {
    coalescing: Some((20, Duration::from_nanos(1000), Duration::from_nanos(100))),
    spins: true,
    ..TUNING
};

#[test]
fn many_queues_of_long_work_share_turns_after_their_ends() {
    let mut schedule = Schedule::new(SHARING);
    let works: Vec<_> = (0..6).map(|queue| add(&mut schedule, 10 * queue, queue, Some(1000))).collect();
    // The last ends at 1050 and can wait for 50 more.
    let next = schedule.next_for_host().unwrap();
    assert!((1050..=1100).contains(&next), "{next}");
    works.iter().for_each(Fake::end);
    assert_eq!(samples(&mut schedule, 1100).len(), 6);
    // As many as before are expected the next time.
    add(&mut schedule, 2000, 0, Some(1000));
    assert_eq!(schedule.next_for_host(), Some(3050));
}

#[test]
fn few_queues_of_long_work_and_short_work_have_polls_of_their_own() {
    let mut schedule = Schedule::new(SHARING);
    (0..2).for_each(|queue| _ = add(&mut schedule, 0, queue, Some(1000)));
    (2..10).for_each(|queue| _ = add(&mut schedule, 0, queue, Some(2000).filter(|_| false)));
    assert_eq!(schedule.next_for_host(), Some(0));
    turn(&mut schedule, 0, HOST);
    assert!(!schedule.has_many());
}

#[test]
fn late_polls_come_after_the_estimated_end() {
    let mut schedule = Schedule::new(Tuning { late: true, spins: false, ..SHARING });
    let work = add(&mut schedule, 0, 0, Some(1000));
    assert_eq!(schedule.next_for_host(), Some(1050));
    assert!(turn(&mut schedule, 1050, HOST).is_empty());
    assert_eq!((work.polls(), schedule.next_for_host()), (1, Some(1150)));
}

#[test]
fn with_many_queues_a_spin_pauses_between_turns() {
    let mut schedule = Schedule::new(Tuning { spins: true, ..TUNING });
    (0..5).for_each(|queue| _ = add(&mut schedule, 0, queue, Some(1000)));
    turn(&mut schedule, 995, HOST);
    assert_eq!(schedule.next_for_host(), Some(995 + 4 * POLL_COST));
}

#[test]
fn work_that_other_threads_have_seen_complete_is_dropped() {
    let mut schedule = Schedule::new(TUNING);
    let works: Vec<_> = (0..3).map(|_| add(&mut schedule, 0, 0, Some(1000))).collect();
    works[..2].iter().for_each(|work| work.0.has_ended.set(true));
    let entry = Entry { work: Fake::default(), estimate: None, left_until: 0 };
    let mut found = Vec::new();
    schedule.add(10, 0, entry, &mut found);
    assert!(
        matches!(found[..], [Found::KnownToHaveEnded { .. }, Found::KnownToHaveEnded { .. }]),
        "{found:?}"
    );
    works[2].0.has_ended.set(true);
    assert!(matches!(turn(&mut schedule, 5000, HOST)[..], [Found::KnownToHaveEnded { .. }]));
}

#[test]
fn a_turn_visits_each_queue_once_and_none_before_one_is_due() {
    let mut schedule = Schedule::new(TUNING);
    (0..300).for_each(|queue| _ = add(&mut schedule, 0, queue, None));
    turn(&mut schedule, 0, HOST);
    assert_eq!(std::mem::take(&mut schedule.visits), 300);
    turn(&mut schedule, 1, HOST);
    assert_eq!(schedule.visits, 0);
}

#[derive(Clone, Debug)]
enum Step {
    Add {
        queue: u64,
        mean: Option<u64>,
    },
    /// The oldest entry of a queue ends.
    End(u64),
    Turn,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4_u64, proptest::option::of(1..2000_u64))
            .prop_map(|(queue, mean)| Step::Add { queue, mean }),
        3 => (0..4_u64).prop_map(Step::End),
        4 => Just(Step::Turn),
        4 => (1..1000_u64).prop_map(Step::Wait),
    ]
}

proptest! {
    // The entries of each queue are found in their order, each once, and a host that takes its turns when
    // the schedule says finds everything.
    #[test]
    fn every_entry_is_found_in_order(steps in proptest::collection::vec(step(), 1..80), sharing: bool) {
        let (mut schedule, mut now) = (Schedule::new(if sharing { SHARING } else { TUNING }), 0);
        let mut queues: [VecDeque<Fake>; 4] = Default::default();
        let take = |queues: &mut [VecDeque<Fake>; 4], found: Vec<Found<Fake>>| {
            for one in found {
                let Found::Ended { work, .. } = one else { panic!("{one:?}") };
                let is_oldest = |queue: &&mut VecDeque<Fake>| queue.front().is_some_and(|one| one.is(&work));
                let queue = queues.iter_mut().find(is_oldest);
                assert!(queue.is_some_and(|queue| queue.pop_front().is_some()), "found in order");
            }
        };
        for step in steps {
            match step {
                Step::Add { queue, mean } => {
                    let work = add(&mut schedule, now, queue, mean);
                    queues[queue as usize].push_back(work);
                }
                Step::End(queue) => {
                    let mut entries = queues[queue as usize].iter();
                    entries.find(|work| work.0.result.borrow().is_none()).into_iter().for_each(Fake::end);
                }
                Step::Turn => take(&mut queues, turn(&mut schedule, now, HOST)),
                Step::Wait(time) => now += time,
            }
            prop_assert_eq!(schedule.is_idle(), queues.iter().all(VecDeque::is_empty));
            let queues = schedule.active.iter().filter(|queue| !queue.entries.is_empty());
            let exact = queues.map(|queue| queue.next_poll).min();
            prop_assert!(exact.is_none_or(|exact| schedule.next_poll <= exact));
        }
        queues.iter().flatten().for_each(Fake::end);
        for _ in 0..1000 {
            let Some(next) = schedule.next_for_host() else { break };
            now = now.max(next);
            take(&mut queues, turn(&mut schedule, now, HOST));
        }
        prop_assert!(schedule.is_idle() && queues.iter().all(VecDeque::is_empty));
    }
}
