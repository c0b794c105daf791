//! Updates, against what each command of the backend is by then; and whether a command-buffer can be updated
//! from another one.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::SmallVec;

use super::command;
use super::kernel::{self, LaunchView, Subject};
use crate::{
    Command, CommandBuffer, CommandBufferId, CommandHandle, CommandKind, CommandUpdate, Device, Error,
    ErrorKind, Kernel, KernelArg, KernelLaunch, KindPlace, Result, SyncPoint, UpdateCapabilities,
};

/// The rules that updates of a command-buffer are checked against, beside the commands that the backend
/// holds.
#[derive(Debug)]
pub(super) struct UpdateRules {
    buffer: CommandBufferId,
    commands: Vec<CommandRules>,
}

#[derive(Debug)]
struct CommandRules {
    shape: CommandShape,
    is_updatable: bool,
    /// Of an updatable launch: the kernel of the append and its alternatives, which an update may choose
    /// from.
    registered: SmallVec<[Arc<dyn Kernel>; 1]>,
}

impl UpdateRules {
    pub(super) fn new(buffer: CommandBufferId) -> Self {
        Self { buffer, commands: Vec::new() }
    }

    /// Remembers a command that was just appended.
    pub(super) fn record(&mut self, command: &Command, after: &[SyncPoint], handle: Option<CommandHandle>) {
        let registered = match (command, handle) {
            (Command::Kernel(launch), Some(_)) => {
                [&launch.kernel].into_iter().chain(&launch.alternatives).cloned().collect()
            }
            _ => SmallVec::new(),
        };
        let shape = CommandShape::new(command, after);
        self.commands.push(CommandRules { shape, is_updatable: handle.is_some(), registered });
    }

    /// Checks that this could become `other`: that the two have the same topology.
    pub(super) fn check_same(&self, other: &Self) -> Result<()> {
        check_same(self.shapes(), other.shapes())
    }

    fn shapes(&self) -> impl ExactSizeIterator<Item = &CommandShape> {
        self.commands.iter().map(|command| &command.shape)
    }

    /// Takes over the kernels of `other`, which has the same topology.
    pub(super) fn become_like(&mut self, other: &Self) {
        for (ours, theirs) in self.commands.iter_mut().zip(&other.commands) {
            ours.registered.clone_from(&theirs.registered);
        }
    }

    /// Checks updates of the backend's `buffer`, each of which must leave a launch that can run. A
    /// second update of the same command builds on the first.
    pub(super) fn check(
        &self,
        updates: &[CommandUpdate],
        buffer: &dyn CommandBuffer,
        device: &dyn Device,
    ) -> Result<()> {
        // Most name each command once and in order. Then no update builds on another.
        let are_apart = updates.is_sorted_by(|one, next| one.handle.index < next.handle.index);
        let mut changed: HashMap<u32, KernelLaunch> = HashMap::new();
        for update in updates {
            let index = update.handle.index;
            let launch = match buffer.command(index as usize) {
                Some(Command::Kernel(launch)) if are_apart => Some(&**launch),
                Some(Command::Kernel(launch)) => Some(changed.get(&index).unwrap_or(launch)),
                _ => None,
            };
            self.check_one(update, launch, device).map_err(|error| error.at_command(index))?;
            if !are_apart && let Some(launch) = launch {
                let mut launch = launch.clone();
                update.apply_to(&mut launch)?;
                changed.insert(index, launch);
            }
        }
        Ok(())
    }

    fn check_one(
        &self,
        update: &CommandUpdate,
        current: Option<&KernelLaunch>,
        device: &dyn Device,
    ) -> Result<()> {
        self.check_enabling(update, device)?;
        self.check_command(update, device)?;
        let Some(registered) = self.find(update)? else { return Ok(()) };
        let current = current.ok_or_else(|| Error::new(ErrorKind::Bug, "the backend has lost a launch"))?;
        LaunchChange { update, current, registered, device }.check()
    }

