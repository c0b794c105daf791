//! Queues, and the one way in which anything is enqueued on them.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::append::AppendQueue;
use super::context::LevelZeroContext;
use super::event::LevelZeroEvent;
use super::event_pool::DriverEventKind;
use super::execute::ExecuteQueue;
use super::handover::{Handover, HandoverFailure};
use super::options::Lowering;
use super::profiling::LevelZeroTimes;
use super::recording::ListRecording;
use super::run_slot::{RunSlot, RunSlots, SlotRun};
use super::signal::{LevelZeroSignal, NewSignal, SignalUses};
use super::single_run::SingleRun;
use super::sys::{self, DriverResult, call};
use crate::hal::support::refusal::{foreign, foreign_wait};
use crate::hal::support::signals::{RenewedSignal as _, ResolvedWaitList};
use crate::hal::{Command, Event as _, Queue, QueueDesc, QueueOrder, Signal, WaitList};
use crate::types::{DeviceId, Error, Result};

/// A queue.
#[derive(Debug)]
pub(super) struct LevelZeroQueue {
    /// Tells it from others.
    id: u64,
    context: Arc<LevelZeroContext>,
    desc: QueueDesc,
    /// Held while enqueueing: an enqueue is several calls.
    state: Mutex<EnqueueState>,
}

#[derive(Debug)]
struct EnqueueState {
    driver: QueueDriver,
    /// On an in-order queue whose lists the driver does not order: the last enqueue, which the next
    /// has to come after.
    last: Option<LastEnqueue>,
}

/// The last enqueue on a queue.
#[derive(Debug)]
struct LastEnqueue {
    run: SlotRun,
    /// The signal, if it uses anything until it is over.
    signal: Option<Arc<LevelZeroSignal>>,
}

/// How a queue hands over.
#[derive(Debug)]
struct QueueDriver {
    lowering: LoweringQueue,
    /// For enqueues without a recording.
    marks: RunSlots,
}

/// What a queue is in each lowering.
#[derive(Debug)]
enum LoweringQueue {
    Append(AppendQueue),
    Execute(ExecuteQueue),
}

/// What to enqueue.
#[derive(Debug)]
pub(super) enum EnqueueWork<'a> {
    Run(RunRequest<'a>),
    /// A recording that runs only once, and is kept until that is over.
    Once(Box<SingleRun>),
    /// Only the signal, which fails if there is a reason.
    Nothing(Option<Error>),
}

/// A run of a recording to enqueue.
#[derive(Debug)]
pub(super) struct RunRequest<'a> {
    /// It is free.
    pub(super) recording: &'a mut ListRecording,
    /// The last run of the same commands, which must be over first; then this one.
    pub(super) last: &'a mut Option<LastRun>,
    /// How many commands have times of their own.
    pub(super) timed_commands: Option<usize>,
}

/// The last run of a command-buffer.
#[derive(Clone, Debug)]
pub(super) struct LastRun {
    pub(super) run: SlotRun,
    /// The queue that it was enqueued on.
    queue: u64,
}

