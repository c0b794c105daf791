//! What an update makes of each node, worked out without a lock, because kernels' bounds are code
//! of the user's.

use std::sync::Arc;

use crate::hal;
use crate::plan::Origin;
use crate::runtime::builder::command::{Command, accesses};
use crate::runtime::builder::control_flow::Control;
use crate::runtime::builder::memory_command::MemoryCommand;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::finalize::updatable::CurrentGraph;
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::update::step::{NodeChange, StagedOperands, UpdateStep};
use crate::types::{Access, CommandKind, Error, ErrorKind, Range, Result};

/// What becomes of one node.
pub(crate) struct Draft {
    pub(super) node: Origin,
    pub(super) kind: CommandKind,
    /// The command that this was worked out from; none for a node without one.
    pub(super) before: Option<Command>,
    /// The command, if it changes.
    pub(super) after: Option<Command>,
    /// Of a fill, copy, conditional or loop that changes.
    pub(super) accesses: Box<[Access]>,
    pub(super) enabled: Option<bool>,
    /// Of a conditional or loop that changes.
    pub(super) lowered: Option<Lowered>,
}

/// A new conditional or loop as its partition runs it.
pub(super) enum Lowered {
    Task(Arc<HostTask>),
    /// A device's command, and the one that it replaces.
    Command {
        new: Box<hal::Command>,
        old: Box<hal::Command>,
    },
}

impl Draft {
    pub(super) fn of(current: &CurrentGraph, node: Origin) -> Self {
        Self {
            node,
            kind: current.kind(node),
            before: current.command(node).cloned(),
            after: None,
            accesses: Box::default(),
            enabled: None,
            lowered: None,
        }
    }

    /// The conditional or loop that it is by now.
    pub(super) fn control(&self) -> Option<&Arc<Control>> {
        match self.after.as_ref().or(self.before.as_ref()) {
            Some(Command::Control(control)) => Some(control),
            _ => None,
        }
    }

    /// The new command with its accesses, if it changes.
    ///
    /// # Errors
    /// Those of a command that cannot run so.
    pub(super) fn checked(&self) -> Result<Option<(Command, Box<[Access]>)>> {
        let Some(after) = &self.after else { return Ok(None) };
        let accesses = match after {
            Command::Kernel { call, range, .. } => {
                let accesses = call.accesses()?;
                call.check_range(range)?;
                accesses.into()
            }
            Command::HostTask { accesses, .. } => (**accesses).into(),
            Command::Memory { .. } | Command::Control(_) | Command::Native { .. } => self.accesses.clone(),
        };
        Ok(Some((after.clone(), accesses)))
    }

    /// Whether the node still holds what this was worked out from.
    pub(super) fn is_current(&self, current: &CurrentGraph) -> bool {
        match (&self.before, current.command(self.node)) {
            (Some(before), Some(now)) => before.is(now),
            (before, now) => before.is_none() && now.is_none(),
        }
    }

    /// Adds one step, if the node has what it changes.
    pub(super) fn take(&mut self, step: &UpdateStep) -> Result<()> {
        match step {
            UpdateStep::Node(_, change) => self.change(change),
            UpdateStep::Param(param, value) => {
                self.replace(|command| command.with_param(param, value));
                Ok(())
            }
            UpdateStep::Choose(_, index) => {
                self.replace(|command| command.with_alternative(*index));
                Ok(())
            }
        }
    }

