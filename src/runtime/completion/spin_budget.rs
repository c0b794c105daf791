//! A budget of spinning: the time for which submissions that one thread polls spin before other tasks run.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time for which a thread may spin before other tasks have their turn.
const SLICE: Duration = Duration::from_micros(25);

/// Time after which a submission that gave way has resolved, was dropped, or is polled on another thread.
const FORGOTTEN: Duration = Duration::from_micros(100);

/// The rest of a thread's slice.
///
/// Without it, each of many submissions that one task polls, in a `join_all` for instance, would
/// spin for a slice of its own, and together they would keep the thread for as long as there are
/// submissions. They share one: the one that uses it up gives way, the others poll once and give way
/// as well, and when the first is polled again, the others have had their turn and the next slice
/// begins.
///
/// It is kept for each thread, as a hint: a task that moves to another thread finds another slice there.
#[derive(Clone, Copy, Debug)]
struct SpinBudget {
    left: Duration,
    /// The submission that gave way because nothing was left, and when it did.
    gave_way: Option<(usize, Instant)>,
}

impl SpinBudget {
    const FULL: Self = Self { left: SLICE, gave_way: None };

    fn left(&mut self, now: Instant) -> Duration {
        if self.gave_way.is_some_and(|(_, at)| now.saturating_duration_since(at) > FORGOTTEN) {
            *self = Self::FULL;
        }
        self.left
    }

    fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }

    fn give_way(&mut self, submission: usize, now: Instant) {
        if self.left.is_zero() {
            self.gave_way.get_or_insert((submission, now));
        }
    }

    fn come_back(&mut self, submission: usize) {
        if self.gave_way.is_some_and(|(other, _)| other == submission) {
            *self = Self::FULL;
        }
    }
}

thread_local! {
    static BUDGET: Cell<SpinBudget> = const { Cell::new(SpinBudget::FULL) };
}

fn with<R>(change: impl FnOnce(&mut SpinBudget) -> R) -> R {
    // A thread that is ending has none any more: what is polled there may spin as it likes.
    let mut budget = BUDGET.try_with(Cell::get).unwrap_or(SpinBudget::FULL);
    let result = change(&mut budget);
    let _ = BUDGET.try_with(|cell| cell.set(budget));
    result
}

/// Returns how long a submission that this thread polls may spin.
pub(crate) fn left(now: Instant) -> Duration {
    with(|budget| budget.left(now))
}

/// Notes that a submission has spun for this time.
pub(crate) fn spend(time: Duration) {
    if !time.is_zero() {
        with(|budget| budget.spend(time));
    }
}

/// Notes that a submission, which this number stands for, gives way to other tasks.
pub(crate) fn give_way(submission: usize, now: Instant) {
    with(|budget| budget.give_way(submission, now));
}

/// Notes that a submission is polled again after it gave way.
pub(crate) fn come_back(submission: usize) {
    with(|budget| budget.come_back(submission));
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_micros(10);

    /// Has a task poll its submissions, none of which has ended, one after the other. Gives how long
    /// each of them spins.
    fn poll(budget: &mut SpinBudget, submissions: &[usize], now: &mut Instant) -> Vec<Duration> {
        let poll = |&submission: &usize| {
            budget.come_back(submission);
            let spins = budget.left(*now);
            *now += spins;
            budget.spend(spins);
            budget.give_way(submission, *now);
            spins
        };
        submissions.iter().map(poll).collect()
    }

    #[test]
    fn submissions_of_one_task_share_a_slice() {
        let (mut budget, mut now) = (SpinBudget::FULL, Instant::now());
        let submissions: Vec<_> = (0..100).collect();
        for _ in 0..10 {
            let spins = poll(&mut budget, &submissions, &mut now);
            assert_eq!(spins.iter().sum::<Duration>(), SLICE);
        }
    }

    #[test]
    fn one_submission_spins_for_a_slice_in_each_poll() {
        let (mut budget, mut now) = (SpinBudget::FULL, Instant::now());
        for _ in 0..10 {
            assert_eq!(poll(&mut budget, &[7], &mut now), [SLICE]);
        }
    }

    #[test]
    fn submissions_that_end_while_they_are_polled_share_a_slice() {
        let (mut budget, mut now) = (SpinBudget::FULL, Instant::now());
        let mut spun = Duration::ZERO;
        for _ in 0..10 {
            let spins = budget.left(now).min(STEP);
            budget.spend(spins);
            spun += spins;
        }
        assert_eq!(spun, SLICE);
        // The next one gives way once, and then spins.
        assert_eq!(poll(&mut budget, &[11], &mut now), [Duration::ZERO]);
        assert_eq!(poll(&mut budget, &[11], &mut now), [SLICE]);
    }

    #[test]
    fn a_submission_that_does_not_come_back_is_forgotten() {
        let (mut budget, mut now) = (SpinBudget::FULL, Instant::now());
        assert_eq!(poll(&mut budget, &[1, 2], &mut now), [SLICE, Duration::ZERO]);
        now += FORGOTTEN;
        assert_eq!(poll(&mut budget, &[2], &mut now), [Duration::ZERO]);
        now += Duration::from_nanos(1);
        assert_eq!(poll(&mut budget, &[2], &mut now), [SLICE]);
    }
}
