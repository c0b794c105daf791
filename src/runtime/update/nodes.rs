//! Changes of single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph;
use crate::hal::{self, CommandBufferId, CommandHandle, CommandUpdate};
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::finalize::node_index::CommandPlace;
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::scratch::Places;
use crate::runtime::update::draft::{Draft, Lowered};
use crate::runtime::update::drafts::Drafts;
use crate::runtime::update::race_check::{self, Changed};
use crate::types::{Error, ErrorKind, Range, Result};

/// Checked changes.
pub(super) struct Nodes<'a> {
    /// Those of nodes in the plan have accesses if these are other ones. The drafts stay with the caller,
    /// who drops them without a lock.
    drafts: &'a mut Drafts,
    partitions: BTreeMap<u32, PartitionUpdates>,
    /// The new host tasks with their partitions; once applied, the old ones.
    tasks: Vec<(u32, Arc<HostTask>)>,
}

/// The updates of one partition's command-buffer.
struct PartitionUpdates {
    buffer: CommandBufferId,
    updates: Vec<CommandUpdate>,
}

/// What single nodes did before.
pub(super) struct ReplacedNodes {
    _drafts: [Vec<Draft>; 2],
    _tasks: Vec<(u32, Arc<HostTask>)>,
    _graphs: Vec<graph::Graph<Command>>,
}

/// Checks the drafts, and works out how their devices have to be updated.
pub(super) fn stage<'a>(
    executable: &ExecutableInner,
    current: &CurrentGraph,
    drafts: &'a mut Drafts,
) -> Result<Nodes<'a>> {
    let (mut partitions, mut tasks) = (BTreeMap::new(), Vec::new());
    for draft in &mut drafts.nodes {
        let node = draft.node;
        let staged = stage_one(executable, current, draft, &mut partitions, &mut tasks);
        staged.map_err(|error| error.in_node(current.label(node)))?;
    }
    for draft in &drafts.bodies.nodes {
        let views = draft.changed().into_iter().flat_map(Command::views);
        let planned = current.planned.check(draft.node, views);
        planned.map_err(|error| error.in_node(current.label(draft.node)))?;
    }
    let nodes = drafts.nodes.iter();
    let changed: Vec<_> = nodes
        .filter_map(|draft| Some(Changed { node: draft.node, accesses: draft.accesses.as_deref()? }))
        .collect();
    race_check::check(current, &changed)?;
    Ok(Nodes { drafts, partitions, tasks })
}

/// Checks what becomes of one node, and adds it to the updates of its partition.
fn stage_one(
    executable: &ExecutableInner,
    current: &CurrentGraph,
    draft: &mut Draft,
    partitions: &mut BTreeMap<u32, PartitionUpdates>,
    tasks: &mut Vec<(u32, Arc<HostTask>)>,
) -> Result<()> {
    let node = draft.node;
    draft.enabled = draft.enabled.filter(|enabled| *enabled != current.is_enabled(node));
    if !draft.is_changed && draft.enabled.is_none() {
        return Ok(());
    }
    if draft.is_changed {
        check(current, draft)?;
    }
    let bug = || Error::new(ErrorKind::Bug, "an updatable node has no place in the plan");
    let CommandPlace { partition, position } = current.index.place(node).ok_or_else(bug)?;
    let task = match (draft.changed(), &draft.lowered) {
        (Some(Command::HostTask { task, .. }), _) | (_, Some(Lowered::Task(task))) => Some(task),
        _ => None,
    };
    match (&executable.partitions[partition as usize].work, task) {
        (PartitionWork::Device { device, command_buffer, .. }, _) => {
            let of_partition = partitions.entry(partition).or_insert_with(|| {
                let buffer = command_buffer.with(|buffer| buffer.info().id);
                PartitionUpdates { buffer, updates: Vec::new() }
            });
            let handle = CommandHandle { buffer: of_partition.buffer, index: position };
            let mut update = CommandUpdate::new(handle);
            update.enabled = draft.enabled;
            if let Some(new) = draft.changed() {
                let lowered = match &draft.lowered {
                    Some(Lowered::Command { new, .. }) => Some(&**new),
                    _ => None,
                };
                change(&mut update, (current.command(node), new), lowered, device, &current.scratch)?;
            }
            if update.changes_launch() || update.command.is_some() || update.enabled.is_some() {
                of_partition.updates.push(update);
            }
            Ok(())
        }
        (PartitionWork::HostTask(_), Some(task)) => {
            tasks.push((partition, task.clone()));
            Ok(())
        }
        (_, _) => Err(bug()),
    }
}

