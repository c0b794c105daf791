//! Devices, queues and command-buffers: properties, states, sync-points, wait lists and signals.

use std::num::NonZeroUsize;

use super::*;
use crate::{CommandBufferState, CommandUpdate, Notification, Notify};

#[test]
fn the_backend_is_asked_about_its_own_devices() {
    let this = Fixture::new();
    assert!(this.device.inner().downcast_ref::<FakeDevice>().is_some());
    assert!(this.device.can_wait_for(&Fixture::new().device));
}

#[test]
fn sub_devices_are_validated_too() {
    let halves = Fixture::new().device.sub_devices(NonZeroUsize::new(2).unwrap()).unwrap();
    assert_eq!(halves.len(), 2);
    for half in halves {
        let none = half.allocate(&MemoryDesc::new(0, MemoryKind::Device));
        refused(none, ErrorKind::InvalidSize, "an allocation of 0 bytes");
    }
}

#[test]
fn a_share_leaves_compute_units_and_some_devices_have_none() {
    let this = Fixture::new();
    for units in [0, 1] {
        let message = format!("a share of {units} of 0 compute units");
        refused(this.device.share(units), ErrorKind::InvalidArgument, &message);
    }
    let error = this.device.inner().share(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert_eq!(error.message(), "devices of the backend 'fake' have no shares of compute units");
}

#[test]
fn allocations_have_a_size_within_the_limit() {
    let this = Fixture::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        let none = this.device.allocate(&MemoryDesc::new(0, kind));
        refused(none, ErrorKind::InvalidSize, "an allocation of 0 bytes");
        let huge = this.device.allocate(&MemoryDesc::new((1 << 20) + 1, kind));
        let message = "an allocation of 1048577 bytes exceeds the device's largest, 1048576 bytes";
        refused(huge, ErrorKind::OutOfMemory, message);
    }
    assert!(this.heard().is_empty());
    this.device.allocate(&MemoryDesc::new(1 << 20, MemoryKind::Device)).unwrap();
    assert_eq!(this.heard(), ["allocate MemoryDesc { len: 1048576, kind: Device, zeroed: true }"]);
}

#[test]
fn kernels_have_possible_names_and_parameters() {
    let this = Fixture::new();
    let create = |name: &str, params: &[Param]| {
        this.device.create_kernel(&KernelDesc { name, params, sources: &KernelSources::default() })
    };
    let kind = ErrorKind::InvalidArgument;
    refused(create("", &[]), kind, "kernel \"\": the name is empty or holds a NUL");
    refused(create("a\0b", &[]), kind, "kernel \"a\\0b\": the name is empty or holds a NUL");
    let buffer = |element_size, element_align| ParamKind::Buffer {
        access: AccessMode::Read,
        element_size,
        element_align,
    };
    for (wrong, why) in [
        (ParamKind::Value { size: 0 }, "is a value of 0 bytes"),
        (ParamKind::Local { element_size: 0 }, "has elements of 0 bytes"),
        (buffer(0, 1), "has elements of 0 bytes"),
        (buffer(4, 0), "has elements aligned to 0, which is not a power of two"),
        (buffer(4, 3), "has elements aligned to 3, which is not a power of two"),
    ] {
        let params = [param("a", ParamKind::Value { size: 1 }), param("b", wrong)];
        refused(create("k", &params), kind, &format!("kernel 'k': parameter 1 'b' {why}"));
    }
    assert!(this.heard().is_empty());
    create("saxpy", &saxpy_params()).unwrap();
    assert_eq!(this.heard(), ["create kernel saxpy"]);
}

#[test]
fn properties_need_their_capability() {
    let kind = ErrorKind::FeatureNotSupported;
    let buffer = |capabilities, desc| Fixture::with(capabilities).device.create_command_buffer(&desc);
    let queue = |capabilities, desc| Fixture::with(capabilities).device.create_queue(&desc);
    let plain = CommandBufferDesc::default();
    let without_profiling = || Capabilities { profiling: false, ..everything() };

    let without = Capabilities { commands: CommandKinds::empty(), ..everything() };
    refused(buffer(without, plain), kind, "the device has no command-buffers");
    let without = Capabilities { update: UpdateCapabilities::empty(), ..everything() };
    let updatable = CommandBufferDesc { updatable: true, ..plain };
    refused(buffer(without, updatable), kind, "the device has no updatable command-buffers");
    let profiling = CommandBufferDesc { profiling: true, ..plain };
    refused(buffer(without_profiling(), profiling), kind, "the device has no profiling of command-buffers");

    let without = Capabilities { out_of_order_queues: false, ..everything() };
    let out_of_order = QueueDesc::new(QueueOrder::OutOfOrder);
    refused(queue(without, out_of_order), kind, "the device has no out-of-order queues");
    let profiling = QueueDesc::new(QueueOrder::InOrder).profiling(true);
    refused(queue(without_profiling(), profiling), kind, "the device has no profiling of queues");

    buffer(
        everything(),
        CommandBufferDesc { updatable: true, in_order: true, profiling: true, low_latency: false },
    )
    .unwrap();
    let queue = queue(everything(), QueueDesc::new(QueueOrder::OutOfOrder).profiling(true)).unwrap();
    assert_eq!(queue.desc(), &QueueDesc::new(QueueOrder::OutOfOrder).profiling(true));
}

