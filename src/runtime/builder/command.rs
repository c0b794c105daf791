//! What the nodes of a user's graph hold.

use std::borrow::Cow;
use std::sync::Arc;

use crate::graph::Payload;
use crate::hal;
use crate::runtime::builder::binding::Binding;
use crate::runtime::builder::control_flow::Control;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::runtime::resource::scratch;
use crate::sync::{AtomicU32, AtomicU64};
use crate::types::{Access, CommandKinds, DeviceId, Error, ErrorKind, Range, Result};

/// A node's command: plain data and references, ready to be recorded for a device.
#[derive(Clone)]
pub(crate) enum Command {
    /// A kernel; loaded for its device at finalize.
    Kernel {
        call: Arc<KernelCall>,
        range: Range,
        /// What an update may put in the kernel's place.
        alternatives: Arc<[KernelRef]>,
        /// There if the node holds dynamic parameters.
        dynamic: Option<Arc<Dynamic>>,
    },
    /// A copy, fill or hint; the views' allocations come along so that they stay alive.
    Memory { command: Arc<hal::Command>, uses: [Option<View>; 2] },
    /// A conditional or a loop; its bodies are planned and recorded at finalize.
    Control(Arc<Control>),
    /// The user's own work on a device's stream, captured or, as a stream task, live.
    Native { command: Arc<hal::Command>, uses: Arc<[View]> },
    /// In a body, what an update has disabled: it does nothing, and keeps its memory and its place.
    Disabled(Arc<Self>),
    /// A closure of the host.
    HostTask {
        task: Arc<HostTask>,
        uses: Arc<[View]>,
        /// One for each of `uses`.
        accesses: Arc<[Access]>,
        /// There if the node runs an alternative of a command group.
        dynamic: Option<Arc<Dynamic>>,
    },
}

/// What of a node can be changed by other names than the node's own.
#[derive(Clone, Default)]
pub(crate) struct Dynamic {
    /// Of the kernel that the node launches.
    pub(crate) params: Vec<Binding>,
    pub(crate) group: Option<Membership>,
}

/// What a node with a group holds: its alternatives as they are by now. What an update has changed
/// in one stays with it.
#[derive(Clone)]
pub(crate) struct Membership {
    pub(crate) group: Arc<Group>,
    /// The one that the node's command is; its place in the list is out of date.
    pub(crate) active: usize,
    pub(crate) alternatives: Vec<Command>,
}

/// The alternatives of a command group.
pub(crate) struct Group {
    /// What the ids of its graph's nodes carry.
    pub(super) graph: u32,
    /// None if the group was refused.
    pub(super) alternatives: Box<[Command]>,
    pub(super) active: AtomicU32,
    /// Counts the changes of the graph's parameters and groups.
    pub(super) changes: Arc<AtomicU64>,
}

/// Tells groups apart while they live.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct GroupKey(pub(super) usize);

impl Command {
    pub(crate) fn dynamic(&self) -> Option<&Arc<Dynamic>> {
        match self {
            Self::Kernel { dynamic, .. } | Self::HostTask { dynamic, .. } => dynamic.as_ref(),
            Self::Memory { .. } | Self::Control(_) | Self::Native { .. } | Self::Disabled(_) => None,
        }
    }

    /// Where a command that can have something dynamic keeps it.
    pub(crate) fn dynamic_mut(&mut self) -> Option<&mut Option<Arc<Dynamic>>> {
        match self {
            Self::Kernel { dynamic, .. } | Self::HostTask { dynamic, .. } => Some(dynamic),
            Self::Memory { .. } | Self::Control(_) | Self::Native { .. } | Self::Disabled(_) => None,
        }
    }

    /// The accesses, if the command can run so.
    ///
    /// # Errors
    /// Those of a launch with these arguments.
    pub(crate) fn check(&self, scratch_owner: Option<&scratch::Owner>) -> Result<Vec<Access>> {
        scratch::check_owner(self.views(), scratch_owner)?;
        match self {
            Self::Kernel { call, range, .. } => {
                let accesses = call.accesses()?;
                call.check_range(range)?;
                Ok(accesses)
            }
            Self::HostTask { accesses, .. } => Ok(accesses.to_vec()),
            _ => Err(Error::new(ErrorKind::Bug, "a command whose accesses are not known")),
        }
    }

    /// The accesses with their allocations; none for a command that cannot run so.
    pub(crate) fn accesses_with_allocations(&self) -> Vec<(Arc<Allocation>, Access)> {
        match self {
            Self::Kernel { call, .. } => call.accesses_with_allocations(),
            Self::HostTask { uses, accesses, .. } => {
                uses.iter().map(View::allocation).cloned().zip(accesses.iter().copied()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Whether an update can disable it.
    pub(crate) fn can_be_disabled(&self) -> bool {
        match self {
            Self::Kernel { .. } => true,
            Self::Memory { command, .. } => command.can_be_disabled(),
            Self::Control(_) | Self::Native { .. } | Self::HostTask { .. } | Self::Disabled(_) => false,
        }
    }

    /// The command that a disabled one is while it is enabled.
    pub(crate) fn while_enabled(&self) -> &Self {
        match self {
            Self::Disabled(command) => command,
            _ => self,
        }
    }

    /// What it uses itself; a conditional's or a loop's bodies are left out.
    pub(crate) fn views(&self) -> Box<dyn Iterator<Item = &View> + '_> {
        match self {
            Self::Kernel { call, .. } => Box::new(call.views()),
            Self::Memory { uses, .. } => Box::new(uses.iter().flatten()),
            Self::Control(control) => Box::new(std::iter::once(&control.condition)),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => Box::new(uses.iter()),
            Self::Disabled(command) => command.views(),
        }
    }

    /// Everything it keeps alive.
    pub(crate) fn allocations(&self) -> Box<dyn Iterator<Item = &Arc<Allocation>> + '_> {
        match self {
            Self::Control(control) => Box::new(control.allocations.iter()),
            _ => Box::new(self.views().map(View::allocation)),
        }
    }
}

impl Payload for Command {
    fn describe(&self) -> Cow<'_, str> {
        match self {
            Self::Kernel { call, range, .. } => call.describe(range).into(),
            Self::Memory { command, .. } => format!("{command:?}").into(),
            Self::Control(control) => control.describe(),
            Self::Disabled(command) => format!("disabled: {}", command.describe()).into(),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => {
                format!("{} accesses", uses.len()).into()
            }
        }
    }

    fn needs_host(&self, device: DeviceId, supported: &dyn Fn(DeviceId) -> CommandKinds) -> bool {
        matches!(self, Self::Control(control) if control.needs_host(device, supported))
    }
}

/// The accesses of a list of views, all of one mode.
pub(crate) fn accesses(uses: &[(View, crate::types::AccessMode)]) -> Vec<Access> {
    uses.iter().map(|(view, mode)| view.access(*mode)).collect()
}
