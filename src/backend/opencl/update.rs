//! Updates of recorded commands: each takes effect at once, and what it replaces is kept until all have
//! succeeded. A launch keeps the driver's kernel where possible, which gets only the new arguments.

use std::collections::BTreeMap;
use std::mem;
use std::ptr;
use std::sync::Arc;

use super::context::OpenclContext;
use super::kernel::{OpenclKernel, is_plain};
use super::lower::lower;
use super::operation::{KernelOperation, OpenclOperation};
use crate::hal::support::lowering::{LoweredCommand, OrderedOperation, StagedMemory};
use crate::hal::support::recorded_commands::RecordedCommands;
use crate::hal::support::refusal::unknown_command;
use crate::hal::{Command, CommandUpdate, KernelLaunch, LaunchBefore};
use crate::types::{Range, Result};

/// The commands of a command-buffer while they are updated.
#[derive(Debug)]
pub(super) struct ListUpdate<'a> {
    context: &'a Arc<OpenclContext>,
    recorded: &'a mut RecordedCommands<OpenclOperation>,
    replaced: ReplacedParts,
}

/// What an update has replaced, oldest first, each part with the index of its command.
#[derive(Debug)]
pub(super) struct ReplacedParts(Vec<(usize, ReplacedPart)>);

#[derive(Debug)]
enum ReplacedPart {
    /// Of a launch that has kept the driver's kernel.
    Launch(LaunchBefore),
    Command(Box<(Command, LoweredCommand<OpenclOperation>)>),
    Enabled(bool),
}

impl<'a> ListUpdate<'a> {
    pub(super) fn new(
        context: &'a Arc<OpenclContext>,
        recorded: &'a mut RecordedCommands<OpenclOperation>,
    ) -> Self {
        Self { context, recorded, replaced: ReplacedParts(Vec::new()) }
    }

    /// Changes a command as `update` says. After an error it may be changed in part.
    pub(super) fn change(&mut self, update: &CommandUpdate) -> Result<()> {
        let index = update.handle.index as usize;
        if let Some(enabled) = update.enabled {
            self.enable(index, enabled)?;
        }
        if let Some(new) = &update.command {
            return self.replace(index, new);
        }
        if !update.changes_launch() || self.change_launch(update)? {
            return Ok(());
        }
        let Some(Command::Kernel(launch)) = self.recorded.commands.get(index) else {
            return Err(unknown_command(index));
        };
        let mut new = launch.clone();
        update.apply_to(&mut new)?;
        self.replace(index, &Command::Kernel(new))
    }

    /// Changes a launch that keeps the driver's kernel. False, and without effect, if it cannot keep it.
    fn change_launch(&mut self, update: &CommandUpdate) -> Result<bool> {
        let index = update.handle.index as usize;
        let Some((launch, operation)) = plain_launch(self.recorded, index) else { return Ok(false) };
        let fits = |(index, arg): &(_, _)| *index < launch.args.len() && is_plain(self.context, arg);
        if update.kernel.is_some() || !update.args.iter().all(fits) {
            return Ok(false);
        }
        let replaced = &mut self.replaced.0;
        update.exchange(launch, |before| replaced.push((index, ReplacedPart::Launch(before))))?;
        let kernel = OpenclKernel::of(&*launch.kernel, self.context)?;
        if update.changes_range() {
            set_range(kernel, launch, operation)?;
        }
        for (index, _) in &update.args {
            kernel.set_argument(&operation.instance, *index, &launch.args[*index])?;
        }
        Ok(true)
    }

    /// Makes a command another one.
    pub(super) fn replace(&mut self, index: usize, new: &Command) -> Result<()> {
        if let (Command::Kernel(new), Some((launch, operation))) = (new, plain_launch(self.recorded, index))
            && ptr::addr_eq(Arc::as_ptr(&launch.kernel), Arc::as_ptr(&new.kernel))
            && new.args.iter().all(|arg| is_plain(self.context, arg))
        {
            let old = LaunchBefore::Launch(Box::new(mem::replace(launch, KernelLaunch::clone(new))));
            self.replaced.0.push((index, ReplacedPart::Launch(old)));
            return set_all(self.context, launch, operation);
        }
        let lowered = lower(self.context, new)?;
        let RecordedCommands { commands, list, .. } = &mut *self.recorded;
        let command = commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
        let old = mem::replace(&mut list.commands[index].lowered, lowered);
        let old = Box::new((mem::replace(command, new.clone()), old));
        self.replaced.0.push((index, ReplacedPart::Command(old)));
        Ok(())
    }