impl LevelZeroQueue {
    pub(super) fn create(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let lowering = match context.lowering {
            Lowering::Append => LoweringQueue::Append(AppendQueue::new(context, desc)?),
            Lowering::Execute => LoweringQueue::Execute(ExecuteQueue::new(context, desc)?),
        };
        let driver = QueueDriver { lowering, marks: RunSlots::default() };
        let state = EnqueueState { driver, last: None };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, context: Arc::clone(context), desc, state: Mutex::new(state) })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &LevelZeroContext) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| queue.context.info.id == device.info.id).ok_or_else(|| foreign("queue"))
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    /// The event behind `event`, if it is one of this device.
    pub(super) fn own_event<'a>(&self, event: &'a Arc<dyn crate::hal::Event>) -> Result<&'a LevelZeroEvent> {
        let event = event.as_any().downcast_ref::<LevelZeroEvent>();
        event.filter(|event| event.device() == self.context.info.id).ok_or_else(|| foreign("event"))
    }

    /// Whether everything enqueued from now on comes after `signal` by the queue's order.
    fn follows(&self, signal: &LevelZeroSignal) -> bool {
        self.desc.order == QueueOrder::InOrder && signal.is_on(self.id)
    }

    /// Has an enqueue wait for the last run of the same commands, unless it does so by the queue's order.
    fn wait_for_last(&self, last: Option<&LastRun>, waits: &mut LevelZeroWaitList) -> DriverResult {
        let Some(LastRun { run, queue }) = last else { return Ok(()) };
        let is_ordered = self.desc.order == QueueOrder::InOrder && *queue == self.id;
        if !is_ordered && !run.is_over()? {
            waits.push(run);
        }
        Ok(())
    }

    /// The failure of a dependency in a wait list that has failed already.
    pub(super) fn failed_dependency(&self, wait: WaitList<'_>) -> Result<Option<Error>> {
        Ok(self.resolve(wait)?.failure)
    }

    fn resolve(&self, wait: WaitList<'_>) -> Result<ResolvedWaitList<LevelZeroSignal>> {
        ResolvedWaitList::of(wait, |event| {
            let event = event.as_any().downcast_ref::<LevelZeroEvent>();
            let event = event.filter(|event| self.context.can_wait_for(&event.context));
            Ok(&event.ok_or_else(foreign_wait)?.signal)
        })
    }

    fn add_wait_list(&self, wait: WaitList<'_>, waits: &mut LevelZeroWaitList) -> Result<()> {
        let resolved = self.resolve(wait)?;
        waits.failure = resolved.failure;
        for (signal, is_needed) in resolved.pending {
            if !self.follows(&signal) {
                waits.push(&signal.run);
            }
            let uses = waits.uses();
            if is_needed {
                uses.dependencies.push(signal);
            } else {
                uses.order.push(signal);
            }
        }
        Ok(())
    }

    /// Enqueues a run, or nothing but the signal.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::hal::CommandBuffer::enqueue).
    pub(super) unsafe fn submit(
        &self,
        work: EnqueueWork<'_>,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let context = &self.context;
        context.health()?;
        let event = self.own_event(signal.event)?;
        let mut waits = LevelZeroWaitList::default();
        if !wait.is_empty() {
            self.add_wait_list(wait, &mut waits)?;
        }
        let mut state = self.state.lock();
        let EnqueueState { driver, last } = &mut *state;
        if let Some(LastEnqueue { run, signal }) = last
            && !run.is_over().map_err(|failure| context.error(failure))?
        {
            waits.push(run);
            if let Some(signal) = signal {
                waits.uses().order.push(Arc::clone(signal));
            }
        }
        let mut timed_commands = None;
        if let EnqueueWork::Run(request) = &work {
            timed_commands = request.timed_commands;
            let waited = self.wait_for_last(request.last.as_ref(), &mut waits);
            waited.map_err(|failure| context.error(failure))?;
        }
        let is_ordered = self.desc.order == QueueOrder::InOrder && context.lowering == Lowering::Execute;
        let mut place = event.signal.open_place()?;
        let is_timed = timed_commands.is_some() || signal.timed || self.desc.profiling;
        let kind = driver.event_kind(context, &self.desc, is_timed);
        let has_work = !matches!(work, EnqueueWork::Nothing(_));
        let time = || LevelZeroTimes::begin(context, timed_commands, has_work);
        let times = is_timed.then(time).transpose().map_err(|failure| context.error(failure))?;
        let Started { slot, number, failure } = match (work, waits.failure.take()) {
            (EnqueueWork::Run(RunRequest { recording, last, .. }), None) => {
                // SAFETY: passed on to the caller.
                let started = unsafe { driver.run(context, recording, kind, &mut waits) }?;
                LastRun::set(last, &started, self.id);
                started
            }
            (EnqueueWork::Once(mut once), None) => {
                // SAFETY: passed on to the caller.
                let started = unsafe { driver.run(context, &mut once.recording, kind, &mut waits) }?;
                let started = started.into_owned();
                waits.uses().kept = Some(once);
                started
            }
            // What does not run keeps its place in the order.
            (EnqueueWork::Nothing(failure), inherited) => {
                driver.mark(context, kind, waits.events())?.failing(inherited.or(failure))
            }
            (_, failure) => driver.mark(context, kind, waits.events())?.failing(failure),
        };
        let times = times.filter(|_| failure.is_none());
        let uses = waits.pending.as_mut().map(|pending| &mut pending.uses);
        let new = NewSignal { slot, number, queue: self.id, failure, times, uses };
        let signal = LevelZeroSignal::put(new, &mut place);
        if is_ordered {
            LastEnqueue::set(last, signal);
        }
        Ok(())
    }
}

/// What has been handed over.
struct Started<'a> {
    slot: Cow<'a, Arc<RunSlot>>,
    number: u64,
    /// Why it fails, if it does.
    failure: Option<Error>,
}

impl<'a> Started<'a> {
    fn new(slot: &'a Arc<RunSlot>) -> Self {
        Self { slot: Cow::Borrowed(slot), number: slot.start(), failure: None }
    }

    fn failing(self, failure: Option<Error>) -> Self {
        Self { failure, ..self }
    }

    fn into_owned<'b>(self) -> Started<'b> {
        Started { slot: Cow::Owned(self.slot.into_owned()), ..self }
    }
}

impl LastRun {
    #[inline]
    fn set(last: &mut Option<Self>, started: &Started<'_>, queue: u64) {
        match last {
            Some(last) => {
                last.run.set(Cow::Borrowed(&started.slot), started.number);
                last.queue = queue;
            }
            None => {
                let run = SlotRun::new(Arc::clone(&started.slot), started.number);
                *last = Some(Self { run, queue });
            }
        }
    }
}

