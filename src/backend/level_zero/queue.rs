//! Queues, and the one way in which anything is enqueued on them.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
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
use super::lower::lower;
use super::operation::LevelZeroOperation;
use super::options::Lowering;
use super::profiling::LevelZeroTimes;
use super::recording::ListRecording;
use super::run_slot::{RunSlot, RunSlots};
use super::signal::{LevelZeroSignal, SignalUses, StartedRun};
use super::sys::{self, call};
use crate::hal::support::command_list::CommandList;
use crate::hal::support::lowering::After;
use crate::hal::support::refusal::{foreign, foreign_wait};
use crate::hal::support::signals::{EnqueueSignal, ResolvedWaitList};
use crate::hal::{Command, CommandBufferDesc, Event as _, Queue, QueueDesc, QueueOrder, Signal, WaitList};
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
    driver: LoweringQueue,
    /// On an in-order queue whose lists the driver does not order: the last enqueue, which the next
    /// has to come after.
    last: Option<Arc<LevelZeroSignal>>,
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
    /// Only the signal, which fails if there is a reason.
    Nothing(Option<Error>),
}

/// A run of a recording to enqueue.
#[derive(Debug)]
pub(super) struct RunRequest<'a> {
    /// It is idle.
    pub(super) recording: &'a mut ListRecording,
    /// An earlier enqueue of the same commands, which must be over first.
    pub(super) previous: Option<&'a Arc<LevelZeroSignal>>,
    /// How many commands have times of their own.
    pub(super) timed_commands: Option<usize>,
}

impl LevelZeroQueue {
    pub(super) fn create(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let driver = match context.lowering() {
            Lowering::Append => LoweringQueue::Append(AppendQueue::new(context, desc)?),
            Lowering::Execute => LoweringQueue::Execute(ExecuteQueue::new(context, desc)?),
        };
        let state = EnqueueState { driver, last: None, marks: RunSlots::default() };
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

    pub(super) fn wait_list(&self, wait: WaitList<'_>) -> Result<LevelZeroWaitList> {
        if wait.events().next().is_none() {
            return Ok(LevelZeroWaitList::default());
        }
        let resolved = ResolvedWaitList::of(wait, |event| {
            let event = event.as_any().downcast_ref::<LevelZeroEvent>();
            let event = event.filter(|event| self.context.can_wait_for(&event.context));
            Ok(&event.ok_or_else(foreign_wait)?.signal)
        })?;
        let mut waits = LevelZeroWaitList { failure: resolved.failure, ..LevelZeroWaitList::default() };
        for (signal, is_needed) in resolved.pending {
            if !self.follows(&signal) {
                waits.push(&signal);
            }
            if is_needed {
                waits.uses.dependencies.push(signal);
            }
        }
        Ok(waits)
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
    ) -> Result<Arc<LevelZeroSignal>> {
        let context = &self.context;
        context.health()?;
        let event = self.own_event(signal.event)?;
        let mut waits = self.wait_list(wait)?;
        let mut state = self.state.lock();
        // A signal that is over is dropped, so that its event can use it again.
        state.last = state.last.take().filter(|last| !last.is_final());
        state.last.iter().for_each(|last| waits.push(last));
        let (previous, timed_commands) = match &work {
            EnqueueWork::Run(request) => (request.previous, request.timed_commands),
            EnqueueWork::Nothing(_) => (None, None),
        };
        if let Some(previous) = previous.filter(|previous| !self.follows(previous) && !previous.is_final()) {
            waits.push(previous);
        }
        let new = event.signal.signal_by(|| {
            let is_timed = timed_commands.is_some() || signal.timed || self.desc.profiling;
            let kind = state.event_kind(context, &self.desc, is_timed);
            let time = || LevelZeroTimes::begin(context, timed_commands, matches!(work, EnqueueWork::Run(_)));
            let times = is_timed.then(time).transpose().map_err(|failure| context.error(failure))?;
            let (slot, failure) = match (work, waits.failure.take()) {
                (EnqueueWork::Run(request), None) => {
                    // SAFETY: passed on to the caller.
                    let started = unsafe { state.run(context, request.recording, kind, &waits.events) };
                    started.map_err(|error| context.error(error))?
                }
                (EnqueueWork::Run(_), failure) => (state.mark(context, kind, &waits.events)?, failure),
                // What does not run keeps its place in the order.
                (EnqueueWork::Nothing(failure), inherited) => {
                    (state.mark(context, kind, &waits.events)?, inherited.or(failure))
                }
            };
            let times = times.filter(|_| failure.is_none());
            let work = StartedRun { slot, failure, times };
            Ok(LevelZeroSignal::new(context, self.id, work, waits.uses))
        })?;
        if self.desc.order == QueueOrder::InOrder && matches!(state.driver, LoweringQueue::Execute(_)) {
            state.last = Some(Arc::clone(&new));
        }
        Ok(new)
    }

    /// Enqueues a recording that runs only once.
    ///
    /// # Safety
    /// As for [`submit`](Self::submit).
    pub(super) unsafe fn run_once(
        &self,
        mut run: Box<SingleRun>,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let request = RunRequest { recording: &mut run.recording, previous: None, timed_commands: None };
        // SAFETY: passed on to the caller.
        let enqueued = unsafe { self.submit(EnqueueWork::Run(request), wait, signal) }?;
        enqueued.keep(run);
        Ok(())
    }
}

impl EnqueueState {
    /// The kind of event that an enqueue signals.
    fn event_kind(&self, context: &LevelZeroContext, desc: &QueueDesc, is_timed: bool) -> DriverEventKind {
        let counts = desc.order == QueueOrder::InOrder && context.features.counter_based_events;
        match &self.driver {
            _ if is_timed => DriverEventKind::Timed,
            LoweringQueue::Append(_) if counts => DriverEventKind::Counting,
            _ => DriverEventKind::Plain,
        }
    }

