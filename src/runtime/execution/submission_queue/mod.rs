//! Batching: while many short runs are in flight on a device, its reactor launches them, on a few
//! queues that all share.
//!
//! Few at a time, each run is launched by whoever submits it, on a queue of its executable, and its
//! submission's polls look for the end: nothing is seen sooner. Among dozens of short ones that is
//! waste: to ask the driver for the end of each costs as much as its launch, and several threads
//! that call the driver hinder each other. So `submit` hands such a run over (`inbox`), the
//! reactor's thread alone launches (`launcher.rs`), and as the runs of a queue end in order, one
//! look tells of many. Whom that lets go on is not woken from outside, which costs a system call
//! each, but by one of those that wait, the leader (`ended.rs`): it is polled again and again
//! anyway, inside the runtime, where a wake-up is cheap.
//!
//! Runs that share a queue run one after the other, so this is for those that take no longer than a
//! launch or two; that is learned from each executable's own runs, by trying (ADR 0013). Whoever
//! needs a run launched at once, as something is to come after it on the device, does not wait for
//! the reactor: see [`Run::is_all_enqueued`].

mod completed;
mod submitter;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::hal::Progress;
use crate::runtime::completion::pending::Pending;
use crate::runtime::completion::submitter::Submitter;
use crate::runtime::completion::wake_policy::WakePolicy;
use crate::runtime::execution::partitions::PartitionExec;
use crate::runtime::execution::run::Run;
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicBool, Ordering};
use completed::Completed;
pub(crate) use completed::LeaderGuard;
use submitter::SubmitterState;

/// The runs of a device that submissions have left to its reactor's thread.
#[derive(Default)]
pub(crate) struct SubmissionQueue {
    /// Handed over, and not yet taken out to be launched.
    inbox: Mutex<Vec<Arc<Run>>>,
    completed: Completed,
    /// Locked by the reactor's thread alone.
    submitter: Mutex<SubmitterState>,
    /// Whether the reactor's thread has to be woken to see the inbox.
    asleep: AtomicBool,
    /// There has just been a crowd: where all of it ends at once, the next have not lost their
    /// company for good.
    crowded: AtomicBool,
    /// Whether the reactor's thread launches batches and looks for their ends without a pause, or
    /// has been left a run to launch. Otherwise nothing is about to end that a leader should stay
    /// awake for.
    busy: AtomicBool,
    /// Keeps the reactor from launching.
    #[cfg(test)]
    held: AtomicBool,
}

/// With fewer runs in flight on a device, each is best launched and looked for by its own submission.
const CROWD: u32 = 8;

/// What takes longer than this from its submission to its end, or than this share among those in
/// flight, is not tried.
const LONGEST: Duration = Duration::from_millis(5);
const LONGEST_SHARE: Duration = Duration::from_micros(16);

/// Nanoseconds. What keeps a shared queue longer is better off on its own.
const SHORT: u64 = 16_000;

/// Nanoseconds. What takes no longer than this says little, as launches and looks take time, too.
const MOMENT: u64 = 60_000;

impl SubmissionQueue {
    /// Whether runs of a batch that takes its queue at least so many nanoseconds should not be there.
    fn is_too_long(took: u64, runs: usize) -> bool {
        took > MOMENT.max(SHORT * runs as u64)
    }

    /// Leaves a run to the reactor's thread. Whether that has to be woken.
    #[must_use]
    pub(crate) fn push(&self, run: Arc<Run>) -> bool {
        {
            let mut inbox = self.inbox.lock();
            inbox.push(run);
            // Under the lock, so that it comes before what the thread says that takes the run out.
            self.busy.store(true, Ordering::Relaxed);
        }
        // Whoever falls asleep says so before its last look into the inbox.
        self.asleep.load(Ordering::SeqCst)
    }

    /// Whether a run that should take so long is better left to the reactor's thread.
    pub(crate) fn pays(&self, device: &Device, expected: Duration) -> bool {
        let load = device.in_flight().load(Ordering::Relaxed);
        let short = expected <= LONGEST && expected / load.max(CROWD) <= LONGEST_SHARE;
        let many = load >= CROWD || self.crowded.load(Ordering::Relaxed);
        short && many && device.wake_policy() != WakePolicy::Efficient
    }
}

impl Submitter for SubmissionQueue {
    fn turn(&self, watch: &mut dyn FnMut(u64, Arc<dyn Pending>)) -> bool {
        self.submitter.lock().turn(self, watch)
    }

    fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    fn settle(&self) {
        self.completed.settle(true);
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
}

impl Debug for SubmissionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmissionQueue").field("waiting", &self.inbox.lock().len()).finish_non_exhaustive()
    }
}

/// The submission queue for the runs of an executable with these partitions, if they can be left to the
/// reactor's thread: there is one partition, for a device that has to be polled and computes by itself.
pub(crate) fn queue_for(partitions: &[PartitionExec], progress: Progress) -> Option<Arc<SubmissionQueue>> {
    let [partition] = partitions else { return None };
    let possible = partition.eager && progress == Progress::Device;
    let device = partition.device().filter(|device| possible && device.capabilities().batches)?;
    let reactor = device.reactor()?;
    let queue = queue_of(device);
    reactor.set_submitter(|| Arc::clone(queue) as Arc<dyn Submitter>);
    Some(queue.clone())
}

/// The submission queue of a device.
fn queue_of(device: &Device) -> &Arc<SubmissionQueue> {
    device.submission_queue().get_or_default()
}
