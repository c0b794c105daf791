//! How long an executable, or one of its partitions, takes, learned from its own runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Exponentially weighted mean of the runs' durations; executables repeat, so the last runs tell about the next.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    // Nanoseconds, 0 while nothing is known. Concurrent updates may lose one another: it is a guess either way.
    mean: AtomicU64,
    /// How many runs in a row were over when first looked at.
    overslept: AtomicU32,
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
        self.overslept.store(0, Ordering::Relaxed);
    }

    /// One was over when first looked at, after this time. The guess is shortened until one is seen in flight: by little, as
    /// most are over just then, and by more and more if that goes on.
    pub(crate) fn record_overslept(&self, at_most: Duration) {
        let at_most = u64::try_from(at_most.as_nanos()).unwrap_or(u64::MAX);
        let overslept = self.overslept.load(Ordering::Relaxed).saturating_add(1);
        self.overslept.store(overslept, Ordering::Relaxed);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => at_most,
            mean => (mean - (mean >> 14_u32.saturating_sub(overslept).clamp(2, 10))).min(at_most),
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

    #[test]
    fn what_is_over_when_first_looked_at_shortens_it_by_little_and_if_it_goes_on_by_more() {
        let prediction = Prediction::default();
        let (long, late) = (Duration::from_millis(10), Duration::from_millis(11));
        prediction.record(long);
        prediction.record_overslept(late);
        assert!(prediction.expected().unwrap() > long.mul_f64(0.998));
        (0..20).for_each(|_| prediction.record_overslept(late));
        assert!(prediction.expected().unwrap() < long / 4);
        // One that was seen in flight ends that, and what is known to be shorter is believed at once.
        prediction.record(late);
        let mean = prediction.expected().unwrap();
        prediction.record_overslept(late);
        assert!(prediction.expected().unwrap() > mean.mul_f64(0.998));
        prediction.record_overslept(Duration::from_micros(5));
        assert_eq!(prediction.expected(), Some(Duration::from_micros(5)));
    }
}
