//! The reactor's thread: it hosts the poller, unless a task does, and submits the runs that were left to it.

use std::thread;
use std::time::Duration;

use parking_lot::MutexGuard;

use crate::runtime::completion::clock::{nanoseconds, now};
use crate::runtime::completion::reactor::poller::{AllFound, dispatch};
use crate::runtime::completion::reactor::schedule::By;
use crate::runtime::completion::reactor::{Inbox, ReactorInner};
use crate::runtime::completion::submitter::Submitter;
use crate::sync::Ordering;

/// How many turns the submitter has between two turns of the poller, which are needed less often.
const SUBMITTER_TURNS: usize = 16;

/// How often the thread sees to it that the reactor's task takes its turns.
const ROUND: Duration = Duration::from_millis(100);

/// Nanoseconds by which the task may be late before the thread takes turns in its place.
const LATE: u64 = 2_000_000;

impl ReactorInner {
    pub(super) fn run_thread(&self) {
        sleep_precisely();
        let mut found = AllFound::new();
        loop {
            let is_submitting = self.submitter.get().is_some_and(|submitter| self.submit(&**submitter));
            let mut inbox = self.inbox.lock();
            if inbox.is_hosted_by_task() {
                if inbox.is_closed && self.has_idle_task(&inbox) {
                    return;
                }
                if self.is_task_late(&mut inbox) {
                    drop(inbox);
                    let event = "a runtime does not poll the reactor's task: its thread takes over";
                    tracing::debug!(target: "wakegraph", "{event}");
                } else if !is_submitting {
                    self.watch_over_task(inbox);
                }
                continue;
            }
            drop(inbox);
            if self.is_paused() {
                self.sleep(&mut self.inbox.lock(), Some(now() + 1_000_000));
                continue;
            }
            let mut poller = self.poller.lock();
            poller.turn(self, now(), By::Host, &mut found);
            if !found.is_empty() {
                drop(poller);
                dispatch(&mut found);
                continue;
            }
            let next = poller.schedule.next_for_host();
            let is_due = next.is_some_and(|next| next <= now());
            if is_due || is_submitting {
                drop(poller);
                if !is_submitting {
                    thread::yield_now();
                }
                continue;
            }
            let is_idle = poller.schedule.is_idle();
            let mut inbox = self.inbox.lock();
            if self.has_changed.load(Ordering::Acquire) || inbox.is_hosted_by_task() {
                continue;
            }
            if inbox.is_closed && is_idle {
                return;
            }
            inbox.many = poller.schedule.has_many();
            let until = next.or_else(|| poller.schedule.idle_until(now()));
            self.asleep_until.store(until.unwrap_or(u64::MAX), Ordering::Relaxed);
            drop(poller);
            self.sleep(&mut inbox, until);
            if !inbox.is_hosted_by_task() {
                self.asleep_until.store(0, Ordering::Relaxed);
            }
        }
    }

    /// Lets the submitter take turns. Whether it has more to do at once.
    fn submit(&self, submitter: &dyn Submitter) -> bool {
        // The run is on a queue that executables share, so an estimate from its own queue says little.
        let watch = &mut |queue, run| self.watch(now(), queue, run, 0, None, None);
        (0..SUBMITTER_TURNS).all(|_| submitter.turn(watch))
    }

    /// Whether the task has nothing to wait for.
    fn has_idle_task(&self, inbox: &Inbox) -> bool {
        let is_idle = inbox.task.as_ref().is_some_and(|task| task.due == u64::MAX);
        is_idle && !self.has_changed.load(Ordering::Acquire)
    }

    /// Whether the task's runtime does not let it take turns. If so, the thread hosts from now on.
    fn is_task_late(&self, inbox: &mut Inbox) -> bool {
        let is_late = inbox.task.as_ref().is_some_and(|task| now() > task.due.saturating_add(LATE));
        if is_late {
            self.leave_to_thread(inbox);
        }
        is_late
    }

    /// Sleeps while a task hosts. The thread comes by now and then, as long as there is something to do.
    fn watch_over_task(&self, mut inbox: MutexGuard<'_, Inbox>) {
        let Some(task) = &mut inbox.task else { return };
        let is_busy = std::mem::take(&mut task.is_busy) || task.due < u64::MAX;
        task.is_thread_asleep = !is_busy;
        let until = is_busy.then(|| now() + nanoseconds(ROUND));
        self.sleep(&mut inbox, until);
    }

    /// Sleeps until it is woken or until a time, unless there is something to submit or to end.
    fn sleep(&self, inbox: &mut MutexGuard<'_, Inbox>, until: Option<u64>) {
        // Under the lock of the inbox: a submitter that is set later than this wakes the thread.
        let submitter = self.submitter.get();
        if let Some(submitter) = submitter {
            if submitter.has_ended() {
                return MutexGuard::unlocked(inbox, || submitter.settle());
            }
            if !submitter.fall_asleep() {
                return;
            }
        }
        match until {
            Some(until) => {
                let time = Duration::from_nanos(until.saturating_sub(now()));
                let _ = self.changed.wait_for(inbox, time);
            }
            None => self.changed.wait(inbox),
        }
        if let Some(submitter) = submitter {
            submitter.wake_up();
        }
    }
}

/// Asks the system for timers of microseconds: by default Linux lets a thread sleep 50 microseconds longer.
fn sleep_precisely() {
    if cfg!(target_os = "linux")
        && let Ok(thread) = std::fs::read_link("/proc/thread-self")
        && let Some(id) = thread.file_name()
    {
        // Without the permission sleeps are as long as they are.
        let _ = std::fs::write(std::path::Path::new("/proc").join(id).join("timerslack_ns"), "1000");
    }
}
