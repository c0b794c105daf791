//! How long an executable takes, learned from its own runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Exponentially weighted mean of the runs' durations; executables repeat, so the last runs tell about the next.
///
/// Concurrent updates may lose one another: it is a guess either way.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    /// Nanoseconds, 0 while nothing is known.
    mean: AtomicU64,
    /// When the last run finished, on the runtime's clock.
    last_finished: AtomicU64,
}

impl Prediction {
    /// A run has finished. Runs of an executable follow one another, so one that was started while its predecessor ran
    /// has in fact begun when that one ended.
    pub(crate) fn record(&self, started: u64, finished: u64) {
        let began = started.max(self.last_finished.swap(finished, Ordering::Relaxed));
        let sample = finished.saturating_sub(began).max(1);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => sample,
            // A quarter of the way to the new value: a single outlier moves little, a change of load shows in a few runs.
            mean => mean - mean / 4 + sample / 4,
        };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.mean.load(Ordering::Relaxed) {
            0 => None,
            mean => Some(Duration::from_nanos(mean)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected(prediction: &Prediction) -> u64 {
        prediction.expected().map_or(0, |expected| expected.as_nanos() as u64)
    }

    #[test]
    fn follows_a_change_in_a_few_runs_but_not_an_outlier() {
        let prediction = Prediction::default();
        assert_eq!(expected(&prediction), 0);
        prediction.record(1000, 1100);
        assert_eq!(expected(&prediction), 100);
        prediction.record(2000, 2200);
        assert_eq!(expected(&prediction), 125);
        (1..21).for_each(|run| prediction.record(run * 10_000, run * 10_000 + 10));
        assert!(expected(&prediction) < 12);
        prediction.record(0, u64::MAX);
        assert!(expected(&prediction) > 12);
    }

    #[test]
    fn does_not_count_the_time_behind_earlier_runs() {
        let prediction = Prediction::default();
        // Four runs of 50 submitted at once.
        [150, 200, 250, 300].into_iter().for_each(|finished| prediction.record(100, finished));
        assert_eq!(expected(&prediction), 50);
    }
}