    /// Enables or disables a command.
    pub(super) fn enable(&mut self, index: usize, enabled: bool) -> Result<()> {
        let listed = self.recorded.list.commands.get_mut(index).ok_or_else(|| unknown_command(index))?;
        if listed.enabled != enabled {
            listed.enabled = enabled;
            self.replaced.0.push((index, ReplacedPart::Enabled(!enabled)));
        }
        Ok(())
    }

    /// Ends the update, after which it can still be undone.
    pub(super) fn finish(self) -> ReplacedParts {
        self.replaced
    }
}

impl ReplacedParts {
    /// Puts everything back.
    pub(super) fn restore(
        self,
        context: &Arc<OpenclContext>,
        recorded: &mut RecordedCommands<OpenclOperation>,
    ) {
        for (index, part) in self.0.into_iter().rev() {
            match part {
                ReplacedPart::Enabled(before) => recorded.list.commands[index].enabled = before,
                ReplacedPart::Command(before) => {
                    (recorded.commands[index], recorded.list.commands[index].lowered) = *before;
                }
                ReplacedPart::Launch(before) => {
                    let Some((launch, operation)) = plain_launch(recorded, index) else { continue };
                    before.restore(launch);
                    // The driver refuses none of the arguments once all of them are the old ones.
                    let _ = set_all(context, launch, operation);
                }
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The launches that have changed, each with the range that it had before. `None` if anything else has
    /// changed, which a recording cannot change in place.
    pub(super) fn launches(&self, commands: &[Command]) -> Option<BTreeMap<usize, Range>> {
        let mut launches = BTreeMap::new();
        for (index, part) in self.0.iter().rev() {
            let (ReplacedPart::Launch(before), Command::Kernel(launch)) = (part, &commands[*index]) else {
                return None;
            };
            match before {
                LaunchBefore::Argument(..) => _ = launches.entry(*index).or_insert(launch.range),
                LaunchBefore::Range(range) => _ = launches.insert(*index, **range),
                LaunchBefore::Launch(old) => _ = launches.insert(*index, old.range),
            }
        }
        Some(launches)
    }

    /// The memory of the backend that the replaced commands use.
    pub(super) fn into_memory(self) -> impl Iterator<Item = StagedMemory> {
        self.0.into_iter().filter_map(|(_, part)| match part {
            ReplacedPart::Command(old) => Some(old.1.staged),
            _ => None,
        })
    }
}

/// The launch that a command is, with its operation, if its arguments refer to no parts of buffers: then
/// arguments of the driver's kernel can be replaced.
fn plain_launch(
    recorded: &mut RecordedCommands<OpenclOperation>,
    index: usize,
) -> Option<(&mut KernelLaunch, &mut KernelOperation)> {
    let listed = recorded.list.commands.get_mut(index)?;
    match (recorded.commands.get_mut(index)?, &mut listed.lowered.operations[..]) {
        (
            Command::Kernel(launch),
            [OrderedOperation { operation: OpenclOperation::Kernel(operation), .. }],
        ) if operation.instance.is_plain() => Some((launch, operation)),
        _ => None,
    }
}

/// Gives the driver's kernel all arguments of its launch, and the operation the range.
fn set_all(context: &OpenclContext, launch: &KernelLaunch, operation: &mut KernelOperation) -> Result<()> {
    let kernel = OpenclKernel::of(&*launch.kernel, context)?;
    set_range(kernel, launch, operation)?;
    let mut args = launch.args.iter().enumerate();
    args.try_for_each(|(index, arg)| kernel.set_argument(&operation.instance, index, arg))
}

fn set_range(kernel: &OpenclKernel, launch: &KernelLaunch, operation: &mut KernelOperation) -> Result<()> {
    (operation.local, operation.range) = (kernel.local_size(&launch.range)?, launch.range);
    Ok(())
}
