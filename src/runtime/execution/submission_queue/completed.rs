//! Ending many runs, and waking who waits for them: from inside their runtime, where all are on one
//! thread, by one that waits itself, the leader; else by the reactor.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::runtime::{Handle, RuntimeFlavor};

use crate::runtime::completion::clock;
use crate::runtime::completion::latch::wake_after_locks;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission_queue::SubmissionQueue;
use crate::runtime::execution::submission_queue::submitter::Runs;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::types::Error;
use crate::util::panics::catch_and_log;

/// What is over on the device and nobody has been told, and who tells.
#[derive(Debug, Default)]
pub(crate) struct Completed {
    untold: Mutex<Untold>,
    /// Whether there are any, for looks without the lock.
    any: AtomicBool,
    /// The leader's number, 0 if there is none.
    leader: AtomicU64,
    leaders: AtomicU64,
}

#[derive(Debug, Default)]
struct Untold {
    runs: VecDeque<(Arc<Run>, Option<Error>)>,
    /// When the reactor first left them to the leader.
    since: u64,
}

/// Somebody leads, until this is dropped or it is relieved. It has to [`tell`](Completed::tell) again and again.
#[derive(Debug)]
pub(crate) struct LeaderGuard {
    queue: Arc<SubmissionQueue>,
    number: u64,
}

/// Nanoseconds. A leader that lets others wait for longer is relieved: nobody can make it poll.
const PATIENCE: u64 = 50_000;

/// Each takes up to 0.1 us.
const PAUSES: u32 = 16;

/// So many are told between two looks at the lock.
const SOME: usize = 16;

impl Completed {
    /// These are over: the leader's to tell, or that of the next [`settle`](Self::settle).
    pub(crate) fn add(&self, runs: Runs, failure: Option<Error>) {
        let mut untold = self.untold.lock();
        if untold.runs.is_empty() {
            untold.since = 0;
        }
        untold.runs.extend(runs.into_iter().map(|run| (run, failure.clone())));
        self.any.store(true, Ordering::Release);
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// Waits a moment for something to tell, in the way that leaves most of a core to whoever shares it.
    fn pause(&self) {
        for _ in 0..PAUSES {
            if !self.is_empty() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    /// Ends all that are over, which wakes tasks: not for callers that hold a lock.
    fn tell(&self) {
        if self.is_empty() {
            return;
        }
        while !self.is_empty() {
            let some: SmallVec<[_; SOME]> = {
                let runs = &mut self.untold.lock().runs;
                let count = runs.len().min(SOME);
                self.any.store(runs.len() > count, Ordering::Release);
                runs.drain(..count).collect()
            };
            some.into_iter().for_each(|one| catch_and_log("a run that ended", || end(one)));
        }
    }

    /// For the reactor's thread: leaves those that are over to the leader, unless there is none, or
    /// it does not come, or this thread is going to be `asleep`; tells them then, and wakes whom
    /// that lets go on in one go.
    pub(crate) fn settle(&self, asleep: bool) {
        if self.is_empty() {
            return;
        }
        let mut untold = self.untold.lock();
        let leader = self.leader.load(Ordering::SeqCst);
        if leader != 0 && !asleep {
            let now = clock::now();
            if untold.since == 0 {
                untold.since = now;
            }
            if now.saturating_sub(untold.since) < PATIENCE {
                return;
            }
            let _ = self.leader.compare_exchange(leader, 0, Ordering::SeqCst, Ordering::Relaxed);
        }
        drop(untold);
        wake_after_locks(|| self.tell());
    }
}

impl SubmissionQueue {
    /// Takes the lead if nobody has it, all that wait are on this thread, and batches are about to end.
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
    /// Tells all that are over, or waits a moment for one.
    pub(crate) fn tell(&self) {
        self.queue.completed.pause();
        self.queue.completed.tell();
    }

    /// Whether to go on: it has not been relieved, and batches are about to end. While there are
    /// only such as take long, the reactor wakes those that wait, and the leader waits like the
    /// others.
    pub(crate) fn goes_on(&self) -> bool {
        let SubmissionQueue { completed, busy, .. } = &*self.queue;
        completed.leader.load(Ordering::Relaxed) == self.number && busy.load(Ordering::Relaxed)
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let completed = &self.queue.completed;
        let _ = completed.leader.compare_exchange(self.number, 0, Ordering::SeqCst, Ordering::Relaxed);
        // What comes later than this finds no leader.
        completed.tell();
    }
}

fn end((run, failure): (Arc<Run>, Option<Error>)) {
    run.finish(0, failure.map_or(Ok(()), Err));
}

/// Elsewhere each wake-up by the leader would wake another thread to share the work, as would the
/// leader's own.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}
