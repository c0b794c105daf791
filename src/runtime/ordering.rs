//! Order between whatever uses the same memory: executables that share buffers, and guards of host buffers.
//!
//! Who conflicts with whom is found out when an executable is finalized or a guard is taken, and written into the
//! executables' states. A submission therefore pays only for conflicts that exist: with no rival and no gate it looks
//! at two empty lists under a lock that it holds anyway.
//!
//! Locks are taken in the order: the order lock, an allocation's users, one executable's state. A submission without
//! rivals takes the last one only, and whoever holds two states holds the order lock, so no cycle can arise.

use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, MutexGuard};

use super::allocation::{Allocation, View};
use super::executable::Shared;
use super::gate::{Gate, GateLease};
use super::latch::Latch;
use super::rivals;
use super::run::Run;
use crate::types::{Access, AccessMode};

static ORDER: Mutex<()> = Mutex::new(());

/// Serialises everything that decides an order between different executables or guards.
pub(crate) fn lock() -> MutexGuard<'static, ()> {
    #[cfg(test)]
    tests::LOCKED.set(tests::LOCKED.get() + 1);
    ORDER.lock()
}

/// How often this thread has taken the order lock.
#[cfg(test)]
pub(crate) fn locks_taken() -> usize {
    tests::LOCKED.get()
}

/// Something that has to be over before something else starts.
#[derive(Debug)]
pub(crate) enum Predecessor {
    Run(Arc<Run>),
    Gate(Arc<Gate>),
}

impl Predecessor {
    /// Waits until it is over, however it ended.
    pub(crate) async fn finished(&self) {
        self.latch().wait().await;
    }

    pub(crate) fn run(&self) -> Option<Arc<Run>> {
        match self {
            Self::Run(run) => Some(run.clone()),
            Self::Gate(_) => None,
        }
    }

    /// Set when it is over.
    pub(crate) fn latch(&self) -> &Latch {
        match self {
            Self::Run(run) => &run.done,
            Self::Gate(gate) => &gate.opened,
        }
    }
}

/// The executable, if anybody still holds it. If not, all its runs are over, and what they wrote can be seen.
pub(crate) fn alive(executable: &Weak<Shared>) -> Option<Arc<Shared>> {
    let alive = executable.upgrade();
    if alive.is_none() {
        // A run lets go of its executable when it is over, and letting go is a release; but an upgrade that fails is no
        // acquire by itself.
        fence(Ordering::Acquire);
    }
    alive
}

/// Takes a place in the order for a guard: returns its lease and what it has to wait for.
pub(crate) fn acquire(view: &View, mode: AccessMode) -> (GateLease, Vec<Predecessor>) {
    let lease = GateLease::new();
    let predecessors = take_place(view, mode, &lease, true);
    (lease, predecessors)
}

/// Takes a place for a guard that has to wait for nothing. If there is something, no place is taken, and nobody has seen
/// a gate.
pub(crate) fn try_acquire(view: &View, mode: AccessMode) -> Option<GateLease> {
    let lease = GateLease::new();
    take_place(view, mode, &lease, false).is_empty().then_some(lease)
}

/// Shows the gate to all that have to wait for it; gives what is before it. With something before it, only if it
/// `may_wait`.
fn take_place(view: &View, mode: AccessMode, lease: &GateLease, may_wait: bool) -> Vec<Predecessor> {
    let access = view.access(mode);
    let mut predecessors = Vec::new();
    // Dropped after the locks: the last reference to an executable may be among them.
    let mut executables = Vec::new();
    {
        let _order = lock();
        let mut users = view.allocation.users.lock();
        users.gates.retain(|(_, gate)| !gate.is_open());
        users.executables.retain(|(executable, accesses)| {
            let Some(executable) = alive(executable) else { return false };
            let conflicts = accesses.iter().any(|theirs| theirs.conflicts_with(&access));
            executables.push((executable, conflicts));
            true
        });
        // All at once: a submission of one of them is before the gate or finds it.
        let conflicting = executables.iter().filter(|(_, conflicts)| *conflicts);
        let mut states: Vec<_> = conflicting.map(|(executable, _)| executable.state.lock()).collect();
        predecessors.extend(states.iter().filter_map(|state| state.last_unfinished()).map(Predecessor::Run));
        users.stale.retain(|stale| !stale.run.is_done());
        let conflicting = users.stale.iter().filter(|stale| stale.access.conflicts_with(&access));
        predecessors.extend(conflicting.map(|stale| Predecessor::Run(stale.run.clone())));
        let conflicting = users.gates.iter().filter(|(theirs, _)| theirs.conflicts_with(&access));
        predecessors.extend(conflicting.map(|(_, gate)| Predecessor::Gate(gate.clone())));
        if may_wait || predecessors.is_empty() {
            for state in &mut states {
                state.gates.retain(|gate| !gate.is_open());
                state.gates.push(lease.gate().clone());
            }
            users.gates.push((access, lease.gate().clone()));
        }
    }
    predecessors
}

/// Makes a new executable known to the allocations it uses, and to its rivals.
pub(crate) fn register(
    executable: &Arc<Shared>,
    uses: impl IntoIterator<Item = (Arc<Allocation>, Vec<Access>)>,
) {
    let mut others = Vec::new();
    let order = lock();
    for (allocation, accesses) in uses {
        rivals::enter(executable, &allocation, accesses, &mut others);
    }
    drop(order);
    drop(others);
}

