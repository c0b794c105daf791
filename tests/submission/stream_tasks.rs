//! Stream tasks, whose closures are called while a submission is enqueued.
#![expect(unsafe_code, reason = "makes stream tasks that enqueue nothing")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use wakegraph::interop::NativeAccess;
use wakegraph::profile::PartitionState;
use wakegraph::{
    Buffer, Device, Error, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, Result, Submission,
};

use crate::common::{in_both_runtimes, manual, multi_thread};
use crate::support::{Hold, PANIC, must_end};

/// A fill, a stream task that calls the closure, and a fill, all of one buffer.
fn graph(
    device: &Device,
    x: &Buffer<u32>,
    closure: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> Graph {
    let mut graph = Graph::new(device);
    graph.fill(x, 1);
    // SAFETY: it enqueues nothing.
    unsafe { graph.stream_task("live", [NativeAccess::write(x)], move |_, [_]| closure()) };
    graph.fill(x, 2);
    graph
}

fn exec(
    device: &Device,
    x: &Buffer<u32>,
    closure: impl Fn() -> Result<()> + Send + Sync + 'static,
) -> ExecutableGraph {
    graph(device, x, closure).finalize().unwrap()
}

/// A closure that counts its calls.
fn counter() -> (Arc<AtomicUsize>, impl Fn() -> Result<()> + Send + Sync + 'static) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let count = move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    };
    (calls, count)
}

fn finished(submission: &Submission) -> bool {
    for _ in 0..1_000_000 {
        if submission.is_finished() {
            return true;
        }
        thread::yield_now();
    }
    false
}

// Outside tokio: nothing waits on the host.
#[test]
fn everything_is_on_the_device_before_anything_has_ended() {
    for notifies in [true, false] {
        let (device, control) = manual(notifies);
        let (calls, count) = counter();
        let exec = exec(&device, &device.buffer(4).unwrap(), count);
        let submissions: Vec<_> = (1..4)
            .map(|number| {
                let submission = exec.submit();
                assert_eq!((calls.load(Ordering::Relaxed), control.pending()), (number, 3 * number));
                submission
            })
            .collect();
        let progress = submissions[0].progress().unwrap();
        assert_eq!(progress.partitions[1].state, PartitionState::Waiting { on: vec![0] });
        assert_eq!(progress.partitions[1].nodes, ["stream task 'live' (#1)"]);
        control.complete_all();
        assert!(submissions.iter().all(finished));
    }
}

#[test]
fn a_failed_closure_fails_the_submission_in_its_turn() {
    for (notifies, panics) in [(true, false), (false, true), (true, true), (false, false)] {
        let (device, control) = manual(notifies);
        let x = device.buffer(4).unwrap();
        let failing = exec(&device, &x, move || match panics {
            true => panic!("{PANIC}"),
            false => Err(Error::new(ErrorKind::OutOfMemory, "no workspace")),
        });
        let other = exec(&device, &x, || Ok(()));
        let (submission, behind) = (failing.submit(), other.submit());
        assert!(!submission.is_finished());
        while control.complete_next(None) {}
        assert!(finished(&submission) && finished(&behind));
        let error = multi_thread().block_on(submission).unwrap_err();
        let kind = if panics { ErrorKind::NativePanicked } else { ErrorKind::OutOfMemory };
        assert_eq!((error.kind(), error.partition()), (kind, Some(1)), "{error}");
        assert!(error.node().unwrap().contains("stream task 'live' (#1)"), "{error}");
        multi_thread().block_on(behind).unwrap();
    }
}

/// An executable whose closure submits it, once, and what that gave.
fn submits_itself(device: &Device) -> (ExecutableGraph, Arc<Mutex<Vec<Submission>>>) {
    let own = Arc::new(Mutex::new(None::<ExecutableGraph>));
    let nested = Arc::new(Mutex::new(Vec::new()));
    let (this, list) = (own.clone(), nested.clone());
    let exec = exec(device, &device.buffer(4).unwrap(), move || {
        let again = this.lock().take();
        list.lock().extend(again.map(|exec| exec.submit()));
        Ok(())
    });
    *own.lock() = Some(exec.clone());
    (exec, nested)
}

#[test]
fn a_closure_submits_its_own_executable() {
    in_both_runtimes(async || {
        let (device, control) = manual(true);
        let (exec, nested) = submits_itself(&device);
        let first = exec.submit();
        assert_eq!(control.pending(), 3, "the other one waits on the host");
        let second = nested.lock().pop().unwrap();
        // No more: another thread may have started the second one by then.
        (0..3).for_each(|_| assert!(control.complete_next(None)));
        first.await.unwrap();
        while control.pending() < 3 {
            tokio::task::yield_now().await;
        }
        control.complete_all();
        second.await.unwrap();
    });
}

#[test]
fn without_a_runtime_a_closure_cannot_submit_its_own_executable() {
    let (device, control) = manual(true);
    let (exec, nested) = submits_itself(&device);
    let first = exec.submit();
    control.complete_all();
    assert!(finished(&first));
    let refused = nested.lock().pop().unwrap();
    let error = multi_thread().block_on(refused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}");
}

// Outside tokio, where a submission cannot wait on the host for another.
#[test]
fn others_wait_for_the_launch_and_no_longer() {
    must_end(|| {
        let (device, control) = manual(true);
        let (x, hold) = (device.buffer(4).unwrap(), Hold::new());
        let held = hold.held();
        let slow = graph(&device, &x, move || {
            held.pass();
            Ok(())
        });
        let slow = slow.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let other = exec(&device, &x, || Ok(()));
        let queue = device.queue().unwrap();
        let begun = AtomicUsize::new(0);
        let begin = || _ = begun.fetch_add(1, Ordering::Release);
        thread::scope(|scope| {
            let first = scope.spawn(|| slow.submit());
            hold.wait_for(1);
            let mut rivals = Vec::new();
            rivals.push(scope.spawn(|| {
                begin();
                slow.submit()
            }));
            rivals.push(scope.spawn(|| {
                begin();
                other.submit()
            }));
            rivals.push(scope.spawn(|| {
                begin();
                queue.submit(&other)
            }));
            let filled = scope.spawn(|| {
                begin();
                queue.fill(&x, 7)
            });
            let updated = scope.spawn(|| {
                begin();
                slow.update_from(&graph(&device, &x, || Ok(())))
            });
            while begun.load(Ordering::Acquire) < 5 {
                thread::yield_now();
            }
            hold.open();
            let first = first.join().unwrap();
            let rivals: Vec<_> = rivals.into_iter().map(|rival| rival.join().unwrap()).collect();
            let (filled, updated) = (filled.join().unwrap(), updated.join().unwrap());
            control.complete_all();
            multi_thread().block_on(async {
                first.await.unwrap();
                for rival in rivals {
                    rival.await.unwrap();
                }
                filled.await.unwrap();
                updated.await.unwrap();
            });
        });
    });
}

#[test]
fn a_submission_that_does_not_start_calls_nothing() {
    in_both_runtimes(async || {
        let (device, control) = manual(true);
        let (calls, count) = counter();
        let exec = exec(&device, &device.buffer(4).unwrap(), count);
        let late = exec.prepare().deadline(Instant::now()).submit().await.unwrap_err();
        assert_eq!(late.kind(), ErrorKind::DeadlineExceeded);
        let fails = async { Err::<(), _>(Error::new(ErrorKind::Driver, "as it should")) };
        exec.prepare().after_future(fails).submit().await.unwrap_err();
        let waiting = exec.prepare().after_future(std::future::pending::<()>()).submit();
        waiting.cancel();
        assert_eq!(waiting.await.unwrap_err().kind(), ErrorKind::Cancelled);
        assert_eq!((calls.load(Ordering::Relaxed), control.pending()), (0, 0));
    });
}

// What was enqueued before fails with the device; what comes after is not enqueued.
#[test]
fn a_device_may_be_lost_inside_the_closure() {
    let (device, control) = manual(true);
    let lost = Mutex::new(Some(control));
    let exec = exec(&device, &device.buffer(4).unwrap(), move || {
        lost.lock().take().iter().for_each(|control| control.lose_device());
        Ok(())
    });
    let submission = exec.submit();
    assert!(finished(&submission));
    let error = multi_thread().block_on(submission).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DeviceLost, "{error}");
}

// The closure may drop the last handle of its own executable: the run owns it.
#[test]
fn a_closure_may_drop_its_executable() {
    let (device, control) = manual(true);
    let own = Arc::new(Mutex::new(None));
    let this = own.clone();
    let exec = exec(&device, &device.buffer(4).unwrap(), move || {
        drop(this.lock().take());
        Ok(())
    });
    *own.lock() = Some(exec.clone());
    let submission = exec.submit();
    drop(exec);
    control.complete_all();
    assert!(finished(&submission));
}
