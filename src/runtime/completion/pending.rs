//! Work in flight, as the reactor sees it.

use wakegraph_hal::Result;

use crate::runtime::completion::estimate::Sample;

/// A run with partitions on devices that do not notify.
pub(crate) trait Pending: Send + Sync {
    /// Whether a partition is known to have ended; asks no device.
    fn has_ended(&self, partition: usize) -> bool;

    /// The outcome of a partition, once its device has one. Asks the device.
    fn poll(&self, partition: usize) -> Option<Result<()>>;

    /// Whether a submission polls for the end of the run.
    fn has_poller(&self) -> bool;

    /// A poll has found that the partition has ended. The caller holds no lock.
    fn end(&self, partition: usize, result: Result<()>, sample: Option<Sample>);
}
