//! Changes of single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::hal::{self, CommandHandle, CommandUpdate};
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::finalize::updatable::{Accesses, CommandPlace, CurrentGraph, Updatable};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::scratch::Places;
use crate::runtime::update::draft::Draft;
use crate::runtime::update::race_check::{self, Changed};
use crate::types::{Access, Error, ErrorKind, Range, Result};

/// One node, worked out.
struct Node {
    origin: Origin,
    /// The new command and its accesses, if it changes.
    command: Option<(Command, Box<[Access]>)>,
    enabled: Option<bool>,
}

/// The updates of one partition's command-buffer, and those that take them back.
#[derive(Default)]
struct PartitionUpdates {
    updates: Vec<CommandUpdate>,
    undo: Vec<CommandUpdate>,
}

/// Checked changes.
pub(super) struct Nodes {
    nodes: Vec<Node>,
    batches: BTreeMap<u32, PartitionUpdates>,
    /// The new closures of host tasks, with their partitions.
    tasks: Vec<(u32, Arc<HostTask>)>,
}

/// Checks the drafts, and works out how their devices have to be updated.
pub(super) fn stage(
    executable: &ExecutableInner,
    updatable: &Updatable,
    current: &CurrentGraph,
    drafts: &[Draft],
) -> Result<Nodes> {
    let mut nodes = Nodes { nodes: Vec::new(), batches: BTreeMap::new(), tasks: Vec::new() };
    for draft in drafts {
        let label = |error: Error| error.in_node(current.label(draft.node));
        nodes.add(executable, updatable, current, draft).map_err(label)?;
    }
    let commands = nodes.nodes.iter().filter_map(|node| Some((node.origin, &node.command.as_ref()?.1)));
    let changed: Vec<_> = commands.map(|(node, accesses)| Changed { node, accesses }).collect();
    race_check::check(updatable, current, &changed)?;
    Ok(nodes)
}

