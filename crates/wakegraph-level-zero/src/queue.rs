//! Queues, and the one way in which anything is enqueued on them: a run of a command-buffer, a command that
//! runs once, the user's own calls, and a signal alone.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::support::command_list::{RecordedCommands, ReplacedParts, Retired};
use wakegraph_hal::support::errors::{self, foreign};
use wakegraph_hal::support::signals::ResolvedWaitList;
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandUpdate, DeviceId, Error,
    NativeCommand, NativeStream, Queue, QueueDesc, QueueOrder, Result, Signal, SyncPoint, WaitList,
};

use super::context::{DriverEventKind, LevelZeroContext, Lowering};
use super::events::{LevelZeroEvent, LevelZeroSignal, LevelZeroTimes, NewSignal, SlotRun};
use super::handover::{AppendQueue, ExecuteQueue, LevelZeroWaitList, LoweringQueue, QueueDriver, Started};
use super::lower::{LevelZeroOperation, lower};
use super::recording::{ListRecording, SingleRun};
use super::sys::{DriverResult, call};

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
    /// The signal, if it uses anything until it has ended.
    signal: Option<Arc<LevelZeroSignal>>,
}

impl LevelZeroQueue {
    pub(super) fn create(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let lowering = match context.lowering {
            Lowering::Append => LoweringQueue::Append(AppendQueue::new(context, desc)?),
            Lowering::Execute => LoweringQueue::Execute(ExecuteQueue::new(context, desc)?),
        };
        let state = EnqueueState { driver: QueueDriver::new(lowering), last: None };
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { id, context: Arc::clone(context), desc, state: Mutex::new(state) })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &LevelZeroContext) -> Result<&'a Self> {
        let queue = queue.downcast_ref::<Self>();
        queue.filter(|queue| queue.context.info.id == device.info.id).ok_or_else(|| foreign("queue"))
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    /// Whether everything enqueued from now on comes after `signal` by the queue's order.
    fn follows(&self, signal: &LevelZeroSignal) -> bool {
        self.desc.order == QueueOrder::InOrder && signal.is_on(self.id)
    }

    /// Has an enqueue wait for the last run of the same commands, unless it does so by the queue's order.
    fn wait_for_last(&self, last: Option<&LastRun>, waits: &mut LevelZeroWaitList) -> DriverResult {
        let Some(LastRun { run, queue }) = last else { return Ok(()) };
        let is_ordered = self.desc.order == QueueOrder::InOrder && *queue == self.id;
        if !is_ordered && !run.has_ended()? {
            waits.push(run);
        }
        Ok(())
    }

    /// The failure of a dependency in a wait list that has failed already.
    fn failed_dependency(&self, wait: WaitList<'_>) -> Result<Option<Error>> {
        Ok(self.resolve(wait)?.failure)
    }

    fn resolve(&self, wait: WaitList<'_>) -> Result<ResolvedWaitList<LevelZeroSignal>> {
        let can_wait = |other: &LevelZeroContext| self.context.can_wait_for(other);
        ResolvedWaitList::of(wait, |event| LevelZeroEvent::awaited(event, can_wait))
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

    /// Enqueues something.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    unsafe fn submit<W: EnqueueWork>(
        &self,
        mut work: W,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let context = &self.context;
        context.health()?;
        let event = LevelZeroEvent::of(signal.event, context)?;
        let mut waits = LevelZeroWaitList::default();
        if !wait.is_empty() {
            self.add_wait_list(wait, &mut waits)?;
        }
        let mut state = self.state.lock();
        let EnqueueState { driver, last } = &mut *state;
        if let Some(last) = last {
            last.add_to(&mut waits).map_err(|failure| context.error(failure))?;
        }
        self.wait_for_last(work.last(), &mut waits).map_err(|failure| context.error(failure))?;
        let mut place = event.signal.open_place()?;
        let timed_commands = work.timed_commands();
        let is_timed = timed_commands.is_some() || signal.timed || self.desc.profiling;
        let time = || LevelZeroTimes::begin(context, timed_commands, W::RUNS);
        let times = is_timed.then(time).transpose().map_err(|failure| context.error(failure))?;
        let kind = driver.event_kind(context, &self.desc, is_timed);
        let Started { slot, number, failure } = match waits.failure.take() {
            None => {
                let to = EnqueueTarget { context, queue: self.id, kind };
                // SAFETY: passed on to the caller.
                unsafe { work.hand_over(driver, to, &mut waits) }?
            }
            // What does not run keeps its place in the order.
            inherited => driver.mark(context, kind, waits.events())?.failing(inherited),
        };
        let times = times.filter(|_| failure.is_none());
        let uses = waits.pending.as_mut().map(|pending| &mut pending.uses);
        let has_uses = W::KEPT || uses.is_some();
        let new = NewSignal { slot, number, queue: self.id, failure, times, uses, has_uses };
        let signal = LevelZeroSignal::put(new, &mut place);
        if let Some(kept) = work.kept() {
            signal.keep(kept);
        }
        if self.desc.order == QueueOrder::InOrder && context.lowering == Lowering::Execute {
            LastEnqueue::set(last, signal);
        }
        Ok(())
    }
}

