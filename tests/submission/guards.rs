//! Host guards in the order of submissions.

use std::task::Poll;

use wakegraph::memory::AccessMode;
use wakegraph::{ErrorKind, ExecutableGraph, Graph, HostBuffer, Range};

use crate::common::{Count, current_thread, device, held_kernel, in_both_runtimes, yield_often};
use crate::support::{Hold, block_on, must_end};

/// held kernel -> copy of 7s to the host buffer
fn filling(device: &wakegraph::Device, host: &HostBuffer<u32>, hold: &Hold) -> ExecutableGraph {
    let x = device.buffer::<u32>(host.len()).unwrap();
    let mut graph = Graph::new(device);
    let held = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    graph.fill(&x, 7).after([held]);
    graph.copy(&x, host);
    graph.finalize().unwrap()
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
}

#[test]
fn a_guard_waits_for_the_submissions_before_it() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let submission = filling(&device, &host, &hold).submit();
        let mut reading = Box::pin(host.read());
        assert!(poll_once(&mut reading).await.is_pending());
        assert_eq!(host.try_read().unwrap_err().kind(), ErrorKind::InvalidOperation);
        assert_eq!(host.try_write().unwrap_err().kind(), ErrorKind::InvalidOperation);
        hold.open();
        assert_eq!(*reading.await, [7; 4]);
        assert!(submission.is_finished());
        assert_eq!(*host.try_read().unwrap(), [7; 4]);
    });
}

#[test]
fn submissions_wait_for_the_guards_before_them() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let exec = filling(&device, &host, &hold);
        hold.open();
        let mut guard = host.write().await;
        let submission = exec.submit();
        yield_often().await;
        assert_eq!(hold.arrived(), 0, "the submission has not started");
        guard.fill(1);
        assert_eq!(*guard, [1; 4]);
        drop(guard);
        submission.await.unwrap();
        assert_eq!(*host.read().await, [7; 4]);
    });
}

#[test]
fn readers_share_and_writers_do_not() {
    in_both_runtimes(|| async {
        let host = device().host_buffer_from(&[1u32, 2]).unwrap();
        let (a, b) = (host.read().await, host.read().await);
        assert_eq!((*a).to_vec(), (*b).to_vec());
        assert!(host.try_read().is_ok());
        assert!(host.try_write().is_err());
        let mut writing = Box::pin(host.write());
        assert!(poll_once(&mut writing).await.is_pending());
        // A reader that comes after the writer waits for it.
        assert!(host.try_read().is_err());
        drop((a, b));
        let mut guard = writing.await;
        guard[0] = 9;
        assert!(host.try_read().is_err() && host.try_write().is_err());
        drop(guard);
        assert_eq!(*host.read().await, [9, 2]);
    });
}

#[test]
fn a_reader_does_not_hold_submissions_that_only_read() {
    in_both_runtimes(|| async {
        let device = device();
        let (host, x) = (device.host_buffer_from(&[3u32; 4]).unwrap(), device.buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&device);
        graph.copy(&host, &x);
        let exec = graph.finalize().unwrap();
        let guard = host.read().await;
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), *guard);
    });
}

#[test]
fn disjoint_slices_do_not_wait_for_each_other() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(8).unwrap();
        let (low, high) = (host.slice(..4).unwrap(), host.slice(4..).unwrap());
        let submission = filling(&device, &low, &hold).submit();
        high.write().await.fill(1);
        assert!(low.try_read().is_err());
        hold.open();
        submission.await.unwrap();
        assert_eq!(*host.read().await, [7, 7, 7, 7, 1, 1, 1, 1]);
    });
}

#[test]
fn giving_up_a_place_frees_those_behind() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let exec = filling(&device, &host, &hold);
        let first = exec.submit();
        let mut writing = Box::pin(host.write());
        assert!(poll_once(&mut writing).await.is_pending());
        let second = exec.submit();
        drop(writing);
        hold.open();
        first.await.unwrap();
        second.await.unwrap();
        assert_eq!(hold.arrived(), 2);
    });
}

#[test]
fn executables_finalized_while_a_guard_is_held_wait_too() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let guard = host.write().await;
        hold.open();
        let submission = filling(&device, &host, &hold).submit();
        yield_often().await;
        assert_eq!(hold.arrived(), 0);
        drop(guard);
        submission.await.unwrap();
    });
}

