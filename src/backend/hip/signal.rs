//! Signals: one enqueue each, from what tells of its end to the outcome that the event reports.

use std::any::Any;
use std::sync::Arc;

use parking_lot::Mutex;

use super::device_inner::HipDeviceInner;
use super::profiling::{HipSignalTimes, now};
use super::stream::{HipRawEvent, HipStream};
use super::sys::HipFailure;
use crate::hal::support::dependency::{Dependencies, EnqueueOutcome, SettleStep, release};
use crate::hal::support::refusal;
use crate::hal::support::signals::EnqueueSignal;
use crate::hal::{EventProfile, EventStatus};
use crate::types::{Error, ErrorKind, Result};

/// One enqueue.
///
/// A fault on the device mostly ends the process. What the driver does not spread is kept here: an
/// enqueue of which a part failed, and the failure of another device.
#[derive(Debug)]
pub(super) struct HipSignal {
    device: Arc<HipDeviceInner>,
    records: Arc<HipEventRecords>,
    stream: Arc<HipStream>,
    end: HipSignalEnd,
    /// Why the enqueue fails once its work is over.
    failure: Option<Error>,
    times: Option<HipSignalTimes>,
    pending: Mutex<HipPendingSignal>,
    outcome: EnqueueOutcome,
}

/// The driver's events of one event, which records them again for each signal.
#[derive(Debug)]
pub(super) struct HipEventRecords {
    /// Behind the work.
    pub(super) end: HipRawEvent,
    /// With profiling: before the work.
    pub(super) start: Option<HipRawEvent>,
    /// Before and after each command; enough for the signal with the most commands so far.
    pub(super) commands: Mutex<Vec<[HipRawEvent; 2]>>,
}

/// What tells of the end of an enqueue.
#[derive(Debug)]
pub(super) enum HipSignalEnd {
    /// The driver's event, which is recorded behind the work and has this sequence number on its
    /// stream.
    Recorded(u64),
    /// The stream, which becomes idle. The event could not be recorded, so the enqueue fails with
    /// this.
    Broken(Error),
}

/// What is needed until the outcome is known.
#[derive(Debug, Default)]
struct HipPendingSignal {
    /// The signals whose results this one needs.
    needs: HipSignalNeeds,
    /// What the device uses.
    kept: Option<HipKept>,
    /// With times: when the end was seen.
    seen: u64,
}

/// The signals whose results one needs.
pub(super) type HipSignalNeeds = Dependencies<Arc<HipSignal>>;

/// What the device uses until a signal is final.
pub(super) type HipKept = Arc<dyn Any + Send + Sync>;

impl HipEventRecords {
    pub(super) fn create(device: &HipDeviceInner, profiling: bool) -> Result<Self, HipFailure> {
        let event = || HipRawEvent::create(&device.context, profiling);
        Ok(Self { end: event()?, start: profiling.then(event).transpose()?, commands: Mutex::default() })
    }

    /// Makes sure that there are events for so many commands.
    pub(super) fn reserve(&self, device: &HipDeviceInner, commands: usize) -> Result<(), HipFailure> {
        let mut all = self.commands.lock();
        while all.len() < commands {
            let event = || HipRawEvent::create(&device.context, true);
            all.push([event()?, event()?]);
        }
        Ok(())
    }
}