    fn change(&mut self, change: &NodeChange) -> Result<()> {
        match (change, &self.before) {
            (NodeChange::Launch(new), Some(Command::Kernel { call: own, alternatives, .. })) => {
                if !own.kernel.is(&new.kernel) && !alternatives.iter().any(|one| one.is(&new.kernel)) {
                    let name = new.kernel.name();
                    let why =
                        format!("kernel '{name}' is neither the node's own nor a registered alternative");
                    return Err(Error::new(ErrorKind::InvalidArgument, why)
                        .help("register it with `NodeBuilder::alternative` before the graph is finalized"));
                }
                self.with_kernel(|call, _, alternatives| {
                    *alternatives = with_own(alternatives, &call.kernel, &new.kernel);
                    *call = new.clone();
                });
            }
            (NodeChange::Range(new), Some(Command::Kernel { range: own, .. })) => {
                new.check()?;
                if new.dimensions() != own.dimensions() {
                    let (theirs, ours) = (new.dimensions(), own.dimensions());
                    let why = format!("the new {new} has {theirs} dimensions, the node's has {ours}");
                    return Err(Error::new(ErrorKind::InvalidArgument, why));
                }
                self.with_kernel(|_, range, _| *range = *new);
            }
            (NodeChange::Enabled(enabled), Some(command)) if command.can_be_disabled() => {
                self.enabled = Some(*enabled);
            }
            (NodeChange::HostTask(new), Some(Command::HostTask { .. })) => {
                let mut new = new.clone()?;
                let now = self.after.as_ref().or(self.before.as_ref());
                if let (Some(new), Some(now)) = (new.dynamic_mut(), now.and_then(Command::dynamic)) {
                    *new = Some(now.clone());
                }
                self.after = Some(new);
            }
            (NodeChange::Memory(new), Some(Command::Memory { command: old, .. })) => {
                let kind = old.kind();
                self.operands(kind, new)?;
            }
            (NodeChange::Staged(new), Some(Command::Memory { command: old, uses })) => {
                let (kind, new) = (old.kind(), new.half(old, uses)?);
                self.operands(kind, &new)?;
            }
            (NodeChange::Staged(_), _) => return Err(StagedOperands::unfit()),
            (NodeChange::Memory(MemoryCommand { command: Err(error), .. }), None) => {
                return Err(error.clone());
            }
            (NodeChange::Memory(_), _) => {
                return Err(self.unfit("only fills and copies have other operands than arguments"));
            }
            (NodeChange::HostTask(_), _) => return Err(self.unfit("only host tasks have a closure")),
            (NodeChange::Enabled(_), _) => {
                return Err(self.unfit("only kernels, fills and copies can be enabled and disabled"));
            }
            (NodeChange::Launch(_) | NodeChange::Range(_), _) => {
                return Err(self.unfit("only kernels have arguments and a range"));
            }
        }
        Ok(())
    }

    /// Gives a fill or copy of this kind other operands.
    fn operands(&mut self, own: CommandKind, new: &MemoryCommand) -> Result<()> {
        let command = new.command.clone()?;
        let kind = command.kind();
        if kind != own {
            let why = format!("the new operands are those of a {kind}, and the node is a {own}");
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("pass buffers and host buffers as the node has them"));
        }
        let mut views = new.uses.iter().map(|(view, _)| view.clone());
        let uses = [views.next(), views.next()];
        self.accesses = accesses(&new.uses).into();
        self.after = Some(Command::Memory { command: Arc::new(command), uses });
        Ok(())
    }

    /// Replaces the command by what `change` makes of it, if that is another one.
    fn replace(&mut self, change: impl FnOnce(&Command) -> Option<Command>) {
        let new = self.after.as_ref().or(self.before.as_ref()).and_then(change);
        self.after = new.or(self.after.take());
    }

    fn with_kernel(&mut self, change: impl FnOnce(&mut Arc<KernelCall>, &mut Range, &mut Arc<[KernelRef]>)) {
        if self.after.is_none() {
            self.after.clone_from(&self.before);
        }
        if let Some(Command::Kernel { call, range, alternatives, .. }) = &mut self.after {
            change(call, range, alternatives);
        }
    }

    fn unfit(&self, why: &str) -> Error {
        let error = Error::new(ErrorKind::InvalidArgument, format!("{why}, and the node is: {}", self.kind));
        match self.kind {
            CommandKind::SubGraph => error.help("name a node inside it, as in `node.within(sub_graph)`"),
            CommandKind::If | CommandKind::While => {
                error.help("name a node of its body, as in `node.within(conditional)`")
            }
            _ => error,
        }
    }
}

/// What may be in the place of `new` when it has replaced `old`.
fn with_own(alternatives: &Arc<[KernelRef]>, old: &KernelRef, new: &KernelRef) -> Arc<[KernelRef]> {
    if old.is(new) || alternatives.iter().any(|known| known.is(old)) {
        return alternatives.clone();
    }
    alternatives.iter().chain([old]).cloned().collect()
}
