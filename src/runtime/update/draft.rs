//! The result of an update for one node.

use std::sync::Arc;

use wakegraph_hal as hal;
use wakegraph_hal::{Access, CommandKind, Error, ErrorKind, KindPlace, Result};

use crate::plan::Origin;
use crate::runtime::builder::command::{Command, accesses};
use crate::runtime::builder::memory_command::MemoryCommand;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::finalize::updatable::CurrentGraph;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::update::step::{NodeChange, StagedOperands, Steps, UpdateStep};

/// Result of an update for one node.
pub(crate) struct Draft {
    pub(super) node: Origin,
    kind: CommandKind,
    /// The number of the call that the node's kernel gets, where nothing else changes. There is no `command`
    /// then: most updates change arguments only, and to copy the command would take longer.
    pub(super) call: Option<usize>,
    /// The command, as it is or as it will be; none for a node without one.
    pub(super) command: Option<Box<Command>>,
    /// Whether the command is another one than before.
    pub(super) is_changed: bool,
    /// New accesses. Those of kernels and host tasks are found when the draft is checked.
    pub(super) accesses: Option<Box<[Access]>>,
    pub(super) enabled: Option<bool>,
    /// Of a conditional or loop that changes.
    pub(super) lowered: Option<Box<Lowered>>,
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
            call: None,
            command: current.command(node).cloned().map(Box::new),
            is_changed: false,
            accesses: None,
            enabled: None,
            lowered: None,
        }
    }

    /// Of a node that one step names.
    pub(super) fn of_step(current: &CurrentGraph, node: Origin, steps: &Steps, step: usize) -> Self {
        if let UpdateStep::Node(_, NodeChange::Launch(number)) = steps.all[step].0
            && let Some(Command::Kernel { call, .. }) = current.command(node)
            && call.kernel.is(&steps.calls[number].kernel)
            && !current.index.is_in_body(node.instance)
        {
            return Self {
                node,
                kind: CommandKind::Kernel,
                call: Some(number),
                command: None,
                is_changed: false,
                accesses: None,
                enabled: None,
                lowered: None,
            };
        }
        Self::of(current, node)
    }

    /// Whether the node gets another command.
    pub(super) fn changes_command(&self) -> bool {
        self.is_changed || self.call.is_some()
    }

    /// The new command, if the draft has one.
    pub(super) fn changed(&self) -> Option<&Command> {
        self.command.as_deref().filter(|_| self.is_changed)
    }

    /// The memory that the node uses if its command changes.
    pub(super) fn allocations<'a>(
        &'a self,
        steps: &'a Steps,
    ) -> Box<dyn Iterator<Item = &'a Arc<Allocation>> + 'a> {
        match (self.call, self.changed()) {
            (Some(call), _) => Box::new(steps.calls[call].views().map(View::allocation)),
            (None, Some(command)) => Box::new(command.allocations()),
            (None, None) => Box::new(std::iter::empty()),
        }
    }

    /// The new command with its accesses, if it changes.
    ///
    /// # Errors
    /// Those of a command that cannot run so.
    pub(super) fn checked(&self) -> Result<Option<(Command, Box<[Access]>)>> {
        let Some(command) = self.changed() else { return Ok(None) };
        let accesses = match command {
            Command::Kernel { call, range, .. } => {
                let accesses = call.accesses()?;
                call.check_range(range)?;
                accesses.into()
            }
            Command::HostTask { accesses, .. } => (**accesses).into(),
            Command::Memory { .. } | Command::Control(_) | Command::Native { .. } | Command::Disabled(_) => {
                self.accesses.clone().unwrap_or_default()
            }
        };
        Ok(Some((command.clone(), accesses)))
    }

    /// Adds one step, if the node has what it changes.
    pub(super) fn take(&mut self, step: &UpdateStep, calls: &[KernelCall]) -> Result<()> {
        match step {
            UpdateStep::Node(_, change) => self.change(change, calls),
            UpdateStep::Param(param, value) => {
                match self.command.as_deref_mut() {
                    Some(Command::Kernel { call, dynamic: Some(dynamic), .. }) if dynamic.group.is_none() => {
                        if let Some(new) = dynamic.with_param(call, param, value) {
                            *call = Arc::new(new);
                            self.is_changed = true;
                        }
                    }
                    _ => self.replace(|command| command.with_param(param, value)),
                }
                Ok(())
            }
            UpdateStep::Choose(_, index) => {
                self.replace(|command| command.with_alternative(*index));
                Ok(())
            }
        }
    }

    fn change(&mut self, change: &NodeChange, calls: &[KernelCall]) -> Result<()> {
        match (change, self.command.as_deref_mut()) {
            (NodeChange::Launch(number), Some(Command::Kernel { call, alternatives, .. })) => {
                let new = &calls[*number];
                if !call.kernel.is(&new.kernel) {
                    if !alternatives.iter().any(|one| one.is(&new.kernel)) {
                        let name = new.kernel.name();
                        let why =
                            format!("kernel '{name}' is neither the node's own nor a registered alternative");
                        return Err(Error::new(ErrorKind::InvalidArgument, why).help(
                            "register it with `NodeBuilder::alternative` before the graph is finalized",
                        ));
                    }
                    add_alternative(alternatives, &call.kernel);
                }
                *call = Arc::new(new.clone());
                self.is_changed = true;
            }
            (NodeChange::Range(new), Some(Command::Kernel { range, .. })) => {
                new.check()?;
                if new.dimensions() != range.dimensions() {
                    let (theirs, ours) = (new.dimensions(), range.dimensions());
                    let why = format!("the new {new} has {theirs} dimensions, the node's has {ours}");
                    return Err(Error::new(ErrorKind::InvalidArgument, why));
                }
                *range = **new;
                self.is_changed = true;
            }
            (NodeChange::Enabled(enabled), Some(_)) if self.kind.row().can_be_disabled => {
                self.enabled = Some(*enabled);
            }
            (NodeChange::HostTask(new), Some(now @ Command::HostTask { .. })) => {
                let mut new = Command::clone(new.as_ref().as_ref().map_err(Clone::clone)?);
                if let (Some(new), Some(now)) = (new.dynamic_mut(), now.dynamic()) {
                    *new = Some(now.clone());
                }
                *now = new;
                self.is_changed = true;
            }
            (NodeChange::Memory(new), Some(Command::Memory { .. })) => self.operands(new)?,
            (NodeChange::Staged(new), Some(Command::Memory { uses, .. })) => {
                let new = new.half(self.kind, uses)?;
                self.operands(&new)?;
            }
            (NodeChange::Staged(_), _) => return Err(StagedOperands::unfit()),
            (NodeChange::Memory(new), None) if new.command.is_err() => {
                new.command.as_ref().map_err(Clone::clone)?;
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

    /// Gives a fill or copy other operands.
    fn operands(&mut self, new: &MemoryCommand) -> Result<()> {
        let command = new.command.clone()?;
        let (kind, own) = (new.kind, self.kind);
        if kind != own {
            let why = format!("the new operands are those of a {kind}, and the node is a {own}");
            return Err(Error::new(ErrorKind::InvalidArgument, why)
                .help("pass buffers and host buffers as the node has them"));
        }
        let mut views = new.uses.iter().map(|(view, _)| view.clone());
        let uses = [views.next(), views.next()];
        self.accesses = Some(accesses(&new.uses).into());
        self.replace(|_| Some(Command::Memory { command: Arc::new(command), uses }));
        Ok(())
    }

    /// Replaces the command by what `change` makes of it, if that is another one.
    fn replace(&mut self, change: impl FnOnce(&Command) -> Option<Command>) {
        if let Some(command) = &mut self.command
            && let Some(new) = change(command)
        {
            **command = new;
            self.is_changed = true;
        }
    }

    fn unfit(&self, why: &str) -> Error {
        let error = Error::new(ErrorKind::InvalidArgument, format!("{why}, and the node is: {}", self.kind));
        match self.kind.row().place {
            KindPlace::Inlined => error.help("name a node inside it, as in `node.within(sub_graph)`"),
            KindPlace::DeviceOrHost => {
                error.help("name a node of its body, as in `node.within(conditional)`")
            }
            _ => error,
        }
    }
}

/// Has an update choose the kernel that another one replaces.
fn add_alternative(alternatives: &mut Arc<[KernelRef]>, old: &KernelRef) {
    if !alternatives.iter().any(|known| known.is(old)) {
        *alternatives = alternatives.iter().chain([old]).cloned().collect();
    }
}
