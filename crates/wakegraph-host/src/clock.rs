//! The clock of all host devices.

use std::sync::LazyLock;
use std::time::Instant;

/// Nanoseconds since the first call, on one time line for all host devices.
pub(super) fn now() -> u64 {
    at(Instant::now())
}

/// The same clock at another moment.
pub(super) fn at(moment: Instant) -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(moment.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(u64::MAX)
}
