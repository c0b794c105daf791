//! Signals: one enqueue each, from the driver's event to the outcome that our event reports.
#![expect(unsafe_code, reason = "calls the driver")]

use std::fmt::{self, Debug};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::device::Shared;
use super::error;
use super::memory::OpenclMemory;
use super::query;
use super::queue::DriverQueue;
use super::replay::{Started, Timing};
use super::sys::{self, Core, Event, Failure, Owned, call, create};
use crate::hal::support::dependency::{self as chain, Attempt as Link};
use crate::hal::{CommandTimes, EventProfile, EventStatus};
use crate::types::{Error, ErrorKind, Result};

/// One enqueue.
///
/// Drivers do not agree on what an event reports that waited for a failed one: Intel's CPU runtime
/// says complete. So the signals of a wait list are kept, and looked at first.
pub(super) struct Signal {
    shared: Arc<Shared>,
    event: Option<Owned<Event>>,
    queue: Arc<DriverQueue>,
    /// Known when it was enqueued: a dependency had failed, or not everything could be enqueued.
    failure: Option<Error>,
    times: Option<Times>,
    /// Signals that were pending when this one was enqueued behind them; empty once this one is settled.
    waited: Mutex<Waited>,
    /// Memory of ours that what was enqueued reads.
    staged: Mutex<Vec<Arc<OpenclMemory>>>,
    /// What the driver's callback has said of its end; more than 0 until then.
    told: AtomicI32,
    /// How it ended, once that is known.
    outcome: OnceLock<Option<Error>>,
}

/// Signals that one waits for.
pub(super) type Waited = SmallVec<[Arc<Signal>; 2]>;

/// The events from which the times of an enqueue come.
#[derive(Debug)]
pub(super) struct Times {
    /// With the command that each belongs to.
    events: Vec<(u32, Owned<Event>)>,
    /// The command that the signal's own event belongs to, if it is of one.
    last: Option<u32>,
    /// How many commands have times of their own.
    commands: usize,
}

impl Times {
    pub(super) fn new(timing: Timing, commands: usize) -> Option<Self> {
        let commands = match timing {
            Timing::None => return None,
            Timing::Whole => 0,
            Timing::Commands => commands,
        };
        Some(Self { events: Vec::new(), last: None, commands })
    }

    pub(super) fn add(times: &mut Option<Self>, command: u32, event: Owned<Event>) {
        if let Some(times) = times {
            times.events.push((command, event));
        }
    }

    /// The signal's own event is that of `command`.
    pub(super) fn end_with(times: Option<Self>, command: u32) -> Option<Self> {
        times.map(|times| Self { last: Some(command), ..times })
    }
}

impl Signal {
    pub(super) fn new(
        shared: &Arc<Shared>,
        queue: &Arc<DriverQueue>,
        started: Started,
        waited: Waited,
    ) -> Self {
        let Started { event, failure, times } = started;
        Self {
            shared: Arc::clone(shared),
            event,
            queue: Arc::clone(queue),
            failure,
            times,
            waited: Mutex::new(waited),
            staged: Mutex::default(),
            told: AtomicI32::new(sys::CL_QUEUED as sys::cl_int),
            outcome: OnceLock::new(),
        }
    }

    /// Keeps memory until the event is used again.
    pub(super) fn keep(&self, staged: Vec<Arc<OpenclMemory>>) {
        if !staged.is_empty() {
            self.staged.lock().extend(staged);
        }
    }

    /// The driver has called back: 0, or what is wrong.
    pub(super) fn has_ended(&self, code: sys::cl_int) {
        self.told.store(code.min(sys::CL_SUCCESS), Ordering::Release);
    }

    /// The driver's event, while it is not over.
    pub(super) fn event(&self) -> Option<sys::cl_event> {
        self.event.as_ref().map(Owned::raw)
    }

    /// Why it will fail, as far as that was known when it was enqueued.
    pub(super) fn known_failure(&self) -> Option<&Error> {
        self.failure.as_ref()
    }

    pub(super) fn is_on(&self, queue: &DriverQueue) -> bool {
        std::ptr::eq(&*self.queue, queue)
    }

    pub(super) fn status(self: &Arc<Self>) -> EventStatus {
        if self.outcome.get().is_none() && !self.settle() {
            return EventStatus::Pending;
        }
        match self.outcome.get() {
            Some(Some(error)) => EventStatus::Failed(error.clone()),
            _ => EventStatus::Complete,
        }
    }

    /// Works out how it ended; false while it is pending.
    fn settle(self: &Arc<Self>) -> bool {
        chain::settle(Arc::clone(self), |signal| signal.step())
    }

    /// Works out how it ended, if that is known of all that it waited for.
    fn step(&self) -> Link<Arc<Self>> {
        if self.outcome.get().is_some() {
            return Link::Settled;
        }
        let Some(code) = self.code() else { return Link::Pending };
        let unsettled = self.waited.lock().iter().find(|other| other.outcome.get().is_none()).cloned();
        if let Some(other) = unsettled {
            return Link::Needs(other);
        }
        let waited = std::mem::take(&mut *self.waited.lock());
        let inherited = || waited.iter().find_map(|other| other.outcome.get()?.clone());
        let outcome = self.failure.clone().or_else(inherited).or_else(|| self.fault(code));
        let _ = self.outcome.set(outcome);
        Link::Settled
    }

