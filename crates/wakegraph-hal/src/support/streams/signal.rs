//! Signals: one enqueue each, from the first sign of its end to the outcome that its event reports; the
//! contract's events, each with the signal of the last enqueue that named it; and the device as both need it.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::memory_stream::MemoryStream;
use super::pool::{StreamPool, StreamTurn};
use super::stream::{DeviceClock, DriverStream, ImportStreams, RawEvent, SignalTimes, StreamContext, now};
use super::{ContextFailure, DriverContext as _};
use crate::support::errors;
use crate::support::errors::FailedPolls;
use crate::support::signals::{
    Dependencies, EnqueueOutcome, EnqueueSignal, LastSignal, SettleStep, poll_until_final, release,
};
use crate::{
    Capabilities, CommandKinds, DeviceId, DeviceInfo, Error, Event, EventProfile, EventStatus, Result,
    UpdateCapabilities,
};

/// One enqueue.
///
/// The driver itself spreads faults: they end the whole context, or the process. What it does not spread
/// is kept here: an enqueue of which a part failed, and the failure of another device.
#[derive(Debug)]
pub(super) struct StreamSignal<D: StreamDevice> {
    device: Arc<D>,
    records: Arc<EventRecords<D::Context>>,
    stream: Arc<DriverStream<D::Context>>,
    end: SignalEnd<D::Counted>,
    /// The reason why the enqueue fails once its work has ended.
    failure: Option<Error>,
    loops: Option<D::Loops>,
    times: Option<SignalTimes<D::Context>>,
    failed_polls: FailedPolls,
    pending: Mutex<PendingSignal<D>>,
    outcome: EnqueueOutcome,
}

/// The driver's events of one event, which records them again for each signal.
#[derive(Debug)]
pub struct EventRecords<C: StreamContext> {
    /// Event behind the work.
    pub end: RawEvent<C>,
    /// Event before the work, with profiling.
    pub start: Option<RawEvent<C>>,
    /// Events before and after each command; enough for the signal with the most commands so far.
    pub commands: Mutex<Vec<[RawEvent<C>; 2]>>,
}

/// The sign of the end of an enqueue.
#[derive(Debug)]
pub(super) enum SignalEnd<R> {
    /// The driver's event, which is recorded behind the work and has this sequence number on its
    /// stream.
    Recorded(u64),
    /// The stream, which becomes idle. The event could not be recorded, so the enqueue fails with
    /// this.
    Broken(Error),
    /// A count that the host reads. The event is not recorded.
    Counted(R),
}

/// Everything that is needed until the outcome is known.
#[derive(Debug)]
struct PendingSignal<D: StreamDevice> {
    /// The signals whose results this one needs.
    needs: SignalNeeds<D>,
    /// The turn of its queue, to be given back.
    turn: Option<StreamTurn<D::Context>>,
    /// Objects that the device uses.
    kept: Option<Kept>,
    /// With a counted end: when to query the stream next.
    next_query: Option<Instant>,
    /// With times: when the end was seen.
    seen: u64,
}

/// The signals whose results one needs.
pub(super) type SignalNeeds<D> = Dependencies<Arc<StreamSignal<D>>>;

/// An object that the device uses until a signal is final.
pub type Kept = Arc<dyn Any + Send + Sync>;

/// A fault stops what counts runs. So while a count is awaited, the stream is queried this often, and the
/// first poll after that time notices that the device is lost. Most counted runs have ended before.
const BETWEEN_QUERIES: Duration = Duration::from_millis(1);

impl<C: StreamContext> EventRecords<C> {
    pub fn create(context: &Arc<C>, profiling: bool) -> Result<Self, ContextFailure<C>> {
        let event = || RawEvent::create(context, profiling);
        Ok(Self { end: event()?, start: profiling.then(event).transpose()?, commands: Mutex::default() })
    }

