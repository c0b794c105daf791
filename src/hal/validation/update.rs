//! Updates: what each command holds now, and what an update would make of it.
//!
//! An update is [applied](Commands::apply), and [undone](Commands::undo) if the backend does not
//! take it: all or nothing.

use std::sync::Arc;

use smallvec::SmallVec;

use super::command;
use super::kernel::{self, Subject};
use super::topology::{self, CommandShape};
use crate::hal::{
    Command, CommandBufferId, CommandHandle, CommandUpdate, Device, Kernel, KernelLaunch, LaunchBefore,
    SyncPoint, UpdateCapabilities,
};
use crate::types::{CommandKind, Error, ErrorKind, Result};

/// The commands of an updatable command-buffer.
#[derive(Debug)]
pub(super) struct Commands {
    buffer: CommandBufferId,
    commands: Vec<UpdatableCommand>,
}

#[derive(Debug)]
struct UpdatableCommand {
    shape: CommandShape,
    is_updatable: bool,
    /// There for an updatable kernel launch.
    launch: Option<RecordedLaunch>,
}

#[derive(Clone, Debug)]
struct RecordedLaunch {
    /// The kernel of the append and its alternatives: what an update may choose from.
    registered: Vec<Arc<dyn Kernel>>,
    /// As the command is now; its `alternatives` are empty.
    launch: KernelLaunch,
}

/// What launches were before an update, with the indices of their commands.
pub(super) struct LaunchesBefore(SmallVec<[(u32, LaunchBefore); 1]>);

impl Commands {
    pub(super) fn new(buffer: CommandBufferId) -> Self {
        Self { buffer, commands: Vec::new() }
    }

    /// Remembers a command that was just appended.
    pub(super) fn record(&mut self, command: &Command, after: &[SyncPoint], handle: Option<CommandHandle>) {
        let launch = match (command, handle) {
            (Command::Kernel(launch), Some(_)) => {
                let KernelLaunch { kernel, args, range, alternatives } = &**launch;
                let registered = std::iter::once(kernel).chain(alternatives).cloned().collect();
                let launch = KernelLaunch::new(Arc::clone(kernel), args.clone(), *range);
                Some(RecordedLaunch { registered, launch })
            }
            _ => None,
        };
        let shape = CommandShape::new(command, after);
        self.commands.push(UpdatableCommand { shape, is_updatable: handle.is_some(), launch });
    }

    /// Checks that this could become `other`: that the two have the same topology.
    pub(super) fn check_same(&self, other: &Self) -> Result<()> {
        topology::check_same(self.shapes(), other.shapes())
    }

    fn shapes(&self) -> impl ExactSizeIterator<Item = &CommandShape> {
        self.commands.iter().map(|command| &command.shape)
    }

    /// Holds what `other` holds, which has the same topology.
    pub(super) fn become_like(&mut self, other: &Self) {
        for (ours, theirs) in self.commands.iter_mut().zip(&other.commands) {
            ours.launch.clone_from(&theirs.launch);
        }
    }

    /// Applies `updates`, one after the other: all, or none on an error. Each must leave a launch
    /// that can run; a second update of the same command builds on the first.
    pub(super) fn apply(&mut self, updates: &[CommandUpdate], device: &dyn Device) -> Result<LaunchesBefore> {
        let mut before = LaunchesBefore(SmallVec::with_capacity(updates.len()));
        for update in updates {
            if let Err(error) = self.apply_one(update, device, &mut before) {
                self.undo(before);
                return Err(error.at_command(update.handle.index));
            }
        }
        Ok(before)
    }

