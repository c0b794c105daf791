//! The runtime's clock.

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
