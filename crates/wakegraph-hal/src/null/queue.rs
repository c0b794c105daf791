//! Queues. **Fill in:** the driver's stream or queue, and one call for each kind of command.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use super::event::{NullEvent, now};
use crate::support::refusal::{foreign, foreign_wait};
use crate::{
    Command, CommandTimes, DeviceId, Error, Event, EventProfile, EventStatus, NativeStream, Queue, QueueDesc,
    Result, Signal, WaitList,
};

/// A queue on which each enqueue is complete before the call returns.
#[derive(Debug)]
pub(super) struct NullQueue {
    device: DeviceId,
    desc: QueueDesc,
}

impl NullQueue {
    pub(super) fn new(device: DeviceId, desc: QueueDesc) -> Self {
        Self { device, desc }
    }

    /// Enqueues commands, or what has failed already; `timed_commands` is how many, where each one's times
    /// are wanted.
    pub(super) fn submit(
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

    fn own<'a>(&self, event: &'a dyn Event) -> Option<&'a NullEvent> {
        event.as_any().downcast_ref::<NullEvent>().filter(|event| event.device() == self.device)
    }
}

fn failed_dependency(wait: WaitList<'_>) -> Option<Error> {
    wait.dependencies.iter().find_map(|event| match event.status() {
        EventStatus::Failed(error) => Some(error),
        _ => None,
    })
}

/// Calls the closure of a stream task at its enqueue, as a device with streams does. There is no stream here.
/// Gives why the event is to fail.
pub(crate) fn call_stream_task(command: &Command, wait: WaitList<'_>) -> Option<Error> {
    let Command::StreamTask(task) = command else { return None };
    if failed_dependency(wait).is_some() {
        return None;
    }
    // SAFETY: the backend says that there are no handles.
    let lent = unsafe { NativeStream::new("null", ptr::null_mut(), ptr::null_mut()) };
    // SAFETY: no command runs, so none uses the memory.
    unsafe { task.call_live(&lent) }.err()
}

/// The times of work that takes no time.
fn profile(commands: usize) -> EventProfile {
    let now = now();
    let commands = vec![CommandTimes { start: now, end: now }; commands];
    EventProfile { submitted: now, start: now, end: now, commands }
}

impl Queue for NullQueue {
    fn as_any(&self) -> &dyn Any {
        self
    }

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
