//! Learning of completions on devices that do not notify.
//!
//! One [`Poller`] per device polls its events. The reactor's [hosts](host) take turns as the poller: a
//! thread, which sleeps until the [schedule] wants the next poll, and a task of a tokio runtime, if the user
//! has asked for one. Submissions that spin take turns, too.
//!
//! A submission puts the partitions that it has enqueued into the [`Inbox`], whose lock is held for a moment
//! only, and wakes a host that would sleep for too long. The lock of the poller comes before that of the
//! inbox.

mod host;
#[cfg(all(test, wakegraph_loom))]
mod model;
mod schedule;

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use schedule::{By, Entry, Found, Schedule, Work};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use wakegraph_hal::{Error, ErrorKind, Progress, Result};

use crate::runtime::completion::clock::nanoseconds;
use crate::runtime::completion::estimate::{Estimate, Sample};
use crate::runtime::completion::tasks::wake_after_locks;
use crate::runtime::completion::tuning::{Tuning, WakePolicy};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::util::panics::catch_and_log;

/// Handle to a device's reactor, which holds what is in flight. Its thread, and its task if there
/// is one, end when it is [closed](Self::close) and nothing is in flight any more.
#[derive(Clone)]
pub(crate) struct Reactor {
    inner: Arc<ReactorInner>,
}

struct ReactorInner {
    name: String,
    /// The party that drives the device's work, which decides how the thread spins.
    progress: Progress,
    in_flight: AtomicU32,
    poller: Mutex<Poller>,
    inbox: Mutex<Inbox>,
    /// Whether there is something for a host to see before it falls asleep: an entry in the inbox, or a run
    /// that no submission polls for any more.
    has_changed: AtomicBool,
    /// Until when the thread sleeps, 0 while it is awake. It falls asleep, and is woken, under the inbox's
    /// lock.
    asleep_until: AtomicU64,
    /// Time at which the task takes its next turn, 0 without a task. The inbox's lock protects it, too.
    task_due: AtomicU64,
    /// Wakes the thread.
    changed: Condvar,
    /// Submits runs on the thread, once a run may be left to it.
    submitter: OnceLock<Arc<dyn Submitter>>,
    /// Keeps the hosts from taking turns.
    #[cfg(test)]
    is_paused: AtomicBool,
}

/// Events and settings that the reactor has not taken in yet.
struct Inbox {
    added: Vec<Added>,
    tuning: Tuning,
    /// Whether there were many queues of long work when a host fell asleep.
    many: bool,
    /// Time for which the hosts leave a run alone beyond that for which its submission polls.
    guard: Duration,
    /// Wakes the task that is a host beside the thread.
    task: Option<Arc<Notify>>,
    /// Whether the task takes the turns that the thread leaves to it.
    is_task_in_time: bool,
    /// Nanoseconds after which the thread takes such a turn itself.
    takes_over_after: u64,
    is_thread_running: bool,
    is_closed: bool,
}

/// A run in flight with partitions on devices that do not notify, as the reactor sees it.
pub(crate) trait Pending: Send + Sync {
    /// Whether a partition is known to have ended; asks no device.
    fn has_ended(&self, partition: usize) -> bool;

    /// The outcome of a partition, once its device has one. Asks the device.
    fn poll(&self, partition: usize) -> Option<Result<()>>;

    /// Whether a submission polls for the end of the run.
    fn has_poller(&self) -> bool;

    /// A poll has found that the partition has ended. The caller holds no lock.
    fn end(&self, partition: usize, result: Result<()>, sample: Option<Sample>);
}

/// The second duty of the reactor's thread: it submits runs that were left to it, and ends them.
pub(crate) trait Submitter: Send + Sync {
    /// Submits the runs that wait and polls those in flight. Gives a run that takes long to `watch`, with the
    /// number of its queue. Returns whether there is more to do without a pause.
    fn turn(&self, watch: &mut dyn FnMut(u64, Arc<dyn Pending>)) -> bool;

    /// Whether there are runs for [`settle`](Self::settle).
    fn has_ended(&self) -> bool;

    /// Ends the runs that have ended on the device, before the thread sleeps.
    fn settle(&self);

    /// Says that the thread is about to sleep. Returns whether it may.
    #[must_use]
    fn fall_asleep(&self) -> bool;

    /// Says that the thread is awake again.
    fn wake_up(&self);

    /// Releases everything of the device, which is gone, as the thread ends.
    fn close(&self);
}

/// Time after which the thread takes over from a submission that polls for the end of its run and might
/// not be polled any more. To wake up for each such run would cost more than all else that the thread does.
const GUARD: Duration = Duration::from_millis(1);

/// Nanoseconds for which the thread waits for the task to take a turn.
const TAKES_OVER_AFTER: u64 = 100_000_000;

