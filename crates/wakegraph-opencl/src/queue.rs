//! Queues, and the one way in which anything is enqueued on them: command-buffers, single commands, and the
//! user's own calls.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::support::command_list::{After, CommandList};
use wakegraph_hal::support::command_list::{RecordedCommands, ReplacedParts, Retired};
use wakegraph_hal::support::errors::{self, foreign};
use wakegraph_hal::support::signals::{Dependencies, EnqueueSignal, ResolvedWaitList};
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferInfo, CommandUpdate, DeviceId, Error,
    NativeCommand, NativeStream, Notification, Progress, Queue, QueueDesc, QueueOrder, Result, Signal,
    SyncPoint, WaitList,
};

use super::context::{DriverQueue, Lowering, OpenclContext, wait_for};
use super::events::{EnqueueTimes, ForeignSignals, OpenclEvent, OpenclSignal, StartedWork, TimesWanted};
use super::lower::{OpenclOperation, lower};
use super::recording::{OpenclRecording, ReplayTarget};
use super::sys::{self, DriverResult, Event, OpenclFailure, Owned};

/// A queue.
#[derive(Debug)]
pub(super) struct OpenclQueue {
    pub(super) context: Arc<OpenclContext>,
    desc: QueueDesc,
    /// For commands without times of their own.
    pub(super) main: Arc<DriverQueue>,
    /// For what is timed, if the queue itself has no profiling.
    profiled: OnceLock<Arc<DriverQueue>>,
    /// Whether the last enqueue went to `profiled`. Held while enqueueing: an enqueue is several calls.
    on_profiled: Mutex<bool>,
}

/// The commands of one enqueue.
#[derive(Clone, Copy, Debug)]
struct EnqueueRequest<'a> {
    pub(super) list: &'a CommandList<OpenclOperation>,
    /// A recording of these commands.
    pub(super) recording: Option<&'a OpenclRecording>,
    /// Times that are wanted, beyond those that the queue keeps.
    pub(super) times: TimesWanted,
    /// An earlier enqueue of the same commands, which must have ended first.
    previous: Option<&'a Arc<OpenclSignal>>,
}

