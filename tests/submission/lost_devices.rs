//! A device that is lost resolves everything that is pending on it.

use wakegraph::{Buffer, Device, Error, ErrorKind, ExecutableGraph, Graph, Range};

use crate::common::{Count, current_thread, device, in_both_runtimes, manual, yield_often};

#[test]
fn everything_pending_resolves() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let (x, host) = (device.buffer::<u8>(4).unwrap(), device.host_buffer::<u8>(4).unwrap());
            let count = Count::default();
            let mut graph = Graph::new(&device);
            graph.fill(&x, 1);
            let single = graph.finalize().unwrap();
            graph.copy(&x, &host);
            let counter = count.clone();
            graph.host_task((wakegraph::read(&host),), async move |_| counter.add_one());
            graph.fill(&x, 2).after_leaves();
            let chain = graph.finalize().unwrap();
            // Two of each: one enqueued, one that waits for it.
            let submissions = [single.submit(), single.submit(), chain.submit(), chain.submit()];
            let waiting = single.prepare().after(&submissions[0]).submit();
            yield_often().await;
            control.lose_device();
            for submission in submissions.into_iter().chain([waiting]) {
                let error = submission.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
                assert!(error.device().is_some(), "{error}");
            }
            assert_eq!(count.get(), 0);
            for exec in [&single, &chain] {
                assert_eq!(exec.submit().await.unwrap_err().kind(), ErrorKind::DeviceLost);
            }
            assert_eq!(device.buffer::<u8>(1).unwrap_err().kind(), ErrorKind::DeviceLost);
            // A guard does not wait for what will never come.
            drop(host.read().await);
        }
    });
}

#[test]
fn other_devices_go_on() {
    in_both_runtimes(|| async {
        let (lost, control) = manual(true);
        let works = device();
        let count = Count::default();
        let x = lost.buffer::<u8>(4).unwrap();
        let mut graph = Graph::new(&works);
        let fill = graph.fill(&x, 1).id();
        graph.launch(count.kernel().call(), Range::linear(1)).on(&works);
        graph.launch(count.kernel().call(), Range::linear(1)).on(&works).after([fill]);
        let exec = graph.finalize().unwrap();
        let submission = exec.submit();
        yield_often().await;
        control.lose_device();
        let error = submission.await.unwrap_err();
        assert_eq!((error.kind(), error.device()), (ErrorKind::DeviceLost, Some(lost.selector())), "{error}");
        assert_eq!(count.get(), 1);
    });
}

/// A graph of fills of `x`, one after the other, with these names.
fn fills(device: &Device, x: &Buffer<u8>, names: &[&str]) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    for &name in names {
        graph.fill(x, 1).name(name);
    }
    graph.finalize().unwrap()
}

#[track_caller]
fn lost(error: &Error, node: Option<&str>, words: &str) {
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
    assert!(error.device().is_some(), "{error}");
    assert_eq!(error.node(), node, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn an_error_names_the_node_in_flight_not_those_behind_it() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let (x, y) = (device.buffer::<u8>(4).unwrap(), device.buffer::<u8>(4).unwrap());
            let exec = fills(&device, &x, &["culprit"]);
            let conflicting = fills(&device, &x, &["conflicting"]);
            let other = fills(&device, &y, &["other"]);
            // What has ended is not to blame, nor is anybody behind it.
            let earlier = [exec.submit(), conflicting.submit(), other.submit()];
            assert_eq!(control.complete_all(), 3);
            for submission in earlier {
                submission.await.unwrap();
            }
            let first = exec.submit();
            let behind = [exec.submit(), conflicting.submit()];
            let independent = other.submit();
            control.lose_device();
            // In any order.
            for submission in behind {
                let error = submission.await.unwrap_err();
                lost(&error, None, "queued behind another that was still in flight");
                assert_eq!(error.partition(), Some(0), "{error}");
            }
            lost(&first.await.unwrap_err(), Some("buffer fill 'culprit' (#0)"), "the device is gone [");
            lost(&independent.await.unwrap_err(), Some("buffer fill 'other' (#0)"), "the device is gone [");
            lost(&exec.submit().await.unwrap_err(), None, "the device is gone");
        }
    });
}

