//! Queues and events. **Fill in:** the driver's stream or queue, and one call for each kind of command; the
//! driver's event, whose `status` queries it every time. A dropped queue outlives its work.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::ptr;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wakegraph_hal::support::errors::{self, foreign, foreign_wait};
use wakegraph_hal::{
    Command, CommandTimes, DeviceId, Error, Event, EventProfile, EventStatus, NativeStream, Queue, QueueDesc,
    Result, Signal, WaitList,
};

/// A queue on which each enqueue is complete before the call returns.
#[derive(Debug)]
pub(crate) struct TemplateQueue {
    device: DeviceId,
    desc: QueueDesc,
}

impl TemplateQueue {
    pub(crate) fn new(device: DeviceId, desc: QueueDesc) -> Self {
        Self { device, desc }
    }

    /// Enqueues commands, or what has failed already; `timed_commands` is how many, where each one's times
    /// are wanted.
    pub(crate) fn submit(
        &self,
        timed_commands: Option<usize>,
        failure: Option<Error>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
    ) -> Result<()> {
        let event = self.own(&**signal.event).ok_or_else(|| foreign("event"))?;
        if wait.events().any(|event| self.own(event).is_none()) {
            return Err(foreign_wait());
        }
        // Failure spreads along dependencies, and not along mere order.
        let failure = failed_dependency(wait).or(failure);
        let is_profiled = self.desc.profiling || signal.timed || timed_commands.is_some();
        event.complete(failure, is_profiled.then(|| profile(timed_commands.unwrap_or(0))));
        if let Some(notification) = signal.notification {
            notification.target.notify(notification.token);
        }
        Ok(())
    }

    fn own<'a>(&self, event: &'a dyn Event) -> Option<&'a TemplateEvent> {
        event.downcast_ref::<TemplateEvent>().filter(|event| event.device() == self.device)
    }
}

fn failed_dependency(wait: WaitList<'_>) -> Option<Error> {
    wait.dependencies.iter().find_map(|event| match event.status() {
        EventStatus::Failed(error) => Some(error),
        _ => None,
    })
}

/// Calls the closure of a stream task at its enqueue, as a device with streams does. There is no stream here.
/// Returns the reason why the event is to fail.
fn call_stream_task(command: &Command, wait: WaitList<'_>) -> Option<Error> {
    let Command::StreamTask(task) = command else { return None };
    if failed_dependency(wait).is_some() {
        return None;
    }
    // SAFETY: the backend says that there are no handles.
    let lent = unsafe { NativeStream::new("template", ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: no command runs, so none uses the memory.
    unsafe { task.call_live(&lent) }.err()
}

/// The times of work that takes no time.
fn profile(commands: usize) -> EventProfile {
    let now = now();
    let commands = vec![CommandTimes { start: now, end: now }; commands];
    EventProfile { submitted: now, start: now, end: now, commands }
}

impl Queue for TemplateQueue {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn desc(&self) -> &QueueDesc {
        &self.desc
    }

    unsafe fn enqueue(&self, command: &Arc<Command>, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.submit(None, call_stream_task(command, wait), wait, signal)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        Ok(())
    }
}

/// An event that is idle until its first enqueue and final from then on.
#[derive(Debug)]
pub(crate) struct TemplateEvent {
    device: DeviceId,
    last: Mutex<(EventStatus, Option<EventProfile>)>,
}

impl TemplateEvent {
    pub(crate) fn new(device: DeviceId) -> Self {
        Self { device, last: Mutex::new((EventStatus::Idle, None)) }
    }

    /// Makes the event final: failed if something that the enqueue needed has failed.
    fn complete(&self, failure: Option<Error>, profile: Option<EventProfile>) {
        *self.last.lock() = (failure.map_or(EventStatus::Complete, EventStatus::Failed), profile);
    }
}

impl Event for TemplateEvent {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.last.lock().0.clone()
    }

    fn wait(&self, _: Option<Duration>) -> EventStatus {
        self.status()
    }

    fn profile(&self) -> Result<EventProfile> {
        match &*self.last.lock() {
            (EventStatus::Complete, Some(profile)) => Ok(profile.clone()),
            (EventStatus::Complete, None) => Err(errors::no_times()),
            _ => Err(errors::times_before_completion()),
        }
    }
}

/// The device's clock, in nanoseconds. **Fill in:** the driver's, if `profile` reads times from it.
pub(crate) fn now() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
