//! The list of a command-buffer, and how it is enqueued command by command.
#![expect(unsafe_code, reason = "enqueues on the driver's queues")]

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::device::Shared;
use super::flatten::{Part, flatten};
use super::lower::Lowered;
use super::memory::OpenclMemory;
use super::op::Op;
use super::queue::DriverQueue;
use super::signal::{self, Times};
use super::sys::{self, Event, Failure, Owned};
use crate::hal::{Command, QueueOrder};
use crate::types::{Error, Result};

/// Operations with their order.
#[derive(Debug, Default)]
pub(super) struct List {
    steps: Vec<Step>,
    /// The first and the last step of each command.
    commands: Vec<(u32, u32)>,
    /// Which commands are disabled; empty while none ever was.
    disabled: Vec<bool>,
    staged: Vec<Arc<OpenclMemory>>,
}

/// What a disabled command does.
static NOTHING: Op = Op::Marker;

/// The commands that one follows.
pub(super) type After = SmallVec<[u32; 2]>;

/// One operation.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) op: Op,
    pub(super) command: u32,
    /// Earlier steps that it follows.
    pub(super) after: After,
    /// Whether a later one follows it.
    followed: bool,
}

impl Drop for List {
    fn drop(&mut self) {
        // PoCL keeps the kernels of a program in a linked list, the newest in front, and searches
        // it from there for the one that is released.
        while self.steps.pop().is_some() {}
    }
}

/// How an enqueue went that has started.
#[derive(Debug)]
pub(super) struct Started {
    /// Over when everything that was enqueued is; without one it is over already.
    pub(super) event: Option<Owned<Event>>,
    /// What did not start, and with it all that should have followed.
    pub(super) failure: Option<Error>,
    pub(super) times: Option<Times>,
}

/// What an enqueue should keep for its times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timing {
    None,
    /// When the first began and the last ended.
    Whole,
    /// Those of each command, too.
    Commands,
}

impl List {
    /// Appends a command after these earlier ones.
    pub(super) fn push(&mut self, shared: &Arc<Shared>, command: &Command, after: &[u32]) -> Result<()> {
        // Everything is lowered before the first step is added: on an error the list is as it was.
        let parts = flatten(shared, command)?;
        let first = self.steps.len() as u32;
        let follows: After = after.iter().map(|&c| self.commands[c as usize].1).collect();
        let mut ends: SmallVec<[u32; 1]> = SmallVec::new();
        for Part { lowered, after } in parts {
            let behind = after.iter().map(|&part| ends[part as usize]).collect();
            ends.push(self.add(lowered, if after.is_empty() { follows.clone() } else { behind }));
        }
        self.commands.push((first, self.steps.len() as u32 - 1));
        Ok(())
    }

    /// Adds operations in their order behind these steps. Gives the last.
    fn add(&mut self, Lowered { ops, staged }: Lowered, mut follows: After) -> u32 {
        self.staged.extend(staged);
        let number = self.commands.len() as u32;
        for op in ops {
            for &earlier in &follows {
                self.steps[earlier as usize].followed = true;
            }
            let after = std::mem::take(&mut follows);
            follows.push(self.steps.len() as u32);
            self.steps.push(Step { op, command: number, after, followed: false });
        }
        self.steps.len() as u32 - 1
    }

