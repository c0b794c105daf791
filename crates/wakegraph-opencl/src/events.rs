//! Signals: one enqueue each, from the driver's event to the outcome that the backend's event reports.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use wakegraph_hal::support::command_list::StagedMemory;
use wakegraph_hal::support::errors::FailedPolls;
use wakegraph_hal::support::errors::no_times;
use wakegraph_hal::support::signals::{
    Dependencies, DriverSignal, EnqueueOutcome, EnqueueSignal, JoinedTimes, SettleStep, SignalEvent, join,
    release, settle,
};
use wakegraph_hal::util::panics::catch_and_log;
use wakegraph_hal::{CommandTimes, Error, ErrorKind, EventProfile, Notification, Result};

use super::context::{DriverQueue, OpenclContext, wait_for, when_ended};
use super::error::{describe, is_lost};
use super::platform::event_outcome;
use super::sys::{self, DriverResult, Event, Owned};

/// An event, which moves to another event of the driver with each signal.
pub(super) type OpenclEvent = SignalEvent<OpenclSignal>;

/// One enqueue.
///
/// Drivers do not agree on what an event reports that waited for a failed one: Intel's CPU runtime
/// reports success. So a signal keeps the signals that it depends on, and their failures come first.
pub(super) struct OpenclSignal {
    context: Arc<OpenclContext>,
    work: StartedWork,
    /// The queue that it was enqueued on; `None` for an event of another library.
    queue: Option<Arc<DriverQueue>>,
    /// Signals that were pending when this one was enqueued behind them; empty once it is settled.
    dependencies: Mutex<Dependencies<Arc<Self>>>,
    /// Memory of the backend that the enqueued commands use.
    staged: Mutex<Vec<StagedMemory>>,
    /// The status that the driver has passed to the callback: more than 0 until then.
    reported: AtomicI32,
    failed_polls: FailedPolls,
    outcome: EnqueueOutcome,
}

/// Signals of other libraries.
pub(super) type ForeignSignals = SmallVec<[Arc<OpenclSignal>; 2]>;

/// The result of an enqueue that has started.
#[derive(Debug, Default)]
pub(super) struct StartedWork {
    /// Over when everything that was enqueued is; without one it has ended already.
    pub(super) event: Option<Owned<Event>>,
    /// Complete once the enqueue has ended, even if one of `foreign` fails, and `event` with it. Set if there
    /// are any.
    pub(super) end: Option<Owned<Event>>,
    /// Signals of other libraries that it depends on, where what depends on it has to wait for them, too.
    pub(super) foreign: ForeignSignals,
    /// Why the enqueue fails: not everything was enqueued, or a dependency had failed.
    pub(super) failure: Option<Error>,
    pub(super) times: EnqueueTimes,
}

/// Times that an enqueue keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum TimesWanted {
    #[default]
    None,
    /// Begin of the first command, and end of the last.
    Whole,
    /// Also the times of each command.
    Commands,
}

/// The events from which the times of an enqueue come.
#[derive(Debug, Default)]
pub(super) struct EnqueueTimes {
    wanted: TimesWanted,
    /// Events, each with the command that it belongs to.
    events: Vec<(u32, Owned<Event>)>,
    /// The command that the signal's own event belongs to, if it is one's.
    pub(super) last: Option<u32>,
    /// Number of commands that have times of their own.
    commands: usize,
}

impl EnqueueTimes {
    pub(super) fn new(wanted: TimesWanted, commands: usize) -> Self {
        let commands = if wanted == TimesWanted::Commands { commands } else { 0 };
        Self { wanted, commands, ..Self::default() }
    }

    pub(super) fn add(&mut self, command: u32, event: Owned<Event>) {
        if self.wanted != TimesWanted::None {
            self.events.push((command, event));
        }
    }
}

impl OpenclSignal {
    pub(super) fn new(
        context: &Arc<OpenclContext>,
        queue: &Arc<DriverQueue>,
        work: StartedWork,
        dependencies: Dependencies<Arc<Self>>,
    ) -> Self {
        Self::of(context, Some(Arc::clone(queue)), work, dependencies)
    }

