//! Work in flight, as the reactor sees it.

use std::time::Duration;

/// What the time at which a partition was found complete says about when it completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// It had been seen in flight shortly before, or nothing had delayed the poll.
    InTime,
    /// It was complete at the first poll, which an estimate had delayed: it took less than estimated.
    Overslept,
    /// It was complete at the first poll, which was planned for after its estimated end: it took at most so
    /// long.
    Expected,
    /// It was complete at the first poll, and until then a submission was to poll it: it took at most so long.
    Late,
}

/// A run whose partitions are on devices that do not notify.
pub(crate) trait Pending: Send + Sync {
    /// Whether a partition is known to be complete; asks no device.
    fn is_over(&self, partition: usize) -> bool;

    /// Whether a task waits for the run, and for nothing but this partition of it.
    fn is_awaited(&self, partition: usize) -> bool;

    /// Polls the partition's event, and keeps the answer for [`answer`](Self::answer). Whether it is final.
    fn ask(&self, partition: usize) -> bool;

    /// Instead of [`ask`](Self::ask): there is no answer this time.
    fn ask_later(&self, partition: usize);

    /// What [`ask`](Self::ask) has found, once; polls the event where nothing has asked before.
    fn answer(&self, partition: usize) -> Option<bool>;

    /// The end is near: wakes the tasks that wait for the run, so that they poll it themselves until then.
    fn set_near(&self, until: u64);

    /// A poll has found the partition complete, after this time as the oldest of its queue.
    fn complete(&self, partition: usize, took: Option<Duration>, seen: Seen);
}
