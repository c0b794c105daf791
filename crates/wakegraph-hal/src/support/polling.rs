//! Blocks on an event that can only be polled, or whose driver knows no time limit.

use std::thread;
use std::time::{Duration, Instant};

use crate::EventStatus;

/// Polls before the first sleep.
const POLLS_BEFORE_SLEEP: u32 = 256;

/// The first sleep. Each later one is twice as long as the one before.
const SHORTEST_SLEEP: Duration = Duration::from_micros(10);

const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Calls `poll` until it gives a status that is not pending, and returns that, or until `timeout`
/// has passed, and returns [`Pending`](EventStatus::Pending).
pub fn wait(timeout: Option<Duration>, mut poll: impl FnMut() -> EventStatus) -> EventStatus {
    // A deadline too far away to be represented is no limit.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (mut polls, mut sleep) = (0, SHORTEST_SLEEP);
    loop {
        let status = poll();
        if !matches!(status, EventStatus::Pending) {
            return status;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return EventStatus::Pending;
        }
        if polls < POLLS_BEFORE_SLEEP {
            polls += 1;
            thread::yield_now();
        } else {
            thread::sleep(left.map_or(sleep, |left| sleep.min(left)));
            sleep = (2 * sleep).min(LONGEST_SLEEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_until_the_status_is_final() {
        for needed in [1, 10, POLLS_BEFORE_SLEEP + 3] {
            let mut polls = 0;
            let status = wait(None, || {
                polls += 1;
                if polls < needed { EventStatus::Pending } else { EventStatus::Complete }
            });
            assert!(matches!(status, EventStatus::Complete));
            assert_eq!(polls, needed);
        }
    }

    #[test]
    fn gives_up_after_the_timeout_and_not_before() {
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            let start = Instant::now();
            let mut polls = 0;
            let status = wait(Some(timeout), || {
                polls += 1;
                EventStatus::Pending
            });
            assert!(matches!(status, EventStatus::Pending));
            assert!(start.elapsed() >= timeout && polls > 0);
        }
        assert!(matches!(wait(Some(Duration::MAX), || EventStatus::Complete), EventStatus::Complete));
    }
}
