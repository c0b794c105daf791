//! Waiting for the end of all that is on a device, and shutting it down.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::oneshot;
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, Health, Range};

use crate::common::{Count, held, in_both_runtimes, manual, yield_often};
use crate::deadline::paused;
use crate::support::Hold;

const LONG: Duration = Duration::from_secs(3600);

fn fill(device: &Device) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.fill(&device.buffer::<u8>(4).unwrap(), 1).name("fill");
    graph.finalize().unwrap()
}

#[test]
fn an_idle_device_is_drained_at_once() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            device.drain().await;
            let (exec, queue) = (fill(&device), device.queue().unwrap());
            let submission = exec.submit();
            let command = queue.fill(&device.buffer::<u8>(4).unwrap(), 1);
            assert_eq!(device.in_flight().len(), 2);
            control.complete_all();
            device.drain().await;
            assert!(submission.is_finished() && command.is_finished());
            assert!(device.in_flight().is_empty());
        }
    });
}

#[test]
fn drain_waits_for_all_that_was_submitted_before() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let (one, two) = (fill(&device), fill(&device));
            let queue = device.queue().unwrap();
            for _ in 0..3 {
                drop((one.submit(), two.submit()));
                queue.fill(&device.buffer::<u8>(4).unwrap(), 1);
            }
            drop((one, queue));
            let mut drain = pin!(device.drain());
            let mut left = 9;
            assert_eq!(device.in_flight().len(), left);
            while left > 0 {
                assert!((&mut drain).now_or_never().is_none(), "{left} are in flight");
                assert!(control.complete_next(None));
                left -= 1;
            }
            drain.await;
        }
    });
}

#[test]
fn drain_does_not_wait_for_what_comes_later() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let exec = fill(&device);
        drop(exec.submit());
        let mut drain = pin!(device.drain());
        assert!((&mut drain).now_or_never().is_none());
        let later = exec.submit();
        control.complete_next(None);
        drain.await;
        assert!(!later.is_finished());
        control.complete_all();
    });
}

#[test]
fn many_executables_that_are_gone_leave_nothing_behind() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        for _ in 0..100 {
            drop(fill(&device).submit());
            drop(device.queue().unwrap().fill(&device.buffer::<u8>(4).unwrap(), 1));
        }
        assert_eq!(device.in_flight().len(), 200);
        control.complete_all();
        device.drain().await;
        assert!(device.in_flight().is_empty());
    });
}

#[test]
fn a_device_that_was_shut_down_refuses_new_work() {
    paused().block_on(async {
        let device = crate::common::device();
        let (x, queue) = (device.buffer::<u8>(4).unwrap(), device.queue().unwrap());
        let exec = fill(&device);
        device.shutdown(LONG).await.unwrap();
        assert!(matches!(*device.health().borrow(), Health::ShutDown));
        let refusals = [
            exec.submit().await,
            exec.prepare().submit().await,
            queue.fill(&x, 1).await,
            queue.submit(&exec).await,
            x.to_vec().await.map(drop),
            Graph::new(&device).finalize().map(drop),
        ];
        for (index, refusal) in refusals.into_iter().enumerate().take(5) {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{index}: {error}");
            assert_eq!(error.device(), Some(device.selector()), "{index}: {error}");
        }
        // For good.
        device.shutdown(LONG).await.unwrap();
    });
}

#[test]
fn what_was_submitted_before_a_shutdown_ends() {
    paused().block_on(async {
        let (device, count, hold) = (crate::common::device(), Count::default(), Hold::new());
        let (send, receive) = oneshot::channel::<()>();
        let waiting = count.graph(&device).prepare().after_future(receive).submit();
        // A loop that the runtime drives submits its body again and again.
        let flag = device.host_buffer_from(&[3u32]).unwrap();
        let mut body = Graph::new(&device);
        let counter = count.clone();
        body.launch(count.kernel().call(), Range::linear(1));
        body.host_task((wakegraph::write(&flag),), async move |(mut flag,)| {
            flag[0] -= 1;
            counter.add_one();
        });
        let mut graph = Graph::new(&device);
        graph.while_nonzero(&flag, &body);
        let looping = graph.finalize().unwrap().submit();
        let held = held(&device, &hold).submit();
        let mut shutdown = pin!(device.shutdown(Duration::MAX));
        assert!((&mut shutdown).now_or_never().is_none());
        looping.await.unwrap();
        assert_eq!(count.get(), 6);
        hold.open();
        held.await.unwrap();
        yield_often().await;
        assert!((&mut shutdown).now_or_never().is_none(), "one waits for its future");
        send.send(()).unwrap();
        shutdown.await.unwrap();
        waiting.await.unwrap();
        assert_eq!(count.get(), 7);
    });
}

#[test]
fn a_shutdown_reports_what_did_not_end() {
    paused().block_on(async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let exec = fill(&device);
            let submissions: Vec<_> = (0..5).map(|_| exec.submit()).collect();
            let error = device.shutdown(Duration::from_secs(5)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
            let text = error.to_string();
            assert!(text.contains("5 submissions are still in flight after 5s"), "{text}");
            assert!(text.contains("fill") && text.contains("is running"), "{text}");
            control.complete_all();
            device.shutdown(Duration::MAX).await.unwrap();
            for submission in submissions {
                submission.await.unwrap();
            }
        }
    });
}
