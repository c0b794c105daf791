//! A run as the reactor sees it.

use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::pending::Pending;
use crate::runtime::execution::run::Run;
use crate::types::Result;

impl Pending for Run {
    fn is_over(&self, partition: usize) -> bool {
        self.is_over(partition)
    }

    fn poll(&self, partition: usize) -> Option<Result<()>> {
        // A lost device fails a tail at once, while another device may still run what comes before the tail.
        // Only the polls of the tail will see that end.
        self.outcome(partition).filter(|outcome| outcome.is_ok() || !self.has_pending_before_tails())
    }

    fn has_poller(&self) -> bool {
        self.is_polled_by_submission() || self.near_for().is_some()
    }

    fn is_awaited(&self, partition: usize) -> bool {
        self.done.is_awaited()
            && (self.is_last(partition) || self.owner().is_some_and(|owner| owner.polls_tails))
    }

    fn set_near(&self, until: u64) {
        self.set_near(until);
    }

    fn complete(&self, partition: usize, result: Result<()>, sample: Option<Sample>) {
        // Gone if another thread has seen the run complete.
        let Some(owner) = self.owner() else { return };
        if let Some(sample) = sample {
            owner.partitions[partition].estimator.record(sample);
        }
        self.end_and_go_on(partition, result);
        if owner.polls_tails {
            self.end_before_tails(&owner);
        }
    }
}
