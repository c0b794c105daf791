//! Figures for waiting: how a submission waits for a run, and how long its partitions take.

use std::sync::Arc;
use std::time::Duration;

use wakegraph_hal::Progress;

use crate::runtime::completion::clock;
use crate::runtime::execution::run::Run;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, Ordering};

const SPIN_NONE: u8 = 0;
const SPIN_FOUND: u8 = 1;
const SPIN_IN_VAIN: u8 = 2;

/// Whether a run's partitions are timed, for predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    Off,
    On,
}

/// How a wait for a run spins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SpinPlan {
    /// At first, for so long. Nothing but devices has a part in the run.
    Once(Duration),
    /// While the run is on devices, if what was enqueued last should take no longer than this.
    BetweenHostTasks(Duration),
}

/// How its submission waits for a run.
#[derive(Default)]
pub(crate) struct Waiting {
    /// Nanoseconds that the partition enqueued last is expected to take, 0 if that is not known. Four seconds
    /// stand for all that is longer.
    soonest: AtomicU32,
    /// How the first wait spins: an encoded [`SpinPlan`], 0 for none.
    spin_plan: AtomicU32,
    /// How a submission's spin went: one of the `SPIN` constants.
    spin: AtomicU8,
    /// Whether a submission polls for the end by itself, at first.
    has_poller: AtomicBool,
    /// Whether the run keeps the queue that it shares for too long.
    pub(super) too_long: AtomicBool,
    /// Whether partitions of devices that notify are timed, for estimates.
    pub(super) is_timed: bool,
    /// The party that drives the work on its polled devices.
    progress: Progress,
}

impl Waiting {
    pub(super) fn new(timing: Timing, progress: Progress) -> Self {
        Self { is_timed: timing == Timing::On, progress, ..Self::default() }
    }
}

impl SpinPlan {
    /// Set in the code of [`BetweenHostTasks`](Self::BetweenHostTasks). The other bits are nanoseconds.
    const BETWEEN: u32 = 1 << 31;

    fn encode(self) -> u32 {
        let (time, kind) = match self {
            Self::Once(time) => (time, 0),
            Self::BetweenHostTasks(limit) => (limit, Self::BETWEEN),
        };
        // No spin takes two seconds.
        clock::nanoseconds(time).min(u64::from(Self::BETWEEN - 1)) as u32 | kind
    }

    /// `None` if there is no time to spin for.
    fn decode(code: u32) -> Option<Self> {
        match code & !Self::BETWEEN {
            0 => None,
            nanoseconds => {
                let time = Duration::from_nanos(nanoseconds.into());
                Some(if code & Self::BETWEEN == 0 { Self::Once(time) } else { Self::BetweenHostTasks(time) })
            }
        }
    }
}

impl Waiting {
    /// A submission spins for this run, so that the reactor's host need not poll for it soon.
    pub(crate) fn set_polled_by_submission(&self) {
        self.has_poller.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_polled_by_submission(&self) -> bool {
        self.has_poller.load(Ordering::Relaxed)
    }

    /// Whether a spin on this run saw it end, if there was one.
    pub(crate) fn spin(&self) -> Option<bool> {
        match self.spin.load(Ordering::Relaxed) {
            SPIN_NONE => None,
            outcome => Some(outcome == SPIN_FOUND),
        }
    }

    /// One spin in vain outweighs all that paid.
    pub(crate) fn record_spin(&self, found: bool) {
        self.spin.fetch_max(if found { SPIN_FOUND } else { SPIN_IN_VAIN }, Ordering::Relaxed);
    }

    /// Plans how the first wait for this run spins.
    pub(crate) fn plan_spin(&self, plan: SpinPlan) {
        self.spin_plan.store(plan.encode(), Ordering::Relaxed);
    }

    /// How a wait for this run should spin. Only the first wait does.
    pub(crate) fn take_spin(&self) -> Option<SpinPlan> {
        let plan = &self.spin_plan;
        SpinPlan::decode(plan.load(Ordering::Relaxed))?;
        SpinPlan::decode(plan.swap(0, Ordering::Relaxed))
    }

    /// The party that drives the work, which decides how a thread spins for the end.
    pub(crate) fn progress(&self) -> Progress {
        self.progress
    }

    /// Time that the partition enqueued last is expected to take.
    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.soonest.load(Ordering::Relaxed) {
            0 => None,
            expected => Some(Duration::from_nanos(expected.into())),
        }
    }

    /// The submission polls no more. Whether others have relied on that.
    pub(super) fn stop_polling(&self) -> bool {
        // Partitions that are enqueued from now on are not left to the submission either.
        self.has_poller.swap(false, Ordering::Relaxed)
    }

    /// A partition is about to be enqueued, and expected to take so long.
    pub(super) fn will_enqueue(&self, expected: Option<Duration>) {
        let expected = expected.map_or(0, clock::nanoseconds).min(u32::MAX.into()) as u32;
        self.soonest.store(expected, Ordering::Relaxed);
    }
}

/// A task that the host has been handed for a run.
pub(crate) struct HostWork(Arc<Run>);

impl HostWork {
    /// The host has been handed a task of this run, until this is dropped.
    pub(super) fn begin(run: &Arc<Run>) -> Self {
        run.progress.host_tasks.fetch_add(1, Ordering::AcqRel);
        Self(run.clone())
    }
}

impl Drop for HostWork {
    fn drop(&mut self) {
        let Self(run) = self;
        // Who waits for the run may spin again, for what the task has just enqueued.
        if run.progress.host_tasks.fetch_sub(1, Ordering::AcqRel) == 1
            && run.waiting.expected().is_some()
            && !run.has_ended()
        {
            run.ended.wake_all();
        }
    }
}

/// Time to spin for something that is expected to take so long: twice that, so that the usual jitter
/// does not cost a task switch.
pub(crate) fn spin_time(expected: Duration, limit: Duration) -> Duration {
    (2 * expected).min(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spin_plan_is_decoded_as_it_was_encoded() {
        for time in [1, 40_000, 2_000_000_000].map(Duration::from_nanos) {
            for plan in [SpinPlan::Once(time), SpinPlan::BetweenHostTasks(time)] {
                assert_eq!(SpinPlan::decode(plan.encode()), Some(plan));
            }
        }
        for nothing in [SpinPlan::Once(Duration::ZERO), SpinPlan::BetweenHostTasks(Duration::ZERO)] {
            assert_eq!(SpinPlan::decode(nothing.encode()), None);
        }
        let longest = SpinPlan::decode(SpinPlan::Once(Duration::MAX).encode());
        assert!(matches!(longest, Some(SpinPlan::Once(time)) if time.as_secs() == 2), "{longest:?}");
    }
}
