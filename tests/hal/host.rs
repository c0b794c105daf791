//! The host backend through the contract: order, failure, lifetime.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use wakegraph::backend::host::{self, HostOptions};
use wakegraph::backend::open;
use wakegraph::hal::{CommandBufferDesc, Device, EventStatus, QueueDesc, QueueOrder};
use wakegraph::{Error, ErrorKind};

use crate::common::*;

fn device(threads: usize) -> Arc<dyn Device> {
    host::open(HostOptions::new().threads(threads)).unwrap()
}

#[test]
fn an_index_opened_twice_is_one_device_while_it_lives() {
    let first = open("host:41").unwrap();
    let id = first.info().id;
    assert_eq!(open("host:41").unwrap().info().id, id);
    assert_ne!(open("host:42").unwrap().info().id, id);
    drop(first);
    assert_ne!(open("host:41").unwrap().info().id, id);
}

#[test]
fn an_in_order_queue_runs_and_completes_in_order() {
    let device = device(4);
    let queue = queue(&*device, QueueOrder::InOrder);
    let log = Arc::new(Mutex::new(Vec::new()));
    let (notifier, receiver) = notifier();
    let (release, hold) = held();
    let first = one(&*device, move || {
        hold();
        Ok(())
    });
    enqueue(&*first, &*queue, &[], &event(&*device), notification(&notifier, 0)).unwrap();
    for i in 1..200 {
        let log = log.clone();
        let buffer = one(&*device, move || {
            log.lock().unwrap().push(i);
            Ok(())
        });
        enqueue(&*buffer, &*queue, &[], &event(&*device), notification(&notifier, i)).unwrap();
    }
    release.open();
    let received: Vec<_> = (0..200).map(|_| receiver.recv().unwrap()).collect();
    let mut sorted = received.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..200).collect::<Vec<_>>());
    assert_eq!(*log.lock().unwrap(), (1..200).collect::<Vec<_>>());
}

#[test]
fn events_of_an_in_order_queue_become_final_in_order() {
    let device = device(4);
    let queue = queue(&*device, QueueOrder::InOrder);
    let buffer = |_| one(&*device, || Ok(()));
    let buffers: Vec<_> = (0..if cfg!(miri) { 20 } else { 500 }).map(buffer).collect();
    let events: Vec<_> = buffers.iter().map(|buffer| start(&*device, &**buffer, &*queue, &[])).collect();
    for (i, event) in events.iter().enumerate().rev().step_by(37) {
        assert_complete(&**event);
        assert!(events[..i].iter().all(|event| event.status().is_final()));
    }
}

#[test]
fn an_out_of_order_queue_overlaps_what_no_wait_list_orders() {
    let device = device(2);
    let queue = queue(&*device, QueueOrder::OutOfOrder);
    let meet = Arc::new(Barrier::new(2));
    let events: Vec<_> = (0..2)
        .map(|_| {
            let meet = meet.clone();
            let buffer = one(&*device, move || {
                meet.wait();
                Ok(())
            });
            start(&*device, &*buffer, &*queue, &[])
        })
        .collect();
    events.iter().for_each(|event| assert_complete(&**event));
}

#[test]
fn enqueues_of_one_command_buffer_never_overlap() {
    let device = device(4);
    let queues = [queue(&*device, QueueOrder::OutOfOrder), queue(&*device, QueueOrder::InOrder)];
    let (running, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let seen = count.clone();
    let buffer = one(&*device, move || {
        assert!(!running.swap(true, Ordering::SeqCst), "two at once");
        seen.fetch_add(1, Ordering::SeqCst);
        std::thread::yield_now();
        running.store(false, Ordering::SeqCst);
        Ok(())
    });
    const EACH: usize = if cfg!(miri) { 10 } else { 250 };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (buffer, queue, device) = (&buffer, &queues[thread % 2], &device);
            scope.spawn(move || {
                let events: Vec<_> = (0..EACH).map(|_| start(&**device, &**buffer, &**queue, &[])).collect();
                events.iter().for_each(|event| assert_complete(&**event));
            });
        }
    });
    assert_eq!(count.load(Ordering::SeqCst), 4 * EACH);
}

