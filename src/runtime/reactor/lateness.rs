//! How late a thread is when it wakes up after a long sleep.

use std::time::Duration;

/// Learned from each sleep, rather too small: to be early costs a second sleep.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lateness(u64);

/// After shorter sleeps a core is awake at once.
const LONG: Duration = Duration::from_millis(1);

/// Nanoseconds. What takes longer than that had another reason.
const MOST: u64 = 500_000;

impl Lateness {
    pub(super) fn record(&mut self, slept: Duration, late: u64) {
        if slept >= LONG && late < MOST {
            self.0 = if late < self.0 { late } else { self.0 + (late - self.0) / 16 };
        }
    }

    /// For how long to sleep to be awake after this time.
    pub(super) fn shorten(self, sleep: Duration) -> Duration {
        if sleep < LONG { sleep } else { sleep - Duration::from_nanos(self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_learned_from_long_sleeps_and_not_from_those_that_were_disturbed() {
        let (long, mut lateness) = (2 * LONG, Lateness::default());
        assert_eq!(lateness.shorten(long), long);
        (0..200).for_each(|_| lateness.record(long, 80_000));
        let shortened = long - lateness.shorten(long);
        assert!(
            (Duration::from_micros(78)..=Duration::from_micros(80)).contains(&shortened),
            "{shortened:?}"
        );
        lateness.record(long, 30_000_000);
        lateness.record(LONG / 2, 0);
        assert_eq!(long - lateness.shorten(long), shortened);
        assert_eq!(lateness.shorten(LONG / 2), LONG / 2);
        lateness.record(long, 50_000);
        assert_eq!(lateness.shorten(long), long - Duration::from_micros(50), "never early for long");
    }
}
