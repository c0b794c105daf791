//! The fake device: completes at once, by hand, by the clock, and fails on purpose.
use wakegraph::hal::{EventDesc, EventStatus, QueueDesc, QueueOrder};
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions, FakeTiming};
use wakegraph::{Error, ErrorKind};

use crate::common::*;

fn is_pending(event: &std::sync::Arc<dyn wakegraph::hal::Event>) -> bool {
    matches!(event.status(), EventStatus::Pending)
}

#[test]
fn completes_at_once() {
    let (device, control) = FakeDevice::open(FakeOptions::new());
    let queue = queue(&*device, QueueOrder::InOrder);
    let (notifier, receiver) = notifier();
    let (buffer, done) = (one(&*device, || Ok(())), event(&*device));
    for token in 0..3 {
        enqueue(&*buffer, &*queue, &[], &done, notification(&notifier, token)).unwrap();
        assert_eq!(receiver.try_recv(), Ok(token));
        assert!(matches!(done.status(), EventStatus::Complete));
    }
    queue.finish().unwrap();
    assert_eq!(control.pending(), 0);
}

#[test]
fn completes_by_hand_in_an_order_that_holds() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let (ordered, free) = (queue(&*device, QueueOrder::InOrder), queue(&*device, QueueOrder::OutOfOrder));
    let buffers: Vec<_> = (0..4).map(|_| one(&*device, || Ok(()))).collect();
    let first = start(&*device, &*buffers[0], &*ordered, &[]);
    let second = start(&*device, &*buffers[1], &*ordered, &[]);
    let waiting = start(&*device, &*buffers[2], &*free, &[&*second]);
    let same_buffer = start(&*device, &*buffers[0], &*free, &[]);
    let independent = start(&*device, &*buffers[3], &*free, &[]);
    assert_eq!(control.pending(), 5);

    assert!(control.complete_next(Some(&*free)));
    assert!(!is_pending(&independent));
    assert!(!control.complete_next(Some(&*free)), "a wait list and a command-buffer hold them back");
    assert!(control.complete_next(None));
    assert!(!is_pending(&first) && is_pending(&second));
    assert!(control.complete_next(Some(&*free)));
    assert!(!is_pending(&same_buffer) && is_pending(&waiting));
    assert_eq!(control.complete_all(), 2);
    assert_complete(&*waiting);
}

#[test]
fn fails_on_demand_and_spreads_it() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let queue = queue(&*device, QueueOrder::InOrder);
    let buffers: Vec<_> = (0..3).map(|_| one(&*device, || Ok(()))).collect();
    let failed = start(&*device, &*buffers[0], &*queue, &[]);
    let dependent = start(&*device, &*buffers[1], &*queue, &[&*failed]);
    let unrelated = start(&*device, &*buffers[2], &*queue, &[]);
    control.fail_next(Error::new(ErrorKind::Driver, "code 700"));
    assert_eq!(control.complete_all(), 3);
    assert_eq!(failure(&*failed).message(), "code 700");
    assert_eq!(failure(&*dependent).message(), "code 700");
    assert_complete(&*unrelated);
    assert_eq!(
        failure(&*start_after(&device, &*buffers[0], &*queue, &*failed, &control)).message(),
        "code 700"
    );
}

fn start_after(
    device: &std::sync::Arc<dyn wakegraph::hal::Device>,
    buffer: &dyn wakegraph::hal::CommandBuffer,
    queue: &dyn wakegraph::hal::Queue,
    after: &dyn wakegraph::hal::Event,
    control: &FakeControl,
) -> std::sync::Arc<dyn wakegraph::hal::Event> {
    let event = start(&**device, buffer, queue, &[after]);
    control.complete_all();
    event
}

#[test]
fn a_lost_device_fails_everything_and_refuses_the_rest() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
    let queue = queue(&*device, QueueOrder::InOrder);
    let (notifier, receiver) = notifier();
    let (buffer, done) = (one(&*device, || Ok(())), event(&*device));
    enqueue(&*buffer, &*queue, &[], &done, notification(&notifier, 9)).unwrap();
    control.lose_device();
    assert_eq!(failure(&*done).kind(), ErrorKind::DeviceLost);
    assert_eq!(receiver.try_recv(), Ok(9));
    for error in [
        device.status().unwrap_err(),
        queue.finish().unwrap_err(),
        enqueue(&*buffer, &*queue, &[], &done, None).unwrap_err(),
        device.create_event(&EventDesc::new()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::DeviceLost);
    }
}

#[test]
fn can_be_polled_and_timed() {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    assert!(!device.capabilities().notifies);
    let queue = device.create_queue(&QueueDesc::new(QueueOrder::InOrder)).unwrap();
    let (notifier, receiver) = notifier();
    let desc = IN_ORDER.profiling(true);
    let commands = [call(&*device, || Ok(())), call(&*device, || Ok(()))];
    let (buffer, done) = (buffer(&*device, desc, &commands, &[]), event(&*device));
    enqueue(&*buffer, &*queue, &[], &done, notification(&notifier, 1)).unwrap();
    drop(notifier);
    assert!(receiver.recv().is_err(), "the notification is dropped");
    assert!(done.profile().is_err());
    control.complete_all();
    let profile = done.profile().unwrap();
    assert!(profile.submitted < profile.start && profile.start < profile.commands[0].start);
    assert!(profile.commands[1].end < profile.end);
}

#[test]
fn completes_by_the_clock() {
    let hour = std::time::Duration::from_secs(3600);
    for (work, at_once) in [(std::time::Duration::ZERO, true), (hour, false)] {
        let timing = FakeTiming { work, ..FakeTiming::default() };
        let (device, control) = FakeDevice::open(FakeOptions::new().timing(timing));
        assert!(!device.capabilities().notifies);
        let queue = queue(&*device, QueueOrder::InOrder);
        let buffer = one(&*device, || Ok(()));
        let first = start(&*device, &*buffer, &*queue, &[]);
        let last = start(&*device, &*buffer, &*queue, &[&*first]);
        assert_eq!(last.wait(Some(std::time::Duration::ZERO)).is_final(), at_once);
        if !at_once {
            assert!(is_pending(&first));
            control.complete_all();
        }
        queue.finish().unwrap();
        assert!(!is_pending(&first) && !is_pending(&last));
        assert_eq!(control.pending(), 0);
        assert!(control.polls() > 0);
    }
}
