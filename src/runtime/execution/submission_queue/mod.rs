//! The submission queue: while many short runs are in flight on a device, its reactor's thread submits
//! them in batches, on a few queues that executables share.
//!
//! With few in flight, `submit` launches each run itself, on a queue of its executable, and the polls of
//! its submission see the end: no other way is as fast. With many short runs that is waste. To
//! ask the driver for the end of each costs as much as its launch, and several threads that call the
//! driver hinder each other. So `submit` leaves such a run in the queue. The reactor's thread alone
//! launches (`submitter.rs`), and because the runs of a batch end in order, one poll serves all of them.
//! To wake the tasks that wait from outside their runtime costs time in which the thread does not launch.
//! While it has more to launch, it wakes one of them, the helper, which wakes the others from inside the
//! runtime ([`EndedBatches`]).
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
use wakegraph_hal::{Capabilities, Error, Priority, Progress};

use crate::runtime::completion::clock;
use crate::runtime::completion::reactor::{Pending, Submitter};
use crate::runtime::completion::tasks::wake_after_locks;
use crate::runtime::completion::tuning::WakePolicy;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission_queue::submitter::Runs;
use crate::runtime::execution::template::{PartitionExec, RunOwner};
use crate::runtime::resource::device::{Device, DeviceSubmissionQueue};
use crate::sync::{AtomicBool, Ordering};
use crate::util::attachment::Attachment;
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
        self.inbox.lock().push(LeftRun { run, owner });
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
        self.ended.settle(false);
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
    let possible =
        partition.eager && partition.priority() == Priority::Normal && partition.stream_task().is_none();
    let takes_batches = |can: &Capabilities| can.batches && can.progress == Progress::Device;
    let device = partition.device().filter(|device| possible && takes_batches(device.capabilities()))?;
    let reactor = device.reactor()?;
    let queue = queue_of(device);
    reactor.set_submitter(|| Arc::clone(queue) as Arc<dyn Submitter>);
    Some(queue.clone())
}

impl Attachment for DeviceSubmissionQueue {
    type Value = Arc<SubmissionQueue>;
}

/// The submission queue of a device.
fn queue_of(device: &Device) -> &Arc<SubmissionQueue> {
    device.submission_queue().get_or_default()
}

/// Runs of batches that have ended on the device, and that the reactor's thread or a helper is to end.
///
/// Where the thread has nothing to launch, it ends them, and so wakes the tasks that wait. Otherwise it ends
/// one run, and the task that this wakes, the helper, ends the others.
#[derive(Default)]
pub(crate) struct EndedBatches {
    waiting: Mutex<EndedRuns>,
    /// Whether there are any, for checks without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct EndedRuns {
    runs: VecDeque<(LeftRun, Option<Error>)>,
    /// Time at which the reactor's thread woke a helper, 0 if it has not.
    since: u64,
}

/// Nanoseconds. The reactor's thread no longer waits for a helper that lets runs wait for longer: nothing
/// can make its task poll.
const LONGEST_WAIT: u64 = 50_000;

/// Maximum of runs ended per lock.
const SOME: usize = 16;

impl EndedBatches {
    /// Adds runs that have ended, for the next [`settle`](Self::settle).
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

    /// Ends all runs, which wakes tasks: not for callers that hold a lock.
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

    /// For the reactor's thread: ends the runs, and wakes their tasks last. If it has `more_to_launch`, it
    /// ends one run and leaves the others to the helper, unless that does not come.
    fn settle(&self, more_to_launch: bool) {
        if self.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock();
        if more_to_launch {
            let now = clock::now();
            if waiting.since == 0 {
                waiting.since = now;
                let first = waiting.runs.pop_front();
                self.any.store(!waiting.runs.is_empty(), Ordering::Release);
                drop(waiting);
                return first.into_iter().for_each(end);
            }
            if now.saturating_sub(waiting.since) < LONGEST_WAIT {
                return;
            }
        }
        drop(waiting);
        wake_after_locks(|| self.end_all());
    }
}

impl SubmissionQueue {
    /// For a submission whose run has ended: ends the runs that the reactor's thread has left to it.
    pub(crate) fn help(&self) {
        self.ended.end_all();
    }
}

fn end((left, failure): (LeftRun, Option<Error>)) {
    catch_and_log("a run that ended", || {
        left.run.end_then_start(0, failure.map_or(Ok(()), Err));
        drop(left);
    });
}
