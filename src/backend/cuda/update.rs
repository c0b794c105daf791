//! Updates of a finalized command-buffer.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::command_buffer::Recorded;
use super::command_buffer::{CudaCommandBuffer, invalid};
use super::error::foreign;
use super::graph::{Exec, Node, Op};
use super::instance::Replaced;
use super::launch::Launch;
use super::lower::{lower, lower_kernel};
use super::prompt::stays_on;
use super::shape::CopyShape;
use super::sys::Failure;
use crate::hal::{Command, CommandChange, CommandUpdate, KernelArg, KernelLaunch};
use crate::types::{Error, ErrorKind, Result};

/// What one command becomes.
struct Step {
    index: usize,
    launch: Option<(Box<KernelLaunch>, Launch)>,
    /// Where that changes.
    enabled: Option<bool>,
    /// The copies that are given anew when the command is switched on.
    copies: Vec<(Node, CopyShape, [bool; 2])>,
}

impl Step {
    /// Lets the instance do what the new or the old version of a command says.
    fn apply(&self, exec: &mut Exec, recorded: &Recorded, side: Side) -> Result<(), Failure> {
        let enabled = self.enabled.map(|new| if side == Side::New { new } else { recorded.enabled });
        if let Some(enabled) = enabled {
            recorded.nodes.iter().try_for_each(|node| exec.set_enabled(*node, enabled))?;
        }
        let is_switched_on = enabled == Some(true);
        if let Some((node, current)) = &recorded.kernel {
            match &self.launch {
                Some((_, new)) if side == Side::New => exec.set_kernel(*node, new)?,
                Some(_) => exec.set_kernel(*node, current)?,
                None if is_switched_on => exec.set_kernel(*node, current)?,
                None => {}
            }
        }
        if is_switched_on {
            self.copies
                .iter()
                .try_for_each(|(node, shape, foreign)| exec.set_copy(*node, shape, *foreign))?;
        }
        Ok(())
    }
}

impl CudaCommandBuffer {
    /// Changes nodes of the instance. What is in flight keeps its values.
    pub(super) fn update_commands(&mut self, updates: &[CommandUpdate]) -> Result<()> {
        if self.instance.is_none() {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        }
        let shared = Arc::clone(&self.shared);
        let context = &shared.context;
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        if let [update] = updates
            && let Some(outcome) = self.update_in_place(update)
        {
            return outcome;
        }
        // All are prepared before the driver gets the first: what is wrong shows here.
        let mut steps = SmallVec::<[Step; 1]>::with_capacity(updates.len());
        let current = |index: usize| self.commands.get(index).map(|recorded| &recorded.command);
        for CommandChange { index, launch, enabled } in CommandChange::of(updates, current)? {
            let lowered =
                launch.map(|launch| lower_kernel(&shared, &launch).map(|lowered| (launch, lowered)));
            let launch = lowered.transpose().map_err(|error| context.error(error))?;
            let enabled = enabled.filter(|enabled| *enabled != self.commands[index].enabled);
            let copies = match enabled {
                Some(_) => self.changed_copies(index).map_err(|error| context.error(error))?,
                None => Vec::new(),
            };
            steps.push(Step { index, launch, enabled, copies });
        }
        let Self { instance: Some(instance), commands, .. } = self else { return Ok(()) };
        let all = |exec: &mut Exec, side| {
            steps.iter().try_for_each(|step| step.apply(exec, &commands[step.index], side))
        };
        let changed =
            instance.get_mut().change(|exec| all(exec, Side::New), |exec| Ok(all(exec, Side::Old)?));
        changed.map_err(|error| context.error(error))?;
        let mut replaced = Replaced::default();
        for Step { index, launch, enabled, .. } in steps {
            let recorded = &mut self.commands[index];
            if let (Some((launch, lowered)), Some((_, current))) = (launch, &mut recorded.kernel) {
                let new = Command::Kernel(launch);
                let keeps_all = keeps_objects(&recorded.command, &new);
                let stays = stays_on(&shared, &new);
                self.outside += usize::from(!stays);
                self.outside -= usize::from(!recorded.stays);
                recorded.stays = stays;
                let old = std::mem::replace(&mut recorded.command, new);
                replaced.commands.extend((!keeps_all).then_some(old));
                *current = lowered;
                self.as_recorded = false;
            }
            if let Some(enabled) = enabled {
                recorded.enabled = enabled;
            }
        }
        if let Some(instance) = &mut self.instance {
            instance.get_mut().retire(replaced, context);
        }
        Ok(())
    }

    /// The copies of a command, if an update of the whole instance may have changed their
    /// parameters since it was made, and the driver can be given them one by one: parameters of
    /// other copies never change.
    fn changed_copies(&self, index: usize) -> Result<Vec<(Node, CopyShape, [bool; 2])>> {
        let recorded = &self.commands[index];
        if !self.is_behind || recorded.kernel.is_some() {
            return Ok(Vec::new());
        }
        let lowered = lower(&self.shared, &recorded.command, self.desc.updatable)?;
        let copies = recorded.nodes.iter().zip(lowered.ops).filter_map(|(node, op)| match op {
            Op::Copy(shape, foreign) if shape.height == 1 && shape.depth == 1 => {
                Some((*node, shape, foreign))
            }
            _ => None,
        });
        Ok(copies.collect())
    }

