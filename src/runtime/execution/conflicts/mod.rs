//! Order between whatever uses the same memory: executables that share buffers, and guards of host buffers.
//!
//! Each allocation has a [`Register`] of the executables that use it. Where two of them conflict, or a guard
//! conflicts with one, the allocation is [contested](Contested) for them: every submission records its run in
//! the register, and waits for the runs and guards in it that it conflicts with. An executable without
//! contested memory pays nothing: a submission finds an empty list under a lock that it holds anyway.
//!
//! A new run replaces the entries of those that it waits for, where its own accesses cover theirs. So a
//! register holds the last writer and the readers since of each range, however many executables there are.
//!
//! A guard replaces nothing, because it may be given up before its turn. But what comes after a guard that
//! conflicts with everything it does itself waits for that guard alone, and not for what the guard waits
//! for. A guard that is given up [passes on](crate::runtime::execution::run::Fence::passed_on) what it still
//! waits for.
//!
//! # Locks
//!
//! They are taken in this order:
//!
//! 1. the registers of a submission's contested memory, all of them, in the order of their
//!    resources; everything else takes one register at a time;
//! 2. the state of one executable.
//!
//! A submission holds its registers until its run has started. What finds the run there can therefore leave
//! the waiting to devices, and all submissions that share memory have one order.

#[cfg(all(test, wakegraph_loom))]
mod model;
mod register;
mod users;

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
pub(crate) use register::Register;
use smallvec::SmallVec;
use wakegraph_hal::{Access, AccessMode, Error, ErrorKind, Result};

use crate::runtime::execution::accesses::{Contested, MergedAccesses, UsedAllocation};
use crate::runtime::execution::executable::{ExecutableId, ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{FenceGuard, FenceHolder, Predecessor, Predecessors, Run};
use crate::runtime::resource::allocation::{Allocation, AllocationRegister, View};
use crate::util::attachment::Attachment;

impl Attachment for AllocationRegister {
    type Value = Mutex<Register>;
}

/// Takes a place in the order for a guard, which waits for its [turn](FenceGuard::turn).
pub(crate) fn acquire(view: &View, mode: AccessMode, holder: FenceHolder) -> FenceGuard {
    take_place(view, mode, holder, true)
}

/// Takes a place for a guard that has to wait for nothing. If there is something, no place is taken, and no
/// submission ever waits for the guard.
///
/// # Errors
/// [`InvalidOperation`](ErrorKind::InvalidOperation) if there is something to wait for, or the loss of a
/// device that may still use the memory.
pub(crate) fn try_acquire(view: &View, mode: AccessMode, holder: FenceHolder) -> Result<FenceGuard> {
    let lease = take_place(view, mode, holder, false);
    if let Some(loss) = lease.before().find_map(|one| one.given_up()) {
        return Err(loss);
    }
    if lease.before().next().is_some() {
        let why = "the host buffer is in use by a submission or a guard";
        return Err(Error::new(ErrorKind::InvalidOperation, why)
            .help("await `read()` or `write()` instead, or await the submission first"));
    }
    Ok(lease)
}

/// Records a guard. If there is something to wait for, records it only if it `may_wait`.
fn take_place(view: &View, mode: AccessMode, holder: FenceHolder, may_wait: bool) -> FenceGuard {
    let accesses = MergedAccesses::from(view.access(mode));
    let mut before = Vec::new();
    // Dropped after the locks: the last reference to an executable or to a run may be among them.
    let (mut others, mut ended) = (Vec::new(), Predecessors::new());
    let mut register = lock_register(&view.allocation);
    register.contest(&view.allocation, None, &accesses, &mut others);
    register.in_flight.take_ended(&mut ended);
    register.in_flight.before(None, &accesses, |one| before.push(one.awaited()));
    let mut lease = register.in_flight.fence(holder);
    if may_wait || before.is_empty() {
        // It supersedes nothing: a guard that is given up ends before what it waits for.
        register.in_flight.record(Predecessor::Fence(lease.fence().clone()), None, accesses.clone());
        register.linger();
    }
    drop(register);
    lease.set_before(accesses, before);
    lease
}

/// Records runs in the place of a guard: what comes from now on is ordered after them, and not
/// after the guard. What waits for the guard already goes on when it is given up.
pub(crate) fn hand_over(view: &View, mode: AccessMode, lease: &FenceGuard, runs: &[Arc<Run>]) {
    let accesses = MergedAccesses::from(view.access(mode));
    // Dropped after the lock.
    let mut replaced = Predecessors::new();
    let mut register = lock_register(&view.allocation);
    register.in_flight.take(lease.fence(), &mut replaced);
    for run in runs.iter().filter(|run| !run.has_freed_memory()) {
        register.in_flight.record(Predecessor::Run(run.clone()), None, accesses.clone());
    }
    drop(register);
}

/// A guard of this memory that is held or waits for its turn.
pub(crate) fn guard_of(allocation: &Allocation) -> Option<Predecessor> {
    lock_register(allocation).in_flight.guard().cloned()
}

/// Makes known which memory later runs of an executable use, and none of `before` beside it: the next
/// submission comes after guards and runs of others that conflict with these uses, and they after it. What
/// its runs in flight use stays on record until they have ended. The accesses of each allocation are
/// [merged](crate::runtime::execution::accesses::merged).
pub(crate) fn register(
    executable: &Arc<ExecutableInner>,
    before: &[Arc<Allocation>],
    mut uses: Vec<(Arc<Allocation>, Vec<Access>)>,
) {
    uses.sort_unstable_by_key(|(allocation, _)| allocation.memory().resource());
    let mut others = Vec::new();
    for allocation in before {
        let resource = allocation.memory().resource();
        if uses.binary_search_by_key(&resource, |(used, _)| used.memory().resource()).is_err() {
            lock_register(allocation).remove_user(allocation, executable);
        }
    }
    for (allocation, accesses) in uses {
        lock_register(&allocation).set_user(&allocation, executable, accesses, &mut others);
    }
}

/// The registers of the memory that has to be consulted for one submission, locked: of the contested
/// memory of an executable, or of all memory of a single command.
pub(crate) struct Order<'a> {
    /// The executable, or the in-order queue of the command.
    owner: Option<ExecutableId>,
    registers: SmallVec<[(MutexGuard<'a, Register>, &'a UsedAllocation); 4]>,
}

