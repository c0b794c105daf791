use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use wakegraph_hal::ErrorKind;
use wakegraph_hal::fake::{FakeControl, FakeDevice, FakeOptions};

use crate::runtime::execution::submission_queue::{EndedBatches, HIGH_LOAD, queue_of};
use crate::runtime::{Device, ExecutableGraph, FinalizeOptions, Graph, Submission};
use crate::sync::Ordering;

const MANY: usize = 3 * HIGH_LOAD as usize;

fn device() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    (Device::from_hal(device), control)
}

/// Executables that are known to be short.
fn execs(device: &Device, count: usize, options: FinalizeOptions) -> Vec<ExecutableGraph> {
    let exec = || {
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(device);
        graph.fill(&x, 1);
        let exec = graph.finalize_with(options.clone()).unwrap();
        exec.inner.partitions[0].estimator.record_duration(Duration::from_micros(5));
        exec
    };
    (0..count).map(|_| exec()).collect()
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()].map(|mut builder| builder.build().unwrap())
}

fn run_of(submission: &Submission) -> Arc<crate::runtime::execution::run::Run> {
    submission.event().run().clone()
}

/// Lets everything go on until `done`.
async fn until(control: &FakeControl, done: impl Fn() -> bool) {
    while !done() {
        control.complete_all();
        yield_now().await;
    }
}

/// Keeps the reactor from launching while it lives.
fn hold(device: &Device) -> impl Drop + '_ {
    struct Held<'a>(&'a Device);
    impl Held<'_> {
        fn set(&self, held: bool) {
            queue_of(self.0).held.store(held, Ordering::Relaxed);
        }
    }
    impl Drop for Held<'_> {
        fn drop(&mut self) {
            self.set(false);
        }
    }
    let held = Held(device);
    held.set(true);
    held
}

/// As many submissions in flight as make a load.
fn load(execs: &[ExecutableGraph]) -> Vec<Submission> {
    execs[..HIGH_LOAD as usize].iter().map(ExecutableGraph::submit).collect()
}

#[test]
fn a_crowd_is_launched_by_the_reactor_and_completes() {
    for runtime in runtimes() {
        let (device, control) = device();
        let execs = execs(&device, MANY, FinalizeOptions::new());
        runtime.block_on(async {
            for round in 0..20 {
                let submissions: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
                let last = run_of(submissions.last().unwrap());
                // Later on, what completes only when it is told to may have been found to take too long.
                let batched = round == 0;
                assert!(!batched || last.is_left_to_reactor());
                let tasks: Vec<_> = submissions.into_iter().map(tokio::spawn).collect();
                until(&control, || tasks.iter().all(tokio::task::JoinHandle::is_finished)).await;
                assert!(!batched || last.is_in_batch());
                for task in tasks {
                    task.await.unwrap().unwrap();
                }
            }
        });
        assert_eq!(device.reactor().unwrap().in_flight().load(Ordering::Relaxed), 0);
    }
}

