//! Updates: what each kernel command holds by now, and what an update would make of it.
//!
//! An update is worked out on copies, [staged](Launches::stage), and becomes the state only after the backend has taken
//! it too: all or nothing.

use std::collections::HashMap;
use std::sync::Arc;

use super::kernel::{self, Subject};
use crate::hal::{
    CommandBufferId, CommandHandle, Device, Kernel, KernelArg, KernelLaunch, KernelUpdate, UpdateCapabilities,
};
use crate::types::{Error, ErrorKind, Range, Result};

/// The kernel commands of an updatable command-buffer.
#[derive(Debug)]
pub(super) struct Launches {
    buffer: CommandBufferId,
    commands: HashMap<u32, Recorded>,
}

#[derive(Debug)]
struct Recorded {
    /// The kernel of the append and its alternatives: what an update may choose from.
    registered: Vec<Arc<dyn Kernel>>,
    /// As the command is now; its `alternatives` are empty.
    launch: KernelLaunch,
}

/// What commands will hold once the backend has taken the update, by index.
pub(super) struct Staged(HashMap<u32, KernelLaunch>);

impl Launches {
    pub(super) fn new(buffer: CommandBufferId) -> Self {
        Self { buffer, commands: HashMap::new() }
    }

    /// Remembers a launch that was just appended.
    pub(super) fn record(&mut self, handle: CommandHandle, launch: &KernelLaunch) {
        let KernelLaunch { kernel, args, range, alternatives } = launch;
        let registered = std::iter::once(kernel).chain(alternatives).cloned().collect();
        let (kernel, args, alternatives) = (Arc::clone(kernel), args.clone(), Vec::new());
        let launch = KernelLaunch { kernel, args, range: *range, alternatives };
        self.commands.insert(handle.index, Recorded { registered, launch });
    }

    /// Works out `updates` one after the other. Each must leave a launch that can run; a second one of the same command
    /// goes on from the first.
    pub(super) fn stage(
        &self,
        updates: &[KernelUpdate],
        device: &dyn Device,
        appended: usize,
    ) -> Result<Staged> {
        let mut staged = HashMap::with_capacity(updates.len());
        for update in updates {
            let index = update.handle.index;
            let command = self.find(update.handle, appended)?;
            let current = staged.get(&index).unwrap_or(&command.launch);
            let next = Change { update, current, registered: &command.registered, device }.apply()?;
            staged.insert(index, next);
        }
        Ok(Staged(staged))
    }

    /// Makes what was staged the state.
    pub(super) fn commit(&mut self, staged: Staged) {
        for (index, launch) in staged.0 {
            if let Some(command) = self.commands.get_mut(&index) {
                command.launch = launch;
            }
        }
    }

    fn find(&self, handle: CommandHandle, appended: usize) -> Result<&Recorded> {
        let CommandHandle { buffer, index } = handle;
        let why = if buffer != self.buffer {
            format!("update: command {index} belongs to {buffer:?}, not to {:?}", self.buffer)
        } else if let Some(command) = self.commands.get(&index) {
            return Ok(command);
        } else if (index as usize) < appended {
            format!("update: command {index} is not a kernel")
        } else {
            format!("update: command {index} does not exist: {appended} commands were appended")
        };
        Err(Error::new(ErrorKind::InvalidCommandHandle, why)
            .help("pass the handle that the kernel's append to this command-buffer returned"))
    }
}

/// One update of one command.
struct Change<'a> {
    update: &'a KernelUpdate,
    current: &'a KernelLaunch,
    registered: &'a [Arc<dyn Kernel>],
    device: &'a dyn Device,
}

impl Change<'_> {
    fn apply(&self) -> Result<KernelLaunch> {
        self.capabilities()?;
        let kernel = self.kernel()?;
        let (args, range) = (self.args(&kernel)?, self.range()?);
        let next = KernelLaunch { kernel, args, range, alternatives: Vec::new() };
        kernel::check(&next, self.device, Subject::update(&next.kernel, self.update.handle.index))?;
        Ok(next)
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

    fn kernel(&self) -> Result<Arc<dyn Kernel>> {
        let Some(new) = &self.update.kernel else { return Ok(Arc::clone(&self.current.kernel)) };
        if !self.registered.iter().any(|known| kernel::same_kernel(known, new)) {
            let why = format!("kernel '{}' was not registered when the command was appended", new.name());
            return Err(self
                .error(ErrorKind::InvalidArgument, why)
                .help("list it among the launch's alternatives"));
        }
        Ok(Arc::clone(new))
    }

    /// The current arguments with the new ones in their places. A kernel with more parameters needs the rest to be
    /// named; one with fewer drops what it does not take.
    fn args(&self, kernel: &Arc<dyn Kernel>) -> Result<Vec<KernelArg>> {
        let params = kernel.params();
        let mut args: Vec<_> = self.current.args.iter().take(params.len()).cloned().map(Some).collect();
        args.resize(params.len(), None);
        for (index, arg) in &self.update.args {
            let Some(place) = args.get_mut(*index) else {
                let why = format!(
                    "argument index {index} is out of range: kernel '{}' takes {} arguments",
                    kernel.name(),
                    params.len()
                );
                return Err(self.error(ErrorKind::InvalidArgument, why));
            };
            *place = Some(arg.clone());
        }
        let missing = |index: usize| {
            let (name, param) = (kernel.name(), &params[index].name);
            let why = format!("argument {index} '{param}' of kernel '{name}' has no value yet");
            self.error(ErrorKind::InvalidArgument, why)
                .help("name all arguments that the kernel so far does not have")
        };
        args.into_iter().enumerate().map(|(index, arg)| arg.ok_or_else(|| missing(index))).collect()
    }

    fn range(&self) -> Result<Range> {
        let (update, range) = (self.update, &self.current.range);
        let dimensions = range.dimensions();
        let global = update.global_size.unwrap_or(range.global_size());
        let local = update.local_size.unwrap_or(range.local_size());
        let offset = update.global_offset.unwrap_or(range.global_offset());
        let fits = |what: &str, sizes: [usize; 3], unused: usize| {
            if sizes[dimensions..].iter().all(|&size| size == unused) {
                return Ok(());
            }
            let why = format!(
                "the new {what} {sizes:?} has more dimensions than the command's {dimensions}; \
                 the unused ones must be {unused}"
            );
            Err(self.error(ErrorKind::InvalidArgument, why))
        };
        fits("global size", global, 1)?;
        fits("global offset", offset, 0)?;
        if let Some(local) = local {
            fits("local size", local, 1)?;
        }
        let range = match dimensions {
            1 => Range::new([global[0]]),
            2 => Range::new([global[0], global[1]]),
            _ => Range::new(global),
        };
        let range = range.offset(offset);
        Ok(local.map_or(range, |local| range.local(local)))
    }

    #[cold]
    fn error(&self, kind: ErrorKind, why: String) -> Error {
        let subject = Subject::update(&self.current.kernel, self.update.handle.index);
        Error::new(kind, format!("{subject}: {why}"))
    }
}
