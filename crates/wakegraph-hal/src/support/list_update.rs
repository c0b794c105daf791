//! Updates of a command list: each takes effect at once, and what it replaces is kept until all have
//! succeeded.

use std::sync::Arc;
use std::{mem, ptr};

use super::lowering::{DriverOperation, LoweredCommand, OrderedOperation, StagedMemory};
use super::recorded_commands::RecordedCommands;
use super::refusal::unknown_command;
use crate::{Command, CommandUpdate, Error, KernelArg, KernelLaunch, LaunchBefore, Result};

/// What a backend does with the commands of an update.
pub trait UpdateBackend: Sized {
    /// What a command is lowered to.
    type Operation: DriverOperation;

    /// The operations of a command that takes the place of another one.
    fn lower(self: &Arc<Self>, command: &Command) -> Result<LoweredCommand<Self::Operation>>;

    /// Whether the operation of a launch can be given these arguments, for the same kernel.
    fn takes_arguments<'a>(
        self: &Arc<Self>,
        _operation: &Self::Operation,
        _args: impl Iterator<Item = &'a KernelArg>,
    ) -> bool {
        false
    }

    /// Makes an operation that takes the arguments do what the launch says: in all that the `update`
    /// names, or without one in everything. After an error it may have been changed in part.
    fn set_launch(
        self: &Arc<Self>,
        _operation: &mut Self::Operation,
        _launch: &KernelLaunch,
        _update: Option<&CommandUpdate>,
    ) -> Result<()> {
        Ok(())
    }
}

/// What an update has replaced, oldest first, each part with the index of its command.
#[derive(Debug)]
pub struct ReplacedParts<O>(pub Vec<(usize, ReplacedOperation<O>)>);

/// One part that an update has replaced.
#[derive(Debug)]
pub enum ReplacedOperation<O> {
    /// Of a launch that has kept its operation.
    Launch(LaunchBefore),
    /// A whole command, with its operations.
    Command(Box<(Command, LoweredCommand<O>)>),
    /// Whether the command was enabled.
    Enabled(bool),
}

/// The commands of a command-buffer while they are updated.
struct ListUpdate<'a, B: UpdateBackend> {
    backend: &'a Arc<B>,
    recorded: &'a mut RecordedCommands<B::Operation>,
    replaced: Vec<(usize, ReplacedOperation<B::Operation>)>,
}

impl<O: DriverOperation> RecordedCommands<O> {
    /// Makes all of the changes, or on an error none.
    ///
    /// # Errors
    /// Those of `backend`, and of updates that do not fit their commands;
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize.
    pub fn update<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        updates: &[CommandUpdate],
    ) -> Result<ReplacedParts<O>> {
        self.change(backend, |list| {
            updates.iter().try_for_each(|update| {
                list.change(update).map_err(|error| error.at_command(update.handle.index))
            })
        })
    }

    /// Makes all commands those of another command-buffer, or on an error none.
    ///
    /// # Errors
    /// As for [`update`](Self::update).
    pub fn update_from<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        other: &Self,
    ) -> Result<ReplacedParts<O>> {
        self.change(backend, |list| {
            let mut all = other.commands.iter().zip(&other.list.commands).enumerate();
            all.try_for_each(|(index, (command, listed))| {
                list.enable(index, listed.enabled)?;
                list.replace(index, command.clone())
            })
        })
    }

    fn change<B: UpdateBackend<Operation = O>>(
        &mut self,
        backend: &Arc<B>,
        change: impl FnOnce(&mut ListUpdate<'_, B>) -> Result<()>,
    ) -> Result<ReplacedParts<O>> {
        self.check_update()?;
        let mut update = ListUpdate { backend, recorded: self, replaced: Vec::new() };
        let changed = change(&mut update);
        let replaced = ReplacedParts(update.replaced);
        match changed {
            Ok(()) => Ok(replaced),
            Err(error) => Err(replaced.restore(backend, self, error)),
        }
    }

    /// The launch that a command is, with its operation, if it is only one.
    fn launch_mut(&mut self, index: usize) -> Option<(&mut KernelLaunch, &mut O)> {
        let listed = self.list.commands.get_mut(index)?;
        match (self.commands.get_mut(index)?, &mut listed.lowered.operations[..]) {
            (Command::Kernel(launch), [OrderedOperation { operation, .. }]) => Some((launch, operation)),
            _ => None,
        }
    }
}

