//! Steps of an update: a user's change of one node, parameter or command group.

use std::panic::Location;
use std::sync::{Arc, OnceLock};

use wakegraph_hal::{AccessMode, CommandKind, Error, ErrorKind, Range, Result};

use crate::graph::NodePath;
use crate::plan::Origin;
use crate::runtime::builder::binding::Parameter;
use crate::runtime::builder::command::{Command, Group};
use crate::runtime::builder::memory_command::{MemoryCommand, StagedCopy};
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph};
use crate::runtime::resource::allocation::View;
use crate::runtime::resource::host_buffer::HostBuffer;
use crate::runtime::resource::kernel::{CallArg, KernelCall};

/// Everything that an update changes.
#[derive(Default)]
pub(crate) struct Steps {
    /// The changes, with the places in the source that ask for them.
    pub(super) all: Vec<(UpdateStep, &'static Location<'static>)>,
    /// The new calls of kernels; once the update is applied, the old ones. They are adjacent, so that an
    /// update of many kernels allocates nothing for each of them.
    pub(super) calls: Vec<KernelCall>,
}

/// One thing that an update changes.
pub(crate) enum UpdateStep {
    Node(NodePath, NodeChange),
    /// A new value for a parameter.
    Param(Arc<Parameter>, CallArg),
    /// Another alternative of a group.
    Choose(Arc<Group>, usize),
}

/// Change of a node.
pub(crate) enum NodeChange {
    /// The number of the call in [`Steps::calls`].
    Launch(usize),
    Range(Box<Range>),
    Enabled(bool),
    /// Another closure, or why it is refused.
    HostTask(Box<Result<Command>>),
    /// Other operands of a fill or copy.
    Memory(Box<MemoryCommand>),
    /// Other operands of a copy through the host.
    Staged(Box<StagedOperands>),
}

/// The new operands of a copy through the host: a sub-graph of a read and a write.
pub(crate) struct StagedOperands {
    copy: StagedCopy,
    /// Staging memory for both halves, if what they have is too small.
    larger: OnceLock<View>,
}

impl StagedOperands {
    pub(crate) fn new(copy: StagedCopy) -> Self {
        Self { copy, larger: OnceLock::new() }
    }

    /// Returns the changed form of one of the halves, which has these operands.
    pub(super) fn half(&self, half: CommandKind, uses: &[Option<View>; 2]) -> Result<MemoryCommand> {
        let is_read = half == CommandKind::BufferRead;
        let [src, dst] = uses;
        let Some(now) = (if is_read { dst } else { src }) else { return Err(Self::unfit()) };
        let len = self.copy.src.len;
        let staging = match (self.larger.get(), now.len >= len) {
            (_, true) => View { len, ..now.clone() },
            (Some(larger), false) => larger.clone(),
            (None, false) => {
                let larger = HostBuffer::<u8>::allocate(self.copy.src.allocation.device(), len)?;
                self.larger.get_or_init(|| larger.view().clone()).clone()
            }
        };
        let [read, write] = self.copy.clone().halves(&staging);
        Ok(if is_read { read } else { write })
    }

    /// For nodes that do not copy through the host.
    pub(super) fn unfit() -> Error {
        let why = "the devices of the new operands cannot reach each other's memory, and the node copies \
                   between devices that can";
        Error::new(ErrorKind::FeatureNotSupported, why)
            .help("finalize a graph with this copy, which goes through the host")
    }

    fn accesses(&self) -> Accesses {
        let StagedCopy { src, dst, .. } = &self.copy;
        let access = |view: &View, mode| (view.allocation().clone(), view.access(mode));
        vec![access(src, AccessMode::Read), access(dst, AccessMode::Write)]
    }
}

impl UpdateStep {
    /// Whether it brings back what updates before it may have changed: memory that it does not name.
    pub(super) fn brings_back(&self) -> bool {
        matches!(self, Self::Choose(..))
    }

    /// Returns the accesses that become possible once this is applied, and may not have been before.
    pub(super) fn brings(&self, calls: &[KernelCall], current: &CurrentGraph) -> Accesses {
        match self {
            Self::Node(_, NodeChange::Launch(call)) => calls[*call].accesses_with_allocations(),
            // A disabled node keeps its memory.
            Self::Node(_, NodeChange::Range(_) | NodeChange::Enabled(_))
            | Self::Param(_, CallArg::Value(_)) => Vec::new(),
            Self::Node(_, NodeChange::HostTask(task)) => {
                let task = task.as_ref().as_ref();
                task.map(Command::accesses_with_allocations).unwrap_or_default()
            }
            Self::Node(_, NodeChange::Memory(memory)) => {
                let access =
                    |(view, mode): &(View, AccessMode)| (view.allocation().clone(), view.access(*mode));
                memory.uses.iter().map(access).collect()
            }
            Self::Node(_, NodeChange::Staged(operands)) => operands.accesses(),
            Self::Choose(group, index) => {
                let members = current.index.members_of(group).unwrap_or_default().iter();
                let alternative = |node: &Origin| {
                    let membership = current.command(*node)?.membership()?;
                    Some(match membership.active == *index {
                        true => current.uses_of(*node),
                        false => membership.alternatives.get(*index)?.accesses_with_allocations(),
                    })
                };
                members.filter_map(alternative).flatten().collect()
            }
            // The kernel that the node has by then may write what its present kernel reads.
            Self::Param(_, CallArg::Memory(operand)) => {
                vec![(operand.0.allocation().clone(), operand.0.access(AccessMode::ReadWrite))]
            }
        }
    }
}
