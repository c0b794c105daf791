//! What runs need to know of their executable.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::hal::Progress;
use crate::runtime::completion::estimate::Guess;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::partitions::{PartitionExec, Partitions};
use crate::sync::{AtomicU32, AtomicU64};

/// The part of an executable that is the same for all of its runs.
pub(crate) struct RunTemplate {
    pub(crate) labels: Arc<Labels>,
    pub(crate) partitions: Partitions,
    pub(crate) profiling: bool,
    /// Partitions without a predecessor, and without a successor.
    pub(crate) roots: Box<[u32]>,
    pub(crate) tails: Box<[u32]>,
    /// Whether no partition needs the host: then a run is enqueued at once and devices can wait for
    /// its tails.
    pub(crate) all_eager: bool,
    /// Whether a device does not notify, so that its events have to be polled.
    pub(crate) polled: bool,
    /// What a thread that waits for the devices does to their work.
    pub(crate) progress: Progress,
    /// The number of the last run that is over, other than by the loss of a device.
    pub(crate) ended: AtomicU64,
}

/// An executable, which its runs keep alive while they are in flight.
pub(crate) trait RunOwner: Send + Sync {
    /// What the runs need to know of it.
    fn template(&self) -> &RunTemplate;
}

impl Deref for dyn RunOwner {
    type Target = RunTemplate;

    fn deref(&self) -> &RunTemplate {
        self.template()
    }
}

impl RunTemplate {
    /// How long a run takes whose partitions are all enqueued at once; `None` while that is not known.
    pub(crate) fn expected(&self) -> Option<Duration> {
        let mut longest = None;
        for partition in &self.partitions {
            longest = longest.max(Some(partition.prediction.expected()?));
        }
        longest
    }

    /// How long a partition takes from when its queue has come to it: as seen so far, or, where it
    /// is the only one and submissions have seen its ends themselves, as long as a run.
    pub(crate) fn expected_of(&self, partition: usize) -> Option<Guess> {
        let seen = self.partitions[partition].queue_time.guess();
        seen.or_else(|| if let [only] = &*self.partitions { only.prediction.guess() } else { None })
    }

    /// Where the runs in flight are counted on the first device that has to be polled.
    pub(crate) fn in_flight(&self) -> Option<Arc<AtomicU32>> {
        let mut devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.find(|device| !device.capabilities().notifies).map(|device| device.in_flight().clone())
    }

    /// How long a poll of a submission may spin. The most careful device decides.
    pub(crate) fn spin_limit(&self) -> Duration {
        let devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.map(|device| device.wake_policy().spin_limit_for(self.progress)).min().unwrap_or_default()
    }
}
