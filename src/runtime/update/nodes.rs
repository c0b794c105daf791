//! Changes of single nodes.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use crate::graph::{Content, NodeId};
use crate::hal::{self, CommandHandle, CommandUpdate};
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::finalize::updatable::Accesses;
use crate::runtime::finalize::updatable::{CommandPlace, CurrentGraph, Updatable};
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::scratch::Places;
use crate::runtime::update::race_check::{self, Changed};
use crate::types::{Access, CommandKind, Error, ErrorKind, Range, Result};

/// What becomes of a node.
pub(crate) enum NodeChange {
    Launch(Arc<KernelCall>),
    Range(Range),
    Enabled(bool),
}

/// All changes of one node.
#[derive(Default)]
struct Draft {
    call: Option<Arc<KernelCall>>,
    range: Option<Range>,
    enabled: Option<bool>,
}

/// One node, worked out.
struct Node {
    index: u32,
    /// A kernel with other arguments or another range, and its accesses.
    launch: Option<(Command, Box<[Access]>)>,
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
}

/// What a kernel's new arguments bring. Arguments that do not fit bring nothing: the update is going to fail.
pub(super) fn brings(call: &KernelCall) -> Accesses {
    let accesses = call.accesses().unwrap_or_default().into_iter();
    let with_allocation = |access: Access| {
        let mut allocations = call.views().map(View::allocation);
        let of = allocations.find(|allocation| allocation.memory().resource() == access.resource)?;
        Some((of.clone(), access))
    };
    accesses.filter_map(with_allocation).collect()
}

/// Works out what the nodes become, and how their devices have to be updated.
pub(super) fn stage(
    executable: &ExecutableInner,
    updatable: &Updatable,
    current: &CurrentGraph,
    changes: &[(NodeId, NodeChange, &'static Location<'static>)],
) -> Result<Nodes> {
    let mut drafts: BTreeMap<usize, Draft> = BTreeMap::new();
    for (node, change, at) in changes {
        let index = updatable.index_of(*node).map_err(|error| error.at(at))?;
        let draft = drafts.entry(index).or_default();
        add(draft, current, index, change)
            .map_err(|error| error.in_node(current.graph.label_at(index)).at(at))?;
    }
    let mut nodes = Nodes { nodes: Vec::new(), batches: BTreeMap::new() };
    for (index, draft) in drafts {
        let label = |error: Error| error.in_node(current.graph.label_at(index));
        nodes.add(executable, updatable, current, index, draft).map_err(label)?;
    }
    let launches = nodes.nodes.iter().filter_map(|node| Some((node.index, &node.launch.as_ref()?.1)));
    let changed: Vec<_> = launches.map(|(node, accesses)| Changed { node, accesses }).collect();
    race_check::check(current, &changed)?;
    Ok(nodes)
}

/// Adds one change, if the node has what it changes.
fn add(draft: &mut Draft, current: &CurrentGraph, index: usize, change: &NodeChange) -> Result<()> {
    let kind = current.graph.kinds()[index];
    match (change, current.graph.content_at(index)) {
        (NodeChange::Launch(call), Content::Command(Command::Kernel { call: own, alternatives, .. })) => {
            let known = own.kernel.is(&call.kernel) || alternatives.iter().any(|one| one.is(&call.kernel));
            if !known {
                let name = call.kernel.name();
                let why = format!("kernel '{name}' is neither the node's own nor a registered alternative");
                return Err(Error::new(ErrorKind::InvalidArgument, why)
                    .help("register it with `NodeBuilder::alternative` before the graph is finalized"));
            }
            draft.call = Some(call.clone());
        }
        (NodeChange::Range(range), Content::Command(Command::Kernel { range: own, .. })) => {
            range.check()?;
            if range.dimensions() != own.dimensions() {
                let (new, old) = (range.dimensions(), own.dimensions());
                let why = format!("the new {range} has {new} dimensions, the node's has {old}");
                return Err(Error::new(ErrorKind::InvalidArgument, why));
            }
            draft.range = Some(*range);
        }
        (NodeChange::Enabled(enabled), Content::Command(Command::Kernel { .. })) => {
            draft.enabled = Some(*enabled);
        }
        (NodeChange::Enabled(enabled), Content::Command(Command::Memory { command, .. }))
            if command.can_be_disabled() =>
        {
            draft.enabled = Some(*enabled);
        }
        (NodeChange::Enabled(_), _) => {
            return Err(unfit(kind, "only kernels, fills and copies can be enabled and disabled"));
        }
        (NodeChange::Launch(_) | NodeChange::Range(_), _) => {
            return Err(unfit(kind, "only kernels have arguments and a range"));
        }
    }
    Ok(())
}

