//! How a submission waits for a run, and how long its partitions take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::completion::clock;
use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tuning::SpinKind;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::template::RunTemplate;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

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
pub(super) struct Waiting {
    /// Until when the end is near enough to be polled for without a pause, 0 if it is not.
    near_until: AtomicU64,
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
    spin_kind: SpinKind,
}

impl Waiting {
    pub(super) fn new(timing: Timing, spin_kind: SpinKind) -> Self {
        Self { is_timed: timing == Timing::On, spin_kind, ..Self::default() }
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

impl Run {
    /// A submission spins for this run, so that the reactor's host need not poll for it soon.
    pub(crate) fn set_polled_by_submission(&self) {
        self.waiting.has_poller.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_polled_by_submission(&self) -> bool {
        self.waiting.has_poller.load(Ordering::Relaxed)
    }

    /// Takes a turn as the driver of each device that has to be polled.
    pub(crate) fn drive(&self, now: Instant) {
        let now = clock::at(now);
        self.reactors.iter().for_each(|reactor| reactor.turn(now));
    }

    /// The submission is gone or has spun in vain: has the reactors' hosts poll for the end at once.
    #[inline]
    pub(crate) fn stop_polling(&self) {
        if self.is_polled() && !self.is_done() {
            self.poll_instead();
        }
    }

    fn poll_instead(&self) {
        // Partitions that are enqueued from now on are not left to the submission either.
        let had_poller = self.waiting.has_poller.swap(false, Ordering::Relaxed);
        let was_near = self.waiting.near_until.swap(0, Ordering::Relaxed) > 0;
        if had_poller || was_near {
            self.reactors.iter().for_each(Reactor::poll_instead);
        }
    }

    /// The end is near: has the submissions poll for it themselves until then, on threads that are
    /// awake by it.
    pub(super) fn set_near(&self, until: u64) {
        self.waiting.near_until.store(until, Ordering::Release);
        self.done.wake_all();
    }

    /// How long from now on the end may be polled for without a pause.
    pub(crate) fn near_for(&self) -> Option<Duration> {
        match self.waiting.near_until.load(Ordering::Acquire) {
            0 => None,
            until => until.checked_sub(clock::now()).filter(|&left| left > 0).map(Duration::from_nanos),
        }
    }

    /// Whether no other run is in flight on the device, so that a spin keeps no other submission
    /// from polling.
    pub(crate) fn is_alone_in_flight(&self) -> bool {
        self.in_flight().is_none_or(|in_flight| in_flight.load(Ordering::Relaxed) <= 1)
    }

    /// Whether a spin on this run saw it end, if there was one.
    pub(crate) fn spin(&self) -> Option<bool> {
        match self.waiting.spin.load(Ordering::Relaxed) {
            SPIN_NONE => None,
            outcome => Some(outcome == SPIN_FOUND),
        }
    }

    /// One spin in vain outweighs all that paid.
    pub(crate) fn record_spin(&self, found: bool) {
        self.waiting.spin.fetch_max(if found { SPIN_FOUND } else { SPIN_IN_VAIN }, Ordering::Relaxed);
    }

    /// Plans how the first wait for this run spins.
    pub(crate) fn plan_spin(&self, plan: SpinPlan) {
        self.waiting.spin_plan.store(plan.encode(), Ordering::Relaxed);
    }

    /// How a wait for this run should spin. Only the first wait does.
    pub(crate) fn take_spin(&self) -> Option<SpinPlan> {
        let plan = &self.waiting.spin_plan;
        SpinPlan::decode(plan.load(Ordering::Relaxed))?;
        SpinPlan::decode(plan.swap(0, Ordering::Relaxed))
    }

    /// How a thread may spin for the end.
    pub(crate) fn spin_kind(&self) -> SpinKind {
        self.waiting.spin_kind
    }

    /// The host has been handed a task of this run, until the guard is dropped.
    pub(crate) fn host_task(self: &Arc<Self>) -> HostWork {
        self.progress.host_tasks.fetch_add(1, Ordering::AcqRel);
        HostWork(self.clone())
    }

    /// Whether the host has something to do for this run, so that a spin would keep it waiting.
    pub(crate) fn is_on_host(&self) -> bool {
        self.progress.host_tasks.load(Ordering::Acquire) > 0
    }

    /// How long the partition enqueued last is expected to take.
    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.waiting.soonest.load(Ordering::Relaxed) {
            0 => None,
            expected => Some(Duration::from_nanos(expected.into())),
        }
    }

    /// A partition is about to be enqueued, and expected to take so long.
    pub(super) fn will_enqueue(&self, partition: usize, expected: Option<Duration>, notifies: bool) {
        self.metrics.partition_started(partition);
        if self.waiting.is_timed {
            let expected = expected.map_or(0, clock::nanoseconds).min(u32::MAX.into()) as u32;
            self.waiting.soonest.store(expected, Ordering::Relaxed);
            if notifies {
                self.slots[partition].measure_from(clock::now());
            }
        }
    }

    /// Lets the next runs know how long this one's partitions took.
    pub(super) fn learn(&self, template: &RunTemplate) {
        for (slot, partition) in self.slots.iter().zip(&template.partitions) {
            slot.took().into_iter().for_each(|took| partition.estimator.record(Sample::Exact(took)));
        }
    }
}

/// A task that the host has been handed for a run, see [`Run::host_task`].
pub(crate) struct HostWork(Arc<Run>);

impl Drop for HostWork {
    fn drop(&mut self) {
        let Self(run) = self;
        // Who waits for the run may spin again, for what the task has just enqueued.
        if run.progress.host_tasks.fetch_sub(1, Ordering::AcqRel) == 1
            && run.expected().is_some()
            && !run.is_done()
        {
            run.done.wake_all();
        }
    }
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
