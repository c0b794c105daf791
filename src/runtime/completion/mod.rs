//! Noticing that work has ended, and waking the tasks that wait for it.
//!
//! A device that notifies ends its partitions itself. The events of every other device are polled by the
//! [`reactor`] and by submissions that spin, at the times that [`tuning`] derives from an [`estimate`] of how
//! long the work takes. The last partition of a run sets the run's [`latch`], which wakes the
//! [`tasks`] that wait for it. `docs/completion.md` says why.

pub(crate) mod estimate;
pub(crate) mod latch;
pub(crate) mod reactor;
pub(crate) mod spin_budget;
pub(crate) mod tasks;
pub(crate) mod tuning;

/// The runtime's clock.
pub(crate) mod clock {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

    /// Nanoseconds since the runtime first read a clock; never 0.
    pub(crate) fn now() -> u64 {
        nanoseconds(EPOCH.elapsed()).max(1)
    }

    /// Reads the same clock for another moment.
    pub(crate) fn at(moment: Instant) -> u64 {
        nanoseconds(moment.saturating_duration_since(*EPOCH))
    }

    pub(crate) fn nanoseconds(duration: Duration) -> u64 {
        u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
    }
}
