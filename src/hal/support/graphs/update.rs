//! Updates of a finalized command-buffer. They affect later launches; those in flight keep their
//! values: where the driver does not promise that ([`GraphDevice::can_change`]), an update while a launch may
//! still run makes a second instance.

use smallvec::SmallVec;

use super::device::GraphDevice;
use super::instance::LaunchableGraph;
use super::objects::InstantiatedGraph as _;
use super::recording::{CommandNodes, GraphRecording, GraphState, RecordedCommand};
use crate::hal::support::replaced::{keeps_objects, keeps_replaced};
use crate::hal::support::streams::DriverContext as _;
use crate::hal::{Command, CommandBufferDesc, CommandChange, CommandUpdate, KernelLaunch, LaunchBefore};
use crate::types::{Error, ErrorKind, Result};

/// Changes nodes of the instance: all, or none on an error. Where operands of fills and copies, or
/// bodies, are among the changes, the commands are recorded again, and the driver finds the
/// differences: which nodes a fill has depends on its operands. So they are where the kind of an
/// edge depends on what changes. The caller has bound the context.
pub(super) fn update<D: GraphDevice>(
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
        if let (Some(new), Some(command), Some((_, current))) = (launch, change.command, place) {
            *current = new;
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

/// The new launch of a command, which has its arguments by now, and what it was before.
struct StagedLaunch<D: GraphDevice> {
    index: usize,
    before: LaunchBefore,
    /// None if the graph has to be recorded again for it.
    new: Option<D::Launch>,
}

/// Changes kernels, their arguments and sizes without copies of their launches: updates that
/// programs make before every enqueue. False, and without effect, if one of them is of another
/// kind.
fn update_launches<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    updates: &[CommandUpdate],
) -> Result<bool> {
    let mut staged = SmallVec::<[StagedLaunch<D>; 1]>::with_capacity(updates.len());
    let outcome = stage_launches(recording, updates, &mut staged).and_then(|all_in_place| {
        if all_in_place {
            let launches = || staged.iter().map(|one| (&recording.commands[one.index], one.new.as_ref()));
            let nodes = || launches().filter_map(|(recorded, new)| recorded.nodes.kernel.as_ref().zip(new));
            instance.change(
                |exec| nodes().try_for_each(|((node, _), new)| exec.set_kernel(*node, new)),
                |exec| Ok(nodes().try_for_each(|((node, current), _)| exec.set_kernel(*node, current))?),
            )?;
        }
        Ok(all_in_place)
    });
    if !matches!(outcome, Ok(true)) {
        for StagedLaunch { index, before, .. } in staged.into_iter().rev() {
            if let Command::Kernel(launch) = &mut recording.commands[index].command {
                before.restore(launch);
            }
        }
        return outcome;
    }
    let mut replaced = SmallVec::<[LaunchBefore; 1]>::new();
    for StagedLaunch { index, before, new } in staged {
        let recorded = &mut recording.commands[index];
        if let (Some(new), Some((_, current))) = (new, &mut recorded.nodes.kernel) {
            *current = new;
        }
        let is_kept = |launch: &KernelLaunch| keeps_replaced(&before, launch);
        if !matches!(&recorded.command, Command::Kernel(launch) if is_kept(launch)) {
            replaced.push(before);
        }
        recording.command_changed(index, GraphState::OtherLaunches);
    }
    if !replaced.is_empty() {
        instance.retire(replaced);
    }
    Ok(true)
}

/// Gives the launches their new arguments. False if not all of the updates can be made in place.
fn stage_launches<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    updates: &[CommandUpdate],
    staged: &mut SmallVec<[StagedLaunch<D>; 1]>,
) -> Result<bool> {
    for update in updates {
        let index = update.handle.index as usize;
        if update.enabled.is_some() || update.command.is_some() {
            return Ok(false);
        }
        let Some(RecordedCommand { command: Command::Kernel(launch), nodes, place, .. }) =
            recording.commands.get_mut(index)
        else {
            return Ok(false);
        };
        let Some((_, current)) = &nodes.kernel else { return Ok(false) };
        let before = update.exchange(launch)?;
        staged.push(StagedLaunch { index, before, new: None });
        let new = recording.device.launch_in_place(place, current, launch)?;
        let is_in_place = new.is_some();
        if let Some(staged) = staged.last_mut() {
            staged.new = new;
        }
        if !is_in_place {
            return Ok(false);
        }
    }
    Ok(true)
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
    /// What the change does to the command's nodes; none if the graph has to be recorded again for
    /// it.
    fn of(recording: &GraphRecording<D>, change: &CommandChange) -> Result<Option<Self>> {
        let CommandChange { index, command, enabled } = change;
        let recorded = &recording.commands[*index];
        let enabled = enabled.filter(|enabled| *enabled != recorded.enabled);
        if enabled == Some(false) && !D::can_disable(&recorded.place) {
            return Ok(None);
        }
        let launch = match (command, &recorded.nodes.kernel) {
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
        let current = recorded.nodes.kernel.as_ref().map(|(_, launch)| launch);
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
        if let Some((node, current)) = kernel
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
pub(super) fn update_from<D: GraphDevice>(
    recording: &mut GraphRecording<D>,
    instance: &mut LaunchableGraph<D>,
    other: &GraphRecording<D>,
) -> Result<()> {
    let attempt = update_in_place(recording, instance, other)?;
    complete(recording, instance, attempt, |desc| other.record_again(desc))
}

/// What has come of an update by the driver's comparison of two graphs.
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
    !matches!(command, Command::Child(_) | Command::If { .. } | Command::While { .. } | Command::Native(_))
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
        let patterns = std::mem::replace(&mut ours.nodes.patterns, theirs.nodes.patterns.clone());
        replaced.push((std::mem::replace(&mut ours.command, theirs.command.clone()), patterns));
        let state = match (&mut ours.nodes.kernel, &theirs.nodes.kernel) {
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
