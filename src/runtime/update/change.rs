//! What an update changes.

use std::panic::Location;
use std::sync::Arc;

use crate::graph::NodePath;
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::builder::command_group::Group;
use crate::runtime::builder::memory_command::MemoryCommand;
use crate::runtime::builder::parameter::Parameter;
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph, Updatable};
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::kernel::{CallArg, KernelCall};
use crate::runtime::update::draft::{self, Draft};
use crate::runtime::update::replace::Recorded;
use crate::types::{AccessMode, Range, Result};

/// What to change.
pub(crate) enum Change {
    Nodes {
        steps: Vec<(Step, &'static Location<'static>)>,
        /// What the nodes become, worked out before any lock is taken.
        drafts: Vec<Draft>,
    },
    Whole(Box<Recorded>),
}

/// One thing that an update changes.
pub(crate) enum Step {
    Node(NodePath, NodeChange),
    /// A new value for a parameter.
    Param(Arc<Parameter>, CallArg),
    /// Another alternative of a group.
    Choose(Arc<Group>, usize),
}

/// What becomes of a node.
pub(crate) enum NodeChange {
    Launch(Arc<KernelCall>),
    Range(Range),
    Enabled(bool),
    /// Another closure, or why it is refused.
    HostTask(Result<Command>),
    /// Other operands of a fill or copy.
    Memory(MemoryCommand),
}

impl Change {
    pub(crate) fn nodes(steps: Vec<(Step, &'static Location<'static>)>) -> Self {
        Self::Nodes { steps, drafts: Vec::new() }
    }

    /// Works out what the nodes become. This calls code of the user's, so the caller holds no lock.
    pub(super) fn prepare(&mut self, updatable: &Updatable) -> Result<()> {
        if let Self::Nodes { steps, drafts } = self {
            *drafts = draft::drafts(updatable, steps)?;
        }
        Ok(())
    }

    /// Everything that the executable may use once the change is applied, and may not have used before.
    pub(super) fn brings(&self, updatable: &Updatable, current: &CurrentGraph) -> Accesses {
        match self {
            Self::Whole(recorded) => recorded.uses().accesses(),
            Self::Nodes { steps, .. } => {
                steps.iter().flat_map(|(step, _)| step.brings(updatable, current)).collect()
            }
        }
    }
}

impl Step {
    fn brings(&self, updatable: &Updatable, current: &CurrentGraph) -> Accesses {
        match self {
            Self::Node(_, NodeChange::Launch(call)) => call.accesses_with_allocations(),
            Self::Node(_, NodeChange::Range(_) | NodeChange::Enabled(_))
            | Self::Param(_, CallArg::Value(_)) => Vec::new(),
            Self::Node(_, NodeChange::HostTask(task)) => {
                task.as_ref().map(Command::accesses_with_allocations).unwrap_or_default()
            }
            Self::Node(_, NodeChange::Memory(memory)) => {
                let access =
                    |(view, mode): &(View, AccessMode)| (view.allocation().clone(), view.access(*mode));
                memory.uses.iter().map(access).collect()
            }
            Self::Choose(group, index) => {
                let members = updatable.members_of(group).unwrap_or_default().iter();
                let alternative =
                    |node: &Origin| current.command(*node)?.membership()?.alternatives.get(*index);
                members.filter_map(alternative).flat_map(Command::accesses_with_allocations).collect()
            }
            // The kernel that the node has by then may write what its present kernel reads.
            Self::Param(_, CallArg::Memory(operand)) => {
                vec![(operand.0.allocation().clone(), operand.0.access(AccessMode::ReadWrite))]
            }
        }
    }
}