impl LastEnqueue {
    /// Has another enqueue come after this one.
    #[inline]
    fn add_to(&self, waits: &mut LevelZeroWaitList) -> DriverResult {
        if self.run.has_ended()? {
            return Ok(());
        }
        waits.push(&self.run);
        if let Some(signal) = &self.signal {
            waits.uses().order.push(Arc::clone(signal));
        }
        Ok(())
    }

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

impl Queue for LevelZeroQueue {
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
            Command::Empty => return unsafe { self.submit(SignalAlone(None), wait, &signal) },
            _ => {}
        }
        let recorded = SingleRun::of_command(context, command).map_err(|error| context.error(error))?;
        // SAFETY: passed on to the caller.
        unsafe { self.submit(recorded, wait, &signal) }
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

/// Work to enqueue.
trait EnqueueWork: Sized {
    /// Whether anything runs.
    const RUNS: bool;

    /// Whether something has to be [kept](Self::kept).
    const KEPT: bool = false;

    /// Number of commands that have times of their own, if some have.
    fn timed_commands(&self) -> Option<usize> {
        None
    }

    /// The last run of the same commands, which must have ended first.
    fn last(&self) -> Option<&LastRun> {
        None
    }

    /// Hands it to the driver.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>>;

    /// The object that has to be kept until the enqueue has ended.
    fn kept(self) -> Option<Box<SingleRun>>;
}

/// Where something is enqueued.
#[derive(Clone, Copy, Debug)]
struct EnqueueTarget<'a> {
    pub(super) context: &'a Arc<LevelZeroContext>,
    /// The queue's number.
    pub(super) queue: u64,
    /// The kind of event to signal.
    pub(super) kind: DriverEventKind,
}

/// A run of a recording.
#[derive(Debug)]
struct RunRequest<'a> {
    /// It is free.
    pub(super) recording: &'a mut ListRecording,
    /// The last run of the same commands; then this one.
    pub(super) last: &'a mut Option<LastRun>,
    /// Number of commands that have times of their own.
    timed_commands: Option<usize>,
}

impl EnqueueWork for RunRequest<'_> {
    const RUNS: bool = true;

    fn timed_commands(&self) -> Option<usize> {
        self.timed_commands
    }

    fn last(&self) -> Option<&LastRun> {
        self.last.as_ref()
    }

    #[inline]
    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        // SAFETY: passed on to the caller.
        let started = unsafe { driver.run(to.context, self.recording, to.kind, waits) }?;
        LastRun::set(self.last, &started, to.queue);
        Ok(started)
    }

    fn kept(self) -> Option<Box<SingleRun>> {
        None
    }
}

/// The last run of a command-buffer.
#[derive(Clone, Debug)]
struct LastRun {
    pub(super) run: SlotRun,
    /// The queue that it was enqueued on.
    pub(super) queue: u64,
}

