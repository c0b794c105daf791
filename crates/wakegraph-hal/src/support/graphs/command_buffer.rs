//! Command-buffers: a graph that is instantiated at finalize, launched at enqueue, and changed by updates.
//!
//! Updates affect later launches; those in flight keep their values: where the driver does not promise that
//! ([`GraphDevice::can_change`]), an update while a launch may still run makes a second instance.
#![expect(unsafe_code, reason = "implements enqueues, whose safety the caller promises")]

use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::{
    CommandNodes, GraphDevice, GraphRecording, GraphState, InstantiatedGraph as _, LaunchableGraph,
    RecordedCommand,
};
use crate::support::command_list::{keeps_objects, keeps_replaced};
use crate::support::errors;
use crate::support::streams::{BorrowedStream, ContextFailure, DriverContext as _, StreamQueue};
use crate::{
    Appended, Command, CommandBuffer, CommandBufferDesc, CommandBufferId, CommandBufferInfo,
    CommandBufferState, CommandChange, CommandUpdate, Error, ErrorKind, KernelLaunch, LaunchBefore, Queue,
    Result, Signal, SyncPoint, WaitList,
};

/// Commands as a graph.
#[derive(Debug)]
pub struct GraphCommandBuffer<D: GraphDevice> {
    id: CommandBufferId,
    device: Arc<D>,
    desc: CommandBufferDesc,
    recording: GraphRecording<D>,
    /// Present from finalize on.
    instance: Option<Mutex<LaunchableGraph<D>>>,
}

impl<D: GraphDevice> GraphCommandBuffer<D> {
    /// Creates an empty command-buffer.
    pub fn create(device: &Arc<D>, desc: CommandBufferDesc) -> Result<Self> {
        D::prepare(device, &desc);
        let recording = GraphRecording::new(device, desc)?;
        let (id, device) = (CommandBufferId::unique(), Arc::clone(device));
        Ok(Self { id, device, desc, recording, instance: None })
    }

    /// Launches a command-buffer of this device as part of a batch, behind which an event is recorded. Gives
    /// the failure of a part that could not be launched behind others.
    pub fn launch_in_batch(
        device: &Arc<D>,
        buffer: &dyn CommandBuffer,
        borrowed: &BorrowedStream<D::Context>,
    ) -> Result<Option<Error>> {
        let buffer = buffer.downcast_ref::<Self>();
        let buffer = buffer.filter(|buffer| Arc::ptr_eq(device, &buffer.device));
        let buffer = buffer.ok_or_else(|| errors::foreign("command-buffer"))?;
        if buffer.desc.profiling {
            let why = "command-buffers with profiling are not enqueued in batches";
            return Err(errors::invalid_operation(why));
        }
        Ok(D::launch(&mut buffer.instance()?.lock(), &buffer.recording, borrowed, false)?.failure)
    }

    fn instance(&self) -> Result<&Mutex<LaunchableGraph<D>>> {
        self.instance.as_ref().ok_or_else(errors::enqueue_before_finalize)
    }

    /// The recording and its instance, for an update.
    fn parts(&mut self) -> Result<(&mut GraphRecording<D>, &mut LaunchableGraph<D>)> {
        if !self.desc.updatable {
            // The order of its nodes may rest on what its commands are.
            return Err(errors::not_updatable());
        }
        let instance = self.instance.as_mut().ok_or_else(errors::update_before_finalize)?;
        Ok((&mut self.recording, instance.get_mut()))
    }
}

impl<D: GraphDevice> CommandBuffer for GraphCommandBuffer<D> {
    fn info(&self) -> CommandBufferInfo {
        let state = match self.instance {
            None => CommandBufferState::Recording,
            Some(_) => CommandBufferState::Executable,
        };
        CommandBufferInfo {
            id: self.id,
            device: self.device.id(),
            desc: self.desc,
            state,
            commands: self.recording.commands.len(),
            lowering: D::LOWERING,
            reason: D::reason(&self.recording),
        }
    }

    fn append(&mut self, command: &Command, after: &[SyncPoint]) -> Result<Appended> {
        if self.instance.is_some() {
            return Err(errors::append_after_finalize());
        }
        let context = self.device.context();
        let next = errors::next_command(self.id, self.recording.commands.len(), after);
        let (index, after) = next.map_err(|error| context.error(error))?;
        context.run(|| D::append(&mut self.recording, command, after))?;
        Ok(Appended::new(self.id, index, command, &self.desc))
    }