/// Checks what becomes of a command, and finds the accesses that are new.
fn check(current: &CurrentGraph, draft: &mut Draft) -> Result<()> {
    let node = draft.node;
    match (&draft.command, current.command(node)) {
        (Some(Command::Kernel { call, range, .. }), Some(Command::Kernel { call: old, .. })) => {
            if !call.is_like(old) {
                current.planned.check(node, call.views())?;
                draft.accesses = Some(call.accesses()?.into());
            }
            call.check_range(range)?;
        }
        (Some(command @ Command::Memory { .. }), _) => current.planned.check(node, command.views())?,
        (Some(Command::HostTask { accesses, .. }), _) => draft.accesses = Some((**accesses).into()),
        _ => {}
    }
    draft.accesses.take_if(|accesses| **accesses == *current.accesses_of(node));
    Ok(())
}

impl Nodes<'_> {
    /// The updates that make a partition do what it did before.
    fn undo(
        &self,
        executable: &ExecutableInner,
        current: &CurrentGraph,
        partition: u32,
        buffer: CommandBufferId,
    ) -> Result<Vec<CommandUpdate>> {
        let PartitionWork::Device { device, .. } = &executable.partitions[partition as usize].work else {
            return Ok(Vec::new());
        };
        let places =
            self.drafts.nodes.iter().filter_map(|draft| Some((draft, current.index.place(draft.node)?)));
        let here = places.filter(|(_, place)| place.partition == partition);
        here.map(|(draft, place)| {
            let mut update = CommandUpdate::new(CommandHandle { buffer, index: place.position });
            update.enabled = draft.enabled.map(|enabled| !enabled);
            if let Some((new, old)) = draft.changed().zip(current.command(draft.node)) {
                let lowered = match &draft.lowered {
                    Some(Lowered::Command { old, .. }) => Some(&**old),
                    _ => None,
                };
                change(&mut update, (Some(new), old), lowered, device, &current.scratch)?;
            }
            Ok(update)
        })
        .collect()
    }

    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &CurrentGraph) -> (Accesses, Accesses) {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for draft in &self.drafts.nodes {
            let Some((command, accesses)) = draft.changed().zip(draft.accesses.as_deref()) else { continue };
            for allocation in command.allocations() {
                let resource = allocation.memory().resource();
                let here = accesses.iter().filter(|access| access.resource == resource);
                new.extend(here.map(|access| (allocation.clone(), *access)));
            }
            for access in current.accesses_of(draft.node) {
                old.extend(current.uses.allocation(access.resource).map(|known| (known.clone(), *access)));
            }
        }
        (new, old)
    }

    /// Tells the devices, all or none of them. The caller keeps everybody from enqueueing.
    pub(super) fn apply(&mut self, executable: &ExecutableInner, current: &CurrentGraph) -> Result<()> {
        for (done, (&partition, batch)) in self.partitions.iter().enumerate() {
            let Err(error) = update(executable, partition, &batch.updates) else { continue };
            for (&partition, PartitionUpdates { buffer, .. }) in self.partitions.iter().take(done) {
                let undo = self.undo(executable, current, partition, *buffer);
                if let Err(error) = undo.and_then(|undo| update(executable, partition, &undo)) {
                    executable.set_broken(error);
                }
            }
            return Err(error);
        }
        for (partition, task) in &mut self.tasks {
            if let PartitionWork::HostTask(place) = &executable.partitions[*partition as usize].work {
                // The old one may own the bodies of a loop: it is dropped without locks.
                place.change(|place| std::mem::swap(place, task));
            }
        }
        Ok(())
    }

    /// Remembers what the devices do now. Gives back what has been replaced.
    pub(super) fn commit(self, current: &mut CurrentGraph) -> ReplacedNodes {
        let Drafts { mut nodes, bodies, .. } = std::mem::take(self.drafts);
        current.changes += 1;
        for Draft { node, command, is_changed, accesses, .. } in &mut nodes {
            if let Some(command) = command.as_mut().filter(|_| *is_changed) {
                current.exchange(*node, command, accesses.as_deref());
            }
        }
        for draft in nodes.iter().chain(&bodies.nodes) {
            match draft.enabled {
                Some(true) => current.disabled.remove(&draft.node),
                Some(false) => current.disabled.insert(draft.node),
                None => continue,
            };
        }
        let replace = |(instance, graph)| std::mem::replace(&mut current.graphs[instance as usize], graph);
        let graphs = bodies.graphs.into_iter().map(replace).collect();
        ReplacedNodes { _drafts: [nodes, bodies.nodes], _tasks: self.tasks, _graphs: graphs }
    }
}

