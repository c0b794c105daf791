//! What an event shares with those that wait for it: where it stands, and how each of its uses ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::clock::Base;
use super::device::Shared;
use super::stream::{RawEvent, Stream};
use super::sys::Failure;
use super::tick::Tick;
use super::times::Times;
use crate::hal::EventStatus;
use crate::hal::support::dependency::{self as chain, Attempt as Link};
use crate::types::{Error, ErrorKind, Result};

/// What tells of the end of one use.
#[derive(Debug)]
pub(super) enum End {
    /// The driver's event, recorded behind the work, in this place of its stream.
    Recorded(u64),
    /// The event is not recorded, and what the use fails with once its stream is idle.
    Broken(Error),
    /// A word that counts up to this; the event is not recorded.
    Ticked(Arc<Tick>, u64),
}

/// How one use of an event ended, once that is known.
pub(super) type Outcome = OnceLock<Option<Error>>;

/// The driver's events behind one event of ours, and its state.
///
/// Faults are the driver's business: they end the whole context. What it does not spread is kept
/// here: an enqueue of which a part failed, and the failure of another device.
#[derive(Debug)]
pub(super) struct Signal {
    pub(super) shared: Arc<Shared>,
    end: RawEvent,
    /// Where times are kept: recorded before the work.
    pub(super) start: Option<RawEvent>,
    /// How often it was signalled, and its phase in the lowest bits.
    state: AtomicU64,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Of the current use. Whoever depends on it holds another reference.
    outcome: Arc<Outcome>,
    /// What this use depends on, until it is final.
    waited: Waited,
    /// Where this use was enqueued.
    queue: Option<(u64, Arc<Stream>)>,
    /// Where on the stream the event was recorded.
    place: u64,
    /// Why this use fails when what did start is done.
    broken: Option<Error>,
    /// What counts up at the end of this use, and to what.
    tick: Option<(Arc<Tick>, u64)>,
    /// When the stream is asked next, although a tick tells of the end.
    next_query: Option<Instant>,
    /// What the device uses until this use is final.
    kept: Option<Kept>,
    times: Times,
}

/// A use of another event that one depends on.
type Dependency = (Arc<Signal>, Arc<Outcome>);

/// Uses of other events that one depends on.
pub(super) type Waited = SmallVec<[Dependency; 2]>;

/// What the device uses until an event is final.
pub(super) type Kept = Arc<dyn std::any::Any + Send + Sync>;

const PHASES: u64 = 8;
/// Nothing that signals it has been enqueued.
const IDLE: u64 = 0;
/// Being enqueued: the driver's event still tells of the last use.
const STARTING: u64 = 1;
const PENDING: u64 = 2;
/// Pending, without a record of the driver's event: its stream tells.
const BROKEN: u64 = 3;
const COMPLETE: u64 = 4;
const FAILED: u64 = 5;
/// Pending, without a record of the driver's event: a tick tells.
const TICKING: u64 = 6;

/// A fault stops ticks, so the stream is asked this often while a tick is awaited: a lost device is
/// noticed by the first poll after that time. Most runs with a tick are over before.
const BETWEEN_QUERIES: Duration = Duration::from_millis(1);

/// A use of an event that is being enqueued.
#[derive(Debug)]
pub(super) struct Starting<'a> {
    signal: &'a Arc<Signal>,
    /// The state to go back to.
    before: u64,
    state: u64,
    waited: Waited,
}

impl Signal {
    pub(super) fn create(shared: &Arc<Shared>, profiling: bool) -> Result<Self, Failure> {
        let event = || RawEvent::create(&shared.context, profiling);
        Ok(Self {
            shared: Arc::clone(shared),
            end: event()?,
            start: profiling.then(event).transpose()?,
            state: AtomicU64::new(IDLE),
            inner: Mutex::default(),
        })
    }

    pub(super) fn status(self: &Arc<Self>) -> EventStatus {
        let state = self.state.load(Ordering::Acquire);
        match state % PHASES {
            IDLE => EventStatus::Idle,
            STARTING => EventStatus::Pending,
            COMPLETE => EventStatus::Complete,
            FAILED => self.failed(state),
            _ => self.poll(state),
        }
    }

    /// The outcome of the current use, for whoever waits for it, and whether there is one.
    pub(super) fn outcome(&self) -> Option<Arc<Outcome>> {
        let inner = self.inner.lock();
        (self.state.load(Ordering::Acquire) % PHASES != IDLE).then(|| Arc::clone(&inner.outcome))
    }

    fn failed(&self, state: u64) -> EventStatus {
        let inner = self.inner.lock();
        match inner.outcome.get() {
            Some(Some(error)) if self.state.load(Ordering::Acquire) == state => {
                EventStatus::Failed(error.clone())
            }
            // Signalled anew between the two looks.
            _ => EventStatus::Pending,
        }
    }

