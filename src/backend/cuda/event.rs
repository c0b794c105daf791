//! Events, and their signals: where each use of an event stands and how it ended.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::profiling::{ClockBase, EventTimes};
use super::stream::{CudaStream, RawEvent};
use super::sys::CudaFailure;
use crate::hal::support::dependency::{self, Attempt, Dependencies, Dependency, Outcome};
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// An event. What depends on it holds its signal, so the event itself may be dropped.
#[derive(Debug)]
pub(super) struct CudaEvent {
    signal: Arc<CudaSignal>,
}

impl CudaEvent {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, profiling: bool) -> Result<Self, CudaFailure> {
        Ok(Self { signal: Arc::new(CudaSignal::create(device, profiling)?) })
    }

    pub(super) fn signal(&self) -> &Arc<CudaSignal> {
        &self.signal
    }
}

impl Event for CudaEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.signal.device.info.id
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    /// The driver's own wait has no time limit, so this polls.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(outcome) = self.signal.outcome() else { return EventStatus::Idle };
        polling::wait(timeout, || {
            if !outcome.is_known() {
                self.signal.status();
            }
            outcome.status()
        })
    }

    fn profile(&self) -> Result<EventProfile> {
        // The event may be complete without having been polled.
        self.signal.status();
        let times = self.signal.times().ok_or_else(refusal::times_before_completion)?;
        times.map_err(|failure| self.signal.device.context.error(failure))?.ok_or_else(refusal::no_times)
    }
}

/// The driver's events behind one event, and the state of its current use.
///
/// The driver itself spreads faults: they end the whole context. What it does not spread is kept
/// here: an enqueue of which a part failed, and the failure of another device.
#[derive(Debug)]
pub(super) struct CudaSignal {
    device: Arc<CudaDeviceInner>,
    end: RawEvent,
    /// With profiling: recorded before the work.
    start: Option<RawEvent>,
    /// The number of uses, and in the lowest bits the phase of the last one.
    state: AtomicU64,
    current: Mutex<CurrentUse>,
}

/// The current use of an event: from one enqueue that signals it to the next.
#[derive(Debug, Default)]
struct CurrentUse {
    /// Whatever depends on this use holds another reference.
    outcome: Arc<Outcome>,
    /// The uses that this one needs, until it is final.
    needs: Dependencies<EventUse>,
    /// The queue's id and stream on which it was enqueued.
    queue: Option<(u64, Arc<CudaStream>)>,
    end: UseEnd,
    /// What the device uses until this use is final.
    kept: Option<Kept>,
    times: EventTimes,
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
    outcome: Arc<Outcome>,
}

impl Dependency for EventUse {
    fn outcome(&self) -> &Outcome {
        &self.outcome
    }
}

/// What the device uses until an event is final.
pub(super) type Kept = Arc<dyn Any + Send + Sync>;

const PHASES: u64 = 8;
/// Nothing that signals the event has been enqueued.
const IDLE: u64 = 0;
/// Being enqueued: the driver's event still tells of the use before.
const STARTING: u64 = 1;
const PENDING: u64 = 2;
const COMPLETE: u64 = 3;
const FAILED: u64 = 4;

/// A fault stops counters. So while one is awaited, the stream is queried this often, and the first
/// poll after that time notices that the device is lost. Most runs with a counter are over before.
const BETWEEN_QUERIES: Duration = Duration::from_millis(1);

