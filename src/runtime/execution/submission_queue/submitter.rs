//! The part of the reactor's thread in the submission queue: it launches batches and polls for their ends.

use std::collections::VecDeque;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::{self as hal, Error, ErrorKind, EventStatus, Result};

use crate::runtime::completion::clock::now;
use crate::runtime::completion::reactor::{Pending, new_queue_number};
use crate::runtime::execution::run::{Ended, enqueue_batch};
use crate::runtime::execution::submission_queue::{LeftRun, SubmissionQueue};
use crate::runtime::execution::template::PartitionExec;
use crate::runtime::resource::device::Device;
use crate::sync::Ordering;
use crate::util::panics::{catch, catch_and_log};

/// The runs that the reactor's thread launches, and has launched.
#[derive(Default)]
pub(crate) struct SubmitterState {
    waiting: VecDeque<LeftRun>,
    /// Exchanged for the inbox, so that neither side allocates.
    taken: Vec<LeftRun>,
    queues: Vec<SharedQueue>,
    next_queue: usize,
    /// Oldest first.
    batches: VecDeque<Batch>,
    /// Of batches that have ended, oldest first. Their runs may still refer to them.
    spare_events: VecDeque<Arc<dyn hal::Event>>,
    /// Time since which the oldest batch is the oldest.
    head_since: u64,
    /// Until when the next are expected to come soon.
    loaded_until: u64,
}

/// A queue that executables share.
#[derive(Clone)]
struct SharedQueue {
    queue: Arc<hal::ValidatedQueue>,
    queue_number: u64,
}

/// Runs launched one after the other on one queue, so that they have ended when its event completes.
struct Batch {
    runs: Runs,
    event: Arc<dyn hal::Event>,
    queue_number: u64,
    launched: u64,
}

/// The most runs of a batch. Half as many while fewer than [`PLENTY`] wait, so that the next are launched
/// before these have ended.
const MOST: usize = 16;
const PLENTY: usize = 24;

pub(crate) type Runs = SmallVec<[LeftRun; MOST]>;

/// With fewer batches and runs to be launched, the load is not high.
const FEW: usize = 3;

/// Nanoseconds for which a high load that has gone is expected back.
const WHILE: u64 = 50_000;

/// Nanoseconds for which a batch is polled without a pause: longer than a batch takes whose runs should share
/// a queue. A longer one is left to the driver's schedule, which sleeps between polls.
const LONGEST_SPIN: u64 = 300_000;

/// Maximum of events kept that others may still refer to.
const MOST_SPARE: usize = 64;

/// More than one, so that a device has the next launch at hand while it ends another.
const QUEUES: usize = 4;

impl SubmitterState {
    /// Launches some of the waiting runs, and polls the oldest batch. A run that takes long is given to
    /// `watch`, with the number of its queue. Whether there is more to do without a pause.
    pub(crate) fn turn(
        &mut self,
        queue: &SubmissionQueue,
        watch: &mut dyn FnMut(u64, Arc<dyn Pending>),
    ) -> bool {
        #[cfg(test)]
        if queue.held.load(Ordering::Relaxed) {
            return false;
        }
        if self.waiting.len() < PLENTY {
            std::mem::swap(&mut *queue.inbox.lock(), &mut self.taken);
            self.waiting.extend(self.taken.drain(..));
        }
        if self.waiting.len() + self.batches.len() >= FEW {
            if self.loaded_until == 0 {
                queue.is_loaded.store(true, Ordering::Relaxed);
            }
            self.loaded_until = now() + WHILE;
        }
        if !self.waiting.is_empty() {
            self.launch();
        } else if !self.batches.is_empty() {
            // Each check of the inbox takes its cache line from the submitting threads.
            std::hint::spin_loop();
        }
        if !self.batches.is_empty() {
            self.poll(queue, watch);
        }
        queue.ended.settle(!self.waiting.is_empty());
        let busy = !self.batches.is_empty() || !self.waiting.is_empty();
        if !busy && self.loaded_until > 0 {
            std::hint::spin_loop();
            return self.expects_more(queue);
        }
        busy
    }

    /// Whether the load was high a moment ago.
    fn expects_more(&mut self, queue: &SubmissionQueue) -> bool {
        let more = now() < self.loaded_until;
        if !more {
            self.loaded_until = 0;
            queue.is_loaded.store(false, Ordering::Relaxed);
        }
        more
    }

    /// Launches some of the waiting runs. Where that panics, they end: no other thread would launch them.
    fn launch(&mut self) {
        let mut runs = Runs::new();
        let Err(panic) = catch(|| self.launch_some(&mut runs)) else { return };
        let queue = self.queues.get(self.next_queue).map(|shared| &*shared.queue);
        for LeftRun { run, .. } in runs.into_iter().filter(|left| left.run.is_being_launched()) {
            run.end_after_panic(queue, &panic);
            run.set_launched(false);
        }
    }

