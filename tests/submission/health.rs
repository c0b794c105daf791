//! The health of devices: lost ones, and those that hang. A device that hangs stalls no task.
//!
//! Where a test needs a clock, it is tokio's, and paused: it moves when nothing else can happen.

use std::pin::pin;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::time::{interval, sleep};
use wakegraph::profile::PartitionState;
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::{Device, ErrorKind, ExecutableGraph, Graph, Health, Range, read};

use crate::common::{Count, current_thread, device, held_kernel, manual, multi_thread, yield_often};
use crate::deadline::paused;
use crate::support::Hold;

const SECOND: Duration = Duration::from_secs(1);

/// A graph of one fill.
fn fill(device: &Device) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.fill(&device.buffer::<u8>(4).unwrap(), 1).name("fill");
    graph.finalize().unwrap()
}

#[test]
fn a_new_device_is_healthy() {
    let device = device();
    assert!(device.health().borrow().is_healthy());
    assert!(device.lost().now_or_never().is_none());
}

#[test]
fn a_loss_that_a_submission_meets_is_seen() {
    for notifies in [true, false] {
        current_thread().block_on(async {
            let (device, control) = manual(notifies);
            let exec = fill(&device);
            let submission = exec.submit();
            let mut health = device.health();
            let mut lost = pin!(device.lost());
            assert!((&mut lost).now_or_never().is_none());
            control.lose_device();
            // Nothing is polled but the submission.
            assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::DeviceLost);
            assert!(health.has_changed().unwrap());
            assert!(health.borrow_and_update().is_lost());
            assert_eq!(lost.await.kind(), ErrorKind::DeviceLost);
            assert!(!health.has_changed().unwrap(), "told once");
        });
    }
}

#[test]
fn a_loss_that_any_call_meets_is_seen() {
    type Call = fn(&Device, &ExecutableGraph);
    let calls: [(&str, Call); 5] = [
        ("allocate", |device, _| assert!(device.buffer::<u8>(1).is_err())),
        ("submit", |_, exec| assert!(exec.submit().is_finished())),
        ("queue", |device, _| assert!(device.queue().is_err())),
        ("finalize", |device, _| {
            let mut graph = Graph::new(device);
            graph.launch(Count::default().kernel().call(), Range::linear(1));
            assert!(graph.finalize().is_err());
        }),
        ("health", |device, _| drop(device.health())),
    ];
    for (name, call) in calls {
        let (device, control) = manual(true);
        let exec = fill(&device);
        let health = device.health();
        control.lose_device();
        call(&device, &exec);
        let Health::Lost(error) = health.borrow().clone() else { panic!("{name} was not heard of") };
        assert_eq!(
            (error.kind(), error.device()),
            (ErrorKind::DeviceLost, Some(device.selector())),
            "{name}"
        );
    }
}

#[test]
fn devices_that_are_lost_together_hear_of_it_together() {
    let (hal, control) = FakeDevice::open(FakeOptions::new().manual(true));
    // Two devices of one driver, which the driver loses both.
    let [one, other] = [(); 2].map(|()| Device::from_hal(hal.clone()));
    let unrelated = device();
    let health = other.health();
    control.lose_device();
    assert!(health.borrow().is_healthy(), "nobody has asked");
    assert!(one.buffer::<u8>(1).is_err());
    assert!(health.borrow().is_lost());
    assert!(unrelated.health().borrow().is_healthy());
}

#[test]
fn a_kernel_that_claims_a_loss_loses_no_device() {
    current_thread().block_on(async {
        let device = device();
        let claims = || Err(wakegraph::Error::new(ErrorKind::DeviceLost, "not true"));
        let exec = crate::common::single(&device, &crate::common::raw("claims", claims));
        assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::Driver);
        assert!(device.health().borrow().is_healthy());
    });
}

#[test]
fn watchers_in_other_tasks_are_woken() {
    multi_thread().block_on(async {
        let (device, control) = manual(true);
        let exec = fill(&device);
        let watching = device.clone();
        let watcher = tokio::spawn(async move { watching.lost().await.kind() });
        yield_often().await;
        control.lose_device();
        // Submitting fails under locks; the watcher is woken behind them.
        assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
        assert_eq!(watcher.await.unwrap(), ErrorKind::DeviceLost);
    });
}

