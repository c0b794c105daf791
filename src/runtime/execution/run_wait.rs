//! The wait of a task for a run: it spins where that should pay, or has itself woken.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop;
use wakegraph_hal::Progress;

use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::completion::spin_budget;
use crate::runtime::execution::run::{Run, RunTrace, SpinPlan, spin_time};
use crate::runtime::execution::submission_queue::SubmissionQueue;

/// A future that resolves when a run has ended. It can be polled again after that.
pub(super) struct RunWait {
    pub(super) run: Arc<Run>,
    key: WaiterKey,
    /// The queue, if the run was left to the reactor's thread.
    queue: Option<Arc<SubmissionQueue>>,
    trace: Option<Arc<RunTrace>>,
    pub(super) spin: Spin,
    /// Maximum time of what was enqueued last for which a spin between host tasks pays.
    between_host_tasks: Option<Duration>,
    /// The last poll did nothing but give way, as the budget of its task was used up.
    gave_way: bool,
    /// Whether a poll has found that the run has not ended.
    has_waited: bool,
}

/// Whether a poll spins for a short while on work that should be done within it: a task switch
/// would take longer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spin {
    /// As the run was planned to be waited for; no poll has asked yet.
    AsPlanned,
    Never,
    /// Every poll that finds the run on devices, if what was enqueued last should not take too
    /// long. It ends as soon as the host has something to do.
    BetweenHostTasks,
    /// It goes on until then, from poll to poll.
    Until(Instant),
}

/// The next action of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The run has ended.
    Resolve,
    /// Spin on after other tasks had their turn.
    Yield,
    /// Wait to be woken.
    Wait,
}

impl RunWait {
    /// A wait for a run, which was left to the reactor's thread if there is a `queue`.
    #[inline]
    pub(super) fn new(run: Arc<Run>, queue: Option<Arc<SubmissionQueue>>) -> Self {
        let trace = run.trace();
        let (key, spin) = (WaiterKey::default(), Spin::AsPlanned);
        Self { run, key, queue, trace, spin, between_host_tasks: None, gave_way: false, has_waited: false }
    }

    /// Spins if that should pay.
    fn spin(&mut self) -> Next {
        if matches!(self.spin, Spin::AsPlanned) {
            match self.run.waiting.take_spin() {
                Some(SpinPlan::Once(time)) => return self.spin_once(time),
                Some(SpinPlan::BetweenHostTasks(limit)) => {
                    (self.spin, self.between_host_tasks) = (Spin::BetweenHostTasks, Some(limit));
                }
                None => self.spin = Spin::Never,
            }
        }
        match (self.spin, self.run.waiting.expected(), self.between_host_tasks) {
            (Spin::Until(end), ..) => self.spin_until(Instant::now(), end),
            (Spin::BetweenHostTasks, Some(expected), Some(limit))
                if expected <= limit && !self.run.is_on_host() =>
            {
                let now = Instant::now();
                self.spin_until(now, now + spin_time(expected, limit))
            }
            _ => Next::Wait,
        }
    }

    /// The first poll for a run in which nothing but devices has a part.
    fn spin_once(&mut self, time: Duration) -> Next {
        let now = Instant::now();
        if self.run.is_polled() && self.run.waiting.progress() == Progress::Device {
            // A device takes longer than others to submit what they have: this is how many
            // come to be in flight.
            self.spin = Spin::Until(now + time);
            return Next::Yield;
        }
        self.spin_until(now, now + time)
    }

    /// How often a spin polls between two readings of the clock.
    fn polls(&self, alone: bool) -> u32 {
        match (self.run.is_polled(), self.run.waiting.progress()) {
            // It reads a flag that another thread sets.
            (false, _) => 16,
            // Each poll is a call of the driver's.
            (true, Progress::Device) if alone => 3,
            _ => 1,
        }
    }

    /// Whether the run has ended. Takes a turn as the poller of its devices, if they have to be polled.
    fn poll_end(&self, now: Instant) -> bool {
        if !self.run.has_ended() && self.run.is_polled() && !self.run.is_left_to_reactor() {
            self.run.poll_devices(now);
        }
        self.run.has_ended()
    }

