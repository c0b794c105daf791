//! The clock of all host devices.

use std::sync::LazyLock;
use std::time::Instant;

/// Nanoseconds since the first call, on one time line for all host devices.
pub(super) fn now() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
