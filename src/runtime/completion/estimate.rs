//! Estimates of the time that a partition takes, learned from its own runs.

use std::time::Duration;

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Time that the next run of a partition should take, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Estimate {
    pub(crate) mean: u64,
    /// The mean deviation of the last runs.
    pub(crate) deviation: u64,
}

/// A measurement of the time that a partition took in one run, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sample {
    /// It was seen in flight just before it was seen to have ended.
    Exact(u64),
    /// It had ended when it was polled first.
    AtMost(u64),
}

/// An exponentially weighted mean of the durations of a partition.
///
/// Concurrent records may lose one another: the result is an estimate either way.
#[derive(Debug, Default)]
pub(crate) struct Estimator {
    /// 0 while nothing is known.
    mean: AtomicU64,
    deviation: AtomicU64,
    /// Number of exact samples, up to [`FIRST_RUNS`].
    runs: AtomicU32,
    /// Number of runs in a row that had ended when they were polled first.
    unseen: AtomicU32,
}

/// Nanoseconds above which work that is not known yet is polled at long intervals. Its first samples say
/// little, so a later one replaces them.
const LONG: u64 = 1_000_000;
const FIRST_RUNS: u32 = 3;

impl Estimator {
    pub(crate) fn record(&self, sample: Sample) {
        match sample {
            Sample::Exact(took) => self.record_exact(took.max(1)),
            Sample::AtMost(took) => self.record_at_most(took.max(1)),
        }
    }

    fn record_exact(&self, took: u64) {
        let unseen = self.unseen.swap(0, Ordering::Relaxed);
        let runs = self.runs.load(Ordering::Relaxed);
        if runs < FIRST_RUNS {
            self.runs.store(runs + 1, Ordering::Relaxed);
        }
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => took,
            _ if took > LONG && runs < FIRST_RUNS => took,
            // The mean was shortened until a run was seen in flight: this undoes it.
            mean if unseen > 0 && took > mean && took - mean < mean / 8 => took,
            // A quarter of the way: one outlier changes little, another load shows within a few runs.
            mean => {
                self.deviate(mean, mean.abs_diff(took));
                mean - mean / 4 + took / 4
            }
        };
        if runs == 0 {
            self.deviation.store(mean / 256, Ordering::Relaxed);
        }
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// Moves the deviation, up fast and down slowly: one that is too large costs a little time, one that is
    /// too small makes polls late.
    fn deviate(&self, mean: u64, by: u64) {
        let by = by.min(mean / 64);
        let deviation = self.deviation.load(Ordering::Relaxed);
        let deviation =
            if by > deviation { deviation + (by - deviation) / 4 } else { deviation - (deviation - by) / 8 };
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// Shortens the mean until a run is seen in flight: a little, because most runs complete just
    /// before the first poll, and more and more if that goes on.
    fn record_at_most(&self, took: u64) {
        let unseen = self.unseen.load(Ordering::Relaxed);
        self.unseen.store(unseen.saturating_add(1), Ordering::Relaxed);
        let shift = 9_u32.saturating_sub(unseen / 3).max(2);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => took,
            mean => (mean - (mean >> shift)).min(took),
        };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// Returns how long the partition should take, if that is known.
    pub(crate) fn expected(&self) -> Option<Duration> {
        self.estimate().map(|estimate| Duration::from_nanos(estimate.mean))
    }

    pub(crate) fn estimate(&self) -> Option<Estimate> {
        let mean = self.mean.load(Ordering::Relaxed);
        let deviation = self.deviation.load(Ordering::Relaxed);
        (mean > 0).then_some(Estimate { mean, deviation })
    }

    #[cfg(test)]
    pub(crate) fn record_duration(&self, took: Duration) {
        self.record(Sample::Exact(crate::runtime::completion::clock::nanoseconds(took)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(micros: u64) -> u64 {
        1_000 * micros
    }

    fn mean(estimator: &Estimator) -> u64 {
        estimator.estimate().unwrap().mean
    }

    fn exact(estimator: &Estimator, took: u64) {
        estimator.record(Sample::Exact(took));
    }

    fn at_most(estimator: &Estimator, took: u64) {
        estimator.record(Sample::AtMost(took));
    }

    #[test]
    fn follows_a_change_in_a_few_runs_but_not_an_outlier() {
        let estimator = Estimator::default();
        assert_eq!(estimator.estimate(), None);
        exact(&estimator, us(100));
        assert_eq!(mean(&estimator), us(100));
        exact(&estimator, us(200));
        assert_eq!(mean(&estimator), us(125));
        (0..20).for_each(|_| exact(&estimator, us(10)));
        assert!(mean(&estimator) < us(11));
        exact(&estimator, u64::MAX);
        assert!(estimator.expected().is_some());
    }

    #[test]
    fn upper_bounds_shorten_the_mean_until_a_run_is_seen_in_flight() {
        let estimator = Estimator::default();
        let (took, late) = (us(10_000), us(11_000));
        (0..4).for_each(|_| exact(&estimator, took));
        at_most(&estimator, late);
        let first = took - mean(&estimator);
        assert!(0 < first && first < took / 300, "{first}");
        for _ in 0..8 {
            (0..11).for_each(|_| at_most(&estimator, late));
            assert!(mean(&estimator) < took - took / 300);
            exact(&estimator, took);
            assert_eq!(mean(&estimator), took, "the shortening is undone");
        }
        (0..30).for_each(|_| at_most(&estimator, late));
        assert!(mean(&estimator) < took / 2, "work that has become shorter is found");
        at_most(&estimator, us(5));
        assert_eq!(mean(&estimator), us(5), "a bound below the mean counts at once");
    }

    #[test]
    fn long_work_is_known_after_few_runs_and_so_is_its_deviation() {
        let estimator = Estimator::default();
        // As a late poll saw it.
        exact(&estimator, us(9_200));
        exact(&estimator, us(10_000));
        assert_eq!(mean(&estimator), us(10_000));
        (0..30).for_each(|run| exact(&estimator, us(9_990 + run % 2 * 20)));
        let steady = estimator.estimate().unwrap();
        assert!((us(9_990)..=us(10_010)).contains(&steady.mean), "{steady:?}");
        assert!((us(5)..=us(25)).contains(&steady.deviation), "{steady:?}");
        exact(&estimator, us(100_000));
        assert!(estimator.estimate().unwrap().deviation < us(1_000), "one outlier is no more than that");
    }
}
