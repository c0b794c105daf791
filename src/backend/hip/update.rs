//! Updates of a finalized command-buffer. They affect later launches; those in flight keep their
//! values.
//!
//! The driver's documentation does not promise the latter, so each device tries it once
//! ([`updates_in_flight`](super::updates_in_flight)). Where that fails, an update while a launch may
//! still run makes a second instance.

use smallvec::SmallVec;

use super::graph_exec::HipGraphExec;
use super::graph_instance::HipGraphInstance;
use super::launch::HipLaunch;
use super::recording::{HipRecordedCommand, HipRecording};
use super::updates_in_flight::keep_their_values;
use crate::hal::support::replaced::{keeps_memory, keeps_objects};
use crate::hal::support::streams::DriverContext as _;
use crate::hal::{Command, CommandChange, CommandUpdate, KernelArg, KernelLaunch};
use crate::types::{Error, ErrorKind, Result};

/// Changes nodes of the instance: all, or none on an error. Where operands of fills and copies, or
/// bodies, are among the changes, the commands are recorded again, and the driver finds the
/// differences: which nodes a fill has depends on its operands. The caller has bound the context.
pub(super) fn update(
    recording: &mut HipRecording,
    instance: &mut HipGraphInstance,
    updates: &[CommandUpdate],
) -> Result<()> {
    let in_place = keep_their_values(&recording.device) || !instance.is_in_flight()?;
    if in_place
        && let [update] = updates
        && update.command.is_none()
        && let Some(outcome) = update_arguments(recording, instance, update)
    {
        return outcome;
    }
    // All are prepared before the driver gets the first: what is wrong shows here.
    let mut changes = SmallVec::<[HipStagedChange; 1]>::with_capacity(updates.len());
    let current = |index: usize| recording.commands.get(index).map(|recorded| &recorded.command);
    let all = CommandChange::of(updates, current)?;
    let is_other = |change: &CommandChange| {
        change.command.as_ref().is_some_and(|new| !matches!(new, Command::Kernel(_)))
    };
    if !in_place || all.iter().any(is_other) {
        let other = recording.record_changed(recording.desc, &all)?;
        return update_from(recording, instance, &other);
    }
    for CommandChange { index, command, enabled } in all {
        let launch = match command {
            Some(Command::Kernel(launch)) => Some((HipLaunch::of(&recording.device, &launch)?, launch)),
            _ => None,
        };
        let enabled = enabled.filter(|enabled| *enabled != recording.commands[index].enabled);
        changes.push(HipStagedChange { index, launch, enabled });
    }
    let each = |exec: &mut HipGraphExec,
                apply: fn(&HipStagedChange, &mut HipGraphExec, &HipRecordedCommand) -> _| {
        changes.iter().try_for_each(|change| apply(change, exec, &recording.commands[change.index]))
    };
    instance.change(|exec| each(exec, HipStagedChange::apply), |exec| each(exec, HipStagedChange::undo))?;
    let mut replaced = Vec::new();
    for HipStagedChange { index, launch, enabled } in changes {
        let recorded = &mut recording.commands[index];
        if let (Some((new, launch)), Some((_, current))) = (launch, &mut recorded.nodes.kernel) {
            *current = new;
            let old = std::mem::replace(&mut recorded.command, Command::Kernel(launch));
            if !keeps_objects(&old, &recorded.command) {
                replaced.push(old);
            }
            recording.is_current = false;
        }
        if let Some(enabled) = enabled {
            recorded.enabled = enabled;
        }
    }
    if !replaced.is_empty() {
        instance.retire(replaced);
    }
    Ok(())
}

/// Changes one kernel's arguments and sizes without a copy of its launch: an update that programs
/// make before every enqueue. Returns none, and has changed nothing, if the update is of another
/// kind.
fn update_arguments(
    recording: &mut HipRecording,
    instance: &mut HipGraphInstance,
    update: &CommandUpdate,
) -> Option<Result<()>> {
    let index = update.handle.index as usize;
    let recorded = recording.commands.get_mut(index)?;
    let (Command::Kernel(launch), Some((node, current))) =
        (&mut recorded.command, &mut recorded.nodes.kernel)
    else {
        return None;
    };
    let is_there = |(index, _): &(usize, KernelArg)| *index < launch.args.len();
    if update.kernel.is_some() || update.enabled.is_some() || !update.args.iter().all(is_there) {
        return None;
    }
    let range = launch.range;
    let old: SmallVec<[(usize, KernelArg); 2]> =
        update.args.iter().map(|(index, _)| (*index, launch.args[*index].clone())).collect();
    let mut change = || -> Result<()> {
        update.apply_to(launch)?;
        let new = HipLaunch::of(&recording.device, launch)?;
        instance.change(|exec| exec.set_kernel(*node, &new), |exec| Ok(exec.set_kernel(*node, current)?))?;
        *current = new;
        Ok(())
    };
    if let Err(error) = { change }() {
        launch.range = range;
        old.into_iter().for_each(|(index, arg)| launch.args[index] = arg);
        return Some(Err(error));
    }
    let replaced = old.into_iter().filter(|(index, old)| !keeps_memory(old, &launch.args[*index]));
    let replaced: SmallVec<[(usize, KernelArg); 2]> = replaced.collect();
    if !replaced.is_empty() {
        instance.retire(replaced);
    }
    recording.is_current = false;
    Some(Ok(()))
}