    /// What the driver says of its end: 0, or what is wrong; `None` while it is pending.
    fn code(&self) -> Option<sys::cl_int> {
        let Some(event) = &self.event else { return Some(sys::CL_SUCCESS) };
        let told = self.told.load(Ordering::Acquire);
        if told <= sys::CL_SUCCESS {
            return Some(told);
        }
        match query::event_status(self.shared.core, event.raw()) {
            Ok(code) if code > 0 => None,
            Ok(code) => Some(code),
            Err(failure) => Some(failure.code),
        }
    }

    fn fault(&self, code: sys::cl_int) -> Option<Error> {
        if code == sys::CL_SUCCESS {
            return None;
        }
        let lost = error::is_fatal(code) || code == sys::CL_OUT_OF_RESOURCES;
        let kind = if lost { ErrorKind::DeviceLost } else { ErrorKind::Driver };
        let why = format!("a command failed on the device: {}", error::describe(code));
        Some(self.shared.error(Error::new(kind, why)))
    }

    /// Blocks until the driver says that it is over.
    pub(super) fn wait(&self) {
        if let Some(event) = self.event() {
            // SAFETY: the event is alive. How it ended is asked for later.
            let _ = unsafe { call!(self.shared.core, clWaitForEvents(1, &raw const event)) };
        }
    }

    /// The times, which are there when it is complete and its queue keeps them.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let no_times = || {
            Error::new(
                ErrorKind::InvalidOperation,
                "neither the queue nor the command-buffer was created with profiling",
            )
        };
        let event = self.event.as_ref().ok_or_else(no_times)?;
        let own = self.read(event).map_err(|failure| match failure.code {
            sys::CL_PROFILING_INFO_NOT_AVAILABLE => no_times(),
            _ => self.shared.error(failure),
        })?;
        let Some(times) = &self.times else {
            return Ok(EventProfile {
                submitted: own.0,
                start: own.1.start,
                end: own.1.end,
                commands: Vec::new(),
            });
        };
        let mut profile =
            EventProfile { submitted: own.0, start: own.1.start, end: own.1.end, commands: Vec::new() };
        let mut of_commands = vec![None; times.commands];
        let mut add = |command: u32, (submitted, read): (u64, CommandTimes)| {
            profile.submitted = profile.submitted.min(submitted);
            profile.start = profile.start.min(read.start);
            profile.end = profile.end.max(read.end);
            if let Some(slot) = of_commands.get_mut(command as usize) {
                let known = slot.unwrap_or(read);
                *slot =
                    Some(CommandTimes { start: known.start.min(read.start), end: known.end.max(read.end) });
            }
        };
        for (command, event) in &times.events {
            // What was over at once has no times of its own.
            if let Ok(read) = self.read(event) {
                add(*command, read);
            }
        }
        if let Some(last) = times.last {
            add(last, own);
        }
        let start = profile.start;
        let nothing = CommandTimes { start, end: start };
        profile.commands = of_commands.into_iter().map(|times| times.unwrap_or(nothing)).collect();
        Ok(profile)
    }

    /// When it was enqueued, and its times.
    fn read(&self, event: &Owned<Event>) -> Result<(u64, CommandTimes), Failure> {
        let time = |what| query::event_time(self.shared.core, event.raw(), what);
        let (start, end) = (time(sys::CL_PROFILING_COMMAND_START)?, time(sys::CL_PROFILING_COMMAND_END)?);
        // Intel's CPU runtime says 0 for barriers.
        let queued = Some(time(sys::CL_PROFILING_COMMAND_QUEUED)?).filter(|&queued| queued > 0);
        Ok((queued.unwrap_or(start), CommandTimes { start, end }))
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        let waited = std::mem::take(self.waited.get_mut());
        chain::release(waited, |other| std::mem::take(other.waited.get_mut()));
    }
}

impl Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("outcome", &self.outcome.get()).finish_non_exhaustive()
    }
}

/// Takes over the event that an enqueue has given.
pub(super) fn adopt(core: &'static Core, event: sys::cl_event) -> Result<Owned<Event>, Failure> {
    let event = sys::object("clEnqueue*", sys::CL_SUCCESS, event)?;
    // SAFETY: the enqueue has just created it, for us.
    Ok(unsafe { Owned::new(core, event) })
}

/// An event that is complete, without a queue.
pub(super) fn completed(shared: &Shared) -> Result<Owned<Event>, Failure> {
    let event = user_event(shared)?;
    let complete = sys::CL_COMPLETE as sys::cl_int;
    // SAFETY: the event is a user's, and its status has not been set before.
    unsafe { call!(shared.core, clSetUserEventStatus(event.raw(), complete)) }?;
    Ok(event)
}

/// An event whose status we set.
pub(super) fn user_event(shared: &Shared) -> Result<Owned<Event>, Failure> {
    // SAFETY: the context is alive.
    let event = unsafe { create!(shared.core, clCreateUserEvent(shared.context.raw())) }?;
    // SAFETY: the event has just been created, for us.
    Ok(unsafe { Owned::new(shared.core, event) })
}