#[test]
fn a_command_buffer_goes_from_recording_to_executable_once() {
    let this = Fixture::new();
    let (mut buffer, queue, done) = (this.updatable_buffer(), this.queue(), this.event());
    let kind = ErrorKind::InvalidOperation;

    refused(submit(&buffer, &queue, &[], &done), kind, "command-buffer: enqueued before finalize");
    refused(buffer.update(&[]), kind, "command-buffer: updated before finalize");
    assert_eq!(buffer.info().state, CommandBufferState::Recording);
    buffer.finalize().unwrap();
    assert_eq!(buffer.info().state, CommandBufferState::Executable);
    refused(buffer.finalize(), kind, "command-buffer: finalized twice");
    refused(empty(&mut buffer, &[]), kind, "empty node: appended after finalize");
    submit(&buffer, &queue, &[], &done).unwrap();
    buffer.update(&[]).unwrap();
    assert_eq!(this.heard(), ["finalize", "enqueue after 0 events, token None", "update []"]);
}

#[test]
fn only_updatable_buffers_are_updated() {
    let this = Fixture::new();
    let mut buffer = this.buffer();
    let appended = buffer.append(&Command::Kernel(Arc::new(this.saxpy())), &[]).unwrap();
    assert_eq!(appended.handle, None);
    buffer.finalize().unwrap();
    let handle = crate::CommandHandle { buffer: buffer.info().id, index: 0 };
    let update = CommandUpdate::new(handle);
    let message = "command-buffer: updated, but not created as updatable";
    refused(buffer.update(&[update]), ErrorKind::InvalidOperation, message);
}

#[test]
fn unsupported_commands_are_named() {
    let without = CommandKinds::all() - CommandKinds::BUFFER_FILL;
    let this = Fixture::with(Capabilities { commands: without, ..everything() });
    let fill = Command::BufferFill { dst: this.memory(4), pattern: [0].as_slice().into() };
    let message = "the device cannot put this command into a command-buffer: buffer fill";
    refused(this.buffer().append(&fill, &[]), ErrorKind::FeatureNotSupported, message);
    // What a queue can run, the backend knows.
    enqueue(&this.queue(), &fill, &[], &this.event()).unwrap();
}

// c after a and, twice, b:
//
//     a -> c
//     b -> c
#[test]
fn sync_points_are_passed_on_and_come_from_the_same_buffer() {
    let this = Fixture::new();
    let (mut buffer, mut other) = (this.buffer(), this.buffer());
    let a = empty(&mut buffer, &[]).unwrap().sync_point;
    let b = empty(&mut buffer, &[]).unwrap().sync_point;
    let c = empty(&mut buffer, &[a, b, b]).unwrap().sync_point;
    assert_eq!((a.index, b.index, c.index, c.buffer), (0, 1, 2, buffer.info().id));
    assert_eq!(this.heard()[2], "append Empty after [0, 1, 1]");

    let kind = ErrorKind::InvalidSyncPoint;
    let foreign = empty(&mut other, &[]).unwrap().sync_point;
    this.heard();
    let (ours, theirs) = (buffer.info().id, other.info().id);
    let message = format!("empty node: sync-point 0 belongs to {theirs:?}, not to {ours:?}");
    refused(empty(&mut buffer, &[a, foreign]), kind, &message);
    let future = SyncPoint { buffer: ours, index: 3 };
    let message = "empty node: sync-point 3 does not exist: 3 commands were appended";
    refused(empty(&mut buffer, &[future]), kind, message);
    assert!(this.heard().is_empty());
    assert_eq!(buffer.info().commands, 3);
}

#[test]
fn a_refused_append_makes_no_sync_point() {
    let this = Fixture::new();
    let mut buffer = this.buffer();
    let wrong = Command::UsmFill { dst: usm(64, 8), pattern: [].as_slice().into() };
    buffer.append(&wrong, &[]).unwrap_err();
    let point = SyncPoint { buffer: buffer.info().id, index: 0 };
    let message = "empty node: sync-point 0 does not exist: 0 commands were appended";
    refused(empty(&mut buffer, &[point]), ErrorKind::InvalidSyncPoint, message);
}