    fn apply_one(
        &mut self,
        update: &CommandUpdate,
        device: &dyn Device,
        before: &mut LaunchesBefore,
    ) -> Result<()> {
        self.check_enabling(update, device)?;
        self.check_command(update, device)?;
        let index = update.handle.index;
        let Some(RecordedLaunch { registered, launch }) = self.find(update)? else { return Ok(()) };
        LaunchChange { update, current: launch, registered, device }.check()?;
        let Some(RecordedLaunch { launch, .. }) = &mut self.commands[index as usize].launch else {
            return Ok(());
        };
        let can_run = update.changes_bytes_only(launch);
        before.0.push((index, update.exchange(launch)?));
        match can_run {
            true => Ok(()),
            false => kernel::check(launch, device, Subject::update(&launch.kernel, index)),
        }
    }

    /// Takes back what [`apply`](Self::apply) has done.
    pub(super) fn undo(&mut self, before: LaunchesBefore) {
        for (index, before) in before.0.into_iter().rev() {
            if let Some(recorded) = &mut self.commands[index as usize].launch {
                before.restore(&mut recorded.launch);
            }
        }
    }

    /// The launch to update, if the command is one.
    fn find(&self, update: &CommandUpdate) -> Result<Option<&RecordedLaunch>> {
        let CommandHandle { buffer, index } = update.handle;
        let why = match self.commands.get(index as usize) {
            _ if buffer != self.buffer => {
                format!("command {index} belongs to {buffer:?}, not to {:?}", self.buffer)
            }
            None => {
                let appended = self.commands.len();
                format!("command {index} does not exist: {appended} commands were appended")
            }
            Some(UpdatableCommand { launch: Some(launch), .. }) => return Ok(Some(launch)),
            Some(UpdatableCommand { is_updatable, shape, .. }) => match (is_updatable, shape.kind) {
                (true, kind @ (CommandKind::If | CommandKind::While)) if update.enabled.is_some() => {
                    format!("command {index} is a {kind}, which cannot be enabled or disabled")
                }
                (true, _) if !update.changes_launch() => return Ok(None),
                (true, kind) => {
                    format!(
                        "command {index} is a {kind}: it has no kernel, arguments and sizes to be changed"
                    )
                }
                (false, kind) => format!("command {index} cannot be updated: {kind}"),
            },
        };
        Err(Error::new(ErrorKind::InvalidCommandHandle, format!("update: {why}"))
            .help("pass the handle that the command's append to this command-buffer returned"))
    }

    /// A new command is of the same kind, which is none of a kernel's, and valid.
    fn check_command(&self, update: &CommandUpdate, device: &dyn Device) -> Result<()> {
        let Some(command) = &update.command else { return Ok(()) };
        self.find(&CommandUpdate::new(update.handle))?;
        let index = update.handle.index;
        let (kind, new) = (self.commands[index as usize].shape.kind, command.kind());
        let (bit, what) = match kind {
            CommandKind::If | CommandKind::While => {
                (UpdateCapabilities::BODIES, "the bodies of conditionals and loops")
            }
            _ => (UpdateCapabilities::MEMORY_OPERANDS, "the operands of fills and copies"),
        };
        let refused = |kind, why: String| Err(Error::new(kind, format!("update of command {index}: {why}")));
        if !device.capabilities().update.contains(bit) {
            let why = format!("the device cannot change {what} ({bit:?})");
            return refused(ErrorKind::FeatureNotSupported, why);
        }
        if matches!(**command, Command::Kernel(_)) || new != kind {
            return refused(
                ErrorKind::InvalidArgument,
                format!("it is a {kind}, and the new command a {new}"),
            );
        }
        command::check_supported(command, device.capabilities().commands)?;
        command::check(command, device)
    }

    fn check_enabling(&self, update: &CommandUpdate, device: &dyn Device) -> Result<()> {
        let (index, bit) = (update.handle.index, UpdateCapabilities::ENABLED);
        if update.enabled.is_none() || device.capabilities().update.contains(bit) {
            return Ok(());
        }
        let why =
            format!("update of command {index}: the device cannot enable or disable commands ({bit:?})");
        Err(Error::new(ErrorKind::FeatureNotSupported, why))
    }
}