    /// Makes sure that there are events for so many commands.
    pub fn reserve(&self, context: &Arc<C>, commands: usize) -> Result<(), ContextFailure<C>> {
        let mut all = self.commands.lock();
        while all.len() < commands {
            let event = || RawEvent::create(context, true);
            all.push([event()?, event()?]);
        }
        Ok(())
    }
}

impl<D: StreamDevice> StreamSignal<D> {
    /// An enqueue that is on the stream.
    pub(super) fn new(
        device: &Arc<D>,
        records: &Arc<EventRecords<D::Context>>,
        stream: &Arc<DriverStream<D::Context>>,
        end: SignalEnd<D::Counted>,
        times: Option<SignalTimes<D::Context>>,
        needs: SignalNeeds<D>,
        kept: Option<Kept>,
    ) -> Self {
        Self {
            device: Arc::clone(device),
            records: Arc::clone(records),
            stream: Arc::clone(stream),
            end,
            failure: None,
            loops: None,
            times,
            failed_polls: FailedPolls::default(),
            pending: Mutex::new(PendingSignal { needs, turn: None, kept, next_query: None, seen: 0 }),
            outcome: EnqueueOutcome::default(),
        }
    }

    /// Fails it once its work has ended, if there is a reason.
    pub(super) fn failing(mut self, failure: Option<Error>) -> Self {
        self.failure = failure;
        self
    }

    /// Gives this turn back when the work has ended.
    pub(super) fn in_turn(mut self, turn: StreamTurn<D::Context>) -> Self {
        self.pending.get_mut().turn = Some(turn);
        self
    }

    /// Gives it these loops.
    pub(super) fn with_loops(mut self, loops: Option<D::Loops>) -> Self {
        self.loops = loops;
        self
    }

    /// Asks its loops to begin no further iteration.
    pub(super) fn stop(&self) {
        self.loops.iter().for_each(|loops| loops.stop());
    }

    /// Whether the work has ended; `None` if that is not known, and the driver was not asked.
    fn is_over(&self, pending: &mut PendingSignal<D>) -> Result<Option<bool>, ContextFailure<D::Context>> {
        match &self.end {
            SignalEnd::Recorded(sequence) => {
                self.stream.has_completed(*sequence, &self.records.end).map(Some)
            }
            SignalEnd::Broken(_) => self.stream.is_idle().map(Some),
            SignalEnd::Counted(run) if run.is_over() => Ok(Some(true)),
            SignalEnd::Counted(_) => {
                let now = Instant::now();
                let is_due = pending.next_query.is_some_and(|next| next <= now);
                if is_due || pending.next_query.is_none() {
                    pending.next_query = Some(now + BETWEEN_QUERIES);
                }
                is_due.then(|| self.stream.is_idle()).transpose()
            }
        }
    }

    /// Whether the driver's event tells of the end, and no failure is known.
    fn is_recorded(&self) -> bool {
        matches!(self.end, SignalEnd::Recorded(_))
            && self.failure.is_none()
            && !self.outcome.is_known()
            && self.pending.lock().needs.failure().is_none()
    }

    /// Makes later work on the stream come after this enqueue. Returns why it has failed, if that
    /// is known. The caller has bound the stream's context.
    pub(super) fn order_before(&self, stream: &Arc<DriverStream<D::Context>>) -> Result<Option<Error>> {
        self.order_by(Arc::ptr_eq(&self.stream, stream), |event| Ok(stream.wait(event)?))
    }

