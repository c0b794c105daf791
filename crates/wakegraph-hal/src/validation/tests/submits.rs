use super::fake::FakeEvent;
use super::*;
use crate::{DeviceId, Error, EventStatus, Notification, Notify, WaitList};

#[derive(Debug)]
struct Nobody;

impl Notify for Nobody {
    fn notify(&self, _token: u64) {}
}

/// Enqueues a command-buffer and a command alike, and gives what both say.
fn both(this: &Fixture, wait: &[&dyn Event], done: &Arc<dyn Event>) -> [Result<()>; 2] {
    let mut buffer = this.buffer();
    buffer.finalize().unwrap();
    this.log.take();
    let queue = this.queue();
    [submit(&buffer, &queue, wait, done), enqueue(&queue, &Command::Empty, wait, done)]
}

fn both_refused(this: &Fixture, wait: &[&dyn Event], done: &Arc<dyn Event>, kind: ErrorKind, why: &str) {
    for (result, what) in both(this, wait, done).into_iter().zip(["command-buffer", "empty node"]) {
        refused(result, kind, &format!("{what}: {why}"));
    }
    assert!(this.log.take().is_empty());
}

#[test]
fn waiting_for_what_was_enqueued_is_passed_on_even_twice_or_failed_or_foreign() {
    let this = Fixture::new();
    let id = this.device.info().id;
    let failed = EventStatus::Failed(Error::new(ErrorKind::Driver, "it broke"));
    let [pending, complete] = [EventStatus::Pending, EventStatus::Complete].map(|s| FakeEvent::at(id, s));
    let failed = FakeEvent::at(id, failed);
    let foreign = FakeEvent::at(DeviceId::unique(), EventStatus::Pending);
    let wait = [&*pending, &*pending, &*complete, &*failed, &*foreign];
    for result in both(&this, &wait, &this.event()) {
        result.unwrap();
    }
    let heard = this.log.take();
    assert_eq!(heard, ["enqueue after 5 events, token None", "queue Empty after 5 events, token None"]);
}

#[test]
fn an_idle_event_cannot_be_waited_for() {
    let this = Fixture::new();
    let complete = FakeEvent::at(this.device.info().id, EventStatus::Complete);
    let idle = this.event();
    let why = "event 1 of the 2 to wait for was never enqueued";
    both_refused(&this, &[&*complete, &*idle], &this.event(), ErrorKind::InvalidWaitList, why);
}

#[test]
fn an_enqueue_does_not_wait_for_the_event_it_signals() {
    let this = Fixture::new();
    let done = FakeEvent::at(this.device.info().id, EventStatus::Complete);
    let why = "event 0 of the wait list is the event to signal";
    both_refused(&this, &[&*done], &done, ErrorKind::InvalidWaitList, why);
}

#[test]
fn the_signalled_event_is_of_this_device_and_not_pending() {
    let this = Fixture::new();
    let id = this.device.info().id;
    let pending = FakeEvent::at(id, EventStatus::Pending);
    let why = "the event to signal is still pending from an earlier enqueue";
    both_refused(&this, &[], &pending, ErrorKind::InvalidOperation, why);

    let other = Fixture::new();
    let why = format!("the event to signal belongs to {}, the queue to {id}", other.device.info().id);
    both_refused(&this, &[], &other.event(), ErrorKind::InvalidArgument, &why);

    let again = FakeEvent::at(id, EventStatus::Complete);
    for result in both(&this, &[], &again) {
        result.unwrap();
    }
}

#[test]
fn the_queue_is_of_this_device() {
    let (this, other) = (Fixture::new(), Fixture::new());
    let mut buffer = this.buffer();
    buffer.finalize().unwrap();
    let (ours, theirs) = (this.device.info().id, other.device.info().id);
    let message = format!("command-buffer: the queue belongs to {theirs}, the command-buffer to {ours}");
    let result = submit(&buffer, &other.queue(), &[], &this.event());
    refused(result, ErrorKind::InvalidArgument, &message);
}

#[test]
fn a_batch_has_finalized_buffers_of_this_device() {
    let (this, other) = (Fixture::new(), Fixture::new());
    let batch = |buffers: &[&ValidatedCommandBuffer]| {
        // SAFETY: the fake backend touches no memory.
        unsafe { this.queue().enqueue_batch(buffers, Signal::new(&this.event())) }
    };
    let [unfinished, mut foreign, mut ready] = [this.buffer(), other.buffer(), this.buffer()];
    foreign.finalize().unwrap();
    ready.finalize().unwrap();
    this.log.take();
    let check = |buffers: &[&ValidatedCommandBuffer], count, kind, message: &str| {
        let enqueued = batch(buffers);
        assert_eq!(enqueued.count, count);
        refused(Err::<(), _>(enqueued.failure.unwrap()), kind, message);
    };
    let message = "command-buffer: enqueued before finalize";
    check(&[&unfinished], 0, ErrorKind::InvalidOperation, message);
    let (ours, theirs) = (this.device.info().id, other.device.info().id);
    let of_theirs = format!("command-buffer: the queue belongs to {ours}, the command-buffer to {theirs}");
    check(&[&foreign], 0, ErrorKind::InvalidArgument, &of_theirs);
    assert!(this.log.take().is_empty());
    check(&[&ready, &ready, &unfinished, &ready], 2, ErrorKind::InvalidOperation, message);
    assert_eq!(this.log.take(), ["batch of 2"]);
}

#[test]
fn notifications_flush_and_finish_are_passed_on() {
    let this = Fixture::new();
    let (mut buffer, queue, done) = (this.buffer(), this.queue(), this.event());
    buffer.finalize().unwrap();
    this.log.take();
    let target: Arc<dyn Notify> = Arc::new(Nobody);
    let notification = Some(Notification { target, token: 7 });
    // SAFETY: the fake backend touches no memory.
    unsafe { buffer.enqueue(&queue, WaitList::NONE, Signal::new(&done).notification(notification)) }.unwrap();
    queue.flush().unwrap();
    queue.finish().unwrap();
    assert_eq!(queue.device(), this.device.info().id);
    assert_eq!(this.log.take(), ["enqueue after 0 events, token Some(7)", "flush", "finish"]);
}