/// One update of one command.
struct LaunchChange<'a> {
    update: &'a CommandUpdate,
    current: &'a KernelLaunch,
    registered: &'a [Arc<dyn Kernel>],
    device: &'a dyn Device,
}

impl LaunchChange<'_> {
    /// Whether the update fits the command. Whether it leaves a launch that can run is another
    /// question.
    fn check(&self) -> Result<()> {
        self.capabilities()?;
        let kernel = self.kernel()?;
        self.check_args(kernel)?;
        self.check_dimensions()
    }

    fn capabilities(&self) -> Result<()> {
        use UpdateCapabilities as Can;
        let update = self.update;
        let asked = [
            (!update.args.is_empty(), Can::KERNEL_ARGUMENTS, "arguments"),
            (update.local_size.is_some(), Can::LOCAL_WORK_SIZE, "local size"),
            (update.global_size.is_some(), Can::GLOBAL_WORK_SIZE, "global size"),
            (update.global_offset.is_some(), Can::GLOBAL_WORK_OFFSET, "global offset"),
            (update.kernel.is_some(), Can::KERNEL_HANDLE, "kernel"),
        ];
        let able = self.device.capabilities().update;
        match asked.into_iter().find(|&(asked, bit, _)| asked && !able.contains(bit)) {
            None => Ok(()),
            Some((_, bit, what)) => {
                let why = format!("the device cannot change a kernel command's {what} ({bit:?})");
                Err(self.error(ErrorKind::FeatureNotSupported, why))
            }
        }
    }

    /// The kernel after the update.
    fn kernel(&self) -> Result<&dyn Kernel> {
        let Some(new) = &self.update.kernel else { return Ok(&*self.current.kernel) };
        if !self.registered.iter().any(|known| kernel::same_kernel(known, new)) {
            let why = format!("kernel '{}' was not registered when the command was appended", new.name());
            return Err(self
                .error(ErrorKind::InvalidArgument, why)
                .help("list it among the launch's alternatives"));
        }
        Ok(&**new)
    }

    /// The update names every argument that the current launch does not have, and no other beyond
    /// the kernel's parameters.
    fn check_args(&self, kernel: &dyn Kernel) -> Result<()> {
        let (name, params, new) = (kernel.name(), kernel.params(), &self.update.args);
        if let Some((index, _)) = new.iter().find(|(index, _)| *index >= params.len()) {
            let takes = params.len();
            let why =
                format!("argument index {index} is out of range: kernel '{name}' takes {takes} arguments");
            return Err(self.error(ErrorKind::InvalidArgument, why));
        }
        let is_named = |index| new.iter().any(|(named, _)| *named == index);
        match (self.current.args.len()..params.len()).find(|&index| !is_named(index)) {
            None => Ok(()),
            Some(index) => {
                let param = &params[index].name;
                let why = format!("argument {index} '{param}' of kernel '{name}' has no value yet");
                let error = self.error(ErrorKind::InvalidArgument, why);
                Err(error.help("name all arguments that the kernel so far does not have"))
            }
        }
    }

    /// The new sizes and offsets have no more dimensions than the command.
    fn check_dimensions(&self) -> Result<()> {
        let (update, dimensions) = (self.update, self.current.range.dimensions());
        let new = [
            ("global size", update.global_size, 1),
            ("global offset", update.global_offset, 0),
            ("local size", update.local_size.flatten(), 1),
        ];
        for (what, sizes, unused) in new {
            if let Some(sizes) = sizes
                && sizes[dimensions..].iter().any(|&size| size != unused)
            {
                let why = format!(
                    "the new {what} {sizes:?} has more dimensions than the command's {dimensions}; \
                     the unused ones must be {unused}"
                );
                return Err(self.error(ErrorKind::InvalidArgument, why));
            }
        }
        Ok(())
    }

    #[cold]
    fn error(&self, kind: ErrorKind, why: String) -> Error {
        let subject = Subject::update(&self.current.kernel, self.update.handle.index);
        Error::new(kind, format!("{subject}: {why}"))
    }
}
