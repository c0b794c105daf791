//! The turn of a run, which begins when everything that it comes after has ended.
//!
//! A run that succeeds has been run in its turn by its devices. One that fails may fail before that: with
//! what it depends on, when a device is lost, when a driver refuses it, when it is cancelled. It ends only
//! when all that it comes after has ended, because code that sees it ended uses the memory of everything
//! before it. No thread and no task awaits that: the run that ends last wakes the end of this one.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::{mem, ptr};

use smallvec::SmallVec;

use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::completion::tasks::wake_or_defer;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::run::predecessor::{Fence, Predecessor, Predecessors};
use crate::sync::{Mutex, Ordering, thread_local};
use crate::util::panics::catch_and_log;

impl Run {
    /// The run may fail before its turn, which is after all of `earlier`. Called before it starts.
    pub(crate) fn set_comes_after(self: &Arc<Self>, earlier: Predecessors) {
        if earlier.is_empty() {
            return;
        }
        let mut inner = self.inner.lock();
        let until_end = &mut inner.extras.get_or_make().until_end;
        (until_end.comes_after, until_end.this) = (earlier, Some(self.clone()));
        drop(inner);
        self.progress.keeps_order.store(true, Ordering::Release);
    }

    /// Everything that the run comes after has ended, and it starts only now.
    pub(crate) fn set_in_turn(&self) {
        let taken = self.inner.lock().extras.if_made(|extras| {
            let until_end = &mut extras.until_end;
            (mem::take(&mut until_end.comes_after), until_end.guard.take(), until_end.this.take())
        });
        drop(taken);
        self.progress.keeps_order.store(false, Ordering::Release);
    }

    /// Notes a guard that the run comes after, itself or behind others, so that what gives the run up early
    /// need not check all of these. Called before it starts, by what has it wait on the host: only such
    /// a run comes after a guard. Returns whether this one does.
    pub(crate) fn note_guard(&self) -> bool {
        let guard = self.comes_after().iter().find_map(|earlier| match earlier {
            Predecessor::Run(run) => run.noted_guard(),
            _ => earlier.guard().cloned(),
        });
        let is_behind_guard = guard.is_some();
        if is_behind_guard {
            self.inner.lock().extras.get_or_make().until_end.guard = guard;
        }
        is_behind_guard
    }

    /// The guard, whether or not it has been dropped.
    pub(crate) fn noted_guard(&self) -> Option<Arc<Fence>> {
        self.extra(|extras| extras.until_end.guard.clone())
    }

    /// Whether the run comes after a guard, itself or behind others, and the guard has not been dropped:
    /// only a task of the user's can end that, maybe the one that awaits this run.
    ///
    /// A run that does not come after a guard any more never will again. What a search finds is noted in all
    /// runs that it has visited, so that thousands in a row do not each visit all before them.
    pub(crate) fn is_behind_guard(self: &Arc<Self>) -> bool {
        match self.noted_guard() {
            None => return false,
            Some(guard) if !guard.is_lifted() => return true,
            Some(_) => {}
        }
        // Runs whose guard has been dropped, each with the place of the one that comes after it.
        let (mut visited, mut seen, mut at) = (vec![(self.clone(), 0)], HashSet::new(), 0);
        while let Some((run, _)) = visited.get(at) {
            #[cfg(test)]
            VISITED.set(VISITED.get() + 1);
            let mut found = None;
            for next in run.comes_after().iter().flat_map(Predecessor::unended) {
                if !seen.insert(next.address()) {
                    continue;
                }
                let guard = next.guard().cloned().or_else(|| next.run()?.noted_guard());
                match (guard, next) {
                    (Some(guard), Predecessor::Run(run)) if guard.is_lifted() => visited.push((run, at)),
                    (guard, _) => found = found.or(guard),
                }
            }
            if found.is_some() {
                loop {
                    visited[at].0.change_noted_guard(found.clone());
                    if at == 0 {
                        return true;
                    }
                    at = visited[at].1;
                }
            }
            at += 1;
        }
        visited.iter().for_each(|(run, _)| run.change_noted_guard(None));
        false
    }

    /// Changes the guard that was noted, unless the run has ended, or has been found to come after none.
    fn change_noted_guard(&self, guard: Option<Arc<Fence>>) {
        let before = self.inner.lock().extras.if_made(|extras| {
            let noted = &mut extras.until_end.guard;
            noted.is_some().then(|| mem::replace(noted, guard))
        });
        // Not under the lock: the last reference to other runs may be in it.
        drop(before);
    }

    /// Whether it has failed before its turn, and a guard keeps it from ending.
    pub(crate) fn has_failed_behind_guard(self: &Arc<Self>) -> bool {
        self.awaits_turn() && self.is_behind_guard()
    }