    /// Polls the devices for a short while. Other tasks have their turn between two polls where this is
    /// not the only run in flight, and otherwise now and then.
    fn spin_until(&mut self, start: Instant, end: Instant) -> Next {
        let slice = spin_budget::left(start);
        let mut now = start;
        let next = self.poll_until(&mut now, slice, end);
        spin_budget::spend(now - start);
        if next == Next::Yield {
            spin_budget::give_way(self.number(), now);
        }
        next
    }

    /// Polls until `end`, for a `slice` of that time at most. `now` is when it began, and then when it polled
    /// last.
    fn poll_until(&mut self, now: &mut Instant, slice: Duration, end: Instant) -> Next {
        let start = *now;
        let gives_way = self.run.waiting.progress() == Progress::HostCores;
        loop {
            let alone = self.run.is_alone_in_flight();
            for poll in 0..self.polls(alone) {
                if self.poll_end(*now) {
                    self.run.waiting.record_spin(true);
                    return Next::Resolve;
                }
                if poll > 0 {
                    std::hint::spin_loop();
                }
            }
            *now = Instant::now();
            let on_host = self.run.is_on_host();
            if on_host || *now > end {
                self.run.waiting.record_spin(on_host);
                if !on_host {
                    self.run.stop_polling();
                }
                self.spin = match self.between_host_tasks {
                    Some(_) => Spin::BetweenHostTasks,
                    None => Spin::Never,
                };
                return Next::Wait;
            }
            if !alone || *now - start >= slice {
                self.spin = Spin::Until(end);
                return Next::Yield;
            }
            if gives_way && *now - start > KEPT {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// Time for which a poll keeps its core at first, as to give it to another thread and get it back takes as
/// long.
const KEPT: Duration = Duration::from_micros(2);

/// Has the task polled again when others have had their turn.
fn yield_now(cx: &mut Context<'_>) {
    // Ready only when it is polled again. The runtime remembers the task without waking itself for it.
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}

impl RunWait {
    /// Stands for this wait among those that its thread polls.
    fn number(&self) -> usize {
        Arc::as_ptr(&self.run).addr()
    }

    /// Whether the last poll gave way to other tasks while it polled for the end itself.
    fn is_polling(&self) -> bool {
        matches!(self.spin, Spin::Until(_))
    }

    /// Has the end of the run wake this task.
    ///
    /// That has to happen before each `Pending`, also where the task is to be polled again at once:
    /// tokio keeps such a task for when its worker has nothing else to do, and an executor of
    /// others that runs inside a task of tokio's, such as `futures::executor::block_on`, blocks
    /// that worker until it is woken.
    fn wait(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.run.ended.poll(cx, &mut self.key)
    }
}

impl Future for RunWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let polled = this.poll_run(cx);
        if let Some(trace) = &this.trace {
            trace.poll();
        }
        if std::mem::replace(&mut this.has_waited, polled.is_pending()) && polled.is_ready() {
            this.run.has_woken();
        }
        polled
    }
}

impl RunWait {
    fn poll_run(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        // Submissions that always find that their run has ended would never let other tasks have their turn.
        let turn = match coop::poll_proceed(cx) {
            Poll::Ready(turn) => Some(turn),
            // Once, and no longer: a task that blocks its worker gets no new budget.
            Poll::Pending if !std::mem::replace(&mut self.gave_way, true) => {
                if self.wait(cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Poll::Pending => None,
        };
        self.gave_way = false;
        if self.is_polling() {
            spin_budget::come_back(self.number());
            // If it now ends the run itself, nothing has to wake it.
            self.run.ended.forget(&mut self.key);
        }
        let next = if self.run.has_ended() {
            self.queue.iter().for_each(|queue| queue.help());
            Next::Resolve
        } else if self.queue.is_some() && self.run.is_left_to_reactor() {
            Next::Wait
        } else {
            self.spin()
        };
        if next != Next::Resolve && self.wait(cx).is_pending() {
            if next == Next::Yield {
                yield_now(cx);
            }
            return Poll::Pending;
        }
        if let Some(turn) = turn {
            turn.made_progress();
        }
        Poll::Ready(())
    }
}

impl Drop for RunWait {
    fn drop(&mut self) {
        self.run.ended.forget(&mut self.key);
    }
}