    /// Asks the driver about the use of this state, and settles it where it is over.
    fn poll(&self, state: u64) -> EventStatus {
        // The first link is not part of a chain's list, which would count references at every poll.
        while let Link::Needs(dependency) = self.step(state) {
            if !chain::settle(dependency, Self::step_of) {
                return EventStatus::Pending;
            }
        }
        let state = self.state.load(Ordering::Acquire);
        match state % PHASES {
            COMPLETE => EventStatus::Complete,
            FAILED => self.failed(state),
            _ => EventStatus::Pending,
        }
    }

    fn step_of((signal, outcome): &Dependency) -> Link<Dependency> {
        let state = signal.state.load(Ordering::Acquire);
        // What a later use of the event does is of no interest.
        let is_current = Arc::ptr_eq(&signal.inner.lock().outcome, outcome);
        match state % PHASES {
            PENDING | BROKEN | TICKING if is_current && outcome.get().is_none() => signal.step(state),
            _ => Link::Settled,
        }
    }

    /// Settles the use of this state if it is over, and how all uses ended that it depends on is known.
    fn step(&self, state: u64) -> Link<Dependency> {
        let context = &self.shared.context;
        let lost = match context.lost() {
            Some(lost) => Some(lost.clone()),
            None => match self.is_over(state) {
                Ok(true) => None,
                Ok(false) => return Link::Pending,
                Err(failure) => {
                    let error = context.error(failure);
                    // Any other failure is one of the query: it says nothing about the work, which
                    // may still run.
                    if error.kind() != ErrorKind::DeviceLost {
                        tracing::trace!(target: "wakegraph::cuda", %error, "an event could not be queried");
                        return Link::Pending;
                    }
                    Some(error)
                }
            },
        };
        let mut inner = self.inner.lock();
        if self.state.load(Ordering::Acquire) != state {
            // Another thread has settled it meanwhile.
            return Link::Settled;
        }
        let open = inner.waited.iter().find(|(_, outcome)| outcome.get().is_none());
        if let (None, Some(dependency)) = (&lost, open) {
            return Link::Needs(dependency.clone());
        }
        let inherited = || inner.waited.iter().find_map(|(_, outcome)| outcome.get().cloned().flatten());
        let failure = lost.or_else(inherited).or_else(|| inner.broken.clone());
        inner.times.set_seen();
        let phase = if failure.is_some() { FAILED } else { COMPLETE };
        // Nobody else sets it: this is done once a use, with the lock held.
        let _ = inner.outcome.set(failure);
        let released =
            (std::mem::take(&mut inner.waited), inner.kept.take(), inner.broken.take(), inner.tick.take());
        self.state.store(state - state % PHASES + phase, Ordering::Release);
        drop(inner);
        drop(released);
        Link::Settled
    }

    fn is_over(&self, state: u64) -> Result<bool, Failure> {
        let stream = {
            let mut inner = self.inner.lock();
            if state % PHASES == PENDING {
                let passed =
                    inner.queue.as_ref().map(|(_, stream)| stream.has_passed(inner.place, &self.end));
                return passed.unwrap_or(Ok(true));
            }
            if let Some((tick, run)) = &inner.tick {
                if tick.has_seen(*run) {
                    return Ok(true);
                }
                let now = Instant::now();
                let next = inner.next_query.unwrap_or(now + BETWEEN_QUERIES);
                if now < next {
                    inner.next_query = Some(next);
                    return Ok(false);
                }
                inner.next_query = Some(now + BETWEEN_QUERIES);
            }
            inner.queue.as_ref().map(|(_, stream)| Arc::clone(stream))
        };
        stream.map_or(Ok(true), |stream| stream.is_idle())
    }