#[test]
fn concurrent_enqueues_of_one_buffer_do_not_deadlock() {
    let device = device(2);
    let queues = [queue(&*device, QueueOrder::InOrder), queue(&*device, QueueOrder::InOrder)];
    let buffers = [one(&*device, || Ok(())), one(&*device, || Ok(()))];
    const ENQUEUES: usize = if cfg!(miri) { 50 } else { 2000 };
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (queues, buffers, device) = (&queues, &buffers, &device);
            scope.spawn(move || {
                for i in 0..ENQUEUES {
                    let (buffer, queue) = (&buffers[(i + thread) % 2], &queues[i / 2 % 2]);
                    start(&**device, &**buffer, &**queue, &[]);
                }
            });
        }
    });
    queues.iter().for_each(|queue| queue.finish().unwrap());
}

#[test]
fn ten_thousand_pending_enqueues() {
    for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
        let device = device(2);
        let queue = queue(&*device, order);
        let (release, hold) = held();
        let count = Arc::new(AtomicUsize::new(0));
        let (first, counted) = (AtomicBool::new(true), count.clone());
        let buffer = one(&*device, move || {
            if first.swap(false, Ordering::SeqCst) {
                hold();
            }
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        });
        const COUNT: usize = if cfg!(miri) { 100 } else { 10_000 };
        for _ in 0..COUNT {
            start(&*device, &*buffer, &*queue, &[]);
        }
        release.open();
        queue.finish().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), COUNT);
    }
}

#[test]
fn finish_waits_for_everything_on_its_queue_and_nothing_else() {
    let device = device(3);
    let (queue, other) = (queue(&*device, QueueOrder::OutOfOrder), queue(&*device, QueueOrder::OutOfOrder));
    let (_release, hold) = held();
    let stuck = one(&*device, move || {
        hold();
        Ok(())
    });
    start(&*device, &*stuck, &*other, &[]);
    let buffers: Vec<_> = (0..50).map(|_| one(&*device, || Ok(()))).collect();
    let events: Vec<_> = buffers.iter().map(|buffer| start(&*device, &**buffer, &*queue, &[])).collect();
    queue.finish().unwrap();
    assert!(events.iter().all(|event| event.status().is_final()));
    queue.finish().unwrap();
}

