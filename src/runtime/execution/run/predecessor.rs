//! The predecessors of runs, guards and updates: what each comes after.
//!
//! | type | what it is |
//! |---|---|
//! | [`Predecessor`] | something that a run, a guard or an update comes after |
//! | [`Fence`], [`FenceGuard`] | the place of a guard or an update in the order, and its owner |
//!
//! The registers of memory find out what a run comes after (`conflicts`).

use std::fmt::{self, Display};
use std::panic::Location;
use std::sync::{Arc, OnceLock, Weak};
use std::{iter, mem};

use smallvec::SmallVec;
use wakegraph_hal::{Access, Error, Result};

use crate::runtime::completion::latch::Latch;
use crate::runtime::execution::accesses::{MergedAccesses, conflict};
use crate::runtime::execution::run::Run;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::sync::{AtomicBool, Ordering};

/// Something that has to end before something else starts.
#[derive(Clone, Debug)]
pub(crate) enum Predecessor {
    Run(Arc<Run>),
    /// An update or, in the register of its memory, a guard.
    Fence(Arc<Fence>),
    Guard(Box<GuardAhead>),
}

pub(crate) type Predecessors = SmallVec<[Predecessor; 4]>;

impl Predecessor {
    /// Waits until it has ended, however it did.
    ///
    /// # Errors
    /// If a device may still run it: what it uses is never free again.
    pub(crate) async fn ended(&self) -> Result<()> {
        while let Some(first) = self.left(|one| !one.has_freed_memory()).next() {
            first.latch().wait().await;
            first.given_up().map_or(Ok(()), Err)?;
        }
        Ok(())
    }

    /// Whether it has ended. A device may still run a run that was given up.
    pub(crate) fn has_ended(&self) -> bool {
        self.unended().next().is_none()
    }

    /// All of it that has to be waited for: itself, or what a guard has passed on which was given up.
    pub(crate) fn unended(&self) -> impl Iterator<Item = Self> + use<> {
        self.left(|one| !one.latch().is_set())
    }

    fn left(&self, is_left: fn(&Self) -> bool) -> impl Iterator<Item = Self> + use<> {
        let (own, passed_on) = match self {
            Self::Guard(guard) => (None, Some(guard.left(is_left))),
            _ => (is_left(self).then(|| self.clone()), None),
        };
        own.into_iter().chain(passed_on.into_iter().flatten())
    }

    /// Whether it has ended, and what it uses is free.
    pub(crate) fn has_freed_memory(&self) -> bool {
        match self {
            Self::Run(run) => run.has_freed_memory(),
            Self::Fence(fence) => fence.is_lifted(),
            Self::Guard(_) => self.left(|one| !one.has_freed_memory()).next().is_none(),
        }
    }

    /// Why what it uses is never free again, if a device may still run it although it has ended.
    pub(crate) fn given_up(&self) -> Option<Error> {
        match self {
            Self::Run(run) => run.given_up(),
            Self::Fence(_) => None,
            Self::Guard(_) => self.left(|one| one.given_up().is_some()).next()?.given_up(),
        }
    }

    pub(crate) fn run(&self) -> Option<Arc<Run>> {
        match self {
            Self::Run(run) => Some(run.clone()),
            Self::Fence(_) | Self::Guard(_) => None,
        }
    }

    /// The fence of a guard, a loan or a transfer.
    pub(crate) fn guard(&self) -> Option<&Arc<Fence>> {
        match self {
            Self::Run(_) => None,
            Self::Fence(fence) => Some(fence).filter(|fence| fence.is_of_memory()),
            Self::Guard(guard) => Some(&guard.fence),
        }
    }

    /// Set when it has ended.
    pub(crate) fn latch(&self) -> &Latch {
        match self {
            Self::Run(run) => &run.ended,
            Self::Fence(fence) => &fence.lifted,
            Self::Guard(guard) => &guard.fence.lifted,
        }
    }

    pub(crate) fn address(&self) -> *const () {
        match self {
            Self::Run(run) => Arc::as_ptr(run).cast(),
            Self::Fence(fence) => Arc::as_ptr(fence).cast(),
            Self::Guard(guard) => Arc::as_ptr(&guard.fence).cast(),
        }
    }
}

