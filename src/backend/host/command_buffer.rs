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
    CommandBufferState, CommandHandle, KernelLaunch, KernelUpdate, Queue, Signal, SyncPoint, WaitList,
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
        let updatable = self.desc.updatable && matches!(command, Command::Kernel(_));
        Ok(Appended {
            sync_point: SyncPoint { buffer: self.id, index },
            handle: updatable.then_some(CommandHandle { buffer: self.id, index }),
        })
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

    fn update(&mut self, updates: &[KernelUpdate]) -> Result<()> {
        let State::Executable(program) = &mut self.state else {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        };
        // All are prepared before the first is put in place: on an error nothing has changed. Several updates of one
        // command build on each other.
        let mut launches = Vec::<(usize, Box<KernelLaunch>)>::with_capacity(updates.len());
        for update in updates {
            let index = update.handle.index as usize;
            let mut launch = match launches.iter().rev().find(|(prepared, _)| *prepared == index) {
                Some((_, launch)) => launch.clone(),
                None => match program.commands().get(index) {
                    Some(Command::Kernel(launch)) => launch.clone(),
                    _ => {
                        return Err(Error::new(
                            ErrorKind::InvalidCommandHandle,
                            format!("command {index} is not a kernel launch"),
                        ));
                    }
                },
            };
            if let Some(kernel) = &update.kernel {
                execute::host_kernel(&**kernel)?;
            }
            update.args.iter().try_for_each(|(_, arg)| execute::check_arg(arg))?;
            update.apply_to(&mut launch)?;
            launches.push((index, launch));
        }
        // Copies the commands only if an earlier enqueue still needs the old ones.
        let commands = Arc::make_mut(program).commands_mut();
        for (index, launch) in launches {
            commands[index] = Command::Kernel(launch);
        }
        Ok(())
    }
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, why)
}