impl CudaSignal {
    fn create(device: &Arc<CudaDeviceInner>, profiling: bool) -> Result<Self, CudaFailure> {
        let event = || RawEvent::create(&device.context, profiling);
        Ok(Self {
            device: Arc::clone(device),
            end: event()?,
            start: profiling.then(event).transpose()?,
            state: AtomicU64::new(IDLE),
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

    fn status(self: &Arc<Self>) -> EventStatus {
        let state = self.state.load(Ordering::Acquire);
        if state % PHASES == PENDING {
            return self.poll(state);
        }
        self.known_status(state)
    }

    /// The status as far as it is known without a query.
    fn known_status(&self, state: u64) -> EventStatus {
        match state % PHASES {
            IDLE => EventStatus::Idle,
            COMPLETE => EventStatus::Complete,
            FAILED => {
                let current = self.current.lock();
                match current.outcome.failure() {
                    Some(error) if self.state.load(Ordering::Acquire) == state => {
                        EventStatus::Failed(error.clone())
                    }
                    // Another use has begun meanwhile.
                    _ => EventStatus::Pending,
                }
            }
            _ => EventStatus::Pending,
        }
    }

    /// The outcome of the current use, if there is a use.
    fn outcome(&self) -> Option<Arc<Outcome>> {
        let current = self.current.lock();
        (!self.is_idle()).then(|| Arc::clone(&current.outcome))
    }

    /// Whether nothing that signals the event has been enqueued.
    fn is_idle(&self) -> bool {
        self.state.load(Ordering::Acquire) % PHASES == IDLE
    }

    /// Queries the driver about the use of this state, and settles the use if it is over.
    fn poll(&self, state: u64) -> EventStatus {
        // This use is not part of the list that `settle` keeps, so that a poll counts no references.
        while let Attempt::Needs(needed) = self.settle(state) {
            if !dependency::settle(needed, EventUse::settle) {
                return EventStatus::Pending;
            }
        }
        self.known_status(self.state.load(Ordering::Acquire))
    }

    /// Settles the use of this state if it is over and the outcomes of all uses that it needs are
    /// known.
    fn settle(&self, state: u64) -> Attempt<EventUse> {
        let context = &self.device.context;
        let lost = match context.lost() {
            Some(lost) => Some(lost.clone()),
            None => match self.is_over() {
                Ok(true) => None,
                Ok(false) => return Attempt::Pending,
                Err(failure) => {
                    let error = context.error(failure);
                    // Any other failure is one of the query. It says nothing about the work, which
                    // may still run.
                    if error.kind() != ErrorKind::DeviceLost {
                        tracing::trace!(target: "wakegraph::cuda", %error, "an event could not be queried");
                        return Attempt::Pending;
                    }
                    Some(error)
                }
            },
        };
        let mut current = self.current.lock();
        if self.state.load(Ordering::Acquire) != state {
            // Another thread has settled it meanwhile.
            return Attempt::Settled;
        }
        if lost.is_none()
            && let Some(needed) = current.needs.first_open()
        {
            return Attempt::Needs(needed);
        }
        let failure = lost.or_else(|| current.needs.failure().cloned()).or_else(|| match &current.end {
            UseEnd::Broken(error) => Some(error.clone()),
            _ => None,
        });
        current.times.set_seen();
        let phase = if failure.is_some() { FAILED } else { COMPLETE };
        current.outcome.set(failure);
        let CurrentUse { needs, end, kept, .. } = &mut *current;
        let released = (std::mem::take(needs), std::mem::take(end), kept.take());
        self.state.store(state - PENDING + phase, Ordering::Release);
        drop(current);
        drop(released);
        Attempt::Settled
    }

    fn is_over(&self) -> Result<bool, CudaFailure> {
        let stream = {
            let mut current = self.current.lock();
            let CurrentUse { queue, end, .. } = &mut *current;
            let Some((_, stream)) = queue else { return Ok(true) };
            match end {
                UseEnd::Recorded(sequence) => return stream.has_completed(*sequence, &self.end),
                UseEnd::Broken(_) => {}
                UseEnd::Counted { run: (counter, runs), next_query } => {
                    if counter.has_reached(*runs) {
                        return Ok(true);
                    }
                    let now = Instant::now();
                    let is_due = next_query.is_some_and(|next| next <= now);
                    if is_due || next_query.is_none() {
                        *next_query = Some(now + BETWEEN_QUERIES);
                    }
                    if !is_due {
                        return Ok(false);
                    }
                }
            }
            Arc::clone(stream)
        };
        stream.is_idle()
    }

    /// Begins a use.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while the last one is pending.
    pub(super) fn begin(signal: &Arc<Self>) -> Result<StartingUse<'_>> {
        let is_free = |state| matches!(state % PHASES, IDLE | COMPLETE | FAILED);
        let mut before = signal.state.load(Ordering::Acquire);
        if !is_free(before) {
            signal.status();
            before = signal.state.load(Ordering::Acquire);
        }
        let state = before - before % PHASES + PHASES + STARTING;
        let exchange = || signal.state.compare_exchange(before, state, Ordering::AcqRel, Ordering::Acquire);
        if !is_free(before) || exchange().is_err() {
            return Err(refusal::pending_signal());
        }
        Ok(StartingUse { signal, before, state, needs: Dependencies::default() })
    }

    /// Makes later work on the stream of the queue with this id wait for the current use. Returns
    /// the failure of a use that has failed. The caller has bound the stream's context.
    ///
    /// # Errors
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) when there has been no use; the driver's.
    pub(super) fn order_before(self: &Arc<Self>, queue: u64, stream: &CudaStream) -> Result<Option<Error>> {
        // A wait for a complete event takes less time than a query whether it is.
        if !self.is_recorded() {
            match self.status() {
                EventStatus::Idle => return Err(refusal::idle_wait()),
                EventStatus::Complete => return Ok(None),
                EventStatus::Failed(error) => return Ok(Some(error)),
                EventStatus::Pending => {}
            }
        }
        let current = self.current.lock();
        let is_pending = self.state.load(Ordering::Acquire) % PHASES == PENDING;
        let context = &self.device.context;
        match (&current.queue, &current.end) {
            // The queue is in order.
            (Some((id, _)), _) if *id == queue => Ok(None),
            (Some((_, own)), UseEnd::Broken(_)) if is_pending => {
                let own = Arc::clone(own);
                drop(current);
                own.synchronize().map_err(|failure| context.error(failure))?;
                Ok(None)
            }
            // The event is not recorded, so one is recorded now, behind everything on the stream.
            (Some((_, own)), UseEnd::Counted { .. }) if is_pending => {
                let own = Arc::clone(own);
                drop(current);
                let event = {
                    let _bound = context.bind()?;
                    RawEvent::recorded_on(&own)?
                };
                stream.wait(&event)?;
                Ok(None)
            }
            _ => {
                drop(current);
                stream.wait(&self.end)?;
                Ok(None)
            }
        }
    }

    /// Whether the driver's event tells of the end of the current use, and no failure is known.
    fn is_recorded(&self) -> bool {
        if self.state.load(Ordering::Acquire) % PHASES != PENDING || self.device.context.lost().is_some() {
            return false;
        }
        let current = self.current.lock();
        matches!(current.end, UseEnd::Recorded(_)) && current.needs.failure().is_none()
    }

    /// The times of the current use, if it is complete and has any.
    fn times(&self) -> Option<Result<Option<EventProfile>, CudaFailure>> {
        let current = self.current.lock();
        let is_complete = self.state.load(Ordering::Acquire) % PHASES == COMPLETE;
        let read = |start: &RawEvent| current.times.read(start, &self.end);
        is_complete.then(|| self.start.as_ref().map_or(Ok(None), read))
    }
}

impl EventUse {
    fn settle(&self) -> Attempt<Self> {
        let state = self.signal.state.load(Ordering::Acquire);
        let is_current = Arc::ptr_eq(&self.signal.current.lock().outcome, &self.outcome);
        match state % PHASES {
            PENDING if is_current && !self.outcome.is_known() => self.signal.settle(state),
            // What a later use of the event does is irrelevant.
            _ => Attempt::Settled,
        }
    }
}

impl Drop for CudaSignal {
    fn drop(&mut self) {
        let signals = |signal: &mut Self| {
            std::mem::take(&mut signal.current.get_mut().needs).into_iter().map(|it| it.signal)
        };
        dependency::release(signals(self), signals);
    }
}

/// A use of an event that is being enqueued.
#[derive(Debug)]
pub(super) struct StartingUse<'a> {
    signal: &'a Arc<CudaSignal>,
    /// The state to go back to.
    before: u64,
    state: u64,
    needs: Dependencies<EventUse>,
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

