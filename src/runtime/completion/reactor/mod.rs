//! Learning of completions on devices that do not notify.
//!
//! One [poller](poller) per device polls its events. The reactor hosts it: on a thread of its own, which
//! sleeps until the [schedule] wants the next poll, or as a task of a tokio runtime in its place.
//! Submissions that spin take turns as the poller, too.
//!
//! Those that submit put what they have enqueued into the [`Inbox`], whose lock is held for a moment only,
//! and wake the host if it would sleep for too long. The lock of the poller comes before that of the inbox.

#[cfg(all(test, wakegraph_loom))]
mod model;
mod poller;
mod schedule;
mod task;
mod thread;
mod timer;

use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use poller::{Added, AllFound, InFlight, Poller, dispatch};
use schedule::{By, Entry};
use task::TaskState;
use tokio::runtime::Handle;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::clock::{nanoseconds, now};
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
    in_flight: AtomicU32,
    poller: Mutex<Poller>,
    inbox: Mutex<Inbox>,
    /// Whether there is something for the host to see before it falls asleep: an entry in the inbox, or a run
    /// that no submission polls for any more.
    has_changed: AtomicBool,
    /// As in the inbox, for submissions that do not lock it.
    asleep_until: AtomicU64,
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
    /// The host takes a turn in the place of the thread.
    task: Option<TaskState>,
    is_thread_running: bool,
    is_closed: bool,
}

/// To wake up for each run that a submission polls for would cost a core more than it has to do. The host
/// comes after this time in case the submission is not polled.
const GUARD: Duration = Duration::from_millis(1);

impl Reactor {
    pub(crate) fn new(device: &str, policy: WakePolicy) -> Self {
        let tuning = Tuning::of(policy);
        let inbox = Inbox {
            added: Vec::new(),
            tuning,
            many: false,
            guard: GUARD,
            task: None,
            is_thread_running: false,
            is_closed: false,
        };
        let inner = ReactorInner {
            name: format!("wakegraph-reactor-{device}"),
            in_flight: AtomicU32::new(0),
            poller: Mutex::new(Poller::new(tuning)),
            inbox: Mutex::new(inbox),
            has_changed: AtomicBool::new(false),
            asleep_until: AtomicU64::new(0),
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
        self.inner.wake_before(&mut inbox, 0);
        drop(inbox);
        self.inner.changed.notify_one();
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

    /// Hosts the poller as a task of this runtime in place of the thread.
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
                && next < inner.asleep_until.load(Ordering::Relaxed)
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
        if left_until < self.asleep_until.load(Ordering::Relaxed) || inbox.task.is_some() {
            let plan = inbox.tuning.plan(estimate, inbox.many);
            let first = at.saturating_add(plan.first).saturating_add(plan.window);
            self.wake_before(&mut inbox, first.max(left_until));
        }
    }

    /// Sees to it that the host takes a turn before this time.
    fn wake_before(&self, inbox: &mut Inbox, time: u64) {
        let asleep_until = self.asleep_until.load(Ordering::Relaxed);
        let is_late = time < asleep_until;
        let Some(task) = inbox.task.as_mut().filter(|task| task.is_hosting) else {
            if is_late {
                self.asleep_until.store(0, Ordering::Relaxed);
                self.changed.notify_one();
            }
            return;
        };
        task.is_busy = true;
        if is_late {
            self.asleep_until.store(time, Ordering::Relaxed);
            // A time that has passed makes nothing late that has only now been asked for.
            task.due = time.max(now());
            if !task.set_timer(time) {
                self.leave_to_thread(inbox);
                return;
            }
        }
        if std::mem::take(&mut task.is_thread_asleep) {
            self.changed.notify_one();
        }
    }

    /// The thread hosts the poller from now on.
    fn leave_to_thread(&self, inbox: &mut Inbox) {
        inbox.task.iter_mut().for_each(|task| task.is_hosting = false);
        self.asleep_until.store(0, Ordering::Relaxed);
        self.changed.notify_one();
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

impl Inbox {
    fn is_hosted_by_task(&self) -> bool {
        self.task.as_ref().is_some_and(|task| task.is_hosting)
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
