//! Completion by the clock, and what calls cost: a device as slow as a real one, for benchmarks.

use std::time::{Duration, Instant};

/// How long a null device takes, see [`NullOptions::timing`](super::NullOptions::timing). The
/// default takes no time at all.
///
/// What is enqueued starts when its in-order queue, its command-buffer and its wait list let it,
/// and is over `work` later: whoever asks from then on finds it complete. Nobody is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NullTiming {
    /// From the start of an enqueue to its end.
    pub work: Duration,
    /// What a call that enqueues costs the calling thread.
    pub enqueue: Duration,
    /// What a look at an event costs that is not final.
    pub pending_status: Duration,
    /// What the look costs that finds an event final first.
    pub final_status: Duration,
}

/// Keeps the thread busy until the call that began at `start` has taken this time.
pub(super) fn spend(start: Instant, time: Duration) {
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
