//! Replays: a command list is enqueued operation by operation.
#![expect(unsafe_code, reason = "enqueues on the driver's queues")]

use smallvec::SmallVec;
use wakegraph_hal::QueueOrder;
use wakegraph_hal::support::command_list::{CommandList, PlannedOperation};

use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::operation::OpenclOperation;
use super::signal::{EnqueueTimes, StartedWork, TimesWanted};
use super::sys::{self, DriverResult, Event, Owned};

/// Where a list is enqueued, behind which events, and which times it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayTarget<'a> {
    pub(super) context: &'a OpenclContext,
    pub(super) queue: &'a DriverQueue,
    pub(super) wait: &'a [sys::cl_event],
    /// Those of them that every command has to wait for, not only the first.
    pub(super) foreign: &'a [sys::cl_event],
    pub(super) wanted: TimesWanted,
}

impl ReplayTarget<'_> {
    /// Enqueues everything.
    ///
    /// # Errors
    /// That of the first call; nothing was enqueued then. A later one's is in
    /// [`StartedWork::failure`].
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue); the events are alive.
    pub(super) unsafe fn enqueue(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        match self.queue.order {
            // SAFETY: passed on to the caller.
            QueueOrder::InOrder => unsafe { self.enqueue_in_order(list) },
            // SAFETY: passed on to the caller.
            QueueOrder::OutOfOrder => unsafe { self.enqueue_graph(list) },
        }
    }

    /// On an in-order queue the first operation waits and the last has the event.
    unsafe fn enqueue_in_order(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, foreign, wanted } = self;
        let all = wanted == TimesWanted::Commands;
        let operations = (0..)
            .zip(&list.commands)
            .flat_map(|(number, command)| command.operations().map(move |operation| (number, operation)));
        // In order, a marker does nothing but for its event.
        let mut rest = operations
            .filter(|(_, operation)| all || !matches!(operation, OpenclOperation::Marker))
            .peekable();
        let mut times = EnqueueTimes::new(wanted, list.commands.len());
        let mut started = false;
        while let Some((command, operation)) = rest.next() {
            let last = rest.peek().is_none();
            let wants_event = last || all || (wanted == TimesWanted::Whole && !started);
            let wait = if started { foreign } else { wait };
            // SAFETY: passed on to the caller.
            match unsafe { operation.enqueue(context, queue, wait, wants_event) } {
                Ok(event) if last => {
                    times.last = Some(command);
                    return Ok(StartedWork { event, times, ..StartedWork::default() });
                }
                Ok(event) => event.into_iter().for_each(|event| times.add(command, event)),
                Err(failure) if !started => return Err(failure),
                Err(failure) => {
                    let failure = Some(context.error(failure).at_command(command));
                    return Ok(StartedWork { event: queue.marker(&[])?, failure, ..StartedWork::default() });
                }
            }
            started = true;
        }
        Ok(StartedWork { event: queue.marker(wait)?, ..StartedWork::default() })
    }

    /// On an out-of-order queue every operation has an event, and waits for those that it follows.
    unsafe fn enqueue_graph(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, wanted, .. } = self;
        let mut started: Vec<StartedOperation> = Vec::with_capacity(list.commands.len());
        let mut failure = None;
        for PlannedOperation { operation, after, command } in list.plan() {
            let events: SmallVec<[sys::cl_event; 8]> =
                after.iter().map(|&earlier| started[earlier as usize].event.raw()).collect();
            let wait = if events.is_empty() { wait } else { &events };
            let is_timed = !(matches!(operation, OpenclOperation::Marker) && wait.is_empty());
            let enqueued = if !is_timed {
                // Without a wait list it would wait for everything in the queue.
                context.completed_event()
            } else {
                // SAFETY: passed on to the caller.
                let enqueued = unsafe { operation.enqueue(context, queue, wait, true) };
                enqueued.and_then(|event| event.ok_or(sys::missing("clEnqueue*")))
            };
            match enqueued {
                Ok(event) => started.push(StartedOperation { event, command, is_followed: false, is_timed }),
                Err(error) if started.is_empty() => return Err(error),
                Err(error) => {
                    failure = Some(context.error(error).at_command(command));
                    break;
                }
            }
            after.iter().for_each(|&earlier| started[earlier as usize].is_followed = true);
        }
        let ends = started.iter().filter(|operation| !operation.is_followed);
        let ends: SmallVec<[sys::cl_event; 8]> = ends.map(|operation| operation.event.raw()).collect();
        let event = match if ends.is_empty() { wait } else { &ends } {
            [] => Some(context.completed_event()?),
            ends => queue.marker(ends)?,
        };
        let mut times = EnqueueTimes::new(wanted, list.commands.len());
        let timed = started.into_iter().filter(|operation| operation.is_timed);
        timed.for_each(|operation| times.add(operation.command, operation.event));
        Ok(StartedWork { event, failure, times, ..StartedWork::default() })
    }
}

/// An operation on an out-of-order queue.
struct StartedOperation {
    event: Owned<Event>,
    command: u32,
    is_followed: bool,
    /// Whether its event is that of a command of the driver's.
    is_timed: bool,
}