/// A change of one command's nodes.
struct HipStagedChange {
    index: usize,
    launch: Option<(HipLaunch, Box<KernelLaunch>)>,
    /// The new value, if it changes.
    enabled: Option<bool>,
}

impl HipStagedChange {
    fn apply(&self, exec: &mut HipGraphExec, recorded: &HipRecordedCommand) -> Result<()> {
        let launch = self.launch.as_ref().map(|(new, _)| new);
        set(exec, recorded, self.enabled, launch)
    }

    /// Makes the instance do again what the command says.
    fn undo(&self, exec: &mut HipGraphExec, recorded: &HipRecordedCommand) -> Result<()> {
        let current = recorded.nodes.kernel.as_ref().map(|(_, launch)| launch);
        set(exec, recorded, self.enabled.map(|_| recorded.enabled), self.launch.as_ref().and(current))
    }
}

fn set(
    exec: &mut HipGraphExec,
    recorded: &HipRecordedCommand,
    enabled: Option<bool>,
    launch: Option<&HipLaunch>,
) -> Result<()> {
    if let Some(enabled) = enabled {
        recorded.nodes.work.iter().try_for_each(|node| exec.set_enabled(*node, enabled))?;
    }
    if let Some(((node, _), launch)) = recorded.nodes.kernel.as_ref().zip(launch) {
        exec.set_kernel(*node, launch)?;
    }
    Ok(())
}

/// Makes later launches do what the other recording says. The driver compares the graphs; where it
/// refuses, the other one is instantiated again. The caller has bound the context.
pub(super) fn update_from(
    recording: &mut HipRecording,
    instance: &mut HipGraphInstance,
    other: &HipRecording,
) -> Result<()> {
    if !can_compare(recording, instance, other)? {
        return instantiate_like(recording, instance, other);
    }
    // While it is locked, no other thread uses the other graph.
    match instance.exec.update(&mut other.graph.lock()) {
        Ok(true) => {
            take_commands(recording, instance, other);
            return Ok(());
        }
        Ok(false) => {}
        Err(failure) => {
            let error = recording.device.context.error(failure);
            tracing::debug!(target: "wakegraph::hip", %error, "an update in place failed");
        }
    }
    instantiate_like(recording, instance, other).or_else(|error| restore(recording, instance, error))
}

/// Whether the driver can update the instance from the other graph: the graph says what the
/// commands do. Record nodes would get the other's events, which may be destroyed before enqueues
/// give them others.
fn can_compare(recording: &HipRecording, instance: &HipGraphInstance, other: &HipRecording) -> Result<bool> {
    let is_alike = |(ours, theirs): (&HipRecordedCommand, &HipRecordedCommand)| {
        let same_nodes = ours.nodes.work.len() == theirs.nodes.work.len()
            && ours.nodes.kernel.is_some() == theirs.nodes.kernel.is_some();
        same_nodes && ours.enabled && theirs.enabled && is_comparable(&theirs.command)
    };
    Ok(other.is_current
        && instance.broken.is_none()
        && !recording.desc.profiling
        && recording.commands.iter().zip(&other.commands).all(is_alike)
        && (keep_their_values(&recording.device) || !instance.is_in_flight()?))
}

/// Whether the driver compares the nodes of the command one by one: bodies and captured work are
/// recorded again.
fn is_comparable(command: &Command) -> bool {
    !matches!(command, Command::Child(_) | Command::Native(_))
}

/// After an update in place that the driver refused, and that may have had effects: makes the
/// instance do what the commands say, and returns the error of the update.
fn restore(recording: &HipRecording, instance: &mut HipGraphInstance, error: Error) -> Result<()> {
    let again = recording.record_again(recording.desc);
    let undo = |exec: &mut HipGraphExec| match exec.update(again?.graph.get_mut())? {
        true => Ok(()),
        false => Err(Error::new(ErrorKind::Driver, "the driver refuses to undo the update")),
    };
    instance.change(|_| Err(error), undo)
}

/// After an update in place: gives our commands, at their own nodes, the contents of the other's.
fn take_commands(recording: &mut HipRecording, instance: &mut HipGraphInstance, other: &HipRecording) {
    let mut replaced = Vec::with_capacity(other.commands.len());
    for (ours, theirs) in recording.commands.iter_mut().zip(&other.commands) {
        let patterns = std::mem::replace(&mut ours.nodes.patterns, theirs.nodes.patterns.clone());
        replaced.push((std::mem::replace(&mut ours.command, theirs.command.clone()), patterns));
        if let (Some((_, launch)), Some((_, new))) = (&mut ours.nodes.kernel, &theirs.nodes.kernel) {
            launch.clone_from(new);
        }
    }
    recording.is_current = false;
    instance.retire(replaced);
}

/// Records the other's commands again, and replaces our graph and its instance.
fn instantiate_like(
    recording: &mut HipRecording,
    instance: &mut HipGraphInstance,
    other: &HipRecording,
) -> Result<()> {
    let mut again = other.record_again(recording.desc)?;
    instance.replace(again.instantiate()?);
    instance.retire(std::mem::replace(recording, again));
    Ok(())
}