impl LastEnqueue {
    #[inline]
    fn set(last: &mut Option<Self>, signal: &Arc<LevelZeroSignal>) {
        let used = signal.has_uses().then(|| Arc::clone(signal));
        match last {
            Some(last) => {
                last.run.set_to(&signal.run);
                last.signal = used;
            }
            None => *last = Some(Self { run: signal.run.clone(), signal: used }),
        }
    }
}

impl QueueDriver {
    /// The kind of event that an enqueue signals.
    fn event_kind(&self, context: &LevelZeroContext, desc: &QueueDesc, is_timed: bool) -> DriverEventKind {
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
    unsafe fn run<'a>(
        &mut self,
        context: &LevelZeroContext,
        recording: &'a mut ListRecording,
        kind: DriverEventKind,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        let place = recording.take_slot(kind).map_err(|error| context.error(error))?;
        let slot = recording.slot(place);
        let handed = match &mut self.lowering {
            // SAFETY: passed on to the caller.
            LoweringQueue::Append(queue) => unsafe { queue.run(recording, slot, waits.events()) },
            // SAFETY: passed on to the caller.
            LoweringQueue::Execute(queue) => unsafe { queue.run(recording, slot, waits.events()) },
        };
        match handed {
            Ok(Handover::Whole) => Ok(Started::new(recording.slot(place))),
            Ok(Handover::WithoutCopies(failure)) => {
                if let Err(failure) = recording.skip_copies() {
                    let error = context.error(failure);
                    tracing::warn!(target: "wakegraph::level_zero", %error, "a run will not end");
                }
                Ok(Started::new(recording.slot(place)).failing(Some(context.error(failure))))
            }
            Err(HandoverFailure { failure, is_partial }) => {
                if is_partial {
                    recording.discard(place);
                    // What is on the device still waits for these events.
                    std::mem::forget(waits.pending.take());
                }
                Err(context.error(failure))
            }
        }
    }

    /// Signals a slot behind these events, and in its place in the queue's order.
    fn mark(
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
            self.marks.discard(place);
            return Err(context.error(failure));
        }
        Ok(Started::new(self.marks.at(place)))
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
struct LevelZeroWaitList {
    pending: Option<PendingWaits>,
    /// The failure of a dependency that has failed already.
    failure: Option<Error>,
}

/// What was pending when the wait list was read.
#[derive(Default)]
struct PendingWaits {
    /// As the driver takes them.
    events: SmallVec<[sys::ze_event_handle_t; 8]>,
    /// What the enqueue keeps until it is over. Failures of its dependencies are inherited.
    uses: SignalUses,
}

impl LevelZeroWaitList {
    /// Waits for a run, unless that is over.
    fn push(&mut self, run: &SlotRun) {
        if let Some(wait) = run.wait() {
            let pending = self.pending.get_or_insert_default();
            pending.events.push(wait.event().raw());
            pending.uses.waits.push(wait);
        }
    }

    fn events(&self) -> &[sys::ze_event_handle_t] {
        self.pending.as_ref().map_or(&[], |pending| &pending.events)
    }

    fn uses(&mut self) -> &mut SignalUses {
        &mut self.pending.get_or_insert_default().uses
    }
}

impl Queue for LevelZeroQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.context.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    /// A single command is a closed list of one command, too.
    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let context = &self.context;
        match &**command {
            // SAFETY: passed on to the caller.
            Command::StreamTask(task) => return unsafe { self.run_stream_task(task, wait, &signal) },
            // SAFETY: passed on to the caller.
            Command::Empty => return unsafe { self.submit(EnqueueWork::Nothing(None), wait, &signal) },
            _ => {}
        }
        let recorded = SingleRun::of_command(context, command).map_err(|error| context.error(error))?;
        // SAFETY: passed on to the caller.
        unsafe { self.submit(EnqueueWork::Once(recorded), wait, &signal) }
    }

    fn flush(&self) -> Result<()> {
        self.context.health()
    }

    fn finish(&self) -> Result<()> {
        let (api, state) = (self.context.api, self.state.lock());
        let finished = match &state.driver.lowering {
            LoweringQueue::Append(queue) => {
                let list = queue.main();
                // Others may enqueue meanwhile.
                drop(state);
                // SAFETY: the list lives as long as this queue.
                unsafe { call!(api, zeCommandListHostSynchronize(list, u64::MAX)) }
            }
            LoweringQueue::Execute(queue) => {
                let queues = queue.queues();
                drop(state);
                queues.into_iter().try_for_each(|queue| {
                    // SAFETY: the queues live as long as this one.
                    unsafe { call!(api, zeCommandQueueSynchronize(queue, u64::MAX)) }
                })
            }
        };
        finished.map_err(|failure| self.context.error(failure))
    }
}
