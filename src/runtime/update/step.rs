//! What a user says about one node, parameter or command group.

use std::sync::Arc;

use crate::graph::NodePath;
use crate::plan::Origin;
use crate::runtime::builder::binding::Parameter;
use crate::runtime::builder::command::{Command, Group};
use crate::runtime::builder::memory_command::MemoryCommand;
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph};
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::kernel::{CallArg, KernelCall};
use crate::types::{AccessMode, Range, Result};

/// One thing that an update changes.
pub(crate) enum UpdateStep {
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

impl UpdateStep {
    /// What the executable may use once this is applied, and may not have used before.
    pub(super) fn brings(&self, current: &CurrentGraph) -> Accesses {
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
                let members = current.index.members_of(group).unwrap_or_default().iter();
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
