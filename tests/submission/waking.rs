//! Every wake policy, on devices that notify and on devices that must be polled; and tasks that
//! stop waiting, or whose wakers panic, beside others that wait for the same run.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use futures::future::BoxFuture;
use tokio::sync::Semaphore;
use wakegraph::testing::FakeControl;
use wakegraph::{Event, Graph, Range, Result, Submission, WakePolicy, read};

use crate::common::{Count, device, held, in_both_runtimes, manual, polled_device, yield_often};
use crate::support::{Hold, PANIC, Tracker, forget, must_end, silence_expected_panics};

const POLICIES: [WakePolicy; 3] = [WakePolicy::Latency, WakePolicy::Balanced, WakePolicy::Efficient];

#[test]
fn every_policy_sees_every_completion() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            assert_eq!(device.wake_policy(), WakePolicy::Balanced);
            let count = Count::default();
            let single = count.graph(&device);
            let host = device.host_buffer::<u32>(4).unwrap();
            let mut graph = Graph::new(&device);
            let first = graph.launch(count.kernel().call(), Range::linear(1)).id();
            graph.host_task((read(&host),), async |_| ()).after([first]);
            let chain = graph.finalize().unwrap();
            for (round, policy) in POLICIES.into_iter().enumerate() {
                device.set_wake_policy(policy);
                assert_eq!(device.clone().wake_policy(), policy);
                for _ in 0..50 {
                    single.submit().await.unwrap();
                    chain.submit().await.unwrap();
                }
                let submissions: Vec<_> = (0..50).map(|_| single.submit()).collect();
                for submission in submissions {
                    submission.await.unwrap();
                }
                assert_eq!(count.get(), 150 * (round + 1));
            }
        }
    });
}

#[test]
fn a_polled_device_finishes_detached_work() {
    in_both_runtimes(|| async {
        for policy in POLICIES {
            let (device, hold, tracker) = (polled_device(), Hold::new(), Tracker::new());
            device.set_wake_policy(policy);
            {
                let (held, token) = (hold.held(), tracker.token());
                let kernel = crate::common::raw("held", move || {
                    let _token = &token;
                    held.pass();
                    Ok(())
                });
                let exec = crate::common::single(&device, &kernel);
                drop(exec.submit());
                forget(exec.submit());
                drop(exec.submit().cancel_on_drop());
            }
            drop(device);
            hold.wait_for(1);
            hold.open();
            tracker.wait_until_freed();
            assert_eq!(hold.arrived(), 3);
        }
    });
}

#[test]
fn long_work_on_a_polled_device_does_not_hide_short_work() {
    in_both_runtimes(|| async {
        let (device, hold) = (polled_device(), Hold::new());
        let long = held(&device, &hold).submit();
        let count = Count::default();
        let short = count.graph(&device);
        for _ in 0..20 {
            short.submit().await.unwrap();
        }
        assert!(!long.is_finished());
        hold.open();
        long.await.unwrap();
    });
}

#[test]
fn completions_out_of_the_order_of_submission_are_seen() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let execs: Vec<_> = (0..5)
                .map(|_| {
                    let mut graph = Graph::new(&device);
                    graph.fill(&device.buffer::<u8>(1).unwrap(), 1);
                    graph.finalize().unwrap()
                })
                .collect();
            let mut submissions: Vec<_> = execs.iter().map(|exec| exec.submit()).collect();
            submissions.extend(execs.iter().map(|exec| exec.submit()));
            assert_eq!(control.pending(), 10);
            assert!(control.complete_next(None));
            submissions.remove(0).await.unwrap();
            yield_often().await;
            assert!(submissions.iter().all(|submission| !submission.is_finished()));
            control.complete_all();
            for submission in submissions.into_iter().rev() {
                submission.await.unwrap();
            }
        }
    });
}

/// A task that only remembers that it was woken.
#[derive(Default)]
struct Task(AtomicBool);

impl Task {
    fn poll<F: Future + Unpin>(self: &Arc<Self>, future: &mut F) -> std::task::Poll<F::Output> {
        self.0.store(false, Ordering::SeqCst);
        Pin::new(future).poll(&mut Context::from_waker(&Waker::from(self.clone())))
    }

