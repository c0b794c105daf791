//! The future of a submission.

use std::fmt::{self, Debug};
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::task::coop;

use crate::hal::Progress;
use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::completion::spin_budget;
use crate::runtime::execution::event::Event;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::progress::SubmissionProgress;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::spin_time::spin_time_among;
use crate::runtime::execution::submission_queue::{LeaderGuard, SubmissionQueue};
use crate::runtime::execution::watchdog::{Alarm, Watchdog};
use crate::types::{Error, Result};

/// A run of an executable that has been submitted: a future that resolves when all its work is complete.
///
/// The work has started already and does not need to be polled. Dropping the submission detaches
/// it, as dropping `tokio::spawn`'s handle does: the work goes on, the runtime keeps what it needs.
/// Use [`cancel`](Self::cancel) or [`cancel_on_drop`](Self::cancel_on_drop) where it should not.
///
/// # Errors
/// Resolves to the first failure: it names node, partition, device and cause. Partitions that
/// depend on the failed one were not started, the others have finished.
///
/// # Cancel safety
/// Cancel safe. `&mut submission` can be awaited, for instance in `select!`, and awaited again.
#[must_use = "the work runs, but a failure goes unnoticed; await it, or drop it to detach"]
pub struct Submission {
    run: Arc<Run>,
    key: WaiterKey,
    /// Where the run may be left to the reactor's thread.
    queue: Option<Arc<SubmissionQueue>>,
    /// It completes other runs in place of the reactor.
    lead: Option<LeaderGuard>,
    spin: Spin,
    /// The last poll did nothing but give way, as the budget of its task was used up.
    gave_way: bool,
    /// What a spin does to the devices' work.
    progress: Progress,
    /// Where profiles are recorded: what is needed to read them.
    profiled: Option<Arc<Labels>>,
    alarm: Option<Alarm>,
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

impl Submission {
    pub(crate) fn new(
        run: Arc<Run>,
        queue: Option<Arc<SubmissionQueue>>,
        spin: Spin,
        progress: Progress,
        profiled: Option<Arc<Labels>>,
    ) -> Self {
        Self {
            run,
            key: WaiterKey::default(),
            queue,
            lead: None,
            spin,
            gave_way: false,
            progress,
            profiled,
            alarm: None,
        }
    }

    /// Has the submission hear from a watchdog.
    pub(crate) fn set_alarm(&mut self, watchdog: Watchdog) {
        if !self.run.is_done() {
            self.alarm = Some(watchdog.watch(self.run.clone()));
        }
    }

    /// What the watchdog says, if there is one and it has found the run to hang.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Option<Error> {
        let Poll::Ready(heard) = Pin::new(self.alarm.as_mut()?).poll(cx) else { return None };
        self.alarm = None;
        // Without a word where its runtime has shut down.
        heard.ok().filter(|_| !self.run.is_done())
    }

    /// The submission queue, if the run was left to the reactor's thread.
    fn submission_queue(&self) -> Option<&Arc<SubmissionQueue>> {
        self.queue.as_ref().filter(|_| self.run.is_left_to_reactor())
    }

    /// Whether all work is final, successful or not. Asks the devices, so that a loop of nothing else ends.
    /// What this work was ordered after is finished as well, whichever thread asks, and whenever the
    /// devices' notifications arrive.
    pub fn is_finished(&self) -> bool {
        self.run.is_finished()
    }

    /// Stops what has not been handed to a device yet, and host tasks that have not been called.
    /// The future of an async host task that runs is dropped at its next await, and with it the views
    /// of its buffers. A blocking one runs out.
    ///
    /// What a device has been given runs to its end, also where it still waits in a queue. A
    /// [loop](crate::Graph::while_nonzero) stops before its next iteration where the runtime drives it
    /// or the device is the host; other devices decide about their loops by themselves.
    ///
    /// All of a graph without host tasks, whose devices can wait for each other, is handed over by
    /// [`submit`](crate::ExecutableGraph::submit) itself, unless that has to wait for something on
    /// the host: cancelling changes nothing then. Among many short runs on a GPU, one that still waits
    /// to be launched never is.
    ///
    /// The submission resolves to [`Cancelled`](crate::ErrorKind::Cancelled) if anything was
    /// stopped and nothing else failed.
    pub fn cancel(&self) {
        self.run.cancel();
    }

    /// Cancels when dropped before it has resolved: for timeouts and `select!`.
    ///
    /// ```no_run
    /// # async fn example(exec: wakegraph::ExecutableGraph) -> wakegraph::Result<()> {
    /// use std::time::Duration;
    /// match tokio::time::timeout(Duration::from_millis(5), exec.submit().cancel_on_drop()).await {
    ///     Ok(result) => result,
    ///     Err(_elapsed) => Ok(()), // what had not started never will
    /// }
    /// # }
    /// ```
    pub fn cancel_on_drop(self) -> CancelOnDrop {
        CancelOnDrop { submission: self }
    }

    /// A handle to wait for the same work, as often and in as many places as needed.
    pub fn event(&self) -> Event {
        Event::new(self.run.clone())
    }