/// A guard that has to end before something else starts, and what that does to the guard's memory.
#[derive(Clone, Debug)]
pub(crate) struct GuardAhead {
    pub(crate) fence: Arc<Fence>,
    pub(crate) accesses: MergedAccesses,
}

impl GuardAhead {
    fn left(&self, is_left: fn(&Predecessor) -> bool) -> impl Iterator<Item = Predecessor> + use<> {
        let Self { fence, accesses } = self;
        let guard = Awaited { by: Predecessor::Fence(fence.clone()), accesses: accesses.clone() };
        left(vec![guard], accesses.clone(), is_left).map(|one| one.by)
    }
}

/// A predecessor of a guard, and its accesses to the guard's memory.
#[derive(Clone, Debug)]
pub(crate) struct Awaited {
    pub(crate) by: Predecessor,
    pub(crate) accesses: MergedAccesses,
}

impl Awaited {
    /// If this is a guard that was given up: what has to be waited for in its place by what accesses the
    /// memory so.
    pub(crate) fn passed_on_to(&self, accesses: &[Access]) -> impl Iterator<Item = Self> {
        let all = match &self.by {
            Predecessor::Fence(fence) => fence.passed_on(),
            Predecessor::Run(_) | Predecessor::Guard(_) => &[],
        };
        all.iter().filter(move |one| conflict(&one.accesses, accesses)).cloned()
    }
}

/// Keeps the predecessors that have not ended. Replaces guards that were given up by what has to be waited
/// for instead by what accesses the memory so.
pub(crate) fn not_freed(all: Vec<Awaited>, accesses: MergedAccesses) -> impl Iterator<Item = Awaited> {
    left(all, accesses, |one| !one.has_freed_memory())
}

fn left(
    mut all: Vec<Awaited>,
    accesses: MergedAccesses,
    is_left: fn(&Predecessor) -> bool,
) -> impl Iterator<Item = Awaited> {
    iter::from_fn(move || {
        loop {
            let one = all.pop()?;
            if is_left(&one.by) {
                return Some(one);
            }
            all.extend(one.passed_on_to(&accesses));
        }
    })
}

/// The owner of a place in the order, as reports name it. It keeps no memory alive.
#[derive(Debug)]
pub(crate) enum FenceHolder {
    Update,
    /// A guard, a loan or a transfer, which a task of the user's gives up.
    Memory {
        kind: &'static str,
        allocation: Weak<Allocation>,
        /// Place where the user asked for it, if that is known.
        location: Option<&'static Location<'static>>,
    },
}

impl FenceHolder {
    /// The holder of a view; `kind` reads like "a `HostMut` of the host buffer".
    pub(crate) fn of(view: &View, kind: &'static str, location: Option<&'static Location<'static>>) -> Self {
        Self::Memory { kind, allocation: Arc::downgrade(&view.allocation), location }
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

    /// The predecessors of a guard that was given up.
    pub(crate) fn passed_on(&self) -> &[Awaited] {
        self.passed_on.get().map_or(&[], Vec::as_slice)
    }
}

impl Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FenceHolder::Memory { kind, allocation, location } = &self.holder else {
            return f.write_str("an update of its executable");
        };
        f.write_str(kind)?;
        if let Some(allocation) = allocation.upgrade() {
            write!(f, " {allocation:?}")?;
        }
        let waits = self.waits.load(Ordering::Relaxed);
        if let Some(location) = location {
            write!(f, ", {} at {location}", if waits { "requested" } else { "taken" })?;
        }
        f.write_str(if waits { ", which waits for its turn itself" } else { "" })
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
    /// The predecessors of a guard, until its turn has come.
    waits: Option<Box<GuardWaits>>,
}

#[derive(Debug)]
struct GuardWaits {
    /// The guard's accesses to the memory.
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

    /// The predecessors that the guard has to wait for.
    pub(crate) fn before(&self) -> impl Iterator<Item = Predecessor> {
        let waits = self.waits.as_ref().map(|waits| (waits.before.clone(), waits.accesses.clone()));
        waits.into_iter().flat_map(|(before, accesses)| not_freed(before, accesses)).map(|one| one.by)
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
            before = not_freed(mem::take(&mut before), accesses).collect();
            if !before.is_empty() {
                let _ = self.fence.passed_on.set(before);
            }
        }
        self.fence.lifted.set();
    }
}
