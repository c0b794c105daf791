//! Completing the runs of finished batches. Where all tasks that wait are on one thread, one of their
//! submissions, the leader, completes the runs and so wakes the tasks from inside the runtime. On several
//! threads, the reactor's thread does where it has nothing to launch. Otherwise it completes one run, and
//! the task that this wakes, the helper, completes the others.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::runtime::completion::clock;
use crate::runtime::completion::wakers::wake_after_locks;
use crate::runtime::execution::submission_queue::submitter::Runs;
use crate::runtime::execution::submission_queue::{LeftRun, SubmissionQueue, ThreadState};
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::types::Error;
use crate::util::panics::catch_and_log;

/// Runs that are over on the device and not completed yet, and the leader that is to complete them.
#[derive(Default)]
pub(crate) struct Completed {
    waiting: Mutex<CompletedRuns>,
    /// Whether there are any, for checks without the lock.
    any: AtomicBool,
    /// The leader's number, 0 if there is none.
    leader: AtomicU64,
    leaders: AtomicU64,
}

#[derive(Default)]
struct CompletedRuns {
    runs: VecDeque<(LeftRun, Option<Error>)>,
    /// When the reactor left them to the leader or woke a helper.
    since: u64,
}

/// The lead, until this is dropped or the leader is relieved. The leader has to call
/// [`complete`](Self::complete) again and again.
#[derive(Debug)]
pub(crate) struct LeaderGuard {
    queue: Arc<SubmissionQueue>,
    number: u64,
}

/// Nanoseconds. A leader or a helper that lets runs wait for longer is relieved: nothing can make its task
/// poll.
const LONGEST_WAIT: u64 = 50_000;

/// Each takes up to 0.1 us.
const PAUSES: u32 = 16;

/// So many runs are completed per lock.
const SOME: usize = 16;

impl Completed {
    /// Adds runs that are over, for the leader or the next [`settle`](Self::settle).
    pub(crate) fn add(&self, runs: Runs, failure: Option<Error>) {
        let mut waiting = self.waiting.lock();
        if waiting.runs.is_empty() {
            waiting.since = 0;
        }
        waiting.runs.extend(runs.into_iter().map(|run| (run, failure.clone())));
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Waits a moment for a run that is over, in the way that leaves most of a core to a
    /// hyperthread beside it.
    fn pause(&self) {
        for _ in 0..PAUSES {
            if !self.is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Completes all runs, which wakes tasks: not for callers that hold a lock.
    fn complete(&self) {
        if self.is_empty() {
            return;
        }
        while !self.is_empty() {
            let some: SmallVec<[_; SOME]> = {
                let runs = &mut self.waiting.lock().runs;
                let count = runs.len().min(SOME);
                self.any.store(runs.len() > count, Ordering::Release);
                runs.drain(..count).collect()
            };
            some.into_iter().for_each(end);
        }
    }

    /// For the reactor's thread: leaves the runs to the leader or, if it has more to launch, to a helper. If
    /// there is neither, or it does not come, completes the runs, and wakes the tasks at the end.
    pub(crate) fn settle(&self, thread: ThreadState) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        let leader = self.leader.load(Ordering::SeqCst);
        if thread == ThreadState::Launching || (leader != 0 && thread == ThreadState::Polling) {
            let now = clock::now();
            if waiting.since == 0 {
                waiting.since = now;
                let first = if leader == 0 { waiting.runs.pop_front() } else { None };
                self.any.store(!waiting.runs.is_empty(), Ordering::Release);
                drop(waiting);
                return first.into_iter().for_each(end);
            }
            if now.saturating_sub(waiting.since) < LONGEST_WAIT {
                return;
            }
            let _ = self.leader.compare_exchange(leader, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        drop(waiting);
        wake_after_locks(|| self.complete());
    }
}

impl SubmissionQueue {
    /// For a submission whose run is complete: completes what the reactor's thread has left to it.
    pub(crate) fn help(&self) {
        self.completed.complete();
    }

    /// Takes the lead if it is free, all tasks that wait are on this thread, and batches are about to end.
    pub(crate) fn lead(self: &Arc<Self>) -> Option<LeaderGuard> {
        let Completed { leader, leaders, .. } = &self.completed;
        if leader.load(Ordering::Relaxed) != 0 || !self.busy.load(Ordering::Relaxed) || !is_single_threaded()
        {
            return None;
        }
        let number = leaders.fetch_add(1, Ordering::Relaxed) + 1;
        let led = leader.compare_exchange(0, number, Ordering::SeqCst, Ordering::Relaxed);
        led.is_ok().then(|| LeaderGuard { queue: Arc::clone(self), number })
    }
}

impl LeaderGuard {
    /// Completes all runs that are over, or waits a moment for one.
    pub(crate) fn complete(&self) {
        self.queue.completed.pause();
        self.queue.completed.complete();
    }

    /// Whether to go on: the leader has not been relieved, and batches are about to end. While there are
    /// only long ones, the reactor wakes the tasks, and the leader waits like the others.
    pub(crate) fn goes_on(&self) -> bool {
        let SubmissionQueue { completed, busy, .. } = &*self.queue;
        completed.leader.load(Ordering::Relaxed) == self.number && busy.load(Ordering::Relaxed)
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let completed = &self.queue.completed;
        let _ = completed.leader.compare_exchange(self.number, 0, Ordering::SeqCst, Ordering::Relaxed);
        // Runs that are added later than this find no leader.
        completed.complete();
    }
}

fn end((left, failure): (LeftRun, Option<Error>)) {
    catch_and_log("a run that ended", || {
        left.run.finish(0, failure.map_or(Ok(()), Err));
        drop(left);
    });
}

/// On several threads each wake-up by the leader would wake another thread to share the work.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}