/// Whether two executables use one allocation in a conflicting way. Both lists are [`merged`].
pub(super) fn conflict(ours: &[Access], theirs: &[Access]) -> bool {
    let (mut a, mut b) = (0, 0);
    while let (Some(x), Some(y)) = (ours.get(a), theirs.get(b)) {
        if x.conflicts_with(y) {
            return true;
        }
        if x.end <= y.end { a += 1 } else { b += 1 }
    }
    false
}

/// The accesses of one executable to one allocation as disjoint ranges in ascending order, each either written or only
/// read: what conflicts are decided on, however many nodes there are.
pub(crate) fn merged(accesses: &[Access]) -> Vec<Access> {
    let Some(resource) = accesses.first().map(|access| access.resource) else { return Vec::new() };
    // Sweep over the boundaries, counting open reads and writes.
    let mut boundaries: Vec<(usize, i64, i64)> = Vec::with_capacity(2 * accesses.len());
    for access in accesses.iter().filter(|access| access.start < access.end) {
        let (reads, writes) = if access.mode.writes() { (0, 1) } else { (1, 0) };
        boundaries.push((access.start, reads, writes));
        boundaries.push((access.end, -reads, -writes));
    }
    boundaries.sort_unstable();
    let mut ranges: Vec<Access> = Vec::new();
    let (mut start, mut reads, mut writes) = (0, 0i64, 0i64);
    for (at, more_reads, more_writes) in boundaries {
        if at > start && (reads > 0 || writes > 0) {
            let mode = if writes > 0 { AccessMode::ReadWrite } else { AccessMode::Read };
            match ranges.last_mut() {
                Some(last) if last.end == start && last.mode == mode => last.end = at,
                _ => ranges.push(Access { resource, start, end: at, mode }),
            }
        }
        start = at;
        reads += more_reads;
        writes += more_writes;
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::null::NullOptions;
    use crate::runtime::{Device, ExecutableGraph, Graph};
    use crate::types::ResourceId;
    use proptest::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// How often this thread has taken the order lock.
        pub(super) static LOCKED: Cell<usize> = const { Cell::new(0) };
    }

    /// A partition on each of two devices, the second behind the first.
    fn two_partitions(from: &Device, to: &Device) -> (ExecutableGraph, crate::Buffer<u32>) {
        let (x, y) = (from.buffer::<u32>(4).unwrap(), to.buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(from);
        graph.fill(&x, 1);
        graph.copy(&x, &y);
        let exec = graph.finalize().unwrap();
        assert_eq!(exec.shared.partitions.len(), 2);
        (exec, y)
    }

    // A gate that is seen for a moment sends a submission, which may be outside tokio, to wait on the host.
    #[test]
    fn a_guard_that_is_refused_shows_no_gate() {
        let (device, control) = crate::backend::null::open(NullOptions::new().manual(true));
        let device = Device::from_hal(device);
        let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        graph.copy(&x, &host);
        let exec = graph.finalize().unwrap();
        let running = exec.submit();
        assert!(host.try_read().is_err() && host.try_write().is_err());
        assert!(exec.shared.state.lock().gates.is_empty());
        assert!(host.view().allocation.users.lock().gates.is_empty());
        control.complete_all();
        while !running.is_finished() {
            std::thread::yield_now();
        }
        assert!(host.try_read().is_ok());
    }

    #[test]
    fn submissions_without_rivals_do_not_take_the_order_lock() {
        let (a, b) = (Device::open("host:940").unwrap(), Device::open("host:941").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (exec, y) = two_partitions(&a, &b);
        let (_unrelated, _) = two_partitions(&a, &b);
        let locks_of = |exec: &ExecutableGraph| {
            let before = LOCKED.get();
            runtime.block_on(exec.submit()).unwrap();
            LOCKED.get() - before
        };
        assert_eq!((0..10).map(|_| locks_of(&exec)).sum::<usize>(), 0);
        let mut graph = Graph::new(&b);
        graph.fill(&y, 2);
        let rival = graph.finalize().unwrap();
        assert_eq!(locks_of(&exec), 1);
        drop((rival, graph));
        locks_of(&exec);
        assert_eq!(locks_of(&exec), 0, "the rival is gone");
    }

    fn accesses(resource: ResourceId) -> impl Strategy<Value = Vec<Access>> {
        let one = (0usize..40, 0usize..10, any::<bool>()).prop_map(move |(start, len, write)| Access {
            resource,
            start,
            end: start + len,
            mode: if write { AccessMode::Write } else { AccessMode::Read },
        });
        prop::collection::vec(one, 1..8)
    }

    proptest! {
        #[test]
        fn merging_keeps_exactly_the_conflicts(
            (ours, theirs) in Just(ResourceId::unique()).prop_flat_map(|r| (accesses(r), accesses(r)))
        ) {
            let pairwise = ours.iter().any(|x| theirs.iter().any(|y| x.conflicts_with(y)));
            prop_assert_eq!(conflict(&merged(&ours), &merged(&theirs)), pairwise);
        }

        #[test]
        fn merged_ranges_are_disjoint_and_ascending(ours in accesses(ResourceId::unique())) {
            let merged = merged(&ours);
            prop_assert!(merged.iter().all(|range| range.start < range.end));
            prop_assert!(merged.windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
