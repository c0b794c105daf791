//! How long an executable, or one of its partitions, takes, learned from its own runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Exponentially weighted mean of the runs' durations; executables repeat, so the last runs tell about the next.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    // Nanoseconds, 0 while nothing is known. Concurrent updates may lose one another: it is a guess either way.
    mean: AtomicU64,
}

impl Prediction {
    pub(crate) fn record(&self, took: Duration) {
        let sample = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
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

    #[test]
    fn follows_a_change_in_a_few_runs_but_not_an_outlier() {
        let prediction = Prediction::default();
        assert_eq!(prediction.expected(), None);
        prediction.record(Duration::from_micros(100));
        assert_eq!(prediction.expected(), Some(Duration::from_micros(100)));
        prediction.record(Duration::from_micros(200));
        assert_eq!(prediction.expected(), Some(Duration::from_micros(125)));
        (0..20).for_each(|_| prediction.record(Duration::from_micros(10)));
        assert!(prediction.expected().unwrap() < Duration::from_micros(11));
        prediction.record(Duration::MAX);
        assert!(prediction.expected().is_some());
    }
}