fn unfit(kind: CommandKind, why: &str) -> Error {
    let error = Error::new(ErrorKind::InvalidArgument, format!("{why}, and the node is: {kind}"));
    match kind {
        CommandKind::SubGraph => error.help("update the executable from another graph with `update_from`"),
        _ => error,
    }
}

impl Nodes {
    fn add(
        &mut self,
        executable: &ExecutableInner,
        updatable: &Updatable,
        current: &CurrentGraph,
        index: usize,
        draft: Draft,
    ) -> Result<()> {
        let bug = || Error::new(ErrorKind::Bug, "an updatable node has no place in the plan");
        let CommandPlace { partition, position } = updatable.places[index].ok_or_else(bug)?;
        let PartitionWork::Device { device, command_buffer, .. } =
            &executable.partitions[partition as usize].work
        else {
            return Err(bug());
        };
        let buffer = command_buffer.with(|buffer| buffer.info().id);
        let handle = CommandHandle { buffer, index: position };
        let (mut update, mut undo) = (CommandUpdate::new(handle), CommandUpdate::new(handle));
        let mut launch = None;
        if draft.call.is_some() || draft.range.is_some() {
            let Content::Command(Command::Kernel { call: old_call, range: old_range, alternatives }) =
                current.graph.content_at(index)
            else {
                return Err(bug());
            };
            let call = draft.call.unwrap_or_else(|| old_call.clone());
            let range = draft.range.unwrap_or(*old_range);
            updatable.scratch.check(index as u32, call.views())?;
            let accesses = call.accesses()?.into();
            call.check_range(&range)?;
            (update, undo) = (
                difference(handle, (old_call, old_range), (&call, &range), device, &executable.scratch)?,
                difference(handle, (&call, &range), (old_call, old_range), device, &executable.scratch)?,
            );
            let alternatives = with_own(alternatives, &old_call.kernel, &call.kernel);
            launch = Some((Command::Kernel { call, range, alternatives }, accesses));
        }
        let enabled = draft.enabled.filter(|enabled| *enabled != current.is_enabled(index));
        (update.enabled, undo.enabled) = (enabled, enabled.map(|enabled| !enabled));
        if update.changes_launch() || enabled.is_some() {
            let batch = self.batches.entry(partition).or_default();
            batch.updates.push(update);
            batch.undo.push(undo);
        }
        self.nodes.push(Node { index: index as u32, launch, enabled });
        Ok(())
    }

    /// The accesses that come and those that go.
    pub(super) fn accesses(&self, current: &CurrentGraph) -> (Accesses, Accesses) {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for Node { index, launch, .. } in &self.nodes {
            let Some((command, accesses)) = launch else { continue };
            let before = current.accesses_of(*index as usize);
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
        Ok(())
    }

    /// Remembers what the devices do now. Gives back what has been replaced.
    pub(super) fn commit(self, current: &mut CurrentGraph) -> Vec<Command> {
        let mut replaced = Vec::new();
        for Node { index, launch, enabled } in self.nodes {
            match enabled {
                Some(true) => _ = current.disabled.remove(&index),
                Some(false) => _ = current.disabled.insert(index),
                None => {}
            }
            let Some((command, accesses)) = launch else { continue };
            let old = current.accesses_of(index as usize).to_vec();
            current.uses.remove(index, &old);
            current.uses.add(index, &command, &accesses);
            current.accesses.insert(index, accesses);
            let id = current.graph.id_at(index as usize);
            if let Some(Ok(place)) = id.map(|id| current.graph.command_mut(id)) {
                replaced.push(std::mem::replace(place, command));
            }
        }
        replaced
    }
}

/// What makes one launch of another.
fn difference(
    handle: CommandHandle,
    (from, from_range): (&KernelCall, &Range),
    (to, to_range): (&KernelCall, &Range),
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

/// What may be in the place of `new` when it has replaced `old`.
fn with_own(alternatives: &Arc<[KernelRef]>, old: &KernelRef, new: &KernelRef) -> Arc<[KernelRef]> {
    if old.is(new) || alternatives.iter().any(|known| known.is(old)) {
        return alternatives.clone();
    }
    alternatives.iter().chain([old]).cloned().collect()
}

/// Updates one partition's command-buffer.
fn update(executable: &ExecutableInner, partition: u32, updates: &[CommandUpdate]) -> Result<()> {
    let PartitionWork::Device { command_buffer, .. } = &executable.partitions[partition as usize].work else {
        return Ok(());
    };
    let updated = command_buffer.change(|buffer: &mut hal::ValidatedCommandBuffer| buffer.update(updates));
    updated.unwrap_or(Ok(())).map_err(|error| executable.labels.locate(partition as usize, error))
}
