//! Updates of a finalized command-buffer.

use std::any::Any;
use std::sync::Arc;

use smallvec::SmallVec;

use super::command_buffer::{CudaCommandBuffer, invalid};
use super::error::foreign;
use super::instance::Replaced;
use super::launch::Launch;
use super::lower::lower_kernel;
use super::prompt::stays_on;
use super::sys::Failure;
use crate::hal::{Command, CommandChange, CommandUpdate, KernelArg, KernelLaunch};
use crate::types::Result;

/// What one command becomes.
struct Step {
    index: usize,
    launch: Option<(Box<KernelLaunch>, Launch)>,
    /// Where that changes.
    enabled: Option<bool>,
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
            steps.push(Step { index, launch, enabled });
        }
        for (done, step) in steps.iter().enumerate() {
            if let Err(failure) = self.set_step(step, Side::New) {
                for step in &steps[..=done] {
                    self.set_step(step, Side::Old).map_err(|failure| context.error(failure))?;
                }
                return Err(context.error(failure));
            }
        }
        let mut replaced = Replaced::default();
        for Step { index, launch, enabled } in steps {
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

    /// Lets the instance do what the new or the old version of a command says.
    fn set_step(&mut self, step: &Step, side: Side) -> Result<(), Failure> {
        let Some(instance) = &mut self.instance else { return Ok(()) };
        let recorded = &self.commands[step.index];
        let kernel = step.launch.as_ref().zip(recorded.kernel.as_ref()).map(|((_, new), (node, old))| {
            let launch = if side == Side::New { new } else { old };
            (*node, launch)
        });
        let enabled = step.enabled.map(|new| {
            let enabled = if side == Side::New { new } else { recorded.enabled };
            (&recorded.nodes[..], enabled)
        });
        instance.get_mut().set(kernel, enabled)
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
        // The other's graph has no tick. Record nodes would get events of the other's, which may be destroyed before they get
        // others.
        let ticks = self.instance.as_mut().is_some_and(|instance| instance.get_mut().ticks());
        let alike = other.as_recorded
            && !ticks
            && !self.desc.profiling
            && self.commands.iter().zip(&other.commands).all(|(ours, theirs)| {
                let same_nodes = ours.nodes.len() == theirs.nodes.len()
                    && ours.kernel.is_some() == theirs.kernel.is_some();
                same_nodes && ours.enabled && theirs.enabled && is_plain(&theirs.command)
            });
        if alike {
            let Some(instance) = &mut self.instance else { return Ok(()) };
            // The other's graph is this thread's alone meanwhile.
            let taken = instance.get_mut().exec().update(&mut other.graph.lock());
            if taken.map_err(|failure| context.error(failure))? {
                self.take_commands(other);
                return Ok(());
            }
        }
        let outcome = self.instantiate_like(other).map_err(|error| context.error(error));
        if outcome.is_err() && alike {
            self.restore();
        }
        outcome
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

    /// After an update in place that the driver refused, and that may have left traces: back to what the commands say.
    fn restore(&mut self) {
        let again = self.record_again();
        let Some(instance) = &mut self.instance else { return };
        let instance = instance.get_mut();
        let restored = again.and_then(|again| Ok(instance.exec().update(&mut again.graph.lock())?));
        match restored {
            Ok(true) => {}
            Ok(false) => {
                instance.set_broken(invalid("an update failed half-way, and could not be taken back"));
            }
            Err(error) => instance.set_broken(error),
        }
    }
}

/// Whether the driver compares what the command becomes by itself: bodies and captured work are recorded anew.
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
