//! Failures while running: who is named, what is not started, what goes on, and that the executable
//! runs again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use wakegraph::{Device, Error, ErrorKind, ExecutableGraph, Graph, Range};

use crate::common::{Count, device, in_both_runtimes, polled_device, raw, single};
use crate::support::{PANIC, silence_expected_panics};

/// Kernel `fine`, then the failing node, then a kernel that depends on it; beside them three host
/// tasks that do not.
fn around(
    device: &Device,
    counts: &[Count; 2],
    add: impl FnOnce(&mut Graph) -> wakegraph::NodeId,
) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    let fine = graph.launch(raw("fine", || Ok(())).call(), Range::linear(1)).id();
    let failing = add(&mut graph);
    graph.make_edge(fine, failing).unwrap();
    graph.launch(counts[0].kernel().call(), Range::linear(1)).after([failing]);
    let mut last = None;
    for _ in 0..3 {
        let count = counts[1].clone();
        last = Some(graph.host_task((), async move |()| count.add_one()).after(last).id());
    }
    graph.finalize().unwrap()
}

async fn check(
    device: &Device,
    kind: ErrorKind,
    cause: &str,
    fails: &Arc<AtomicBool>,
    add: impl FnOnce(&mut Graph) -> wakegraph::NodeId,
) -> Error {
    let counts = [Count::default(), Count::default()];
    let exec = around(device, &counts, add);
    let mut last = None;
    for run in 1..=3 {
        fails.store(true, Ordering::SeqCst);
        let error = exec.submit().await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.node().is_some_and(|node| node.contains("the culprit")), "{error}");
        assert!(error.partition().is_some(), "{error}");
        assert!(error.to_string().contains(cause), "{error}");
        assert_eq!(counts[0].get(), run - 1, "what depends on it does not start");
        assert_eq!(counts[1].get(), 6 * run - 3, "what does not depend on it finishes");
        // The same executable again, and this time it works.
        fails.store(false, Ordering::SeqCst);
        exec.submit().await.unwrap();
        assert_eq!((counts[0].get(), counts[1].get()), (run, 6 * run));
        last = Some(error);
    }
    last.unwrap()
}

#[test]
fn kernels_that_fail_or_panic() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        for device in [device(), polled_device()] {
            let fails = Arc::new(AtomicBool::new(true));
            for panics in [false, true] {
                let failing = fails.clone();
                let kernel = raw("bad", move || match (failing.load(Ordering::SeqCst), panics) {
                    (false, _) => Ok(()),
                    (true, false) => Err(Error::new(ErrorKind::OutOfMemory, "no scratch space")),
                    (true, true) => std::panic::panic_any(PANIC),
                });
                let (kind, cause) = match panics {
                    false => (ErrorKind::OutOfMemory, "no scratch space"),
                    true => (ErrorKind::KernelPanicked, PANIC),
                };
                let add = |graph: &mut Graph| {
                    graph.launch(kernel.call(), Range::linear(1)).name("the culprit").id()
                };
                let error = check(&device, kind, cause, &fails, add).await;
                assert_eq!(error.device(), Some(device.selector()), "{error}");
                assert!(std::error::Error::source(&error).is_some() || panics, "{error}");
            }
        }
    });
}

#[test]
fn async_host_tasks() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let device = device();
        let fails = Arc::new(AtomicBool::new(true));
        let failing = fails.clone();
        check(&device, ErrorKind::HostTaskFailed, "connection refused", &fails, |graph| {
            let task = graph.host_task((), async move |()| match failing.load(Ordering::SeqCst) {
                true => Err("connection refused"),
                false => Ok(()),
            });
            task.name("the culprit").id()
        })
        .await;
        // In the part of the closure that is not async.
        let failing = fails.clone();
        check(&device, ErrorKind::HostTaskPanicked, PANIC, &fails, |graph| {
            let task = graph.host_task((), move |()| {
                if failing.load(Ordering::SeqCst) {
                    std::panic::panic_any(PANIC);
                }
                async {}
            });
            task.name("the culprit").id()
        })
        .await;
        // After an await.
        let failing = fails.clone();
        check(&device, ErrorKind::HostTaskPanicked, PANIC, &fails, |graph| {
            let task = graph.host_task((), async move |()| {
                tokio::task::yield_now().await;
                if failing.load(Ordering::SeqCst) {
                    std::panic::panic_any(PANIC);
                }
            });
            task.name("the culprit").id()
        })
        .await;
    });
}