    fn is_woken(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    async fn woken(&self) {
        while !self.is_woken() {
            tokio::task::yield_now().await;
        }
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct PanickingWaker;

impl Wake for PanickingWaker {
    fn wake(self: Arc<Self>) {
        std::panic::panic_any(PANIC);
    }
}

fn waiter(event: &Event) -> BoxFuture<'static, Result<()>> {
    Box::pin(std::future::IntoFuture::into_future(event.clone()))
}

// host task -> fill
/// A submission whose host task has ended, and whose fill the control completes. When the host task
/// ends, all tasks that wait are woken, although the run is not over. Here these are the one that
/// polled `first`, then `task`.
async fn woken_half_way(
    first: &Waker,
    task: &Arc<Task>,
) -> (FakeControl, BoxFuture<'static, Result<()>>, Submission) {
    let (device, control) = manual(true);
    device.set_wake_policy(WakePolicy::Efficient);
    let permits = Arc::new(Semaphore::new(0));
    let mut graph = Graph::new(&device);
    let acquired = permits.clone();
    let host_task = graph.host_task((), move |()| {
        let permits = acquired.clone();
        async move { permits.acquire_owned().await.unwrap().forget() }
    });
    let host_task = host_task.id();
    graph.fill(&device.buffer::<u8>(1).unwrap(), 1).after([host_task]);
    let exec = graph.finalize().unwrap();
    // The first run shows how long the fill takes, without which there is no reason to wake anybody half-way.
    let learning = exec.submit();
    permits.add_permits(1);
    while control.complete_all() == 0 {
        tokio::task::yield_now().await;
    }
    learning.await.unwrap();

    let mut submission = exec.submit();
    let mut first_waiter = waiter(&submission.event());
    assert!(first_waiter.as_mut().poll(&mut Context::from_waker(first)).is_pending());
    assert!(task.poll(&mut submission).is_pending());
    permits.add_permits(1);
    task.woken().await;
    assert_eq!(control.pending(), 1);
    (control, first_waiter, submission)
}

#[test]
fn a_woken_task_that_gives_up_leaves_the_others_registered() {
    must_end(|| {
        in_both_runtimes(|| async {
            let task = Arc::new(Task::default());
            let (control, first, mut submission) = woken_half_way(Waker::noop(), &task).await;
            drop(first);
            assert!(task.poll(&mut submission).is_pending());
            control.complete_all();
            assert!(task.is_woken());
            submission.await.unwrap();
        });
    });
}

#[test]
fn a_woken_submission_that_is_dropped_takes_no_wakeup_with_it() {
    must_end(|| {
        in_both_runtimes(|| async {
            let task = Arc::new(Task::default());
            let (control, first, submission) = woken_half_way(Waker::noop(), &task).await;
            drop(first);
            let tasks = [(); 3].map(|()| Arc::new(Task::default()));
            let mut waiters = [(); 3].map(|()| waiter(&submission.event()));
            for (task, waiter) in tasks.iter().zip(&mut waiters) {
                assert!(task.poll(waiter).is_pending());
            }
            drop(submission);
            control.complete_all();
            assert!(tasks.iter().all(|task| task.is_woken()));
        });
    });
}

#[test]
fn a_panicking_waker_leaves_no_other_task_asleep() {
    silence_expected_panics();
    must_end(|| {
        in_both_runtimes(|| async {
            let panicking = Waker::from(Arc::new(PanickingWaker));
            for notifies in [true, false] {
                let (device, control) = manual(notifies);
                let mut graph = Graph::new(&device);
                graph.fill(&device.buffer::<u8>(1).unwrap(), 1);
                let submission = graph.finalize().unwrap().submit();
                let [mut first, mut second] = [(); 2].map(|()| waiter(&submission.event()));
                let task = Arc::new(Task::default());
                assert!(first.as_mut().poll(&mut Context::from_waker(&panicking)).is_pending());
                assert!(task.poll(&mut second).is_pending());
                control.complete_all();
                task.woken().await;
                submission.await.unwrap();
            }
            // Also where all are woken before the run is over.
            let task = Arc::new(Task::default());
            let (control, _first, submission) = woken_half_way(&panicking, &task).await;
            control.complete_all();
            submission.await.unwrap();
        });
    });
}
