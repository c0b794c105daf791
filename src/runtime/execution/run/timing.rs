//! How a submission waits for a run, and how long its partitions take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::run::{Run, Waiting};
use crate::runtime::execution::template::RunTemplate;
use crate::sync::{AtomicU64, Ordering};

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

    /// How many runs are in flight on the device, this one included.
    pub(crate) fn load(&self) -> u32 {
        self.in_flight().map_or(1, |in_flight| in_flight.load(Ordering::Relaxed)).max(1)
    }

    /// Whether no other run is in flight on the device, so that a spin keeps no other submission
    /// from polling.
    pub(crate) fn is_alone_in_flight(&self) -> bool {
        self.load() == 1
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
        let Waiting { spin_time, between_host_tasks, .. } = &self.waiting;
        match plan {
            SpinPlan::Once(time) => spin_time.store(clock::nanoseconds(time), Ordering::Relaxed),
            SpinPlan::BetweenHostTasks(limit) => {
                between_host_tasks.store(clock::nanoseconds(limit), Ordering::Relaxed);
            }
        }
    }

    /// How a wait for this run should spin. Only the first wait does.
    pub(crate) fn take_spin(&self) -> Option<SpinPlan> {
        let take = |nanoseconds: &AtomicU64| match nanoseconds.load(Ordering::Relaxed) {
            0 => None,
            _ => Some(nanoseconds.swap(0, Ordering::Relaxed)).filter(|&taken| taken > 0),
        };
        let Waiting { spin_time, between_host_tasks, .. } = &self.waiting;
        let once = take(spin_time).map(|time| SpinPlan::Once(Duration::from_nanos(time)));
        let between = || take(between_host_tasks).map(Duration::from_nanos);
        once.or_else(|| between().map(SpinPlan::BetweenHostTasks))
    }

    /// What drives the devices' work, which decides how a thread may wait for it.
    pub(crate) fn driven_by(&self) -> hal::Progress {
        self.waiting.driven_by
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
            expected => Some(Duration::from_nanos(expected)),
        }
    }

    /// A partition is about to be enqueued, and expected to take so long.
    pub(super) fn will_enqueue(&self, partition: usize, expected: Option<Duration>, notifies: bool) {
        self.slots[partition].metrics.started();
        if self.waiting.is_timed {
            self.waiting.soonest.store(expected.map_or(0, clock::nanoseconds), Ordering::Relaxed);
            if notifies {
                self.slots[partition].enqueued.store(clock::now(), Ordering::Relaxed);
            }
        }
    }

    /// Measures how long a partition took that has just ended, on a device that notifies.
    pub(super) fn measure(&self, partition: usize) {
        let slot = &self.slots[partition];
        let enqueued = slot.enqueued.load(Ordering::Relaxed);
        if enqueued > 0 {
            slot.took.store(clock::now().saturating_sub(enqueued).max(1), Ordering::Relaxed);
        }
    }

    /// Lets the next runs know how long this one's partitions took.
    pub(super) fn learn(&self, template: &RunTemplate) {
        for (slot, partition) in self.slots.iter().zip(&template.partitions) {
            let took = slot.took.load(Ordering::Relaxed);
            if took > 0 {
                partition.estimator.record(Sample::Exact(took));
            }
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
