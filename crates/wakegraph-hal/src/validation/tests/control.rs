//! Bodies, conditions, native commands and stream tasks.

use super::*;
use crate::{Body, CommandUpdate, NativeCommand};

const ARGUMENT: ErrorKind = ErrorKind::InvalidArgument;
const SIZE: ErrorKind = ErrorKind::InvalidSize;
const UNSUPPORTED: ErrorKind = ErrorKind::FeatureNotSupported;

fn body(command: Command) -> Arc<Body> {
    let mut body = Body::new();
    body.push(command, &[]).unwrap();
    Arc::new(body)
}

fn if_nonzero(condition: MemoryView, then: Arc<Body>, otherwise: Option<Arc<Body>>) -> Command {
    Command::If { condition, then, otherwise }
}

fn while_nonzero(condition: MemoryView, body: Arc<Body>) -> Command {
    Command::While { condition, body }
}

fn native(memory: Vec<MemoryView>) -> Command {
    // SAFETY: nobody calls it.
    Command::Native(unsafe { NativeCommand::new("mine", memory, |_| Ok(())) })
}

#[test]
fn valid_ones_reach_the_backend() {
    let this = Fixture::new();
    let (flag, host) = (part(&this.memory(64), 8, 4), part(&this.host_memory(64), 4, 4));
    let kernel = body(Command::Kernel(Arc::new(this.saxpy())));
    let inner = if_nonzero(flag.clone(), kernel.clone(), None);
    for command in [
        if_nonzero(flag.clone(), Arc::new(Body::new()), None),
        if_nonzero(flag.clone(), kernel.clone(), Some(kernel.clone())),
        if_nonzero(host, kernel, None),
        while_nonzero(flag.clone(), body(inner)),
        native(vec![flag]),
    ] {
        this.run(&command).unwrap();
    }
}

#[test]
fn a_condition_is_a_word_that_the_device_can_read() {
    let (this, other) = (Fixture::new(), Fixture::new());
    let nothing = Arc::new(Body::new());
    let memory = this.memory(64);
    for (len, message) in [(8, "'condition' (bytes 0..8 of 64)"), (1, "'condition' (bytes 0..1 of 64)")] {
        let wrong = part(&memory, 0, len);
        let why = |kind| format!("{kind}: {message} is not a u32, which has 4 bytes");
        this.refuses(&if_nonzero(wrong.clone(), nothing.clone(), None), SIZE, &why("conditional"));
        this.refuses(&while_nonzero(wrong, nothing.clone()), SIZE, &why("loop"));
    }
    let switch = Command::Switch { index: part(&memory, 0, 8), bodies: Vec::new() };
    this.refuses(&switch, SIZE, "switch: 'index' (bytes 0..8 of 64) is not a u32, which has 4 bytes");
    let odd = while_nonzero(part(&memory, 2, 4), nothing.clone());
    let why = "loop: 'condition' (bytes 2..6 of 64) does not start at a multiple of 4";
    this.refuses(&odd, ARGUMENT, why);
    let foreign = part(&other.memory(64), 0, 4);
    let ours = &this.device.info().selector;
    let why = format!(
        "loop: 'condition' (bytes 0..4 of 64) is memory of another device, and cannot be accessed from {ours}"
    );
    this.refuses(&while_nonzero(foreign.clone(), nothing), ARGUMENT, &why);
    let why = format!(
        "native command: 'mine' (bytes 0..4 of 64) is memory of another device, and \
         cannot be accessed from {ours}"
    );
    this.refuses(&native(vec![foreign]), ARGUMENT, &why);
}

#[test]
fn the_commands_of_bodies_are_checked_in_all_depths() {
    let this = Fixture::new();
    let flag = part(&this.memory(64), 0, 4);
    let wrong = || Command::BufferFill { dst: this.memory(64), pattern: smallvec::smallvec![0; 3] };
    let why = "'pattern' of 3 bytes does not divide 'dst' of 64 bytes";
    let second = while_nonzero(flag.clone(), after_native(wrong()));
    this.refuses(&second, SIZE, &format!("loop: command 1 of its body: buffer fill: {why}"));
    let good = Arc::new(Body::new());
    let otherwise = if_nonzero(flag.clone(), good, Some(body(wrong())));
    this.refuses(&otherwise, SIZE, &format!("conditional: command 0 of its body: buffer fill: {why}"));
    this.refuses(
        &while_nonzero(flag, body(otherwise)),
        SIZE,
        &format!("loop: command 0 of its body: conditional: command 0 of its body: buffer fill: {why}"),
    );
}

fn after_native(command: Command) -> Arc<Body> {
    let mut body = Body::new();
    body.push(native(Vec::new()), &[]).unwrap();
    body.push(command, &[0]).unwrap();
    Arc::new(body)
}

