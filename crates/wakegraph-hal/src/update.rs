//! Updates of finalized command-buffers, command by command.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::support::errors::unknown_command;
use crate::{Command, CommandHandle, Error, ErrorKind, Kernel, KernelArg, KernelLaunch, Range, Result};

/// New arguments of a launch with their indices. One needs no allocation.
pub type NewArguments = SmallVec<[(usize, KernelArg); 1]>;

/// New values for a command. What is `None` or not named stays. All but `enabled` and `command`
/// is for kernel launches only.
#[derive(Clone, Debug)]
pub struct CommandUpdate {
    /// The command to update.
    pub handle: CommandHandle,
    /// Whether the command is enabled. A disabled command keeps its operands and its place in the
    /// order.
    pub enabled: Option<bool>,
    /// Command of the same kind with other operands, which takes the place of a fill or copy.
    /// For a conditional or loop: one of the same kind, with any flag and any bodies.
    pub command: Option<Box<Command>>,
    /// Another kernel, out of the alternatives registered at append.
    pub kernel: Option<Arc<dyn Kernel>>,
    /// New arguments by index.
    pub args: NewArguments,
    /// A new global size, with the dimensions of the old one (unused ones are 1).
    pub global_size: Option<[usize; 3]>,
    /// A new work-group size; `Some(None)` leaves it to the device.
    pub local_size: Option<Option<[usize; 3]>>,
    /// A new global offset.
    pub global_offset: Option<[usize; 3]>,
}

impl CommandUpdate {
    /// An update of this command without changes.
    #[inline]
    pub fn new(handle: CommandHandle) -> Self {
        Self {
            handle,
            enabled: None,
            command: None,
            kernel: None,
            args: NewArguments::new(),
            global_size: None,
            local_size: None,
            global_offset: None,
        }
    }

    /// Sets [`args`](Self#structfield.args).
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = (usize, KernelArg)>) -> Self {
        self.args.clear();
        args.into_iter().for_each(|arg| self.args.push(arg));
        self
    }

    /// Whether the update changes what only kernel launches have.
    pub fn changes_launch(&self) -> bool {
        self.kernel.is_some() || !self.args.is_empty() || self.changes_range()
    }

    /// Applies the update to a launch.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an argument that the launch does not
    /// have; it may have been changed in part.
    pub fn apply_to(&self, launch: &mut KernelLaunch) -> Result<()> {
        if let Some(kernel) = &self.kernel {
            launch.kernel = Arc::clone(kernel);
        }
        let count = launch.kernel.params().len();
        let missing = |index: usize| {
            let why = format!("the kernel's argument {index} is missing, or too many");
            Error::new(ErrorKind::InvalidArgument, why)
        };
        // Another kernel may take more arguments, which are among the new ones, or fewer.
        launch.args.truncate(count);
        for index in launch.args.len()..count {
            let given = self.args.iter().rfind(|(given, _)| *given == index);
            launch.args.push(given.ok_or_else(|| missing(index))?.1.clone());
        }
        for (index, arg) in &self.args {
            *launch.args.get_mut(*index).ok_or_else(|| missing(*index))? = arg.clone();
        }
        launch.range = self.range_after(launch.range);
        Ok(())
    }

    /// Applies as [`apply_to`](Self::apply_to), and passes what it replaces to `replaced`, for
    /// [`LaunchBefore::restore`] to put back in reverse order. On an error the launch is unchanged.
    pub fn exchange(&self, launch: &mut KernelLaunch, mut replaced: impl FnMut(LaunchBefore)) -> Result<()> {
        let count = launch.args.len();
        if self.kernel.is_some() || self.args.iter().any(|(index, _)| *index >= count) {
            let mut new = launch.clone();
            self.apply_to(&mut new)?;
            replaced(LaunchBefore::Launch(Arc::new(std::mem::replace(launch, new))));
            return Ok(());
        }
        if self.changes_range() {
            let range = self.range_after(launch.range);
            replaced(LaunchBefore::Range(Box::new(std::mem::replace(&mut launch.range, range))));
        }
        for (index, arg) in &self.args {
            let old = std::mem::replace(&mut launch.args[*index], arg.clone());
            replaced(LaunchBefore::Argument(*index, old));
        }
        Ok(())
    }

    /// Whether it changes the range.
    pub fn changes_range(&self) -> bool {
        self.global_size.is_some() || self.local_size.is_some() || self.global_offset.is_some()
    }

    /// The range of a launch that has this one before the update.
    pub fn range_after(&self, old: Range) -> Range {
        let global = self.global_size.unwrap_or(old.global_size());
        let new = match old.dimensions() {
            1 => Range::linear(global[0]),
            2 => Range::new([global[0], global[1]]),
            _ => Range::new(global),
        };
        let new = new.starting_at(self.global_offset.unwrap_or(old.offset()));
        match self.local_size.unwrap_or(old.local_size()) {
            Some(local) => new.local(local),
            None => new,
        }
    }
}

