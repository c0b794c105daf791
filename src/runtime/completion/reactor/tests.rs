use std::sync::{Arc, mpsc};
use std::thread::yield_now;
use std::time::Duration;

use parking_lot::Mutex;
use wakegraph_hal::fake::{FakeDevice, FakeOptions};
use wakegraph_hal::{Progress, Result};

use crate::runtime::completion::clock::now;
use crate::runtime::completion::estimate::Sample;
use crate::runtime::completion::reactor::{Pending, Reactor, Submitter};
use crate::runtime::completion::tuning::WakePolicy;
use crate::runtime::{Device, Graph};
use crate::sync::{AtomicBool, Ordering};

#[test]
fn its_thread_runs_before_anything_can_be_submitted() {
    let (device, _) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    let device = Device::from_hal(device);
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    assert!(!device.reactor().unwrap().inner.inbox.lock().is_thread_running);
    let _exec = graph.finalize().unwrap();
    assert!(device.reactor().unwrap().inner.inbox.lock().is_thread_running);
}

// a: fill -> b: fill, and a host task between them
#[test]
fn learns_how_long_each_partition_takes() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    let device = Device::from_hal(device);
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(&device);
    let first = graph.fill(&x, 1).id();
    let task = graph.host_task((), async |()| {}).after([first]).id();
    graph.fill(&y, 1).after([task]);
    let exec = graph.finalize().unwrap();
    let known = || exec.inner.partitions.iter().filter(|p| p.estimator.expected().is_some()).count();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut run = exec.submit();
        for done in 0..2 {
            assert_eq!(known(), done);
            while control.complete_all() == 0 {
                tokio::task::yield_now().await;
            }
            // The reactor has seen it.
            while known() == done {
                tokio::task::yield_now().await;
            }
        }
        (&mut run).await.unwrap();
    });
    let expected: Vec<_> =
        (0..3).map(|partition| exec.inner.partitions[partition].estimator.estimate().is_some()).collect();
    assert_eq!(expected, [true, false, true]);
}

#[test]
fn a_dropped_submission_leaves_its_run_to_the_reactor_at_once() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    let device = Device::from_hal(device);
    let mut graph = Graph::new(&device);
    graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
    let exec = graph.finalize().unwrap();
    // Known to be short: submissions poll for its end themselves, where a second core lets them.
    exec.inner.partitions[0].estimator.record_duration(Duration::from_micros(5));
    let reactor = device.reactor().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        for _ in 0..3 {
            // So long that the test fails rather than waits for it.
            reactor.inner.inbox.lock().guard = Duration::from_secs(3600);
            let submission = exec.submit();
            let event = submission.event();
            drop(submission);
            control.complete_all();
            tokio::time::timeout(Duration::from_secs(60), event.wait()).await.unwrap().unwrap();
        }
    });
}

#[test]
fn a_submission_that_spun_in_vain_leaves_its_run_to_the_reactor_at_once() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    let device = Device::from_hal(device);
    let mut graph = Graph::new(&device);
    graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
    let exec = graph.finalize().unwrap();
    // Known to be short: submissions poll for its end themselves, where a second core lets them.
    exec.inner.partitions[0].estimator.record_duration(Duration::from_micros(5));
    // So long that the test fails rather than waits for it.
    device.reactor().unwrap().inner.inbox.lock().guard = Duration::from_secs(3600);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let mut submission = exec.submit();
        // Until the submission waits to be woken.
        tokio::time::timeout(Duration::from_millis(20), &mut submission).await.unwrap_err();
        control.complete_all();
        tokio::time::timeout(Duration::from_secs(60), submission).await.unwrap().unwrap();
    });
}

/// A run that its submission has seen end before the reactor's thread came.
struct Over;

impl Pending for Over {
    fn has_ended(&self, _: usize) -> bool {
        true
    }

    fn poll(&self, _: usize) -> Option<Result<()>> {
        Some(Ok(()))
    }

    fn has_poller(&self) -> bool {
        true
    }

    fn end(&self, _: usize, _: Result<()>, _: Option<Sample>) {}
}

