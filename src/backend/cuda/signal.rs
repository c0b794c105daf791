//! Signals: where each use of an event stands, and how it ended.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::profiling::{ClockBase, EventTimes};
use super::stream::{CudaStream, RawEvent};
use super::sys::CudaFailure;
use crate::hal::support::dependency::{self, Dependencies, Dependency, EnqueueOutcome, SettleStep};
use crate::hal::support::refusal;
use crate::hal::{EventProfile, EventStatus};
use crate::types::{Error, ErrorKind, Result};

/// The driver's events behind one event, and the event's current use.
///
/// The driver itself spreads faults: they end the whole context. What it does not spread is kept
/// here: an enqueue of which a part failed, and the failure of another device.
#[derive(Debug)]
pub(super) struct CudaSignal {
    device: Arc<CudaDeviceInner>,
    end: RawEvent,
    /// With profiling: recorded before the work.
    start: Option<RawEvent>,
    current: Mutex<CurrentUse>,
}

/// The current use of an event: from one enqueue that signals it to the next.
#[derive(Debug, Default)]
struct CurrentUse {
    phase: UsePhase,
    /// The next use is being enqueued. Until that is done, everything still tells of this one.
    next_starts: bool,
    /// Whatever depends on this use holds another reference.
    outcome: Arc<EnqueueOutcome>,
    /// The uses that this one needs, until it is final.
    needs: Dependencies<EventUse>,
    /// On which it was enqueued.
    stream: Option<Arc<CudaStream>>,
    end: UseEnd,
    /// What the device uses until this use is final.
    kept: Option<Kept>,
    times: EventTimes,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum UsePhase {
    /// Nothing that signals the event has been enqueued.
    #[default]
    Idle,
    Pending,
    /// The outcome is known.
    Final,
}

/// What tells of the end of a use.
#[derive(Debug)]
pub(super) enum UseEnd {
    /// The driver's event, which is recorded behind the work and has this sequence number on its
    /// stream.
    Recorded(u64),
    /// The stream, which becomes idle. The event could not be recorded, so the use fails with this.
    Broken(Error),
    /// A completion counter. The event is not recorded.
    Counted {
        run: CountedRun,
        /// When to query the stream next.
        next_query: Option<Instant>,
    },
}

impl Default for UseEnd {
    fn default() -> Self {
        Self::Recorded(0)
    }
}

/// One use of an event.
#[derive(Clone, Debug)]
struct EventUse {
    signal: Arc<CudaSignal>,
    outcome: Arc<EnqueueOutcome>,
}

impl Dependency for EventUse {
    fn outcome(&self) -> &EnqueueOutcome {
        &self.outcome
    }
}

/// What the device uses until an event is final.
pub(super) type Kept = Arc<dyn Any + Send + Sync>;

/// A fault stops counters. So while one is awaited, the stream is queried this often, and the first
/// poll after that time notices that the device is lost. Most runs with a counter are over before.
const BETWEEN_QUERIES: Duration = Duration::from_millis(1);

impl CudaSignal {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, profiling: bool) -> Result<Self, CudaFailure> {
        let event = || RawEvent::create(&device.context, profiling);
        Ok(Self {
            device: Arc::clone(device),
            end: event()?,
            start: profiling.then(event).transpose()?,
            current: Mutex::default(),
        })
    }

    pub(super) fn device(&self) -> &Arc<CudaDeviceInner> {
        &self.device
    }

    /// Recorded behind the work.
    pub(super) fn end(&self) -> &RawEvent {
        &self.end
    }

    /// With profiling: recorded before the work.
    pub(super) fn start(&self) -> Option<&RawEvent> {
        self.start.as_ref()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.current.lock().phase == UsePhase::Idle
    }

    pub(super) fn status(&self) -> EventStatus {
        loop {
            // This use is not part of the list that `settle` keeps, so that a poll counts no references.
            match self.settle(None) {
                SettleStep::Settled => return self.current.lock().status(),
                SettleStep::Pending => return EventStatus::Pending,
                SettleStep::Needs(needed) => {
                    if !dependency::settle(needed, EventUse::settle) {
                        return EventStatus::Pending;
                    }
                }
            }
        }
    }

    /// The outcome of the current use, if there is a use.
    pub(super) fn outcome(&self) -> Option<Arc<EnqueueOutcome>> {
        let current = self.current.lock();
        (current.phase != UsePhase::Idle).then(|| Arc::clone(&current.outcome))
    }

