//! Changes of single nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use wakegraph_hal::{
    self as hal, Access, CommandBufferId, CommandHandle, CommandUpdate, Error, ErrorKind, Range, Result,
};

use crate::graph;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::finalize::idle;
use crate::runtime::finalize::node_index::CommandPlace;
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::scratch::Places;
use crate::runtime::update::change::Drafts;
use crate::runtime::update::draft::{Draft, Lowered};
use crate::runtime::update::race_check::{self, Changed};
use crate::runtime::update::step::Steps;

/// Checked changes.
pub(super) struct Nodes<'a> {
    /// The drafts. A draft of a node in the plan has accesses only if they change. The caller keeps the
    /// drafts and drops them without a lock.
    drafts: &'a mut Drafts,
    /// Of these, too, with the new calls of kernels.
    steps: &'a mut Steps,
    partitions: BTreeMap<u32, PartitionUpdates>,
    /// The new host tasks with their partitions; once applied, the old ones.
    tasks: Vec<(u32, Arc<HostTask>)>,
}

/// The updates of one partition's command-buffer.
struct PartitionUpdates {
    buffer: CommandBufferId,
    updates: Vec<CommandUpdate>,
}

/// Previous state of single nodes.
pub(super) struct ReplacedNodes {
    _drafts: [Vec<Draft>; 2],
    _calls: Vec<KernelCall>,
    _tasks: Vec<(u32, Arc<HostTask>)>,
    _graphs: Vec<graph::Graph<Command>>,
}

/// Checks the drafts, and works out how their devices have to be updated.
pub(super) fn stage<'a>(
    executable: &ExecutableInner,
    current: &CurrentGraph,
    steps: &'a mut Steps,
    drafts: &'a mut Drafts,
) -> Result<Nodes<'a>> {
    let mut staging = Staging {
        executable,
        current,
        steps,
        most: drafts.nodes.len(),
        partitions: BTreeMap::new(),
        tasks: Vec::new(),
    };
    for draft in &mut drafts.nodes {
        let node = draft.node;
        staging.add(draft).map_err(|error| error.in_node(current.label(node)))?;
    }
    let Staging { partitions, tasks, .. } = staging;
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
    Ok(Nodes { drafts, steps, partitions, tasks })
}

/// Effects of the drafts so far on the partitions.
struct Staging<'a> {
    executable: &'a ExecutableInner,
    current: &'a CurrentGraph,
    steps: &'a Steps,
    /// As many drafts as there are.
    most: usize,
    partitions: BTreeMap<u32, PartitionUpdates>,
    tasks: Vec<(u32, Arc<HostTask>)>,
}

impl Staging<'_> {
    /// Checks what becomes of one node, and adds it to the updates of its partition.
    fn add(&mut self, draft: &mut Draft) -> Result<()> {
        let Self { executable, current, steps, most, ref mut partitions, ref mut tasks } = *self;
        let node = draft.node;
        draft.enabled = draft.enabled.filter(|enabled| *enabled != current.is_enabled(node));
        if !draft.changes_command() && draft.enabled.is_none() {
            return Ok(());
        }
        let launches = launches(current, steps, draft);
        let accesses = check(current, draft, launches)?;
        let bug = || Error::new(ErrorKind::Bug, "an updatable node has no place in the plan");
        let CommandPlace { partition, position } = current.index.place(node).ok_or_else(bug)?;
        let task = match (draft.changed(), draft.lowered.as_deref()) {
            (Some(Command::HostTask { task, .. }), _) | (_, Some(Lowered::Task(task))) => Some(task),
            _ => None,
        };
        let exec = &executable.partitions[partition as usize];
        match (exec.command_buffer().zip(exec.device()), task) {
            (Some((command_buffer, device)), _) => {
                let room = if partitions.is_empty() { most } else { 0 };
                let PartitionUpdates { buffer, updates } = partitions.entry(partition).or_insert_with(|| {
                    let buffer = command_buffer.with(|buffer| buffer.info().id);
                    PartitionUpdates { buffer, updates: Vec::with_capacity(room) }
                });
                let mut update = CommandUpdate::new(CommandHandle { buffer: *buffer, index: position });
                update.enabled = switch(current, draft);
                if let Some((old, new)) = launches {
                    change_launch(&mut update, old, new, device, &current.scratch)?;
                } else if let Some((old, new)) = current.command(node).zip(draft.changed()) {
                    let lowered = match draft.lowered.as_deref() {
                        Some(Lowered::Command { new, .. }) => Some(&**new),
                        _ => None,
                    };
                    replace(&mut update, old, new, lowered, device, &current.scratch)?;
                }
                if update.changes_launch() || update.command.is_some() || update.enabled.is_some() {
                    updates.push(update);
                }
            }
            (None, Some(task)) => {
                executable.check_run_data(task)?;
                tasks.push((partition, task.clone()));
            }
            (None, None) => return Err(bug()),
        }
        draft.accesses = accesses;
        Ok(())
    }
}

