//! A host task fails, which it can on every device: what depends on it does not run, and what only
//! follows it does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakegraph::{Buffer, Device, Error, ErrorKind, ExecutableGraph, Graph};

use crate::suite::{Need, Setup, tests};

tests!("graph/failures":
    &[] => [a_chain_of_submissions_inherits_the_first_failure, the_earliest_failure_of_a_wait_list_is_given],
    &[Need::Results] => [partitions_behind_a_failed_task_do_not_run, submissions_that_depend_on_a_failure_do_not_run]);

fn fill(device: &Device, buffer: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.fill(buffer, 7);
    graph.finalize().unwrap()
}

/// An executable of one host task that fails.
fn failing(device: &Device, why: &'static str) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.host_task((), async move |()| Err::<(), _>(why)).name("the culprit");
    graph.finalize().unwrap()
}

#[track_caller]
fn assert_failed(result: Result<(), Error>, why: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::HostTaskFailed, "{error}");
    assert!(error.to_string().contains(why), "{error}");
    assert!(error.node().is_some_and(|node| node.contains("the culprit")), "{error}");
}

fn a_chain_of_submissions_inherits_the_first_failure(setup: &Setup) {
    let device = setup.device();
    let buffers: Vec<_> = (0..4).map(|_| device.buffer::<u32>(4).unwrap()).collect();
    let execs: Vec<_> = buffers.iter().map(|buffer| fill(device, buffer)).collect();
    let first = failing(device, "connection refused");
    setup.block_on(async {
        let mut submissions = vec![first.submit()];
        for exec in &execs {
            let last = &submissions[submissions.len() - 1];
            let next = exec.prepare().after(last).submit();
            submissions.push(next);
        }
        for submission in submissions {
            assert_failed(submission.await, "connection refused");
        }
        // An inherited failure is no state of the executable.
        for exec in &execs {
            exec.submit().await.unwrap();
        }
    });
}

fn the_earliest_failure_of_a_wait_list_is_given(setup: &Setup) {
    let device = setup.device();
    let (early, late) = (failing(device, "the early one"), failing(device, "the late one"));
    let exec = fill(device, &device.buffer::<u32>(4).unwrap());
    setup.block_on(async {
        for late_first in [false, true] {
            let early = early.submit();
            assert_failed(early.event().wait().await, "the early one");
            let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
            let late = late.prepare().after_future(receiver).submit();
            let list = exec.prepare();
            let waiting = match late_first {
                true => list.after(&late).after(&early),
                false => list.after(&early).after(&late),
            }
            .submit();
            sender.send(()).unwrap();
            assert_failed(late.await, "the late one");
            assert_failed(waiting.await, "the early one");
        }
    });
}

//   the culprit    (fill z)
//       |
//    fill y
fn partitions_behind_a_failed_task_do_not_run(setup: &Setup) {
    let device = setup.device();
    let [y, z] = [(); 2].map(|()| device.buffer_from(&[1u32; 4]).unwrap());
    let fails = Arc::new(AtomicBool::new(true));
    let failing = fails.clone();
    let mut graph = Graph::new(device);
    let task = graph.host_task((), async move |()| match failing.load(Ordering::SeqCst) {
        true => Err("connection refused"),
        false => Ok(()),
    });
    let task = task.name("the culprit").id();
    graph.fill(&y, 7).after([task]);
    graph.fill(&z, 7);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        assert_failed(exec.submit().await, "connection refused");
        assert_eq!(y.to_vec().await.unwrap(), [1; 4], "it depends on the task");
        assert_eq!(z.to_vec().await.unwrap(), [7; 4], "it does not");
        fails.store(false, Ordering::SeqCst);
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [7; 4]);
    });
}

fn submissions_that_depend_on_a_failure_do_not_run(setup: &Setup) {
    let device = setup.device();
    let x = device.host_buffer::<u32>(4).unwrap();
    let [y, z] = [(); 2].map(|()| device.buffer_from(&[1u32; 4]).unwrap());
    // It writes what the failing task only declares, so it comes after that without depending on it.
    let mut graph = Graph::new(device);
    graph.copy(&z, &x);
    graph.fill(&z, 7);
    let following = graph.finalize().unwrap();
    let mut graph = Graph::new(device);
    graph
        .host_task((wakegraph::write(&x),), async |(_x,)| Err::<(), _>("connection refused"))
        .name("the culprit");
    let failing = graph.finalize().unwrap();
    let dependent = fill(device, &y);
    setup.block_on(async {
        let failed = failing.submit();
        let dependent = dependent.prepare().after(&failed).submit();
        let following = following.submit();
        assert_failed(failed.await, "connection refused");
        assert_failed(dependent.await, "connection refused");
        following.await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [1; 4], "it depends on the failed submission");
        assert_eq!(z.to_vec().await.unwrap(), [7; 4], "it only comes after it");
    });
}
