//! The changes of an update, with the result for each node.

use std::collections::HashSet;

use wakegraph_hal::Result;

use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::finalize::updatable::{Accesses, Brings, CurrentGraph, Updatable};
use crate::runtime::update::drafts::{self, Drafts};
use crate::runtime::update::replace::Recorded;
use crate::runtime::update::step::{Steps, UpdateStep};

/// Change that an update makes.
pub(crate) enum Change {
    Nodes {
        steps: Box<Steps>,
        /// Results for the nodes, worked out before any lock is taken.
        drafts: Drafts,
    },
    Whole(Box<Recorded>),
}

impl Change {
    pub(crate) fn nodes(steps: Box<Steps>) -> Self {
        Self::Nodes { steps, drafts: Drafts::default() }
    }

    /// Works out what the nodes become. This calls code of the user's, so the caller holds no lock.
    pub(super) fn prepare(&mut self, executable: &ExecutableInner, updatable: &Updatable) -> Result<()> {
        if let Self::Nodes { steps, drafts } = self {
            *drafts = drafts::drafts(executable, updatable, steps)?;
        }
        Ok(())
    }

    /// Everything that the executable may use once the change is applied, and may not have used
    /// before.
    pub(super) fn brings(&self, current: &CurrentGraph) -> Brings {
        let (mut accesses, from_earlier): (Accesses, bool) = match self {
            Self::Whole(recorded) => (recorded.uses().accesses(), false),
            Self::Nodes { steps, .. } => {
                let Steps { all: steps, calls } = &**steps;
                let mut steps = steps.iter().map(|(step, _)| step);
                let accesses = steps.clone().flat_map(|step| step.brings(calls, current)).collect();
                (accesses, steps.any(UpdateStep::brings_back))
            }
        };
        let mut seen = HashSet::new();
        accesses.retain(|(_, access)| seen.insert(*access));
        Brings { accesses, from_earlier }
    }
}