impl Reactor {
    pub(crate) fn new(device: &str, progress: Progress, policy: WakePolicy) -> Self {
        let tuning = Tuning::of(policy);
        let inbox = Inbox {
            added: Vec::new(),
            tuning,
            many: false,
            guard: GUARD,
            task: None,
            is_task_in_time: false,
            takes_over_after: TAKES_OVER_AFTER,
            is_thread_running: false,
            is_closed: false,
        };
        let inner = ReactorInner {
            name: format!("wakegraph-reactor-{device}"),
            progress,
            in_flight: AtomicU32::new(0),
            poller: Mutex::new(Poller::new(tuning)),
            inbox: Mutex::new(inbox),
            has_changed: AtomicBool::new(false),
            asleep_until: AtomicU64::new(0),
            task_due: AtomicU64::new(0),
            changed: Condvar::new(),
            submitter: OnceLock::new(),
            #[cfg(test)]
            is_paused: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Ends the hosts when nothing is in flight any more. The device is gone, so nothing will be submitted.
    pub(crate) fn close(&self) {
        let mut inbox = self.inner.inbox.lock();
        inbox.is_closed = true;
        inbox.task.iter().for_each(|task| task.notify_one());
        self.inner.wake_before(&mut inbox, 0);
    }

    /// Number of runs that are in flight on the device.
    pub(crate) fn in_flight(&self) -> &AtomicU32 {
        &self.inner.in_flight
    }

    /// Has the thread submit runs, too. Later calls do nothing.
    pub(crate) fn set_submitter(&self, submitter: impl FnOnce() -> Arc<dyn Submitter>) {
        let mut is_first = false;
        self.inner.submitter.get_or_init(|| {
            is_first = true;
            submitter()
        });
        if is_first {
            // The thread may sleep without the submitter knowing, which would not wake it then.
            self.wake_thread();
        }
    }

    /// Wakes the thread: there is something to submit.
    pub(crate) fn wake_thread(&self) {
        // The thread has this lock from when it last sees that there is nothing to submit until it sleeps.
        drop(self.inner.inbox.lock());
        self.inner.changed.notify_one();
    }

    pub(crate) fn set_policy(&self, policy: WakePolicy) {
        let tuning = Tuning::of(policy);
        self.inner.poller.lock().schedule.set_tuning(tuning);
        self.inner.inbox.lock().tuning = tuning;
    }

    /// Starts the thread, unless it runs already. Without it no completion would be noticed, so this comes
    /// before the first submission.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system has no thread to give.
    pub(crate) fn start(&self) -> Result<()> {
        let mut inbox = self.inner.inbox.lock();
        if !inbox.is_thread_running {
            let inner = self.inner.clone();
            let builder = std::thread::Builder::new().name(inner.name.clone());
            let run = move || {
                // What listens to the backends' log may panic while the submitter launches.
                let mut has_ended = false;
                while !has_ended {
                    catch_and_log("the reactor's thread", || {
                        inner.run_thread();
                        has_ended = true;
                    });
                }
                // The task may wait for the turn that the thread has taken last.
                inner.inbox.lock().task.iter().for_each(|task| task.notify_one());
                // Runs that users keep refer to the reactor, and must not keep the device.
                inner.submitter.get().into_iter().for_each(|submitter| submitter.close());
            };
            builder.spawn(run).map_err(|error| {
                Error::new(ErrorKind::Unavailable, "could not start the thread that polls for completions")
                    .caused_by(error)
            })?;
            inbox.is_thread_running = true;
        }
        Ok(())
    }

    /// Has a task of this runtime take the turns that are far.
    ///
    /// # Errors
    /// See [`Device::run_reactor_on`](crate::Device::run_reactor_on).
    pub(crate) fn run_on(&self, runtime: &Handle) -> Result<()> {
        self.inner.run_as_task(runtime)
    }

    /// Polls a partition from now on that has been enqueued `at` this time on an in-order queue.
    /// `polled_for` is for how long a submission polls for its end, if one does.
    pub(crate) fn watch(
        &self,
        at: u64,
        queue: u64,
        run: Arc<dyn Pending>,
        partition: usize,
        estimate: Option<Estimate>,
        polled_for: Option<Duration>,
    ) {
        self.inner.watch(at, queue, run, partition, estimate, polled_for);
    }

    /// Takes a turn as the poller, unless another thread does. A submission that spins calls this.
    pub(crate) fn turn(&self, now: u64) {
        let inner = &self.inner;
        let mut found = AllFound::new();
        if let Some(mut poller) = inner.poller.try_lock() {
            poller.turn(inner, now, By::Submission, &mut found);
            // What was behind an entry that ended may need the host before it would wake up.
            if !found.is_empty()
                && let Some(next) = poller.schedule.next_for_host()
                && inner.sleeps_beyond(next)
            {
                inner.wake_before(&mut inner.inbox.lock(), next);
            }
        }
        dispatch(&mut found);
    }

    /// Has the thread poll for the end of a run, because its submission polls no longer.
    pub(crate) fn poll_instead(&self) {
        let mut inbox = self.inner.inbox.lock();
        // A thread that is about to fall asleep has planned to leave the run to the submission.
        self.inner.has_changed.store(true, Ordering::Release);
        self.inner.wake_before(&mut inbox, 0);
    }

    /// Keeps the reactor's hosts from taking turns while the guard lives.
    #[cfg(test)]
    pub(crate) fn pause(&self) -> impl Drop + '_ {
        struct Paused<'a>(&'a ReactorInner);
        impl Drop for Paused<'_> {
            fn drop(&mut self) {
                self.0.is_paused.store(false, Ordering::SeqCst);
                self.0.wake_before(&mut self.0.inbox.lock(), 0);
            }
        }
        self.inner.is_paused.store(true, Ordering::SeqCst);
        drop(self.inner.poller.lock());
        Paused(&self.inner)
    }
}