    /// Nothing was enqueued: the event is as it was.
    pub(super) fn abandon(self) {
        self.signal.state.store(self.before, Ordering::Release);
    }

    /// Nothing was enqueued, as a use that this one needs has failed.
    pub(super) fn fail(self, error: Error) {
        let mut current = self.signal.current.lock();
        current.renew_outcome();
        current.outcome.set(Some(error));
        self.signal.state.store(self.state - STARTING + FAILED, Ordering::Release);
    }

    /// Everything is on the stream.
    pub(super) fn enqueued(
        self,
        queue: (u64, &Arc<CudaStream>),
        timed: bool,
        kept: Option<Kept>,
        end: UseEnd,
    ) {
        let Self { signal, state, needs, .. } = self;
        let mut current = signal.current.lock();
        current.renew_outcome();
        (current.needs, current.kept, current.end) = (needs, kept, end);
        if !timed {
            current.times.clear();
        }
        if current.queue.as_ref().is_none_or(|(id, _)| *id != queue.0) {
            current.queue = Some((queue.0, Arc::clone(queue.1)));
        }
        signal.state.store(state - STARTING + PENDING, Ordering::Release);
    }
}

impl CurrentUse {
    /// A new outcome, in the old allocation if nothing else refers to that.
    fn renew_outcome(&mut self) {
        match Arc::get_mut(&mut self.outcome) {
            Some(outcome) => *outcome = Outcome::default(),
            None => self.outcome = Arc::default(),
        }
    }
}