#[test]
fn a_submission_inherits_the_error_of_its_wait_list() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let (x, y) = (device.buffer::<u8>(4).unwrap(), device.buffer::<u8>(4).unwrap());
            let (exec, after) = (fills(&device, &x, &["culprit"]), fills(&device, &y, &["behind"]));
            let first = exec.submit();
            let behind = after.prepare().after(&first).submit();
            control.lose_device();
            for submission in [behind, first] {
                lost(
                    &submission.await.unwrap_err(),
                    Some("buffer fill 'culprit' (#0)"),
                    "the device is gone",
                );
            }
        }
    });
}

#[test]
fn of_several_nodes_in_flight_some_are_listed() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            for (names, words) in [
                (&["a", "b"][..], "'a' (#0) and buffer fill 'b' (#1) of partition 0 ["),
                (&["a", "b", "c", "d", "e", "f"], "'e' (#4) and 1 other of partition 0 ["),
                (&["a", "b", "c", "d", "e", "f", "g", "h"], "'e' (#4) and 3 others of partition 0 ["),
            ] {
                let (device, control) = manual(notifies);
                let x = device.buffer::<u8>(4).unwrap();
                let submission = fills(&device, &x, names).submit();
                control.lose_device();
                let error = submission.await.unwrap_err();
                lost(&error, None, "gone, in one of the nodes buffer fill 'a' (#0)");
                lost(&error, None, words);
                assert_eq!(error.partition(), Some(0), "{error}");
            }
        }
    });
}

// host task -> fill a -> host task -> fill c
// host task -> fill b
#[test]
fn of_several_partitions_in_flight_none_is_named() {
    // One thread: what is pending on the device has been enqueued altogether.
    current_thread().block_on(async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let buffers = [(); 3].map(|()| device.buffer::<u8>(4).unwrap());
            let mut graph = Graph::new(&device);
            let [left, right] = [(); 2].map(|()| graph.host_task((), async |()| ()).id());
            let a = graph.fill(&buffers[0], 1).name("a").after([left]).id();
            graph.fill(&buffers[1], 1).name("b").after([right]);
            let join = graph.host_task((), async |()| ()).after([a]).id();
            graph.fill(&buffers[2], 1).name("c").after([join]);
            let exec = graph.finalize().unwrap();

            let submission = exec.submit();
            while control.pending() < 2 {
                tokio::task::yield_now().await;
            }
            control.lose_device();
            let error = submission.await.unwrap_err();
            let words = "in one of the nodes buffer fill 'a' (#2) and buffer fill 'b' (#3) [on ";
            lost(&error, None, words);
            assert_eq!(error.partition(), None, "{error}");
        }
    });
}

#[test]
fn a_driver_error_of_several_nodes_lists_them() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let x = device.buffer::<u8>(4).unwrap();
            let exec = fills(&device, &x, &["a", "b"]);
            let submission = exec.submit();
            control.fail_next(Error::new(ErrorKind::Driver, "error 999"));
            control.complete_all();
            let error = submission.await.unwrap_err();
            let words =
                "error 999, in one of the nodes buffer fill 'a' (#0) and buffer fill 'b' (#1) of partition 0";
            assert!(error.to_string().contains(words), "{error}");
        }
    });
}

// host task -> fill, many times side by side
#[test]
fn a_loss_is_located_once_per_run() {
    const BRANCHES: usize = 100;
    current_thread().block_on(async {
        let (device, control) = manual(true);
        let mut graph = Graph::new(&device);
        for _ in 0..BRANCHES {
            let task = graph.host_task((), async |()| ()).id();
            graph.fill(&device.buffer::<u8>(4).unwrap(), 1).after([task]);
        }
        let submission = graph.finalize().unwrap().submit();
        while control.pending() < BRANCHES {
            tokio::task::yield_now().await;
        }
        let before = control.polls();
        control.lose_device();
        lost(&submission.await.unwrap_err(), None, "in one of the nodes");
        // Every partition fails, and each location reads the status of every partition.
        let polls = control.polls() - before;
        assert!(polls < 10 * BRANCHES as u64, "{polls} polls of {BRANCHES} events");
    });
}
