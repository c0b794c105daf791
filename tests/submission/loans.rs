//! Loans of device memory in the order of submissions.
#![expect(unsafe_code, reason = "asks for loans on queues, with handles that are not used")]

use std::ptr;
use std::task::Poll;

use wakegraph::memory::AccessMode;
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Range};

use crate::common::{device, held_kernel, in_both_runtimes, yield_often};
use crate::support::Hold;

/// held kernel -> 7s in the buffer
fn filling(device: &Device, x: &Buffer<u32>, hold: &Hold) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    let held = graph.launch(held_kernel(hold).call(), Range::linear(1)).id();
    graph.fill(x, 7).after([held]);
    graph.finalize().unwrap()
}

/// buffer -> another one
fn reading(device: &Device, x: &Buffer<u32>) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.copy(x, device.buffer::<u32>(x.len()).unwrap());
    graph.finalize().unwrap()
}

async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::future::poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx))).await
}

#[test]
fn a_loan_waits_for_the_submissions_before_it() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer::<u32>(4).unwrap();
        let submission = filling(&device, &x, &hold).submit();
        let mut lending = Box::pin(x.lend(AccessMode::Read));
        assert!(poll_once(&mut lending).await.is_pending());
        hold.open();
        let loan = lending.await.unwrap();
        assert!(submission.is_finished());
        assert_eq!(loan.buffer().len(), 4);
    });
}

#[test]
fn submissions_wait_for_the_loans_before_them() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer::<u32>(4).unwrap();
        let (exec, read) = (filling(&device, &x, &hold), reading(&device, &x));
        hold.open();
        let shared = [x.lend(AccessMode::Read).await.unwrap(), x.lend(AccessMode::Read).await.unwrap()];
        read.submit().await.unwrap();
        let submission = exec.submit();
        let mut exclusive = Box::pin(x.lend(AccessMode::ReadWrite));
        assert!(poll_once(&mut exclusive).await.is_pending());
        let [one, other] = shared;
        drop(one);
        yield_often().await;
        assert_eq!(hold.arrived(), 0, "the submission has not started");
        drop(other);
        let loan = exclusive.await.unwrap();
        assert!(submission.is_finished());
        let waits = read.submit();
        yield_often().await;
        assert!(!waits.is_finished());
        drop(loan);
        waits.await.unwrap();
    });
}

#[test]
fn a_loan_that_is_given_up_lets_others_go_on() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer::<u32>(4).unwrap();
        let submission = filling(&device, &x, &hold).submit();
        let mut lending = Box::pin(x.lend(AccessMode::ReadWrite));
        assert!(poll_once(&mut lending).await.is_pending());
        drop(lending);
        let read = reading(&device, &x).submit();
        hold.open();
        submission.await.unwrap();
        read.await.unwrap();
    });
}

#[test]
fn loans_that_a_queue_cannot_wait_for_are_refused() {
    in_both_runtimes(|| async {
        let (device, hold) = (device(), Hold::new());
        let x = device.buffer::<u32>(4).unwrap();
        let lend_to = || {
            // SAFETY: the handle is null, and the host has no queues of other libraries.
            unsafe { x.lend_to(AccessMode::Read, ptr::null_mut()) }
        };
        drop(lend_to().unwrap());
        let submission = filling(&device, &x, &hold).submit();
        assert_eq!(lend_to().unwrap_err().kind(), ErrorKind::FeatureNotSupported);
        hold.open();
        submission.await.unwrap();
        let held = x.lend(AccessMode::Write).await.unwrap();
        assert_eq!(lend_to().unwrap_err().kind(), ErrorKind::InvalidOperation);
        drop(held);
        drop(lend_to().unwrap());
        let scratch = Graph::new(&device).scratch::<u32>(4).unwrap();
        let refused = scratch.lend(AccessMode::Read).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    });
}
