//! Events that the device's own thread waits for, because callbacks have come late.
#![expect(unsafe_code, reason = "enqueues, and ends events by hand")]

use std::sync::{Arc, mpsc};
use std::time::Duration;

use wakegraph_hal::{Command, Event, EventStatus, Notification, Queue as _, Signal, WaitList};

use super::super::device::OpenclDevice;
use super::super::queue::OpenclQueue;
use super::super::signal::OpenclEvent;
use super::super::sys::call;
use super::{CODE, Notified, devices, end, pending, queue};

/// The devices with such a thread, which waits for the next events.
fn late_devices() -> Vec<OpenclDevice> {
    let is_late = |device: &OpenclDevice| {
        let callbacks = device.context.late_callbacks.iter();
        callbacks.inspect(|callbacks| callbacks.record(Duration::from_secs(1))).count() > 0
    };
    devices().into_iter().filter(is_late).collect()
}

/// A command behind `wait`, of which `sender` hears.
fn enqueue(
    queue: &OpenclQueue,
    wait: &[&dyn Event],
    sender: &mpsc::Sender<u64>,
    token: u64,
) -> Arc<dyn Event> {
    let event: Arc<dyn Event> = Arc::new(OpenclEvent::new(&queue.context));
    let notification = Notification { target: Arc::new(Notified(sender.clone())), token };
    let signal = Signal::new(&event).notification(Some(notification));
    // SAFETY: the command uses no memory.
    unsafe { queue.enqueue(&Arc::new(Command::Empty), WaitList::dependencies(wait), signal) }.unwrap();
    event
}

/// The thread waits for the first, which waits for an event of the application's.
#[test]
fn an_event_that_is_waited_for_holds_up_no_other() {
    for device in late_devices() {
        let (held, free) = (queue(&device), queue(&device));
        let (gate, end_gate) = pending(&device, &held);
        let (sender, notified) = mpsc::channel();
        let first = enqueue(&held, &[&*gate], &sender, 0);
        // More of them than the thread finds places for.
        for token in 1..=3 {
            let event = enqueue(&free, &[], &sender, token);
            assert_eq!(notified.recv_timeout(Duration::from_secs(60)), Ok(token));
            assert!(matches!(event.status(), EventStatus::Complete));
        }
        assert!(matches!(first.status(), EventStatus::Pending));
        assert!(notified.try_recv().is_err());
        end(&device, &end_gate, 0);
        assert_eq!(notified.recv_timeout(Duration::from_secs(60)), Ok(0));
        assert!(matches!(first.status(), EventStatus::Complete));
    }
}

#[test]
fn an_event_that_is_waited_for_may_fail() {
    for device in late_devices() {
        let queue = queue(&device);
        let (gate, end_gate) = pending(&device, &queue);
        let (sender, notified) = mpsc::channel();
        let event = enqueue(&queue, &[&*gate], &sender, 0);
        end(&device, &end_gate, CODE);
        assert_eq!(notified.recv_timeout(Duration::from_secs(60)), Ok(0));
        assert!(matches!(event.status(), EventStatus::Failed(_)));
    }
}

/// Its queue and its device are let go of while the thread waits.
#[test]
fn an_event_that_is_waited_for_outlives_its_device() {
    for device in late_devices() {
        let (sender, notified) = mpsc::channel();
        let core = device.context.core;
        let (gate, end_gate) = {
            let queue = queue(&device);
            let (gate, end_gate) = pending(&device, &queue);
            enqueue(&queue, &[&*gate], &sender, 0);
            (gate, end_gate)
        };
        drop(device);
        // SAFETY: a user event that is alive, whose status has not been set.
        unsafe { call!(core, clSetUserEventStatus(end_gate.0, 0)) }.unwrap();
        drop(gate);
        assert_eq!(notified.recv_timeout(Duration::from_secs(60)), Ok(0));
    }
}
