//! Cancelling: what has not started never will; async host tasks and loops are given up, the rest runs out.

use tokio::sync::{mpsc, oneshot};
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, Range, read, write};

use crate::common::{Count, device, held, held_kernel, in_both_runtimes, manual, polled_device, yield_often};
use crate::support::{Hold, PANIC, silence_expected_panics};

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

/// Tells when it is dropped.
struct Dropped(Count);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.add_one();
    }
}

#[test]
fn cancel_drops_the_future_of_a_running_host_task() {
    in_both_runtimes(|| async {
        let device = device();
        let (count, drops) = (Count::default(), Count::default());
        let buffer = device.host_buffer::<u32>(4).unwrap();
        let (started, mut starts) = mpsc::unbounded_channel();
        let mut graph = Graph::new(&device);
        let (counter, dropped) = (count.clone(), drops.clone());
        let task = graph.host_task((write(&buffer),), async move |(mut view,)| {
            let _dropped = Dropped(dropped);
            view[0] = 7;
            let (go_on, wait) = oneshot::channel::<()>();
            started.send(go_on).unwrap();
            let _ = wait.await;
            counter.add_one();
        });
        let task = task.name("waits").id();
        graph.launch(count.kernel().call(), Range::linear(1)).after([task]);
        let exec = graph.finalize().unwrap();
        for _ in 0..3 {
            let submission = exec.submit();
            let go_on = starts.recv().await.unwrap();
            assert!(buffer.try_read().is_err(), "the task has a view");
            submission.cancel();
            let error = submission.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled);
            assert!(error.node().is_some_and(|node| node.contains("waits")), "{error}");
            assert!(go_on.is_closed(), "the future is dropped");
            assert_eq!(buffer.try_read().unwrap()[0], 7);
        }
        assert_eq!(drops.get(), 3);
        let submission = exec.submit();
        starts.recv().await.unwrap().send(()).unwrap();
        submission.await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_view_that_a_cancelled_host_task_gave_away_is_waited_for() {
    in_both_runtimes(|| async {
        let device = device();
        let buffer = device.host_buffer::<u32>(4).unwrap();
        let (give, mut given) = mpsc::unbounded_channel();
        let mut graph = Graph::new(&device);
        graph.host_task((read(&buffer),), async move |(view,)| {
            give.send(view).unwrap();
            std::future::pending::<()>().await;
        });
        let exec = graph.finalize().unwrap();
        let submission = exec.submit();
        let view = given.recv().await.unwrap();
        submission.cancel();
        yield_often().await;
        assert!(!submission.is_finished());
        drop(view);
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
    });
}

#[test]
fn a_cancelled_host_task_whose_drop_panics_is_cancelled() {
    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("{PANIC}: a drop");
        }
    }

    silence_expected_panics();
    in_both_runtimes(|| async {
        let (started, mut starts) = mpsc::unbounded_channel();
        let mut graph = Graph::new(&device());
        graph.host_task((), async move |()| {
            let _panics = Panics;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        let submission = graph.finalize().unwrap().submit();
        starts.recv().await.unwrap();
        submission.cancel();
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
    });
}

#[test]
fn cancel_lets_a_running_blocking_host_task_end() {
    in_both_runtimes(|| async {
        let (hold, count) = (Hold::new(), Count::default());
        let (held, counter) = (hold.held(), count.clone());
        let mut graph = Graph::new(&device());
        let task = graph.host_task_blocking((), move |()| {
            held.pass();
            counter.add_one();
        });
        let task = task.id();
        graph.launch(count.kernel().call(), Range::linear(1)).after([task]);
        let submission = graph.finalize().unwrap().submit();
        yield_often().await;
        hold.wait_for(1);
        submission.cancel();
        hold.open();
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(count.get(), 1);
    });
}

/// A graph with a loop that never ends by itself, and nodes beside it if so asked.
pub(crate) fn endless(device: &Device, hold: &Hold, beside: bool) -> ExecutableGraph {
    let flag = device.host_buffer_from(&[1u32]).unwrap();
    let mut body = Graph::new(device);
    body.launch(held_kernel(hold).call(), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &body).name("endless");
    if beside {
        let other = Count::default().kernel();
        (0..2).for_each(|_| _ = graph.launch(other.call(), Range::linear(1)).id());
    }
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), 1, "the device decides about the loop");
    exec
}

#[test]
fn a_loop_of_the_host_device_stops_before_its_next_iteration() {
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            for beside in [false, true] {
                let hold = Hold::new();
                let exec = endless(&device, &hold, beside);
                for round in 1..=3 {
                    let (submission, next) = (exec.submit(), exec.submit());
                    hold.wait_for(2 * round - 1);
                    submission.cancel();
                    hold.release_one();
                    let error = submission.await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
                    assert!(error.node().is_some_and(|node| node.contains("endless")), "{error}");
                    // The one behind it has a loop of its own.
                    hold.wait_for(2 * round);
                    next.cancel();
                    hold.release_one();
                    assert_eq!(next.await.unwrap_err().kind(), ErrorKind::Cancelled);
                }
            }
        }
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
        let event = guard.event();
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
        let event = guard.event();
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