/// A part of a launch before an update replaced it.
#[derive(Debug)]
pub enum LaunchBefore {
    /// The argument with this index.
    Argument(usize, KernelArg),
    /// The range of the launch.
    Range(Box<Range>),
    /// The whole launch, where the kernel changed.
    Launch(Arc<KernelLaunch>),
}

impl LaunchBefore {
    /// Puts it back. Later updates of the launch have been undone before.
    pub fn restore(self, launch: &mut KernelLaunch) {
        match self {
            Self::Argument(index, arg) => launch.args[index] = arg,
            Self::Range(range) => launch.range = *range,
            Self::Launch(before) => *launch = Arc::unwrap_or_clone(before),
        }
    }
}

setters! {
    CommandUpdate {
        enabled: Option<bool>,
        command: Option<Box<Command>>,
        kernel: Option<Arc<dyn Kernel>>,
        global_size: Option<[usize; 3]>,
        local_size: Option<Option<[usize; 3]>>,
        global_offset: Option<[usize; 3]>,
    }
}

/// The effect of a batch of updates on one command.
#[derive(Clone, Debug)]
pub struct CommandChange {
    /// The command's number in the order of the appends.
    pub index: usize,
    /// The new command, if it changes: of the kind that it had before.
    pub command: Option<Command>,
    /// Whether the command is enabled from now on, if that changes.
    pub enabled: Option<bool>,
}

impl CommandChange {
    /// Computes the effect of updates on the commands that `current` returns by index, for backends:
    /// one change per command, in the order in which the updates first name them. Several updates of
    /// one command build on each other.
    ///
    /// # Errors
    /// [`InvalidCommandHandle`](ErrorKind::InvalidCommandHandle) for a command that does not exist;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for an argument that a launch does not have.
    pub fn of<'a>(
        updates: &[CommandUpdate],
        current: impl Fn(usize) -> Option<&'a Command>,
    ) -> Result<Vec<Self>> {
        let mut changes = Vec::<Self>::with_capacity(updates.len());
        // Most name each command once and in order, which needs no table.
        let are_apart = updates.is_sorted_by(|one, next| one.handle.index < next.handle.index);
        let mut places = HashMap::new();
        for update in updates {
            let index = update.handle.index as usize;
            let place = match are_apart {
                true => changes.len(),
                false => *places.entry(index).or_insert(changes.len()),
            };
            if place == changes.len() {
                changes.push(Self { index, command: None, enabled: None });
            }
            let change = &mut changes[place];
            let Some(command) = current(index).filter(|command| command.can_be_updated()) else {
                return Err(unknown_command(index));
            };
            if let Some(new) = &update.command {
                change.command = Some((**new).clone());
            }
            if update.changes_launch() {
                let Command::Kernel(launch) = change.command.get_or_insert_with(|| command.clone()) else {
                    return Err(unknown_command(index));
                };
                update.apply_to(Arc::make_mut(launch))?;
            }
            change.enabled = update.enabled.or(change.enabled);
        }
        Ok(changes)
    }
}
