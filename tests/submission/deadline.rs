//! Deadlines: what would start too late does not start, what has started runs out.
//!
//! The clock is tokio's, and paused: it moves when the test says so, or when nothing else can happen.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Instant, advance};
use wakegraph::kernel::RawKernel;
use wakegraph::{Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Range, Submission};

use crate::cancel::endless;
use crate::common::{Count, current_thread, device, held, held_kernel, manual, polled_device, yield_often};
use crate::support::{Hold, must_end};

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

/// A host buffer, and an executable that copies it to the device.
fn upload(device: &Device) -> (HostBuffer<u32>, ExecutableGraph) {
    let host = device.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&host, device.buffer::<u32>(4).unwrap()).name("upload");
    (host, graph.finalize().unwrap())
}

#[test]
fn a_deadline_passes_while_a_guard_is_held() {
    must_end(|| {
        paused().block_on(async {
            for device in [device(), polled_device()] {
                let (host, exec) = upload(&device);
                let line = line!() + 1;
                let guard = host.write().await;
                let mut late = exec.prepare().deadline(in_a_second()).submit();
                for _ in 0..2 {
                    let error = (&mut late).await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
                    assert!(error.to_string().contains(&format!("deadline.rs:{line}:")), "{error}");
                }
                let event = late.event();
                assert!(!event.is_finished(), "it keeps its place in the order");
                assert!(host.try_write().is_err());
                drop(guard);
                assert_eq!(event.wait().await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
                exec.submit().await.unwrap();
            }
        })
    });
}

#[test]
fn a_deadline_passes_behind_a_run_that_waits_for_a_guard() {
    must_end(|| {
        paused().block_on(async {
            let device = device();
            let (host, exec) = upload(&device);
            let guard = host.write().await;
            let first = exec.submit();
            let late = exec.prepare().deadline(in_a_second()).submit();
            assert_eq!(late.await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
            drop(guard);
            first.await.unwrap();
        })
    });
}

#[test]
fn a_late_submission_waits_for_a_run_once_its_guard_is_dropped() {
    paused().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        let copied = graph.copy(&host, device.buffer::<u32>(4).unwrap()).id();
        graph.launch(held_kernel(&hold).call(), Range::linear(1)).after([copied]);
        let exec = graph.finalize().unwrap();
        let guard = host.write().await;
        let first = exec.submit();
        let mut late = exec.prepare().deadline(in_a_second()).submit();
        yield_often().await;
        drop(guard);
        yield_often().await;
        hold.wait_for(1);
        advance(2 * SECOND).await;
        yield_often().await;
        assert!((&mut late).now_or_never().is_none(), "the first one still runs");
        hold.open();
        first.await.unwrap();
        assert_eq!(late.await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        assert_eq!(hold.arrived(), 1);
    });
}

/// An executable of devices only, and submissions of it or on its memory with a deadline of a second behind
/// the first one, as a function adds them.
fn behind_a_run(late: impl Fn(&ExecutableGraph, &ExecutableGraph) -> Submission) {
    paused().block_on(async {
        for device in [device(), polled_device()] {
            let (hold, count) = (Hold::new(), Count::default());
            let x = device.buffer::<u32>(1).unwrap();
            let on_memory = |kernel: &Arc<RawKernel>| {
                let mut graph = Graph::new(&device);
                graph.launch(kernel.call(), Range::linear(1));
                graph.fill(&x, 1).name("fill");
                graph.finalize().unwrap()
            };
            let (exec, other) = (on_memory(&held_kernel(&hold)), on_memory(&count.kernel()));
            let first = exec.submit();
            let late = late(&exec, &other);
            let after_late = other.submit();
            hold.wait_for(1);
            advance(2 * SECOND).await;
            yield_often().await;
            assert!(!late.is_finished(), "the first one still runs");
            hold.open();
            first.await.unwrap();
            let error = late.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
            after_late.await.unwrap();
            assert_eq!((hold.arrived(), count.get()), (1, 1), "the late one has not run");
            // In time it runs, and also when what came before it is over.
            let before = exec.submit();
            exec.prepare().deadline(in_a_second()).submit().await.unwrap();
            before.await.unwrap();
            other.prepare().deadline(in_a_second()).submit().await.unwrap();
            assert_eq!((hold.arrived(), count.get()), (3, 2));
        }
    });
}

#[test]
fn a_late_run_of_devices_only_is_not_run() {
    behind_a_run(|exec, _| exec.prepare().deadline(in_a_second()).submit());
}

#[test]
fn a_late_run_on_the_memory_of_another_is_not_run() {
    behind_a_run(|_, other| other.prepare().deadline(in_a_second()).submit());
}

#[test]
fn a_late_run_behind_one_that_waits_is_not_run() {
    behind_a_run(|exec, other| {
        exec.prepare().deadline(in_a_second()).submit().cancel();
        other.prepare().deadline(in_a_second()).submit()
    });
}

#[test]
fn waiting_for_an_event_ends_at_the_deadline() {
    paused().block_on(async {
        let (device, hold, count) = (device(), Hold::new(), Count::default());
        let first = held(&device, &hold).submit();
        let exec = count.graph(&device);
        let late = exec.prepare().after(&first).deadline(in_a_second()).submit();
        hold.wait_for(1);
        advance(2 * SECOND).await;
        yield_often().await;
        assert!(late.is_finished(), "the first one still runs");
        assert_eq!(late.await.unwrap_err().kind(), ErrorKind::DeadlineExceeded);
        hold.open();
        first.await.unwrap();
        assert_eq!(count.get(), 0);
    });
}

/// Lets the iteration end that is held as number `arrived`. The loop ends with it.
async fn ends_with_its_iteration(submission: &Submission, hold: &Hold, arrived: usize) {
    hold.release_one();
    while !submission.is_finished() {
        assert_eq!(hold.arrived(), arrived, "another iteration has begun");
        yield_now().await;
    }
}

#[test]
fn a_loop_of_the_host_device_starts_no_late_iteration() {
    paused().block_on(async {
        for device in [device(), polled_device()] {
            for beside in [false, true] {
                let hold = Hold::new();
                let exec = endless(&device, &hold, beside);
                for round in 1..=3 {
                    let submission = exec.prepare().deadline(in_a_second()).submit();
                    hold.wait_for(round);
                    advance(2 * SECOND).await;
                    yield_often().await;
                    assert!(!submission.is_finished(), "its kernel still runs");
                    ends_with_its_iteration(&submission, &hold, round).await;
                    let error = submission.await.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
                    assert!(error.node().is_some_and(|node| node.contains("endless")), "{error}");
                }
                assert_eq!(hold.arrived(), 3);
                // One without a deadline goes on.
                let submission = exec.submit();
                hold.wait_for(4);
                advance(2 * SECOND).await;
                hold.release_one();
                hold.wait_for(5);
                submission.cancel();
                hold.release_one();
                assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
            }
        }
    });
}

// The body is replaced by one that loops.
#[test]
fn a_loop_that_an_update_brings_starts_no_late_iteration() {
    paused().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let flag = device.host_buffer_from(&[1u32]).unwrap();
        let mut round = Graph::new(&device);
        round.launch(held_kernel(&hold).call(), Range::linear(1));
        let conditional = |body: &Graph| {
            let mut graph = Graph::new(&device);
            graph.if_nonzero(&flag, body).name("around");
            graph
        };
        let mut looping = Graph::new(&device);
        looping.while_nonzero(&flag, &round);
        let options = FinalizeOptions::new().updatable(true);
        let exec = conditional(&round).finalize_with(options).unwrap();
        exec.update_from(&conditional(&looping)).await.unwrap();
        let submission = exec.prepare().deadline(in_a_second()).submit();
        hold.wait_for(1);
        advance(2 * SECOND).await;
        yield_often().await;
        ends_with_its_iteration(&submission, &hold, 1).await;
        let error = submission.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
        assert!(error.node().is_some_and(|node| node.contains("around")), "{error}");
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
        // No timer is needed here, also behind another one.
        let first = exec.submit();
        exec.prepare().deadline(in_a_second()).submit().await.unwrap();
        first.await.unwrap();
        let waiting = exec.prepare().after_future(pending::<()>()).deadline(in_a_second()).submit();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Unavailable);
        let looping = endless(&device, &hold, false).prepare().deadline(in_a_second()).submit();
        assert_eq!(looping.await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}
