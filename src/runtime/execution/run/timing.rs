//! How a run is waited for: who looks when, and what that teaches about the next runs.

use std::sync::Arc;
use std::time::Duration;

use crate::hal::EventStatus;
use crate::runtime::completion::clock;
use crate::runtime::completion::estimate::Prediction;
use crate::runtime::completion::pending::{Pending, Seen};
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::template::RunTemplate;
use crate::sync::Ordering;

pub(super) const SPIN_NONE: u8 = 0;
const SPIN_FOUND: u8 = 1;
const SPIN_IN_VAIN: u8 = 2;

/// The time until its end was seen.
pub(super) const TOOK_THIS: u8 = 0;
/// Less than predicted: it was over when first looked at.
const TOOK_LESS: u8 = 1;
/// At most that: it was looked at after its predicted end.
const TOOK_AT_MOST_THIS: u8 = 2;

/// Whether a run's partitions are timed, for predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    Off,
    On,
}

impl Run {
    /// A submission spins for this run, so that nobody else has to look soon.
    pub(crate) fn set_looked_after(&self) {
        self.looked_after.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_looked_after(&self) -> bool {
        self.looked_after.load(Ordering::Relaxed)
    }

    /// The submission is gone, which may have been about to look for the end: has the reactor do so at once.
    pub(crate) fn lose_submission(self: &Arc<Self>) {
        if !self.polled || self.is_done() {
            return;
        }
        // Partitions that are enqueued from now on are not left to the submission either.
        let looked_after = self.looked_after.swap(false, Ordering::Relaxed);
        if !looked_after && self.near_for().is_none() {
            return;
        }
        let Some(owner) = self.inner.lock().owner.clone() else { return };
        let pending: Arc<dyn Pending> = self.clone();
        for (index, partition) in owner.partitions.iter().enumerate() {
            if let PartitionWork::Device { device, lane, .. } = &partition.work
                && let Some(reactor) = device.reactor()
                && !self.is_over(index)
            {
                reactor.look_instead(*lane, &pending, index);
            }
        }
    }

    /// The end is near: has the submissions look for it themselves until then, on threads that are
    /// awake by it.
    pub(crate) fn set_near(&self, until: u64) {
        self.near_until.store(until, Ordering::Release);
        self.done.nudge();
    }

    /// Somebody has looked since then, and it was not over.
    pub(super) fn set_seen_near(&self) {
        if self.near_until.load(Ordering::Relaxed) > 0 {
            self.near_seen.store(true, Ordering::Relaxed);
        }
    }

    /// How long from now on the end may be looked for without a pause.
    pub(crate) fn near_for(&self) -> Option<Duration> {
        match self.near_until.load(Ordering::Acquire) {
            0 => None,
            until => until.checked_sub(clock::now()).filter(|&left| left > 0).map(Duration::from_nanos),
        }
    }

    /// Among others it takes about so long: there is no use in a look much earlier.
    pub(crate) fn put_off_first_look(&self, expected: Duration) {
        self.first_look.store(clock::now() + clock::nanoseconds(expected) / 2, Ordering::Relaxed);
    }

    /// Whether a look would come too early.
    pub(crate) fn is_too_early(&self) -> bool {
        let first_look = self.first_look.load(Ordering::Relaxed);
        first_look > 0 && clock::now() < first_look
    }

    /// How many runs are in flight on the device, this one included.
    pub(crate) fn crowd(&self) -> u32 {
        self.in_flight.as_ref().map_or(1, |in_flight| in_flight.load(Ordering::Relaxed)).max(1)
    }

    /// Whether no other run is in flight on the device: a spin keeps nobody waiting who would look as well.
    pub(crate) fn is_alone_in_flight(&self) -> bool {
        self.crowd() == 1
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

    /// The host has been handed a task of this run, until the guard is dropped.
    pub(crate) fn host_task(self: &Arc<Self>) -> HostWork {
        self.host_tasks.fetch_add(1, Ordering::AcqRel);
        HostWork(self.clone())
    }

    /// Whether the host has something to do for this run, so that nobody should spin.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host_tasks.load(Ordering::Acquire) > 0
    }

    /// How long the partition enqueued last is expected to take.
    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.soonest.load(Ordering::Relaxed) {
            0 => None,
            expected => Some(Duration::from_nanos(expected)),
        }
    }

