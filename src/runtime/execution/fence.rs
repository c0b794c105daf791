//! A guard's or an update's place in the order between submissions.

use std::fmt::{self, Display};
use std::mem;
use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};

use crate::runtime::completion::latch::Latch;
use crate::runtime::execution::conflicts::{Awaited, MergedAccesses, Predecessor, not_over};
use crate::runtime::resource::allocation::{Allocation, View};
use crate::sync::{AtomicBool, Ordering};
use crate::types::Result;

/// The owner of a place in the order, as reports name it. It keeps no memory alive.
#[derive(Debug)]
pub(crate) enum FenceHolder {
    Update,
    /// A guard, a loan or a transfer, which a task of the user's gives up.
    Memory {
        kind: &'static str,
        allocation: Weak<Allocation>,
        /// Where the user asked for it, if that is known.
        location: Option<&'static Location<'static>>,
    },
}

impl FenceHolder {
    /// The holder of a view; `kind` reads like "a guard of the host buffer".
    pub(crate) fn of(view: &View, kind: &'static str, location: Option<&'static Location<'static>>) -> Self {
        Self::Memory { kind, allocation: Arc::downgrade(&view.allocation), location }
    }
}

impl Display for FenceHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Memory { kind, allocation, location } = self else {
            return f.write_str("an update of its executable");
        };
        f.write_str(kind)?;
        if let Some(allocation) = allocation.upgrade() {
            write!(f, " {allocation:?}")?;
        }
        location.map_or(Ok(()), |location| write!(f, ", requested at {location}"))
    }
}

/// Closed while a host guard waits for its turn or is held; submissions that conflict with it wait
/// for it to open.
#[derive(Debug)]
pub(crate) struct Fence {
    pub(crate) lifted: Latch,
    /// Set before the fence of a guard opens that is given up before its turn: what the guard still waited
    /// for. What waits for the guard waits for that from then on, as far as it conflicts with it.
    passed_on: OnceLock<Vec<Awaited>>,
    holder: FenceHolder,
    /// Whether its guard has to wait itself.
    waits: AtomicBool,
}

impl Fence {
    fn new(holder: FenceHolder) -> Self {
        Self { lifted: Latch::new(), passed_on: OnceLock::new(), holder, waits: AtomicBool::new(false) }
    }

    /// Whether a task of the user's gives it up: a guard, a loan or a transfer.
    pub(crate) fn is_of_memory(&self) -> bool {
        matches!(self.holder, FenceHolder::Memory { .. })
    }

    pub(crate) fn is_lifted(&self) -> bool {
        self.lifted.is_set()
    }

    /// What a guard that was given up waited for.
    pub(crate) fn passed_on(&self) -> &[Awaited] {
        self.passed_on.get().map_or(&[], Vec::as_slice)
    }
}

impl Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.holder.fmt(f)?;
        match self.waits.load(Ordering::Relaxed) {
            true => f.write_str(", which waits for its turn itself"),
            false => Ok(()),
        }
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
    pub(crate) fn new(holder: FenceHolder) -> Self {
        Self::of(Arc::new(Fence::new(holder)))
    }

    fn of(fence: Arc<Fence>) -> Self {
        Self { fence, waits: None }
    }

    /// With the fence of a guard that is gone, unless something still refers to that.
    pub(crate) fn reuse(fence: Option<Arc<Fence>>, holder: FenceHolder) -> Self {
        let Some(mut fence) = fence else { return Self::new(holder) };
        match Arc::get_mut(&mut fence) {
            Some(unused) => {
                *unused = Fence::new(holder);
                Self::of(fence)
            }
            None => Self::new(holder),
        }
    }

    pub(crate) fn fence(&self) -> &Arc<Fence> {
        &self.fence
    }

    /// Sets what the guard has to wait for, and what it does to the memory.
    pub(crate) fn set_before(&mut self, accesses: MergedAccesses, before: Vec<Awaited>) {
        if !before.is_empty() {
            self.fence.waits.store(true, Ordering::Relaxed);
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
                self.fence.waits.store(false, Ordering::Relaxed);
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