    /// Orders as [`order_before`](Self::order_before) does: `wait` makes later work on the stream wait for an
    /// event.
    pub(super) fn order_by(
        &self,
        is_same_stream: bool,
        wait: impl FnOnce(&RawEvent<D::Context>) -> Result<()>,
    ) -> Result<Option<Error>> {
        let context = self.device.context();
        // A wait for a complete event takes less time than a query whether it is.
        if context.health().lost().is_some() || !self.is_recorded() {
            match self.status() {
                EventStatus::Failed(error) => return Ok(Some(error)),
                EventStatus::Pending => {}
                EventStatus::Complete | EventStatus::Idle => return Ok(None),
            }
        }
        match &self.end {
            // The stream is in order.
            _ if is_same_stream => {}
            SignalEnd::Recorded(_) => wait(&self.records.end)?,
            SignalEnd::Broken(_) => self.stream.synchronize().map_err(|failure| context.error(failure))?,
            // The event is not recorded, so one is recorded now, behind everything on the stream.
            SignalEnd::Counted(_) => {
                let event = {
                    let _bound = context.bind()?;
                    // A poll that sees the end gives back the stream, which another queue may then capture.
                    let _pending = self.pending.lock();
                    if self.outcome.is_known() {
                        return Ok(self.outcome.failure().cloned());
                    }
                    RawEvent::recorded_on(&self.stream)?
                };
                wait(&event)?;
            }
        }
        Ok(None)
    }

    /// The times, if it has any. It is complete.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let EventRecords { end, start, commands } = &*self.records;
        let (times, start) = self.times.as_ref().zip(start.as_ref()).ok_or_else(errors::no_times)?;
        let seen = self.pending.lock().seen;
        let read = times.read(seen, [start, end], &commands.lock());
        read.map_err(|failure| self.device.context().error(failure))
    }
}

impl<D: StreamDevice> EnqueueSignal for StreamSignal<D> {
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
        let context = self.device.context();
        let mut pending = self.pending.lock();
        if self.outcome.is_known() {
            // Another thread was faster, and the event may have been recorded again since.
            return SettleStep::Settled;
        }
        let lost = context.health().lost();
        let mut unloaded = None;
        if lost.is_none() {
            match self.is_over(&mut pending) {
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    self.failed_polls.reset();
                    return SettleStep::Pending;
                }
                Ok(None) => return SettleStep::Pending,
                // The process exits: the device is as good as before, and no further report will come.
                Err(failure) if failure.is_unloaded() => unloaded = Some(context.error(failure)),
                Err(failure) => {
                    // Without the lock, as this logs.
                    drop(pending);
                    let lost = context.health().poll_failed(&self.failed_polls, failure);
                    return if lost.is_some() { self.attempt() } else { SettleStep::Pending };
                }
            }
            if unloaded.is_none()
                && let Some(needed) = pending.needs.first_open()
            {
                // The device has run this behind it. Of another device a query tells whether it is lost.
                if let SignalEnd::Recorded(sequence) = needed.end
                    && Arc::ptr_eq(&needed.device, &self.device)
                {
                    needed.stream.note_completed(sequence);
                }
                return SettleStep::Needs(needed);
            }
        }
        if self.times.is_some() {
            pending.seen = now();
        }
        let broken = if let SignalEnd::Broken(error) = &self.end { Some(error) } else { None };
        let broken = self.failure.as_ref().or(broken).or(unloaded.as_ref());
        let is_stopped = self.loops.as_ref().is_some_and(|loops| loops.have_been_stopped());
        let failure = lost.or(pending.needs.failure()).or(broken).cloned();
        // Under the lock: a thread that finds no dependencies finds the outcome known.
        self.outcome.set(failure.or_else(|| is_stopped.then(|| context.error(errors::stopped_loop()))));
        let (needs, kept) = (std::mem::take(&mut pending.needs), pending.kept.take());
        let turn = pending.turn.take();
        drop((pending, needs));
        match context.health().may_still_run() {
            // The turn does not end either, so that an update keeps what it replaces.
            true => std::mem::forget(kept),
            false => turn.into_iter().for_each(StreamTurn::give_back),
        }
        SettleStep::Settled
    }
}

impl<D: StreamDevice> Drop for StreamSignal<D> {
    fn drop(&mut self) {
        let needs = |signal: &mut Self| std::mem::take(&mut signal.pending.get_mut().needs);
        release(needs(self), needs);
    }
}