    /// Begins a use.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) while the last one is pending.
    pub(super) fn begin(signal: &Arc<Self>) -> Result<Starting<'_>> {
        let pending = || {
            Err(Error::new(ErrorKind::InvalidOperation, "the event to signal is still pending")
                .help("wait for the event, or signal another one"))
        };
        let before = signal.state.load(Ordering::Acquire);
        let final_or_idle = |state| matches!(state % PHASES, IDLE | COMPLETE | FAILED);
        let before = if final_or_idle(before) {
            before
        } else {
            signal.status();
            signal.state.load(Ordering::Acquire)
        };
        if !final_or_idle(before) {
            return pending();
        }
        let state = before - before % PHASES + PHASES + STARTING;
        match signal.state.compare_exchange(before, state, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(Starting { signal, before, state, waited: Waited::new() }),
            Err(_) => pending(),
        }
    }

    /// Makes `stream`, of the queue with this id, come after the current use. Gives the failure of
    /// a use that has failed. The caller has bound the stream's context.
    ///
    /// # Errors
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) when there has been none; the driver's.
    pub(super) fn order_before(self: &Arc<Self>, queue: u64, stream: &Stream) -> Result<Option<Error>> {
        // To let the stream wait for what is complete costs less than to ask the driver whether it is.
        if !self.is_recorded() {
            match self.status() {
                EventStatus::Idle => {
                    return Err(Error::new(
                        ErrorKind::InvalidWaitList,
                        "an event in the wait list was never enqueued",
                    ));
                }
                EventStatus::Complete => return Ok(None),
                EventStatus::Failed(error) => return Ok(Some(error)),
                EventStatus::Pending => {}
            }
        }
        let inner = self.inner.lock();
        let on = match (&inner.queue, self.state.load(Ordering::Acquire) % PHASES) {
            // The queue's own order says as much.
            (Some((id, _)), _) if *id == queue => return Ok(None),
            (Some((_, on)), phase @ (BROKEN | TICKING)) => Some((Arc::clone(on), phase)),
            _ => None,
        };
        drop(inner);
        match on {
            Some((on, TICKING)) => self.record_late(&on, stream)?,
            Some((on, _)) => on.synchronize().map_err(|failure| self.shared.context.error(failure))?,
            None => stream.wait(&self.end)?,
        }
        Ok(None)
    }

    /// Whether the driver's event tells of the end of the current use, and nothing is known of a failure.
    fn is_recorded(&self) -> bool {
        if self.state.load(Ordering::Acquire) % PHASES != PENDING || self.shared.context.lost().is_some() {
            return false;
        }
        let inner = self.inner.lock();
        !inner.waited.iter().any(|(_, outcome)| matches!(outcome.get(), Some(Some(_))))
    }

    /// Whether nothing that signals it has been enqueued.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Acquire) % PHASES == IDLE
    }

    /// Makes `stream` come after everything on the stream `on`, this use included: nobody has
    /// recorded its event.
    fn record_late(&self, on: &Stream, stream: &Stream) -> Result<(), Failure> {
        let context = &self.shared.context;
        let event = {
            let _bound = context.bind()?;
            let event = RawEvent::create(context, false)?;
            event.record(on)?;
            event
        };
        stream.wait(&event)
    }

    /// Reads what is recorded of the times.
    pub(super) fn with_times<R>(&self, read: impl FnOnce(&Self, &Times) -> R) -> Option<R> {
        let inner = self.inner.lock();
        (self.state.load(Ordering::Acquire) % PHASES == COMPLETE).then(|| read(self, &inner.times))
    }

    pub(super) fn end(&self) -> &RawEvent {
        &self.end
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let signals = |waited: Waited| waited.into_iter().map(|(signal, _)| signal);
        let waited = std::mem::take(&mut self.inner.get_mut().waited);
        chain::release(signals(waited), |other| signals(std::mem::take(&mut other.inner.get_mut().waited)));
    }
}

impl<'a> Starting<'a> {
    /// This use fails if the current one of `other` does.
    pub(super) fn depend_on(&mut self, other: &Arc<Signal>) {
        if let Some(outcome) = other.outcome() {
            self.waited.push((Arc::clone(other), outcome));
        }
    }

    /// This use will have times, those of so many commands among them.
    pub(super) fn prepare_times(&self, commands: usize, base: Arc<Base>) -> Result<(), Failure> {
        self.signal.inner.lock().times.prepare(&self.signal.shared.context, commands, base)
    }

    pub(super) fn signal(&self) -> &'a Arc<Signal> {
        self.signal
    }

    /// Lends the places for the commands' times.
    pub(super) fn with_places<R>(&self, use_them: impl FnOnce(&[[RawEvent; 2]]) -> R) -> R {
        use_them(self.signal.inner.lock().times.places())
    }

    /// Nothing was enqueued: the event is as it was.
    pub(super) fn abandon(self) {
        self.signal.state.store(self.before, Ordering::Release);
    }

    /// Nothing was enqueued, as something it depends on has failed.
    pub(super) fn fail(self, error: Error) {
        let Self { signal, state, .. } = self;
        let mut inner = signal.inner.lock();
        inner.renew();
        let _ = inner.outcome.set(Some(error));
        signal.state.store(state - STARTING + FAILED, Ordering::Release);
    }

    /// Everything is on the stream.
    pub(super) fn enqueued(self, queue: (u64, &Arc<Stream>), timed: bool, kept: Option<Kept>, end: End) {
        let Self { signal, state, waited, .. } = self;
        let mut inner = signal.inner.lock();
        inner.renew();
        inner.waited = waited;
        inner.kept = kept;
        (inner.broken, inner.tick, inner.next_query) = (None, None, None);
        let phase = match end {
            End::Recorded(place) => {
                inner.place = place;
                PENDING
            }
            End::Broken(error) => {
                inner.broken = Some(error);
                BROKEN
            }
            End::Ticked(tick, run) => {
                inner.tick = Some((tick, run));
                TICKING
            }
        };
        if !timed {
            inner.times.clear();
        }
        match &mut inner.queue {
            Some((id, _)) if *id == queue.0 => {}
            place => *place = Some((queue.0, Arc::clone(queue.1))),
        }
        signal.state.store(state - STARTING + phase, Ordering::Release);
    }
}

impl Inner {
    /// A fresh outcome, in the old place if nobody else knows that.
    fn renew(&mut self) {
        match Arc::get_mut(&mut self.outcome) {
            Some(outcome) => *outcome = Outcome::new(),
            None => self.outcome = Arc::default(),
        }
    }
}