impl HipSignal {
    /// An enqueue that is on the stream.
    pub(super) fn new(
        device: &Arc<HipDeviceInner>,
        records: &Arc<HipEventRecords>,
        stream: &Arc<HipStream>,
        end: HipSignalEnd,
        times: Option<HipSignalTimes>,
        needs: HipSignalNeeds,
        kept: Option<HipKept>,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            records: Arc::clone(records),
            stream: Arc::clone(stream),
            end,
            failure: None,
            times,
            pending: Mutex::new(HipPendingSignal { needs, kept, ..HipPendingSignal::default() }),
            outcome: EnqueueOutcome::default(),
        }
    }

    /// It fails once its work is over, if there is a reason.
    pub(super) fn failing(mut self, failure: Option<Error>) -> Self {
        self.failure = failure;
        self
    }

    /// Nothing was enqueued, as a signal that this one needs has failed.
    pub(super) fn failed(self, error: Error) -> Self {
        self.outcome.set(Some(error));
        self
    }

    /// Whether the work is over.
    fn is_over(&self) -> Result<bool, HipFailure> {
        match &self.end {
            HipSignalEnd::Recorded(sequence) => self.stream.has_completed(*sequence, &self.records.end),
            HipSignalEnd::Broken(_) => self.stream.is_idle(),
        }
    }

    /// Whether the driver's event tells of the end, and no failure is known.
    fn is_recorded(&self) -> bool {
        matches!(self.end, HipSignalEnd::Recorded(_))
            && self.failure.is_none()
            && !self.outcome.is_known()
            && self.pending.lock().needs.failure().is_none()
    }

    /// Makes later work on the stream come after this enqueue. Returns why it has failed, if that
    /// is known. The caller has bound the stream's context.
    pub(super) fn order_before(&self, stream: &Arc<HipStream>) -> Result<Option<Error>> {
        self.order_by(Arc::ptr_eq(&self.stream, stream), |event| Ok(stream.wait(event)?))
    }

    /// As [`order_before`](Self::order_before): `wait` makes later work on the stream wait for an event.
    pub(super) fn order_by(
        &self,
        is_same_stream: bool,
        wait: impl FnOnce(&HipRawEvent) -> Result<()>,
    ) -> Result<Option<Error>> {
        let context = &self.device.context;
        // A wait for a complete event takes less time than a query whether it is.
        if context.health.lost().is_some() || !self.is_recorded() {
            match self.status() {
                EventStatus::Failed(error) => return Ok(Some(error)),
                EventStatus::Pending => {}
                EventStatus::Complete | EventStatus::Idle => return Ok(None),
            }
        }
        match &self.end {
            // The stream is in order.
            _ if is_same_stream => {}
            HipSignalEnd::Recorded(_) => wait(&self.records.end)?,
            HipSignalEnd::Broken(_) => self.stream.synchronize().map_err(|failure| context.error(failure))?,
        }
        Ok(None)
    }

    /// The times, if it has any. It is complete.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let HipEventRecords { end, start, commands } = &*self.records;
        let (times, start) = self.times.as_ref().zip(start.as_ref()).ok_or_else(refusal::no_times)?;
        let seen = self.pending.lock().seen;
        let read = times.read(seen, [start, end], &commands.lock());
        read.map_err(|failure| self.device.context.error(failure))
    }
}

impl EnqueueSignal for HipSignal {
    fn outcome(&self) -> &EnqueueOutcome {
        &self.outcome
    }

    fn known_failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    fn attempt(&self) -> SettleStep<Arc<Self>> {
        if self.outcome.is_known() {
            return SettleStep::Settled;
        }
        let context = &self.device.context;
        let mut pending = self.pending.lock();
        if self.outcome.is_known() {
            // Another thread was faster, and the event may have been recorded again since.
            return SettleStep::Settled;
        }
        let lost = context.health.lost();
        if lost.is_none() {
            match self.is_over() {
                Ok(true) => {}
                Ok(false) => return SettleStep::Pending,
                Err(failure) => {
                    // Without the lock, as this logs.
                    drop(pending);
                    let error = context.error(failure);
                    if error.kind() == ErrorKind::DeviceLost {
                        return self.attempt();
                    }
                    // Any other failure is one of the query. It says nothing about the work, which
                    // may still run.
                    tracing::trace!(target: "wakegraph::hip", %error, "an event could not be queried");
                    return SettleStep::Pending;
                }
            }
            if let Some(needed) = pending.needs.first_open() {
                return SettleStep::Needs(needed);
            }
        }
        if self.times.is_some() {
            pending.seen = now();
        }
        let broken = if let HipSignalEnd::Broken(error) = &self.end { Some(error) } else { None };
        let broken = self.failure.as_ref().or(broken);
        // Under the lock: a thread that finds no dependencies finds the outcome known.
        self.outcome.set(lost.or(pending.needs.failure()).or(broken).cloned());
        let settled = (std::mem::take(&mut pending.needs), pending.kept.take());
        drop((pending, settled));
        SettleStep::Settled
    }
}

impl Drop for HipSignal {
    fn drop(&mut self) {
        let needs = |signal: &mut Self| std::mem::take(&mut signal.pending.get_mut().needs);
        release(needs(self), needs);
    }
}
