//! Events: the outcome that the backend's event reports, the slot of a run, and the driver's events.
//!
//! The runs of a slot follow each other and are numbered. The next one may start when the one
//! before has ended and nothing [waits](EventWait) for the event. So a wait for an event means the
//! signal before the wait, although the driver's event is read later; and an earlier run is known to
//! have ended, whatever the event has come to mean since.
#![expect(unsafe_code, reason = "calls the driver")]

use std::fmt::{self, Debug};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::support::errors::FailedPolls;
use wakegraph_hal::support::errors::no_times;
use wakegraph_hal::support::signals::{
    Dependencies, DriverSignal, EnqueueOutcome, EnqueueSignal, JoinedTimes, SettleStep, SignalEvent, release,
};
use wakegraph_hal::{
    CommandTimes, Error, ErrorKind, EventProfile, EventStatus, Memory as _, MemoryDesc, MemoryKind, Result,
};

use super::context::{DriverEventKind, LevelZeroContext};
use super::lower::DriverList;
use super::memory::LevelZeroMemory;
use super::sys::{self, Api, DriverResult, Event, Owned, call, get};

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

/// Something that is only kept until an enqueue has ended.
type Kept = Box<dyn Debug + Send + Sync>;

/// Objects that an enqueue uses until it has ended.
#[derive(Default, Debug)]
pub(super) struct SignalUses {
    /// Signals that were pending when this one was enqueued behind them.
    pub(super) dependencies: Dependencies<Arc<LevelZeroSignal>>,
    /// Signals that it only comes after.
    pub(super) order: SmallVec<[Arc<LevelZeroSignal>; 2]>,
    /// The driver's events that it waits for.
    pub(super) waits: SmallVec<[EventWait; 2]>,
    /// Objects of the driver that run only once.
    pub(super) kept: Option<Kept>,
}

impl SignalUses {
    fn is_empty(&self) -> bool {
        self.dependencies.is_empty() && self.order.is_empty() && self.waits.is_empty() && self.kept.is_none()
    }
}

/// Result of a poll.
enum SignalPoll {
    Ended,
    Pending,
    /// The device is lost.
    Lost(Error),
}

