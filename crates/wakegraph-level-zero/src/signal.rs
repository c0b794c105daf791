//! Signals: one enqueue each, from the driver's event to the outcome that the backend's event reports.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::support::dependency::{Dependencies, EnqueueOutcome, SettleStep, release};
use wakegraph_hal::support::health::FailedPolls;
use wakegraph_hal::support::refusal::no_times;
use wakegraph_hal::support::signal_event::{DriverSignal, SignalEvent};
use wakegraph_hal::support::signals::EnqueueSignal;
use wakegraph_hal::{Error, EventProfile, EventStatus, Result};

use super::context::LevelZeroContext;
use super::profiling::LevelZeroTimes;
use super::run_slot::{EventWait, RunSlot, SlotRun};
use super::single_run::SingleRun;

/// An event, which moves to another event of the driver with each signal.
pub(super) type LevelZeroEvent = SignalEvent<LevelZeroSignal>;

/// One enqueue.
pub(super) struct LevelZeroSignal {
    /// Over when everything that was enqueued is.
    pub(super) run: SlotRun,
    /// The queue that it was enqueued on.
    queue: u64,
    /// Why it fails: not everything was enqueued, or a dependency had failed.
    failure: Option<Error>,
    times: Option<LevelZeroTimes>,
    /// Whether it has had uses.
    has_uses: bool,
    uses: Mutex<SignalUses>,
    failed_polls: FailedPolls,
    outcome: EnqueueOutcome,
}

/// What an enqueue uses until it is over.
#[derive(Default, Debug)]
pub(super) struct SignalUses {
    /// Signals that were pending when this one was enqueued behind them.
    pub(super) dependencies: Dependencies<Arc<LevelZeroSignal>>,
    /// Signals that it only comes after.
    pub(super) order: SmallVec<[Arc<LevelZeroSignal>; 2]>,
    /// The driver's events that it waits for.
    pub(super) waits: SmallVec<[EventWait; 2]>,
    /// Objects of the driver that run only once.
    pub(super) kept: Option<Box<SingleRun>>,
}

impl SignalUses {
    fn is_empty(&self) -> bool {
        self.dependencies.is_empty() && self.order.is_empty() && self.waits.is_empty() && self.kept.is_none()
    }
}

/// What a poll has found.
enum SignalPoll {
    Over,
    Pending,
    /// The device is lost.
    Lost(Error),
}

/// What has been enqueued, for its signal.
#[derive(Debug)]
pub(super) struct NewSignal<'a> {
    pub(super) slot: &'a Arc<RunSlot>,
    pub(super) number: u64,
    pub(super) queue: u64,
    pub(super) failure: Option<Error>,
    pub(super) times: Option<LevelZeroTimes>,
    pub(super) uses: Option<&'a mut SignalUses>,
    /// Whether it uses anything, or is going to [keep](LevelZeroSignal::keep) something.
    pub(super) has_uses: bool,
}

impl From<NewSignal<'_>> for LevelZeroSignal {
    fn from(new: NewSignal<'_>) -> Self {
        Self {
            run: SlotRun::new(Arc::clone(new.slot), new.number),
            queue: new.queue,
            failure: new.failure,
            times: new.times,
            has_uses: new.has_uses,
            uses: Mutex::new(new.uses.map(std::mem::take).unwrap_or_default()),
            failed_polls: FailedPolls::default(),
            outcome: EnqueueOutcome::default(),
        }
    }
}

impl LevelZeroSignal {
    /// Makes this the last signal of an event, in the place of the one before, if nothing refers to that.
    #[inline]
    pub(super) fn put<'a>(new: NewSignal<'_>, last: &'a mut Option<Arc<Self>>) -> &'a Arc<Self> {
        match last {
            Some(last) => {
                match Arc::get_mut(last) {
                    Some(place) => place.renew(new),
                    None => *last = Arc::new(new.into()),
                }
                last
            }
            None => last.insert(Arc::new(new.into())),
        }
    }

    /// Becomes the signal of another enqueue. It is over, and nothing refers to it.
    #[inline]
    fn renew(&mut self, new: NewSignal<'_>) {
        let NewSignal { slot, number, queue, failure, times, uses, has_uses } = new;
        self.run.set(slot, number);
        (self.queue, self.failure, self.times) = (queue, failure, times);
        self.has_uses = has_uses;
        // Those of the signal before are gone: it is over.
        if let Some(uses) = uses {
            *self.uses.get_mut() = std::mem::take(uses);
        }
        self.failed_polls.reset();
        self.outcome = EnqueueOutcome::default();
    }

    /// Whether it succeeds as soon as the driver says that it is over.
    fn is_plain(&self) -> bool {
        !self.has_uses && self.failure.is_none()
    }