    /// Settles the current use if it is pending, over, and the outcomes of all uses that it needs are
    /// known. With `wanted`, only if the current use has this outcome: a later use is irrelevant to
    /// what needs an earlier one.
    fn settle(&self, wanted: Option<&Arc<EnqueueOutcome>>) -> SettleStep<EventUse> {
        let mut current = self.current.lock();
        let is_wanted = wanted.is_none_or(|wanted| Arc::ptr_eq(wanted, &current.outcome));
        if current.phase != UsePhase::Pending || !is_wanted {
            return SettleStep::Settled;
        }
        let context = &self.device.context;
        let lost = context.lost();
        if lost.is_none() {
            match current.is_over(&self.end) {
                Ok(true) => {}
                Ok(false) => return SettleStep::Pending,
                Err(failure) => {
                    // Without the lock, as this logs.
                    drop(current);
                    let error = context.error(failure);
                    if error.kind() == ErrorKind::DeviceLost {
                        return self.settle(wanted);
                    }
                    // Any other failure is one of the query. It says nothing about the work, which
                    // may still run.
                    tracing::trace!(target: "wakegraph::cuda", %error, "an event could not be queried");
                    return SettleStep::Pending;
                }
            }
            if let Some(needed) = current.needs.first_open() {
                return SettleStep::Needs(needed);
            }
        }
        let CurrentUse { phase, outcome, needs, end, kept, times, .. } = &mut *current;
        let broken = if let UseEnd::Broken(error) = end { Some(&*error) } else { None };
        // Under the lock: a thread that finds no dependencies finds the outcome known.
        outcome.set(lost.or(needs.failure()).or(broken).cloned());
        times.set_seen();
        *phase = UsePhase::Final;
        let released = (std::mem::take(needs), std::mem::take(end), kept.take());
        drop(current);
        drop(released);
        SettleStep::Settled
    }

    /// Begins a use.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while another one is pending or begins.
    pub(super) fn begin(signal: &Arc<Self>) -> Result<StartingUse<'_>> {
        let mut current = signal.current.lock();
        if current.phase == UsePhase::Pending {
            drop(current);
            signal.status();
            current = signal.current.lock();
        }
        if current.phase == UsePhase::Pending || current.next_starts {
            return Err(refusal::pending_signal());
        }
        current.next_starts = true;
        Ok(StartingUse { signal, needs: Dependencies::default(), is_current: false })
    }

    /// Makes later work on the stream wait for the current use. Returns the failure of a use that
    /// has failed. The caller has bound the stream's context.
    ///
    /// # Errors
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) when there has been no use; the driver's.
    pub(super) fn order_before(&self, stream: &Arc<CudaStream>) -> Result<Option<Error>> {
        let context = &self.device.context;
        // A wait for a complete event takes less time than a query whether it is.
        if context.lost().is_some() || !self.current.lock().is_recorded() {
            match self.status() {
                EventStatus::Idle => return Err(refusal::idle_wait()),
                EventStatus::Complete => return Ok(None),
                EventStatus::Failed(error) => return Ok(Some(error)),
                EventStatus::Pending => {}
            }
        }
        let current = self.current.lock();
        let is_pending = current.phase == UsePhase::Pending;
        match (&current.stream, &current.end) {
            // The stream is in order.
            (Some(own), _) if Arc::ptr_eq(own, stream) => {}
            (Some(own), UseEnd::Broken(_)) if is_pending => {
                let own = Arc::clone(own);
                drop(current);
                own.synchronize().map_err(|failure| context.error(failure))?;
            }
            // The event is not recorded, so one is recorded now, behind everything on the stream.
            (Some(own), UseEnd::Counted { .. }) if is_pending => {
                let own = Arc::clone(own);
                drop(current);
                let event = {
                    let _bound = context.bind()?;
                    RawEvent::recorded_on(&own)?
                };
                stream.wait(&event)?;
            }
            _ => {
                drop(current);
                stream.wait(&self.end)?;
            }
        }
        Ok(None)
    }

    /// The times of the current use, if it is complete and has any.
    pub(super) fn times(&self) -> Option<Result<Option<EventProfile>, CudaFailure>> {
        let current = self.current.lock();
        let is_complete = !current.next_starts && matches!(current.status(), EventStatus::Complete);
        let read = |start: &RawEvent| current.times.read(start, &self.end);
        is_complete.then(|| self.start.as_ref().map_or(Ok(None), read))
    }
}

impl EventUse {
    fn settle(&self) -> SettleStep<Self> {
        match self.outcome.is_known() {
            true => SettleStep::Settled,
            false => self.signal.settle(Some(&self.outcome)),
        }
    }
}

