//! The commands of a command-buffer that becomes a list: recorded, lowered, and updated.

use super::command_list::CommandList;
use super::lowering::{DriverOperation, LoweredCommand};
use super::refusal::{
    append_after_finalize, enqueue_before_finalize, finalized_twice, half_updated, next_command,
    update_before_finalize,
};
use crate::{
    Appended, Command, CommandBufferDesc, CommandBufferId, CommandBufferInfo, CommandBufferState, DeviceId,
    Error, Result, SyncPoint,
};

/// The commands of a command-buffer, and its state.
#[derive(Debug)]
pub struct RecordedCommands<O> {
    id: CommandBufferId,
    /// How the command-buffer was created.
    pub desc: CommandBufferDesc,
    state: CommandBufferState,
    /// Keeps the operands of the commands alive, and is what updates build on.
    pub commands: Vec<Command>,
    /// The lowered commands.
    pub list: CommandList<O>,
    /// Why it must not be enqueued any more.
    broken: Option<Error>,
}

impl<O: DriverOperation> RecordedCommands<O> {
    /// A command-buffer without commands.
    pub fn new(desc: CommandBufferDesc) -> Self {
        let (id, state) = (CommandBufferId::unique(), CommandBufferState::Recording);
        Self { id, desc, state, commands: Vec::new(), list: CommandList::default(), broken: None }
    }

    /// Returns true once the command-buffer can be enqueued.
    pub fn is_finalized(&self) -> bool {
        self.state == CommandBufferState::Executable
    }

    /// Describes the command-buffer: how it was lowered, and why it is not lowered better.
    pub fn info(&self, device: DeviceId, lowering: &'static str, reason: &'static str) -> CommandBufferInfo {
        let info = CommandBufferInfo::new(self.id, device, self.desc, lowering);
        info.state(self.state).commands(self.commands.len()).reason(reason)
    }

    /// Appends a command, which `lower` lowers.
    ///
    /// # Errors
    /// Those of `lower`; [`InvalidSyncPoint`](crate::ErrorKind::InvalidSyncPoint);
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) after finalize.
    pub fn append(
        &mut self,
        command: &Command,
        after: &[SyncPoint],
        lower: impl FnOnce(&Command) -> Result<LoweredCommand<O>>,
    ) -> Result<Appended> {
        if self.is_finalized() {
            return Err(append_after_finalize());
        }
        let (index, mut after) = next_command(self.id, self.commands.len(), after)?;
        if self.desc.in_order {
            after = index.checked_sub(1).into_iter().collect();
        }
        self.list.push(lower(command)?, after);
        self.commands.push(command.clone());
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    /// Checks that it can be finalized.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) after finalize.
    pub fn check_finalize(&self) -> Result<()> {
        if self.is_finalized() { Err(finalized_twice()) } else { Ok(()) }
    }

    /// Takes note that it has been finalized.
    pub fn set_finalized(&mut self) {
        self.state = CommandBufferState::Executable;
    }

    /// Checks that it can be enqueued.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize; that of an update that could
    /// not be undone.
    pub fn check_enqueue(&self) -> Result<()> {
        if self.is_finalized() { self.check_intact() } else { Err(enqueue_before_finalize()) }
    }

    fn check_intact(&self) -> Result<()> {
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// The error of an update that has failed. If it could not be undone, nothing is enqueued from now on.
    pub(super) fn failed_update(&mut self, error: Error, undone: Result<()>) -> Error {
        let Err(cause) = undone else { return error };
        let error = half_updated(&error, &cause).help("finalize the graph again");
        self.broken.insert(error).clone()
    }

    /// Checks that it can be updated.
    ///
    /// # Errors
    /// As for [`check_enqueue`](Self::check_enqueue).
    pub fn check_update(&self) -> Result<()> {
        if self.is_finalized() { self.check_intact() } else { Err(update_before_finalize()) }
    }
}
