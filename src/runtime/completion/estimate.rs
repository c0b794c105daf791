//! How long an executable, or one of its partitions, takes, learned from its own runs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::runtime::completion::clock::nanoseconds;

/// How long the next run should take.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Guess {
    pub(crate) mean: Duration,
    /// How far from that the last runs were.
    pub(crate) deviation: Duration,
}

/// Exponentially weighted mean of the runs' durations; executables repeat, so the last runs tell
/// about the next.
#[derive(Debug, Default)]
pub(crate) struct Prediction {
    // Nanoseconds, 0 while nothing is known. Concurrent updates may lose one another: it is a guess
    // either way.
    mean: AtomicU64,
    deviation: AtomicU64,
    /// How many runs there were, as far as that matters.
    runs: AtomicU32,
    /// How many runs in a row were over when first looked at.
    overslept: AtomicU32,
    /// How many runs in a row were found over at a first look that was planned for after their predicted end.
    unseen: AtomicU32,
    /// How often it was found after that to have been shortened too much, as far as that matters:
    /// it is known the better.
    put_back: AtomicU32,
}

/// The first looks at what takes so long are too far apart to tell much: what a later run shows is
/// believed instead.
const LONG: u64 = 1_000_000;
const FIRST_RUNS: u32 = 3;
const MOST_PUT_BACK: u32 = 3;
/// What is not seen in flight for so many runs, shortened more and more, is not what was known.
const OTHER_WORK: u32 = 20;

