//! What the loss of a device says about a run on it: where it may have come from, or that the run
//! only waited.
//!
//! A device that is lost fails everything pending on it with one error, which knows no node. What
//! had not started is not to blame, and that is known here.

use crate::hal::EventStatus;
use crate::runtime::execution::run::order::end_in_order;
use crate::runtime::execution::run::{ENQUEUED, Predecessor, Run, SUCCEEDED, WAITING};
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind};
use crate::util::deferred_drop::Failure;

impl Run {
    /// Adds to an error with which a partition ended where it happened, as far as that is known.
    pub(super) fn locate(&self, template: &RunTemplate, partition: usize, error: Error) -> Error {
        let labels = &template.labels;
        let enqueued = self.state(partition) != WAITING || self.is_in_batch();
        match error.kind() {
            ErrorKind::DeviceLost if !enqueued => {
                let why = "the device was lost before this partition could start";
                labels.place(partition, error.with_note(why))
            }
            ErrorKind::DeviceLost if self.is_behind(template) => {
                let why = "this submission was queued behind another that was still in flight";
                labels.place(partition, error.with_note(why))
            }
            ErrorKind::DeviceLost => {
                labels.locate_among(&self.suspects(template, partition), partition, error)
            }
            ErrorKind::Driver if enqueued => labels.locate_among(&[partition as u32], partition, error),
            _ => labels.locate(partition, error),
        }
    }

    /// Partitions that may have been running on what was lost when this one was: nothing that they
    /// come after was pending. They need not all be on its device, which may have taken others of
    /// its driver with it.
    fn suspects(&self, template: &RunTemplate, partition: usize) -> Vec<u32> {
        let device = template.partitions[partition].device();
        let running = |&index: &u32| {
            let other = &template.partitions[index as usize];
            self.is_lost(index as usize, other.device() == device)
                && other.predecessors.iter().all(|&before| self.is_known_complete(before as usize))
        };
        (0..template.partitions.len() as u32).filter(running).collect()
    }

    fn is_lost(&self, partition: usize, on_lost_device: bool) -> bool {
        let event = self.event(partition).filter(|_| self.state(partition) == ENQUEUED);
        event.is_some_and(|event| match event.status() {
            EventStatus::Failed(error) => error.kind() == ErrorKind::DeviceLost,
            // It is about to fail as well.
            EventStatus::Pending => on_lost_device,
            EventStatus::Complete | EventStatus::Idle => false,
        })
    }

    pub(super) fn is_known_complete(&self, partition: usize) -> bool {
        match self.state(partition) {
            SUCCEEDED => true,
            ENQUEUED => {
                self.event(partition).is_some_and(|event| matches!(event.status(), EventStatus::Complete))
            }
            _ => false,
        }
    }

    /// Whether devices had this run wait for another that did not end, but for the loss.
    fn is_behind(&self, template: &RunTemplate) -> bool {
        if template.ended.load(Ordering::Acquire) + 1 < self.number {
            return true;
        }
        let others: Vec<_> = self.comes_after().iter().filter_map(Predecessor::run).collect();
        end_in_order(&others);
        others.iter().any(|run| {
            !run.is_done() || run.result().is_err_and(|error| error.kind() == ErrorKind::DeviceLost)
        })
    }

    /// The run is over: the next one of the executable has not waited for it in vain, unless its
    /// device is lost.
    pub(super) fn has_ended(&self, owner: &dyn RunOwner, failure: Option<&Failure>) {
        let lost = failure.is_some_and(|error| error.kind() == ErrorKind::DeviceLost);
        let ended = &owner.template().ended;
        // Several are seen to end in any order.
        if !lost && ended.load(Ordering::Relaxed) < self.number {
            ended.store(self.number, Ordering::Release);
        }
        if let Some(failure) = failure {
            owner.failed(failure.error());
        }
    }

    pub(super) fn state(&self, partition: usize) -> u8 {
        self.slots[partition].state.load(Ordering::Acquire)
    }
}