#[test]
fn a_watchdog_names_what_hangs() {
    for notifies in [true, false] {
        paused().block_on(async {
            let (device, control) = manual(notifies);
            let exec = fill(&device);
            let mut health = device.health();
            let mut submission = exec.prepare().watchdog(SECOND).submit();
            let error = (&mut submission).await.unwrap_err();
            assert_eq!((error.kind(), error.partition()), (ErrorKind::Stalled, Some(0)), "{error}");
            assert!(error.node().is_some_and(|node| node.contains("fill")), "{error}");
            assert_eq!(error.device(), Some(device.selector()));
            let Health::Stalled(reported) = health.borrow_and_update().clone() else {
                panic!("not heard of")
            };
            assert_eq!(reported.to_string(), error.to_string());
            assert!(!submission.is_finished(), "the work goes on");

            control.complete_all();
            submission.await.unwrap();
            health.wait_for(Health::is_healthy).await.unwrap();
        });
    }
}

#[test]
fn a_watchdog_is_silent_when_the_work_is_over_in_time() {
    paused().block_on(async {
        let (device, control) = manual(true);
        let exec = fill(&device);
        let submission = exec.prepare().watchdog(SECOND).submit();
        yield_often().await;
        control.complete_all();
        submission.await.unwrap();
        sleep(2 * SECOND).await;
        assert!(device.health().borrow().is_healthy());
        // A dropped submission is watched as well.
        drop(exec.prepare().watchdog(SECOND).submit());
        sleep(2 * SECOND).await;
        assert!(matches!(*device.health().borrow(), Health::Stalled(_)));
        control.lose_device();
        assert!(device.health().borrow().is_lost());
    });
}

#[test]
fn a_watchdog_of_a_host_task_that_hangs_blames_no_device() {
    paused().block_on(async {
        let (device, _control) = manual(true);
        let mut graph = Graph::new(&device);
        let task = graph.host_task((), async |()| std::future::pending::<()>().await).name("asks").id();
        graph.fill(&device.buffer::<u8>(4).unwrap(), 1).after([task]);
        let exec = graph.finalize().unwrap();
        let submission = exec.prepare().watchdog(SECOND).submit();
        let event = submission.event();
        let guard = submission.cancel_on_drop();
        let error = guard.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stalled);
        assert!(error.node().is_some_and(|node| node.contains("asks")), "{error}");
        assert!(device.health().borrow().is_healthy());
        // The guard has cancelled it.
        assert_eq!(event.wait().await.unwrap_err().kind(), ErrorKind::Cancelled);
    });
}

