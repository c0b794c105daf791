//! How long submissions spin.

use std::time::Duration;

/// How long to spin for something expected to take so long: twice that, so that the usual jitter
/// does not cost a task switch.
pub(crate) fn spin_time(expected: Duration, limit: Duration) -> Duration {
    (2 * expected).min(limit)
}