#[test]
fn runs_that_submissions_poll_wake_the_thread_for_the_first_of_them_only() {
    let reactor = Reactor::new("test", Progress::Device, WakePolicy::default());
    reactor.start().unwrap();
    let asleep_until = || reactor.inner.asleep_until.load(Ordering::Relaxed);
    while asleep_until() != u64::MAX {
        yield_now();
    }
    let submit = || reactor.watch(now(), 0, Arc::new(Over), 0, None, Some(Duration::from_secs(3600)));
    {
        let _paused = reactor.pause();
        submit();
        reactor.turn(now() + 1_000_000_000);
        assert!(reactor.inner.poller.lock().schedule.is_idle(), "the submission has seen the end");
    }
    // The thread has been woken, and falls asleep again.
    let until = loop {
        match asleep_until() {
            0 => yield_now(),
            until => break until,
        }
    };
    assert_ne!(until, u64::MAX, "it comes by when it would no longer leave the run alone");
    (0..3).for_each(|_| submit());
    assert_eq!(asleep_until(), until, "it sleeps on");
    reactor.close();
}

/// The first poll panics, as when a subscriber does that formats what a backend logs. The second one tells of
/// the end.
struct PanicsOnce {
    has_panicked: AtomicBool,
    ended: mpsc::Sender<bool>,
}

impl Pending for PanicsOnce {
    fn has_ended(&self, _: usize) -> bool {
        false
    }

    fn poll(&self, _: usize) -> Option<Result<()>> {
        assert!(self.has_panicked.swap(true, Ordering::Relaxed), "on purpose");
        Some(Ok(()))
    }

    fn has_poller(&self) -> bool {
        false
    }

    fn end(&self, _: usize, result: Result<()>, _: Option<Sample>) {
        self.ended.send(result.is_ok()).unwrap();
    }
}

#[test]
fn what_panics_when_it_is_polled_is_polled_again() {
    let reactor = Reactor::new("test", Progress::Device, WakePolicy::default());
    reactor.start().unwrap();
    let (ended, receiver) = mpsc::channel();
    let run = Arc::new(PanicsOnce { has_panicked: AtomicBool::new(false), ended });
    reactor.watch(now(), 0, run, 0, None, None);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(true));
    reactor.close();
}

/// Drops the sender at its first turn, or panics then and drops it at the second.
struct FirstTurn {
    sender: Mutex<Option<mpsc::Sender<()>>>,
    panics: AtomicBool,
}

impl Submitter for FirstTurn {
    fn turn(&self, _: &mut dyn FnMut(u64, Arc<dyn Pending>)) -> bool {
        assert!(!self.panics.swap(false, Ordering::Relaxed), "on purpose");
        self.sender.lock().take();
        false
    }

    fn has_ended(&self) -> bool {
        false
    }

    fn settle(&self) {}

    fn fall_asleep(&self) -> bool {
        true
    }

    fn wake_up(&self) {}

    fn close(&self) {}
}

// It is set while a graph is finalized, by when the thread may have fallen asleep.
#[test]
fn a_submitter_that_is_set_while_the_thread_sleeps_gets_its_turn() {
    let reactor = Reactor::new("test", Progress::Device, WakePolicy::default());
    reactor.start().unwrap();
    while reactor.inner.asleep_until.load(Ordering::Relaxed) != u64::MAX {
        yield_now();
    }
    let turned = first_turn(&reactor, false);
    assert_eq!(turned.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Disconnected));
    reactor.close();
}

/// Gives the reactor such a submitter, and what hears of the turn.
fn first_turn(reactor: &Reactor, panics: bool) -> mpsc::Receiver<()> {
    let (sender, turned) = mpsc::channel();
    let (sender, panics) = (Mutex::new(Some(sender)), AtomicBool::new(panics));
    reactor.set_submitter(|| Arc::new(FirstTurn { sender, panics }));
    turned
}

#[test]
fn its_thread_goes_on_after_a_launch_has_panicked() {
    let reactor = Reactor::new("test", Progress::Device, WakePolicy::default());
    let turned = first_turn(&reactor, true);
    reactor.start().unwrap();
    assert_eq!(turned.recv_timeout(Duration::from_secs(60)), Err(mpsc::RecvTimeoutError::Disconnected));
    reactor.close();
}
