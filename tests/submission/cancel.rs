//! Cancelling: what has not started never will, what has runs out.

use tokio::sync::{mpsc, oneshot};
use wakegraph::{ErrorKind, ExecutableGraph, Graph, Range};

use crate::common::{Count, device, held, held_kernel, in_both_runtimes, manual, polled_device, yield_often};
use crate::support::Hold;

/// held kernel -> counting host task -> counting kernel
fn chain(device: &wakegraph::Device, hold: &Hold, count: &Count) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    let first = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    let counter = count.clone();
    let task = graph.host_task((), async move |()| counter.add_one()).after([first]).id();
    graph.launch(count.kernel().call(), Range::linear(1)).after([task]);
    graph.finalize().unwrap()
}

#[test]
fn partitions_that_have_not_started_never_do() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let (hold, count) = (Hold::new(), Count::default());
            let exec = chain(&device, &hold, &count);
            let submission = exec.submit();
            hold.wait_for(1);
            submission.cancel();
            submission.cancel();
            yield_often().await;
            assert!(!submission.is_finished(), "the kernel still runs");
            hold.open();
            assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(count.get(), 0);
            exec.submit().await.unwrap();
            assert_eq!(count.get(), 2);
        }
    });
}

#[test]
fn cancel_lets_started_work_end() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let submission = held(&device, &hold).submit();
        submission.cancel();
        hold.open();
        submission.await.unwrap();
    });
}

#[test]
fn cancel_lets_a_running_host_task_end() {
    in_both_runtimes(|| async {
        let device = device();
        let count = Count::default();
        let (started, mut starts) = mpsc::unbounded_channel();
        let mut graph = Graph::new(&device);
        let counter = count.clone();
        let task = graph.host_task((), async move |()| {
            let (go_on, wait) = oneshot::channel::<()>();
            started.send(go_on).unwrap();
            wait.await.unwrap();
            counter.add_one();
        });
        let task = task.id();
        graph.launch(count.kernel().call(), Range::linear(1)).after([task]);
        let exec = graph.finalize().unwrap();
        let submission = exec.submit();
        let go_on = starts.recv().await.unwrap();
        submission.cancel();
        go_on.send(()).unwrap();
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(count.get(), 1);
    });
}

#[test]
fn after_completion_it_does_nothing() {
    in_both_runtimes(|| async {
        let count = Count::default();
        let exec = count.graph(&device());
        let mut submission = exec.submit();
        (&mut submission).await.unwrap();
        submission.cancel();
        submission.event().wait().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_deferred_submission_is_cancelled_while_it_waits() {
    in_both_runtimes(|| async {
        let (device, count) = (device(), Count::default());
        let exec = count.graph(&device);
        let (send, receive) = oneshot::channel::<()>();
        let waiting = exec.prepare().after_future(receive).submit();
        yield_often().await;
        waiting.cancel();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert!(send.is_closed(), "the future is dropped");
        assert_eq!(count.get(), 0);
        exec.submit().await.unwrap();
    });
}

#[test]
fn a_cancelled_submission_keeps_its_place_in_the_order() {
    in_both_runtimes(|| async {
        let device = device();
        let (hold, count) = (Hold::new(), Count::default());
        let exec = chain(&device, &hold, &count);
        let (first, second, third) = (exec.submit(), exec.submit(), exec.submit());
        hold.wait_for(1);
        second.cancel();
        yield_often().await;
        assert!(
            !second.is_finished(),
            "the first one still runs, and a caller that sees the second finished relies on it"
        );
        hold.open();
        first.await.unwrap();
        assert_eq!(second.await.unwrap_err().kind(), ErrorKind::Cancelled);
        third.await.unwrap();
        assert_eq!(count.get(), 4);
    });
}

#[test]
fn dropping_the_guard_cancels() {
    in_both_runtimes(|| async {
        let (device, hold, count) = (device(), Hold::new(), Count::default());
        let exec = chain(&device, &hold, &count);
        let guard = exec.submit().cancel_on_drop();
        let event = guard.submission().event();
        hold.wait_for(1);
        drop(guard);
        hold.open();
        assert_eq!(event.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(count.get(), 0);
        exec.submit().cancel_on_drop().await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn select_against_a_channel() {
    in_both_runtimes(|| async {
        let (device, hold, count) = (device(), Hold::new(), Count::default());
        let exec = chain(&device, &hold, &count);
        let (stop, stopped) = oneshot::channel::<()>();
        let guard = exec.submit().cancel_on_drop();
        let event = guard.submission().event();
        hold.wait_for(1);
        stop.send(()).unwrap();
        tokio::select! {
            biased;
            result = guard => panic!("held back, and yet {result:?}"),
            _ = stopped => {}
        }
        hold.open();
        assert_eq!(event.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(count.get(), 0);
    });
}

#[test]
fn a_submission_is_awaited_again_after_losing_a_select() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let mut submission = held(&device, &hold).submit();
        for _ in 0..1000 {
            tokio::select! {
                biased;
                result = &mut submission => panic!("held back, and yet {result:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        hold.open();
        submission.await.unwrap();
    });
}

#[test]
fn runs_that_are_enqueued_already_complete() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let x = device.buffer::<u8>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        let submissions: Vec<_> = (0..10).map(|_| exec.submit()).collect();
        submissions.iter().for_each(wakegraph::Submission::cancel);
        assert_eq!(control.complete_all(), 10);
        for submission in submissions {
            submission.await.unwrap();
        }
    });
}