    fn reserve(&mut self, commands: usize) {
        self.recording.commands.reserve_exact(commands);
    }

    fn command(&self, index: usize) -> Option<&Command> {
        self.recording.commands.get(index).map(|recorded| &recorded.command)
    }

    fn finalize(&mut self) -> Result<()> {
        if self.instance.is_some() {
            return Err(errors::finalized_twice());
        }
        let instantiated = self.device.context().run(|| D::instantiate(&mut self.recording))?;
        self.instance = Some(Mutex::new(LaunchableGraph::new(instantiated)));
        Ok(())
    }

    unsafe fn enqueue(&self, queue: &dyn Queue, wait: WaitList<'_>, signal: Signal<'_>) -> Result<()> {
        let instance = self.instance()?;
        let queue = StreamQueue::of(queue, &self.device)?;
        let commands = &self.recording.commands;
        let timed = self.desc.profiling.then_some(commands.len());
        queue.submit(timed, None, wait, signal, |borrowed, records| {
            let mut instance = instance.lock();
            if self.desc.profiling {
                let events = records.commands.lock();
                let nodes = commands.iter().zip(&*events).filter_map(|(recorded, events)| {
                    Some(recorded.nodes.records.as_deref()?.iter().copied().zip(events))
                });
                instance.record(Arc::clone(records) as _, nodes.flatten())?;
            }
            D::launch(&mut instance, &self.recording, borrowed, true)
        })
    }

    fn update(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        device.context().run(|| update(recording, instance, updates))
    }

    fn update_from(&mut self, other: &dyn CommandBuffer) -> Result<()> {
        let device = Arc::clone(&self.device);
        let (recording, instance) = self.parts()?;
        let other = other.downcast_ref::<Self>();
        let other = other.filter(|other| Arc::ptr_eq(&other.device, &device));
        let other = other.ok_or_else(|| errors::foreign("command-buffer"))?;
        device.context().run(|| update_from(recording, instance, &other.recording))
    }
}

/// Changes nodes of the instance: all, or none on an error. Where operands of fills and copies, or
/// bodies, are among the changes, the commands are recorded again, and the driver finds the
/// differences: which nodes a fill has depends on its operands. So they are where the kind of an
/// edge depends on what changes. The caller has bound the context.
fn update<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    updates: &[CommandUpdate],
) -> Result<()> {
    let in_place = D::can_change(&recording.device, instance)?;
    if in_place && update_launches(recording, instance, updates)? {
        return Ok(());
    }
    let current = |index: usize| recording.commands.get(index).map(|recorded| &recorded.command);
    let all = CommandChange::of(updates, current)?;
    let staged = match in_place {
        true => all.iter().map(|change| StagedChange::of(recording, change)).collect::<Result<_>>()?,
        false => None,
    };
    let Some(changes): Option<SmallVec<[StagedChange<D>; 1]>> = staged else {
        let other = recording.record_changed(recording.desc, &all)?;
        let attempt = update_in_place(recording, instance, &other)?;
        return complete(recording, instance, attempt, |_| Ok(other));
    };
    let each = |exec: &mut D::Exec, apply: fn(&StagedChange<D>, &mut D::Exec, &RecordedCommand<D>) -> _| {
        changes.iter().try_for_each(|change| apply(change, exec, &recording.commands[change.index]))
    };
    instance.change(|exec| each(exec, StagedChange::apply), |exec| each(exec, StagedChange::undo))?;
    let mut replaced = Vec::new();
    for (StagedChange { index, launch, enabled, .. }, change) in changes.into_iter().zip(all) {
        let recorded = &mut recording.commands[index];
        let place = recorded.nodes.kernel.as_mut();
        if let (Some(new), Some(command), Some(kernel)) = (launch, change.command, place) {
            kernel.1 = new;
            let old = std::mem::replace(&mut recorded.command, command);
            if !keeps_objects(&old, &recorded.command) {
                replaced.push(old);
            }
            recording.command_changed(index, GraphState::OtherLaunches);
        }
        if let Some(enabled) = enabled {
            recording.commands[index].enabled = enabled;
        }
    }
    if !replaced.is_empty() {
        instance.retire(replaced);
    }
    Ok(())
}