/// Locks the registers of an executable's contested memory, and its state. `None` if other memory is
/// contested by now.
pub(crate) fn lock<'a>(
    executable: &'a ExecutableInner,
    contested: &'a Contested,
) -> Option<(Order<'a>, MutexGuard<'a, ExecutableState>)> {
    let mut order = Order { owner: Some(executable.id), registers: SmallVec::new() };
    contested.all().iter().for_each(|one| order.registers.push((lock_register(&one.allocation), one)));
    let state = executable.state.lock();
    state.contested.is_same(contested).then_some((order, state))
}

/// Locks the registers of all memory that a single command uses, in the order of `uses`, which is that of
/// the resources. Executables that conflict with it come to these registers from now on; they are added to
/// `others`, which the caller drops after the locks.
pub(crate) fn lock_all<'a>(
    owner: Option<ExecutableId>,
    uses: &'a [UsedAllocation],
    others: &mut Vec<Arc<ExecutableInner>>,
) -> Order<'a> {
    let mut registers = SmallVec::new();
    for one in uses {
        let mut register = lock_register(&one.allocation);
        register.contest(&one.allocation, None, &one.accesses, others);
        registers.push((register, one));
    }
    Order { owner, registers }
}

impl Order<'_> {
    /// Adds what a new run has to wait for beside earlier runs of its owner, each once. Moves out what has
    /// ended.
    pub(crate) fn add_predecessors(&mut self, predecessors: &mut Predecessors, ended: &mut Predecessors) {
        let own = predecessors.len();
        for (register, one) in &mut self.registers {
            register.in_flight.take_ended(ended);
            register.in_flight.before(self.owner, &one.accesses, |earlier| {
                predecessors.push(earlier.predecessor_of(&one.accesses));
            });
        }
        if predecessors.len() > own + 1 {
            predecessors[own..].sort_unstable_by_key(Predecessor::address);
            predecessors.dedup_by_key(|one| one.address());
        }
    }

    /// Records the run of a single command, as [`record`](Self::record) does that of an executable.
    pub(crate) fn record_command(mut self, run: &Arc<Run>, superseded: &mut Predecessors) {
        for (register, one) in &mut self.registers {
            if !run.has_ended() {
                register.in_flight.take_superseded(self.owner, &one.accesses, superseded);
                register.in_flight.record(Predecessor::Run(run.clone()), self.owner, one.accesses.clone());
            }
        }
    }

    /// Records a run that has started or waits to be started. Moves out what need not be waited for beside
    /// it. One that has ended already may have been refused: nothing ends before such a run.
    pub(crate) fn record(
        mut self,
        state: &mut ExecutableState,
        run: &Arc<Run>,
        superseded: &mut Predecessors,
    ) {
        let Some(id) = self.owner else { return };
        for (register, one) in &mut self.registers {
            if !run.has_ended() {
                register.in_flight.take_superseded(Some(id), &one.accesses, superseded);
            }
            if register.is_contested(id, &one.accesses) || register.lingers() {
                if !run.has_ended() {
                    register.in_flight.record(Predecessor::Run(run.clone()), Some(id), one.accesses.clone());
                }
            } else {
                // The executable's state knows its last run, and shows it to what contests the memory next.
                register.release(id);
                state.contested.remove(&one.allocation);
            }
        }
    }
}

