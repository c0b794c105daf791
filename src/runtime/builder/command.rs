//! What the nodes of a user's graph hold.

use std::borrow::Cow;
use std::sync::Arc;

use crate::graph::Payload;
use crate::hal;
use crate::runtime::builder::control_flow::Control;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::kernel::{KernelCall, KernelRef};
use crate::types::{Access, Range};

/// A node's command: plain data and references, ready to be recorded for a device.
#[derive(Clone)]
pub(crate) enum Command {
    /// A kernel; loaded for its device at finalize.
    Kernel {
        call: Arc<KernelCall>,
        range: Range,
        /// What an update may put in the kernel's place.
        alternatives: Arc<[KernelRef]>,
    },
    /// A copy, fill or hint; the views' allocations come along so that they stay alive.
    Memory { command: Arc<hal::Command>, uses: [Option<View>; 2] },
    /// A conditional or a loop; its bodies are recorded at finalize.
    Control(Arc<Control>),
    /// The user's own work on a device's stream.
    Native { command: Arc<hal::Command>, uses: Arc<[View]> },
    /// A closure of the host.
    HostTask { task: Arc<HostTask>, uses: Arc<[View]> },
}

impl Command {
    /// What it uses itself; a conditional's or a loop's bodies are left out.
    pub(crate) fn views(&self) -> Box<dyn Iterator<Item = &View> + '_> {
        match self {
            Self::Kernel { call, .. } => Box::new(call.views()),
            Self::Memory { uses, .. } => Box::new(uses.iter().flatten()),
            Self::Control(control) => Box::new(std::iter::once(&control.condition)),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => Box::new(uses.iter()),
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
            Self::Kernel { call, range, .. } => {
                format!("{}({} arguments) over {range}", call.kernel.name(), call.args.len()).into()
            }
            Self::Memory { command, .. } => format!("{command:?}").into(),
            Self::Control(control) => control.describe(),
            Self::Native { uses, .. } | Self::HostTask { uses, .. } => {
                format!("{} accesses", uses.len()).into()
            }
        }
    }
}

/// The accesses of a list of views, all of one mode.
pub(crate) fn accesses(uses: &[(View, crate::types::AccessMode)]) -> Vec<Access> {
    uses.iter().map(|(view, mode)| view.access(*mode)).collect()
}