/// Parts that updates have replaced, each with the index of its command, newest last.
type ReplacedParts<D> = Vec<(usize, ReplacedPart<D>)>;

enum ReplacedPart<D: GraphDevice> {
    Command(LaunchBefore),
    Launch(Box<D::Launch>),
}

/// Changes kernels, their arguments and sizes in place: updates that programs make before every
/// enqueue. False, and without effect, if one of them is of another kind.
fn update_launches<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    updates: &[CommandUpdate],
) -> Result<bool> {
    instance.check_intact()?;
    let mut parts = ReplacedParts::with_capacity(updates.len());
    let staged = stage_launches(recording, updates, &mut parts);
    if !matches!(staged, Ok(true)) {
        restore_parts(recording, parts);
        return staged;
    }
    if let Err(failure) = set_kernels(recording, instance, updates) {
        restore_parts(recording, parts);
        let undone = set_kernels(recording, instance, updates);
        return Err(instance.failed(failure.into(), undone.map_err(Error::from)));
    }
    let mut replaced = Vec::new();
    for (index, part) in parts {
        let ReplacedPart::Command(before) = part else { continue };
        let is_kept = |launch: &KernelLaunch| keeps_replaced(&before, launch);
        if !matches!(&recording.commands[index].command, Command::Kernel(launch) if is_kept(launch)) {
            replaced.push(before);
            D::changed(recording, index);
        }
    }
    recording.state = recording.state.max(GraphState::OtherLaunches);
    if !replaced.is_empty() {
        instance.retire(replaced);
    }
    Ok(true)
}

/// Changes the launches, and not yet the instance. False if not all of the updates can be made in place.
fn stage_launches<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    updates: &[CommandUpdate],
    parts: &mut ReplacedParts<D>,
) -> Result<bool> {
    let GraphRecording { device, commands, .. } = recording;
    for update in updates {
        let index = update.handle.index as usize;
        let Some((launch, current, place)) = commands.get_mut(index).and_then(RecordedCommand::launch_mut)
        else {
            return Ok(false);
        };
        if update.enabled.is_some() || update.command.is_some() {
            return Ok(false);
        }
        update.exchange(launch, |before| parts.push((index, ReplacedPart::Command(before))))?;
        let changes_form = update.kernel.is_some() || update.changes_range();
        if !changes_form && replace_arguments::<D>(current, launch, update)? {
            continue;
        }
        let Some(new) = device.launch_in_place(place, current, launch)? else { return Ok(false) };
        let old = std::mem::replace(current, new);
        parts.push((index, ReplacedPart::Launch(Box::new(old))));
    }
    Ok(true)
}