    /// The predecessors of the run, until it has ended.
    pub(crate) fn comes_after(&self) -> Predecessors {
        self.extra(|extras| extras.until_end.comes_after.clone())
    }

    /// The runs that it comes after and that use devices which it does not use.
    fn comes_after_elsewhere(&self) -> SmallVec<[Arc<Self>; 4]> {
        if !self.keeps_order() {
            return SmallVec::new();
        }
        self.extra(|extras| {
            let runs = extras.until_end.comes_after.iter().filter_map(Predecessor::run);
            runs.filter(|run| !self.uses_devices_of(run)).collect()
        })
    }

    /// Whether its devices wait themselves for all that an earlier run does.
    fn covers(&self, earlier: &Self) -> bool {
        let is_it = |one: &Predecessor| matches!(one, Predecessor::Run(run) if ptr::eq(&**run, earlier));
        self.uses_devices_of(earlier) && self.extra(|extras| extras.until_end.comes_after.iter().any(is_it))
    }

    fn uses_devices_of(&self, other: &Self) -> bool {
        other.devices.iter().all(|device| self.devices.contains(device))
    }

    /// Whether it may fail before its turn. What devices order behind such a run may fail with it.
    pub(crate) fn keeps_order(&self) -> bool {
        self.progress.keeps_order.load(Ordering::Acquire)
    }

    /// Whether it has failed before its turn.
    pub(crate) fn awaits_turn(&self) -> bool {
        self.progress.awaits_turn.load(Ordering::Acquire) && !self.has_ended()
    }

    /// Whether all that a run comes after has ended, of which all partitions have ended. If it has not, the
    /// run ends with the last of it.
    pub(super) fn is_in_turn(&self) -> bool {
        let (this, earlier) =
            self.extra(|extras| (extras.until_end.this.clone(), extras.until_end.comes_after.clone()));
        let Some(run) = this.filter(|_| !earlier.iter().all(Predecessor::has_ended)) else { return true };
        if !self.progress.awaits_turn.swap(true, Ordering::AcqRel) {
            let turn = AwaitedTurn { run, earlier: Mutex::new(earlier) };
            // The caller may hold locks.
            wake_or_defer(Waker::from(Arc::new(turn)));
        }
        false
    }
}

/// Replaces runs that have failed before their turn by what they still come after. Their events tell nothing
/// of that.
pub(crate) fn without_failed(order: Predecessors) -> Predecessors {
    let failed = |one: &Predecessor| matches!(one, Predecessor::Run(run) if run.awaits_turn());
    if !order.iter().any(failed) {
        return order;
    }
    let (mut waiting, mut seen) = (Predecessors::new(), HashSet::new());
    let mut stack = order;
    while let Some(next) = stack.pop() {
        if next.has_freed_memory() || !seen.insert(next.address()) {
            continue;
        }
        match &next {
            Predecessor::Run(run) if run.awaits_turn() => stack.extend(run.comes_after()),
            _ => waiting.push(next),
        }
    }
    waiting
}

/// These, and what they come after on devices that they do not use. If a device of theirs is lost, their
/// events there fail at once, and what waits for them alone would start before that has ended.
///
/// What they come after on their own devices need not be waited for: each of their devices waits for it
/// itself, and a device that is lost is through with it as well. So there is one run for each device, where
/// each comes after the one before.
pub(crate) fn with_other_devices(mut order: Predecessors) -> Predecessors {
    for at in 0..order.len() {
        let Predecessor::Run(run) = &order[at] else { continue };
        for one in run.comes_after_elsewhere() {
            let is_awaited = |other: &Predecessor| matches!(other, Predecessor::Run(run) if Arc::ptr_eq(run, &one) || run.covers(&one));
            if !order.iter().any(is_awaited) {
                order.push(Predecessor::Run(one));
            }
        }
    }
    order
}

/// The predecessors that a failed run still waits for.
struct AwaitedTurn {
    run: Arc<Run>,
    earlier: Mutex<Predecessors>,
}

#[cfg(test)]
std::thread_local! {
    static VISITED: Cell<usize> = const { Cell::new(0) };
}

/// Number of runs that this thread has examined in search of a guard.
#[cfg(test)]
pub(crate) fn runs_visited() -> usize {
    VISITED.get()
}

thread_local! {
    // The end of one run may be what the next waits for. A queue instead of nested calls: there may
    // be thousands.
    static TURN: (RefCell<VecDeque<Arc<AwaitedTurn>>>, Cell<bool>) =
        const { (RefCell::new(VecDeque::new()), Cell::new(false)) };
}

