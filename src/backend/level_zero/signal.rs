//! Signals: one enqueue each, from the driver's event to the outcome that the backend's event reports.

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::context::LevelZeroContext;
use super::profiling::LevelZeroTimes;
use super::run_slot::RunSlot;
use super::sys;
use crate::hal::EventProfile;
use crate::hal::support::dependency::{Dependencies, EnqueueOutcome, SettleStep, release};
use crate::hal::support::refusal::no_times;
use crate::hal::support::signals::EnqueueSignal;
use crate::types::{Error, Result};

/// One enqueue.
pub(super) struct LevelZeroSignal {
    context: Arc<LevelZeroContext>,
    work: StartedRun,
    /// The queue that it was enqueued on.
    queue: u64,
    uses: Mutex<SignalUses>,
    outcome: EnqueueOutcome,
}

/// An enqueue that has started.
#[derive(Debug)]
pub(super) struct StartedRun {
    /// Over when everything that was enqueued is.
    pub(super) slot: Arc<RunSlot>,
    /// Why the enqueue fails: not everything was enqueued, or a dependency had failed.
    pub(super) failure: Option<Error>,
    pub(super) times: Option<LevelZeroTimes>,
}

/// What an enqueue uses until it is over.
#[derive(Default)]
pub(super) struct SignalUses {
    /// Signals that were pending when this one was enqueued behind them.
    pub(super) dependencies: Dependencies<Arc<LevelZeroSignal>>,
    /// Signals that it only comes after.
    pub(super) order: SmallVec<[Arc<LevelZeroSignal>; 2]>,
    /// Objects of the driver that run only once.
    pub(super) kept: Option<Box<dyn Any + Send + Sync>>,
}

impl SignalUses {
    fn is_empty(&self) -> bool {
        self.dependencies.is_empty() && self.order.is_empty() && self.kept.is_none()
    }
}

impl LevelZeroSignal {
    pub(super) fn new(
        context: &Arc<LevelZeroContext>,
        queue: u64,
        work: StartedRun,
        uses: SignalUses,
    ) -> Self {
        let (context, uses, outcome) = (Arc::clone(context), Mutex::new(uses), EnqueueOutcome::default());
        Self { context, work, queue, uses, outcome }
    }

    /// Keeps objects that run only once until the enqueue is over.
    pub(super) fn keep(&self, objects: Box<dyn Any + Send + Sync>) {
        let mut uses = self.uses.lock();
        // Otherwise another thread has found it over.
        if !self.outcome.is_known() {
            uses.kept = Some(objects);
        }
    }

    /// The driver's event, for wait lists.
    pub(super) fn event(&self) -> sys::ze_event_handle_t {
        self.work.slot.event.raw()
    }

    pub(super) fn is_on(&self, queue: u64) -> bool {
        self.queue == queue
    }

    /// Blocks until the driver says that it is over, or this time has passed.
    pub(super) fn wait(&self, nanoseconds: u64) {
        // The caller polls for the outcome.
        if !matches!(self.work.slot.is_over(), Ok(true)) {
            let _ = self.work.slot.event.wait(nanoseconds);
        }
    }

    /// The times, once it is complete, if it keeps them.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let times = self.work.times.as_ref().ok_or_else(no_times)?;
        times.read(&self.context, &self.work.slot).map_err(|error| self.context.error(error))
    }
}

impl EnqueueSignal for LevelZeroSignal {
    fn outcome(&self) -> &EnqueueOutcome {
        &self.outcome
    }

    fn known_failure(&self) -> Option<&Error> {
        self.work.failure.as_ref()
    }

    fn attempt(&self) -> SettleStep<Arc<Self>> {
        if self.outcome.is_known() {
            return SettleStep::Settled;
        }
        let fault = match self.work.slot.is_over() {
            Ok(false) => return SettleStep::Pending,
            Ok(true) => None,
            Err(failure) => Some(self.context.error(failure)),
        };
        let mut uses = self.uses.lock();
        if let Some(open) = uses.dependencies.first_open() {
            return SettleStep::Needs(open);
        }
        let inherited = || uses.dependencies.failure().cloned();
        // After a fault the device may still use everything.
        let is_lost = fault.is_some();
        // Under the lock: another thread that finds no dependencies finds the outcome known.
        self.outcome.set(self.work.failure.clone().or_else(inherited).or(fault));
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
        if !self.outcome.is_known() && !matches!(self.work.slot.is_over(), Ok(true)) {
            // The device may still use them.
            std::mem::forget(uses.kept.take());
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