/// Gives a launch the new arguments of the command. False if it has to be made again.
fn replace_arguments<D: GraphDevice>(
    current: &mut D::Launch,
    launch: &KernelLaunch,
    update: &CommandUpdate,
) -> Result<bool> {
    for (index, _) in &update.args {
        if !D::replace_argument(current, launch, *index)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes commands and launches what they were.
fn restore_parts<D: GraphDevice>(recording: &mut GraphRecording<D>, parts: ReplacedParts<D>) {
    for (index, part) in parts.into_iter().rev() {
        let Some((launch, current, _)) = recording.commands[index].launch_mut() else { continue };
        match part {
            ReplacedPart::Launch(old) => *current = *old,
            ReplacedPart::Command(LaunchBefore::Argument(index, old)) => {
                launch.args[index] = old;
                // Where it cannot be replaced, the launch was, and has been restored.
                let _ = D::replace_argument(current, launch, index);
            }
            ReplacedPart::Command(before) => before.restore(launch),
        }
    }
}

/// Has the instance launch the kernels that the updates name as their commands are.
fn set_kernels<D: GraphDevice>(
    recording: &GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    updates: &[CommandUpdate],
) -> Result<(), ContextFailure<D::Context>> {
    let commands = updates.iter().map(|update| &recording.commands[update.handle.index as usize]);
    let mut kernels = commands.filter_map(|recorded| recorded.nodes.kernel.as_deref());
    kernels.try_for_each(|(node, launch)| instance.exec.set_kernel(*node, launch))
}

impl<D: GraphDevice> RecordedCommand<D> {
    /// The launch of a kernel, as the contract and as the driver have it.
    fn launch_mut(&mut self) -> Option<(&mut KernelLaunch, &mut D::Launch, &D::Place)> {
        match (&mut self.command, self.nodes.kernel.as_deref_mut()) {
            (Command::Kernel(launch), Some((_, current))) => {
                Some((Arc::make_mut(launch), current, &self.place))
            }
            _ => None,
        }
    }
}

/// A change of one command's nodes.
struct StagedChange<D: GraphDevice> {
    index: usize,
    launch: Option<D::Launch>,
    /// The new value, if it changes.
    enabled: Option<bool>,
    /// The copies to set again when the command is enabled.
    copies: Vec<D::ChangedCopy>,
}

impl<D: GraphDevice> StagedChange<D> {
    /// The effect of the change on the command's nodes; none if the graph has to be recorded again for
    /// it.
    fn of(recording: &GraphRecording<D>, change: &CommandChange) -> Result<Option<Self>> {
        let CommandChange { index, command, enabled } = change;
        let recorded = &recording.commands[*index];
        let enabled = enabled.filter(|enabled| *enabled != recorded.enabled);
        if enabled == Some(false) && !D::can_disable(&recorded.place) {
            return Ok(None);
        }
        let launch = match (command, recorded.nodes.kernel.as_deref()) {
            (None, _) => None,
            (Some(Command::Kernel(launch)), Some((_, current))) => {
                match recording.device.launch_in_place(&recorded.place, current, launch)? {
                    None => return Ok(None),
                    launch => launch,
                }
            }
            (Some(_), _) => return Ok(None),
        };
        let copies = match enabled {
            Some(_) => D::changed_copies(recording, *index)?,
            None => Vec::new(),
        };
        Ok(Some(Self { index: *index, launch, enabled, copies }))
    }

    fn apply(&self, exec: &mut D::Exec, recorded: &RecordedCommand<D>) -> Result<()> {
        self.set(exec, recorded, self.enabled, self.launch.as_ref())
    }

    /// Makes the instance do again what the command says.
    fn undo(&self, exec: &mut D::Exec, recorded: &RecordedCommand<D>) -> Result<()> {
        let current = recorded.nodes.kernel.as_deref().map(|(_, launch)| launch);
        let (enabled, launch) = (self.enabled.map(|_| recorded.enabled), self.launch.as_ref().and(current));
        self.set(exec, recorded, enabled, launch)
    }

    /// Where the driver forgets parameters, what is enabled gets them again.
    fn set(
        &self,
        exec: &mut D::Exec,
        recorded: &RecordedCommand<D>,
        enabled: Option<bool>,
        launch: Option<&D::Launch>,
    ) -> Result<()> {
        let CommandNodes { work, kernel, .. } = &recorded.nodes;
        if let Some(enabled) = enabled {
            work.iter().try_for_each(|node| exec.set_enabled(*node, enabled))?;
        }
        let again = D::FORGETS_DISABLED && enabled == Some(true);
        if let Some((node, current)) = kernel.as_deref()
            && let Some(launch) = launch.or(again.then_some(current))
        {
            exec.set_kernel(*node, launch)?;
        }
        if again {
            self.copies.iter().try_for_each(|copy| D::set_copy(exec, copy))?;
        }
        Ok(())
    }
}

/// Makes later launches do what the other recording says. The driver compares the graphs; where it
/// refuses, the other one is instantiated again. The caller has bound the context.
fn update_from<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    other: &GraphRecording<D>,
) -> Result<()> {
    let attempt = update_in_place(recording, instance, other)?;
    complete(recording, instance, attempt, |desc| other.record_again(desc))
}

/// The outcome of an update by the driver's comparison of two graphs.
enum InPlaceUpdate {
    Done,
    /// It may have had effects.
    Refused,
    NotTried,
}

/// Has the driver compare the graphs, if it can.
fn update_in_place<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    other: &GraphRecording<D>,
) -> Result<InPlaceUpdate> {
    if !can_compare(recording, instance, other)? {
        return Ok(InPlaceUpdate::NotTried);
    }
    // While it is locked, no other thread uses the other graph.
    match instance.exec.update(&mut other.graph.lock()) {
        Ok(true) => {
            take_commands(recording, instance, other);
            return Ok(InPlaceUpdate::Done);
        }
        Ok(false) => {}
        Err(failure) => {
            let error = recording.device.context().error(failure);
            tracing::debug!(target: "wakegraph", %error, "an update in place failed");
        }
    }
    Ok(InPlaceUpdate::Refused)
}