    /// Whether it uses anything until it is over.
    pub(super) fn has_uses(&self) -> bool {
        self.has_uses
    }

    /// Keeps this until the enqueue is over.
    pub(super) fn keep(&self, once: Box<SingleRun>) {
        self.uses.lock().kept = Some(once);
    }

    fn context(&self) -> &Arc<LevelZeroContext> {
        self.run.slot.event.context()
    }

    /// Whether the enqueue is over, as the driver says, or because its device is lost: then why.
    #[inline]
    fn poll(&self) -> SignalPoll {
        match self.run.is_over() {
            Ok(true) => {
                self.times.iter().for_each(|times| _ = times.note_end());
                SignalPoll::Over
            }
            Ok(false) => self.still_pending(),
            Err(failure) => match self.context().health.poll_failed(&self.failed_polls, failure) {
                Some(loss) => SignalPoll::Lost(loss),
                None => SignalPoll::Pending,
            },
        }
    }

    fn still_pending(&self) -> SignalPoll {
        self.failed_polls.reset();
        let health = &self.context().health;
        match health.lost().filter(|_| health.may_still_run()) {
            Some(loss) => SignalPoll::Lost(loss.clone()),
            None => SignalPoll::Pending,
        }
    }

    /// The status of a plain one.
    #[inline]
    fn status_by_poll(&self) -> EventStatus {
        match self.poll() {
            SignalPoll::Over => EventStatus::Complete,
            SignalPoll::Pending => EventStatus::Pending,
            SignalPoll::Lost(loss) => {
                self.outcome.set(Some(loss));
                self.outcome.status()
            }
        }
    }

    pub(super) fn is_on(&self, queue: u64) -> bool {
        self.queue == queue
    }
}

impl DriverSignal for LevelZeroSignal {
    type Context = LevelZeroContext;

    fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        if let Some(wait) = self.run.wait() {
            let limit = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
            // The caller polls for the outcome.
            let _ = wait.event().wait(limit.unwrap_or(u64::MAX));
        }
        timeout.map(|_| Duration::ZERO)
    }

    fn profile(&self) -> Result<EventProfile> {
        let (times, context) = (self.times.as_ref().ok_or_else(no_times)?, self.context());
        times.read(context, &self.run.slot).map_err(|error| context.error(error))
    }
}

impl EnqueueSignal for LevelZeroSignal {
    fn outcome(&self) -> &EnqueueOutcome {
        &self.outcome
    }

    fn known_failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    #[inline]
    fn is_final_alone(&self) -> bool {
        if self.outcome.is_known() {
            return true;
        }
        // The slot remembers it.
        self.is_plain() && self.status_by_poll().is_final()
    }

    #[inline]
    fn status_alone(&self) -> Option<EventStatus> {
        if !self.is_plain() || self.outcome.is_known() {
            return self.outcome.is_known().then(|| self.outcome.status());
        }
        Some(self.status_by_poll())
    }

    fn attempt(&self) -> SettleStep<Arc<Self>> {
        if self.outcome.is_known() {
            return SettleStep::Settled;
        }
        let fault = match self.poll() {
            SignalPoll::Pending => return SettleStep::Pending,
            SignalPoll::Over => None,
            SignalPoll::Lost(loss) => Some(loss),
        };
        if !self.has_uses {
            self.outcome.set(self.failure.clone().or(fault));
            return SettleStep::Settled;
        }
        let mut uses = self.uses.lock();
        if let Some(open) = uses.dependencies.first_open() {
            return SettleStep::Needs(open);
        }
        let inherited = || uses.dependencies.failure().cloned();
        // After a fault the device may still use everything.
        let is_lost = fault.is_some();
        // Under the lock: another thread that finds no dependencies finds the outcome known.
        self.outcome.set(self.failure.clone().or_else(inherited).or(fault));
        let over = (!uses.is_empty()).then(|| std::mem::take(&mut *uses));
        drop(uses);
        if is_lost {
            std::mem::forget(over)
        } else {
            drop(over)
        }
        SettleStep::Settled
    }
}

impl Drop for LevelZeroSignal {
    fn drop(&mut self) {
        let uses = self.uses.get_mut();
        if uses.is_empty() {
            return;
        }
        if !self.outcome.is_known() && !matches!(self.run.is_over(), Ok(true)) {
            // The device may still use them.
            std::mem::forget((uses.kept.take(), std::mem::take(&mut uses.waits)));
        }
        let others =
            std::mem::take(&mut uses.dependencies).into_iter().chain(std::mem::take(&mut uses.order));
        release(others, |other| {
            let uses = other.uses.get_mut();
            let order = std::mem::take(&mut uses.order);
            std::mem::take(&mut uses.dependencies).into_iter().chain(order)
        });
    }
}

impl Debug for LevelZeroSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LevelZeroSignal").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