    /// How far the work is, by partition: what is over, what runs, and what waits for what. `None` when all
    /// is over. Asks the devices, and never waits for them.
    pub fn progress(&self) -> Option<SubmissionProgress> {
        if self.run.is_done() { None } else { self.run.progress() }
    }

    /// Times of nodes and partitions, when the work is finished and the executable was finalized with
    /// [`profiling`](crate::FinalizeOptions::profiling); otherwise `None`.
    ///
    /// Asks the devices for them, the first time.
    pub fn profile(&self) -> Option<Profile> {
        let labels = self.profiled.as_ref()?;
        self.is_finished().then(|| self.run.profile(labels))
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

impl Submission {
    /// Stands for this submission among those that its thread polls.
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

impl Future for Submission {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        if let Some(error) = this.poll_alarm(cx) {
            return Poll::Ready(Err(error));
        }
        // Submissions that always find their run done would never let other tasks have their turn.
        let turn = match coop::poll_proceed(cx) {
            Poll::Ready(turn) => Some(turn),
            // Once, and no longer: a task that blocks its worker gets no new budget.
            Poll::Pending if !std::mem::replace(&mut this.gave_way, true) => {
                if this.wait(cx).is_ready() {
                    cx.waker().wake_by_ref();
                }
                return Poll::Pending;
            }
            Poll::Pending => None,
        };
        this.gave_way = false;
        if this.is_polling() {
            spin_budget::come_back(this.number());
            // If it now ends the run itself, nothing has to wake it.
            this.run.done.forget(&mut this.key);
        }
        let next = match this.lead.take() {
            Some(lead) => this.lead(lead),
            None if this.run.is_done() => Next::Resolve,
            None => match this.submission_queue().map(SubmissionQueue::lead) {
                None => this.spin(),
                Some(Some(lead)) => this.lead(lead),
                Some(None) => Next::Wait,
            },
        };
        if next != Next::Resolve && this.wait(cx).is_pending() {
            if next == Next::Yield {
                yield_now(cx);
            }
            return Poll::Pending;
        }
        if let Some(turn) = turn {
            turn.made_progress();
        }
        Poll::Ready(this.run.result())
    }
}

impl Debug for Submission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submission").field("run", &self.run).finish_non_exhaustive()
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        self.run.done.forget(&mut self.key);
        self.run.stop_polling();
    }
}

/// A [`Submission`] that is cancelled when dropped before it has resolved.
///
/// # Cancel safety
/// Dropping it is how it cancels.
#[derive(Debug)]
#[must_use = "dropping it cancels the submission"]
pub struct CancelOnDrop {
    submission: Submission,
}

impl CancelOnDrop {
    /// The submission.
    pub fn submission(&self) -> &Submission {
        &self.submission
    }
}

impl Future for CancelOnDrop {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().submission).poll(cx)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.submission.is_finished() {
            self.submission.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Waker};
    use std::time::{Duration, Instant};

    use super::{Spin, Submission};
    use crate::hal::Progress;
    use crate::runtime::{Device, Graph};
    use crate::testing::{FakeDevice, FakeOptions};

    #[test]
    fn is_finished_polls_devices_that_do_not_notify() {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        for _ in 0..3 {
            let submission = exec.submit();
            assert!(!submission.is_finished());
            let _nobody_else_looks = device.reactor().unwrap().pause();
            control.complete_all();
            assert!(submission.is_finished());
            assert!(submission.event().is_finished());
        }
    }

    #[test]
    fn submissions_of_one_task_share_a_spin_slice() {
        const COUNT: usize = 32;
        // A submission polls its device only while it is alone there, so each gets its own.
        let all: Vec<_> = (0..COUNT)
            .map(|_| {
                let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
                let device = Device::from_hal(device);
                let mut graph = Graph::new(&device);
                graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
                let run = graph.finalize().unwrap().submit().event().run().clone();
                (device, control, run)
            })
            .collect();
        let _paused: Vec<_> = all.iter().map(|(device, ..)| device.reactor().unwrap().pause()).collect();
        let spin = Spin::Until { end: Instant::now() + Duration::from_secs(3600), between: None };
        let mut submissions: Vec<_> = all
            .iter()
            .map(|(_, _, run)| Submission::new(run.clone(), None, spin, Progress::Device, None))
            .collect();
        // Polls all submissions one after the other, and returns how many polled their device again
        // and again.
        let mut spinning = || {
            let polled = submissions.iter_mut().zip(&all).map(|(submission, (_, control, _))| {
                let before = control.polls();
                let poll = Pin::new(submission).poll(&mut Context::from_waker(Waker::noop()));
                assert!(poll.is_pending());
                control.polls() - before
            });
            polled.filter(|&polls| polls > 8).count()
        };
        let rounds: Vec<_> = (0..20).map(|_| spinning()).collect();
        // A thread that is preempted begins a new slice, so more than one may spin, but never most of them.
        assert!(rounds.iter().all(|&spinning| spinning < COUNT / 2), "{rounds:?}");
        // A new slice begins when the submission that gave way is polled again.
        assert!(rounds[1..].iter().sum::<usize>() > 0, "{rounds:?}");
        all.iter().for_each(|(_, control, _)| _ = control.complete_all());
    }
}