    /// Lets the driver compare the graphs, and instantiates anew where it refuses.
    pub(super) fn become_like(&mut self, other: &dyn Any) -> Result<()> {
        if self.instance.is_none() {
            return Err(invalid("a command-buffer can be updated only after finalize"));
        }
        let other = other.downcast_ref::<Self>().filter(|other| Arc::ptr_eq(&other.shared, &self.shared));
        let other = other.ok_or_else(|| foreign("command-buffer"))?;
        let shared = Arc::clone(&self.shared);
        let context = &shared.context;
        let _bound = context.bind().map_err(|failure| context.error(failure))?;
        // The other's graph has no tick. Record nodes would get events of the other's, which may be
        // destroyed before they get others.
        let in_place = self.instance.as_mut().is_some_and(|instance| {
            let instance = instance.get_mut();
            !instance.ticks() && !instance.is_broken()
        });
        let alike = other.as_recorded
            && in_place
            && !self.desc.profiling
            && self.commands.iter().zip(&other.commands).all(|(ours, theirs)| {
                let same_nodes = ours.nodes.len() == theirs.nodes.len()
                    && ours.kernel.is_some() == theirs.kernel.is_some();
                same_nodes && ours.enabled && theirs.enabled && is_plain(&theirs.command)
            });
        if alike {
            let Some(instance) = &mut self.instance else { return Ok(()) };
            // The other's graph is this thread's alone meanwhile.
            match instance.get_mut().exec().update(&mut other.graph.lock()) {
                Ok(true) => {
                    self.take_commands(other);
                    return Ok(());
                }
                Ok(false) => {}
                Err(failure) => {
                    let error = context.error(failure);
                    tracing::debug!(target: "wakegraph::cuda", %error, "an update in place failed");
                }
            }
        }
        let outcome = match self.instantiate_like(other) {
            Err(error) if alike => self.restore(error),
            outcome => outcome,
        };
        outcome.map_err(|error| context.error(error))
    }

    /// After an update in place that the driver refused, and that may have left traces: lets the
    /// instance do what the commands say, and gives the error of the update.
    fn restore(&mut self, error: Error) -> Result<()> {
        let again = self.record_again();
        let Some(instance) = &mut self.instance else { return Err(error) };
        let undo = |exec: &mut Exec| match exec.update(&mut again?.graph.lock())? {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Driver, "the driver refuses to take the update back")),
        };
        instance.get_mut().change(|_| Err(error), undo)
    }

    /// The instance does what the other's commands say: so do ours from now on, at their own nodes.
    fn take_commands(&mut self, other: &Self) {
        let mut replaced = Replaced::default();
        for (ours, theirs) in self.commands.iter_mut().zip(&other.commands) {
            replaced.commands.push(std::mem::replace(&mut ours.command, theirs.command.clone()));
            replaced.patterns.extend(std::mem::replace(&mut ours.patterns, theirs.patterns.clone()));
            if let (Some((_, launch)), Some((_, new))) = (&mut ours.kernel, &theirs.kernel) {
                launch.clone_from(new);
            }
            ours.stays = theirs.stays;
            self.is_behind |= ours.kernel.is_none() && !ours.nodes.is_empty();
        }
        self.as_recorded = false;
        self.count_outside();
        if let Some(instance) = &mut self.instance {
            instance.get_mut().retire(replaced, &self.shared.context);
        }
    }

    /// Records the other's commands once more, for an instance in the place of ours.
    fn instantiate_like(&mut self, other: &Self) -> Result<()> {
        let mut again = other.record_again()?;
        let exec = again.instantiate(None, &self.shared.service)?;
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let instance = instance.get_mut();
        instance.replace(exec, None, &self.shared.context)?;
        let mut replaced = Replaced::default();
        for recorded in std::mem::replace(&mut self.commands, std::mem::take(&mut again.commands)) {
            replaced.commands.push(recorded.command);
            replaced.patterns.extend(recorded.patterns);
        }
        instance.retire(replaced, &self.shared.context);
        std::mem::swap(&mut self.graph, &mut again.graph);
        std::mem::swap(&mut self.kernels, &mut again.kernels);
        std::mem::swap(&mut self.placeholder, &mut again.placeholder);
        (self.as_recorded, self.is_behind) = (true, false);
        self.count_outside();
        Ok(())
    }

    /// The same commands, enabled or not as they are, in a graph of their own.
    fn record_again(&self) -> Result<Self> {
        let mut again = Self::create(&self.shared, self.desc)?;
        for recorded in &self.commands {
            let after = again.ends_of(&recorded.after);
            let mut copy = again.add(&recorded.command, after)?;
            copy.after.clone_from(&recorded.after);
            copy.enabled = recorded.enabled;
            again.commands.push(copy);
        }
        Ok(again)
    }
}

/// Whether the driver compares what the command becomes by itself: bodies and captured work are
/// recorded anew.
fn is_plain(command: &Command) -> bool {
    !matches!(command, Command::Child(_) | Command::If { .. } | Command::While { .. } | Command::Native(_))
}

/// Whether the new launch has all kernels and memory of the old one: nothing of that has to be kept for it.
fn keeps_objects(old: &Command, new: &Command) -> bool {
    let (Command::Kernel(old), Command::Kernel(new)) = (old, new) else { return false };
    Arc::ptr_eq(&old.kernel, &new.kernel)
        && old.args.len() == new.args.len()
        && old.args.iter().zip(&new.args).all(|(old, new)| keeps_memory(old, new))
}

/// Whether the new argument has the memory of the old one, if that has any.
pub(super) fn keeps_memory(old: &KernelArg, new: &KernelArg) -> bool {
    match (old, new) {
        (KernelArg::Memory(old), KernelArg::Memory(new)) => Arc::ptr_eq(old.memory(), new.memory()),
        (KernelArg::Memory(_), _) => false,
        _ => true,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    New,
    Old,
}
