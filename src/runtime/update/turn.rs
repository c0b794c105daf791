//! The place of an update among the submissions.

use std::sync::Arc;

use crate::runtime::execution::conflicts::Predecessor;
use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::fence::FenceGuard;
use crate::runtime::finalize::updatable::{Accesses, CurrentGraph, Updatable, WaitingUpdate};

/// The place that an update which cannot be applied yet has among the submissions. Later
/// submissions wait for it, and the memory that the update may bring is registered as theirs.
/// Dropping it, when the update has been applied or given up, takes that memory out again and lets
/// them go on.
pub(super) struct Turn {
    lease: FenceGuard,
    pub(super) executable: Arc<ExecutableInner>,
}

impl Turn {
    /// Takes a turn behind all updates that wait. The caller registers what the update brings, and
    /// only then lets submissions [see](Self::hold_back) that they have to wait: each is ordered by
    /// what is registered when it is made.
    pub(super) fn take(
        executable: &Arc<ExecutableInner>,
        current: &mut CurrentGraph,
        brings: Accesses,
    ) -> Self {
        let lease = FenceGuard::new();
        current.waiting.push(WaitingUpdate { fence: lease.fence().clone(), brings });
        Self { lease, executable: executable.clone() }
    }

    /// Has later submissions wait. Returns the last run before the turn, if it is not over.
    pub(super) fn hold_back(&self, state: &mut ExecutableState) -> Option<Predecessor> {
        state.fences.retain(|fence| !fence.is_lifted());
        state.fences.push(self.lease.fence().clone());
        state.last_unfinished().map(Predecessor::Run)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Ok(updatable) = Updatable::of(&self.executable) {
            updatable.lock().leave(&self.executable, self.lease.fence());
        }
    }
}