    /// Memory of ours that the operations read, for whoever outlives the list.
    pub(super) fn into_staged(mut self) -> Vec<Arc<OpenclMemory>> {
        std::mem::take(&mut self.staged)
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// What a step does: nothing where its command is disabled.
    pub(super) fn op<'a>(&self, step: &'a Step) -> &'a Op {
        if self.is_enabled(step.command as usize) { &step.op } else { &NOTHING }
    }

    pub(super) fn is_enabled(&self, command: usize) -> bool {
        !self.disabled.get(command).is_some_and(|disabled| *disabled)
    }

    /// Which commands are disabled, as [`set_disabled`](Self::set_disabled) takes it.
    pub(super) fn disabled(&self) -> &[bool] {
        &self.disabled
    }

    pub(super) fn set_disabled(&mut self, disabled: Vec<bool>) {
        self.disabled = disabled;
    }

    pub(super) fn set_enabled(&mut self, command: usize, enabled: bool) {
        self.disabled.resize(self.commands.len(), false);
        self.disabled[command] = !enabled;
    }

    /// The step that a command starts with.
    pub(super) fn first_step(&self, command: usize) -> Option<usize> {
        self.commands.get(command).map(|(first, _)| *first as usize)
    }

    /// The list of these commands; `after[i]` are those that command `i` follows.
    pub(super) fn build(shared: &Arc<Shared>, commands: &[Command], after: &[After]) -> Result<Self> {
        let mut list = Self::default();
        commands.iter().zip(after).try_for_each(|(command, after)| list.push(shared, command, after))?;
        Ok(list)
    }

    /// Whether the command can become this without a new list: it was one operation, and is again.
    pub(super) fn fits(&self, command: usize, new: &Lowered) -> bool {
        new.ops.len() == 1 && self.commands.get(command).is_some_and(|(first, last)| first == last)
    }

    /// Puts what a command becomes in place of what it was, which it gives back. They must [fit](Self::fits).
    pub(super) fn replace(&mut self, command: usize, mut new: Lowered) -> Lowered {
        let (first, _) = self.commands[command];
        if let Some(op) = new.ops.first_mut() {
            std::mem::swap(op, &mut self.steps[first as usize].op);
        }
        new
    }

    /// Enqueues everything behind the events in `wait`.
    ///
    /// # Errors
    /// That of the first call; nothing was enqueued then. A later one's is in [`Started::failure`].
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::hal::CommandBuffer::enqueue); the events are alive.
    pub(super) unsafe fn enqueue(
        &self,
        shared: &Shared,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
        timing: Timing,
    ) -> Result<Started, Failure> {
        match queue.order() {
            // SAFETY: passed on to the caller.
            QueueOrder::InOrder => unsafe { self.enqueue_in_order(shared, queue, wait, timing) },
            // SAFETY: passed on to the caller.
            QueueOrder::OutOfOrder => unsafe { self.enqueue_graph(shared, queue, wait, timing) },
        }
    }

    /// On an in-order queue the first waits, the last has the event, and what lies between needs neither.
    unsafe fn enqueue_in_order(
        &self,
        shared: &Shared,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
        timing: Timing,
    ) -> Result<Started, Failure> {
        let core = shared.core;
        let all = timing == Timing::Commands;
        // In order, a marker does nothing but for its event.
        let runs = |step: &&Step| all || !matches!(self.op(step), Op::Marker);
        let mut rest = self.steps.iter().filter(runs).peekable();
        let mut times = Times::new(timing, self.commands.len());
        let mut started = false;
        while let Some(step) = rest.next() {
            let last = rest.peek().is_none();
            let wanted = last || all || (timing == Timing::Whole && !started);
            let mut event = ptr::null_mut();
            let place = if wanted { &raw mut event } else { ptr::null_mut() };
            let wait = if started { &[][..] } else { wait };
            // SAFETY: passed on to the caller.
            let enqueued = unsafe { self.op(step).enqueue(core, queue.raw(), wait, place) };
            let event = match enqueued {
                Ok(()) if wanted => Some(signal::adopt(core, event)?),
                Ok(()) => None,
                Err(failure) if !started => return Err(failure),
                Err(failure) => {
                    let failure = shared.error(failure).at_command(step.command);
                    return Ok(Started {
                        event: queue.marker(core, &[])?,
                        failure: Some(failure),
                        times: None,
                    });
                }
            };
            started = true;
            match (last, event) {
                (true, event) => {
                    let times = Times::end_with(times, step.command);
                    return Ok(Started { event, failure: None, times });
                }
                (false, Some(event)) => Times::add(&mut times, step.command, event),
                (false, None) => {}
            }
        }
        Ok(Started { event: queue.marker(core, wait)?, failure: None, times: None })
    }

    /// On an out-of-order queue every step has an event, and waits for those that it follows.
    unsafe fn enqueue_graph(
        &self,
        shared: &Shared,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
        timing: Timing,
    ) -> Result<Started, Failure> {
        let core = shared.core;
        let mut events: Vec<Owned<Event>> = Vec::with_capacity(self.steps.len());
        let mut failure = None;
        for step in &self.steps {
            let mut event = ptr::null_mut();
            let after: SmallVec<[sys::cl_event; 8]> =
                step.after.iter().map(|&earlier| events[earlier as usize].raw()).collect();
            let wait = if after.is_empty() { wait } else { &after };
            let op = self.op(step);
            let enqueued = if matches!(op, Op::Marker) && wait.is_empty() {
                // Without a wait list it would wait for everything in the queue.
                signal::completed(shared).map(|done| events.push(done))
            } else {
                // SAFETY: passed on to the caller.
                let enqueued = unsafe { op.enqueue(core, queue.raw(), wait, &raw mut event) };
                enqueued.and_then(|()| {
                    events.push(signal::adopt(core, event)?);
                    Ok(())
                })
            };
            match enqueued {
                Ok(()) => {}
                Err(error) if events.is_empty() => return Err(error),
                Err(error) => {
                    failure = Some(shared.error(error).at_command(step.command));
                    break;
                }
            }
        }
        let ends: SmallVec<[sys::cl_event; 8]> = match failure {
            // What follows the failed step did not start, so that what it would have followed ends the list.
            Some(_) => events.iter().map(Owned::raw).collect(),
            None => {
                let ends = self.steps.iter().zip(&events).filter(|(step, _)| !step.followed);
                ends.map(|(_, event)| event.raw()).collect()
            }
        };
        let ends = if ends.is_empty() { wait } else { &ends };
        let event = match ends {
            [] => Some(signal::completed(shared)?),
            ends => queue.marker(core, ends)?,
        };
        let mut times = Times::new(timing, self.commands.len());
        for (step, event) in self.steps.iter().zip(events) {
            Times::add(&mut times, step.command, event);
        }
        Ok(Started { event, failure, times })
    }
}