    /// The registered kernels, if the command is a launch.
    fn find(&self, update: &CommandUpdate) -> Result<Option<&[Arc<dyn Kernel>]>> {
        let CommandHandle { buffer, index } = update.handle;
        let why = match self.commands.get(index as usize) {
            _ if buffer != self.buffer => {
                format!("command {index} belongs to {buffer:?}, not to {:?}", self.buffer)
            }
            None => {
                let appended = self.commands.len();
                format!("command {index} does not exist: {appended} commands were appended")
            }
            Some(CommandRules { registered, .. }) if !registered.is_empty() => return Ok(Some(registered)),
            Some(CommandRules { is_updatable, shape, .. }) => match (is_updatable, shape.kind) {
                (true, kind) if kind.row().place == KindPlace::DeviceOrHost && update.enabled.is_some() => {
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
            kind if kind.row().place == KindPlace::DeviceOrHost => {
                (UpdateCapabilities::BODIES, "the bodies of conditionals, switches and loops")
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
    /// Whether the update fits the command, and leaves a launch that can run.
    fn check(&self) -> Result<()> {
        self.capabilities()?;
        if self.changes_bytes_only() {
            return Ok(());
        }
        let kernel = self.kernel()?;
        self.check_args(&**kernel)?;
        self.check_dimensions()?;
        let subject = Subject::update(kernel, self.update.handle.index);
        kernel::check(LaunchView::updated(self.current, kernel, self.update), self.device, subject)
    }

    /// Whether it changes nothing but the bytes of values, so that the launch can run as it could before.
    fn changes_bytes_only(&self) -> bool {
        let is_alike = |(index, new): &(usize, KernelArg)| match (self.current.args.get(*index), new) {
            (Some(KernelArg::Value(old)), KernelArg::Value(new)) => old.len() == new.len(),
            _ => false,
        };
        let update = self.update;
        update.kernel.is_none() && !update.changes_range() && update.args.iter().all(is_alike)
    }

    fn capabilities(&self) -> Result<()> {
        use UpdateCapabilities as Can;
        let update = self.update;
        let mut missing = Can::empty();
        missing.set(Can::KERNEL_ARGUMENTS, !update.args.is_empty());
        missing.set(Can::LOCAL_WORK_SIZE, update.local_size.is_some());
        missing.set(Can::GLOBAL_WORK_SIZE, update.global_size.is_some());
        missing.set(Can::GLOBAL_WORK_OFFSET, update.global_offset.is_some());
        missing.set(Can::KERNEL_HANDLE, update.kernel.is_some());
        missing -= self.device.capabilities().update;
        let Some(bit) = missing.iter().next() else { return Ok(()) };
        let what = match bit {
            Can::LOCAL_WORK_SIZE => "local size",
            Can::GLOBAL_WORK_SIZE => "global size",
            Can::GLOBAL_WORK_OFFSET => "global offset",
            Can::KERNEL_HANDLE => "kernel",
            _ => "arguments",
        };
        let why = format!("the device cannot change a kernel command's {what} ({bit:?})");
        Err(self.error(ErrorKind::FeatureNotSupported, why))
    }

    /// The kernel after the update.
    fn kernel(&self) -> Result<&Arc<dyn Kernel>> {
        let Some(new) = &self.update.kernel else { return Ok(&self.current.kernel) };
        if !self.registered.iter().any(|known| kernel::same_kernel(known, new)) {
            let why = format!("kernel '{}' was not registered when the command was appended", new.name());
            return Err(self
                .error(ErrorKind::InvalidArgument, why)
                .help("list it among the launch's alternatives"));
        }
        Ok(new)
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

/// A command without its operands. The shapes of its commands are the topology of a command-buffer.
#[derive(Debug)]
struct CommandShape {
    kind: CommandKind,
    /// Indices of its sync-points.
    after: SmallVec<[u32; 2]>,
}

impl CommandShape {
    fn new(command: &Command, after: &[SyncPoint]) -> Self {
        Self { kind: command.kind(), after: after.iter().map(|point| point.index).collect() }
    }
}

/// Checks that two command-buffers have the same topology.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument), with the first command that differs and how.
fn check_same<'a>(
    ours: impl ExactSizeIterator<Item = &'a CommandShape>,
    theirs: impl ExactSizeIterator<Item = &'a CommandShape>,
) -> Result<()> {
    let lengths = (ours.len(), theirs.len());
    let differ = |(index, (ours, theirs)): (usize, (&CommandShape, &CommandShape))| {
        if ours.kind != theirs.kind {
            return Some(format!("command {index} is: {} here, {} there", ours.kind, theirs.kind));
        }
        let (ours, theirs) = (&ours.after, &theirs.after);
        (ours != theirs).then(|| {
            let (ours, theirs) = (shortened(ours), shortened(theirs));
            format!("command {index} comes after {ours} here and after {theirs} there")
        })
    };
    let why = ours.zip(theirs).enumerate().find_map(differ).or_else(|| {
        let (ours, theirs) = lengths;
        let index = ours.min(theirs);
        (ours != theirs)
            .then(|| format!("command {index} is in one of them only: {ours} here, {theirs} there"))
    });
    match why {
        None => Ok(()),
        Some(why) => {
            let why = format!("update from another buffer: {why}");
            Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("append the same kinds of commands with the same sync-points in the same order"))
        }
    }
}

/// Sync-points as a message shows them: a long list without its end.
fn shortened(points: &[u32]) -> String {
    const SHOWN: usize = 8;
    match points.len().checked_sub(SHOWN) {
        None | Some(0) => format!("{points:?}"),
        Some(more) => format!("{:?} and {more} more", &points[..SHOWN]),
    }
}