#[test]
fn a_thread_that_has_more_to_launch_completes_one_run_and_leaves_the_others_to_its_task() {
    let (device, _control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let _before = load(&execs);
    let _held = hold(&device);
    let submissions: Vec<_> = execs[HIGH_LOAD as usize..].iter().map(ExecutableGraph::submit).collect();
    let done = || submissions.iter().filter(|submission| run_of(submission).has_ended()).count();
    let mut left = std::mem::take(&mut *queue_of(&device).inbox.lock());
    assert_eq!(left.len(), submissions.len(), "all were left to the reactor's thread");
    for run in &left {
        assert!(run.run.take_launch());
        run.run.set_launched(true);
    }
    let later: Vec<_> = left.drain(left.len() / 2..).collect();
    let (first, second) = (left.len(), later.len());
    // Not the device's own, whose runs the reactor's thread would end before it falls asleep.
    let ended = EndedBatches::default();
    ended.add(left.into_iter().collect(), None);
    ended.settle(true);
    assert_eq!(done(), 1, "whose task helps");
    ended.end_all();
    assert_eq!(done(), first);
    ended.add(later.into_iter().collect(), None);
    ended.settle(true);
    assert_eq!(done(), first + 1);
    // No task comes.
    while !ended.is_empty() {
        ended.settle(true);
    }
    assert_eq!(done(), first + second);
}

#[test]
fn few_are_launched_at_once() {
    let (device, _control) = device();
    let execs = execs(&device, HIGH_LOAD as usize, FinalizeOptions::new());
    for submission in load(&execs) {
        assert!(!run_of(&submission).is_left_to_reactor());
    }
}

#[test]
fn what_something_comes_after_is_launched_without_the_reactor() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let before = load(&execs);
    let launched = control.pending();
    // Outside a runtime: nothing may be left to the host.
    let (first, second) = {
        let exec = execs.last().unwrap();
        let _held = hold(&device);
        let first = exec.submit();
        assert_eq!(control.pending(), launched);
        let second = exec.submit();
        assert_eq!(control.pending(), launched + 2);
        (first, second)
    };
    let after = execs[0].prepare().after(&second).submit();
    let all = || before.iter().chain([&first, &second, &after]);
    while !all().all(Submission::is_finished) {
        control.complete_all();
    }
    assert!(all().all(|submission| run_of(submission).result().is_ok()));
}

/// Submits when it is woken.
struct Resubmit {
    exec: ExecutableGraph,
    submitted: mpsc::Sender<Submission>,
}

impl Wake for Resubmit {
    fn wake(self: Arc<Self>) {
        self.submitted.send(self.exec.submit()).unwrap();
    }
}

// The waker submits behind a run that the reactor's thread is about to launch in the same batch.
#[test]
fn a_waker_may_submit_while_a_batch_is_made() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let before = load(&execs);
    let (submitted, submissions) = mpsc::channel();
    let (first, cancelled) = {
        let _held = hold(&device);
        let (first, mut cancelled) = (execs[MANY - 2].submit(), execs[MANY - 1].submit());
        assert!([&first, &cancelled].iter().all(|submission| run_of(submission).is_left_to_reactor()));
        let waker = Waker::from(Arc::new(Resubmit { exec: execs[MANY - 2].clone(), submitted }));
        assert!(pin!(&mut cancelled).poll(&mut Context::from_waker(&waker)).is_pending());
        cancelled.cancel();
        (first, cancelled)
    };
    let second = submissions.recv_timeout(Duration::from_secs(60)).unwrap();
    while !before.iter().chain([&first, &second]).all(Submission::is_finished) {
        control.complete_all();
    }
    assert_eq!(run_of(&cancelled).result().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn a_submission_may_come_after_a_batched_one_of_another_executable() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    for _ in 0..50 {
        let before = load(&execs);
        let [first, last] = [MANY - 2, MANY - 1].map(|index| execs[index].clone());
        let first = first.submit();
        let last = last.prepare().after(&first).submit();
        assert!(run_of(&first).is_all_enqueued());
        while !before.iter().chain([&first, &last]).all(Submission::is_finished) {
            // In this order: the first may end between the two looks.
            assert!(!run_of(&last).has_ended() || run_of(&first).has_ended());
            control.complete_next(None);
        }
        assert!(run_of(&last).result().is_ok());
    }
}

#[test]
fn updates_apply_after_what_was_handed_over() {
    let (device, control) = device();
    let options = FinalizeOptions::new().updatable(true);
    let execs = execs(&device, MANY, options);
    let before = load(&execs);
    let exec = execs.last().unwrap();
    let launched = control.pending();
    let submission = {
        let _held = hold(&device);
        let submission = exec.submit();
        assert!(run_of(&submission).is_left_to_reactor());
        drop(exec.update().apply());
        assert!(control.pending() > launched, "launched as it was");
        submission
    };
    while !before.iter().chain([&submission]).all(Submission::is_finished) {
        control.complete_all();
    }
}