impl LastRun {
    #[inline]
    fn set(last: &mut Option<Self>, started: &Started<'_>, queue: u64) {
        match last {
            Some(last) => {
                last.run.set(started.slot, started.number);
                last.queue = queue;
            }
            None => {
                let run = SlotRun::new(Arc::clone(started.slot), started.number);
                *last = Some(Self { run, queue });
            }
        }
    }
}

impl EnqueueWork for Box<SingleRun> {
    const RUNS: bool = true;
    const KEPT: bool = true;

    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        // SAFETY: passed on to the caller.
        unsafe { driver.run(to.context, &mut self.recording, to.kind, waits) }
    }

    fn kept(self) -> Option<Self> {
        Some(self)
    }
}

/// The signal alone, which fails if there is a reason.
#[derive(Debug)]
struct SignalAlone(pub(super) Option<Error>);

impl EnqueueWork for SignalAlone {
    const RUNS: bool = false;

    unsafe fn hand_over<'a>(
        &'a mut self,
        driver: &'a mut QueueDriver,
        to: EnqueueTarget<'_>,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        Ok(driver.mark(to.context, to.kind, waits.events())?.failing(self.0.take()))
    }

    fn kept(self) -> Option<Box<SingleRun>> {
        None
    }
}

impl LevelZeroQueue {
    /// Calls the closure with a list of its own, because the driver takes one call at a time for a
    /// list. No lock is held during the call. Where the closure fails, nothing of the list runs.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    unsafe fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<()> {
        let context = self.context();
        context.health()?;
        let event = LevelZeroEvent::of(signal.event, context)?;
        event.signal.check_not_pending()?;
        if self.failed_dependency(wait)?.is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.submit(SignalAlone(None), wait, signal) };
        }
        let mut failure = None;
        let recording = ListRecording::around(context, |list| {
            let (raw, of) = (list.raw().cast(), context.raw().cast());
            // SAFETY: the list and the context live as long as the call.
            let lent = unsafe { NativeStream::new("level_zero", raw, of) };
            // SAFETY: what is on the list when this returns runs behind the wait list and before the signal.
            failure = unsafe { task.call_live(&lent) }.err();
        });
        let recording = recording.map_err(|failure| context.error(failure))?;
        if failure.is_some() {
            // SAFETY: passed on to the caller.
            return unsafe { self.submit(SignalAlone(failure), wait, signal) };
        }
        // SAFETY: passed on to the caller.
        unsafe { self.submit(SingleRun::new(recording), wait, signal) }
    }
}

/// A command-buffer.
#[derive(Debug)]
pub(super) struct LevelZeroCommandBuffer {
    context: Arc<LevelZeroContext>,
    /// Dropped before the operations that the recordings hold.
    runs: Mutex<Runs>,
    recorded: RecordedCommands<LevelZeroOperation>,
}

/// Recordings that the driver may use.
#[derive(Debug, Default)]
struct Runs {
    /// From finalize on at least one, in the order of their last runs. Runs come one after the other, so the
    /// first is idle before the others.
    recordings: VecDeque<ListRecording>,
    /// The last run, which the next must not overlap.
    last: Option<LastRun>,
    /// Recordings and commands that updates have replaced, each with the last run that may use them.
    retired: Retired<SlotRun, (VecDeque<ListRecording>, ReplacedParts<LevelZeroOperation>)>,
}

impl Runs {
    /// The last run, if it may still be going on.
    fn pending(&self) -> Option<&SlotRun> {
        let last = self.last.as_ref().map(|last| &last.run);
        last.filter(|run| !matches!(run.has_ended(), Ok(true)))
    }

    /// Brings a recording that can run now to the front, if there is one.
    #[inline]
    fn bring_free(&mut self) -> DriverResult<bool> {
        let mut index = 0;
        while let Some(recording) = self.recordings.get(index) {
            if !recording.is_idle()? {
                break;
            }
            if recording.has_no_waits() {
                if index > 0 {
                    // Those before it are idle, too.
                    self.recordings.swap(0, index);
                }
                return Ok(true);
            }
            index += 1;
        }
        Ok(false)
    }
}

