//! The reactor as a task of a tokio runtime: where that waits for the device anyway, one thread is
//! woken instead of two.
//!
//! The thread stays as a net below: it comes by now and then, and looks itself while the runtime
//! does not let the task run.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;

use crate::runtime::completion::clock::{nanoseconds, now};
use crate::runtime::completion::reactor::look::{By, Looker, Pause, Sleep};
use crate::runtime::completion::reactor::timer::Timer;
use crate::runtime::completion::reactor::{Shared, State, pace};
use crate::runtime::completion::spawn::spawn;
use crate::types::Result;

/// What is known of the task.
pub(super) struct Attendant {
    timer: Arc<Timer>,
    /// It looks, and not the thread.
    attends: bool,
    /// When it should look next at the latest.
    due: u64,
    /// The timer was set for sooner than the task had wanted.
    hurried: bool,
    /// Something was submitted since the thread was here.
    busy: bool,
    /// The thread sleeps until it is woken.
    unguarded: bool,
}

/// How often the thread sees to it that the task looks.
const ROUND: Duration = Duration::from_millis(100);

/// Nanoseconds by which the task may be late before the thread looks in its place.
const LATE: u64 = 2_000_000;

impl Attendant {
    /// Has the task look at this time. Whether the system did so.
    #[must_use]
    fn set_timer(&self, until: u64) -> bool {
        self.timer.set(Duration::from_nanos(until.saturating_sub(now()))).is_ok()
    }
}

impl State {
    pub(super) fn is_attended(&self) -> bool {
        self.attendant.as_ref().is_some_and(|attendant| attendant.attends)
    }

    pub(super) fn looks_by(&self) -> By {
        if self.is_attended() { By::Task } else { By::Thread }
    }

    /// Whether a task should look, and its runtime does not let it.
    pub(super) fn is_overdue(&self, now: u64) -> bool {
        let attendant = self.attendant.as_ref().filter(|attendant| attendant.attends);
        self.schedule.is_in_flight()
            && attendant.is_some_and(|attendant| now > attendant.due.saturating_add(LATE))
    }

    /// What the thread is to do, if a task looks.
    pub(super) fn attended(&mut self) -> Option<Pause> {
        let in_flight = self.schedule.is_in_flight();
        let attendant = self.attendant.as_mut().filter(|attendant| attendant.attends)?;
        if self.closed && !in_flight {
            return Some(Pause::End);
        }
        let busy = std::mem::take(&mut attendant.busy) || in_flight;
        attendant.unguarded = !busy;
        Some(Pause::Sleep(Sleep { time: busy.then_some(ROUND), idle: true }))
    }

    /// From now on the thread looks, which the caller wakes, until the task comes again.
    pub(super) fn leave_to_thread(&mut self) {
        self.attendant.iter_mut().for_each(|attendant| attendant.attends = false);
        self.asleep_until = 0;
        self.schedule.set_pace(pace(self.policy, By::Thread));
    }

    /// Something in flight has to be looked at before `time`; `first_at` is now, if nothing else is
    /// in flight. Whether the thread has to be woken for it.
    #[must_use]
    pub(super) fn look_before(&mut self, time: u64, first_at: Option<u64>) -> bool {
        let sooner = time < self.asleep_until;
        let Some(attendant) = self.attendant.as_mut().filter(|attendant| attendant.attends) else {
            return sooner;
        };
        attendant.busy = true;
        // With nothing in flight nobody has kept it waiting.
        attendant.due = attendant.due.max(first_at.unwrap_or(0));
        if sooner {
            (self.asleep_until, attendant.due, attendant.hurried) = (time, time, true);
            if !attendant.set_timer(time) {
                self.leave_to_thread();
                return true;
            }
        }
        std::mem::take(&mut attendant.unguarded)
    }

    /// Has the task look at once, if there is one: at what has become of it.
    pub(super) fn wake_attendant(&mut self) {
        // Without a timer the thread finds it late.
        self.attendant.iter().for_each(|attendant| _ = attendant.set_timer(0));
    }
}

impl Shared {
    /// Has a task of this runtime look from now on.
    pub(super) fn attend_in(self: &Arc<Self>, runtime: &Handle) -> Result<()> {
        let timer = Arc::new(Timer::new(runtime)?);
        let mut state = self.state.lock();
        state.wake_attendant();
        if state.is_attended() {
            state.leave_to_thread();
            self.changed.notify_one();
        }
        let due = now();
        // The thread goes on until the task comes.
        state.attendant = Some(Attendant {
            timer: timer.clone(),
            attends: false,
            due,
            hurried: false,
            busy: true,
            unguarded: false,
        });
        drop(state);
        let attendance = Attendance { shared: self.clone(), timer };
        spawn(runtime, || self.name.clone(), attendance.run());
        Ok(())
    }
}

/// The task's side. The thread looks again when it ends, as when its runtime is shut down.
struct Attendance {
    shared: Arc<Shared>,
    timer: Arc<Timer>,
}