impl OpenclQueue {
    pub(super) fn create(context: &Arc<OpenclContext>, desc: QueueDesc) -> DriverResult<Self> {
        Ok(Self {
            context: Arc::clone(context),
            desc,
            main: Arc::new(context.create_queue(desc)?),
            profiled: OnceLock::new(),
            on_profiled: Mutex::new(false),
        })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &OpenclContext) -> Result<&'a Self> {
        let queue = queue.downcast_ref::<Self>();
        queue.filter(|queue| queue.context.info.id == device.info.id).ok_or_else(|| foreign("queue"))
    }

    fn driver_queues(&self) -> impl Iterator<Item = &Arc<DriverQueue>> {
        std::iter::once(&self.main).chain(self.profiled.get())
    }

    /// Whether everything enqueued from now on comes after `signal` by the queue's order.
    fn follows(&self, signal: &OpenclSignal) -> bool {
        self.desc.order == QueueOrder::InOrder && self.driver_queues().any(|queue| signal.is_on(queue))
    }

    /// Enqueues the commands of a request, and gives their signal.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue).
    unsafe fn submit(
        &self,
        request: EnqueueRequest<'_>,
        wait: WaitList<'_>,
        event: &Arc<dyn wakegraph_hal::Event>,
    ) -> Result<Arc<OpenclSignal>> {
        let context = &self.context;
        let event = OpenclEvent::of(event, context)?;
        let mut waits = self.wait_list(wait)?;
        let mut on_profiled = self.on_profiled.lock();
        let selected = self.select(request.times != TimesWanted::None, *on_profiled, &mut waits);
        let (queue, is_profiled) = selected.map_err(|failure| context.error(failure))?;
        if let Some(previous) = request.previous {
            let ordered = queue.order == QueueOrder::InOrder && previous.is_on(queue);
            if !ordered && !previous.is_final() {
                waits.events.extend(previous.end());
            }
        }
        event.signal.signal_by(|| {
            // SAFETY: passed on to the caller.
            let started = unsafe { self.start(queue, &request, &waits) };
            let mut started = started.map_err(|failure| context.error(failure))?;
            if !waits.foreign.is_empty() && queue.order == QueueOrder::InOrder {
                waits.wait_for_each(queue);
                started.end = queue.marker(&[]).unwrap_or_default();
                started.foreign = std::mem::take(&mut waits.foreign);
            }
            // Not earlier: after a refused enqueue, the next one still has to wait for the other queue.
            *on_profiled = is_profiled;
            queue.flush_enqueued();
            Ok(OpenclSignal::new(context, queue, started, waits.dependencies))
        })
    }

    fn wait_list(&self, wait: WaitList<'_>) -> Result<OpenclWaitList> {
        let can_wait = |other: &OpenclContext| other.shares_memory_with(&self.context);
        let resolved = ResolvedWaitList::of(wait, |event| OpenclEvent::awaited(event, can_wait))?;
        let mut waits = OpenclWaitList { failure: resolved.failure, ..OpenclWaitList::default() };
        for (signal, is_needed) in resolved.pending {
            if is_needed {
                waits.events.extend(signal.end());
                if self.context.features.failure_skips {
                    waits.inherit_foreign(&signal);
                }
                waits.dependencies.push(signal);
            } else if !self.follows(&signal) {
                waits.events.extend(signal.end());
                waits.order.push(signal);
            }
        }
        // They may have failed before what they wait for had ended.
        for signal in resolved.failed {
            if let Some(end) = signal.late_end() {
                waits.events.push(end);
                waits.order.push(signal);
            }
        }
        Ok(waits)
    }

    /// Selects the driver's queue as [`select`](Self::select) does, and has what is enqueued there
    /// from now on wait. Gives the queue, and an event of this moment if times are wanted.
    fn begin(
        &self,
        timed: bool,
        waits: &mut OpenclWaitList,
    ) -> DriverResult<(Arc<DriverQueue>, Option<Owned<Event>>)> {
        let mut on_profiled = self.on_profiled.lock();
        let (queue, is_profiled) = self.select(timed, *on_profiled, waits)?;
        // A barrier for each: Intel's CPU runtime ends one as soon as one of its events fails.
        for &event in &waits.events {
            queue.barrier(&[event], false)?;
        }
        let start = queue.barrier(&[], timed || self.desc.profiling)?;
        *on_profiled = is_profiled;
        Ok((Arc::clone(queue), start))
    }

    /// Has the device notify when the signal has ended, if it does so. Callers hold no lock.
    pub(super) fn notify(&self, signal: Arc<OpenclSignal>, notification: Option<Notification>) {
        if let Some(notification) = notification.filter(|_| self.context.capabilities.notifies) {
            signal.notify(notification);
        }
    }

    unsafe fn start(
        &self,
        queue: &DriverQueue,
        request: &EnqueueRequest<'_>,
        waits: &OpenclWaitList,
    ) -> DriverResult<StartedWork> {
        let (context, events) = (&*self.context, &waits.events[..]);
        if let Some(failure) = &waits.failure {
            // Nothing runs, but the failure keeps its place in the order.
            let event = match (self.desc.order, events) {
                (QueueOrder::OutOfOrder, []) => Some(context.completed_event()?),
                _ => queue.marker(events)?,
            };
            return Ok(StartedWork { event, failure: Some(failure.clone()), ..StartedWork::default() });
        }
        let recording = request.recording.filter(|recording| {
            let free = recording.repeats || request.previous.is_none_or(|run| run.is_final());
            // A driver that skips commands starts a recording whatever fails.
            let can_fail = !waits.foreign.is_empty();
            free && !can_fail && request.times == TimesWanted::None && recording.fits(queue)
        });
        if let Some(recording) = recording {
            // SAFETY: passed on to the caller.
            match unsafe { recording.enqueue(queue, events) } {
                Ok(event) => return Ok(StartedWork { event: Some(event), ..StartedWork::default() }),
                // PoCL considers a recording pending for a moment after its event is complete.
                Err(OpenclFailure { code: sys::CL_INVALID_OPERATION, .. }) => {}
                // Intel's runtime checks the commands of a recording one by one: those before the
                // refused one run. The event is behind them by the order of the queue.
                Err(failure) => {
                    let failure = Some(context.error(failure));
                    let event = queue.marker(events)?;
                    return Ok(StartedWork { event, failure, ..StartedWork::default() });
                }
            }
        }
        let wanted = match (request.times, self.desc.profiling) {
            (TimesWanted::None, true) => TimesWanted::Whole,
            (wanted, _) => wanted,
        };
        // SAFETY: passed on to the caller.
        unsafe {
            ReplayTarget { context, queue, wait: events, foreign: &waits.foreign_events(), wanted }
                .enqueue(request.list)
        }
    }

    /// The driver's queue for an enqueue with or without times, and whether it is the profiled one.
    /// If the last enqueue went to the other queue, `waits` gets an event behind everything there.
    pub(super) fn select<'a>(
        &'a self,
        timed: bool,
        on_profiled: bool,
        waits: &mut OpenclWaitList,
    ) -> DriverResult<(&'a Arc<DriverQueue>, bool)> {
        let timed = timed && !self.desc.profiling;
        if !timed && !on_profiled {
            return Ok((&self.main, false));
        }
        let profiled = match self.profiled.get() {
            Some(profiled) => profiled,
            None => {
                let created = Arc::new(self.context.create_queue(self.desc.profiling(true))?);
                self.profiled.get_or_init(|| created)
            }
        };
        let (now, before) = if timed { (profiled, &self.main) } else { (&self.main, profiled) };
        if timed != on_profiled && self.desc.order == QueueOrder::InOrder {
            waits.marker = before.marker(&[])?;
            before.flush()?;
            waits.events.extend(waits.marker.as_ref().map(Owned::raw));
        }
        Ok((now, timed))
    }
}

