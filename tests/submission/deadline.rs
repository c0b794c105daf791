//! Deadlines: what would start too late does not start, what has started runs out.
//!
//! The clock is tokio's, and paused: it moves when the test says so, or when nothing else can happen.

use std::future::pending;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::{Instant, advance};
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, Range};

use crate::common::{Count, current_thread, device, held, held_kernel, manual, yield_often};
use crate::support::Hold;

const SECOND: Duration = Duration::from_secs(1);

pub(crate) fn paused() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

fn in_a_second() -> Instant {
    Instant::now() + SECOND
}

/// held kernel -> counting host task -> counting kernel
fn chain(device: &Device, hold: &Hold, count: &Count) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    let first = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    let counter = count.clone();
    let task = graph.host_task((), async move |()| counter.add_one()).after([first]).name("task").id();
    graph.launch(count.kernel().call(), Range::linear(1)).after([task]).name("last");
    graph.finalize().unwrap()
}

#[test]
fn a_deadline_in_the_past_hands_nothing_to_a_device() {
    let (device, control) = manual(true);
    let mut graph = Graph::new(&device);
    graph.fill(&device.buffer::<u8>(4).unwrap(), 1).name("fill");
    let exec = graph.finalize().unwrap();
    let late = exec.prepare().deadline(std::time::Instant::now()).submit();
    assert!(late.is_finished());
    assert_eq!(control.pending(), 0);
    let error = current_thread().block_on(late).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
    assert!(error.node().is_some_and(|node| node.contains("fill")), "{error}");
    assert_eq!(error.partition(), Some(0));
}

#[test]
fn a_deadline_that_is_met_changes_nothing() {
    paused().block_on(async {
        let (hold, count) = (Hold::new(), Count::default());
        let exec = chain(&device(), &hold, &count);
        hold.open();
        exec.prepare().deadline(in_a_second()).submit().await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_host_task_that_would_be_late_is_not_called() {
    paused().block_on(async {
        let (hold, count) = (Hold::new(), Count::default());
        let exec = chain(&device(), &hold, &count);
        let submission = exec.prepare().deadline(in_a_second()).submit();
        hold.wait_for(1);
        advance(2 * SECOND).await;
        assert!(!submission.is_finished(), "what a device has runs out");
        hold.open();
        let error = submission.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.node().is_some_and(|node| node.contains("task")), "{error}");
        assert_eq!(count.get(), 0);
        // A run that is used again has no deadline any more.
        exec.submit().await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_partition_that_would_be_late_is_not_enqueued() {
    paused().block_on(async {
        let (device, count) = (device(), Count::default());
        let mut graph = Graph::new(&device);
        let counter = count.clone();
        let slow = async move |()| {
            advance(2 * SECOND).await;
            counter.add_one();
        };
        let task = graph.host_task((), slow).id();
        graph.launch(count.kernel().call(), Range::linear(1)).after([task]).name("last");
        let exec = graph.finalize().unwrap();
        let error = exec.prepare().deadline(in_a_second()).submit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
        assert!(error.node().is_some_and(|node| node.contains("last")), "{error}");
        assert_eq!(count.get(), 1, "the host task had started, and runs to its end");
    });
}

#[test]
fn waiting_for_a_future_ends_at_the_deadline() {
    paused().block_on(async {
        let count = Count::default();
        let exec = count.graph(&device());
        let (send, receive) = oneshot::channel::<()>();
        let waiting = exec.prepare().after_future(receive).deadline(in_a_second()).submit();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        assert!(send.is_closed(), "the future is dropped");
        assert_eq!(count.get(), 0);
        exec.submit().await.unwrap();
    });
}

#[test]
fn a_late_submission_keeps_its_place_in_the_order() {
    paused().block_on(async {
        let (hold, count) = (Hold::new(), Count::default());
        let exec = chain(&device(), &hold, &count);
        let first = exec.submit();
        let second = exec.prepare().deadline(in_a_second()).submit();
        hold.wait_for(1);
        advance(2 * SECOND).await;
        yield_often().await;
        assert!(!second.is_finished(), "the first one still runs");
        hold.open();
        first.await.unwrap();
        assert_eq!(second.await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn a_loop_of_the_runtime_starts_no_late_iteration() {
    paused().block_on(async {
        let (device, count) = (device(), Count::default());
        let flag = device.host_buffer_from(&[1u32]).unwrap();
        let mut body = Graph::new(&device);
        let counter = count.clone();
        body.host_task((), async move |()| {
            counter.add_one();
            advance(SECOND / 4).await;
        });
        let mut graph = Graph::new(&device);
        graph.while_nonzero(&flag, &body);
        let exec = graph.finalize().unwrap();
        let error = exec.prepare().deadline(in_a_second()).submit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert_eq!(count.get(), 4);
    });
}

#[test]
fn a_failure_says_more_than_the_deadline() {
    paused().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let mut graph = Graph::new(&device);
        let fails = graph.host_task((), async |()| {
            advance(2 * SECOND).await;
            Err::<(), _>("broken")
        });
        let fails = fails.id();
        graph.launch(held_kernel(&hold).call(), Range::linear(1)).after([fails]);
        let held = graph.launch(held_kernel(&hold).call(), Range::linear(1)).id();
        graph.host_task((), async |()| {}).after([held]);
        let exec = graph.finalize().unwrap();
        let submission = exec.prepare().deadline(in_a_second()).submit();
        hold.wait_for(1);
        yield_often().await;
        hold.open();
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::HostTaskFailed);
    });
}

#[test]
fn a_blocking_host_task_that_waits_for_a_thread_is_not_called_late() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    // The clock stands still while a blocking task runs.
    let runtime = builder.enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let (device, hold, count) = (device(), Hold::new(), Count::default());
        let held = hold.held();
        tokio::task::spawn_blocking(move || held.pass());
        hold.wait_for(1);
        let mut graph = Graph::new(&device);
        let counter = count.clone();
        graph.host_task_blocking((), move |()| counter.add_one());
        let exec = graph.finalize().unwrap();
        let submission = exec.submit();
        yield_often().await;
        submission.cancel();
        hold.open();
        assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!(count.get(), 0);
    });
}

#[test]
fn a_runtime_without_a_timer_is_an_error() {
    current_thread().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let exec = held(&device, &hold);
        hold.open();
        // Nothing has to wait on the host here.
        exec.prepare().deadline(in_a_second()).submit().await.unwrap();
        let waiting = exec.prepare().after_future(pending::<()>()).deadline(in_a_second()).submit();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}
