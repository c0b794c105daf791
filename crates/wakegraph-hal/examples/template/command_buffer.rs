//! Command-buffers. **Fill in:** translate each command into the vendor's graph node or list entry,
//! with its sync-points as edges; instantiate in `finalize`; patch in `update`, or replace the
//! graph behind what is in flight.
#![expect(unsafe_code, reason = "implements enqueues, whose safety is the caller's to keep")]

use wakegraph_hal::support::errors;
use wakegraph_hal::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, DeviceId, Error, Queue, Result, Signal, SyncPoint,
    WaitList,
};

use crate::queue::TemplateQueue;

/// Commands that are kept alive, with their operands, and never run.
#[derive(Debug)]
pub(crate) struct TemplateCommandBuffer {
    id: CommandBufferId,
    device: DeviceId,
    desc: CommandBufferDesc,
    state: CommandBufferState,
    commands: Vec<Command>,
}

impl TemplateCommandBuffer {
    pub(crate) fn new(device: DeviceId, desc: CommandBufferDesc) -> Self {
        let (id, state) = (CommandBufferId::unique(), CommandBufferState::Recording);
        Self { id, device, desc, state, commands: Vec::new() }
    }

    fn expect(&self, state: CommandBufferState, refusal: fn() -> Error) -> Result<()> {
        if self.state == state { Ok(()) } else { Err(refusal()) }
    }
}

impl CommandBuffer for TemplateCommandBuffer {
    fn info(&self) -> CommandBufferInfo {
        CommandBufferInfo {
            id: self.id,
            device: self.device,
            desc: self.desc,
            state: self.state,
            commands: self.commands.len(),
            lowering: "nothing",
            reason: "",
        }
    }

    fn append(&mut self, command: &Command, _: &[SyncPoint]) -> Result<Appended> {
        self.expect(CommandBufferState::Recording, errors::append_after_finalize)?;
        self.commands.push(command.clone());
        Ok(Appended::new(self.id, self.commands.len() as u32 - 1, command, &self.desc))
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.commands.get(index)
    }

    fn finalize(&mut self) -> Result<()> {
        self.expect(CommandBufferState::Recording, errors::finalized_twice)?;
        self.state = CommandBufferState::Executable;
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::enqueue_before_finalize)?;
        let queue = queue.downcast_ref::<TemplateQueue>();
        let queue =
            queue.filter(|queue| queue.device() == self.device).ok_or_else(|| errors::foreign("queue"))?;
        let timed_commands = self.desc.profiling.then_some(self.commands.len());
        queue.submit(timed_commands, None, wait, signal)
    }

    /// A disabled command keeps its place in the order.
    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::update_before_finalize)?;
        for CommandChange { index, command, .. } in
            CommandChange::of(updates, |index| self.commands.get(index))?
        {
            if let Some(command) = command {
                self.commands[index] = command;
            }
        }
        Ok(())
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        self.expect(CommandBufferState::Executable, errors::update_before_finalize)?;
        let other = other.downcast_ref::<Self>().filter(|other| other.device == self.device);
        self.commands = other.ok_or_else(|| errors::foreign("command-buffer"))?.commands.clone();
        Ok(())
    }
}