/// Values of a signal whose enqueue has been handed over.
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

    /// Becomes the signal of another enqueue. It has ended, and nothing refers to it.
    #[inline]
    fn renew(&mut self, new: NewSignal<'_>) {
        let NewSignal { slot, number, queue, failure, times, uses, has_uses } = new;
        self.run.set(slot, number);
        (self.queue, self.failure, self.times) = (queue, failure, times);
        self.has_uses = has_uses;
        // Those of the signal before are gone: it has ended.
        if let Some(uses) = uses {
            *self.uses.get_mut() = std::mem::take(uses);
        }
        self.failed_polls.reset();
        self.outcome = EnqueueOutcome::default();
    }

    /// Whether it succeeds as soon as the driver says that it has ended.
    fn is_plain(&self) -> bool {
        !self.has_uses && self.failure.is_none()
    }

    /// Whether it uses anything until it has ended.
    pub(super) fn has_uses(&self) -> bool {
        self.has_uses
    }

    /// Keeps this until the enqueue has ended.
    pub(super) fn keep(&self, once: Kept) {
        self.uses.lock().kept = Some(once);
    }

    fn context(&self) -> &Arc<LevelZeroContext> {
        self.run.slot.event.context()
    }

    /// Whether the enqueue has ended, as the driver says, or because its device is lost: then why.
    #[inline]
    fn poll(&self) -> SignalPoll {
        match self.run.has_ended() {
            Ok(true) => {
                self.times.iter().for_each(|times| _ = times.note_end());
                SignalPoll::Ended
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
            SignalPoll::Ended => EventStatus::Complete,
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
            SignalPoll::Ended => None,
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
        let unused = (!uses.is_empty()).then(|| std::mem::take(&mut *uses));
        drop(uses);
        if is_lost {
            std::mem::forget(unused)
        } else {
            drop(unused)
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
        if !self.outcome.is_known() && !matches!(self.run.has_ended(), Ok(true)) {
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

/// The base of the times of one signal.
#[derive(Debug)]
pub(super) struct LevelZeroTimes {
    /// Time at which it was enqueued, in nanoseconds.
    submitted: u64,
    /// Time of the enqueue on the host's clock.
    enqueued: Instant,
    /// Time from then until a poll first found it ended.
    took: OnceLock<Duration>,
    /// Number of commands that have times of their own.
    commands: usize,
    /// Whether anything runs.
    has_work: bool,
}

impl LevelZeroTimes {
    /// Begins the times of a signal that is being enqueued now.
    pub(super) fn begin(
        context: &LevelZeroContext,
        commands: Option<usize>,
        has_work: bool,
    ) -> DriverResult<Self> {
        let (submitted, enqueued) = (context.now()?, Instant::now());
        let (took, commands) = (OnceLock::new(), commands.unwrap_or(0));
        Ok(Self { submitted, enqueued, took, commands, has_work })
    }

    /// It has ended, and no longer than a poll ago.
    fn note_end(&self) -> Duration {
        *self.took.get_or_init(|| self.enqueued.elapsed())
    }

    /// The times, from the events and stamps of the run, which has ended. The host's reading of the
    /// clock and the stamps of the device differ a little, so the order of times is enforced.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) when the run may have taken longer than the
    /// stamps of the device count up to.
    pub(super) fn read(&self, context: &Arc<LevelZeroContext>, slot: &RunSlot) -> Result<EventProfile> {
        let submitted = self.submitted;
        let span = u64::try_from(self.note_end().as_nanos()).unwrap_or(u64::MAX);
        let time = context.kernel_times(submitted, span).ok_or_else(|| {
            let why = "the run may have taken longer than the timestamps of the device count up to";
            Error::new(ErrorKind::FeatureNotSupported, why)
        })?;
        let last = slot.event.times().map_err(Error::from)?;
        let first = match &slot.begin {
            Some(begin) if self.has_work => begin.times().map_err(Error::from)?,
            _ => last,
        };
        let start = time(first.global.kernelEnd).max(submitted);
        let end = time(last.global.kernelEnd).max(start);
        let mut commands = JoinedTimes::new(self.commands);
        if let Some(stamps) = &slot.stamps {
            for (&command, [from, to]) in stamps.commands.iter().zip(stamps.read()?) {
                let from = time(from).clamp(start, end);
                commands.add(command, CommandTimes::new(from, time(to).clamp(from, end)));
            }
        }
        Ok(EventProfile { submitted, start, end, commands: commands.finish(start) })
    }
}

/// The driver's events of one run at a time, and the lists that are made for them.
#[derive(Debug)]
pub(super) struct RunSlot {
    kind: DriverEventKind,
    /// Signalled when the run has ended.
    pub(super) event: PooledEvent,
    /// With times: signalled when what the run waits for has ended.
    pub(super) begin: Option<PooledEvent>,
    /// In the lowering by execution, has the run wait; recorded for each run that needs it. In the
    /// other one it is empty.
    pub(super) prefix: Mutex<Option<DriverList>>,
    /// Runs behind the lists of the run, and signals the event.
    pub(super) suffix: Option<DriverList>,
    /// Place where the suffix leaves the times of the commands.
    pub(super) stamps: Option<StampBuffer>,
    /// The number of the last run. Changed only under the lock of the command-buffer or queue.
    started: AtomicU64,
    /// The number of the last run that has been seen to have ended.
    ended: AtomicU64,
    /// The number of [waits](EventWait).
    waits: AtomicUsize,
}

/// One run of a slot.
#[derive(Clone, Debug)]
pub(super) struct SlotRun {
    pub(super) slot: Arc<RunSlot>,
    number: u64,
}

/// A wait for the driver's event of a run, on the device or of a thread. While there is one, the
/// slot has no other run, and the event keeps its meaning.
#[derive(Debug)]
pub(super) struct EventWait(Arc<RunSlot>);

/// The times of the commands of a run, as the device writes them.
#[derive(Debug)]
pub(super) struct StampBuffer {
    memory: LevelZeroMemory,
    /// The command that each is of.
    pub(super) commands: Arc<[u32]>,
}

impl StampBuffer {
    pub(super) fn new(context: &Arc<LevelZeroContext>, commands: &Arc<[u32]>) -> Result<Self> {
        let len = commands.len() * size_of::<sys::ze_kernel_timestamp_result_t>();
        let desc = MemoryDesc::new(len.max(1), MemoryKind::Host);
        Ok(Self { memory: LevelZeroMemory::allocate(context, &desc)?, commands: Arc::clone(commands) })
    }

    pub(super) fn address(&self) -> usize {
        self.memory.address()
    }

    /// The begin and end of each, in cycles of the clock.
    #[expect(unsafe_code, reason = "reads what the device has written")]
    pub(super) fn read(&self) -> Result<Vec<[u64; 2]>> {
        let mut words = vec![0_u64; 4 * self.commands.len()];
        // SAFETY: the run has ended, so nothing writes the memory.
        unsafe { self.memory.read(0, bytemuck::cast_slice_mut(&mut words)) }?;
        // Begin and end on the device's clock, and then on that of the context.
        Ok(words.chunks_exact(4).map(|stamp| [stamp[0], stamp[1]]).collect())
    }
}

impl RunSlot {
    pub(super) fn new(context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<Self> {
        let begin = (kind == DriverEventKind::Timed).then(|| PooledEvent::acquire(context, kind));
        Ok(Self {
            kind,
            event: PooledEvent::acquire(context, kind)?,
            begin: begin.transpose()?,
            prefix: Mutex::default(),
            suffix: None,
            stamps: None,
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
        })
    }

    /// Whether the run with this number has ended.
    #[inline]
    fn has_ended(&self, number: u64) -> DriverResult<bool> {
        let ended = self.ended.load(Ordering::SeqCst);
        if ended >= number { Ok(true) } else { self.ask(ended, number) }
    }

    /// Asks the driver whether the run with this number has ended. The one with the number `ended` is.
    fn ask(&self, ended: u64, number: u64) -> DriverResult<bool> {
        let has_ended = self.event.is_signalled()?;
        if has_ended {
            // Unless another thread has been faster. `started` is not behind `number`.
            let _ = self.ended.compare_exchange(ended, number, Ordering::SeqCst, Ordering::SeqCst);
        }
        Ok(has_ended)
    }

    /// Whether no run is going on.
    pub(super) fn is_idle(&self) -> DriverResult<bool> {
        self.has_ended(self.started.load(Ordering::Relaxed))
    }

    /// Whether nothing waits for the event, which nothing will any more once the slot is idle.
    pub(super) fn has_no_waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst) == 0
    }

    /// Says that a run has been handed over, and gives its number.
    pub(super) fn start(&self) -> u64 {
        let number = self.started.load(Ordering::Relaxed) + 1;
        self.started.store(number, Ordering::Relaxed);
        number
    }

    /// Prepares an idle slot without waits for another run.
    #[inline]
    pub(super) fn renew(&self) -> DriverResult {
        self.event.reset()?;
        self.begin.as_ref().map_or(Ok(()), PooledEvent::reset)
    }
}

impl SlotRun {
    pub(super) fn new(slot: Arc<RunSlot>, number: u64) -> Self {
        Self { slot, number }
    }

    /// Becomes another run: mostly one of the same slot, to which it has a reference already.
    #[inline]
    pub(super) fn set(&mut self, slot: &Arc<RunSlot>, number: u64) {
        if !Arc::ptr_eq(&self.slot, slot) {
            self.change_slot(slot);
        }
        self.number = number;
    }

    #[cold]
    fn change_slot(&mut self, slot: &Arc<RunSlot>) {
        self.slot = Arc::clone(slot);
    }

    /// Becomes the same run as another one.
    pub(super) fn set_to(&mut self, other: &Self) {
        self.set(&other.slot, other.number);
    }

    #[inline]
    pub(super) fn has_ended(&self) -> DriverResult<bool> {
        self.slot.has_ended(self.number)
    }

    /// A wait for the run, unless it has been seen to have ended.
    pub(super) fn wait(&self) -> Option<EventWait> {
        let wait = EventWait::new(&self.slot);
        // In this order: a slot is used again only after its run has been seen to have ended, and then
        // no wait has been seen.
        (self.slot.ended.load(Ordering::SeqCst) < self.number).then_some(wait)
    }
}

impl EventWait {
    fn new(slot: &Arc<RunSlot>) -> Self {
        slot.waits.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(slot))
    }

    /// Gives up a slot whose events may still be signalled, by what is left of an enqueue that has failed.
    pub(super) fn forever(slot: &Arc<RunSlot>) {
        std::mem::forget(Self::new(slot));
    }

    pub(super) fn event(&self) -> &PooledEvent {
        &self.0.event
    }
}

impl Drop for EventWait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Slots that are used in turn.
#[derive(Debug, Default)]
pub(super) struct RunSlots(Vec<Arc<RunSlot>>);

impl RunSlots {
    /// The place of a slot for a run, if one is free.
    #[inline]
    pub(super) fn free(&mut self, kind: DriverEventKind) -> DriverResult<Option<usize>> {
        for (place, shared) in self.0.iter_mut().enumerate() {
            if shared.kind != kind || !shared.is_idle()? || !shared.has_no_waits() {
                continue;
            }
            // The times of a run stay where they are for as long as something refers to them.
            if kind == DriverEventKind::Timed && Arc::get_mut(shared).is_none() {
                continue;
            }
            shared.renew()?;
            return Ok(Some(place));
        }
        Ok(None)
    }

    /// Adds a slot, and gives its place.
    pub(super) fn add(&mut self, slot: RunSlot) -> usize {
        self.0.push(Arc::new(slot));
        self.0.len() - 1
    }

    pub(super) fn at(&self, place: usize) -> &Arc<RunSlot> {
        &self.0[place]
    }

    /// Whether no run is going on.
    #[inline]
    pub(super) fn are_idle(&self) -> DriverResult<bool> {
        for slot in &self.0 {
            if !slot.is_idle()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The event that lets the lists of a recording begin.
///
/// With the lowering by execution it is signalled between two runs, so that the next may begin at
/// once. The host resets it for a run that has to wait, whose prefix signals it again. With the other
/// lowering the main list signals it, for the list of the copy engine, and resets it in the end.
#[derive(Debug)]
pub(super) struct StartEvent {
    event: PooledEvent,
    /// With the lowering by execution: whether it is signalled while no run is going on. Changed
    /// only under the lock of the command-buffer.
    is_open: AtomicBool,
}

impl StartEvent {
    pub(super) fn new(context: &Arc<LevelZeroContext>) -> DriverResult<Self> {
        Ok(Self {
            event: PooledEvent::acquire(context, DriverEventKind::Plain)?,
            is_open: AtomicBool::new(false),
        })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_event_handle_t {
        self.event.raw()
    }

    /// Lets the next run begin at once. No run is going on.
    pub(super) fn open(&self) -> DriverResult {
        if !self.is_open.load(Ordering::Relaxed) {
            self.event.signal()?;
            self.is_open.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Has the next run wait until something signals the event. No run is going on.
    pub(super) fn close(&self) -> DriverResult {
        if self.is_open.load(Ordering::Relaxed) {
            self.event.reset()?;
            self.is_open.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Says that the run that has been handed over signals the event.
    pub(super) fn opens_by_itself(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }
}

/// An event that is used by one owner, and goes back to its pool when it is dropped. By then
/// nothing is going to signal it, and nothing waits for it.
#[derive(Debug)]
pub(super) struct PooledEvent {
    event: Option<Owned<Event>>,
    kind: DriverEventKind,
    context: Arc<LevelZeroContext>,
}

impl PooledEvent {
    /// An event that is not signalled, unless it counts.
    pub(super) fn acquire(context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<Self> {
        let (event, is_used) = context.events.take(context, kind)?;
        let event = Self { event: Some(event), kind, context: Arc::clone(context) };
        if is_used {
            event.reset()?;
        }
        Ok(event)
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_event_handle_t {
        self.event.as_ref().map_or(ptr::null_mut(), Owned::raw)
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    fn api(&self) -> &'static Api {
        self.context.api
    }

    /// Makes it not signalled. Nothing is going to signal it, and nothing waits for it.
    pub(super) fn reset(&self) -> DriverResult {
        if self.kind == DriverEventKind::Counting {
            return Ok(());
        }
        // SAFETY: the event is alive.
        unsafe { call!(self.api(), zeEventHostReset(self.raw())) }
    }

    /// Signals it from the host.
    pub(super) fn signal(&self) -> DriverResult {
        // SAFETY: the event is alive.
        unsafe { call!(self.api(), zeEventHostSignal(self.raw())) }
    }

    /// Blocks until it is signalled, or this time has passed. Gives whether it is signalled.
    pub(super) fn wait(&self, nanoseconds: u64) -> DriverResult<bool> {
        // SAFETY: the event is alive.
        match unsafe { call!(self.api(), zeEventHostSynchronize(self.raw(), nanoseconds)) } {
            Ok(()) => Ok(true),
            Err(failure) if failure.code == sys::ZE_RESULT_NOT_READY => Ok(false),
            Err(failure) => Err(failure),
        }
    }

    /// Whether it is signalled. Not by `zeEventQueryStatus`, which is to do the same: Intel's drivers without
    /// hardware answer only to this one.
    fn is_signalled(&self) -> DriverResult<bool> {
        self.wait(0)
    }

    /// The times of the command that has signalled it.
    pub(super) fn times(&self) -> DriverResult<sys::ze_kernel_timestamp_result_t> {
        // SAFETY: the event is alive.
        unsafe { get!(self.api(), zeEventQueryKernelTimestamp(self.raw())) }
    }
}

impl Drop for PooledEvent {
    fn drop(&mut self) {
        if let Some(event) = self.event.take() {
            self.context.events.give_back(event, self.kind);
        }
    }
}