#[test]
fn blocking_host_tasks() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let device = device();
        let fails = Arc::new(AtomicBool::new(true));
        for panics in [false, true] {
            let failing = fails.clone();
            let (kind, cause) = match panics {
                false => (ErrorKind::HostTaskFailed, "disk full"),
                true => (ErrorKind::HostTaskPanicked, PANIC),
            };
            check(&device, kind, cause, &fails, |graph| {
                let task =
                    graph.host_task_blocking((), move |()| match (failing.load(Ordering::SeqCst), panics) {
                        (false, _) => Ok(()),
                        (true, false) => Err("disk full"),
                        (true, true) => std::panic::panic_any(PANIC),
                    });
                task.name("the culprit").id()
            })
            .await;
        }
    });
}

#[test]
fn a_closure_whose_clone_panics() {
    struct Bomb(Arc<AtomicBool>);

    impl Clone for Bomb {
        fn clone(&self) -> Self {
            if self.0.load(Ordering::SeqCst) {
                std::panic::panic_any(PANIC);
            }
            Self(self.0.clone())
        }
    }

    silence_expected_panics();
    in_both_runtimes(|| async {
        let fails = Arc::new(AtomicBool::new(false));
        let bomb = Bomb(fails.clone());
        check(&device(), ErrorKind::HostTaskPanicked, PANIC, &fails.clone(), |graph| {
            let task = graph.host_task((), async move |()| drop(bomb));
            task.name("the culprit").id()
        })
        .await;
    });
}

#[test]
fn the_first_failure_is_the_submissions() {
    in_both_runtimes(|| async {
        let device = device();
        let mut graph = Graph::new(&device);
        let first = graph.host_task((), async |()| Err::<(), _>("first")).id();
        graph.host_task((), async |()| Err::<(), _>("second")).after([first]);
        let other = graph.host_task((), async |()| ()).id();
        graph.empty().after([first, other]);
        let exec = graph.finalize().unwrap();
        for _ in 0..10 {
            let error = exec.submit().await.unwrap_err();
            assert!(error.to_string().contains("first") && !error.to_string().contains("second"), "{error}");
        }
    });
}

#[test]
fn every_waiter_gets_the_error() {
    in_both_runtimes(|| async {
        let device = device();
        let exec =
            crate::common::single(&device, &raw("bad", || Err(Error::new(ErrorKind::Driver, "broken"))));
        let mut submission = exec.submit();
        let events = [submission.event(), submission.event()];
        let error = (&mut submission).await.unwrap_err();
        assert_eq!((&mut submission).await.unwrap_err().to_string(), error.to_string());
        for event in events {
            assert_eq!(event.wait().await.unwrap_err().to_string(), error.to_string());
            assert_eq!(event.await.unwrap_err().to_string(), error.to_string());
        }
    });
}

#[tokio::test]
async fn an_error_that_holds_a_view_does_not_hold_up_its_own_task() {
    let device = wakegraph::Device::open("host").unwrap();
    let buffer = device.host_buffer::<u32>(4).unwrap();
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    drop(receiver);
    let mut graph = wakegraph::Graph::new(&device);
    graph.host_task((wakegraph::read(&buffer),), async move |(view,)| {
        // The refused view comes back inside the error.
        sender.send(view).await.map_err(|refused| Box::new(Refused(refused.0)))
    });
    let error = graph.finalize().unwrap().submit().await.unwrap_err();
    assert_eq!(error.kind(), wakegraph::ErrorKind::HostTaskFailed);
    assert!(error.to_string().contains("the view was not taken"), "{error}");
}

struct Refused(#[expect(dead_code, reason = "held, not read")] wakegraph::HostRef<u32>);

impl std::fmt::Debug for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Refused")
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the view was not taken")
    }
}

impl std::error::Error for Refused {}