    /// The signal of another library's event.
    pub(super) fn foreign(context: &Arc<OpenclContext>, event: Owned<Event>) -> Self {
        let work = StartedWork { event: Some(event), ..StartedWork::default() };
        Self::of(context, None, work, Dependencies::default())
    }

    fn of(
        context: &Arc<OpenclContext>,
        queue: Option<Arc<DriverQueue>>,
        work: StartedWork,
        dependencies: Dependencies<Arc<Self>>,
    ) -> Self {
        Self {
            context: Arc::clone(context),
            work,
            queue,
            dependencies: Mutex::new(dependencies),
            staged: Mutex::default(),
            reported: AtomicI32::new(sys::CL_QUEUED as sys::cl_int),
            failed_polls: FailedPolls::default(),
            outcome: EnqueueOutcome::default(),
        }
    }

    /// Keeps memory until the event is signalled again.
    pub(super) fn keep(&self, staged: impl IntoIterator<Item = StagedMemory>) {
        self.staged.lock().extend(staged);
    }

    /// The driver's event, if there is one.
    pub(super) fn event(&self) -> Option<sys::cl_event> {
        self.work.event.as_ref().map(Owned::raw)
    }

    /// The driver's event for what comes after the signal in order only.
    pub(super) fn end(&self) -> Option<sys::cl_event> {
        self.work.end.as_ref().map(Owned::raw).or_else(|| self.event())
    }

    /// The event, if the enqueue may have failed before it.
    pub(super) fn late_end(&self) -> Option<sys::cl_event> {
        self.work.end.as_ref().map(Owned::raw)
    }

    pub(super) fn is_foreign(&self) -> bool {
        self.queue.is_none()
    }

    pub(super) fn awaited_foreign(&self) -> &[Arc<Self>] {
        &self.work.foreign
    }

    pub(super) fn is_on(&self, queue: &DriverQueue) -> bool {
        self.queue.as_deref().is_some_and(|own| std::ptr::eq(own, queue))
    }

    /// How the event ended, as far as the driver tells, once it has ended or the device is lost.
    fn own_outcome(&self) -> Option<Result<()>> {
        let Some(event) = self.event() else { return Some(Ok(())) };
        let reported = self.reported.load(Ordering::Acquire);
        if reported <= sys::CL_SUCCESS {
            return Some(self.judge(reported));
        }
        match event_outcome(self.context.core, event) {
            Ok(code) => {
                self.failed_polls.reset();
                code.map(|code| self.judge(code))
            }
            Err(failure) => self.context.health.poll_failed(&self.failed_polls, failure).map(Err),
        }
    }

    fn judge(&self, code: sys::cl_int) -> Result<()> {
        if code == sys::CL_SUCCESS {
            return Ok(());
        }
        // Another library gives its own events any code.
        let lost = !self.is_foreign() && is_lost(code);
        let kind = if lost { ErrorKind::DeviceLost } else { ErrorKind::Driver };
        let why = format!("a command failed on the device: {}", describe(code));
        Err(self.context.error(Error::new(kind, why)))
    }

    /// Time of the enqueue, and the times of the work.
    fn read_times(&self, event: &Owned<Event>) -> DriverResult<(u64, CommandTimes)> {
        let time = |what| self.context.event_time(event, what);
        let (start, end) = (time(sys::CL_PROFILING_COMMAND_START)?, time(sys::CL_PROFILING_COMMAND_END)?);
        // Intel's CPU runtime reports 0 for barriers.
        let queued = Some(time(sys::CL_PROFILING_COMMAND_QUEUED)?).filter(|&queued| queued > 0);
        Ok((queued.unwrap_or(start), CommandTimes { start, end }))
    }

    /// Notifies once the signal has ended: on the driver's thread or, if it has ended already, on this
    /// one. Callers hold no lock.
    pub(super) fn notify(self: Arc<Self>, notification: Notification) {
        let Some(event) = self.event() else { return notify_now(self, notification) };
        when_ended(self.context.core, event, move |code| {
            self.reported.store(code, Ordering::Release);
            self.notify_when_settled(notification);
        });
    }

