//! Command-buffers: recorded as lists, finalized into a program, updated by copy-on-write.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::refusal;
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, DeviceId, Queue, Result, Signal, SyncPoint, WaitList,
};

use super::interpreter;
use super::program::{EnqueuedCommands, HostProgram};
use super::queue::HostQueue;
use super::thread_pool::{ChainId, ThreadPool};

/// A command-buffer. Runs in flight hold the program, so the command-buffer itself may be dropped.
#[derive(Debug)]
pub(super) struct HostCommandBuffer {
    id: CommandBufferId,
    device: DeviceId,
    desc: CommandBufferDesc,
    pool: Arc<ThreadPool>,
    /// Its enqueues follow each other in this serial chain, on any queue.
    chain: ChainId,
    state: HostContents,
}

#[derive(Debug)]
enum HostContents {
    Recording { commands: Vec<Command>, after: Vec<SmallVec<[u32; 2]>> },
    Executable(Arc<HostProgram>),
}

impl HostCommandBuffer {
    pub(super) fn new(device: DeviceId, pool: &Arc<ThreadPool>, desc: CommandBufferDesc) -> Self {
        Self {
            id: CommandBufferId::unique(),
            device,
            desc,
            pool: Arc::clone(pool),
            chain: pool.add_chain(),
            state: HostContents::Recording { commands: Vec::new(), after: Vec::new() },
        }
    }
}

impl Drop for HostCommandBuffer {
    fn drop(&mut self) {
        self.pool.release_chain(self.chain);
    }
}

impl CommandBuffer for HostCommandBuffer {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> CommandBufferInfo {
        let (state, commands, (lowering, reason)) = match &self.state {
            HostContents::Recording { commands, .. } => {
                (CommandBufferState::Recording, commands.len(), ("recording", ""))
            }
            HostContents::Executable(program) => {
                let lowering = match program.graph().is_some() {
                    true => ("dependency-counted run", "some of its nodes may run at the same time"),
                    false => ("in-order run", "its nodes run one after the other"),
                };
                (CommandBufferState::Executable, program.commands().len(), lowering)
            }
        };
        let (id, device, desc) = (self.id, self.device, self.desc);
        CommandBufferInfo { id, device, desc, state, commands, lowering, reason }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        let HostContents::Recording { commands, after: all_after } = &mut self.state else {
            return Err(refusal::append_after_finalize());
        };
        interpreter::check(command)?;
        let (index, after) = refusal::next_command(self.id, commands.len(), after)?;
        commands.push(command.clone());
        all_after.push(after);
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        match &self.state {
            HostContents::Recording { commands, .. } => commands.get(index),
            HostContents::Executable(program) => program.commands().get(index),
        }
    }

    fn finalize(&mut self) -> Result<()> {
        let HostContents::Recording { commands, after } = &mut self.state else {
            return Err(refusal::finalized_twice());
        };
        let CommandBufferDesc { in_order, profiling, .. } = self.desc;
        let program = HostProgram::new(std::mem::take(commands), after, in_order, profiling);
        self.state = HostContents::Executable(Arc::new(program));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let HostContents::Executable(program) = &self.state else {
            return Err(refusal::enqueue_before_finalize());
        };
        let queue = queue.as_any().downcast_ref::<HostQueue>();
        let queue =
            queue.filter(|queue| queue.device() == self.device).ok_or_else(|| refusal::foreign("queue"))?;
        let commands = EnqueuedCommands::Program(Arc::clone(program));
        queue.submit(commands, self.desc.profiling, Some(self.chain), wait, signal)
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let HostContents::Executable(program) = &mut self.state else {
            return Err(refusal::update_before_finalize());
        };
        // All changes are prepared before the first is made: on an error nothing has changed.
        let changes = CommandChange::of(updates, |index| program.commands().get(index))?;
        for update in updates {
            if let Some(kernel) = &update.kernel {
                interpreter::host_kernel(&**kernel)?;
            }
            update.args.iter().try_for_each(|(_, arg)| interpreter::check_arg(arg))?;
            update.command.as_deref().map_or(Ok(()), interpreter::check)?;
        }
        // Copies the commands only if an earlier enqueue still needs the old ones.
        let program = Arc::make_mut(program);
        for CommandChange { index, command, enabled } in changes {
            if let Some(command) = command {
                program.set_command(index, command);
            }
            if let Some(enabled) = enabled {
                program.set_enabled(index, enabled);
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let HostContents::Executable(program) = &mut self.state else {
            return Err(refusal::update_before_finalize());
        };
        let other = other.as_any().downcast_ref::<Self>().filter(|other| other.device == self.device);
        // The order is the same, so the object that holds it, and the progress of a run, is kept.
        let new = match &other.ok_or_else(|| refusal::foreign("command-buffer"))?.state {
            HostContents::Recording { commands, .. } => program.with_commands(commands.clone()),
            HostContents::Executable(other) => program.like(other),
        };
        *program = Arc::new(new);
        Ok(())
    }
}