impl Attendance {
    async fn run(self) {
        let mut looker = Looker::default();
        let mut slept = None;
        // It has found all that was in flight, and looks once more to know for how long to sleep.
        let mut plans = false;
        loop {
            match self.turn(&mut looker, slept.take()) {
                Pause::Found { all: true } if !plans => {
                    plans = true;
                    continue;
                }
                // Those that were woken need not wait for a plan of what is left, and may submit
                // more of that.
                Pause::Found { .. } | Pause::Yield => tokio::task::yield_now().await,
                Pause::Sleep(sleep) => {
                    slept = Some(sleep);
                    // Whoever submits meanwhile may set it to run out sooner.
                    if self.timer.ran_out().await.is_err() {
                        return;
                    }
                }
                Pause::End => return,
            }
            plans = false;
        }
    }

    /// Looks once. Afterwards the timer runs out when the next look is due.
    fn turn(&self, looker: &mut Looker, slept: Option<Sleep>) -> Pause {
        let mut state = self.shared.state.lock();
        let Some(attendant) = self.attendant(&mut state) else { return Pause::End };
        let at = now();
        let (hurried, timed_out) = (std::mem::take(&mut attendant.hurried), attendant.due <= at);
        if !std::mem::replace(&mut attendant.attends, true) {
            let by_task = pace(state.policy, By::Task);
            state.schedule.set_pace(by_task);
            // The thread has to see that it need not look any more.
            self.shared.changed.notify_one();
        }
        state.asleep_until = 0;
        if let Some(slept) = slept {
            // What it was hurried for is in flight.
            looker.wake_up(Sleep { idle: slept.idle && !hurried, ..slept }, timed_out);
        }
        let pause = looker.look(&mut state);
        let at = now();
        let Some(attendant) = self.attendant(&mut state) else { return Pause::End };
        attendant.due = at;
        if !attendant.attends {
            // The thread has thought that this takes too long.
            return Pause::Yield;
        }
        let Pause::Sleep(sleep) = pause else { return pause };
        looker.fall_asleep(sleep);
        let until = sleep.time.map_or(u64::MAX, |time| at.saturating_add(nanoseconds(time)));
        attendant.due = until;
        if sleep.time.is_some() && !attendant.set_timer(until) {
            return Pause::End;
        }
        state.asleep_until = until;
        pause
    }

    /// What is known of this task, unless another one has been asked to look instead.
    fn attendant<'a>(&self, state: &'a mut State) -> Option<&'a mut Attendant> {
        state.attendant.as_mut().filter(|attendant| Arc::ptr_eq(&attendant.timer, &self.timer))
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        if self.attendant(&mut state).is_some() {
            state.attendant = None;
            state.leave_to_thread();
            drop(state);
            self.shared.changed.notify_one();
            tracing::debug!(target: "wakegraph", "the reactor's task has ended: its thread looks");
        }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use crate::runtime::{Device, ExecutableGraph, Graph, WakePolicy};
    use crate::testing::{FakeControl, FakeDevice, FakeOptions};

    fn setup() -> (Device, FakeControl, ExecutableGraph) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        (device, control, exec)
    }

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_io().build().unwrap()
    }

    fn is_attended(device: &Device) -> bool {
        device.reactor().unwrap().shared.state.lock().is_attended()
    }

    async fn one(exec: &ExecutableGraph, control: &FakeControl) {
        let submission = exec.submit();
        while control.complete_all() == 0 {
            yield_now().await;
        }
        submission.await.unwrap();
    }

    /// Submits from elsewhere until that is so.
    fn until_attended(device: &Device, attended: bool, exec: &ExecutableGraph, control: &FakeControl) {
        while is_attended(device) != attended {
            runtime().block_on(one(exec, control));
        }
    }

    #[test]
    fn it_looks_while_its_runtime_lets_it_and_else_the_thread_does() {
        let ((device, control, exec), home) = (setup(), runtime());
        assert!(!is_attended(&device));
        device.run_reactor_on(home.handle()).unwrap();
        for _ in 0..2 {
            home.block_on(async {
                while !is_attended(&device) {
                    yield_now().await;
                }
                one(&exec, &control).await;
            });
            assert!(is_attended(&device));
            until_attended(&device, false, &exec, &control);
        }
        home.block_on(one(&exec, &control));
        drop(home);
        assert!(!is_attended(&device));
    }

    #[test]
    fn a_runtime_that_is_never_run_is_no_worse_than_none() {
        let ((device, control, exec), home, never_run) = (setup(), runtime(), runtime());
        device.run_reactor_on(home.handle()).unwrap();
        home.block_on(one(&exec, &control));
        // The thread has seen that nothing is in flight, and sleeps until it is woken.
        let shared = &device.reactor().unwrap().shared;
        while !shared.state.lock().attendant.as_ref().is_some_and(|attendant| attendant.unguarded) {
            std::thread::yield_now();
        }
        device.run_reactor_on(never_run.handle()).unwrap();
        runtime().block_on(one(&exec, &control));
    }
}
