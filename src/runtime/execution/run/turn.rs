//! The turn of a run: it ends after everything that it comes after.
//!
//! A run that succeeds has been run in its turn by its devices. One that fails may fail before that: with
//! what it depends on, when a device is lost, when a driver refuses it, when it is cancelled. It has ended
//! only when all that it comes after has ended, because code that sees it ended uses the memory of everything
//! before it. No thread and no task awaits that: the run that ends last wakes the end of this one.

use std::cell::{Cell, RefCell};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

use crate::runtime::completion::latch::WaiterKey;
use crate::runtime::completion::wakers::wake_or_defer;
use crate::runtime::execution::conflicts::{Predecessor, Predecessors};
use crate::runtime::execution::fence::Fence;
use crate::runtime::execution::run::Run;
use crate::sync::Ordering;
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
            (std::mem::take(&mut until_end.comes_after), until_end.guard.take(), until_end.this.take())
        });
        drop(taken);
        self.progress.keeps_order.store(false, Ordering::Release);
    }

    /// Notes a guard that the run comes after, itself or behind others, so that what gives the run up early
    /// need not look at all of these. Called before it starts, by what has it wait on the host: only such
    /// a run comes after a guard.
    pub(crate) fn note_guard(&self) {
        let guard = self.comes_after().iter().find_map(|earlier| match earlier {
            Predecessor::Run(run) => run.noted_guard(),
            _ => earlier.guard().cloned(),
        });
        if guard.is_some() {
            self.inner.lock().extras.get_or_make().until_end.guard = guard;
        }
    }

    /// That guard, whether or not it has been dropped.
    pub(super) fn noted_guard(&self) -> Option<Arc<Fence>> {
        self.extra(|extras| extras.until_end.guard.clone())
    }

    /// Whether the run comes after a guard, itself or behind others, and the guard has not been dropped:
    /// only a task of the user's can end that, maybe the one that awaits this run.
    pub(crate) fn is_behind_guard(&self) -> bool {
        let Some(guard) = self.noted_guard() else { return false };
        if !guard.is_lifted() {
            return true;
        }
        let (mut stack, mut seen) = (self.comes_after(), HashSet::new());
        while let Some(next) = stack.pop() {
            for next in next.unended().into_iter().filter(|next| seen.insert(next.address())) {
                match &next {
                    Predecessor::Run(run) if run.noted_guard().is_some_and(|guard| !guard.is_lifted()) => {
                        return true;
                    }
                    Predecessor::Run(run) => stack.extend(run.comes_after()),
                    _ if next.guard().is_some() => return true,
                    _ => {}
                }
            }
        }
        false
    }

    /// Whether it has failed before its turn, and a guard keeps it from ending.
    pub(crate) fn has_failed_behind_guard(&self) -> bool {
        self.awaits_turn() && self.is_behind_guard()
    }

    /// What the run comes after, until it is over.
    pub(crate) fn comes_after(&self) -> Predecessors {
        self.extra(|extras| extras.until_end.comes_after.clone())
    }

    /// Whether it may fail before its turn. What devices order behind such a run may fail with it.
    pub(crate) fn keeps_order(&self) -> bool {
        self.progress.keeps_order.load(Ordering::Acquire)
    }

    /// Whether it has failed before its turn.
    pub(crate) fn awaits_turn(&self) -> bool {
        self.progress.awaits_turn.load(Ordering::Acquire) && !self.is_done()
    }

    /// Whether all that a run comes after has ended, of which all partitions are over. If it has not, the run
    /// ends with the last of it.
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

/// What has to be waited for in the place of `order`: of a run that has failed before its turn, what it still
/// comes after. Its events tell nothing of that.
pub(crate) fn without_failed(order: Predecessors) -> Predecessors {
    let failed = |one: &Predecessor| matches!(one, Predecessor::Run(run) if run.awaits_turn());
    if !order.iter().any(failed) {
        return order;
    }
    let (mut waiting, mut seen) = (Predecessors::new(), HashSet::new());
    let mut stack = order;
    while let Some(next) = stack.pop() {
        if next.is_over() || !seen.insert(next.address()) {
            continue;
        }
        match &next {
            Predecessor::Run(run) if run.awaits_turn() => stack.extend(run.comes_after()),
            _ => waiting.push(next),
        }
    }
    waiting
}

/// What a run that has failed still waits for.
struct AwaitedTurn {
    run: Arc<Run>,
    earlier: Mutex<Predecessors>,
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
            if let Some(first) = next.first_unended() {
                if first.latch().poll(&context, &mut WaiterKey::default()).is_pending() {
                    return;
                }
                continue;
            }
            let ended = self.earlier.lock().pop();
            drop(ended);
        }
        self.run.complete();
    }
}