#[test]
fn wait_lists_order_across_devices() {
    let devices = [device(1), device(1)];
    let queues = devices.each_ref().map(|device| queue(&**device, QueueOrder::OutOfOrder));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (release, hold) = held();
    let mut last = start(
        &*devices[0],
        &*one(&*devices[0], move || {
            hold();
            Ok(())
        }),
        &*queues[0],
        &[],
    );
    for i in 0..100 {
        let log = log.clone();
        let device = &*devices[i % 2];
        let buffer = one(device, move || {
            log.lock().unwrap().push(i);
            Ok(())
        });
        last = start(device, &*buffer, &*queues[i % 2], &[&*last]);
    }
    assert!(matches!(last.status(), EventStatus::Pending));
    release.open();
    assert_complete(&*last);
    assert_eq!(*log.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn failure_spreads_through_wait_lists_and_not_through_queues() {
    let (device, other) = (device(2), device(1));
    let (queue, other_queue) = (queue(&*device, QueueOrder::InOrder), queue(&*other, QueueOrder::InOrder));
    let bad = one(&*device, || Err(Error::new(ErrorKind::InvalidArgument, "no such colour")));
    let (ran, good) = (Arc::new(AtomicUsize::new(0)), |device: &Arc<dyn Device>, ran: &Arc<AtomicUsize>| {
        let ran = ran.clone();
        one(&**device, move || {
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let (here, there) = (good(&device, &ran), good(&other, &ran));

    let failed = start(&*device, &*bad, &*queue, &[]);
    let pending_dependent = start(&*device, &*here, &*queue, &[&*failed]);
    let remote_dependent = start(&*other, &*there, &*other_queue, &[&*pending_dependent]);
    for event in [&failed, &pending_dependent, &remote_dependent] {
        let error = failure(&**event);
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.to_string().contains("kernel 'call' failed"), "{error}");
        assert!(error.to_string().contains("no such colour"), "{error}");
        assert_eq!(error.device(), Some("host (private)"));
    }
    let final_dependent = start(&*device, &*here, &*queue, &[&*failed]);
    failure(&*final_dependent);
    assert_eq!(ran.load(Ordering::SeqCst), 0);

    assert_complete(&*start(&*device, &*here, &*queue, &[]));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn a_panic_is_an_error_and_the_worker_lives_on() {
    let device = device(1);
    let queue = queue(&*device, QueueOrder::InOrder);
    let bad = one(&*device, || panic!("index {} is odd", 7));
    for _ in 0..3 {
        let error = failure(&*start(&*device, &*bad, &*queue, &[]));
        assert_eq!(error.kind(), ErrorKind::KernelPanicked);
        assert_eq!(error.message(), "kernel 'call' panicked: index 7 is odd");
    }
    assert_complete(&*start(&*device, &*one(&*device, || Ok(())), &*queue, &[]));
}

#[test]
fn notifies_exactly_once_from_many_threads() {
    const THREADS: u64 = 4;
    const EACH: u64 = if cfg!(miri) { 10 } else { 500 };
    let device = device(3);
    let (notifier, receiver) = notifier();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, notifier) = (&*device, &notifier);
            scope.spawn(move || {
                let queue = queue(device, QueueOrder::OutOfOrder);
                let buffer = one(device, || Ok(()));
                for i in 0..EACH {
                    let token = thread * EACH + i;
                    enqueue(&*buffer, &*queue, &[], &event(device), notification(notifier, token)).unwrap();
                }
            });
        }
    });
    drop(notifier);
    // The channel ends when the last notification has been called and dropped: no token can come after that.
    let mut tokens: Vec<_> = receiver.iter().collect();
    tokens.sort_unstable();
    assert_eq!(tokens, (0..THREADS * EACH).collect::<Vec<_>>());
}

#[test]
fn an_event_is_final_and_reusable_when_notified() {
    let device = device(2);
    let queue = queue(&*device, QueueOrder::InOrder);
    let (notifier, receiver) = notifier();
    let (buffer, event) = (one(&*device, || Ok(())), event(&*device));
    for token in 0..if cfg!(miri) { 20 } else { 1000 } {
        enqueue(&*buffer, &*queue, &[], &event, notification(&notifier, token)).unwrap();
        assert_eq!(receiver.recv().unwrap(), token);
        assert!(matches!(event.status(), EventStatus::Complete));
    }
}

#[test]
fn a_polled_device_drops_the_notification() {
    let device = host::open(HostOptions::new().threads(1).polled(true)).unwrap();
    assert!(!device.capabilities().notifies);
    let queue = queue(&*device, QueueOrder::InOrder);
    let (notifier, receiver) = notifier();
    let (buffer, event) = (one(&*device, || Ok(())), event(&*device));
    enqueue(&*buffer, &*queue, &[], &event, notification(&notifier, 1)).unwrap();
    drop(notifier);
    assert!(receiver.recv().is_err());
    assert_complete(&*event);
}

#[test]
fn an_empty_command_buffer_completes_in_the_enqueue() {
    let device = device(1);
    let queue = queue(&*device, QueueOrder::InOrder);
    let (notifier, receiver) = notifier();
    let empty = buffer(&*device, CommandBufferDesc::new(), &[], &[]);
    let done = event(&*device);
    enqueue(&*empty, &*queue, &[], &done, notification(&notifier, 5)).unwrap();
    assert!(matches!(done.status(), EventStatus::Complete));
    assert_eq!(receiver.try_recv(), Ok(5));

    let (release, hold) = held();
    let held = one(&*device, move || {
        hold();
        Ok(())
    });
    start(&*device, &*held, &*queue, &[]);
    enqueue(&*empty, &*queue, &[], &done, notification(&notifier, 6)).unwrap();
    assert!(matches!(done.wait(Some(Duration::ZERO)), EventStatus::Pending));
    release.open();
    assert_eq!(receiver.recv(), Ok(6));
}

#[test]
fn refuses_wait_lists_that_cannot_be_kept_and_changes_nothing() {
    let private = host::open(HostOptions::new().threads(1).peer_access(false)).unwrap();
    let other = device(1);
    assert!(!private.can_wait_for(&*other) && other.can_wait_for(&*private));
    let memory = memory(&*other, 8);
    assert!(!private.can_access(&*memory) && other.can_access(&*memory));
    let queue = queue(&*private, QueueOrder::InOrder);
    let (buffer, done) = (one(&*private, || Ok(())), event(&*private));
    for (bad, what) in [(event(&*private), "idle"), (event(&*other), "foreign")] {
        let error = enqueue(&*buffer, &*queue, &[&*bad], &done, None).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidWaitList, "{what}");
        assert!(matches!(done.status(), EventStatus::Idle));
    }
    let error = enqueue(&*buffer, &*queue, &[], &event(&*other), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    let error = enqueue(&*one(&*other, || Ok(())), &*queue, &[], &done, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn refuses_to_signal_a_pending_event() {
    let device = device(1);
    let queue = queue(&*device, QueueOrder::InOrder);
    let (release, hold) = held();
    let buffer = one(&*device, move || {
        hold();
        Ok(())
    });
    let event = start(&*device, &*buffer, &*queue, &[]);
    let error = enqueue(&*buffer, &*queue, &[], &event, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    release.open();
    assert_complete(&*event);
}

/// Tells, when its thread ends, that it has.
struct TellAtExit(std::sync::mpsc::Sender<&'static str>);

impl Drop for TellAtExit {
    fn drop(&mut self) {
        let _ = self.0.send("thread ended");
    }
}

thread_local!(static AT_EXIT: std::cell::RefCell<Option<TellAtExit>> = const { std::cell::RefCell::new(None) });

#[test]
fn objects_may_be_dropped_while_their_work_runs() {
    let (sender, receiver) = channel();
    let (release, hold) = held();
    {
        let device = device(1);
        let queue = queue(&*device, QueueOrder::InOrder);
        let (first, second) = (sender.clone(), sender);
        let running = one(&*device, move || {
            AT_EXIT.set(Some(TellAtExit(first.clone())));
            hold();
            Ok(())
        });
        let memory = memory(&*device, 4096);
        let pending = one(&*device, move || {
            assert_eq!(memory.len(), 4096);
            second.send("pending work ran").unwrap();
            Ok(())
        });
        start(&*device, &*running, &*queue, &[]);
        start(&*device, &*pending, &*queue, &[]);
    }
    release.open();
    assert_eq!(receiver.recv(), Ok("pending work ran"));
    assert_eq!(receiver.recv(), Ok("thread ended"));
    assert!(receiver.recv().is_err(), "everything that held the channel is gone");
}

#[test]
fn a_device_may_be_dropped_by_its_own_worker() {
    let (sender, receiver) = channel();
    let device = device(2);
    let queue = queue(&*device, QueueOrder::InOrder);
    let last = Arc::new(Mutex::new(None));
    let to_drop = last.clone();
    let (release, hold) = held();
    let buffer = one(&*device, move || {
        AT_EXIT.set(Some(TellAtExit(sender.clone())));
        hold();
        drop(to_drop.lock().unwrap().take());
        Ok(())
    });
    start(&*device, &*buffer, &*queue, &[]);
    *last.lock().unwrap() = Some((device, queue, buffer));
    drop(last);
    release.open();
    assert_eq!(receiver.recv(), Ok("thread ended"));
}

#[test]
fn sub_devices_share_the_threads_out() {
    let device = device(4);
    let parts = device.sub_devices(2.try_into().unwrap()).unwrap();
    assert_eq!(parts.iter().map(|part| part.info().compute_units).collect::<Vec<_>>(), [2, 2]);
    for part in &parts {
        let queue = queue(&**part, QueueOrder::InOrder);
        assert_complete(&*start(&**part, &*one(&**part, || Ok(())), &*queue, &[]));
    }
    let error = device.sub_devices(5.try_into().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
}

#[test]
fn a_share_and_the_rest_have_workers_of_their_own() {
    let device = device(4);
    let [share, rest] = device.share(1).unwrap();
    assert_eq!([&share, &rest].map(|part| part.info().compute_units), [1, 3]);
    assert!(share.info().selector.ends_with("(share of 1)"), "{}", share.info().selector);
    // While every worker of the rest is busy, the share works.
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let (release, hold) = held();
            let held = one(&*rest, move || {
                hold();
                Ok(())
            });
            (start(&*rest, &*held, &*queue(&*rest, QueueOrder::InOrder), &[]), release)
        })
        .collect();
    assert_complete(&*start(&*share, &*one(&*share, || Ok(())), &*queue(&*share, QueueOrder::InOrder), &[]));
    for (event, release) in busy {
        assert!(!event.status().is_final());
        release.open();
        assert_complete(&*event);
    }
}

#[test]
fn times_of_events_lie_in_order_on_one_clock() {
    let device = device(2);
    let desc = QueueDesc::new(QueueOrder::InOrder).profiling(true);
    let queue = device.create_queue(&desc).unwrap();
    let before = device.clock().unwrap().device;
    let event = start(&*device, &*one(&*device, || Ok(())), &*queue, &[]);
    assert_complete(&*event);
    let profile = event.profile().unwrap();
    assert!(before <= profile.submitted && profile.submitted <= profile.start);
    assert!(profile.start <= profile.end && profile.end <= device.clock().unwrap().device);
    assert!(profile.commands.is_empty());
}
