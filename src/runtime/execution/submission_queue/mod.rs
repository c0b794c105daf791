//! The submission queue: while many short runs are in flight on a device, its reactor's thread submits
//! them in batches, on a few queues that executables share.
//!
//! With few in flight, `submit` launches each run itself, on a queue of its executable, and the polls of
//! its submission see the end: no other way is as fast. With many short runs that is waste. To
//! ask the driver for the end of each costs as much as its launch, and several threads that call the
//! driver hinder each other. So `submit` leaves such a run in the queue. The reactor's thread alone
//! launches (`submitter.rs`), and because the runs of a batch end in order, one poll serves all of them.
//! To wake the tasks that wait from outside their runtime costs time in which the thread does not launch.
//! One of them, the leader or a helper, wakes the others from inside the runtime instead ([`EndedBatches`]).
//!
//! Runs that share a queue run one after the other, so this is for runs that take no longer than a
//! launch or two. Each executable learns by trying whether its runs are like that (ADR 0013). A caller
//! that needs a run launched at once, because something comes after it on the device, does not wait for
//! the reactor: see [`Run::is_all_enqueued`].

mod submitter;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use submitter::SubmitterState;
use tokio::runtime::{Handle, RuntimeFlavor};
use wakegraph_hal::{Capabilities, Error, Priority, Progress};

use crate::runtime::completion::clock;
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::submitter::Submitter;
use crate::runtime::completion::wake_policy::WakePolicy;
use crate::runtime::completion::wakers::wake_after_locks;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission_queue::submitter::Runs;
use crate::runtime::execution::template::{PartitionExec, RunOwner};
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicBool, AtomicU64, Ordering};
use crate::util::panics::catch_and_log;

/// The runs of a device that submissions have left to its reactor's thread.
#[derive(Default)]
pub(crate) struct SubmissionQueue {
    /// Runs that the thread has not taken yet.
    inbox: Mutex<Vec<LeftRun>>,
    ended: EndedBatches,
    /// Locked by the reactor's thread alone.
    submitter: Mutex<SubmitterState>,
    /// Whether the reactor's thread has to be woken to see the inbox.
    asleep: AtomicBool,
    /// The load was high a moment ago. Where many runs end at once, as many are expected to follow.
    is_loaded: AtomicBool,
    /// Whether the reactor's thread submits and polls batches without a pause, or has been left a run.
    /// Otherwise nothing is about to end that a leader should stay awake for.
    busy: AtomicBool,
    /// Keeps the reactor from launching.
    #[cfg(test)]
    held: AtomicBool,
}

/// A run that was left to the reactor's thread. The run owns its executable, too: here the thread finds it
/// without touching memory that the submitting threads write.
pub(crate) struct LeftRun {
    run: Arc<Run>,
    owner: Arc<dyn RunOwner>,
}

/// The next action of the reactor's thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ThreadState {
    /// There is more to launch, and no other thread does that.
    Launching,
    Polling,
    FallingAsleep,
}

/// With fewer runs in flight on a device, each submission launches its run itself and polls for its end.
const HIGH_LOAD: u32 = 8;

/// Runs that take longer than this, or whose time divided by the load is longer than the share, are not left
/// to the queue.
const LONGEST: Duration = Duration::from_millis(5);
const LONGEST_SHARE: Duration = Duration::from_micros(16);

/// Nanoseconds. A run that keeps a shared queue longer is better off on its own.
const SHORT: u64 = 16_000;

/// Nanoseconds. A batch that takes no longer than this says little, because launches and polls take
/// time, too.
const MOMENT: u64 = 60_000;

impl SubmissionQueue {
    /// Whether runs of a batch that takes its queue at least so many nanoseconds should not be there.
    fn is_too_long(took: u64, runs: usize) -> bool {
        took > MOMENT.max(SHORT * runs as u64)
    }

    /// Leaves a run to the reactor's thread. Whether that has to be woken.
    #[must_use]
    pub(crate) fn push(&self, run: Arc<Run>, owner: Arc<dyn RunOwner>) -> bool {
        {
            let mut inbox = self.inbox.lock();
            inbox.push(LeftRun { run, owner });
            // Under the lock, so that it comes before the thread that takes the run out changes it.
            self.busy.store(true, Ordering::Relaxed);
        }
        // The thread sets this before it checks the inbox for the last time.
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether a run that should take so long is better left to the reactor's thread.
    pub(crate) fn pays(&self, device: &Device, expected: Duration) -> bool {
        let load = device.reactor().map_or(0, |reactor| reactor.in_flight().load(Ordering::Relaxed));
        let short = expected <= LONGEST && expected / load.max(HIGH_LOAD) <= LONGEST_SHARE;
        let many = load >= HIGH_LOAD || self.is_loaded.load(Ordering::Relaxed);
        short && many && device.wake_policy() != WakePolicy::Efficient
    }
}

impl Submitter for SubmissionQueue {
    fn turn(&self, watch: &mut dyn FnMut(u64, Arc<dyn Pending>)) -> bool {
        // A waker may submit behind a run that this turn is about to launch.
        wake_after_locks(|| self.submitter.lock().turn(self, watch))
    }

    fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    fn settle(&self) {
        self.ended.settle(ThreadState::FallingAsleep);
    }

    fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        let may = self.inbox.lock().is_empty();
        if !may {
            self.wake_up();
        }
        may
    }

    fn wake_up(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn close(&self) {
        // Dropped after the lock.
        let _state = std::mem::take(&mut *self.submitter.lock());
    }
}

impl Debug for SubmissionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmissionQueue").field("waiting", &self.inbox.lock().len()).finish_non_exhaustive()
    }
}

/// The submission queue for the runs of an executable with these partitions, if they can be left to the
/// reactor's thread: there is one partition, for a device that has to be polled and computes by itself. The
/// queues of batches have no priority.
pub(crate) fn queue_for(partitions: &[PartitionExec]) -> Option<Arc<SubmissionQueue>> {
    let [partition] = partitions else { return None };
    let possible = partition.eager && partition.priority() == Priority::Normal && !partition.is_stream_task();
    let takes_batches = |can: &Capabilities| can.batches && can.progress == Progress::Device;
    let device = partition.device().filter(|device| possible && takes_batches(device.capabilities()))?;
    let reactor = device.reactor()?;
    let queue = queue_of(device);
    reactor.set_submitter(|| Arc::clone(queue) as Arc<dyn Submitter>);
    Some(queue.clone())
}

/// The submission queue of a device.
fn queue_of(device: &Device) -> &Arc<SubmissionQueue> {
    device.submission_queue().get_or_default()
}

/// Runs of batches that have ended on the device and not been ended yet, and the leader that is to end them.
///
/// Where all tasks that wait are on one thread, one of their submissions, the leader, ends the runs and so
/// wakes the tasks from inside the runtime. On several threads, the reactor's thread does where it has
/// nothing to launch. Otherwise it ends one run, and the task that this wakes, the helper, ends the others.
#[derive(Default)]
pub(crate) struct EndedBatches {
    waiting: Mutex<EndedRuns>,
    /// Whether there are any, for checks without the lock.
    any: AtomicBool,
    /// The leader's number, 0 if there is none.
    leader: AtomicU64,
    leaders: AtomicU64,
}

#[derive(Default)]
struct EndedRuns {
    runs: VecDeque<(LeftRun, Option<Error>)>,
    /// When the reactor left them to the leader or woke a helper.
    since: u64,
}

/// The lead, until this is dropped or the leader is relieved. The leader has to call
/// [`end_all`](Self::end_all) again and again.
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

/// Maximum of runs ended per lock.
const SOME: usize = 16;

impl EndedBatches {
    /// Adds runs that have ended, for the leader or the next [`settle`](Self::settle).
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

    /// Waits a moment for a run that has ended, in the way that leaves most of a core to a
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
    fn end_all(&self) {
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
    /// there is neither, or it does not come, ends the runs, and wakes the tasks at the end.
    fn settle(&self, thread: ThreadState) {
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
        wake_after_locks(|| self.end_all());
    }
}

impl SubmissionQueue {
    /// For a submission whose run has ended: ends what the reactor's thread has left to it.
    pub(crate) fn help(&self) {
        self.ended.end_all();
    }

    /// Takes the lead if it is free, all tasks that wait are on this thread, and batches are about to end.
    pub(crate) fn lead(self: &Arc<Self>) -> Option<LeaderGuard> {
        let EndedBatches { leader, leaders, .. } = &self.ended;
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
    /// Completes all runs that have ended, or waits a moment for one.
    pub(crate) fn end_all(&self) {
        self.queue.ended.pause();
        self.queue.ended.end_all();
    }

    /// Whether to go on: the leader has not been relieved, and batches are about to end. While there are
    /// only long ones, the reactor wakes the tasks, and the leader waits like the others.
    pub(crate) fn goes_on(&self) -> bool {
        let SubmissionQueue { ended, busy, .. } = &*self.queue;
        ended.leader.load(Ordering::Relaxed) == self.number && busy.load(Ordering::Relaxed)
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let ended = &self.queue.ended;
        let _ = ended.leader.compare_exchange(self.number, 0, Ordering::SeqCst, Ordering::Relaxed);
        // Runs that are added later than this find no leader.
        ended.end_all();
    }
}

fn end((left, failure): (LeftRun, Option<Error>)) {
    catch_and_log("a run that ended", || {
        left.run.end_then_start(0, failure.map_or(Ok(()), Err));
        drop(left);
    });
}

/// On several threads each wake-up by the leader would wake another thread to share the work.
fn is_single_threaded() -> bool {
    Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}