    /// Notifies once the outcome is known. The driver says that the signal has ended: where a dependency has
    /// failed, it may do so before the others have ended.
    fn notify_when_settled(self: Arc<Self>, notification: Notification) {
        let Some(open) = self.open_dependency() else { return notify_now(self, notification) };
        let Some(event) = open.event() else { return notify_now(self, notification) };
        when_ended(self.context.core, event, move |_| {
            drop(open);
            self.notify_when_settled(notification);
        });
    }

    /// A signal on which the outcome still depends, and that the device is not done with.
    fn open_dependency(&self) -> Option<Arc<Self>> {
        while let SettleStep::Needs(needed) = self.attempt() {
            let mut open = None;
            settle(needed, |signal| {
                let step = signal.attempt();
                open = matches!(step, SettleStep::Pending).then(|| Arc::clone(signal));
                step
            });
            if open.is_some() {
                return open;
            }
        }
        None
    }
}

fn notify_now(signal: Arc<OpenclSignal>, notification: Notification) {
    // So that the event can use it again.
    drop(signal);
    // Wakers run foreign code, and the driver's thread cannot be unwound.
    catch_and_log("a notification of the OpenCL backend", move || {
        notification.target.notify(notification.token);
        drop(notification);
    });
}

impl EnqueueSignal for OpenclSignal {
    fn outcome(&self) -> &EnqueueOutcome {
        &self.outcome
    }

    fn known_failure(&self) -> Option<&Error> {
        self.work.failure.as_ref()
    }

    fn attempt(&self) -> SettleStep<Arc<Self>> {
        if self.outcome.is_known() {
            return SettleStep::Settled;
        }
        let Some(own) = self.own_outcome() else { return SettleStep::Pending };
        let mut dependencies = self.dependencies.lock();
        if let Some(open) = dependencies.first_open() {
            return SettleStep::Needs(open);
        }
        let inherited = || dependencies.failure().cloned();
        // Under the lock: another thread that finds no dependencies finds the outcome known.
        self.outcome.set(self.work.failure.clone().or_else(inherited).or_else(|| own.err()));
        let settled = std::mem::take(&mut *dependencies);
        drop((dependencies, settled));
        SettleStep::Settled
    }
}

impl DriverSignal for OpenclSignal {
    type Context = OpenclContext;

    /// The driver's own wait has no time limit.
    fn wait(&self, timeout: Option<Duration>) -> Option<Duration> {
        if let (None, Some(event)) = (timeout, self.event()) {
            wait_for(self.context.core, event);
        }
        timeout
    }

    fn profile(&self) -> Result<EventProfile> {
        let StartedWork { event, times, .. } = &self.work;
        let event = event.as_ref().ok_or_else(no_times)?;
        let own = self.read_times(event).map_err(|failure| match failure.code {
            sys::CL_PROFILING_INFO_NOT_AVAILABLE => no_times(),
            _ => self.context.error(failure),
        })?;
        let (mut submitted, mut whole) = own;
        let mut commands = JoinedTimes::new(times.commands);
        // An event that was complete from the beginning has no times.
        let others =
            times.events.iter().filter_map(|(command, event)| Some((*command, self.read_times(event).ok()?)));
        for (command, (queued, read)) in others.chain(times.last.map(|command| (command, own))) {
            submitted = submitted.min(queued);
            whole = join(whole, read);
            commands.add(command, read);
        }
        let CommandTimes { start, end } = whole;
        Ok(EventProfile { submitted, start, end, commands: commands.finish(start) })
    }
}

impl Drop for OpenclSignal {
    fn drop(&mut self) {
        let dependencies = std::mem::take(self.dependencies.get_mut());
        release(dependencies, |other| std::mem::take(other.dependencies.get_mut()));
    }
}

impl Debug for OpenclSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenclSignal").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}