#[test]
fn guards_move_between_threads() {
    const TASKS: u64 = if cfg!(miri) { 8 } else { 100 };
    in_both_runtimes(|| async {
        let (device, count) = (device(), Count::default());
        let host = device.host_buffer::<u64>(1).unwrap();
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let (host, count) = (host.clone(), count.clone());
                tokio::spawn(async move {
                    let mut guard = host.write().await;
                    let before = guard[0];
                    tokio::task::yield_now().await;
                    guard[0] = before + 1;
                    count.add_one();
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((host.read().await[0], count.get()), (TASKS, TASKS as usize));
    });
}

#[test]
fn free_guards_leave_other_tasks_their_turn() {
    must_end(|| {
        current_thread().block_on(async {
            let (device, other) = (device(), tokio::spawn(async {}));
            let host = device.host_buffer::<u32>(4).unwrap();
            while !other.is_finished() {
                host.write().await[0] += 1;
                assert_eq!(host.read().await[1], 0);
            }
        });
    });
}

#[test]
fn free_guards_come_in_executors_inside_tasks() {
    must_end(|| {
        current_thread().block_on(async {
            let host = device().host_buffer::<u32>(4).unwrap();
            let blocking = tokio::spawn(async move {
                block_on(async {
                    for _ in 0..1000 {
                        host.write().await[0] += 1;
                    }
                    assert_eq!(host.read().await[0], 1000);
                });
            });
            blocking.await.unwrap();
        });
    });
}

#[test]
fn what_is_ready_at_once_leaves_other_tasks_their_turn() {
    must_end(|| {
        current_thread().block_on(async {
            let device = device();
            let (queue, x) = (device.queue().unwrap(), device.buffer::<u32>(4).unwrap());
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                queue.wait().await.unwrap();
            }
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                drop(x.lend(AccessMode::Read).await.unwrap());
            }
            let other = tokio::spawn(async {});
            while !other.is_finished() {
                device.drain().await;
            }
        });
    });
}

#[test]
fn a_cancelled_submission_resolves_while_a_guard_is_held() {
    must_end(|| {
        in_both_runtimes(|| async {
            let (device, hold) = (device(), Hold::new());
            let host = device.host_buffer::<u32>(4).unwrap();
            let exec = filling(&device, &host, &hold);
            let guard = host.write().await;
            let submission = exec.submit();
            submission.cancel();
            let event = submission.event();
            assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
            assert!(!event.is_finished(), "it keeps its place in the order");
            drop(guard);
            assert_eq!(event.wait().await.unwrap_err().kind(), ErrorKind::Cancelled);
            assert_eq!(hold.arrived(), 0);
        })
    });
}

#[test]
fn progress_names_the_guard_that_is_waited_for() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let host = device.host_buffer::<u32>(4).unwrap();
        let (exec, other) = (filling(&device, &host, &hold), filling(&device, &host, &hold));
        let places = [line!() + 1, line!() + 2];
        let first_guard = host.read().await;
        let second_guard = host.try_read().unwrap();
        let submissions = [exec.submit(), exec.submit(), other.submit()];
        let waits = submissions.each_ref().map(|submission| submission.progress().unwrap());
        let guards: Vec<_> = places.iter().map(|line| format!("guards.rs:{line}:")).collect();
        let [first, second, third] = &waits;
        assert_eq!(first.waits_for.len(), 2, "{first}");
        let of = format!("of the host buffer {} (16 bytes on {})", host.resource(), device.selector());
        let (of_reader, of_writer) =
            (format!("a `HostRef` {of}, taken at "), format!("a `HostMut` {of}, requested at "));
        for place in &guards {
            let is_named = |cause: &&String| cause.starts_with(&of_reader) && cause.contains(place.as_str());
            assert_eq!(first.waits_for.iter().filter(is_named).count(), 1, "{first}");
            assert!(first.to_string().contains(place), "{first}");
        }
        assert!(first.partitions[0].to_string().ends_with(" waits for its turn"), "{first}");
        let is_first = |cause: &String| {
            cause.starts_with("submission 1 of the same executable, behind a `HostRef` of the host buffer")
        };
        assert!(second.waits_for.iter().any(is_first), "{second}");
        let is_second = |cause: &String| cause.starts_with("submission 2 of the executable of (kernel ");
        assert!(third.waits_for.iter().any(is_second), "{third}");
        let mut next = Box::pin(host.write());
        assert!(poll_once(&mut next).await.is_pending());
        let last = exec.submit();
        let progress = last.progress().unwrap();
        let waits_itself = |cause: &String| {
            cause.starts_with(&of_writer) && cause.ends_with(", which waits for its turn itself")
        };
        assert!(progress.waits_for.iter().any(waits_itself), "{progress}");
        hold.open();
        drop((first_guard, second_guard, next));
        for submission in submissions.into_iter().chain([last]) {
            submission.await.unwrap();
        }
    });
}