/// Panics when it is dropped, also as the payload of a panic.
#[derive(Debug)]
struct PanicsWhenDropped;

impl Drop for PanicsWhenDropped {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        std::panic::panic_any(PANIC);
    }
}

impl std::fmt::Display for PanicsWhenDropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it panics when it is dropped")
    }
}

impl std::error::Error for PanicsWhenDropped {}

/// Submits a graph of one host task, which panics or fails, and gives the error.
async fn error_of(add: impl FnOnce(&mut Graph) -> wakegraph::NodeId) -> Error {
    let mut graph = Graph::new(&device());
    add(&mut graph);
    let error = graph.finalize().unwrap().submit().await.unwrap_err();
    assert!(error.node().is_some_and(|node| node.contains("the culprit")), "{error}");
    error
}

#[test]
fn a_panic_whose_payload_panics_when_dropped_is_reported() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let panics = || -> () { std::panic::panic_any(PanicsWhenDropped) };
        let asynchronous =
            error_of(|graph| graph.host_task((), async move |()| panics()).name("the culprit").id());
        let blocking =
            error_of(|graph| graph.host_task_blocking((), move |()| panics()).name("the culprit").id());
        assert_eq!(asynchronous.await.kind(), ErrorKind::HostTaskPanicked);
        assert_eq!(blocking.await.kind(), ErrorKind::HostTaskPanicked);
        let waits = single(&device(), &raw("waits", || Ok(())));
        let waits = waits.prepare().after_future(async move { panics() });
        assert_eq!(waits.submit().await.unwrap_err().kind(), ErrorKind::HostTaskPanicked);
    });
}

/// A future that is ready at once, and panics when it is dropped.
struct ReadyOnce(PanicsWhenDropped);

impl Future for ReadyOnce {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

#[test]
fn a_future_whose_drop_panics_is_reported() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let error =
            error_of(|graph| graph.host_task((), |()| ReadyOnce(PanicsWhenDropped)).name("the culprit").id());
        let error = error.await;
        assert_eq!(error.kind(), ErrorKind::HostTaskPanicked);
        assert!(error.message().contains("`Drop`") && error.message().contains(PANIC), "{error}");
    });
}

#[test]
fn a_future_that_panics_in_drop_does_not_hide_its_failure() {
    struct Never(PanicsWhenDropped);

    impl Future for Never {
        type Output = ();

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            Poll::Pending
        }
    }

    silence_expected_panics();
    in_both_runtimes(|| async {
        let exec = single(&device(), &raw("never", || Ok(())));
        let futures = exec.prepare().after_future(Never(PanicsWhenDropped));
        let error = futures.after_future(async { Err::<(), _>("refused") }).submit().await.unwrap_err();
        assert!(error.to_string().contains("refused"), "{error}");
        let cancelled = exec.prepare().after_future(Never(PanicsWhenDropped)).submit();
        cancelled.cancel();
        assert_eq!(cancelled.await.unwrap_err().kind(), ErrorKind::Cancelled);
        exec.submit().await.unwrap();
    });
}

#[test]
fn an_error_that_panics_in_drop_is_reported() {
    #[derive(Debug)]
    struct HoldsView(
        #[expect(dead_code, reason = "held, not read")] wakegraph::HostRef<u32>,
        PanicsWhenDropped,
    );

    impl std::fmt::Display for HoldsView {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.1.fmt(f)
        }
    }

    impl std::error::Error for HoldsView {}

    silence_expected_panics();
    in_both_runtimes(|| async {
        let buffer = device().host_buffer::<u32>(4).unwrap();
        let error = error_of(|graph| {
            let task = graph.host_task((wakegraph::read(&buffer),), async |(view,)| {
                Err::<(), _>(HoldsView(view, PanicsWhenDropped))
            });
            task.name("the culprit").id()
        });
        let error = error.await;
        assert_eq!(error.kind(), ErrorKind::HostTaskFailed);
        assert!(error.message().contains("`Drop` panicked") && error.message().contains(PANIC), "{error}");
        assert!(error.to_string().contains("it panics when it is dropped"), "{error}");
    });
}