/// Unless the update is done, replaces our graph and its instance by those that `record` makes.
fn complete<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    attempt: InPlaceUpdate,
    record: impl FnOnce(CommandBufferDesc) -> Result<GraphRecording<D>>,
) -> Result<()> {
    if matches!(attempt, InPlaceUpdate::Done) {
        return Ok(());
    }
    let replace = || {
        let mut new = record(recording.desc)?;
        let (exec, form) = D::instantiate(&mut new)?;
        D::replace(instance, exec, form)?;
        instance.retire(std::mem::replace(recording, new));
        Ok(())
    };
    match (replace(), attempt) {
        (Err(error), InPlaceUpdate::Refused) => restore(recording, instance, error),
        (outcome, _) => outcome,
    }
}

/// Whether the driver can update the instance from the other graph: the graph says what the
/// commands do, and the instance has no nodes of its own. Record nodes would get the other's
/// events, which may be destroyed before enqueues give them others.
fn can_compare<D: GraphDevice>(
    recording: &GraphRecording<D>,
    instance: &LaunchableGraph<D>,
    other: &GraphRecording<D>,
) -> Result<bool> {
    let is_alike = |(ours, theirs): (&RecordedCommand<D>, &RecordedCommand<D>)| {
        let same_nodes = ours.nodes.work.len() == theirs.nodes.work.len()
            && ours.nodes.kernel.is_some() == theirs.nodes.kernel.is_some()
            && D::has_same_edges(&ours.place, &theirs.place);
        same_nodes && ours.enabled && theirs.enabled && is_comparable(&theirs.command)
    };
    Ok(other.state == GraphState::Current
        && D::has_only_commands(recording)
        && D::has_only_commands(other)
        && instance.broken().is_none()
        && !recording.desc.profiling
        && recording.commands.iter().zip(&other.commands).all(is_alike)
        && D::can_change(&recording.device, instance)?)
}

/// Whether the driver compares the nodes of the command one by one: bodies and captured work are
/// recorded again.
fn is_comparable(command: &Command) -> bool {
    command.bodies().next().is_none() && !command.kind().row().is_captured
}

/// After an update in place that the driver refused, and that may have had effects: makes the
/// instance do what the commands say, and returns the error of the update.
fn restore<D: GraphDevice>(
    recording: &GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    error: Error,
) -> Result<()> {
    let again = recording.record_again(recording.desc);
    let undo = |exec: &mut D::Exec| {
        let mut again = again?;
        let mut both = again.commands.iter().zip(&recording.commands);
        let same_edges = both.all(|(again, recorded)| D::has_same_edges(&again.place, &recorded.place));
        match same_edges && exec.update(again.graph.get_mut())? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Driver, "the driver refuses to undo the update")),
        }
    };
    instance.change(|_| Err(error), undo)
}

/// After an update in place: gives our commands, at their own nodes, the contents of the other's.
fn take_commands<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    other: &GraphRecording<D>,
) {
    let mut replaced = Vec::with_capacity(other.commands.len());
    for (index, theirs) in other.commands.iter().enumerate() {
        let ours = &mut recording.commands[index];
        let kept = std::mem::replace(&mut ours.nodes.kept, theirs.nodes.kept.clone());
        replaced.push((std::mem::replace(&mut ours.command, theirs.command.clone()), kept));
        let state = match (ours.nodes.kernel.as_deref_mut(), theirs.nodes.kernel.as_deref()) {
            (Some((_, launch)), Some((_, new))) => {
                launch.clone_from(new);
                GraphState::OtherLaunches
            }
            _ if ours.nodes.work.is_empty() => GraphState::Current,
            _ => GraphState::Outdated,
        };
        recording.command_changed(index, state);
    }
    instance.retire(replaced);
}