// Many wait, and one that the reactor's thread may choose as the helper is not polled again.
#[test]
fn a_helper_that_is_not_polled_keeps_nobody() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    runtime.block_on(async {
        let before = load(&execs);
        let mut first = pin!(execs[MANY - 1].submit());
        assert!(run_of(&first).is_left_to_reactor());
        poll_fn(|cx| {
            assert!(first.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let rest = execs[HIGH_LOAD as usize..MANY - 1].iter().map(|exec| tokio::spawn(exec.submit()));
        let rest: Vec<_> = rest.collect();
        until(&control, || rest.iter().all(tokio::task::JoinHandle::is_finished)).await;
        first.await.unwrap();
        for submission in before {
            until(&control, || submission.is_finished()).await;
        }
    });
}

#[test]
fn a_helper_that_is_dropped_leaves_nobody_behind() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    runtime.block_on(async {
        for _ in 0..20 {
            let before = load(&execs);
            let rest: Vec<_> =
                execs[HIGH_LOAD as usize..].iter().map(|exec| tokio::spawn(exec.submit())).collect();
            yield_now().await;
            // Among them the helper, if there is one.
            rest.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
            until(&control, || rest.iter().all(tokio::task::JoinHandle::is_finished)).await;
            until(&control, || before.iter().all(Submission::is_finished)).await;
            until(&control, || device.reactor().unwrap().in_flight().load(Ordering::Relaxed) == 0).await;
        }
    });
}

#[test]
fn a_cancelled_run_is_not_launched() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let mut stopped = 0;
    for _ in 0..20 {
        let before = load(&execs);
        let [first, other] = [MANY - 2, MANY - 1].map(|index| &execs[index]);
        let cancelled = {
            let _held = hold(&device);
            let submission = first.submit();
            submission.cancel();
            submission
        };
        // Wakes the reactor.
        let other = other.submit();
        while !before.iter().chain([&cancelled, &other]).all(Submission::is_finished) {
            control.complete_all();
            thread::yield_now();
        }
        assert!(run_of(&other).result().is_ok());
        // The reactor may have taken it before it was held.
        stopped +=
            run_of(&cancelled).result().is_err_and(|error| error.kind() == ErrorKind::Cancelled) as u32;
        let again = first.submit();
        while !again.is_finished() {
            control.complete_all();
        }
        assert!(run_of(&again).result().is_ok());
    }
    assert!(stopped > 0);
}

#[test]
fn a_lost_device_fails_all() {
    for runtime in runtimes() {
        let (device, control) = device();
        let execs = execs(&device, MANY, FinalizeOptions::new());
        runtime.block_on(async {
            let submissions: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
            control.lose_device();
            for submission in submissions {
                assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::DeviceLost);
            }
        });
    }
}

/// Completes what the device has until all have ended.
fn complete_until_finished<'a>(
    control: &FakeControl,
    mut all: impl Iterator<Item = &'a Submission> + Clone,
) -> Vec<Option<ErrorKind>> {
    let end = Instant::now() + Duration::from_secs(60);
    while !all.clone().all(Submission::is_finished) {
        control.complete_all();
        assert!(Instant::now() < end, "a submission does not end");
        thread::yield_now();
    }
    let kinds = all.by_ref().map(|submission| run_of(submission).result().err().map(|error| error.kind()));
    kinds.collect()
}

