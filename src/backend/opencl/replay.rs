//! The list of a command-buffer's operations, and how it is enqueued operation by operation.
#![expect(unsafe_code, reason = "enqueues on the driver's queues")]

use std::sync::Arc;

use smallvec::SmallVec;

use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::lower::{After, LoweredCommand, lower};
use super::memory::OpenclMemory;
use super::operation::Operation;
use super::signal::{EnqueueTimes, StartedWork, TimesWanted};
use super::sys::{self, DriverResult, Event, Owned};
use crate::hal::{Command, QueueOrder};
use crate::types::Result;

/// The commands of a command-buffer, lowered, with their order.
#[derive(Debug, Default)]
pub(super) struct CommandList {
    pub(super) commands: Vec<ListedCommand>,
}

/// One command of a list.
#[derive(Debug)]
pub(super) struct ListedCommand {
    pub(super) lowered: LoweredCommand,
    pub(super) enabled: bool,
    /// The earlier commands that it follows.
    after: After,
}

/// Where a list is enqueued, behind which events, and which times it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayTarget<'a> {
    pub(super) context: &'a OpenclContext,
    pub(super) queue: &'a DriverQueue,
    pub(super) wait: &'a [sys::cl_event],
    pub(super) wanted: TimesWanted,
}

/// The operation of a disabled command.
static NOTHING: Operation = Operation::Marker;

impl ListedCommand {
    /// Its operations, each with those before it that it follows.
    fn ordered_operations(&self) -> impl Iterator<Item = (&Operation, &[u32])> {
        let (all, nothing) = match self.enabled {
            true => (&self.lowered.operations[..], None),
            false => (&[][..], Some((&NOTHING, &[][..]))),
        };
        all.iter().map(|ordered| (&ordered.operation, &ordered.after[..])).chain(nothing)
    }

    /// Its operations in an order in which they can run.
    pub(super) fn operations(&self) -> impl Iterator<Item = &Operation> {
        self.ordered_operations().map(|(operation, _)| operation)
    }
}

impl Drop for CommandList {
    fn drop(&mut self) {
        // PoCL keeps the kernels of a program in a linked list with the newest in front, and searches
        // it from there for each one that is released.
        while self.commands.pop().is_some() {}
    }
}

impl CommandList {
    /// Appends a command that follows these earlier ones.
    pub(super) fn push(
        &mut self,
        context: &Arc<OpenclContext>,
        command: &Command,
        after: After,
    ) -> Result<()> {
        self.commands.push(ListedCommand { lowered: lower(context, command)?, enabled: true, after });
        Ok(())
    }

    /// The memory of the backend that the operations use.
    pub(super) fn staged(&self) -> impl Iterator<Item = Arc<OpenclMemory>> {
        self.commands.iter().flat_map(|command| command.lowered.staged.iter().cloned())
    }

    /// Enqueues everything.
    ///
    /// # Errors
    /// That of the first call; nothing was enqueued then. A later one's is in
    /// [`StartedWork::failure`].
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::hal::CommandBuffer::enqueue); the events are alive.
    pub(super) unsafe fn enqueue(&self, to: ReplayTarget<'_>) -> DriverResult<StartedWork> {
        match to.queue.order {
            // SAFETY: passed on to the caller.
            QueueOrder::InOrder => unsafe { self.enqueue_in_order(to) },
            // SAFETY: passed on to the caller.
            QueueOrder::OutOfOrder => unsafe { self.enqueue_graph(to) },
        }
    }

    /// On an in-order queue the first operation waits and the last has the event.
    unsafe fn enqueue_in_order(&self, to: ReplayTarget<'_>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, wanted } = to;
        let all = wanted == TimesWanted::Commands;
        let operations = (0..)
            .zip(&self.commands)
            .flat_map(|(number, command)| command.operations().map(move |operation| (number, operation)));
        // In order, a marker does nothing but for its event.
        let mut rest =
            operations.filter(|(_, operation)| all || !matches!(operation, Operation::Marker)).peekable();
        let mut times = EnqueueTimes::new(wanted, self.commands.len());
        let mut started = false;
        while let Some((command, operation)) = rest.next() {
            let last = rest.peek().is_none();
            let wants_event = last || all || (wanted == TimesWanted::Whole && !started);
            let wait = if started { &[][..] } else { wait };
            // SAFETY: passed on to the caller.
            match unsafe { operation.enqueue(context, queue, wait, wants_event) } {
                Ok(event) if last => {
                    times.last = Some(command);
                    return Ok(StartedWork { event, failure: None, times });
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
    unsafe fn enqueue_graph(&self, to: ReplayTarget<'_>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, wanted } = to;
        let mut started: Vec<StartedOperation> = Vec::with_capacity(self.commands.len());
        // Of each command, the last operation.
        let mut ends: Vec<usize> = Vec::with_capacity(self.commands.len());
        let mut failure = None;
        'commands: for (number, command) in (0..).zip(&self.commands) {
            let first = started.len();
            for (operation, after) in command.ordered_operations() {
                let after: SmallVec<[usize; 8]> = match after {
                    [] => command.after.iter().map(|&earlier| ends[earlier as usize]).collect(),
                    after => after.iter().map(|&earlier| first + earlier as usize).collect(),
                };
                let events: SmallVec<[sys::cl_event; 8]> =
                    after.iter().map(|&earlier| started[earlier].event.raw()).collect();
                let wait = if events.is_empty() { wait } else { &events };
                let enqueued = if matches!(operation, Operation::Marker) && wait.is_empty() {
                    // Without a wait list it would wait for everything in the queue.
                    context.completed_event()
                } else {
                    // SAFETY: passed on to the caller.
                    let enqueued = unsafe { operation.enqueue(context, queue, wait, true) };
                    enqueued.and_then(|event| event.ok_or(sys::missing("clEnqueue*")))
                };
                match enqueued {
                    Ok(event) => {
                        started.push(StartedOperation { event, command: number, is_followed: false })
                    }
                    Err(error) if started.is_empty() => return Err(error),
                    Err(error) => {
                        failure = Some(context.error(error).at_command(number));
                        break 'commands;
                    }
                }
                after.iter().for_each(|&earlier| started[earlier].is_followed = true);
            }
            ends.push(started.len() - 1);
        }
        let ends = started.iter().filter(|operation| !operation.is_followed);
        let ends: SmallVec<[sys::cl_event; 8]> = ends.map(|operation| operation.event.raw()).collect();
        let event = match if ends.is_empty() { wait } else { &ends } {
            [] => Some(context.completed_event()?),
            ends => queue.marker(ends)?,
        };
        let mut times = EnqueueTimes::new(wanted, self.commands.len());
        started.into_iter().for_each(|operation| times.add(operation.command, operation.event));
        Ok(StartedWork { event, failure, times })
    }
}

/// An operation on an out-of-order queue.
struct StartedOperation {
    event: Owned<Event>,
    command: u32,
    is_followed: bool,
}
