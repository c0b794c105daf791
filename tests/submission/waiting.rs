//! Wait lists: submissions, events, any future; failing ones.

use tokio::sync::oneshot;
use wakegraph::{Error, ErrorKind, Graph, Range};

use crate::common::{Count, device, held, in_both_runtimes, manual, polled_device, raw, single, yield_often};
use crate::support::{Hold, PANIC, silence_expected_panics};

#[test]
fn after_a_submission() {
    in_both_runtimes(|| async {
        // Devices that wait for each other, and such that do not.
        for (a, b) in [(device(), device()), (polled_device(), device()), (device(), manual(true).0)] {
            let hold = Hold::new();
            let slow = held(&a, &hold);
            let first = slow.submit();
            let second = single(&a, &raw("second", || Ok(()))).prepare().after(&first).after(&first).submit();
            let mut graph = Graph::new(&b);
            graph.empty();
            let third = graph.finalize().unwrap().prepare().after(&second).submit();
            hold.wait_for(1);
            yield_often().await;
            assert!(!first.is_finished() && !second.is_finished() && !third.is_finished());
            hold.open();
            third.await.unwrap();
            assert!(first.is_finished() && second.is_finished());
        }
    });
}

#[test]
fn an_empty_graph_waits_too() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let x = device.buffer::<u8>(1).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let first = graph.finalize().unwrap().submit();
        let empty = Graph::new(&device).finalize().unwrap();
        let join = empty.prepare().after(&first).submit();
        let behind = empty.submit();
        yield_often().await;
        assert!(!join.is_finished(), "what it waits for is not complete");
        assert!(!behind.is_finished(), "runs of one executable are ordered");
        control.complete_all();
        join.await.unwrap();
        behind.await.unwrap();
    });
}

#[test]
fn events_are_awaited_in_many_places() {
    in_both_runtimes(|| async {
        let device = device();
        let hold = Hold::new();
        let submission = held(&device, &hold).submit();
        let event = submission.event();
        let waiters: Vec<_> = (0..10)
            .map(|_| {
                let event = event.clone();
                tokio::spawn(async move { event.await })
            })
            .collect();
        let later = single(&device, &raw("later", || Ok(()))).prepare().after_event(&event).submit();
        drop(submission);
        assert!(!event.is_finished());
        hold.open();
        event.wait().await.unwrap();
        event.wait().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        later.await.unwrap();
    });
}

#[test]
fn after_a_future() {
    in_both_runtimes(|| async {
        let device = device();
        let count = Count::default();
        let exec = count.graph(&device);
        let (send, receive) = oneshot::channel::<()>();
        let waiting = exec.prepare().after_future(receive).submit();
        let behind = exec.submit();
        yield_often().await;
        assert_eq!(count.get(), 0);
        assert!(!waiting.is_finished() && !behind.is_finished());
        send.send(()).unwrap();
        waiting.await.unwrap();
        behind.await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

#[test]
fn futures_that_fail_stop_the_submission() {
    silence_expected_panics();
    in_both_runtimes(|| async {
        let device = device();
        let count = Count::default();
        let exec = count.graph(&device);
        let failing = exec.prepare().after_future(async { Err::<(), _>("no upstream") }).submit();
        let panicking = exec.prepare().after_future(async { panic_on_purpose() }).submit();
        let (send, receive) = oneshot::channel::<()>();
        let closed = exec.prepare().after_future(receive).submit();
        drop(send);
        let error = failing.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostTaskFailed);
        assert!(error.to_string().contains("no upstream"), "{error}");
        assert_eq!(error.node(), None, "no node is to blame: {error}");
        let error = panicking.await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::HostTaskPanicked);
        assert!(error.to_string().contains(PANIC), "{error}");
        assert_eq!(closed.await.unwrap_err().kind(), ErrorKind::HostTaskFailed);
        assert_eq!(count.get(), 0);
        exec.submit().await.unwrap();
        assert_eq!(count.get(), 1);
    });
}

/// The first node does nothing, the second one fails when the test lets it.
fn failing(device: &wakegraph::Device, hold: &Hold) -> wakegraph::ExecutableGraph {
    let held = hold.held();
    let fail = raw("fail", move || {
        held.pass();
        Err(Error::new(ErrorKind::Driver, "broken"))
    });
    let mut graph = Graph::new(device);
    let first = graph.launch(raw("fine", || Ok(())).call(), Range::linear(1)).id();
    graph.launch(fail.call(), Range::linear(1)).name("the culprit").after([first]);
    graph.finalize().unwrap()
}

#[test]
fn a_failed_submission_stops_those_that_wait_for_it() {
    in_both_runtimes(|| async {
        for (a, b) in [(device(), device()), (polled_device(), polled_device()), (device(), polled_device())]
        {
            for release_first in [false, true] {
                let (hold, count) = (Hold::new(), Count::default());
                let first = failing(&a, &hold).submit();
                if release_first {
                    hold.open();
                    first.event().wait().await.unwrap_err();
                }
                // Graphs of one node and of several: none of their nodes is to blame.
                let mut graph = Graph::new(&b);
                for name in ["innocent 0", "innocent 1"] {
                    graph.launch(count.kernel().call(), Range::linear(1)).name(name);
                }
                let dependents = [
                    count.graph(&a).prepare().after(&first).submit(),
                    count.graph(&b).prepare().after(&first).submit(),
                    graph.finalize().unwrap().prepare().after(&first).submit(),
                ];
                let chained = count.graph(&a).prepare().after(&dependents[1]).submit();
                hold.open();
                let cause = first.await.unwrap_err();
                assert!(cause.node().unwrap().contains("the culprit"), "{cause}");
                for dependent in dependents.into_iter().chain([chained]) {
                    let error = dependent.await.unwrap_err();
                    assert_eq!(error.to_string(), cause.to_string());
                }
                assert_eq!(count.get(), 0);
            }
        }
    });
}

#[test]
fn a_failure_does_not_spread_along_mere_order() {
    in_both_runtimes(|| async {
        let device = device();
        let hold = Hold::new();
        let x = device.buffer_from(&[1u32]).unwrap();
        let held = hold.held();
        let fail = wakegraph::kernel::RawKernel::new("fail").writes::<u32>("x").host(move |_, _| {
            held.pass();
            Err(Error::new(ErrorKind::Driver, "broken"))
        });
        let mut graph = Graph::new(&device);
        graph.launch(fail.call().memory::<u32>(&x), Range::linear(1));
        let failing = graph.finalize().unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 7);
        let filling = graph.finalize().unwrap();
        let submissions = [failing.submit(), filling.submit(), failing.submit(), filling.submit()];
        hold.open();
        for (i, submission) in submissions.into_iter().enumerate() {
            assert_eq!(submission.await.is_ok(), i % 2 == 1);
        }
        assert_eq!(x.to_vec().await.unwrap(), [7]);
    });
}

#[test]
fn a_pending_dependency_that_fails_while_others_are_waited_for() {
    in_both_runtimes(|| async {
        let (hold, count) = (Hold::new(), Count::default());
        let device = device();
        let first = failing(&device, &hold).submit();
        let (send, receive) = oneshot::channel::<()>();
        let dependent = count.graph(&device).prepare().after(&first).after_future(receive).submit();
        hold.open();
        assert_eq!(dependent.await.unwrap_err().kind(), ErrorKind::Driver);
        drop(send);
        assert_eq!(count.get(), 0);
    });
}

fn panic_on_purpose() {
    std::panic::panic_any(PANIC);
}