#[test]
fn the_runs_of_a_batch_whose_launch_panics_end_with_an_error() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let before = load(&execs);
    let left: Vec<_> = {
        let _held = hold(&device);
        let left: Vec<_> = execs[HIGH_LOAD as usize..].iter().map(ExecutableGraph::submit).collect();
        assert!(left.iter().all(|submission| run_of(submission).is_left_to_reactor()));
        // The device has been given two of a batch by then.
        control.panic_after(2);
        left
    };
    let kinds = complete_until_finished(&control, left.iter());
    let failed = kinds.iter().filter(|kind| **kind == Some(ErrorKind::Bug)).count();
    assert!(failed > 2 && kinds.iter().flatten().count() == failed, "{kinds:?}");
    // All others go on.
    let again: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
    let kinds = complete_until_finished(&control, before.iter().chain(&again));
    assert!(kinds.iter().all(Option::is_none), "{kinds:?}");
}

#[test]
fn a_run_whose_own_launch_panics_ends_with_an_error() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let before = load(&execs);
    let exec = execs.last().unwrap();
    let _held = hold(&device);
    let first = exec.submit();
    assert!(run_of(&first).is_left_to_reactor());
    control.panic_after(0);
    // Launches the first one itself.
    let second = exec.submit();
    let kinds = complete_until_finished(&control, [&first, &second].into_iter().chain(&before));
    assert_eq!(kinds[..2], [Some(ErrorKind::Bug), None]);
    assert!(kinds[2..].iter().all(Option::is_none));
}

/// Counts how often the submission is polled.
async fn counting(submission: Submission, polls: Arc<AtomicUsize>) {
    let mut submission = pin!(submission);
    let resolved = poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        submission.as_mut().poll(cx)
    });
    resolved.await.unwrap();
}

/// Yields until `done`; a test in which that is never so fails.
async fn yield_until(mut done: impl FnMut() -> bool) {
    let all = async {
        while !done() {
            yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), all).await.unwrap();
}

#[test]
fn no_thread_spins_for_a_batch_that_takes_long() {
    for tasks in [MANY, HIGH_LOAD as usize + 2] {
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let runtime = builder.enable_time().build().unwrap();
            let (device, control) = device();
            let execs = execs(&device, tasks, FinalizeOptions::new());
            let batcher = queue_of(&device);
            runtime.block_on(async {
                let submissions: Vec<_> = execs.iter().map(ExecutableGraph::submit).collect();
                let runs: Vec<_> = submissions[HIGH_LOAD as usize..].iter().map(run_of).collect();
                let polls = Arc::new(AtomicUsize::new(0));
                let count = |submission| tokio::spawn(counting(submission, polls.clone()));
                let all: Vec<_> = submissions.into_iter().map(count).collect();
                yield_until(|| runs.iter().all(|run| run.is_in_batch())).await;
                // The reactor's thread goes to sleep, and no task polls.
                yield_until(|| batcher.asleep.load(Ordering::SeqCst)).await;
                let mut quiet = (0, polls.load(Ordering::Relaxed));
                yield_until(|| {
                    let polled = polls.load(Ordering::Relaxed);
                    quiet = if polled == quiet.1 { (quiet.0 + 1, polled) } else { (0, polled) };
                    quiet.0 > 1000
                })
                .await;
                assert!(runs.iter().all(|run| !run.has_ended()));
                control.complete_all();
                for one in all {
                    one.await.unwrap();
                }
            });
        }
    }
}

struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which sleeps while it is pending; calls `pending` after the first
/// poll that is.
fn block_on<F: Future>(future: F, pending: impl FnOnce()) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut cx, mut future, mut pending) = (Context::from_waker(&waker), pin!(future), Some(pending));
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        pending.take().into_iter().for_each(|pending| pending());
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "never woken");
        thread::park_timeout(left);
    }
}

#[test]
fn a_task_that_blocks_the_only_thread_is_woken() {
    let (device, control) = device();
    let execs = execs(&device, MANY, FinalizeOptions::new());
    let runtime = Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let before = load(&execs);
        let submission = execs[MANY - 1].submit();
        let run = run_of(&submission);
        let completing = || {
            thread::spawn(move || {
                while !run.has_ended() {
                    control.complete_all();
                    thread::yield_now();
                }
            });
        };
        block_on(submission, completing).unwrap();
        drop(before);
    });
}