    /// Hands over a run. Gives its slot, and why it fails.
    ///
    /// # Safety
    /// As for [`LevelZeroQueue::submit`].
    unsafe fn run(
        &mut self,
        context: &LevelZeroContext,
        recording: &mut ListRecording,
        kind: DriverEventKind,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<(Arc<RunSlot>, Option<Error>)> {
        let slot = recording.slot(kind)?;
        let handed = match &mut self.driver {
            // SAFETY: passed on to the caller.
            LoweringQueue::Append(queue) => unsafe { queue.run(recording, &slot, waits) },
            // SAFETY: passed on to the caller.
            LoweringQueue::Execute(queue) => unsafe { queue.run(recording, &slot, waits) },
        };
        match handed {
            Ok(Handover::Whole) => {
                recording.started(&slot);
                Ok((slot, None))
            }
            Ok(Handover::WithoutCopies(failure)) => {
                recording.started(&slot);
                if let Err(failure) = recording.skip_copies() {
                    let error = context.error(failure);
                    tracing::warn!(target: "wakegraph::level_zero", %error, "a run will not end");
                }
                Ok((slot, Some(context.error(failure))))
            }
            Err(HandoverFailure { failure, is_partial }) => {
                if is_partial {
                    recording.discard(slot);
                }
                Err(failure.into())
            }
        }
    }

    /// Signals a slot behind these events, and in its place in the queue's order.
    fn mark(
        &mut self,
        context: &Arc<LevelZeroContext>,
        kind: DriverEventKind,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Arc<RunSlot>> {
        let slot = self.marks.take(kind, || RunSlot::new(context, kind));
        let slot = slot.map_err(|failure| context.error(failure))?;
        let marked = match &mut self.driver {
            LoweringQueue::Append(queue) => queue.mark(&slot, waits),
            LoweringQueue::Execute(queue) => queue.mark(&slot, waits),
        };
        if let Err(failure) = marked {
            // A part of it may be on the list.
            self.marks.discard(slot);
            return Err(context.error(failure));
        }
        slot.started();
        Ok(slot)
    }
}

/// A wait list as the driver takes it.
#[derive(Default)]
pub(super) struct LevelZeroWaitList {
    pub(super) events: SmallVec<[sys::ze_event_handle_t; 8]>,
    /// What the enqueue keeps until it is over. Failures of its dependencies are inherited.
    pub(super) uses: SignalUses,
    /// The failure of a dependency that has failed already.
    pub(super) failure: Option<Error>,
}

impl LevelZeroWaitList {
    /// Waits for a signal that is pending.
    fn push(&mut self, signal: &Arc<LevelZeroSignal>) {
        self.events.push(signal.event());
        self.uses.order.push(Arc::clone(signal));
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
            Command::Empty => {
                // SAFETY: passed on to the caller.
                unsafe { self.submit(EnqueueWork::Nothing(None), wait, &signal) }?;
                return Ok(());
            }
            _ => {}
        }
        let recorded = SingleRun::of_command(context, command).map_err(|error| context.error(error))?;
        // SAFETY: passed on to the caller.
        unsafe { self.run_once(recorded, wait, &signal) }
    }

    fn flush(&self) -> Result<()> {
        self.context.health()
    }

    fn finish(&self) -> Result<()> {
        let (api, state) = (self.context.api, self.state.lock());
        let finished = match &state.driver {
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

/// What runs once, outside command-buffers.
#[derive(Debug)]
pub(super) struct SingleRun {
    /// Before what it uses.
    recording: ListRecording,
    _list: CommandList<LevelZeroOperation>,
    _command: Option<Arc<Command>>,
}

impl SingleRun {
    pub(super) fn new(recording: ListRecording) -> Box<Self> {
        Box::new(Self { recording, _list: CommandList::default(), _command: None })
    }

    fn of_command(context: &Arc<LevelZeroContext>, command: &Arc<Command>) -> Result<Box<Self>> {
        let mut list = CommandList::default();
        list.push(lower(context, command)?, After::new());
        let (commands, desc) = (std::slice::from_ref(&**command), CommandBufferDesc::new().in_order(true));
        let recording = ListRecording::new(context, commands, &list, desc)?;
        Ok(Box::new(Self { recording, _list: list, _command: Some(Arc::clone(command)) }))
    }
}
