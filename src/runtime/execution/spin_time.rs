//! How long submissions spin.

use std::time::Duration;

/// How long to spin for something expected to take so long: twice that, so that the usual jitter
/// does not cost a task switch.
pub(crate) fn spin_time(expected: Duration, limit: Duration) -> Duration {
    (2 * expected).min(limit)
}

/// The same for one of so many runs in flight, each of which waits for the others: they poll in turn, and
/// none keeps a thread.
pub(crate) fn spin_time_among(load: u32, expected: Duration, limit: Duration) -> Duration {
    match load {
        0 | 1 => spin_time(expected, limit),
        load => (2 * expected * load).min(LONGEST_AMONG_OTHERS.max(limit)),
    }
}

const LONGEST_AMONG_OTHERS: Duration = Duration::from_micros(1000);