impl ReactorInner {
    /// See [`Reactor::watch`].
    fn watch(
        &self,
        at: u64,
        queue: u64,
        run: Arc<dyn Pending>,
        partition: usize,
        estimate: Option<Estimate>,
        polled_for: Option<Duration>,
    ) {
        let mut inbox = self.inbox.lock();
        let left_until = polled_for.map_or(0, |time| at.saturating_add(nanoseconds(time + inbox.guard)));
        let entry = Entry { work: InFlight { run, partition }, estimate, left_until };
        inbox.added.push(Added { at, queue, entry });
        self.has_changed.store(true, Ordering::Release);
        // Mostly no host sleeps until the time at which it stops leaving the run to its submission.
        if self.sleeps_beyond(left_until) {
            let plan = inbox.tuning.plan(estimate, inbox.many);
            let first = at.saturating_add(plan.first).saturating_add(plan.window);
            self.wake_before(&mut inbox, first.max(left_until));
        }
    }

    /// Whether a host sleeps for longer.
    fn sleeps_beyond(&self, time: u64) -> bool {
        let [thread, task] = [&self.asleep_until, &self.task_due].map(|until| until.load(Ordering::Relaxed));
        time < thread.max(task)
    }

    #[cfg(test)]
    fn is_paused(&self) -> bool {
        self.is_paused.load(Ordering::SeqCst)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "only tests pause a reactor")]
    fn is_paused(&self) -> bool {
        false
    }
}

/// The poller: the only code that polls the events of a device and ends the partitions that are through
/// there. A host or a submission that spins locks it for a turn.
struct Poller {
    schedule: Schedule<InFlight>,
    /// Exchanged with the inbox, so that neither side allocates.
    added: Vec<Added>,
}

/// One partition in flight.
struct InFlight {
    run: Arc<dyn Pending>,
    partition: usize,
}

/// A partition that has been enqueued since the last turn.
struct Added {
    at: u64,
    queue: u64,
    entry: Entry<InFlight>,
}

/// The findings of a turn, to be [dispatched](dispatch) without locks.
type AllFound = SmallVec<[Found<InFlight>; 8]>;

impl Poller {
    fn new(tuning: Tuning) -> Self {
        Self { schedule: Schedule::new(tuning), added: Vec::new() }
    }

    /// Polls what is due, also of what has just been added.
    fn turn(&mut self, reactor: &ReactorInner, now: u64, by: By, found: &mut AllFound) {
        if reactor.has_changed.load(Ordering::Relaxed) && reactor.has_changed.swap(false, Ordering::Acquire) {
            std::mem::swap(&mut reactor.inbox.lock().added, &mut self.added);
            for Added { at, queue, entry } in self.added.drain(..) {
                self.schedule.add(at, queue, entry, found);
            }
        }
        self.schedule.turn(now, by, found);
    }
}

/// Ends what a turn has found. Tasks are woken at the end: a thread that is woken for the first would
/// otherwise be asleep again when the next one is found.
fn dispatch(found: &mut AllFound) {
    if !found.is_empty() {
        wake_after_locks(|| {
            found.drain(..).for_each(|one| catch_and_log("what the reactor called", || one.dispatch()))
        });
    }
}

impl Found<InFlight> {
    fn dispatch(self) {
        match self {
            Self::Ended { work, result, sample } => work.end(result, sample),
            Self::KnownToHaveEnded { work } => drop(work),
        }
    }
}

impl InFlight {
    fn end(self, result: Result<()>, sample: Option<Sample>) {
        self.run.end(self.partition, result, sample);
    }
}

impl Work for InFlight {
    fn has_ended(&self) -> bool {
        self.run.has_ended(self.partition)
    }

    /// If what listens to the backend's log panics, the work is polled again later.
    fn poll(&self) -> Option<Result<()>> {
        let mut outcome = None;
        catch_and_log("a poll of a device", || outcome = self.run.poll(self.partition));
        outcome
    }

    fn has_poller(&self) -> bool {
        self.run.has_poller()
    }
}

/// A number for a queue that is not any other's.
pub(crate) fn new_queue_number() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("name", &self.inner.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