    /// A partition is about to be enqueued, and expected to take so long. `now` reads the clock.
    pub(crate) fn will_enqueue(
        &self,
        partition: usize,
        expected: Option<Duration>,
        now: impl FnOnce() -> u64,
    ) {
        if self.timed {
            self.soonest.store(expected.map_or(0, clock::nanoseconds), Ordering::Relaxed);
            self.slots[partition].enqueued.store(now(), Ordering::Relaxed);
        }
    }

    /// How long a partition took that has just ended, for the predictions.
    pub(super) fn measure(&self, partition: usize) {
        let slot = &self.slots[partition];
        let enqueued = slot.enqueued.load(Ordering::Relaxed);
        if self.near_until.load(Ordering::Relaxed) > 0 && !self.near_seen.load(Ordering::Relaxed) {
            slot.known.store(TOOK_LESS, Ordering::Relaxed);
        }
        if enqueued > 0 {
            let took = clock::now().saturating_sub(enqueued);
            slot.took.store(took.max(1), Ordering::Relaxed);
        }
    }

    /// Lets the next runs know how long this one's partitions took.
    pub(super) fn learn(&self, template: &RunTemplate) {
        for (slot, partition) in self.slots.iter().zip(&template.partitions) {
            match slot.took.load(Ordering::Relaxed) {
                0 => {}
                took => {
                    // Alone in its queue the reactor may know it better, which was late.
                    let observed = slot.observed.load(Ordering::Relaxed);
                    let alone = self.slots.len() == 1;
                    let took = if alone && observed > 0 { took.min(observed) } else { took };
                    let took_so_long = Duration::from_nanos(took);
                    let known = slot.known.load(Ordering::Relaxed);
                    // Among others it takes longer than it needs.
                    let needs = partition.prediction.expected();
                    let near = self.near_until.load(Ordering::Relaxed) > 0;
                    let record = |prediction: &Prediction| match (known, near) {
                        (TOOK_THIS, _) => prediction.record(took_so_long),
                        (_, true) => prediction.record_missed(took_so_long),
                        (TOOK_AT_MOST_THIS, false) => prediction.record_expected(took_so_long),
                        (_, false) => prediction.record_overslept(took_so_long),
                    };
                    if self.crowd() == 1 || needs.is_none_or(|needs| took_so_long < needs) {
                        record(&partition.prediction);
                    }
                    if alone && observed == 0 && (known == TOOK_THIS || near) {
                        // As the reactor has not seen it.
                        record(&partition.queue_time);
                    }
                }
            }
        }
    }

    /// The reactor has found a partition over, after this time as its queue's oldest.
    pub(crate) fn observe(&self, partition: usize, took: Option<Duration>, seen: Seen) {
        let slot = &self.slots[partition];
        match seen {
            Seen::InTime => {}
            Seen::Overslept => slot.known.store(TOOK_LESS, Ordering::Relaxed),
            Seen::Expected => slot.known.store(TOOK_AT_MOST_THIS, Ordering::Relaxed),
            Seen::Late => slot.enqueued.store(0, Ordering::Relaxed),
        }
        let succeeded =
            self.event(partition).is_some_and(|event| matches!(event.status(), EventStatus::Complete));
        if let (Some(owner), Some(took), true) = (&self.inner.lock().owner, took, succeeded) {
            let prediction = &owner.partitions[partition].queue_time;
            match seen {
                Seen::InTime => {
                    slot.observed.store(clock::nanoseconds(took).max(1), Ordering::Relaxed);
                    prediction.record(took);
                }
                Seen::Overslept => prediction.record_overslept(took),
                Seen::Expected => prediction.record_expected(took),
                // Never more than is known, or each late look would make the next one later.
                Seen::Late => prediction.record(prediction.expected().map_or(took, |known| known.min(took))),
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
        if run.host_tasks.fetch_sub(1, Ordering::AcqRel) == 1 && run.expected().is_some() && !run.is_done() {
            run.done.nudge();
        }
    }
}