/// Adds to an update what makes one command of another; of conditionals and loops, the device's command.
fn change(
    update: &mut CommandUpdate,
    (from, to): (Option<&Command>, &Command),
    lowered: Option<&hal::Command>,
    device: &Device,
    places: &Places,
) -> Result<()> {
    match (from, to) {
        (
            Some(Command::Kernel { call: from, range: from_range, .. }),
            Command::Kernel { call: to, range: to_range, .. },
        ) => change_launch(update, (from, from_range), (to, to_range), device, places),
        (_, Command::Memory { command, uses }) => {
            uses.iter().flatten().try_for_each(|view| view.check_address(device))?;
            let mut command = Box::new((**command).clone());
            places.resolve(&mut command)?;
            update.command = Some(command);
            Ok(())
        }
        _ => {
            update.command = lowered.cloned().map(Box::new);
            Ok(())
        }
    }
}

/// Adds to an update what makes one launch of another.
fn change_launch(
    update: &mut CommandUpdate,
    (from, from_range): (&KernelCall, &Range),
    (to, to_range): (&KernelCall, &Range),
    device: &Device,
    places: &Places,
) -> Result<()> {
    let same_kernel = from.kernel.is(&to.kernel);
    if !same_kernel {
        update.kernel = Some(to.kernel.on(device)?);
    }
    for (index, arg) in to.args.iter().enumerate() {
        if !same_kernel || !from.args.get(index).is_some_and(|old| old.is(arg)) {
            let mut arg = arg.to_hal(device)?;
            places.resolve_arg(&mut arg)?;
            update.args.push((index, arg));
        }
    }
    if from_range == to_range {
        return Ok(());
    }
    let changed = |old: [usize; 3], new: [usize; 3]| (old != new).then_some(new);
    update.global_size = changed(from_range.global_size(), to_range.global_size());
    update.global_offset = changed(from_range.global_offset(), to_range.global_offset());
    let (old, new) = (from_range.local_size(), to_range.local_size());
    update.local_size = (old != new).then_some(new);
    Ok(())
}

/// Updates one partition's command-buffer.
fn update(executable: &ExecutableInner, partition: u32, updates: &[CommandUpdate]) -> Result<()> {
    let PartitionWork::Device { command_buffer, .. } = &executable.partitions[partition as usize].work else {
        return Ok(());
    };
    let updated = command_buffer.change(|buffer: &mut hal::ValidatedCommandBuffer| buffer.update(updates));
    updated.unwrap_or(Ok(())).map_err(|error| executable.labels.locate(partition as usize, error))
}
