//! Work in flight, as the reactor sees it.

use crate::runtime::completion::estimate::Sample;
use crate::types::Result;

/// A run with partitions on devices that do not notify.
pub(crate) trait Pending: Send + Sync {
    /// Whether a partition is known to be complete; asks no device.
    fn is_over(&self, partition: usize) -> bool;

    /// The outcome of a partition, once its device has one. Asks the device.
    fn poll(&self, partition: usize) -> Option<Result<()>>;

    /// Whether a submission polls for the end of the run.
    fn has_poller(&self) -> bool;

    /// Whether a task waits for the run, and for nothing but this partition of it.
    fn is_awaited(&self, partition: usize) -> bool;

    /// The end is near: wakes the tasks that wait for the run, so that they poll for it until then.
    fn set_near(&self, until: u64);

    /// A poll has found the partition complete. The caller holds no lock.
    fn complete(&self, partition: usize, result: Result<()>, sample: Option<Sample>);
}
