//! A run that fails before its turn, with what it depends on, ends after everything that it comes after:
//! whoever sees it ended uses the memory of all that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wakegraph::testing::FakeControl;
use wakegraph::{Device, Error, ErrorKind, Event, FinalizeOptions, Graph, HostBuffer, Submission, read};

use crate::common::{in_both_runtimes, manual, yield_often};

fn why() -> Error {
    Error::new(ErrorKind::Driver, "on purpose")
}

/// A submission on a memory of its own.
fn unrelated(device: &Device) -> Submission {
    let mut graph = Graph::new(device);
    graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
    graph.finalize().unwrap().submit()
}

/// A graph that writes `host`.
fn download(device: &Device, host: &HostBuffer<u32>) -> Graph {
    let mut graph = Graph::new(device);
    graph.copy(device.buffer::<u32>(4).unwrap(), host);
    graph
}

/// Fails `second`, which was enqueued last, before its turn.
fn fail_before_its_turn(control: &FakeControl, first: &Event, second: &Event) {
    assert!(control.fail_newest(why()));
    assert!(!first.is_finished() && !second.is_finished(), "`first` is still in flight");
}

/// Two runs of an executable that writes `host`: the second has failed, and the first is in flight.
fn failed_behind_another(device: &Device, control: &FakeControl, host: &HostBuffer<u32>) -> [Submission; 2] {
    let exec = download(device, host).finalize().unwrap();
    let (dependency, first) = (unrelated(device), exec.submit());
    let second = exec.prepare().after(&dependency).submit();
    fail_before_its_turn(control, &first.event(), &second.event());
    [first, second]
}

#[test]
fn no_guard_is_granted_of_what_a_run_before_it_uses() {
    in_both_runtimes(|| async {
        for notifies in [true, false] {
            let (device, control) = manual(notifies);
            let host = device.host_buffer::<u32>(4).unwrap();
            let [first, second] = failed_behind_another(&device, &control, &host);
            assert!(host.try_write().is_err() && host.try_read().is_err());
            control.complete_all();
            assert_eq!(second.await.unwrap_err().kind(), ErrorKind::Driver);
            assert!(first.is_finished() && host.try_write().is_ok());
        }
    });
}

#[test]
fn what_is_submitted_next_comes_after_the_runs_before_it() {
    let (device, control) = manual(true);
    let host = device.host_buffer::<u32>(4).unwrap();
    let [first, second] = failed_behind_another(&device, &control, &host);
    let rival = download(&device, &host).finalize().unwrap();
    let next = rival.submit();
    let queue = device.queue().unwrap();
    let command = queue.copy(&host, device.buffer::<u32>(4).unwrap());
    let events = [first.event(), next.event(), command];
    // The dependency, which is the oldest.
    assert!(control.complete_next(None));
    let ended = || events.each_ref().map(Event::is_finished);
    for ended_now in [[false; 3], [true, false, false], [true, true, false], [true; 3]] {
        assert_eq!((ended(), second.is_finished()), (ended_now, ended_now[0]));
        assert_eq!(control.complete_next(None), !ended_now[2]);
    }
}

#[test]
fn a_host_task_of_a_queue_runs_after_the_commands_before_it() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let host = device.host_buffer::<u32>(4).unwrap();
        let queue = device.queue().unwrap();
        let copy = queue.copy(device.buffer::<u32>(4).unwrap(), &host);
        let dependency = unrelated(&device);
        let barrier = queue.after([&dependency.event()]).barrier();
        fail_before_its_turn(&control, &copy, &barrier);
        let ran = Arc::new(AtomicBool::new(false));
        let seen = ran.clone();
        let task = queue.host_task((read(&host),), async move |_| seen.store(true, Ordering::SeqCst));
        yield_often().await;
        assert!(!ran.load(Ordering::SeqCst), "the copy is still in flight");
        control.complete_all();
        task.wait().await.unwrap();
        assert!(copy.is_finished() && ran.load(Ordering::SeqCst));
    });
}

#[test]
fn an_update_keeps_the_memory_that_a_run_before_it_uses() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let owner: Arc<[u32]> = vec![1; 4].into();
        let source = device.register_source::<u32, _>(owner.clone()).unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        let copy = graph.copy(&source, &x).id();
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        drop((graph, source));
        let (first, dependency) = (exec.submit(), unrelated(&device));
        let second = exec.prepare().after(&dependency).submit();
        fail_before_its_turn(&control, &first.event(), &second.event());
        let other = device.host_buffer::<u32>(4).unwrap();
        exec.update().copy(copy, &other, &x).apply().await.unwrap();
        yield_often().await;
        assert_eq!(Arc::strong_count(&owner), 2, "the first run still reads it");
        control.complete_all();
        first.await.unwrap();
        assert!(second.await.is_err());
    });
}

#[test]
fn many_runs_that_fail_before_their_turn_end_in_order() {
    const RUNS: usize = 2_000;
    let (device, control) = manual(true);
    let host = device.host_buffer::<u32>(4).unwrap();
    let exec = download(&device, &host).finalize().unwrap();
    let first = exec.submit();
    let dependency = unrelated(&device);
    let failing: Vec<_> = (0..RUNS).map(|_| exec.prepare().after(&dependency).submit()).collect();
    for _ in 0..RUNS {
        assert!(control.fail_newest(why()));
    }
    assert!(failing.iter().all(|run| !run.is_finished()) && host.try_read().is_err());
    control.complete_all();
    assert!(first.is_finished() && failing.iter().all(Submission::is_finished));
    assert!(host.try_write().is_ok());
}

#[test]
fn a_submission_with_a_failed_dependency_has_no_place() {
    in_both_runtimes(|| async {
        let (device, control) = manual(true);
        let host = device.host_buffer::<u32>(4).unwrap();
        let dependency = unrelated(&device);
        control.fail_next(why());
        control.complete_all();
        let exec = download(&device, &host).finalize().unwrap();
        let first = exec.submit();
        let second = exec.prepare().after(&dependency).submit();
        // It fails at once, and nothing takes it for the end of what was before it.
        assert!(second.is_finished() && !first.is_finished());
        assert!(host.try_read().is_err());
        let third = exec.submit();
        assert_eq!(control.pending(), 2);
        control.complete_all();
        first.await.unwrap();
        third.await.unwrap();
    });
}
