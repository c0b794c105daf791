//! How a queue hands over to the driver, in either lowering.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::{Error, QueueDesc, QueueOrder, Result};

use super::append::AppendQueue;
use super::context::LevelZeroContext;
use super::event_pool::DriverEventKind;
use super::execute::ExecuteQueue;
use super::handover::{Handover, HandoverFailure};
use super::recording::ListRecording;
use super::run_slot::{EventWait, RunSlot, RunSlots, SlotRun};
use super::signal::SignalUses;
use super::sys::{self, DriverResult};

/// How a queue hands over.
#[derive(Debug)]
pub(super) struct QueueDriver {
    pub(super) lowering: LoweringQueue,
    /// For enqueues without a recording.
    marks: RunSlots,
}

/// What a queue is in each lowering.
#[derive(Debug)]
pub(super) enum LoweringQueue {
    Append(AppendQueue),
    Execute(ExecuteQueue),
}

/// What has been handed over.
pub(super) struct Started<'a> {
    pub(super) slot: &'a Arc<RunSlot>,
    pub(super) number: u64,
    /// Why it fails, if it does.
    pub(super) failure: Option<Error>,
}

impl<'a> Started<'a> {
    fn new(slot: &'a Arc<RunSlot>) -> Self {
        Self { slot, number: slot.start(), failure: None }
    }

    pub(super) fn failing(self, failure: Option<Error>) -> Self {
        Self { failure, ..self }
    }
}

impl QueueDriver {
    pub(super) fn new(lowering: LoweringQueue) -> Self {
        Self { lowering, marks: RunSlots::default() }
    }

    /// The kind of event that an enqueue signals.
    pub(super) fn event_kind(
        &self,
        context: &LevelZeroContext,
        desc: &QueueDesc,
        is_timed: bool,
    ) -> DriverEventKind {
        let counts = desc.order == QueueOrder::InOrder && context.features.counter_based_events;
        match &self.lowering {
            _ if is_timed => DriverEventKind::Timed,
            LoweringQueue::Append(_) if counts => DriverEventKind::Counting,
            _ => DriverEventKind::Plain,
        }
    }

    /// Hands over a run. Says why it fails, if it does.
    ///
    /// # Safety
    /// As for [`LevelZeroQueue::submit`].
    #[inline]
    pub(super) unsafe fn run<'a>(
        &mut self,
        context: &LevelZeroContext,
        recording: &'a mut ListRecording,
        kind: DriverEventKind,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        let place = recording.take_slot(kind).map_err(|error| context.error(error))?;
        let recording = &*recording;
        let slot = recording.slot(place);
        let handed = match &mut self.lowering {
            // SAFETY: passed on to the caller.
            LoweringQueue::Append(queue) => unsafe { queue.run(recording, slot, waits.events()) },
            // SAFETY: passed on to the caller.
            LoweringQueue::Execute(queue) => unsafe { queue.run(recording, slot, waits.events()) },
        };
        match handed {
            Ok(Handover::Whole) => Ok(Started::new(slot)),
            Ok(Handover::WithoutCopies(failure)) => {
                recording.skip_copies();
                Ok(Started::new(slot).failing(Some(context.error(failure))))
            }
            Err(HandoverFailure { failure, is_partial }) => {
                if is_partial {
                    EventWait::forever(slot);
                    // What is on the device still waits for these events.
                    std::mem::forget(waits.pending.take());
                }
                Err(context.error(failure))
            }
        }
    }

    /// Signals a slot behind these events, and in its place in the queue's order.
    pub(super) fn mark(
        &mut self,
        context: &Arc<LevelZeroContext>,
        kind: DriverEventKind,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Started<'_>> {
        let place = self.mark_place(context, kind).map_err(|failure| context.error(failure))?;
        let slot = self.marks.at(place);
        let marked = match &mut self.lowering {
            LoweringQueue::Append(queue) => queue.mark(slot, waits),
            LoweringQueue::Execute(queue) => queue.mark(slot, waits),
        };
        if let Err(failure) = marked {
            // A part of it may be on the list.
            EventWait::forever(slot);
            return Err(context.error(failure));
        }
        Ok(Started::new(slot))
    }

    fn mark_place(&mut self, context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<usize> {
        match self.marks.free(kind)? {
            Some(place) => Ok(place),
            None => Ok(self.marks.add(RunSlot::new(context, kind)?)),
        }
    }
}

/// What an enqueue has to wait for. Most have nothing to wait for.
#[derive(Default)]
pub(super) struct LevelZeroWaitList {
    pub(super) pending: Option<PendingWaits>,
    /// The failure of a dependency that has failed already.
    pub(super) failure: Option<Error>,
}

/// What was pending when the wait list was read.
#[derive(Default)]
pub(super) struct PendingWaits {
    /// As the driver takes them.
    events: SmallVec<[sys::ze_event_handle_t; 8]>,
    /// What the enqueue keeps until it is over. Failures of its dependencies are inherited.
    pub(super) uses: SignalUses,
}

impl LevelZeroWaitList {
    /// Waits for a run, unless that is over.
    pub(super) fn push(&mut self, run: &SlotRun) {
        if let Some(wait) = run.wait() {
            let pending = self.pending.get_or_insert_default();
            pending.events.push(wait.event().raw());
            pending.uses.waits.push(wait);
        }
    }

    pub(super) fn events(&self) -> &[sys::ze_event_handle_t] {
        self.pending.as_ref().map_or(&[], |pending| &pending.events)
    }

    pub(super) fn uses(&mut self) -> &mut SignalUses {
        &mut self.pending.get_or_insert_default().uses
    }
}