impl CurrentUse {
    /// The status as far as it is known without a query.
    fn status(&self) -> EventStatus {
        match self.phase {
            UsePhase::Idle => EventStatus::Idle,
            UsePhase::Pending => EventStatus::Pending,
            UsePhase::Final => self.outcome.status(),
        }
    }

    /// Whether the driver's event tells of the end of a pending use, and no failure is known.
    fn is_recorded(&self) -> bool {
        self.phase == UsePhase::Pending
            && matches!(self.end, UseEnd::Recorded(_))
            && self.needs.failure().is_none()
    }

    /// Whether the work of a pending use is over.
    fn is_over(&mut self, event: &RawEvent) -> Result<bool, CudaFailure> {
        let Some(stream) = &self.stream else { return Ok(true) };
        match &mut self.end {
            UseEnd::Recorded(sequence) => stream.has_completed(*sequence, event),
            UseEnd::Broken(_) => stream.is_idle(),
            UseEnd::Counted { run: (counter, runs), .. } if counter.has_reached(*runs) => Ok(true),
            UseEnd::Counted { next_query, .. } => {
                let now = Instant::now();
                let is_due = next_query.is_some_and(|next| next <= now);
                if is_due || next_query.is_none() {
                    *next_query = Some(now + BETWEEN_QUERIES);
                }
                Ok(is_due && stream.is_idle()?)
            }
        }
    }

    /// A new outcome, in the old allocation if nothing else refers to that.
    fn renew_outcome(&mut self) {
        match Arc::get_mut(&mut self.outcome) {
            Some(outcome) => *outcome = EnqueueOutcome::default(),
            None => self.outcome = Arc::default(),
        }
    }
}

impl Drop for CudaSignal {
    fn drop(&mut self) {
        let signals = |signal: &mut Self| {
            std::mem::take(&mut signal.current.get_mut().needs).into_iter().map(|needed| needed.signal)
        };
        dependency::release(signals(self), signals);
    }
}

/// A use of an event that is being enqueued. If it is dropped, nothing was enqueued, and the event
/// is as it was.
#[derive(Debug)]
pub(super) struct StartingUse<'a> {
    signal: &'a Arc<CudaSignal>,
    needs: Dependencies<EventUse>,
    /// The use has become the event's current one.
    is_current: bool,
}

impl<'a> StartingUse<'a> {
    /// Makes this use fail if the current one of `other` does.
    pub(super) fn depend_on(&mut self, other: &Arc<CudaSignal>) {
        if let Some(outcome) = other.outcome() {
            self.needs.push(EventUse { signal: Arc::clone(other), outcome });
        }
    }

    /// Gives this use times, those of so many commands among them.
    pub(super) fn prepare_times(&self, commands: usize, base: Arc<ClockBase>) -> Result<(), CudaFailure> {
        let CudaSignal { device, current, .. } = &**self.signal;
        current.lock().times.prepare(&device.context, commands, base)
    }

    pub(super) fn signal(&self) -> &'a Arc<CudaSignal> {
        self.signal
    }

    /// Calls `use_them` with the events for the commands' times.
    pub(super) fn with_command_events<R>(&self, use_them: impl FnOnce(&[[RawEvent; 2]]) -> R) -> R {
        use_them(self.signal.current.lock().times.commands())
    }

    /// Nothing was enqueued, as a use that this one needs has failed.
    pub(super) fn fail(mut self, error: Error) {
        let mut current = self.make_current();
        current.outcome.set(Some(error));
        current.phase = UsePhase::Final;
    }

    /// Everything is on the stream.
    pub(super) fn enqueued(mut self, stream: &Arc<CudaStream>, timed: bool, kept: Option<Kept>, end: UseEnd) {
        let needs = std::mem::take(&mut self.needs);
        let mut current = self.make_current();
        (current.needs, current.kept, current.end) = (needs, kept, end);
        if !timed {
            current.times.clear();
        }
        if !current.stream.as_ref().is_some_and(|own| Arc::ptr_eq(own, stream)) {
            current.stream = Some(Arc::clone(stream));
        }
        current.phase = UsePhase::Pending;
    }

    fn make_current(&mut self) -> MutexGuard<'a, CurrentUse> {
        self.is_current = true;
        let mut current = self.signal.current.lock();
        current.next_starts = false;
        current.renew_outcome();
        current
    }
}

impl Drop for StartingUse<'_> {
    fn drop(&mut self) {
        if !self.is_current {
            self.signal.current.lock().next_starts = false;
        }
    }
}