/// An event. Enqueued work does not need it, so it may be dropped before that ends.
#[derive(Debug)]
pub(super) struct StreamEvent<D: StreamDevice> {
    device: Arc<D>,
    records: Arc<EventRecords<D::Context>>,
    signal: LastSignal<StreamSignal<D>>,
}

impl<D: StreamDevice> StreamEvent<D> {
    pub(super) fn create(device: &Arc<D>, profiling: bool) -> Result<Self, ContextFailure<D::Context>> {
        let records = Arc::new(EventRecords::create(device.context(), profiling)?);
        Ok(Self { device: Arc::clone(device), records, signal: LastSignal::default() })
    }

    /// An event with a signal.
    pub(super) fn signalled(
        device: &Arc<D>,
        records: &Arc<EventRecords<D::Context>>,
        signal: StreamSignal<D>,
    ) -> Self {
        let (device, records) = (Arc::clone(device), Arc::clone(records));
        Self { device, records, signal: LastSignal::new(signal) }
    }

    /// The event behind `event`, if it is one of `device`.
    pub(super) fn of<'a>(event: &'a dyn Event, device: &Arc<D>) -> Result<&'a Self> {
        let event = event.downcast_ref::<Self>();
        event.filter(|event| Arc::ptr_eq(&event.device, device)).ok_or_else(|| errors::foreign("event"))
    }

    /// The signal that a wait for this event means now.
    pub(super) fn last_signal(&self) -> Option<Arc<StreamSignal<D>>> {
        self.signal.get()
    }

    /// The driver's events.
    pub(super) fn records(&self) -> &Arc<EventRecords<D::Context>> {
        &self.records
    }

    /// # Errors
    /// As [`LastSignal::check_not_pending`].
    pub(super) fn check_not_pending(&self) -> Result<()> {
        self.signal.check_not_pending()
    }

    /// Gives the event the signal of what `enqueue` enqueues.
    ///
    /// # Errors
    /// As [`LastSignal::signal_by`].
    pub(super) fn signal_by(
        &self,
        enqueue: impl FnOnce(&Arc<EventRecords<D::Context>>) -> Result<StreamSignal<D>>,
    ) -> Result<()> {
        self.signal.signal_by(|| enqueue(&self.records)).map(drop)
    }
}

impl<D: StreamDevice> Event for StreamEvent<D> {
    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    /// The driver's own wait has no time limit, so this polls.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.last_signal() else { return EventStatus::Idle };
        poll_until_final(timeout, || signal.status())
    }

    fn stop(&self) {
        if let Some(signal) = self.last_signal() {
            signal.stop();
        }
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(errors::times_before_completion)?.profile()
    }
}

/// The part of a device that all its objects share and keep alive.
pub trait StreamDevice: Debug + Send + Sync + Sized + 'static {
    /// The driver's context.
    type Context: StreamContext;
    /// A count that may tell of the end of a run instead of an event.
    type Counted: CountedEnd;
    /// The loops of a run about which the device decides by itself.
    type Loops: StoppableLoops;

    /// The parts of the device that are the same for every driver.
    fn parts(&self) -> &DeviceParts<Self::Context>;

    /// The device's id.
    fn id(&self) -> DeviceId {
        self.parts().info.id
    }

    /// The driver's context of this device.
    fn context(&self) -> &Arc<Self::Context>;

    /// Stream for allocations, reads and writes, which must not queue behind the user's work.
    fn memory_stream(&self) -> &MemoryStream<Self::Context>;
}

/// The parts of a device that are the same for every driver.
#[derive(Debug)]
pub struct DeviceParts<C: StreamContext> {
    /// Name, driver and size of the device.
    pub info: DeviceInfo,
    /// Capabilities of the device.
    pub capabilities: Capabilities,
    /// The devices that may use this device's memory.
    pub(super) peers: PeerAccess,
    /// Converts the device's times to the host's.
    pub(super) clock: DeviceClock<C>,
    /// The streams of its queues.
    pub(super) streams: Arc<StreamPool<C>>,
    /// Where events of other libraries are waited for.
    pub(super) import_streams: ImportStreams<C>,
}

