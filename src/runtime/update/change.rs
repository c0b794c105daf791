//! What an update changes.

use std::panic::Location;

use crate::graph::NodeId;
use crate::runtime::finalize::updatable::Accesses;
use crate::runtime::update::nodes::{self, NodeChange};
use crate::runtime::update::replace::Recorded;

/// What to change.
pub(crate) enum Change {
    Nodes(Vec<(NodeId, NodeChange, &'static Location<'static>)>),
    Whole(Box<Recorded>),
}

impl Change {
    /// Everything that the executable may use once the change is applied, and may not have used before.
    pub(super) fn brings(&self) -> Accesses {
        match self {
            Self::Whole(recorded) => recorded.uses().accesses(),
            Self::Nodes(changes) => {
                let calls = changes.iter().filter_map(|(_, change, _)| match change {
                    NodeChange::Launch(call) => Some(call),
                    NodeChange::Range(_) | NodeChange::Enabled(_) => None,
                });
                calls.flat_map(|call| nodes::brings(call)).collect()
            }
        }
    }
}