fn lock_register(allocation: &Allocation) -> MutexGuard<'_, Register> {
    #[cfg(test)]
    tests::LOCKED.set(tests::LOCKED.get() + 1);
    allocation.register.get_or_default().lock()
}

/// Number of registers that this thread has locked.
#[cfg(test)]
pub(crate) fn registers_locked() -> usize {
    tests::LOCKED.get()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

    use super::*;
    use crate::runtime::{Device, ExecutableGraph, Graph};

    thread_local! {
        /// Number of registers that this thread has locked.
        pub(super) static LOCKED: Cell<usize> = const { Cell::new(0) };
    }

    fn manual_device() -> (Device, FakeControl) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        (Device::from_hal(device), control)
    }

    /// A partition on each of two devices, the second behind the first.
    fn two_partitions(from: &Device, to: &Device) -> (ExecutableGraph, crate::Buffer<u32>) {
        let (x, y) = (from.buffer::<u32>(4).unwrap(), to.buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(from);
        graph.fill(&x, 1);
        graph.copy(&x, &y);
        let exec = graph.finalize().unwrap();
        assert_eq!(exec.inner.partitions.len(), 2);
        (exec, y)
    }

    fn fill(device: &Device, x: &crate::Buffer<u32>) -> ExecutableGraph {
        let mut graph = Graph::new(device);
        graph.fill(x, 1);
        graph.finalize().unwrap()
    }

    fn is_contested(exec: &ExecutableGraph) -> bool {
        !exec.inner.state.lock().contested.is_empty()
    }

    // A submission that finds a guard waits on the host, and outside tokio it cannot.
    #[test]
    fn a_refused_guard_is_not_recorded() {
        let (device, control) = manual_device();
        let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        graph.copy(&x, &host);
        let exec = graph.finalize().unwrap();
        let running = exec.submit();
        assert!(host.try_read().is_err() && host.try_write().is_err());
        assert!(!host.view().allocation.register.get_or_default().lock().has_guards());
        control.complete_all();
        while !running.is_finished() {
            std::thread::yield_now();
        }
        assert!(host.try_read().is_ok());
    }

    #[test]
    fn submissions_without_conflicts_lock_no_register() {
        let (a, b) = (Device::open("host:940").unwrap(), Device::open("host:941").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (exec, y) = two_partitions(&a, &b);
        let (_unrelated, _) = two_partitions(&a, &b);
        let locks_of = |exec: &ExecutableGraph| {
            let before = registers_locked();
            runtime.block_on(exec.submit()).unwrap();
            registers_locked() - before
        };
        assert_eq!((0..10).map(|_| locks_of(&exec)).sum::<usize>(), 0);
        let rival = fill(&b, &y);
        assert_eq!(locks_of(&exec), 1);
        drop(rival);
        locks_of(&exec);
        assert_eq!(locks_of(&exec), 0, "the other executable is gone");
    }

    #[test]
    fn a_submission_waits_for_the_last_writer_only() {
        let (device, control) = manual_device();
        let x = device.buffer::<u32>(4).unwrap();
        let execs: Vec<_> = (0..50).map(|_| fill(&device, &x)).collect();
        let submissions: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
        assert_eq!(x.view().allocation.register.get_or_default().lock().in_flight_count(), 1);
        assert_eq!(submissions[49].event().run().comes_after().len(), 1);
        control.complete_all();
        while !submissions.iter().all(crate::Submission::is_finished) {
            std::thread::yield_now();
        }
    }

    fn uses_visited() -> usize {
        register::tests::VISITED.get()
    }

    #[test]
    fn a_guard_waits_for_the_last_writer_and_the_readers_since() {
        const GUARDS: usize = if cfg!(miri) { 30 } else { 300 };
        let (device, _control) = manual_device();
        let host = device.host_buffer::<u32>(4).unwrap();
        let take = |mode| acquire(host.view(), mode, FenceHolder::Update);
        let before = uses_visited();
        let mut all: Vec<_> = (0..GUARDS).map(|_| take(AccessMode::ReadWrite)).collect();
        let counts =
            |guards: &[FenceGuard]| guards.iter().map(|one| one.before().count()).collect::<Vec<_>>();
        assert_eq!((counts(&all)[0], &counts(&all)[1..]), (0, &[1; GUARDS - 1][..]));
        let readers: Vec<_> = (0..GUARDS).map(|_| take(AccessMode::Read)).collect();
        assert_eq!(counts(&readers), [1; GUARDS]);
        all.extend(readers);
        let last = take(AccessMode::ReadWrite);
        assert_eq!(last.before().count(), GUARDS + 1);
        // As many as they wait for, and for the readers nothing beside.
        let visited = uses_visited() - before;
        assert!(visited < 4 * (2 * GUARDS + 1), "{visited}");
        // Submissions likewise.
        let mut graph = Graph::new(&device);
        graph.copy(&host, device.buffer::<u32>(4).unwrap());
        let exec = graph.finalize().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let before = uses_visited();
        let waiting: Vec<_> = (0..GUARDS).map(|_| exec.submit()).collect();
        let visited = uses_visited() - before;
        assert!(visited < 4 * GUARDS, "{visited}");
        drop((waiting, all, last));
    }

    #[test]
    fn readers_do_not_look_at_each_other() {
        const GUARDS: usize = if cfg!(miri) { 30 } else { 300 };
        let (device, _control) = manual_device();
        let host = device.host_buffer::<u32>(4).unwrap();
        let before = uses_visited();
        let all: Vec<_> = (0..GUARDS).map(|_| host.try_read().unwrap()).collect();
        let visited = uses_visited() - before;
        assert!(visited < 4 * GUARDS, "{visited}");
        drop(all);
    }

    #[test]
    fn commands_that_read_do_not_look_at_each_other() {
        const COMMANDS: usize = 300;
        let (device, _control) = manual_device();
        let x = device.buffer::<u32>(4).unwrap();
        let targets: Vec<_> = (0..COMMANDS).map(|_| device.buffer::<u32>(4).unwrap()).collect();
        let queue = device.out_of_order_queue().unwrap();
        let before = uses_visited();
        let all: Vec<_> = targets.iter().map(|target| queue.copy(&x, target)).collect();
        let visited = uses_visited() - before;
        assert!(visited < 8 * COMMANDS, "{visited}");
        drop(all);
    }

    #[test]
    fn executables_that_read_do_not_look_at_each_other() {
        const EXECUTABLES: usize = if cfg!(miri) { 50 } else { 300 };
        let (device, _control) = manual_device();
        let x = device.buffer::<u32>(4).unwrap();
        let before = users::tests::VISITED.get();
        let all: Vec<_> = (0..EXECUTABLES)
            .map(|_| {
                let mut graph = Graph::new(&device);
                graph.copy(&x, device.buffer::<u32>(4).unwrap());
                graph.finalize().unwrap()
            })
            .collect();
        drop(all);
        let visited = users::tests::VISITED.get() - before;
        assert!(visited < 8 * EXECUTABLES, "{visited}");
    }

    #[test]
    fn guards_that_were_given_up_are_dropped_in_a_loop() {
        const GUARDS: usize = if cfg!(miri) { 200 } else { 20_000 };
        let body = || {
            let (device, _control) = manual_device();
            let host = device.host_buffer::<u32>(4).unwrap();
            let held = host.try_write().unwrap();
            let mut all: Vec<_> = (0..GUARDS)
                .map(|_| acquire(host.view(), AccessMode::ReadWrite, FenceHolder::Update))
                .collect();
            let last = acquire(host.view(), AccessMode::Read, FenceHolder::Update);
            // Each passes on one that is given up later.
            while all.pop().is_some() {}
            assert_eq!(last.before().count(), 1);
            drop(held);
            assert_eq!(last.before().count(), 0);
        };
        std::thread::Builder::new().stack_size(256 << 10).spawn(body).unwrap().join().unwrap();
    }

    #[test]
    fn submissions_behind_a_guard_that_was_given_up_wait() {
        let (device, control) = manual_device();
        let host = device.host_buffer::<u32>(4).unwrap();
        let copies = [(); 2].map(|()| {
            let mut graph = Graph::new(&device);
            graph.copy(&host, device.buffer::<u32>(4).unwrap());
            graph.finalize().unwrap()
        });
        let runtimes = [(); 2].map(|()| tokio::runtime::Builder::new_current_thread().build().unwrap());
        let held = host.try_write().unwrap();
        let given_up = acquire(host.view(), AccessMode::ReadWrite, FenceHolder::Update);
        let submit = |at: usize| {
            let _inside = runtimes[at].enter();
            copies[at].submit()
        };
        let (waiting, abandoned) = (submit(0), submit(1));
        let [runtime, other] = runtimes;
        settle(&runtime);
        drop(other);
        drop(given_up);
        settle(&runtime);
        assert!(!abandoned.event().run().has_ended(), "it ends in its turn");
        assert!(!waiting.event().run().is_all_enqueued(), "it starts in its turn");
        drop(held);
        settle(&runtime);
        assert!(abandoned.event().run().has_ended());
        control.complete_all();
        runtime.block_on(waiting).unwrap();
    }

    /// Lets the tasks of the runtime go on as far as they can.
    fn settle(runtime: &tokio::runtime::Runtime) {
        runtime.block_on(async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        });
    }

    #[test]
    fn executables_that_are_gone_leave_the_register() {
        let (device, _control) = manual_device();
        let x = device.buffer::<u32>(4).unwrap();
        let kept = fill(&device, &x);
        (0..if cfg!(miri) { 50 } else { 1000 }).for_each(|_| drop(fill(&device, &x)));
        assert!(x.view().allocation.register.get_or_default().lock().user_count() < 20);
        assert!(is_contested(&kept), "it has not submitted since");
        let submitted = kept.submit();
        assert!(!is_contested(&kept));
        drop(submitted);
    }

    // The second executable sees what the first has submitted before the two knew each other.
    #[test]
    fn a_run_in_flight_is_recorded_when_its_memory_becomes_contested() {
        let (device, control) = manual_device();
        let x = device.buffer::<u32>(4).unwrap();
        let first = fill(&device, &x);
        let running = first.submit();
        let second = fill(&device, &x);
        let waiting = second.submit();
        assert_eq!(waiting.event().run().comes_after().len(), 1);
        control.complete_all();
        while !(running.is_finished() && waiting.is_finished()) {
            std::thread::yield_now();
        }
    }
}
