//! Updates: new commands, all of which are prepared before the first takes its place; and changes of a
//! recording in place.

use std::sync::Arc;

use super::command_list::CommandList;
use super::context::LevelZeroContext;
use super::lower::{LoweredCommand, lower};
use super::mutable::{LaunchMutation, change};
use super::recording::ListRecording;
use super::sys::LevelZeroFailure;
use crate::hal::{Command, CommandChange, CommandUpdate};
use crate::types::Result;

/// The new commands of an update before [`exchange`](Self::exchange), the old ones after it.
#[derive(Debug)]
pub(super) struct StagedUpdate(Vec<StagedCommand>);

#[derive(Debug)]
struct StagedCommand {
    index: usize,
    /// The command and its operations, unless the update only enables or disables it.
    command: Option<(Command, LoweredCommand)>,
    enabled: bool,
}

impl StagedUpdate {
    /// The commands that `updates` change. Without a change to any command it is empty.
    pub(super) fn of_changes(
        context: &Arc<LevelZeroContext>,
        updates: &[CommandUpdate],
        commands: &[Command],
        list: &CommandList,
    ) -> Result<Self> {
        let mut staged = Vec::with_capacity(updates.len());
        for CommandChange { index, command, enabled } in
            CommandChange::of(updates, |index| commands.get(index))?
        {
            let before = list.commands[index].enabled;
            let enabled = enabled.unwrap_or(before);
            let command = command.map(|command| lowered(context, command)).transpose()?;
            if command.is_some() || enabled != before {
                staged.push(StagedCommand { index, command, enabled });
            }
        }
        Ok(Self(staged))
    }

    /// All commands of another command-buffer.
    pub(super) fn of_all(
        context: &Arc<LevelZeroContext>,
        commands: &[Command],
        list: &CommandList,
    ) -> Result<Self> {
        let staged = commands.iter().zip(&list.commands).enumerate().map(|(index, (command, listed))| {
            let command = Some(lowered(context, command.clone())?);
            Ok(StagedCommand { index, command, enabled: listed.enabled })
        });
        Ok(Self(staged.collect::<Result<_>>()?))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Exchanges the staged commands and those in their places; a second call puts them back.
    pub(super) fn exchange(&mut self, commands: &mut [Command], list: &mut CommandList) {
        for StagedCommand { index, command, enabled } in &mut self.0 {
            let listed = &mut list.commands[*index];
            std::mem::swap(enabled, &mut listed.enabled);
            if let Some((command, lowered)) = command {
                std::mem::swap(command, &mut commands[*index]);
                std::mem::swap(lowered, &mut listed.lowered);
            }
        }
    }

    /// After an [`exchange`](Self::exchange), changes the recording of the old commands in place.
    /// It is idle. False if that is not possible, or if the driver refuses it: then the recording
    /// may have been changed in part, and has to be replaced.
    pub(super) fn change_in_place(
        &self,
        context: &LevelZeroContext,
        recording: &mut ListRecording,
        commands: &[Command],
        list: &CommandList,
    ) -> bool {
        let changes = self.0.iter().map(|StagedCommand { index, command, enabled }| {
            let (Some((Command::Kernel(old), _)), Command::Kernel(new)) = (command, &commands[*index]) else {
                return None;
            };
            // A recording leaves out disabled commands.
            let is_as_before = *enabled == list.commands[*index].enabled;
            LaunchMutation::new(context, &recording.mutable, *index, old, new).filter(|_| is_as_before)
        });
        let Some(changes) = changes.collect::<Option<Vec<_>>>() else { return false };
        match change(context, &mut recording.main, &changes) {
            Ok(()) => true,
            Err(LevelZeroFailure { call, code }) => {
                let why = "an update in place was refused";
                tracing::debug!(target: "wakegraph::level_zero", call, code, "{why}");
                false
            }
        }
    }
}

fn lowered(context: &Arc<LevelZeroContext>, command: Command) -> Result<(Command, LoweredCommand)> {
    let lowered = lower(context, &command)?;
    Ok((command, lowered))
}
