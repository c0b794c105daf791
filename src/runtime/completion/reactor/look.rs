//! One look at what is in flight, by whoever does so: the thread or a task.

use std::time::Duration;

use parking_lot::MutexGuard;

use crate::runtime::completion::clock::now;
use crate::runtime::completion::pending::Seen;
use crate::runtime::completion::reactor::schedule::{Due, Finished, Next, Scout};
use crate::runtime::completion::reactor::{LEAST_GRACE, MOST_GRACE, State, Watch, tell};

/// What is remembered from look to look, and memory to work with.
#[derive(Default)]
pub(super) struct Looker {
    /// A sleep with something in flight has run out.
    slept: bool,
    /// It has slept for a while with nothing in flight.
    lingered: bool,
    finished: Vec<Finished<Watch>>,
    scouts: Vec<Scout<Watch>>,
    due: Vec<Due<Watch>>,
    /// How often several were asked.
    asked: usize,
}

/// Who looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// It has those look that wait, on their threads, when the end is near.
    Thread,
    /// It shares its thread with them.
    Task,
}

/// What to do until the next look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pause {
    /// Look again: something was found. Whether nothing else was in flight.
    Found {
        all: bool,
    },
    /// Let others run.
    Yield,
    Sleep(Sleep),
    /// Nothing is in flight, and nothing will be.
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sleep {
    /// Until woken, without.
    pub(super) time: Option<Duration>,
    /// Nothing is in flight.
    pub(super) idle: bool,
}

impl Looker {
    /// Looks at what is due, and tells those that wait what was found, without the lock.
    pub(super) fn look(&mut self, state: &mut MutexGuard<'_, State>) -> Pause {
        let by = state.looks_by();
        let at = state.schedule.moment(now());
        if std::mem::take(&mut self.slept) && state.schedule.due(at).all(Watch::is_over) {
            state.grace = (2 * state.grace).min(MOST_GRACE);
        }
        if state.schedule.due(at).nth(1).is_some() {
            // Each asks the driver: many at once would keep those waiting that submit.
            state.schedule.due_in_order(at, Watch::again, &mut self.due);
            self.asked = self.asked.wrapping_add(1);
            MutexGuard::unlocked(state, || ask(&mut self.due, self.asked));
        }
        let is_final = |watch: &Watch| watch.run.answer(watch.partition);
        let find_scout = |watch: &Watch| watch.awaited().filter(|_| by == By::Thread);
        let next = state.schedule.look(at, is_final, find_scout, &mut self.finished, &mut self.scouts);
        if !self.finished.is_empty() || !self.scouts.is_empty() {
            if self.finished.iter().any(|finished| finished.seen == Seen::Late && !finished.watch.is_over()) {
                state.grace = LEAST_GRACE;
            }
            self.lingered = false;
            // Completion wakes tasks and may drop buffers: not under the lock.
            MutexGuard::unlocked(state, || {
                tell::send(&mut self.scouts);
                tell::finish(&mut self.finished);
            });
            return Pause::Found { all: next == Next::Idle };
        }
        match next {
            Next::After(pause) if pause.is_zero() => Pause::Yield,
            Next::After(pause) => Pause::Sleep(Sleep { time: Some(pause), idle: false }),
            Next::Idle if state.closed => Pause::End,
            // To wake whoever looks costs who submits more than its waking up by itself once in a
            // while. What comes next has mostly its look when it is awake again.
            Next::Idle if !self.lingered => {
                let rhythm = state.schedule.next_in_rhythm().map_or(0, |next| next.saturating_sub(now()));
                let time = state.grace.max(Duration::from_nanos(rhythm));
                Pause::Sleep(Sleep { time: Some(time), idle: true })
            }
            Next::Idle => Pause::Sleep(Sleep { time: None, idle: true }),
        }
    }

    /// It is going to sleep.
    pub(super) fn fall_asleep(&mut self, sleep: Sleep) {
        self.lingered = sleep.idle && !self.lingered;
    }

    /// It has slept; whether for as long as it should.
    pub(super) fn wake_up(&mut self, sleep: Sleep, timed_out: bool) {
        self.slept = timed_out && !sleep.idle;
    }
}

/// So many are asked each time although one that should end before them is in flight: others each
/// time, so that one that has become shorter than them is found.
const OUT_OF_TURN: usize = 8;

/// Asks for the status of all, but of few that can wait behind one that is in flight.
fn ask(due: &mut Vec<Due<Watch>>, turn: usize) {
    let (mut in_flight, count) = (false, due.len());
    for (index, Due { watch: Watch { run, partition }, can_wait }) in due.drain(..).enumerate() {
        let out_of_turn = (index + turn * OUT_OF_TURN) % count < OUT_OF_TURN;
        if can_wait && in_flight && !out_of_turn {
            run.ask_later(partition);
        } else {
            let is_final = run.ask(partition);
            in_flight |= can_wait && !is_final;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Device, Graph, WakePolicy};
    use crate::testing::{FakeDevice, FakeOptions};

    #[test]
    fn one_that_is_over_behind_many_in_flight_is_found_by_asking_few_at_a_time() {
        const COUNT: usize = 64;
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        let submissions: Vec<_> = (0..COUNT)
            .map(|_| {
                let x = device.buffer::<u32>(4).unwrap();
                let mut graph = Graph::new(&device);
                graph.fill(&x, 1);
                graph.finalize().unwrap().submit()
            })
            .collect();
        let _nobody_else_looks = device.reactor().unwrap().pause();
        control.complete_next(None);
        // The first to be submitted is asked last.
        let runs: Vec<_> =
            submissions.iter().rev().map(|submission| submission.event().run().clone()).collect();
        let mut found = 0;
        for turn in 0..COUNT / OUT_OF_TURN {
            let watch = |run: &std::sync::Arc<crate::runtime::execution::run::Run>| Watch {
                run: run.clone(),
                partition: 0,
            };
            let mut due = runs.iter().map(|run| Due { watch: watch(run), can_wait: true }).collect();
            ask(&mut due, turn);
            let answers: Vec<_> = runs.iter().map(|run| run.answer(0)).collect();
            assert!(answers.iter().flatten().count() <= 1 + OUT_OF_TURN);
            assert!(answers[..COUNT - 1].iter().flatten().all(|is_final| !is_final));
            found += usize::from(answers[COUNT - 1] == Some(true));
        }
        assert_eq!(found, 1);
        drop(_nobody_else_looks);
        control.complete_all();
    }
}
