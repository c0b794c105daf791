//! How a task waits for a run: it spins where that should pay, completes other runs for the reactor, or
//! has itself woken.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop;

use crate::hal::Progress;
use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::completion::spin_budget;
use crate::runtime::execution::run::{Run, RunTrace};
use crate::runtime::execution::spin_time::spin_time_among;
use crate::runtime::execution::submission_queue::{LeaderGuard, SubmissionQueue};

/// A future that resolves when a run is done. It can be polled again after that.
pub(super) struct RunWait {
    pub(super) run: Arc<Run>,
    key: WaiterKey,
    /// Where the run may be left to the reactor's thread.
    queue: Option<Arc<SubmissionQueue>>,
    trace: Option<Arc<RunTrace>>,
    /// It completes other runs in place of the reactor.
    lead: Option<LeaderGuard>,
    spin: Spin,
    /// The last poll did nothing but give way, as the budget of its task was used up.
    gave_way: bool,
    /// What a spin does to the devices' work.
    progress: Progress,
    /// Whether a poll has found the run not done.
    has_waited: bool,
}

/// Whether a poll spins for a short while on work that should be done within it: a task switch
/// would take longer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spin {
    Never,
    /// The next poll, for so long. Nothing but devices has a part in the run.
    Once {
        time: Duration,
    },
    /// Every poll that finds the run on devices, if what was enqueued last should take no longer
    /// than `limit`. It ends as soon as the host has something to do.
    BetweenHostTasks {
        limit: Duration,
    },
    /// It goes on until then, from poll to poll; and again between host tasks, if `between` says so.
    Until {
        end: Instant,
        between: Option<Duration>,
    },
}

/// What a poll is to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    /// The run is done.
    Resolve,
    /// Spin on after other tasks had their turn.
    Yield,
    /// Wait to be woken.
    Wait,
}

impl RunWait {
    pub(super) fn new(
        run: Arc<Run>,
        queue: Option<Arc<SubmissionQueue>>,
        spin: Spin,
        progress: Progress,
    ) -> Self {
        let trace = run.trace();
        let key = WaiterKey::default();
        Self { run, key, queue, trace, lead: None, spin, gave_way: false, progress, has_waited: false }
    }

    /// For an event of the run. The first such wait for a command of a queue spins if that should pay.
    pub(super) fn of_event(run: Arc<Run>) -> Self {
        let spin = run.take_spin().map_or(Spin::Never, |time| Spin::Once { time });
        let progress = run.driven_by();
        Self::new(run, None, spin, progress)
    }

    /// The submission queue, if the run was left to the reactor's thread.
    fn submission_queue(&self) -> Option<&Arc<SubmissionQueue>> {
        self.queue.as_ref().filter(|_| self.run.is_left_to_reactor())
    }

    /// Spins if that should pay.
    fn spin(&mut self) -> Next {
        let (time, limit) = match self.spin {
            Spin::Never => match self.run.near_for() {
                Some(left) => {
                    let now = Instant::now();
                    return self.spin_until(now, now + left, None);
                }
                None => return Next::Wait,
            },
            Spin::Until { end, between } => return self.spin_until(Instant::now(), end, between),
            Spin::Once { time } => {
                let now = Instant::now();
                if self.run.is_polled() && self.progress == Progress::Device {
                    // A device takes longer than others to submit what they have: this is how many
                    // come to be in flight.
                    self.spin = Spin::Until { end: now + time, between: None };
                    return Next::Yield;
                }
                return self.spin_until(now, now + time, None);
            }
            Spin::BetweenHostTasks { limit } => match self.run.expected() {
                Some(expected) if expected <= limit && !self.run.is_on_host() => {
                    (spin_time_among(self.run.load(), expected, limit), limit)
                }
                _ => return Next::Wait,
            },
        };
        let now = Instant::now();
        self.spin_until(now, now + time, Some(limit))
    }

    /// Completes other runs while it waits itself.
    fn lead(&mut self, lead: LeaderGuard) -> Next {
        lead.complete();
        if self.run.is_done() {
            return Next::Resolve;
        }
        if !lead.goes_on() || self.submission_queue().is_none() {
            return Next::Wait;
        }
        self.lead = Some(lead);
        Next::Yield
    }

    /// How often a spin polls between two readings of the clock.
    fn polls(&self, alone: bool) -> u32 {
        match (self.run.is_polled(), self.progress) {
            // It reads a flag that another thread sets.
            (false, _) => 16,
            // Each poll is a call of the driver's.
            (true, Progress::Device) if alone => 3,
            _ => 1,
        }
    }

    /// Whether the run is over. Takes a turn as the driver of its devices, if they have to be polled.
    fn is_over(&self, now: Instant) -> bool {
        if !self.run.is_done() && self.run.is_polled() && !self.run.is_left_to_reactor() {
            self.run.drive(now);
        }
        self.run.is_done()
    }

    /// Polls the devices for a short while. Other tasks have their turn between two polls where this is
    /// not the only run in flight, and otherwise now and then.
    fn spin_until(&mut self, start: Instant, end: Instant, between: Option<Duration>) -> Next {
        let slice = spin_budget::left(start);
        let mut now = start;
        let next = self.poll_until(&mut now, slice, end, between);
        spin_budget::spend(now - start);
        if next == Next::Yield {
            spin_budget::give_way(self.number(), now);
        }
        next
    }

    /// The same for a `slice` of that time at most. `now` is when it began, and then when it polled last.
    fn poll_until(
        &mut self,
        now: &mut Instant,
        slice: Duration,
        end: Instant,
        between: Option<Duration>,
    ) -> Next {
        let start = *now;
        loop {
            let alone = self.run.is_alone_in_flight();
            for poll in 0..self.polls(alone) {
                if self.is_over(*now) {
                    self.run.record_spin(true);
                    return Next::Resolve;
                }
                if poll > 0 {
                    std::hint::spin_loop();
                }
            }
            *now = Instant::now();
            let on_host = self.run.is_on_host();
            if on_host || *now > end {
                self.run.record_spin(on_host);
                if !on_host {
                    self.run.stop_polling();
                }
                self.spin = match between {
                    Some(limit) => Spin::BetweenHostTasks { limit },
                    None => Spin::Never,
                };
                return Next::Wait;
            }
            if !alone || *now - start >= slice {
                self.spin = Spin::Until { end, between };
                return Next::Yield;
            }
            // Work on the host's cores may need this one.
            if self.progress == Progress::HostCores && *now - start > KEPT {
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// How long a poll keeps its core at first, as to give it to another thread and get it back takes as long.
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
        self.lead.is_some() || matches!(self.spin, Spin::Until { .. })
    }

    /// Has the end of the run wake this task.
    ///
    /// That has to happen before each `Pending`, also where the task is to be polled again at once:
    /// tokio keeps such a task for when its worker has nothing else to do, and an executor of
    /// others that runs inside a task of tokio's, such as `futures::executor::block_on`, blocks
    /// that worker until it is woken.
    fn wait(&mut self, cx: &Context<'_>) -> Poll<()> {
        self.run.done.poll(cx, &mut self.key)
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
        // Submissions that always find their run done would never let other tasks have their turn.
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
            self.run.done.forget(&mut self.key);
        }
        let next = match self.lead.take() {
            Some(lead) => self.lead(lead),
            None if self.run.is_done() => Next::Resolve,
            None => match self.submission_queue().map(SubmissionQueue::lead) {
                None => self.spin(),
                Some(Some(lead)) => self.lead(lead),
                Some(None) => Next::Wait,
            },
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
        self.run.done.forget(&mut self.key);
    }
}