impl<C: StreamContext> DeviceParts<C> {
    /// The parts of a device with this context.
    pub fn new(
        info: DeviceInfo,
        capabilities: Capabilities,
        context: &Arc<C>,
    ) -> Result<Self, ContextFailure<C>> {
        let (clock, streams) = (DeviceClock::create(context)?, Arc::new(StreamPool::new(context)));
        let import_streams = ImportStreams::default();
        Ok(Self { info, capabilities, peers: PeerAccess::default(), clock, streams, import_streams })
    }
}

/// The capabilities that all devices of drivers with streams and graphs have, with these commands. The
/// limits of launches and of memory are the device's own.
pub fn stream_capabilities(commands: CommandKinds) -> Capabilities {
    Capabilities {
        update: UpdateCapabilities::all(),
        profiling: true,
        batches: true,
        queue_priorities: true,
        stream_tasks: true,
        concurrent_parts: true,
        global_offset: true,
        ..Capabilities::new(commands)
    }
}

/// The devices with these ids that may use a device's memory, each with the number of allocations that its
/// streams come behind, and those that may not.
#[derive(Default, Debug)]
pub(super) struct PeerAccess(Mutex<HashMap<DeviceId, Option<u64>>>);

impl PeerAccess {
    /// Whether `user` may use the memory that there is now. The first call has `open` make it so, where the
    /// hardware can; each call has `order` put what `user` does behind the allocations. A failure counts as
    /// no, and the next call tries again.
    pub(super) fn is_open_to<E: Into<Error>>(
        &self,
        user: DeviceId,
        open: impl FnOnce() -> Result<bool, E>,
        order: impl FnOnce(&mut u64) -> Result<(), E>,
    ) -> bool {
        self.try_open(user, open, order).unwrap_or_else(|failure| {
            let error: Error = failure.into();
            tracing::debug!(target: "wakegraph", %error, "no peer access");
            false
        })
    }

    fn try_open<E>(
        &self,
        user: DeviceId,
        open: impl FnOnce() -> Result<bool, E>,
        order: impl FnOnce(&mut u64) -> Result<(), E>,
    ) -> Result<bool, E> {
        let mut peers = self.0.lock();
        let behind = match peers.entry(user) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(open()?.then_some(0)),
        };
        behind.as_mut().map_or(Ok(false), |behind| order(behind).map(|()| true))
    }
}

/// A backend's report on work that it has put on a stream.
#[derive(Debug)]
pub struct Started<D: StreamDevice> {
    /// Tells of the end of the work in the place of an event.
    pub counted: Option<D::Counted>,
    /// The loops in the work, if there are some.
    pub loops: Option<D::Loops>,
    /// The reason why the enqueue fails once the work on the stream has ended: the rest could not be
    /// launched.
    pub failure: Option<Error>,
}

impl<D: StreamDevice> Default for Started<D> {
    fn default() -> Self {
        Self { counted: None, loops: None, failure: None }
    }
}

/// The loops of one run.
pub trait StoppableLoops: Debug + Send + Sync {
    /// Asks them to begin no further iteration.
    fn stop(&self);

    /// Whether one of them has ended because it was asked to. The run has ended.
    fn have_been_stopped(&self) -> bool;
}

/// Of drivers whose devices decide about no loops.
impl StoppableLoops for Infallible {
    fn stop(&self) {
        match *self {}
    }

    fn have_been_stopped(&self) -> bool {
        match *self {}
    }
}

/// A run whose end the host sees without a call of the driver's.
pub trait CountedEnd: Debug + Send + Sync {
    /// Returns true once the counted work has ended.
    fn is_over(&self) -> bool;
}

/// Of drivers where only events tell.
impl CountedEnd for Infallible {
    fn is_over(&self) -> bool {
        match *self {}
    }
}
