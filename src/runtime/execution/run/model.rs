//! The end of runs that fail before their turn, on several threads, in the model of loom. The runs, what they
//! come after and the latches are the real ones, without partitions. `scripts/loom.sh` runs it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use loom::future::block_on;
use loom::thread;
use smallvec::SmallVec;
use wakegraph_hal::{Access, AccessMode, CommandKinds, Error, Progress, ResourceId};

use crate::graph::Graph;
use crate::plan::{Plan, PlanOptions};
use crate::runtime::execution::accesses::MergedAccesses;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::run::{
    Awaited, FenceGuard, FenceHolder, GuardAhead, Predecessor, Predecessors, Run, cancelled,
};
use crate::runtime::execution::template::{Partitions, RunOwner, RunTemplate, Stoppable};
use crate::sync::{AtomicU8, AtomicU64, Ordering};
use crate::util::console;
use crate::util::deferred_drop::Failure;
use crate::util::metrics::RunSourceMetrics;

/// The owner of one run, which is notified once that the run fails.
struct ModelOwner {
    template: RunTemplate,
    /// The runs that have to have ended by then.
    earlier: Vec<Arc<Run>>,
    ended_in_turn: AtomicU32,
    ended_early: AtomicU32,
}

impl RunOwner for ModelOwner {
    fn template(&self) -> &RunTemplate {
        &self.template
    }

    fn failed(&self, _: Error) {
        let is_in_turn = self.earlier.iter().all(|run| run.has_ended());
        let count = if is_in_turn { &self.ended_in_turn } else { &self.ended_early };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// The template of an executable without nodes.
fn template() -> RunTemplate {
    let plan = Plan::new(&Graph::<()>::new(), |_| CommandKinds::all(), &PlanOptions::default());
    let labels =
        Labels { executable: None, plan: plan.unwrap(), nodes: Box::default(), devices: Box::default() };
    RunTemplate {
        labels: Arc::new(labels),
        console: console::Resource::none(),
        partitions: Partitions::default(),
        metrics: RunSourceMetrics::default(),
        profiling: false,
        roots: Box::default(),
        tails: Box::default(),
        ends_of_devices: Box::default(),
        devices: Arc::default(),
        all_eager: true,
        has_stream_tasks: false,
        stoppable: AtomicU8::new(Stoppable::Nothing as u8),
        polled: false,
        polls_tails: false,
        progress: Progress::default(),
        reactors: Arc::default(),
        ended: AtomicU64::new(0),
    }
}

/// A run that ends with success as soon as it is asked to end.
fn succeeding() -> Arc<Run> {
    Arc::new(Run::with(SmallVec::new(), Arc::default()))
}

/// A run that fails, and comes after others.
#[derive(Clone)]
struct Failing {
    run: Arc<Run>,
    owner: Arc<ModelOwner>,
}

impl Failing {
    fn after(earlier: &[&Arc<Run>]) -> Self {
        let earlier = || earlier.iter().copied().cloned();
        Self::waiting_for(earlier().map(Predecessor::Run).collect(), earlier().collect())
    }

    fn waiting_for(comes_after: Predecessors, earlier: Vec<Arc<Run>>) -> Self {
        let (ended_in_turn, ended_early) = (AtomicU32::new(0), AtomicU32::new(0));
        let owner = ModelOwner { template: template(), earlier, ended_in_turn, ended_early };
        let (run, owner) = (succeeding(), Arc::new(owner));
        run.inner.lock().owner = Some(owner.clone());
        run.set_comes_after(comes_after);
        Self { run, owner }
    }

    fn fail(&self) {
        self.run.abandon(&cancelled());
    }

    /// Waits for its end. To be called on one thread, when all others that have a part in it are joined.
    fn check(self) {
        block_on(self.run.ended.wait());
        let Self { run, owner } = self;
        let ends = |count: &AtomicU32| count.load(Ordering::Relaxed);
        assert_eq!((ends(&owner.ended_in_turn), ends(&owner.ended_early)), (1, 0));
        assert_eq!(run.result().unwrap_err().kind(), cancelled().kind());
        // Nothing waits for it or ends it any more.
        assert_eq!((Arc::strong_count(&run), Arc::strong_count(&owner)), (1, 1));
    }
}

fn on_thread(work: impl FnOnce() + 'static) -> thread::JoinHandle<()> {
    thread::spawn(work)
}

fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn loom_a_run_that_fails_early_ends_after_all_before_it() {
    loom::model(|| {
        let earlier = [succeeding(), succeeding()];
        let failing = Failing::after(&[&earlier[0], &earlier[1]]);
        let threads = earlier.map(|run| on_thread(move || run.end_run()));
        failing.fail();
        join(threads);
        failing.check();
    });
}

/// Two threads end the run, of which one may find it in its turn.
#[test]
fn loom_a_run_that_two_threads_end_ends_once() {
    loom::model(|| {
        let earlier = succeeding();
        let failing = Failing::after(&[&earlier]);
        let other = failing.run.clone();
        failing.run.set_failure(&mut failing.run.inner.lock(), Failure::new(cancelled()));
        let threads = [on_thread(move || earlier.end_run()), on_thread(move || other.end_run())];
        failing.run.end_run();
        join(threads);
        failing.check();
    });
}

/// The second and the third run fail on two threads while the first ends on another.
#[test]
fn loom_runs_that_fail_early_end_one_after_the_other() {
    loom::model(|| {
        let first = succeeding();
        let second = Failing::after(&[&first]);
        let third = Failing::after(&[&second.run]);
        let failing = second.clone();
        let threads = [on_thread(move || first.end_run()), on_thread(move || failing.fail())];
        third.fail();
        join(threads);
        third.check();
        second.check();
    });
}

/// The submission of the earlier run looks at it again meanwhile.
#[test]
fn loom_a_run_that_is_woken_in_vain_ends_in_its_turn() {
    loom::model(|| {
        let earlier = succeeding();
        let failing = Failing::after(&[&earlier]);
        let other = earlier.clone();
        let threads = [on_thread(move || other.ended.wake_all()), on_thread(move || earlier.end_run())];
        failing.fail();
        join(threads);
        failing.check();
    });
}

/// The run comes after a guard, which is given up while it waits for another run.
#[test]
fn loom_a_run_behind_a_guard_that_is_given_up_ends_in_its_turn() {
    loom::model(|| {
        let (resource, mode) = (ResourceId::unique(), AccessMode::ReadWrite);
        let accesses = MergedAccesses::from(Access { resource, start: 0, end: 1, mode });
        let earlier = succeeding();
        let mut guard = FenceGuard::new(FenceHolder::Update);
        let by = Predecessor::Run(earlier.clone());
        guard.set_before(accesses.clone(), vec![Awaited { by, accesses: accesses.clone() }]);
        let ahead = GuardAhead { fence: guard.fence().clone(), accesses };
        let comes_after = Predecessors::from_iter([Predecessor::Guard(Box::new(ahead))]);
        let failing = Failing::waiting_for(comes_after, vec![earlier.clone()]);
        let threads = [on_thread(move || drop(guard)), on_thread(move || earlier.end_run())];
        failing.fail();
        join(threads);
        failing.check();
    });
}
