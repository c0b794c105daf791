//! Drivers that refuse an enqueue.

use std::sync::atomic::Ordering;

use wakegraph::backend::host::{self, HostOptions};
use wakegraph::{Error, ErrorKind, FinalizeOptions, Graph, Range};

use crate::common::{Count, device, held_kernel, in_both_runtimes, manual};
use crate::faulty::{Switch, faulty};
use crate::support::Hold;

fn faulty_device() -> (wakegraph::Device, Switch) {
    faulty(host::open(HostOptions::new().threads(2)).unwrap())
}

#[track_caller]
fn refused(error: &Error, device: &wakegraph::Device) {
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
    assert_eq!(error.device(), Some(device.selector()), "{error}");
    assert!(error.partition().is_some(), "{error}");
}

#[test]
fn of_a_single_partition() {
    in_both_runtimes(|| async {
        let (device, fails) = faulty_device();
        let count = Count::default();
        let exec = count.graph(&device);
        exec.submit().await.unwrap();
        fails.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            refused(&exec.submit().await.unwrap_err(), &device);
        }
        fails.store(false, Ordering::SeqCst);
        exec.submit().await.unwrap();
        assert_eq!(count.get(), 2);
    });
}

// a: count -> b: count, both enqueued by `submit` itself
#[test]
fn dependents_on_another_device_do_not_start() {
    in_both_runtimes(|| async {
        let ((a, fails), b) = (faulty_device(), device());
        let (first, second) = (Count::default(), Count::default());
        let mut graph = Graph::new(&a);
        let before = graph.launch(first.kernel().call(), Range::linear(1)).on(&a).id();
        graph.launch(second.kernel().call(), Range::linear(1)).on(&b).after([before]);
        let exec = graph.finalize().unwrap();
        for run in 1..=3 {
            exec.submit().await.unwrap();
            // The events of the run before are complete, and must not be taken for this run's.
            fails.store(true, Ordering::SeqCst);
            refused(&exec.submit().await.unwrap_err(), &a);
            assert_eq!((first.get(), second.get()), (run, run));
            fails.store(false, Ordering::SeqCst);
        }
    });
}

//  a: fails   b: held
//        \   /
//      b: join
#[test]
fn the_next_run_waits_for_what_did_start() {
    in_both_runtimes(|| async {
        let ((a, fails), b, c) = (faulty_device(), device(), device());
        let (hold, joined) = (Hold::new(), Count::default());
        let mut graph = Graph::new(&a);
        let first = graph.launch(Count::default().kernel().call(), Range::linear(1)).on(&a).id();
        let held = graph.launch(held_kernel(&hold).call(), Range::linear(1)).on(&b).id();
        graph.launch(joined.kernel().call(), Range::linear(1)).on(&c).after([first, held]);
        let exec = graph.finalize().unwrap();
        hold.release_one();
        exec.submit().await.unwrap();
        fails.store(true, Ordering::SeqCst);
        let failed = exec.submit();
        fails.store(false, Ordering::SeqCst);
        let next = exec.submit();
        hold.wait_for(2);
        assert!(!failed.is_finished() && !next.is_finished());
        assert_eq!(joined.get(), 1);
        hold.open();
        refused(&failed.await.unwrap_err(), &a);
        next.await.unwrap();
        assert_eq!(joined.get(), 2);
    });
}

// host task -> device: the enqueue is made by the partition's task
#[test]
fn behind_a_host_task() {
    in_both_runtimes(|| async {
        let (device, fails) = faulty_device();
        let (count, behind) = (Count::default(), Count::default());
        let mut graph = Graph::new(&device);
        let task = graph.host_task((), async |()| ()).id();
        let kernel = graph.launch(count.kernel().call(), Range::linear(1)).after([task]).id();
        let counter = behind.clone();
        graph.host_task((), async move |()| counter.add_one()).after([kernel]);
        let exec = graph.finalize().unwrap();
        for run in 1..=3 {
            fails.store(true, Ordering::SeqCst);
            refused(&exec.submit().await.unwrap_err(), &device);
            fails.store(false, Ordering::SeqCst);
            exec.submit().await.unwrap();
            assert_eq!((count.get(), behind.get()), (run, run));
        }
    });
}

#[test]
fn work_that_fails_on_the_device() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let x = device.buffer::<u8>(4).unwrap();
            let mut graph = Graph::new(&device);
            graph.fill(&x, 1).name("the only node");
            let exec = graph.finalize().unwrap();
            let [good, bad, fine] = [(); 3].map(|()| exec.submit());
            assert!(control.complete_next(None));
            control.fail_next(Error::new(ErrorKind::Driver, "error 700: illegal address"));
            assert_eq!(control.complete_all(), 2);
            good.await.unwrap();
            let error = bad.await.unwrap_err();
            refused(&error, &device);
            assert!(error.node().unwrap().contains("the only node"), "{error}");
            assert!(error.to_string().contains("error 700"), "{error}");
            fine.await.unwrap();
        }
    });
}

#[test]
fn skipped_partitions_have_no_times_of_earlier_runs() {
    in_both_runtimes(|| async {
        let ((a, fails), b) = (faulty_device(), device());
        let count = Count::default();
        let mut graph = Graph::new(&a);
        let first = graph.launch(count.kernel().call(), Range::linear(1)).on(&a).id();
        let task = graph.host_task((), async |()| {}).after([first]).id();
        graph.launch(count.kernel().call(), Range::linear(1)).on(&b).after([task]);
        graph.launch(count.kernel().call(), Range::linear(1)).on(&b);
        let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
        for _ in 0..2 {
            let mut whole = exec.submit();
            (&mut whole).await.unwrap();
            let profile = whole.profile().unwrap();
            assert!(profile.nodes.len() == 4 && profile.partitions.iter().all(|times| times.measured));
            drop(whole);
            fails.store(true, Ordering::SeqCst);
            let mut failed = exec.submit();
            assert!((&mut failed).await.is_err());
            let profile = failed.profile().unwrap();
            assert_eq!(profile.nodes.len(), 1, "only the independent kernel ran: {profile:?}");
            assert_eq!(profile.partitions.iter().filter(|times| times.measured).count(), 1);
            assert_eq!(profile.timeline(40).to_string().matches("no times").count(), 3);
            fails.store(false, Ordering::SeqCst);
        }
    });
}