/// A kernel's call and its range.
#[derive(Clone, Copy)]
struct RangedCall<'a> {
    call: &'a KernelCall,
    range: &'a Range,
}

/// Returns what a kernel node launches before the update and after it, if that changes.
fn launches<'a>(
    current: &'a CurrentGraph,
    steps: &'a Steps,
    draft: &'a Draft,
) -> Option<(RangedCall<'a>, RangedCall<'a>)> {
    let Some(Command::Kernel { call, range, .. }) = current.command(draft.node) else { return None };
    let old = RangedCall { call, range };
    if let Some(number) = draft.call {
        return Some((old, RangedCall { call: &steps.calls[number], range }));
    }
    let Some(Command::Kernel { call, range, .. }) = draft.changed() else { return None };
    Some((old, RangedCall { call, range }))
}

/// Checks what becomes of a command, and finds the accesses, if these are other ones than before.
fn check(
    current: &CurrentGraph,
    draft: &Draft,
    launches: Option<(RangedCall<'_>, RangedCall<'_>)>,
) -> Result<Option<Box<[Access]>>> {
    let node = draft.node;
    let accesses: Option<Box<[Access]>> = match (launches, draft.changed()) {
        (Some((old, RangedCall { call, range })), _) if call.is_like(old.call) => {
            return call.check_range(range).map(|()| None);
        }
        (Some((_, RangedCall { call, range })), _) => {
            current.planned.check(node, call.views())?;
            let accesses = call.accesses()?.into();
            call.check_range(range)?;
            Some(accesses)
        }
        (None, Some(command @ Command::Memory { .. })) => {
            current.planned.check(node, command.views())?;
            draft.accesses.clone()
        }
        (None, Some(Command::HostTask { accesses, .. })) => Some((**accesses).into()),
        (None, _) => draft.accesses.clone(),
    };
    Ok(accesses.filter(|accesses| **accesses != *current.accesses_of(node)))
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
        let Some(device) = executable.partitions[partition as usize].device() else { return Ok(Vec::new()) };
        let places =
            self.drafts.nodes.iter().filter_map(|draft| Some((draft, current.index.place(draft.node)?)));
        let here = places.filter(|(_, place)| place.partition == partition);
        here.map(|(draft, place)| {
            let mut update = CommandUpdate::new(CommandHandle { buffer, index: place.position });
            update.enabled = switch(current, draft).map(|enabled| !enabled);
            if let Some((old, new)) = launches(current, self.steps, draft) {
                change_launch(&mut update, new, old, device, &current.scratch)?;
            } else if let Some((new, old)) = draft.changed().zip(current.command(draft.node)) {
                let lowered = match draft.lowered.as_deref() {
                    Some(Lowered::Command { old, .. }) => Some(&**old),
                    _ => None,
                };
                replace(&mut update, new, old, lowered, device, &current.scratch)?;
            }
            Ok(update)
        })
        .collect()
    }

    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &CurrentGraph) -> (Accesses, Accesses) {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for draft in &self.drafts.nodes {
            let Some(accesses) = draft.accesses.as_deref().filter(|_| draft.changes_command()) else {
                continue;
            };
            for allocation in draft.allocations(self.steps) {
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
            if let Some(place) = executable.partitions[*partition as usize].host_task() {
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
        let moved = nodes.iter().filter(|draft| draft.changes_command() && draft.accesses.is_some());
        current.remove_uses(&moved.map(|draft| draft.node).collect());
        for draft in nodes.iter_mut().filter(|draft| draft.changes_command()) {
            if let Some(accesses) = &draft.accesses {
                current.replace_accesses(draft.node, draft.allocations(self.steps), accesses);
            }
            match (draft.call, &mut draft.command) {
                (Some(number), _) => current.exchange_call(draft.node, &mut self.steps.calls[number]),
                (None, Some(command)) => current.exchange(draft.node, command),
                (None, None) => {}
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
        let calls = std::mem::take(&mut self.steps.calls);
        ReplacedNodes { _drafts: [nodes, bodies.nodes], _calls: calls, _tasks: self.tasks, _graphs: graphs }
    }
}

/// Whether the device is to enable or disable the command of a node, if that changes. A command that has
/// nothing to do is disabled there, whatever the user has said.
fn switch(current: &CurrentGraph, draft: &Draft) -> Option<bool> {
    let was_enabled = current.is_enabled(draft.node);
    let was_idle = current.command(draft.node).is_some_and(Command::is_idle);
    let is_idle = draft.changed().map_or(was_idle, Command::is_idle);
    let (before, after) = (was_enabled && !was_idle, draft.enabled.unwrap_or(was_enabled) && !is_idle);
    (before != after).then_some(after)
}

/// Adds to an update the command `new` that takes the place of `old`; of conditionals and loops, the device's
/// command.
fn replace(
    update: &mut CommandUpdate,
    old: &Command,
    new: &Command,
    lowered: Option<&hal::Command>,
    device: &Device,
    places: &Places,
) -> Result<()> {
    match new {
        Command::Memory { command, uses } => {
            uses.iter().flatten().try_for_each(|view| view.check_address(device))?;
            if new.is_idle() {
                // Disabled there. With the operands so far, the device would keep their memory.
                if let Command::Memory { command: old, .. } = old.while_enabled() {
                    // Without a stand-in the device keeps the memory so far, which is no reason to fail: an
                    // undo that failed would break the executable.
                    update.command = idle::memory_stand_in(old.kind(), device).ok().flatten().map(Box::new);
                }
                return Ok(());
            }
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
    from: RangedCall<'_>,
    to: RangedCall<'_>,
    device: &Device,
    places: &Places,
) -> Result<()> {
    let same_kernel = from.call.kernel.is(&to.call.kernel);
    if !same_kernel {
        update.kernel = Some(to.call.kernel.on(device)?);
    }
    for (index, arg) in to.call.args.iter().enumerate() {
        if !same_kernel || !from.call.args.get(index).is_some_and(|old| old.is(arg)) {
            let mut arg = arg.to_hal(device)?;
            places.resolve_arg(&mut arg)?;
            update.args.push((index, arg));
        }
    }
    if std::ptr::eq(from.range, to.range) || from.range == to.range {
        return Ok(());
    }
    let (from, to) = (idle::range_on_device(from.range), idle::range_on_device(to.range));
    let changed = |old: [usize; 3], new: [usize; 3]| (old != new).then_some(new);
    update.global_size = changed(from.global_size(), to.global_size());
    update.global_offset = changed(from.offset(), to.offset());
    let (old, new) = (from.local_size(), to.local_size());
    update.local_size = (old != new).then_some(new);
    Ok(())
}

/// Updates one partition's command-buffer.
fn update(executable: &ExecutableInner, partition: u32, updates: &[CommandUpdate]) -> Result<()> {
    let buffer = executable.partitions[partition as usize].command_buffer();
    let updated = buffer.and_then(|buffer| buffer.change(|buffer| buffer.update(updates)));
    updated.unwrap_or(Ok(())).map_err(|error| executable.labels.locate(partition as usize, error))
}
