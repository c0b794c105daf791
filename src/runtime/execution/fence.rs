//! A guard's or an update's place in the order between submissions.

use std::mem;
use std::sync::{Arc, OnceLock};

use crate::runtime::completion::latch::Latch;
use crate::runtime::execution::conflicts::{Awaited, MergedAccesses, Predecessor, not_over};
use crate::types::Result;

/// Closed while a host guard waits for its turn or is held; submissions that conflict with it wait
/// for it to open.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) lifted: Latch,
    /// Set before the fence of a guard opens that is given up before its turn: what the guard still waited
    /// for. What waits for the guard waits for that from then on, as far as it conflicts with it.
    passed_on: OnceLock<Vec<Awaited>>,
}

impl Fence {
    fn new() -> Self {
        Self { lifted: Latch::new(), passed_on: OnceLock::new() }
    }

    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted.is_set()
    }

    /// What a guard that was given up waited for.
    pub(crate) fn passed_on(&self) -> &[Awaited] {
        self.passed_on.get().map_or(&[], Vec::as_slice)
    }
}

impl Drop for Fence {
    // The compiler's own drop would recurse once for each guard that was given up behind another one.
    fn drop(&mut self) {
        let mut pending = self.passed_on.take().unwrap_or_default();
        while let Some(one) = pending.pop() {
            if let Predecessor::Fence(fence) = one.by
                && let Some(mut fence) = Arc::into_inner(fence)
            {
                pending.append(&mut fence.passed_on.take().unwrap_or_default());
            }
        }
    }
}

/// Opens its fence when dropped.
#[derive(Debug)]
pub(crate) struct FenceGuard {
    fence: Arc<Fence>,
    /// What a guard waits for, until its turn has come.
    waits: Option<Box<GuardWaits>>,
}

#[derive(Debug)]
struct GuardWaits {
    /// What the guard does to the memory.
    accesses: MergedAccesses,
    before: Vec<Awaited>,
}

impl FenceGuard {
    pub(crate) fn new() -> Self {
        Self::of(Arc::new(Fence::new()))
    }

    fn of(fence: Arc<Fence>) -> Self {
        Self { fence, waits: None }
    }

    /// With the fence of a guard that is gone, unless something still refers to that.
    pub(crate) fn reuse(fence: Option<Arc<Fence>>) -> Self {
        let Some(mut fence) = fence else { return Self::new() };
        match Arc::get_mut(&mut fence) {
            Some(unused) => {
                *unused = Fence::new();
                Self::of(fence)
            }
            None => Self::new(),
        }
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// Sets what the guard has to wait for, and what it does to the memory.
    pub(crate) fn set_before(&mut self, accesses: MergedAccesses, before: Vec<Awaited>) {
        if !before.is_empty() {
            self.waits = Some(Box::new(GuardWaits { accesses, before }));
        }
    }

    /// What the guard has to wait for.
    pub(crate) fn before(&self) -> impl Iterator<Item = Predecessor> {
        let waits = self.waits.as_ref().map(|waits| (waits.before.clone(), waits.accesses.clone()));
        waits.into_iter().flat_map(|(before, accesses)| not_over(before, accesses)).map(|one| one.by)
    }

    /// Waits until everything before the guard has ended.
    ///
    /// # Errors
    /// If a device may still run some of it: the memory is never free again.
    ///
    /// # Cancel safety
    /// Cancel safe. A guard that is dropped before its turn passes on what it waits for.
    pub(crate) async fn turn(&mut self) -> Result<()> {
        while let Some(waits) = &mut self.waits {
            let Some(last) = waits.before.last().cloned() else {
                self.waits = None;
                break;
            };
            last.by.ended().await?;
            waits.before.pop();
            waits.before.extend(last.passed_on_to(&waits.accesses));
        }
        Ok(())
    }
}

impl Drop for FenceGuard {
    fn drop(&mut self) {
        if let Some(waits) = self.waits.take() {
            let GuardWaits { accesses, mut before } = *waits;
            before = not_over(mem::take(&mut before), accesses).collect();
            if !before.is_empty() {
                let _ = self.fence.passed_on.set(before);
            }
        }
        self.fence.lifted.set();
    }
}
