//! Changes of single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::graph;
use crate::hal::{self, CommandHandle, CommandUpdate};
use crate::plan::Origin;
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
#[derive(Default)]
pub(super) struct Nodes {
    nodes: Vec<Node>,
    batches: BTreeMap<u32, PartitionUpdates>,
    /// The new host tasks with their partitions; once applied, the old ones.
    tasks: Vec<(u32, Arc<HostTask>)>,
    /// What becomes of nodes in bodies, and of the graphs around them.
    switches: Vec<(Origin, bool)>,
    graphs: Vec<(u32, graph::Graph<Command>)>,
}

/// What single nodes did before.
pub(super) struct ReplacedNodes {
    _commands: Vec<Command>,
    _tasks: Vec<(u32, Arc<HostTask>)>,
    _graphs: Vec<graph::Graph<Command>>,
}

/// Checks the drafts, and works out how their devices have to be updated.
pub(super) fn stage(executable: &ExecutableInner, current: &CurrentGraph, drafts: &Drafts) -> Result<Nodes> {
    let mut nodes = Nodes::default();
    for draft in &drafts.nodes {
        let label = |error: Error| error.in_node(current.label(draft.node));
        nodes.add(executable, current, draft).map_err(label)?;
    }
    for draft in &drafts.bodies.nodes {
        let label = |error: Error| error.in_node(current.label(draft.node));
        let views = draft.after.iter().flat_map(Command::views);
        current.planned.check(draft.node, views).map_err(label)?;
        nodes.switches.extend(draft.enabled.map(|enabled| (draft.node, enabled)));
    }
    nodes.graphs.clone_from(&drafts.bodies.graphs);
    let commands = nodes.nodes.iter().filter_map(|node| Some((node.origin, &node.command.as_ref()?.1)));
    let changed: Vec<_> = commands.map(|(node, accesses)| Changed { node, accesses }).collect();
    race_check::check(current, &changed)?;
    Ok(nodes)
}

impl Nodes {
    fn add(&mut self, executable: &ExecutableInner, current: &CurrentGraph, draft: &Draft) -> Result<()> {
        let origin = draft.node;
        let enabled = draft.enabled.filter(|enabled| *enabled != current.is_enabled(origin));
        if draft.after.is_none() && enabled.is_none() {
            return Ok(());
        }
        let bug = || Error::new(ErrorKind::Bug, "an updatable node has no place in the plan");
        let CommandPlace { partition, position } = current.index.place(origin).ok_or_else(bug)?;
        if let Some(after @ (Command::Kernel { .. } | Command::Memory { .. })) = &draft.after {
            current.planned.check(origin, after.views())?;
        }
        let command = draft.checked()?;
        let task = match (&draft.after, &draft.lowered) {
            (Some(Command::HostTask { task, .. }), _) | (_, Some(Lowered::Task(task))) => Some(task),
            _ => None,
        };
        let (device, command_buffer) = match (&executable.partitions[partition as usize].work, task) {
            (PartitionWork::Device { device, command_buffer, .. }, _) => (device, command_buffer),
            (PartitionWork::HostTask(_), Some(task)) => {
                self.tasks.push((partition, task.clone()));
                self.nodes.push(Node { origin, command, enabled: None });
                return Ok(());
            }
            (_, _) => return Err(bug()),
        };
        let buffer = command_buffer.with(|buffer| buffer.info().id);
        let handle = CommandHandle { buffer, index: position };
        let (mut update, mut undo) = (CommandUpdate::new(handle), CommandUpdate::new(handle));
        match (&draft.before, &draft.after, &draft.lowered) {
            (
                Some(Command::Kernel { call: old_call, range: old_range, .. }),
                Some(Command::Kernel { call, range, .. }),
                _,
            ) => {
                (update, undo) = (
                    difference(handle, (old_call, old_range), (call, range), device, &current.scratch)?,
                    difference(handle, (call, range), (old_call, old_range), device, &current.scratch)?,
                );
            }
            (Some(Command::Memory { command: old, .. }), Some(Command::Memory { command: new, .. }), _) => {
                let mut memory = [new, old].map(|command| Box::new((**command).clone()));
                memory.iter_mut().try_for_each(|command| current.scratch.resolve(command))?;
                let [new, old] = memory;
                (update.command, undo.command) = (Some(new), Some(old));
            }
            (_, _, Some(Lowered::Command { new, old })) => {
                (update.command, undo.command) = (Some(new.clone()), Some(old.clone()));
            }
            _ => {}
        }
        (update.enabled, undo.enabled) = (enabled, enabled.map(|enabled| !enabled));
        if update.changes_launch() || update.command.is_some() || enabled.is_some() {
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
    pub(super) fn apply(&mut self, executable: &ExecutableInner) -> Result<()> {
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
        let mut commands = Vec::new();
        let mut switches = self.switches;
        for Node { origin, command, enabled } in self.nodes {
            switches.extend(enabled.map(|enabled| (origin, enabled)));
            let Some((command, accesses)) = command else { continue };
            commands.extend(current.replace(origin, command, &accesses));
        }
        for (origin, enabled) in switches {
            match enabled {
                true => current.disabled.remove(&origin),
                false => current.disabled.insert(origin),
            };
        }
        let replace = |(instance, graph)| std::mem::replace(&mut current.graphs[instance as usize], graph);
        let graphs = self.graphs.into_iter().map(replace).collect();
        ReplacedNodes { _commands: commands, _tasks: self.tasks, _graphs: graphs }
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
