//! Who launches a run: `submit`, or the reactor's thread, which it was left to.

use std::sync::Arc;
use std::thread;

use crate::hal::{self, EventStatus};
use crate::runtime::execution::run::Run;
use crate::runtime::execution::run::enqueue::enqueue;
use crate::runtime::execution::template::RunOwner;
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind};
use crate::util::panics::catch;

/// `submit` launches it.
pub(super) const AT_SUBMIT: u8 = 0;
/// It waits in the submission queue.
const HANDED_OVER: u8 = 1;
/// A thread is launching it.
const LAUNCHING: u8 = 2;
/// Launched in a batch, on a queue that executables share.
const IN_BATCH: u8 = 3;
/// Launched on its executable's queue after all.
const ALONE: u8 = 4;
/// `submit` launches it as soon as it holds no lock.
const AFTER_LOCKS: u8 = 5;

impl Run {
    /// Whether the reactor launches it and polls for its end.
    pub(crate) fn is_left_to_reactor(&self) -> bool {
        !matches!(self.progress.launch.load(Ordering::Acquire), AT_SUBMIT | ALONE | AFTER_LOCKS)
    }

    /// A thread launches it, which has let go of its locks: those that find the run may wait for that.
    pub(crate) fn set_launching_without_locks(&self, launching: bool) {
        let state = if launching { AFTER_LOCKS } else { AT_SUBMIT };
        self.progress.launch.store(state, Ordering::Release);
    }

    /// Whether a thread is launching it without locks.
    pub(crate) fn is_launched_without_locks(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == AFTER_LOCKS
    }

    /// The reactor's thread is going to launch it.
    pub(crate) fn set_handed_over(&self) {
        self.progress.launch.store(HANDED_OVER, Ordering::Release);
    }

    /// Whether the caller is to launch it: no other thread has or does.
    #[must_use]
    pub(crate) fn take_launch(&self) -> bool {
        let launch = &self.progress.launch;
        launch.compare_exchange(HANDED_OVER, LAUNCHING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a thread is launching it.
    pub(crate) fn is_being_launched(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == LAUNCHING
    }

    /// The caller does not launch it after all.
    pub(crate) fn give_launch_back(&self) {
        self.inner.lock().extras.if_made(|extras| extras.batch_event = None);
        self.metrics.partition_given_back(0);
        self.progress.launch.store(HANDED_OVER, Ordering::Release);
    }

    /// What is about to be signalled behind the batch that it is launched in.
    pub(crate) fn set_batch_event(&self, event: &Arc<dyn hal::Event>) {
        self.inner.lock().extras.get_or_make().batch_event = Some(event.clone());
        self.metrics.partition_started(0);
    }

    /// The real status of the batch that it was launched in; `None` once the run is over.
    pub(super) fn batch_status(&self) -> Option<EventStatus> {
        let event = self.extra(|extras| extras.batch_event.clone());
        event.map(|event| event.status())
    }

    /// It has been launched in a batch, or else refused.
    pub(crate) fn set_launched(&self, launched: bool) {
        if launched {
            self.set_all_enqueued();
            self.trace_enqueued(0);
        }
        self.progress.launch.store(IN_BATCH, Ordering::Release);
    }

    /// Launches it on the queue of its executable.
    pub(crate) fn launch_alone(self: &Arc<Self>, owner: &dyn RunOwner) {
        match catch(|| enqueue(owner, self, 0, &[], &[])) {
            Ok(true) => self.set_all_enqueued(),
            Ok(false) => {}
            Err(panic) => self.end_after_panic(owner.partitions[0].queue(), &panic),
        }
        self.progress.launch.store(ALONE, Ordering::Release);
    }

    /// Its launch on a queue has panicked, as what listens to the log of a backend may. The device may have
    /// been given the run, so it ends, with an error, once nothing is left on the queue.
    pub(crate) fn end_after_panic(&self, queue: Option<&hal::ValidatedQueue>, panic: &str) {
        let is_over = match catch(|| queue.map_or(Ok(()), hal::ValidatedQueue::finish)) {
            Ok(finished) => finished.map_or_else(|error| error.kind() == ErrorKind::DeviceLost, |()| true),
            Err(_) => false,
        };
        if !is_over {
            self.owner().into_iter().for_each(RunOwner::keep_for_ever);
        }
        let error = Error::new(ErrorKind::Bug, format!("the launch of the run panicked: {panic}"));
        self.finish(0, Err(error));
    }

    /// Whether everything of it is on devices, so that they can wait for it. Sees to it, if it was
    /// handed over.
    pub(crate) fn is_all_enqueued(self: &Arc<Self>) -> bool {
        match self.progress.launch.load(Ordering::Acquire) {
            HANDED_OVER => {
                // The owner is there until the run is over, which it cannot be yet.
                if self.take_launch()
                    && let Some(owner) = self.owner()
                {
                    self.launch_alone(&*owner);
                }
            }
            // A call of the driver's.
            LAUNCHING => {}
            _ => return self.progress.enqueued.load(Ordering::Acquire),
        }
        while self.progress.launch.load(Ordering::Acquire) == LAUNCHING {
            thread::yield_now();
        }
        self.progress.enqueued.load(Ordering::Acquire)
    }

    /// Whether the queue of its executable's later runs does not order them after this one.
    pub(crate) fn is_in_batch(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == IN_BATCH
    }

    /// It keeps a shared queue for too long.
    pub(crate) fn set_too_long(&self) {
        self.waiting.too_long.store(true, Ordering::Relaxed);
    }

    /// Whether it kept the queue that it shared for no longer than it should, if it was on one.
    pub(crate) fn shared_well(&self) -> Option<bool> {
        self.is_in_batch().then(|| !self.waiting.too_long.load(Ordering::Relaxed))
    }
}