#[test]
fn what_the_backend_refuses_leaves_the_state_as_it_was() {
    let this = Fixture::new();
    let (mut buffer, queue, done) = (this.buffer(), this.queue(), this.event());
    this.inject_fault();
    assert_eq!(empty(&mut buffer, &[]).unwrap_err().kind(), ErrorKind::Driver);
    let point = SyncPoint { buffer: buffer.info().id, index: 0 };
    let message = "empty node: sync-point 0 does not exist: 0 commands were appended";
    refused(empty(&mut buffer, &[point]), ErrorKind::InvalidSyncPoint, message);

    this.inject_fault();
    assert_eq!(buffer.finalize().unwrap_err().kind(), ErrorKind::Driver);
    let message = "command-buffer: enqueued before finalize";
    refused(submit(&buffer, &queue, &[], &done), ErrorKind::InvalidOperation, message);
    empty(&mut buffer, &[]).unwrap();
    buffer.finalize().unwrap();
    submit(&buffer, &queue, &[], &done).unwrap();
}

#[derive(Debug)]
struct Nobody;

impl Notify for Nobody {
    fn notify(&self, _token: u64) {}
}

/// Enqueues a command-buffer and a command alike, and gives what both say.
fn both(this: &Fixture, wait: &[&dyn Event], done: [&Arc<dyn Event>; 2]) -> [Result<()>; 2] {
    let mut buffer = this.buffer();
    buffer.finalize().unwrap();
    this.heard();
    let queue = this.queue();
    [submit(&buffer, &queue, wait, done[0]), enqueue(&queue, &Command::Empty, wait, done[1])]
}

fn both_refused(this: &Fixture, wait: &[&dyn Event], done: &Arc<dyn Event>, kind: ErrorKind, why: &str) {
    for (result, what) in both(this, wait, [done; 2]).into_iter().zip(["command-buffer", "empty node"]) {
        refused(result, kind, &format!("{what}: {why}"));
    }
    assert!(this.heard().is_empty());
}

#[test]
fn waiting_for_what_was_enqueued_is_passed_on_even_twice_or_failed_or_foreign() {
    let (this, other) = (Fixture::manual(), Fixture::manual());
    let (complete, failed) = (this.enqueued(), this.enqueued());
    assert!(this.control.fail(&*failed, Error::new(ErrorKind::Driver, "it broke")));
    assert_eq!(this.control.complete_all(), 1);
    let (pending, foreign) = (this.enqueued(), other.enqueued());
    let wait = [&*pending, &*pending, &*complete, &*failed, &*foreign];
    for result in both(&this, &wait, [&this.event(), &this.event()]) {
        result.unwrap();
    }
    let heard = this.heard();
    assert_eq!(heard, ["enqueue after 5 events, token None", "queue Empty after 5 events, token None"]);
}

#[test]
fn an_idle_event_cannot_be_waited_for() {
    let this = Fixture::new();
    let complete = this.enqueued();
    let idle = this.event();
    let why = "event 1 of the 2 to wait for was never enqueued";
    both_refused(&this, &[&*complete, &*idle], &this.event(), ErrorKind::InvalidWaitList, why);
}

#[test]
fn an_enqueue_does_not_wait_for_the_event_it_signals() {
    let this = Fixture::new();
    let done = this.enqueued();
    let why = "event 0 of the wait list is the event to signal";
    both_refused(&this, &[&*done], &done, ErrorKind::InvalidWaitList, why);
}

#[test]
fn the_signalled_event_is_of_this_device_and_not_pending() {
    let (this, other) = (Fixture::manual(), Fixture::new());
    let id = this.device.info().id;
    let why = "the event to signal is still pending from an earlier enqueue";
    both_refused(&this, &[], &this.enqueued(), ErrorKind::InvalidOperation, why);

    let why = format!("the event to signal belongs to {}, the queue to {id}", other.device.info().id);
    both_refused(&this, &[], &other.event(), ErrorKind::InvalidArgument, &why);

    let again = other.enqueued();
    for result in both(&other, &[], [&again; 2]) {
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
    this.heard();
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
    assert!(this.heard().is_empty());
    check(&[&ready, &ready, &unfinished, &ready], 2, ErrorKind::InvalidOperation, message);
    assert_eq!(this.heard(), ["batch of 2"]);
}

#[test]
fn notifications_flush_and_finish_are_passed_on() {
    let this = Fixture::new();
    let (mut buffer, queue, done) = (this.buffer(), this.queue(), this.event());
    buffer.finalize().unwrap();
    this.heard();
    let target: Arc<dyn Notify> = Arc::new(Nobody);
    let notification = Some(Notification { target, token: 7 });
    // SAFETY: the fake backend touches no memory.
    unsafe { buffer.enqueue(&queue, WaitList::NONE, Signal::new(&done).notification(notification)) }.unwrap();
    queue.flush().unwrap();
    queue.finish().unwrap();
    assert_eq!(queue.device(), this.device.info().id);
    assert_eq!(this.heard(), ["enqueue after 0 events, token Some(7)", "flush", "finish"]);
}