/// A wait list as the driver takes it.
#[derive(Default)]
pub(super) struct OpenclWaitList {
    pub(super) events: SmallVec<[sys::cl_event; 8]>,
    /// Signals of other libraries on which something depends, where each command has to wait for them.
    pub(super) foreign: ForeignSignals,
    /// Signals whose failure is inherited.
    pub(super) dependencies: Dependencies<Arc<OpenclSignal>>,
    /// The failure of a dependency that has failed already.
    pub(super) failure: Option<Error>,
    /// Keeps other events alive during the call.
    order: SmallVec<[Arc<OpenclSignal>; 2]>,
    marker: Option<Owned<Event>>,
}

impl OpenclWaitList {
    fn inherit_foreign(&mut self, signal: &Arc<OpenclSignal>) {
        if signal.is_foreign() {
            self.foreign.push(Arc::clone(signal));
        }
        for other in signal.awaited_foreign() {
            if !self.foreign.iter().any(|known| Arc::ptr_eq(known, other)) {
                self.foreign.push(Arc::clone(other));
                self.events.extend(other.event());
            }
        }
    }

    fn foreign_events(&self) -> SmallVec<[sys::cl_event; 2]> {
        self.foreign.iter().filter_map(|signal| signal.event()).collect()
    }

    /// Has what is enqueued from now on wait for each event, even if another one fails.
    #[cold]
    fn wait_for_each(&self, queue: &DriverQueue) {
        for &event in &self.events {
            if queue.barrier(&[event], false).is_err() {
                wait_for(queue.core, event);
            }
        }
    }
}

impl Queue for OpenclQueue {
    fn device(&self) -> DeviceId {
        self.context.info.id
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        if let Command::StreamTask(task) = &**command {
            let enqueued = self.run_stream_task(task, wait, &signal)?;
            self.notify(enqueued, signal.notification);
            return Ok(());
        }
        let mut list = CommandList::default();
        let lowered = lower(&self.context, command)?;
        let staged = lowered.staged.clone();
        list.push(lowered, After::new());
        let times = if signal.timed { TimesWanted::Whole } else { TimesWanted::None };
        let request = EnqueueRequest { list: &list, recording: None, times, previous: None };
        // SAFETY: passed on to the caller. The driver keeps the kernels and buffer objects of enqueued
        // commands.
        let enqueued = unsafe { self.submit(request, wait, signal.event) }?;
        enqueued.keep([staged]);
        self.notify(enqueued, signal.notification);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        let mut queues = self.driver_queues();
        queues.try_for_each(|queue| queue.flush()).map_err(|failure| self.context.error(failure))
    }