impl<B: UpdateBackend> ListUpdate<'_, B> {
    /// Changes a command as `update` says. After an error it may be changed in part.
    fn change(&mut self, update: &CommandUpdate) -> Result<()> {
        let index = update.handle.index as usize;
        if !self.recorded.commands.get(index).is_some_and(Command::can_be_updated) {
            return Err(unknown_command(index));
        }
        if let Some(enabled) = update.enabled {
            self.enable(index, enabled)?;
        }
        if let Some(new) = &update.command {
            self.replace(index, Command::clone(new))?;
        }
        if !update.changes_launch() || self.change_launch(index, update)? {
            return Ok(());
        }
        let Some(Command::Kernel(launch)) = self.recorded.commands.get(index) else {
            return Err(unknown_command(index));
        };
        let mut new = launch.clone();
        update.apply_to(&mut new)?;
        self.replace(index, Command::Kernel(new))
    }

    /// Changes a launch that keeps its operation. False, and without effect, if it cannot keep it.
    fn change_launch(&mut self, index: usize, update: &CommandUpdate) -> Result<bool> {
        let Self { backend, recorded, replaced } = self;
        let Some((launch, operation)) = recorded.launch_mut(index) else { return Ok(false) };
        let args = update.args.iter();
        if update.kernel.is_some()
            || args.clone().any(|(index, _)| *index >= launch.args.len())
            || !backend.takes_arguments(operation, args.map(|(_, arg)| arg))
        {
            return Ok(false);
        }
        update.exchange(launch, |before| replaced.push((index, ReplacedOperation::Launch(before))))?;
        backend.set_launch(operation, launch, Some(update)).map(|()| true)
    }

    /// Makes a command another one.
    fn replace(&mut self, index: usize, new: Command) -> Result<()> {
        let Self { backend, recorded, replaced } = self;
        match (new, recorded.launch_mut(index)) {
            (Command::Kernel(mut new), Some((launch, operation)))
                if ptr::addr_eq(Arc::as_ptr(&launch.kernel), Arc::as_ptr(&new.kernel))
                    && backend.takes_arguments(operation, new.args.iter()) =>
            {
                mem::swap(launch, &mut new);
                replaced.push((index, ReplacedOperation::Launch(LaunchBefore::Launch(new))));
                backend.set_launch(operation, launch, None)
            }
            (new, _) => {
                let lowered = backend.lower(&new)?;
                let RecordedCommands { commands, list, .. } = &mut **recorded;
                let command = commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
                let old = mem::replace(&mut list.commands[index].lowered, lowered);
                let old = Box::new((mem::replace(command, new), old));
                replaced.push((index, ReplacedOperation::Command(old)));
                Ok(())
            }
        }
    }

    /// Enables or disables a command.
    fn enable(&mut self, index: usize, enabled: bool) -> Result<()> {
        let listed = self.recorded.list.commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
        if listed.enabled != enabled {
            listed.enabled = enabled;
            self.replaced.push((index, ReplacedOperation::Enabled(!enabled)));
        }
        Ok(())
    }
}

impl<O: DriverOperation> ReplacedParts<O> {
    /// Puts everything back after an error, and gives the error. If the driver refuses that, the
    /// command-buffer is of no more use.
    pub fn restore<B: UpdateBackend<Operation = O>>(
        self,
        backend: &Arc<B>,
        recorded: &mut RecordedCommands<O>,
        error: Error,
    ) -> Error {
        let mut undone = Ok(());
        for (index, part) in self.0.into_iter().rev() {
            match part {
                ReplacedOperation::Enabled(before) => recorded.list.commands[index].enabled = before,
                ReplacedOperation::Command(before) => {
                    (recorded.commands[index], recorded.list.commands[index].lowered) = *before;
                }
                ReplacedOperation::Launch(before) => {
                    let Some((launch, operation)) = recorded.launch_mut(index) else { continue };
                    before.restore(launch);
                    undone = undone.and(backend.set_launch(operation, launch, None));
                }
            }
        }
        recorded.failed_update(error, undone)
    }

    /// The memory of the backend that the replaced commands use.
    pub fn into_memory(self) -> impl Iterator<Item = StagedMemory> {
        self.0.into_iter().filter_map(|(_, part)| match part {
            ReplacedOperation::Command(old) => Some(old.1.staged),
            _ => None,
        })
    }
}
