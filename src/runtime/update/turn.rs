//! The place of an update among the submissions.

use std::sync::Arc;

use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{Fence, FenceGuard, FenceHolder, Predecessor};
use crate::runtime::finalize::updatable::{Brings, CurrentGraph, Updatable};
use crate::runtime::resource::allocation::Allocation;

/// The place that an update which cannot be applied yet has among the submissions. Later
/// submissions wait for it, and the memory that the update may bring is registered as theirs.
/// Dropping it, when the update has been applied or given up, takes that memory out again and lets
/// them go on.
pub(super) struct Turn {
    /// There until the drop.
    lease: Option<FenceGuard>,
    fence: Arc<Fence>,
    pub(super) executable: Arc<ExecutableInner>,
}

impl Turn {
    /// Takes a turn behind all updates that wait. The caller registers the memory that is returned, which the
    /// update brings, and only then lets submissions [see](Self::hold_back) that they have to wait: each
    /// is ordered by what is registered when it is made.
    pub(super) fn take(
        executable: &Arc<ExecutableInner>,
        current: &mut CurrentGraph,
        brings: Brings,
    ) -> (Self, Vec<Arc<Allocation>>) {
        let lease = FenceGuard::new(FenceHolder::Update);
        let fence = lease.fence().clone();
        let new = current.waiting.push(fence.clone(), brings);
        (Self { lease: Some(lease), fence, executable: executable.clone() }, new)
    }

    /// Has later submissions wait. Returns the last run before the turn, if it has not ended.
    pub(super) fn hold_back(&self, state: &mut ExecutableState) -> Option<Predecessor> {
        state.fence = Some(self.fence.clone());
        state.last_in_flight().map(Predecessor::Run)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if let Ok(updatable) = Updatable::of(&self.executable) {
            let fences = updatable.lock().leave(&self.executable, lease);
            drop(fences);
        }
    }
}
