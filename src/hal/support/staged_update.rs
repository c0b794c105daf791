//! Updates of a command list: new commands, all of which are lowered before the first takes its place.

use super::lowering::{DriverOperation, LoweredCommand};
use super::recorded_commands::RecordedCommands;
use crate::hal::{Command, CommandChange, CommandUpdate, KernelLaunch};
use crate::types::Result;

/// The new commands of an update before [`exchange`](Self::exchange), the old ones after it.
#[derive(Debug)]
pub(crate) struct StagedUpdate<O>(Vec<StagedCommand<O>>);

#[derive(Debug)]
struct StagedCommand<O> {
    index: usize,
    /// The command and its operations, unless the update only enables or disables it.
    command: Option<(Command, LoweredCommand<O>)>,
    enabled: bool,
}

/// The change of one launch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangedLaunch<'a> {
    /// The number of the command.
    pub(crate) index: usize,
    pub(crate) old: &'a KernelLaunch,
    pub(crate) new: &'a KernelLaunch,
}

impl<O: DriverOperation> StagedUpdate<O> {
    /// The commands that `updates` change. Without a change to any command it is empty.
    ///
    /// # Errors
    /// Those of `lower`, and of updates that do not fit their commands;
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize.
    pub(crate) fn of_changes(
        updates: &[CommandUpdate],
        recorded: &RecordedCommands<O>,
        lower: impl Fn(&Command) -> Result<LoweredCommand<O>>,
    ) -> Result<Self> {
        recorded.check_update()?;
        let mut staged = Vec::with_capacity(updates.len());
        for CommandChange { index, command, enabled } in
            CommandChange::of(updates, |index| recorded.commands.get(index))?
        {
            let before = recorded.list.commands[index].enabled;
            let enabled = enabled.unwrap_or(before);
            let command =
                command.map(|command| lower(&command).map(|lowered| (command, lowered))).transpose()?;
            if command.is_some() || enabled != before {
                staged.push(StagedCommand { index, command, enabled });
            }
        }
        Ok(Self(staged))
    }

    /// All commands of another command-buffer, lowered as in [`of_changes`](Self::of_changes).
    ///
    /// # Errors
    /// Those of `lower`; [`InvalidOperation`](crate::ErrorKind::InvalidOperation) before finalize.
    pub(crate) fn of_all(
        recorded: &RecordedCommands<O>,
        other: &RecordedCommands<O>,
        lower: impl Fn(&Command) -> Result<LoweredCommand<O>>,
    ) -> Result<Self> {
        recorded.check_update()?;
        let RecordedCommands { commands, list, .. } = other;
        let staged = commands.iter().zip(&list.commands).enumerate().map(|(index, (command, listed))| {
            let command = Some((command.clone(), lower(command)?));
            Ok(StagedCommand { index, command, enabled: listed.enabled })
        });
        Ok(Self(staged.collect::<Result<_>>()?))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Exchanges the staged commands and those in their places; a second call puts them back.
    pub(crate) fn exchange(&mut self, recorded: &mut RecordedCommands<O>) {
        let RecordedCommands { commands, list, .. } = recorded;
        for StagedCommand { index, command, enabled } in &mut self.0 {
            let listed = &mut list.commands[*index];
            std::mem::swap(enabled, &mut listed.enabled);
            if let Some((command, lowered)) = command {
                std::mem::swap(command, &mut commands[*index]);
                std::mem::swap(lowered, &mut listed.lowered);
            }
        }
    }

    /// After an [`exchange`](Self::exchange), what a recording of the old commands would have to change.
    /// `None` stands for what cannot be changed in place: all but launches of one operation that stay as
    /// enabled as they were, because a recording leaves out disabled commands.
    pub(crate) fn changed_launches<'a>(
        &'a self,
        recorded: &'a RecordedCommands<O>,
    ) -> impl Iterator<Item = Option<ChangedLaunch<'a>>> {
        self.0.iter().map(|staged| {
            let listed = &recorded.list.commands[staged.index];
            let fits = staged.enabled == listed.enabled && listed.lowered.operations.len() == 1;
            staged.launch(recorded).filter(|_| fits)
        })
    }
}

impl<O> StagedCommand<O> {
    /// What has changed in the launch that is in place now.
    fn launch<'a>(&'a self, recorded: &'a RecordedCommands<O>) -> Option<ChangedLaunch<'a>> {
        match (&self.command, &recorded.commands[self.index]) {
            (Some((Command::Kernel(old), _)), Command::Kernel(new)) => {
                Some(ChangedLaunch { index: self.index, old, new })
            }
            _ => None,
        }
    }
}