#[test]
fn a_watchdog_outside_tokio_is_an_error() {
    let (device, control) = manual(true);
    let refused = fill(&device).prepare().watchdog(SECOND).submit();
    assert_eq!(control.pending(), 0);
    let error = refused.now_or_never().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    current_thread().block_on(async {
        let error = fill(&device).prepare().watchdog(SECOND).submit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_device_that_hangs_stalls_no_task() {
    for notifies in [true, false] {
        paused().block_on(async {
            let (device, control) = manual(notifies);
            let exec = fill(&device);
            let ticks = Count::default();
            let ticking = ticks.clone();
            let live = tokio::spawn(async move {
                let mut interval = interval(SECOND / 100);
                loop {
                    interval.tick().await;
                    ticking.add_one();
                }
            });
            let hung = tokio::spawn(exec.prepare().watchdog(SECOND).submit());
            let waiting: Vec<_> = (0..10).map(|_| tokio::spawn(exec.submit())).collect();
            let draining = tokio::spawn({
                let device = device.clone();
                async move { device.drain().await }
            });
            assert_eq!(hung.await.unwrap().unwrap_err().kind(), ErrorKind::Stalled);
            assert!(ticks.get() >= 100, "{} ticks in a second", ticks.get());
            assert_eq!(device.in_flight().len(), 11);
            let error = device.shutdown(SECOND).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded);
            assert!(error.to_string().contains("fill"), "{error}");
            assert!(ticks.get() >= 200, "{} ticks in two seconds", ticks.get());
            control.complete_all();
            for submission in waiting {
                submission.await.unwrap().unwrap();
            }
            draining.await.unwrap();
            live.abort();
        });
    }
}

#[test]
fn a_watchdog_names_the_guard_that_is_waited_for() {
    paused().block_on(async {
        let device = device();
        let host = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(&host, device.buffer::<u32>(4).unwrap()).name("upload");
        let exec = graph.finalize().unwrap();
        let line = line!() + 1;
        let guard = host.write().await;
        let mut submission = exec.prepare().watchdog(SECOND).submit();
        let error = (&mut submission).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Stalled);
        let text = error.to_string();
        assert!(text.contains("waits for a `HostMut` of the host buffer #"), "{text}");
        assert!(text.contains(&format!("health.rs:{line}:")), "{text}");
        drop(guard);
        submission.await.unwrap();
    });
}

#[test]
fn progress_tells_that_a_view_is_kept() {
    current_thread().block_on(async {
        let device = device();
        let host = device.host_buffer::<u32>(4).unwrap();
        let (send, mut views) = tokio::sync::mpsc::unbounded_channel();
        let mut graph = Graph::new(&device);
        graph.host_task((read(&host),), async move |(view,)| drop(send.send(view))).name("hand on");
        let exec = graph.finalize().unwrap();
        for round in 0..2 {
            let (first, second) = (exec.submit(), exec.submit());
            let view = views.recv().await.unwrap();
            yield_often().await;
            let progress = first.progress().unwrap();
            assert_eq!(progress.partitions[0].state, PartitionState::ViewsKept, "{progress}");
            assert!(progress.to_string().ends_with(" has ended, but views of its buffers are kept"));
            let behind = second.progress().unwrap();
            let earlier = format!("submission {} of the same executable", 2 * round + 1);
            assert_eq!(behind.waits_for, [earlier]);
            drop(view);
            first.await.unwrap();
            drop(views.recv().await.unwrap());
            second.await.unwrap();
        }
    });
}

#[test]
fn progress_tells_what_waits_for_what() {
    current_thread().block_on(async {
        let (device, hold) = (device(), Hold::new());
        let mut graph = Graph::new(&device);
        let first = graph.launch(held_kernel(&hold).call(), Range::linear(1)).name("first").id();
        let task = graph.host_task((), async |()| {}).after([first]).name("task").id();
        graph.launch(Count::default().kernel().call(), Range::linear(1)).after([task]).name("last");
        let exec = graph.finalize().unwrap();
        let (submission, behind) = (exec.submit(), exec.submit());
        hold.wait_for(1);
        let progress = submission.progress().unwrap();
        let states: Vec<_> = progress.partitions.iter().map(|partition| partition.state.clone()).collect();
        let waits = |on| PartitionState::Waiting { on: vec![on] };
        assert_eq!(states, [PartitionState::Running, waits(0), waits(1)]);
        assert!(progress.partitions[0].nodes[0].contains("first"), "{progress}");
        assert_eq!(progress.partitions[0].device.as_deref(), Some(device.selector()));
        assert_eq!(progress.partitions[1].device, None);
        assert_eq!(
            progress.to_string(),
            format!(
                "partition 0 ({}) on {} is running, partition 1 ({}) waits for partition 0, partition 2 ({}) on \
                 {} waits for partition 1",
                progress.partitions[0].nodes[0],
                device.selector(),
                progress.partitions[1].nodes[0],
                progress.partitions[2].nodes[0],
                device.selector()
            )
        );
        let behind_it = behind.progress().unwrap();
        assert_eq!(behind_it.partitions[0].state, PartitionState::Waiting { on: vec![] });
        assert_eq!(behind_it.waits_for, ["submission 1 of the same executable"]);
        hold.open();
        submission.await.unwrap();
        let event = behind.event();
        event.wait().await.unwrap();
        assert_eq!(behind.progress(), None);
    });
}