impl LevelZeroCommandBuffer {
    pub(super) fn new(context: &Arc<LevelZeroContext>, desc: CommandBufferDesc) -> Self {
        Self { context: Arc::clone(context), runs: Mutex::default(), recorded: RecordedCommands::new(desc) }
    }

    #[cold]
    fn record(&self) -> Result<ListRecording> {
        let recording = ListRecording::new(
            &self.context,
            &self.recorded.commands,
            &self.recorded.list,
            self.recorded.desc,
        );
        recording.map_err(|error| self.context.error(error))
    }

    #[cold]
    fn add_recording(&self, recordings: &mut VecDeque<ListRecording>) -> Result<()> {
        recordings.push_front(self.record()?);
        Ok(())
    }

    /// Changes the first recording after an update of the commands, if it is idle, or else makes a new one.
    /// Enqueued runs keep the old one.
    fn apply(&mut self, updated: Result<ReplacedParts<LevelZeroOperation>>) -> Result<()> {
        let parts = updated.map_err(|error| self.context.error(error))?;
        if parts.0.is_empty() {
            return Ok(());
        }
        let runs = self.runs.get_mut();
        let first = runs.recordings.front_mut().filter(|first| matches!(first.is_idle(), Ok(true)));
        let is_changed = first.map(|first| first.change_in_place(&self.recorded.commands, &parts));
        let replaced = if is_changed == Some(true) {
            runs.recordings.split_off(1)
        } else {
            if is_changed.is_some() {
                // The driver may have changed a part of it.
                runs.recordings.pop_front();
            }
            match self.record() {
                Ok(new) => std::mem::replace(&mut self.runs.get_mut().recordings, VecDeque::from([new])),
                Err(error) => return Err(parts.restore(&self.context, &mut self.recorded, error)),
            }
        };
        let runs = self.runs.get_mut();
        if let Some(pending) = runs.pending().cloned() {
            runs.retired.keep(pending, (replaced, parts));
        }
        Ok(())
    }
}

impl CommandBuffer for LevelZeroCommandBuffer {
    fn info(&self) -> CommandBufferInfo {
        let lowering = self.context.lowering;
        let reason = match (self.context.options.lowering, lowering) {
            (Some(_), _) => "an option of the device asks for it",
            (None, Lowering::Append) => "the driver appends closed lists to immediate ones",
            (None, Lowering::Execute) => "the driver cannot append closed lists to immediate ones",
        };
        let lowering = match lowering {
            Lowering::Append => "immediate append",
            Lowering::Execute => "prefix, list, suffix",
        };
        self.recorded.info(self.context.info.id, lowering, reason)
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        self.recorded.append(command, after, |command| lower(&self.context, command))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.recorded.commands.get(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.recorded.check_finalize()?;
        let recording = self.record()?;
        self.runs.get_mut().recordings.push_back(recording);
        self.recorded.set_finalized();
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.recorded.check_enqueue()?;
        let queue = LevelZeroQueue::of(queue, &self.context)?;
        // The lock is held until the commands are enqueued: enqueues of one command-buffer follow each
        // other.
        let mut runs = self.runs.lock();
        let runs = &mut *runs;
        runs.retired.purge(|run| matches!(run.has_ended(), Ok(true)));
        if !runs.bring_free().map_err(|failure| self.context.error(failure))? {
            self.add_recording(&mut runs.recordings)?;
        }
        let timed_commands = self.recorded.desc.profiling.then_some(self.recorded.commands.len());
        let request = RunRequest { recording: &mut runs.recordings[0], last: &mut runs.last, timed_commands };
        // SAFETY: passed on to the caller.
        unsafe { queue.submit(request, wait, &signal) }?;
        if runs.recordings.len() > 1 {
            runs.recordings.rotate_left(1);
        }
        Ok(())
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let updated = self.recorded.update(&self.context, updates);
        self.apply(updated)
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let other = other.downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.context, &self.context));
        let other = other.ok_or_else(|| errors::foreign("command-buffer"))?;
        let updated = self.recorded.update_from(&self.context, &other.recorded);
        self.apply(updated)
    }
}
