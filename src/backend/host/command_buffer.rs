//! Command-buffers: recorded as lists, finalized into a program, updated by copy-on-write.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::pool::Pool;
use super::program::Program;
use super::queue::HostQueue;
use super::schedule::LineId;
use super::{execute, foreign};
use crate::hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, Queue, Signal, SyncPoint, WaitList,
};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// A command-buffer. What is in flight holds the program, so the command-buffer itself may be dropped.
#[derive(Debug)]
pub(super) struct HostCommandBuffer {
    id: CommandBufferId,
    device: DeviceId,
    desc: CommandBufferDesc,
    pool: Arc<Pool>,
    /// Its enqueues follow each other in this line, on whatever queue.
    line: LineId,
    state: State,
}

#[derive(Debug)]
enum State {
    Recording { commands: Vec<Command>, after: Vec<SmallVec<[u32; 2]>> },
    Executable(Arc<Program>),
}

impl HostCommandBuffer {
    pub(super) fn new(device: DeviceId, pool: &Arc<Pool>, desc: CommandBufferDesc) -> Self {
        Self {
            id: CommandBufferId::unique(),
            device,
            desc,
            pool: Arc::clone(pool),
            line: pool.add_line(),
            state: State::Recording { commands: Vec::new(), after: Vec::new() },
        }
    }
}

impl Drop for HostCommandBuffer {
    fn drop(&mut self) {
        self.pool.disown_line(self.line);
    }
}

impl CommandBuffer for HostCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let (state, commands, lowering) = match &self.state {
            State::Recording { commands, .. } => (CommandBufferState::Recording, commands.len(), "recording"),
            State::Executable(program) => {
                let lowering =
                    if program.graph().is_some() { "dependency-counted run" } else { "in-order run" };
                (CommandBufferState::Executable, program.commands().len(), lowering)
            }
        };
        CommandBufferInfo { id: self.id, device: self.device, desc: self.desc, state, commands, lowering }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        let State::Recording { commands, after: all_after } = &mut self.state else {
            return Err(invalid("commands cannot be appended after finalize"));
        };
        execute::check(command)?;
        let index = u32::try_from(commands.len()).map_err(|_| invalid("the command-buffer is full"))?;
        if after.iter().any(|point| point.buffer != self.id || point.index >= index) {
            return Err(Error::new(
                ErrorKind::InvalidSyncPoint,
                "a sync-point is not of an earlier command of this command-buffer",
            ));
        }
        commands.push(command.clone());
        all_after.push(after.iter().map(|point| point.index).collect());
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn finalize(&mut self) -> Result<()> {
        let State::Recording { commands, after } = &mut self.state else {
            return Err(invalid("the command-buffer is finalized already"));
        };
        let CommandBufferDesc { in_order, profiling, .. } = self.desc;
        let program = Program::new(std::mem::take(commands), after, in_order, profiling);
        self.state = State::Executable(Arc::new(program));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let State::Executable(program) = &self.state else {
            return Err(invalid("the command-buffer is not finalized"));
        };
        let queue = queue.as_any().downcast_ref::<HostQueue>();
        let queue = queue.filter(|queue| queue.device() == self.device).ok_or_else(|| foreign("queue"))?;
        queue.submit(program, self.desc.profiling, Some(self.line), wait, signal)
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let State::Executable(program) = &mut self.state else {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        };
        // All are prepared before the first is put in place: on an error nothing has changed.
        let changes = CommandChange::of(updates, |index| program.commands().get(index))?;
        for update in updates {
            if let Some(kernel) = &update.kernel {
                execute::host_kernel(&**kernel)?;
            }
            update.args.iter().try_for_each(|(_, arg)| execute::check_arg(arg))?;
        }
        // Copies the commands only if an earlier enqueue still needs the old ones.
        let program = Arc::make_mut(program);
        for CommandChange { index, launch, enabled } in changes {
            if let Some(launch) = launch {
                program.set_command(index, Command::Kernel(launch));
            }
            if let Some(enabled) = enabled {
                program.set_enabled(index, enabled);
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let State::Executable(program) = &mut self.state else {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        };
        let other = other.as_any().downcast_ref::<Self>().filter(|other| other.device == self.device);
        // The order is the same, and with it how far a run has got: so is the object that holds both.
        let new = match &other.ok_or_else(|| foreign("command-buffer"))?.state {
            State::Recording { commands, .. } => program.with_commands(commands.clone()),
            State::Executable(other) => program.like(other),
        };
        *program = Arc::new(new);
        Ok(())
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
