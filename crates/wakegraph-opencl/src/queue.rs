//! Queues, and the one way in which anything is enqueued on them.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::support::command_list::CommandList;
use wakegraph_hal::support::dependency::Dependencies;
use wakegraph_hal::support::lowering::After;
use wakegraph_hal::support::refusal::foreign;
use wakegraph_hal::support::signals::{EnqueueSignal, ResolvedWaitList};
use wakegraph_hal::{
    Command, DeviceId, Error, Notification, Queue, QueueDesc, QueueOrder, Result, Signal, WaitList,
};

use super::callback;
use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::lower::lower;
use super::operation::OpenclOperation;
use super::recording::OpenclRecording;
use super::replay::ReplayTarget;
use super::signal::{ForeignSignals, OpenclEvent, OpenclSignal, StartedWork, TimesWanted};
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
    pub(super) on_profiled: Mutex<bool>,
}

/// The commands of one enqueue.
#[derive(Clone, Copy, Debug)]
pub(super) struct EnqueueRequest<'a> {
    pub(super) list: &'a CommandList<OpenclOperation>,
    /// The same commands, recorded.
    pub(super) recording: Option<&'a OpenclRecording>,
    /// Which times are wanted, beyond those that the queue keeps.
    pub(super) times: TimesWanted,
    /// An earlier enqueue of the same commands, which must be over first.
    pub(super) previous: Option<&'a Arc<OpenclSignal>>,
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
        let queue = queue.as_any().downcast_ref::<Self>();
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
    pub(super) unsafe fn submit(
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

    pub(super) fn wait_list(&self, wait: WaitList<'_>) -> Result<OpenclWaitList> {
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
        // They may have failed before what they wait for was over.
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
    pub(super) fn begin(
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

    /// Has the device notify when the signal is over, if it does so. Callers hold no lock.
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
                callback::wait(queue.core, event);
            }
        }
    }
}

impl Queue for OpenclQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

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