impl Prediction {
    pub(crate) fn record(&self, took: Duration) {
        let sample = nanoseconds(took).max(1);
        let unseen = self.unseen.swap(0, Ordering::Relaxed);
        let runs = self.runs.load(Ordering::Relaxed);
        if runs < FIRST_RUNS {
            self.runs.store(runs + 1, Ordering::Relaxed);
        }
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => sample,
            _ if sample > LONG && runs < FIRST_RUNS => sample,
            // It was shortened until one was seen: what was taken off is put back.
            mean if unseen > 0 && sample > mean && sample - mean < mean / 8 => {
                let put_back = self.put_back.load(Ordering::Relaxed);
                self.put_back.store((put_back + 1).min(MOST_PUT_BACK), Ordering::Relaxed);
                sample
            }
            // A quarter of the way to the new value: a single outlier moves little, a change of
            // load shows in a few runs.
            mean => {
                self.deviate(mean, mean.abs_diff(sample));
                mean - mean / 4 + sample / 4
            }
        };
        if runs == 0 {
            self.deviation.store(mean / 256, Ordering::Relaxed);
        }
        self.mean.store(mean.max(1), Ordering::Relaxed);
        self.overslept.store(0, Ordering::Relaxed);
    }

    /// Rises fast and falls slowly: to expect too much of it costs a little time, too little comes late.
    fn deviate(&self, mean: u64, by: u64) {
        let by = by.min(mean / 64);
        let deviation = self.deviation.load(Ordering::Relaxed);
        let deviation =
            if by > deviation { deviation + (by - deviation) / 4 } else { deviation - (deviation - by) / 8 };
        self.deviation.store(deviation, Ordering::Relaxed);
    }

    /// Somebody came to look shortly before the end was expected, and it was over: when it ended,
    /// nobody knows.
    pub(crate) fn record_missed(&self, at_most: Duration) {
        let at_most = nanoseconds(at_most).max(1);
        let mean = self.mean.load(Ordering::Relaxed).min(at_most);
        self.mean.store(mean, Ordering::Relaxed);
        self.deviate(mean, mean / 64);
    }

    /// One was over when first looked at, after this time. The guess is shortened until one is seen
    /// in flight: by little, as most are over just then, and by more and more if that goes on.
    pub(crate) fn record_overslept(&self, at_most: Duration) {
        let at_most = nanoseconds(at_most);
        let overslept = self.overslept.load(Ordering::Relaxed).saturating_add(1);
        self.overslept.store(overslept, Ordering::Relaxed);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => at_most,
            mean => (mean - (mean >> 14_u32.saturating_sub(overslept).clamp(2, 10))).min(at_most),
        };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    /// One was over when looked at first, after this time, a little after its predicted end, as
    /// planned. The guess is shortened a little, so that some day one is seen in flight, and more
    /// and more if that goes on.
    pub(crate) fn record_expected(&self, at_most: Duration) {
        let at_most = nanoseconds(at_most);
        let unseen = self.unseen.load(Ordering::Relaxed);
        self.unseen.store(unseen.saturating_add(1), Ordering::Relaxed);
        if unseen == OTHER_WORK {
            self.put_back.store(0, Ordering::Relaxed);
        }
        let put_back = self.put_back.load(Ordering::Relaxed);
        let mean = match self.mean.load(Ordering::Relaxed) {
            0 => at_most,
            mean => (mean - (mean >> (9 + put_back).saturating_sub(unseen / 3).max(2))).min(at_most),
        };
        self.mean.store(mean.max(1), Ordering::Relaxed);
    }

    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.mean.load(Ordering::Relaxed) {
            0 => None,
            mean => Some(Duration::from_nanos(mean)),
        }
    }

    pub(crate) fn guess(&self) -> Option<Guess> {
        let deviation = Duration::from_nanos(self.deviation.load(Ordering::Relaxed));
        self.expected().map(|mean| Guess { mean, deviation })
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

    #[test]
    fn what_is_looked_at_after_its_end_shortens_it_until_one_is_seen_in_flight() {
        let prediction = Prediction::default();
        let (took, late) = (Duration::from_millis(10), Duration::from_millis(11));
        (0..4).for_each(|_| prediction.record(took));
        prediction.record_expected(late);
        let first = took - prediction.expected().unwrap();
        assert!(first < took.mul_f64(0.003), "{first:?}");
        for _ in 0..8 {
            (0..11).for_each(|_| prediction.record_expected(late));
            let shortened = prediction.expected().unwrap();
            assert!(shortened < took.mul_f64(0.997), "{shortened:?}");
            prediction.record(took);
            assert_eq!(prediction.expected(), Some(took), "what was taken off is put back");
        }
        prediction.record_expected(late);
        assert!(
            took - prediction.expected().unwrap() < first / 4,
            "the better it is known, the less is taken off"
        );
        prediction.record(took);
        prediction.record_expected(late);
        prediction.record(2 * took);
        assert!(prediction.expected().unwrap() < took.mul_f64(1.3), "and an outlier is no more than that");
        (0..26).for_each(|_| prediction.record_expected(late));
        assert!(prediction.expected().unwrap() < took / 2);
        prediction.record_expected(Duration::from_micros(5));
        assert_eq!(prediction.expected(), Some(Duration::from_micros(5)));
    }

    #[test]
    fn long_work_is_known_after_few_runs_and_so_is_how_much_that_differs() {
        let prediction = Prediction::default();
        let us = Duration::from_micros;
        // As a look saw it that came late.
        prediction.record(us(9_200));
        prediction.record(us(10_000));
        assert_eq!(prediction.expected(), Some(us(10_000)));
        (0..30).for_each(|run| prediction.record(us(9_990 + run % 2 * 20)));
        let steady = prediction.guess().unwrap();
        assert!((9_990..=10_010).contains(&steady.mean.as_micros()), "{steady:?}");
        assert!((5..=25).contains(&steady.deviation.as_micros()), "{steady:?}");
        // To come late makes the next come earlier, and the work no longer.
        prediction.record_missed(us(10_200));
        let missed = prediction.guess().unwrap();
        assert_eq!(missed.mean, steady.mean);
        assert!(missed.deviation > 2 * steady.deviation, "{missed:?}");
        // One outlier is no more than that.
        prediction.record(us(100_000));
        assert!(prediction.guess().unwrap().deviation < us(1_000));
    }
}
