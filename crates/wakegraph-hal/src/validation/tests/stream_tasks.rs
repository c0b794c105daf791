use super::*;
use crate::{Body, CommandKinds, Error, NativeCommand};

const UNSUPPORTED: ErrorKind = ErrorKind::FeatureNotSupported;

fn stream_task(memory: Vec<MemoryView>) -> Command {
    // SAFETY: nobody calls it.
    Command::StreamTask(unsafe { NativeCommand::new("mine", memory, |_| Ok(())) })
}

#[test]
fn in_order_queues_take_them() {
    let this = Fixture::new();
    let task = stream_task(vec![this.memory(64), this.host_memory(4)]);
    enqueue(&this.queue(), &task, &[], &this.event()).unwrap();
    let heard = this.log.take();
    assert!(heard.len() == 1 && heard[0].starts_with("queue StreamTask"), "{heard:?}");
}

#[test]
fn command_buffers_and_bodies_never_take_them() {
    // Whatever the device says.
    let this = Fixture::with(Capabilities { commands: CommandKinds::all(), ..everything() });
    let mut body = Body::new();
    body.push(stream_task(Vec::new()), &[]).unwrap();
    let why = "the device cannot put this command into a command-buffer: stream task";
    refused(this.buffer().append(&stream_task(Vec::new()), &[]), UNSUPPORTED, why);
    let why = "child graph: the device cannot put a command of its body into a command-buffer: stream task";
    refused(this.buffer().append(&Command::Child(Arc::new(body)), &[]), UNSUPPORTED, why);
    assert!(this.log.take().is_empty());
}

#[test]
fn queues_without_a_stream_to_lend_refuse_them() {
    let task = stream_task(Vec::new());
    let this = Fixture::with(Capabilities { stream_tasks: false, ..everything() });
    let why = "stream task: the device has no stream to lend, and 'mine' is to be enqueued";
    refused(enqueue(&this.queue(), &task, &[], &this.event()), UNSUPPORTED, why);
    let this = Fixture::new();
    let queue = this.device.create_queue(&QueueDesc::new(QueueOrder::OutOfOrder)).unwrap();
    let why = "stream task: only in-order queues have a stream to lend, and 'mine' is to be enqueued";
    refused(enqueue(&queue, &task, &[], &this.event()), UNSUPPORTED, why);
    assert!(this.log.take().is_empty());
}

#[test]
fn they_use_memory_of_their_device() -> Result<(), Error> {
    let (this, other) = (Fixture::new(), Fixture::new());
    let task = stream_task(vec![part(&other.memory(64), 4, 8)]);
    let ours = &this.device.info().selector;
    let why = format!(
        "stream task: 'mine' (bytes 4..12 of 64) is memory of another device, and cannot be accessed from {ours}"
    );
    refused(enqueue(&this.queue(), &task, &[], &this.event()), ErrorKind::InvalidArgument, &why);
    refused(this.device.check_command(&task), ErrorKind::InvalidArgument, &why);
    this.device.check_command(&stream_task(vec![this.memory(64)]))
}