    fn finish(&self) -> Result<()> {
        let finish = |queue: &DriverQueue| match self.context.features.finish_completes_markers {
            true => queue.finish(),
            false => queue.finish().and_then(|()| queue.wait_for_marker()),
        };
        self.driver_queues()
            .try_for_each(|queue| finish(queue))
            .map_err(|failure| self.context.error(failure))
    }
}

impl OpenclQueue {
    /// Has the driver's queue wait, calls the closure, and ends with a marker. No lock is held
    /// during the call.
    fn run_stream_task(
        &self,
        task: &NativeCommand,
        wait: WaitList<'_>,
        signal: &Signal<'_>,
    ) -> Result<Arc<OpenclSignal>> {
        let context = &self.context;
        let event = OpenclEvent::of(signal.event, context)?;
        event.signal.check_not_pending()?;
        let mut waits = self.wait_list(wait)?;
        let begun = self.begin(signal.timed, &mut waits);
        let (queue, start) = begun.map_err(|failure| context.error(failure))?;
        let failure = match waits.failure.take() {
            Some(inherited) => Some(inherited),
            None => {
                // SAFETY: the queue and the context live as long as this queue.
                let lent = unsafe { NativeStream::new("opencl", queue.raw(), context.raw.raw()) };
                // SAFETY: the queue is in order and waits for the wait list; the marker is behind what is on
                // it then.
                unsafe { task.call_live(&lent) }.err()
            }
        };
        let wanted = if start.is_some() { TimesWanted::Whole } else { TimesWanted::None };
        let mut times = EnqueueTimes::new(wanted, 1);
        start.into_iter().for_each(|start| times.add(0, start));
        times.last = Some(0);
        // Meanwhile others, the closure among them, may have enqueued on the other queue of the driver. The
        // marker comes after that, and what is enqueued there from now on comes after the marker.
        let (mut on_profiled, mut others) = (self.on_profiled.lock(), OpenclWaitList::default());
        let selected = self.select(signal.timed, *on_profiled, &mut others);
        let (_, is_profiled) = selected.map_err(|failure| context.error(failure))?;
        event.signal.signal_by(|| {
            let marker = queue.marker(&others.events).map_err(|failure| context.error(failure))?;
            *on_profiled = is_profiled;
            queue.flush_enqueued();
            let work = StartedWork { event: marker, end: None, foreign: waits.foreign, failure, times };
            Ok(OpenclSignal::new(context, &queue, work, waits.dependencies))
        })
    }
}

/// A command-buffer.
#[derive(Debug)]
pub(super) struct OpenclCommandBuffer {
    context: Arc<OpenclContext>,
    /// Like all recordings it is dropped before the list: then the driver releases each kernel for good
    /// when the list is dropped, in the list's order.
    pub(super) recording: Option<OpenclRecording>,
    in_flight: Mutex<PendingEnqueues>,
    pub(super) recorded: RecordedCommands<OpenclOperation>,
}

/// Enqueues and recordings that the driver may still use.
#[derive(Debug, Default)]
struct PendingEnqueues {
    /// The last enqueue, which the next must not overlap.
    last: Option<Arc<OpenclSignal>>,
    /// Recordings that updates have replaced, each with the last enqueue that may use it.
    retired: Retired<Arc<OpenclSignal>, OpenclRecording>,
}

impl OpenclCommandBuffer {
    pub(super) fn new(context: &Arc<OpenclContext>, desc: CommandBufferDesc) -> Self {
        Self {
            context: Arc::clone(context),
            recording: None,
            in_flight: Mutex::default(),
            recorded: RecordedCommands::new(desc),
        }
    }

    /// The lowering for the list, and why it is that one.
    fn choose(&self) -> (Lowering, &'static str) {
        let context = &self.context;
        if self.recorded.desc.profiling {
            return (Lowering::Replay, "the times of its commands come from enqueuing each");
        }
        if self.recorded.commands.is_empty() {
            return (Lowering::Replay, "it is empty, which is a marker either way");
        }
        if context.features.recording.is_none() {
            return (Lowering::Replay, "the device cannot record what the backend needs");
        }
        if !OpenclRecording::can_hold(context, &self.recorded.list) {
            return (Lowering::Replay, "the device cannot record one of its commands");
        }
        match context.options.lowering {
            Some(forced) => (forced, "an option of the device forces it"),
            None if context.capabilities.progress == Progress::HostCores => {
                (Lowering::Replay, "plain enqueues are faster on CPUs, or leak less memory")
            }
            None => (Lowering::CommandBuffer, "the device can record it"),
        }
    }