    /// Takes some of the waiting runs into `runs`, and out again when they are launched or have ended.
    fn launch_some(&mut self, runs: &mut Runs) {
        let most = if self.waiting.len() < PLENTY { MOST / 2 } else { MOST };
        while runs.len() < most
            && let Some(left) = self.waiting.pop_front()
        {
            let LeftRun { run, .. } = &left;
            if !run.take_launch() {
                // Another thread has launched it. It may have ended, and own values of the user's.
                catch_and_log("a value of a run", || drop(left));
            } else if run.is_cancelled() {
                run.end_then_start(0, Ended::Cancelled);
                run.set_launched(false);
            } else {
                runs.push(left);
            }
        }
        let first = runs.first().and_then(|left| left.owner.partitions.first());
        let Some(device) = first.and_then(PartitionExec::device) else { return };
        match self.prepare(device) {
            Ok((queue, event)) => self.launch_batch(&queue, event, runs),
            Err(error) => {
                tracing::warn!(target: "wakegraph", %error, "no shared queue: launching runs one by one");
                runs.iter().for_each(|LeftRun { run, owner }| run.launch_alone(&**owner));
            }
        }
    }

    fn launch_batch(
        &mut self,
        SharedQueue { queue, queue_number }: &SharedQueue,
        event: Arc<dyn hal::Event>,
        runs: &mut Runs,
    ) {
        runs.iter().for_each(|left| left.run.set_batch_event(&event));
        let owners = runs.iter().map(|left| &*left.owner);
        let hal::Enqueued { count, failure } = enqueue_batch(owners, queue, &event);
        let mut rest = runs.drain(count..);
        let refused = rest.next();
        rest.rev().for_each(|left| {
            left.run.give_launch_back();
            self.waiting.push_front(left);
        });
        if let Some(LeftRun { run: refused, .. }) = refused {
            let bug = || Error::new(ErrorKind::Bug, "a batch was enqueued in part, without a reason");
            refused.end_then_start(0, Err(failure.unwrap_or_else(bug)));
            refused.set_launched(false);
        }
        runs.iter().for_each(|left| left.run.set_launched(true));
        if runs.is_empty() {
            self.spare_events.push_back(event);
        } else {
            let runs = std::mem::take(runs);
            self.batches.push_back(Batch { runs, event, queue_number: *queue_number, launched: now() });
        }
    }

    /// Polls the oldest batch. If that takes long, its runs go to `watch`.
    fn poll(&mut self, queue: &SubmissionQueue, watch: &mut dyn FnMut(u64, Arc<dyn Pending>)) {
        let Some(Batch { runs, event, launched, .. }) = self.batches.front() else { return };
        let at = now();
        let failure = match event.status() {
            EventStatus::Failed(error) => Some(error),
            EventStatus::Complete => None,
            EventStatus::Pending | EventStatus::Idle => {
                // It has had the queue for itself since then.
                let took = at.saturating_sub(self.head_since.max(*launched));
                if SubmissionQueue::is_too_long(took, runs.len()) {
                    runs.iter().for_each(|left| left.run.set_too_long());
                }
                if took > LONGEST_SPIN
                    && let Some(Batch { runs, event, queue_number, .. }) = self.batches.pop_front()
                {
                    self.spare_events.push_back(event);
                    runs.into_iter().for_each(|left| watch(queue_number, left.run));
                }
                return;
            }
        };
        self.head_since = at;
        if let Some(Batch { runs, event, .. }) = self.batches.pop_front() {
            self.spare_events.push_back(event);
            queue.ended.add(runs, failure);
        }
    }

    /// The queue and the event of the next batch.
    fn prepare(&mut self, device: &Device) -> Result<(SharedQueue, Arc<dyn hal::Event>)> {
        if self.queues.len() < QUEUES {
            let desc = hal::QueueDesc::new(hal::QueueOrder::InOrder);
            let queue = device.hal().create_queue(&desc)?;
            self.queues.push(SharedQueue { queue, queue_number: new_queue_number() });
        }
        if self.spare_events.len() > MOST_SPARE {
            // A run that is kept refers to it.
            self.spare_events.pop_front();
        }
        let unused = |event: &&Arc<dyn hal::Event>| Arc::strong_count(event) == 1;
        let event = match self.spare_events.front().filter(unused).is_some() {
            true => self.spare_events.pop_front(),
            false => None,
        };
        let event = match event {
            Some(event) => event,
            None => device.hal().create_event(&hal::EventDesc { profiling: false })?,
        };
        self.next_queue = (self.next_queue + 1) % self.queues.len();
        Ok((self.queues[self.next_queue].clone(), event))
    }
}
