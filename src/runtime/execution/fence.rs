//! A guard's place in the order between submissions.

use std::sync::Arc;

use crate::runtime::completion::latch::Latch;

/// Closed while a host guard waits for its turn or is held; submissions that conflict with it wait
/// for it to open.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) lifted: Latch,
}

impl Fence {
    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted.is_set()
    }
}

/// Opens its fence when dropped.
#[derive(Debug)]
pub(crate) struct FenceGuard(Arc<Fence>);

impl FenceGuard {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Fence { lifted: Latch::new() }))
    }

    /// With the fence of a guard that is gone, unless something still refers to that.
    pub(crate) fn reuse(fence: Option<Arc<Fence>>) -> Self {
        let Some(mut fence) = fence else { return Self::new() };
        match Arc::get_mut(&mut fence) {
            Some(unused) => {
                unused.lifted = Latch::new();
                Self(fence)
            }
            None => Self::new(),
        }
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.0
    }
}

impl Drop for FenceGuard {
    fn drop(&mut self) {
        self.0.lifted.set();
    }
}