#[test]
fn what_the_device_lacks_is_refused_by_name_in_bodies_too() {
    let commands = CommandKinds::all() - CommandKinds::WHILE;
    let this = Fixture::with(Capabilities { commands, ..everything() });
    let flag = part(&this.memory(64), 0, 4);
    let lacking = while_nonzero(flag.clone(), Arc::new(Body::new()));
    let within = |command| if_nonzero(flag.clone(), body(command), None);
    let refuses = |command: &Command, message| {
        refused(this.buffer().append(command, &[]), ErrorKind::FeatureNotSupported, message);
    };
    refuses(&lacking, "the device cannot put this command into a command-buffer: loop");
    let message = "conditional: the device cannot put a command of its body into a command-buffer: loop";
    refuses(&within(lacking.clone()), message);
    refuses(&within(within(lacking)), message);
}

#[test]
fn updates_replace_flag_and_bodies() {
    let looping = |this: &Fixture| while_nonzero(part(&this.memory(64), 0, 4), Arc::new(Body::new()));
    let update = |handle, command: Command| CommandUpdate {
        command: Some(Box::new(command)),
        ..CommandUpdate::new(handle)
    };
    let able =
        Capabilities { update: UpdateCapabilities::all() - UpdateCapabilities::BODIES, ..everything() };
    for (this, refused_by) in [(Fixture::new(), None), (Fixture::with(able), Some("BODIES"))] {
        let mut buffer = this.updatable_buffer();
        let handle = buffer.append(&looping(&this), &[]).unwrap().handle.unwrap();
        buffer.finalize().unwrap();
        this.heard();
        let kernel = body(Command::Kernel(Arc::new(this.saxpy())));
        let flag = part(&this.memory(64), 4, 4);
        let other = while_nonzero(flag.clone(), kernel.clone());
        let updated = buffer.update(&[update(handle, other)]);
        if let Some(bit) = refused_by {
            let why = "the device cannot change the bodies of conditionals, switches and loops";
            let message = format!("update of command 0: {why} (UpdateCapabilities({bit}))");
            refused(updated, ErrorKind::FeatureNotSupported, &message);
            continue;
        }
        updated.unwrap();
        assert_eq!(this.heard().len(), 1);
        let message = "update of command 0: it is a loop, and the new command a conditional";
        refused(buffer.update(&[update(handle, if_nonzero(flag, kernel, None))]), ARGUMENT, message);
        let wrong = while_nonzero(part(&this.memory(64), 0, 8), Arc::new(Body::new()));
        assert_eq!(buffer.update(&[update(handle, wrong)]).unwrap_err().kind(), SIZE);
        let switch = CommandUpdate { enabled: Some(false), ..CommandUpdate::new(handle) };
        let message = "update: command 0 is a loop, which cannot be enabled or disabled";
        refused(buffer.update(&[switch]), ErrorKind::InvalidCommandHandle, message);
        assert!(this.heard().is_empty());
    }
}

fn stream_task(memory: Vec<MemoryView>) -> Command {
    // SAFETY: it enqueues nothing.
    Command::StreamTask(unsafe { NativeCommand::new("mine", memory, |_| Ok(())) })
}

#[test]
fn in_order_queues_take_stream_tasks() {
    let this = Fixture::new();
    let task = stream_task(vec![this.memory(64), this.host_memory(4)]);
    enqueue(&this.queue(), &task, &[], &this.event()).unwrap();
    let heard = this.heard();
    assert!(heard.len() == 1 && heard[0].starts_with("queue StreamTask"), "{heard:?}");
}

#[test]
fn command_buffers_and_bodies_never_take_stream_tasks() {
    // Whatever the device says.
    let this = Fixture::with(Capabilities { commands: CommandKinds::all(), ..everything() });
    let flag = part(&this.memory(64), 0, 4);
    let why = "the device cannot put this command into a command-buffer: stream task";
    refused(this.buffer().append(&stream_task(Vec::new()), &[]), UNSUPPORTED, why);
    let why = "loop: the device cannot put a command of its body into a command-buffer: stream task";
    let looping = while_nonzero(flag, body(stream_task(Vec::new())));
    refused(this.buffer().append(&looping, &[]), UNSUPPORTED, why);
    assert!(this.heard().is_empty());
}

#[test]
fn queues_without_a_stream_to_lend_refuse_stream_tasks() {
    let task = stream_task(Vec::new());
    let this = Fixture::with(Capabilities { stream_tasks: false, ..everything() });
    let why = "stream task: the device has no stream to lend, and 'mine' is to be enqueued";
    refused(enqueue(&this.queue(), &task, &[], &this.event()), UNSUPPORTED, why);
    let this = Fixture::new();
    let queue = this.device.create_queue(&QueueDesc::new(QueueOrder::OutOfOrder)).unwrap();
    let why = "stream task: only in-order queues have a stream to lend, and 'mine' is to be enqueued";
    refused(enqueue(&queue, &task, &[], &this.event()), UNSUPPORTED, why);
    assert!(this.heard().is_empty());
}

#[test]
fn stream_tasks_use_memory_of_their_device() -> Result<(), Error> {
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