impl Wake for AwaitedTurn {
    fn wake(self: Arc<Self>) {
        let turn = self.clone();
        let queued = TURN.try_with(|(queue, busy)| {
            queue.borrow_mut().push_back(turn);
            if busy.replace(true) {
                return;
            }
            while let Some(next) = { queue.borrow_mut().pop_front() } {
                // Ending a run wakes others; a waker that panics must not leave the queue busy for ever.
                catch_and_log("a waker", || next.check());
            }
            busy.set(false);
        });
        if queued.is_err() {
            // The thread is ending and has no queue any more.
            self.check();
        }
    }
}

impl AwaitedTurn {
    /// Ends the run if nothing is left to wait for; else the next to end checks again.
    fn check(self: &Arc<Self>) {
        let waker = Waker::from(self.clone());
        let context = Context::from_waker(&waker);
        // One after the other: each wakes this once.
        while let Some(next) = { self.earlier.lock().last().cloned() } {
            if let Some(first) = next.unended().next() {
                if first.latch().poll(&context, &mut WaiterKey::default()).is_pending() {
                    return;
                }
                continue;
            }
            let ended = self.earlier.lock().pop();
            drop(ended);
        }
        self.run.end_run();
    }
}

/// Ends those of `runs` that have ended on their devices, and before each of them those that it comes after.
///
/// A run that ends makes sure that those it comes after have ended before. It finds that they have here,
/// and need not call itself for a whole chain.
pub(super) fn end_in_order(runs: &[Arc<Run>]) {
    if runs.is_empty() {
        return;
    }
    let mut stack: SmallVec<[(Arc<Run>, ChainStep); 4]> =
        runs.iter().map(|run| (run.clone(), ChainStep::Predecessors)).collect();
    while let Some((run, next)) = stack.pop() {
        match next {
            ChainStep::Predecessors if run.has_unseen_end() => {
                let predecessors = run.predecessors();
                stack.push((run, ChainStep::Itself));
                stack.extend(predecessors.into_iter().map(|run| (run, ChainStep::Predecessors)));
            }
            ChainStep::Predecessors => {}
            ChainStep::Itself => run.poll_events(),
        }
    }
}

/// The next step for a run on the stack.
enum ChainStep {
    Predecessors,
    Itself,
}

#[cfg(test)]
mod tests {
    use std::thread::Builder;

    use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};
    use wakegraph_hal::{Error, ErrorKind};

    use crate::runtime::{Device, Event, ExecutableGraph, Graph, Submission, WakePolicy};

    const LINKS: usize = if cfg!(miri) { 8 } else { 100_000 };

    /// A device where nobody but a submission sees an end.
    fn device() -> (Device, FakeControl) {
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
        let device = Device::from_hal(device);
        device.set_wake_policy(WakePolicy::Efficient);
        (device, control)
    }

    fn fill(device: &Device) -> ExecutableGraph {
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(device);
        graph.fill(&x, 1);
        graph.finalize().unwrap()
    }

    /// Submissions in a chain: gives an event of the first, one in the middle, and the last.
    fn chain(first: Submission, mut next: impl FnMut(&Submission) -> Submission) -> (Vec<Event>, Submission) {
        let mut events = vec![first.event()];
        let mut last = first;
        for link in 1..LINKS {
            last = next(&last);
            if link == LINKS / 2 {
                events.push(last.event());
            }
        }
        (events, last)
    }

    /// Lets the device end all, and sees the end of `last` first, on a thread on which recursion
    /// along the chain would abort the process.
    fn finish(device: &Device, last: Submission, end: impl FnOnce()) -> Event {
        let _only_the_submission_looks = device.reactor().unwrap().pause();
        end();
        let look = move || {
            while !last.is_finished() {}
            last.event()
        };
        Builder::new().stack_size(256 << 10).spawn(look).unwrap().join().unwrap()
    }

    #[test]
    fn a_long_chain_of_dependencies_ends() {
        for fails in [false, true] {
            let (device, control) = device();
            let exec = fill(&device);
            let (mut events, last) = chain(exec.submit(), |last| exec.prepare().after(last).submit());
            if fails {
                control.fail_next(Error::new(ErrorKind::OutOfMemory, "the first fails"));
            }
            events.push(finish(&device, last, || _ = control.complete_all()));
            for event in events {
                assert!(event.is_finished());
                let failure = event.run().result().err().map(|error| error.kind());
                assert_eq!(failure, fails.then_some(ErrorKind::OutOfMemory));
            }
        }
    }

    #[test]
    fn a_long_chain_of_dependencies_ends_with_its_device() {
        let (device, control) = device();
        let exec = fill(&device);
        let (mut events, last) = chain(exec.submit(), |last| exec.prepare().after(last).submit());
        events.push(finish(&device, last, || control.lose_device()));
        for event in events {
            assert_eq!(event.run().result().unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    }
}
