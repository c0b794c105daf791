use super::*;
use crate::{CommandBufferState, CommandKinds, CommandUpdate};

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
    assert_eq!(this.log.take(), ["finalize", "enqueue after 0 events, token None", "update []"]);
}

#[test]
fn only_updatable_buffers_are_updated() {
    let this = Fixture::new();
    let mut buffer = this.buffer();
    let appended = buffer.append(&Command::Kernel(Box::new(this.saxpy())), &[]).unwrap();
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
    assert_eq!(this.log.take()[2], "append Empty after [0, 1, 1]");

    let kind = ErrorKind::InvalidSyncPoint;
    let foreign = empty(&mut other, &[]).unwrap().sync_point;
    this.log.take();
    let (ours, theirs) = (buffer.info().id, other.info().id);
    let message = format!("empty node: sync-point 0 belongs to {theirs:?}, not to {ours:?}");
    refused(empty(&mut buffer, &[a, foreign]), kind, &message);
    let future = SyncPoint { buffer: ours, index: 3 };
    let message = "empty node: sync-point 3 does not exist: 3 commands were appended";
    refused(empty(&mut buffer, &[future]), kind, message);
    assert!(this.log.take().is_empty());
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
    this.fault.inject();
    assert_eq!(empty(&mut buffer, &[]).unwrap_err().kind(), ErrorKind::Driver);
    let point = SyncPoint { buffer: buffer.info().id, index: 0 };
    let message = "empty node: sync-point 0 does not exist: 0 commands were appended";
    refused(empty(&mut buffer, &[point]), ErrorKind::InvalidSyncPoint, message);

    this.fault.inject();
    assert_eq!(buffer.finalize().unwrap_err().kind(), ErrorKind::Driver);
    let message = "command-buffer: enqueued before finalize";
    refused(submit(&buffer, &queue, &[], &done), ErrorKind::InvalidOperation, message);
    empty(&mut buffer, &[]).unwrap();
    buffer.finalize().unwrap();
    submit(&buffer, &queue, &[], &done).unwrap();
}