impl Nodes {
    fn add(
        &mut self,
        executable: &ExecutableInner,
        updatable: &Updatable,
        current: &CurrentGraph,
        draft: &Draft,
    ) -> Result<()> {
        let origin = draft.node;
        let enabled = draft.enabled.filter(|enabled| *enabled != current.is_enabled(origin));
        if draft.after.is_none() && enabled.is_none() {
            return Ok(());
        }
        let bug = || Error::new(ErrorKind::Bug, "an updatable node has no place in the plan");
        let CommandPlace { partition, position } = updatable.place(origin).ok_or_else(bug)?;
        let (device, command_buffer) = match (&executable.partitions[partition as usize].work, &draft.after) {
            (PartitionWork::Device { device, command_buffer, .. }, _) => (device, command_buffer),
            (PartitionWork::HostTask(_), Some(after @ Command::HostTask { task, accesses, .. })) => {
                self.tasks.push((partition, task.clone()));
                let command = Some((after.clone(), (**accesses).into()));
                self.nodes.push(Node { origin, command, enabled: None });
                return Ok(());
            }
            (PartitionWork::HostTask(_) | PartitionWork::Command { .. }, _) => return Err(bug()),
        };
        let buffer = command_buffer.with(|buffer| buffer.info().id);
        let handle = CommandHandle { buffer, index: position };
        let (mut update, mut undo) = (CommandUpdate::new(handle), CommandUpdate::new(handle));
        let mut command = None;
        if let (
            Some(Command::Kernel { call: old_call, range: old_range, .. }),
            Some(after @ Command::Kernel { call, range, .. }),
        ) = (&draft.before, &draft.after)
        {
            current.planned.check(origin, call.views())?;
            let accesses = call.accesses()?.into();
            call.check_range(range)?;
            (update, undo) = (
                difference(handle, (old_call, old_range), (call, range), device, &current.scratch)?,
                difference(handle, (call, range), (old_call, old_range), device, &current.scratch)?,
            );
            command = Some((after.clone(), accesses));
        }
        if let (
            Some(Command::Memory { command: old, .. }),
            Some(after @ Command::Memory { command: new, .. }),
        ) = (&draft.before, &draft.after)
        {
            current.planned.check(origin, after.views())?;
            let mut memory = [new, old].map(|command| Box::new((**command).clone()));
            memory.iter_mut().try_for_each(|command| current.scratch.resolve(command))?;
            let [new, old] = memory;
            (update.memory, undo.memory) = (Some(new), Some(old));
            command = Some((after.clone(), draft.accesses.clone()));
        }
        (update.enabled, undo.enabled) = (enabled, enabled.map(|enabled| !enabled));
        if update.changes_launch() || update.memory.is_some() || enabled.is_some() {
            let batch = self.batches.entry(partition).or_default();
            batch.updates.push(update);
            batch.undo.push(undo);
        }
        self.nodes.push(Node { origin, command, enabled });
        Ok(())
    }

    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &CurrentGraph) -> (Accesses, Accesses) {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for Node { origin, command, .. } in &self.nodes {
            let Some((command, accesses)) = command else { continue };
            let before = current.accesses_of(*origin);
            if before == &**accesses {
                continue;
            }
            for allocation in command.allocations() {
                let resource = allocation.memory().resource();
                let here = accesses.iter().filter(|access| access.resource == resource);
                new.extend(here.map(|access| (allocation.clone(), *access)));
            }
            for access in before {
                old.extend(current.uses.allocation(access.resource).map(|known| (known.clone(), *access)));
            }
        }
        (new, old)
    }

    /// Tells the devices, all or none of them. The caller keeps everybody from enqueueing.
    pub(super) fn apply(&self, executable: &ExecutableInner) -> Result<()> {
        for (done, (&partition, batch)) in self.batches.iter().enumerate() {
            if let Err(error) = update(executable, partition, &batch.updates) {
                let before = self.batches.iter().take(done);
                let undone = before.map(|(&partition, batch)| update(executable, partition, &batch.undo));
                if let Err(error) = undone.collect::<Result<()>>() {
                    executable.set_broken(error);
                }
                return Err(error);
            }
        }
        for (partition, task) in &self.tasks {
            if let PartitionWork::HostTask(place) = &executable.partitions[*partition as usize].work {
                // The old one is kept by the command that is replaced.
                place.change(|place| place.clone_from(task));
            }
        }
        Ok(())
    }

    /// Remembers what the devices do now. Gives back what has been replaced.
    pub(super) fn commit(self, current: &mut CurrentGraph) -> Vec<Command> {
        let mut replaced = Vec::new();
        for Node { origin, command, enabled } in self.nodes {
            match enabled {
                Some(true) => _ = current.disabled.remove(&origin),
                Some(false) => _ = current.disabled.insert(origin),
                None => {}
            }
            let Some((command, accesses)) = command else { continue };
            replaced.extend(current.replace(origin, command, &accesses));
        }
        replaced
    }
}

/// What makes one launch of another.
fn difference(
    handle: CommandHandle,
    (from, from_range): (&Arc<KernelCall>, &Range),
    (to, to_range): (&Arc<KernelCall>, &Range),
    device: &Device,
    places: &Places,
) -> Result<CommandUpdate> {
    let mut update = CommandUpdate::new(handle);
    let same_kernel = from.kernel.is(&to.kernel);
    if !same_kernel {
        update.kernel = Some(to.kernel.on(device)?);
    }
    for (index, arg) in to.args.iter().enumerate() {
        if !same_kernel || !from.args.get(index).is_some_and(|old| old.is(arg)) {
            let mut arg = arg.to_hal()?;
            places.resolve_arg(&mut arg)?;
            update.args.push((index, arg));
        }
    }
    let changed = |old: [usize; 3], new: [usize; 3]| (old != new).then_some(new);
    update.global_size = changed(from_range.global_size(), to_range.global_size());
    update.global_offset = changed(from_range.global_offset(), to_range.global_offset());
    let (old, new) = (from_range.local_size(), to_range.local_size());
    update.local_size = (old != new).then_some(new);
    Ok(update)
}

/// Updates one partition's command-buffer.
fn update(executable: &ExecutableInner, partition: u32, updates: &[CommandUpdate]) -> Result<()> {
    let PartitionWork::Device { command_buffer, .. } = &executable.partitions[partition as usize].work else {
        return Ok(());
    };
    let updated = command_buffer.change(|buffer: &mut hal::ValidatedCommandBuffer| buffer.update(updates));
    updated.unwrap_or(Ok(())).map_err(|error| executable.labels.locate(partition as usize, error))
}