    /// A recording of the list, if the device can record it and that is the faster lowering.
    fn record(&self) -> Result<Option<OpenclRecording>> {
        let context = &self.context;
        if self.choose().0 == Lowering::Replay {
            return Ok(None);
        }
        let recording = OpenclRecording::new(context, &self.recorded.list, self.recorded.desc.updatable);
        recording.map(Some).map_err(|failure| context.error(failure))
    }

    /// The last enqueue, if it is still pending.
    fn pending(&self) -> Option<Arc<OpenclSignal>> {
        self.in_flight.lock().last.clone().filter(|last| !last.is_final())
    }

    /// Replaces the recording. The old one is kept while an enqueue may use it.
    fn replace_recording(&mut self, new: Option<OpenclRecording>) {
        let old = std::mem::replace(&mut self.recording, new);
        if let Some((pending, old)) = self.pending().zip(old) {
            self.in_flight.get_mut().retired.keep(pending, old);
        }
    }

    /// Changes the recording after an update of the commands, or undoes the update. Enqueued commands have
    /// read their arguments, so they keep the old values.
    fn apply(&mut self, updated: Result<ReplacedParts<OpenclOperation>>) -> Result<()> {
        let replaced = updated.map_err(|error| self.context.error(error))?;
        if let Err(error) = self.change_recording(&replaced) {
            let error = replaced.restore(&self.context, &mut self.recorded, error);
            return Err(self.context.error(error));
        }
        let mut memory = replaced.into_memory().peekable();
        if memory.peek().is_some()
            && let Some(pending) = self.pending()
        {
            pending.keep(memory);
        }
        Ok(())
    }

    /// Changes the recording, if there is one, or makes a new one of the commands that are in place now.
    fn change_recording(&mut self, replaced: &ReplacedParts<OpenclOperation>) -> Result<()> {
        let Some(recording) = self.recording.as_ref().filter(|_| !replaced.0.is_empty()) else {
            return Ok(());
        };
        if self.pending().is_none() && recording.change_in_place(&self.recorded.commands, replaced) {
            return Ok(());
        }
        let (new, result) = match self.record() {
            Ok(new) => (new, Ok(())),
            // The driver may have changed the old one in part before it refused the change. The list still
            // says what the commands do, and is replayed from now on.
            Err(error) => (None, Err(error)),
        };
        self.replace_recording(new);
        result
    }
}

impl CommandBuffer for OpenclCommandBuffer {
    fn info(&self) -> CommandBufferInfo {
        let (lowering, reason) = match (self.recorded.is_finalized(), &self.recording) {
            (false, _) => ("recording", ""),
            (_, Some(_)) => ("cl_khr_command_buffer", self.choose().1),
            (_, None) => match self.choose() {
                (Lowering::Replay, reason) => ("replayed enqueues", reason),
                _ => ("replayed enqueues", "the driver has refused to change its recording"),
            },
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
        self.recording = self.record()?;
        self.recorded.set_finalized();
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.recorded.check_enqueue()?;
        let queue = OpenclQueue::of(queue, &self.context)?;
        // The lock is held until the commands are enqueued: enqueues of one command-buffer follow each
        // other.
        let mut in_flight = self.in_flight.lock();
        in_flight.retired.purge(|run| run.is_final());
        // A signal that has ended is dropped, so that its event can use it again.
        in_flight.last = in_flight.last.take().filter(|last| !last.outcome().is_known());
        let request = EnqueueRequest {
            list: &self.recorded.list,
            recording: self.recording.as_ref(),
            times: match (self.recorded.desc.profiling, signal.timed) {
                (true, _) => TimesWanted::Commands,
                (false, true) => TimesWanted::Whole,
                (false, false) => TimesWanted::None,
            },
            previous: in_flight.last.as_ref(),
        };
        // SAFETY: passed on to the caller.
        let last = unsafe { queue.submit(request, wait, signal.event) }?;
        in_flight.last = Some(Arc::clone(&last));
        drop(in_flight);
        queue.notify(last, signal.notification);
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
