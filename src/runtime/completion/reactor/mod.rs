//! Learning of completions on devices that do not notify.
//!
//! One [poller](poller) per device polls its events. The reactor's [hosts](host) take turns as the poller:
//! a thread, which sleeps until the [schedule] wants the next poll, and a task of a tokio runtime, if the
//! user has asked for one. Submissions that spin take turns, too.
//!
//! A submission puts the partitions that it has enqueued into the [`Inbox`], whose lock is held for a moment
//! only, and wakes a host that would sleep for too long. The lock of the poller comes before that of the inbox.

mod host;
#[cfg(all(test, wakegraph_loom))]
mod model;
mod poller;
mod schedule;

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use poller::{Added, AllFound, InFlight, Poller, dispatch};
use schedule::{By, Entry};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use wakegraph_hal::{Error, ErrorKind, Progress, Result};

use crate::runtime::completion::clock::nanoseconds;
use crate::runtime::completion::estimate::Estimate;
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::submitter::Submitter;
use crate::runtime::completion::tuning::Tuning;
use crate::runtime::completion::wake_policy::WakePolicy;
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
    /// Until when the thread sleeps, 0 while it is awake. It falls asleep, and is woken, under the inbox's lock.
    asleep_until: AtomicU64,
    /// When the task takes its next turn, 0 without a task. The inbox's lock protects it, too.
    task_due: AtomicU64,
    /// Wakes the thread.
    changed: Condvar,
    /// Submits runs on the thread, once a run may be left to it.
    submitter: OnceLock<Arc<dyn Submitter>>,
    /// Keeps the host from taking turns.
    #[cfg(test)]
    is_paused: AtomicBool,
}

/// Events and settings that the reactor has not taken in yet.
struct Inbox {
    added: Vec<Added>,
    tuning: Tuning,
    /// Whether there were many queues of long work when the host fell asleep.
    many: bool,
    /// For how long the host leaves a run alone beyond the time for which its submission polls.
    guard: Duration,
    /// Wakes the task that is a host beside the thread.
    task: Option<Arc<Notify>>,
    /// Whether the task takes the turns that the thread leaves to it.
    is_task_in_time: bool,
    /// Nanoseconds after which the thread takes such a turn, too.
    grace: u64,
    is_thread_running: bool,
    is_closed: bool,
}

/// To wake up for each run that a submission polls for would cost a core more than it has to do. The host
/// comes after this time in case the submission is not polled.
const GUARD: Duration = Duration::from_millis(1);

/// Nanoseconds for which the thread waits for the task to take a turn.
const GRACE: u64 = 100_000_000;

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
            grace: GRACE,
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

    /// Ends the host when nothing is in flight any more. The device is gone, so nothing will be submitted.
    pub(crate) fn close(&self) {
        let mut inbox = self.inner.inbox.lock();
        inbox.is_closed = true;
        inbox.task.iter().for_each(|task| task.notify_one());
        self.inner.wake_before(&mut inbox, 0);
    }

    /// How many runs are in flight on the device.
    pub(crate) fn in_flight(&self) -> &AtomicU32 {
        &self.inner.in_flight
    }

    /// Has the thread submit runs, too. The first call counts.
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

    /// A submission polls no longer for the end of a run: the host does from now on.
    pub(crate) fn poll_instead(&self) {
        let mut inbox = self.inner.inbox.lock();
        // A host that is about to fall asleep has planned to leave the run to the submission.
        self.inner.has_changed.store(true, Ordering::Release);
        self.inner.wake_before(&mut inbox, 0);
    }

    /// Keeps the reactor's host from taking turns while the guard lives.
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
        // Mostly the host is awake, or wakes up before it stops leaving the run to its submission.
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
