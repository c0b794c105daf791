//! Notifications: once each, with the token, after the event is final.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use wakegraph::hal::{Command, Event, EventStatus, Notification, Notify, WaitList};
use wakegraph::{Error, ErrorKind};

use super::bench::{Bench, complete, enqueue, enqueue_notifying};
use crate::suite::{Need, Setup, lacks, tests};
use crate::watch::Turnstile;

tests!("notify":
    &[] => [every_enqueue_notifies_once, devices_that_do_not_notify_let_go],
    &[Need::Results, Need::SharedMemory] => [no_notification_before_the_event_is_final],
    &[Need::Results, Need::FailingKernels] => [failures_notify_too]);

/// Counts the calls for each token, and reads the event of the call.
#[derive(Default)]
struct Counter {
    calls: Mutex<Vec<usize>>,
    events: Mutex<Vec<Arc<dyn Event>>>,
    premature: Mutex<usize>,
    changed: Condvar,
}

impl Counter {
    fn of(events: &[Arc<dyn Event>]) -> Arc<Self> {
        let counter = Self { events: Mutex::new(events.to_vec()), ..Self::default() };
        *counter.calls.lock() = vec![0; events.len()];
        Arc::new(counter)
    }

    fn notification(self: &Arc<Self>, token: usize) -> Notification {
        Notification::new(self.clone(), token as u64)
    }

    fn wait_for_all(&self) -> Vec<usize> {
        let mut calls = self.calls.lock();
        self.changed.wait_while(&mut calls, |calls| calls.contains(&0));
        assert_eq!(*self.premature.lock(), 0);
        calls.clone()
    }
}

impl Notify for Counter {
    fn notify(&self, token: u64) {
        if !self.events.lock()[token as usize].status().is_final() {
            *self.premature.lock() += 1;
        }
        self.calls.lock()[token as usize] += 1;
        self.changed.notify_all();
    }
}

fn events(bench: &Bench, count: usize) -> Vec<Arc<dyn Event>> {
    (0..count).map(|_| bench.event()).collect()
}

fn every_enqueue_notifies_once(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().notifies {
        return lacks("notifications");
    }
    // An empty command has nothing to do, a fill has: both ways to completion.
    let fill = Command::BufferFill { dst: bench.memory(&[0; 8]), pattern: [1].as_slice().into() };
    for buffer in [bench.recorded(&[Command::Empty]), bench.recorded(&[fill])] {
        let events = events(&bench, 500);
        let counter = Counter::of(&events);
        for (token, event) in events.iter().enumerate() {
            let notification = counter.notification(token);
            enqueue_notifying(&buffer, &bench.queue, WaitList::NONE, event, notification).unwrap();
        }
        assert_eq!(counter.wait_for_all(), vec![1; 500]);
        bench.queue.finish().unwrap();
        // Another round of work: a second notification would have come by now.
        enqueue(&buffer, &bench.queue, &events[0]).unwrap();
        complete(&events[0]);
        assert_eq!(counter.wait_for_all(), vec![1; 500]);
    }
}

fn devices_that_do_not_notify_let_go(setup: &Setup) {
    let bench = Bench::new(setup);
    if bench.device.capabilities().notifies {
        return lacks("a device without notifications");
    }
    let buffer = bench.recorded(&[Command::Empty]);
    let events = events(&bench, 1);
    let counter = Counter::of(&events);
    enqueue_notifying(&buffer, &bench.queue, WaitList::NONE, &events[0], counter.notification(0)).unwrap();
    complete(&events[0]);
    assert_eq!(*counter.calls.lock(), [0]);
    assert_eq!(Arc::strong_count(&counter), 1);
}

fn failures_notify_too(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().notifies {
        return lacks("notifications");
    }
    let failing = bench.recorded(&[bench.call("fail", || Err(Error::new(ErrorKind::Driver, "broken")))]);
    let events = events(&bench, 3);
    let counter = Counter::of(&events);
    enqueue_notifying(&failing, &bench.queue, WaitList::NONE, &events[0], counter.notification(0)).unwrap();
    for token in 1..3 {
        let wait: &[&dyn Event] = &[&*events[token - 1]];
        let (wait, notification) = (WaitList::dependencies(wait), counter.notification(token));
        enqueue_notifying(&failing, &bench.another_queue(), wait, &events[token], notification).unwrap();
    }
    assert_eq!(counter.wait_for_all(), [1; 3]);
    assert!(events.iter().all(|event| matches!(event.status(), EventStatus::Failed(_))));
}

fn no_notification_before_the_event_is_final(setup: &Setup) {
    let bench = Bench::new(setup);
    if !bench.device.capabilities().notifies {
        return lacks("notifications");
    }
    let turnstile = Turnstile::new();
    let buffer = bench.recorded(&[bench.held(&turnstile)]);
    let events = events(&bench, 1);
    let counter = Counter::of(&events);
    enqueue_notifying(&buffer, &bench.queue, WaitList::NONE, &events[0], counter.notification(0)).unwrap();
    bench.queue.flush().unwrap();
    turnstile.wait_for(1);
    assert_eq!(*counter.calls.lock(), [0]);
    turnstile.open();
    assert_eq!(counter.wait_for_all(), [1]);
}
