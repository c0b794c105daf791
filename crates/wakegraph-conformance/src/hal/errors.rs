//! States, sync-points, wait lists, handles, properties: every condition is refused, and nothing has changed.

use wakegraph::hal::{
    AccessMode, Command, CommandBufferDesc, CommandHandle, CommandUpdate, Event, KernelDesc, KernelSources,
    Param, ParamKind, QueueDesc, QueueOrder, SyncPoint, WaitList,
};
use wakegraph::{Error, ErrorKind, Result};

use super::bench::{Bench, complete, enqueue, enqueue_after, enqueue_command};
use crate::suite::{Need, Setup, lacks, tests};
use crate::watch::Turnstile;

tests!("errors":
    &[] => [finalize_once, append_before_finalize, enqueue_after_finalize, foreign_sync_points, idle_events,
        an_event_does_not_wait_for_itself, updates_need_an_updatable_buffer, updates_need_a_finalized_buffer, foreign_handles, other_devices_objects,
        impossible_signatures, empty_sources_are_refused, properties_follow_capabilities],
    &[Need::Results] => [kernels_without_code_for_the_device],
    &[Need::Results, Need::SharedMemory] => [a_pending_event_is_not_signalled_again]);

#[track_caller]
fn refused<T>(result: Result<T>, kind: ErrorKind) -> Error {
    let Err(error) = result else { panic!("expected {kind:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    assert!(!error.message().is_empty());
    error
}

fn finalize_once(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    buffer.finalize().unwrap();
    refused(buffer.finalize(), ErrorKind::InvalidOperation);
    bench.run_buffer(&buffer);
}

fn append_before_finalize(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut buffer = bench.recorded(&[Command::Empty]);
    refused(buffer.append(&Command::Empty, &[]), ErrorKind::InvalidOperation);
    assert_eq!(buffer.info().commands, 1);
    bench.run_buffer(&buffer);
}

fn enqueue_after_finalize(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    let event = bench.event();
    refused(enqueue(&buffer, &bench.queue, &event), ErrorKind::InvalidOperation);
    buffer.finalize().unwrap();
    enqueue(&buffer, &bench.queue, &event).unwrap();
    complete(&event);
}

fn foreign_sync_points(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut buffer = bench.buffer(CommandBufferDesc::new());
    let own = buffer.append(&Command::Empty, &[]).unwrap().sync_point;
    let mut other = bench.buffer(CommandBufferDesc::new());
    let foreign = other.append(&Command::Empty, &[]).unwrap().sync_point;
    refused(buffer.append(&Command::Empty, &[own, foreign]), ErrorKind::InvalidSyncPoint);
    let future = SyncPoint { index: own.index + 1, ..own };
    refused(buffer.append(&Command::Empty, &[future]), ErrorKind::InvalidSyncPoint);
    assert_eq!(buffer.append(&Command::Empty, &[own, own]).unwrap().sync_point.index, 1);
    buffer.finalize().unwrap();
    bench.run_buffer(&buffer);
}

fn idle_events(setup: &Setup) {
    let bench = Bench::new(setup);
    let buffer = bench.recorded(&[Command::Empty]);
    let (idle, done) = (bench.event(), bench.event());
    let list: &[&dyn Event] = &[&*idle];
    for wait in [WaitList::dependencies(list), WaitList::order(list)] {
        refused(enqueue_after(&buffer, &bench.queue, wait, &done), ErrorKind::InvalidWaitList);
        refused(enqueue_command(&Command::Empty, &bench.queue, wait, &done), ErrorKind::InvalidWaitList);
    }
    enqueue(&buffer, &bench.queue, &done).unwrap();
    complete(&done);
}

fn an_event_does_not_wait_for_itself(setup: &Setup) {
    let bench = Bench::new(setup);
    let buffer = bench.recorded(&[Command::Empty]);
    let event = bench.event();
    enqueue(&buffer, &bench.queue, &event).unwrap();
    complete(&event);
    let wait: &[&dyn Event] = &[&*event];
    let result = enqueue_after(&buffer, &bench.queue, WaitList::dependencies(wait), &event);
    refused(result, ErrorKind::InvalidWaitList);
}

fn a_pending_event_is_not_signalled_again(setup: &Setup) {
    let bench = Bench::new(setup);
    let (turnstile, other) = (Turnstile::new(), bench.another_queue());
    let (event, held) = (bench.event(), bench.held(&turnstile));
    let empty = bench.recorded(&[Command::Empty]);
    enqueue_command(&held, &bench.queue, WaitList::NONE, &event).unwrap();
    refused(enqueue(&empty, &other, &event), ErrorKind::InvalidOperation);
    turnstile.open();
    complete(&event);
}

fn updates_need_an_updatable_buffer(setup: &Setup) {
    let bench = Bench::new(setup);
    let mut buffer = bench.recorded(&[Command::Empty]);
    let handle = CommandHandle { buffer: buffer.info().id, index: 0 };
    refused(buffer.update(&[CommandUpdate::new(handle)]), ErrorKind::InvalidOperation);
}

fn updates_need_a_finalized_buffer(setup: &Setup) {
    let bench = Bench::new(setup);
    if bench.device.capabilities().update.is_empty() {
        return lacks("updates");
    }
    let desc = CommandBufferDesc::new().updatable(true);
    let mut recording = bench.buffer(desc);
    refused(recording.update(&[]), ErrorKind::InvalidOperation);
}

fn foreign_handles(setup: &Setup) {
    let bench = Bench::new(setup);
    if bench.device.capabilities().update.is_empty() {
        return lacks("updates");
    }
    let desc = CommandBufferDesc::new().updatable(true);
    let (mut buffer, other) = (bench.buffer(desc), bench.buffer(desc));
    buffer.append(&Command::Empty, &[]).unwrap();
    buffer.finalize().unwrap();
    let own = buffer.info().id;
    for handle in [
        CommandHandle { buffer: other.info().id, index: 0 },
        CommandHandle { buffer: own, index: 0 },
        CommandHandle { buffer: own, index: 1 },
    ] {
        refused(buffer.update(&[CommandUpdate::new(handle)]), ErrorKind::InvalidCommandHandle);
    }
}

fn other_devices_objects(setup: &Setup) {
    let bench = Bench::new(setup);
    let part = || bench.device.sub_devices(std::num::NonZeroUsize::MIN).ok()?.into_iter().next();
    let second = setup.devices.get(1).filter(|second| second.info().backend == bench.device.info().backend);
    let other = match (second, part()) {
        (Some(second), _) => Bench::on(second.hal()),
        (None, Some(part)) => Bench::on(&part),
        (None, None) => return lacks("a second device or sub-devices"),
    };
    let buffer = bench.recorded(&[Command::Empty]);
    let (ours, theirs) = (bench.event(), other.event());
    refused(enqueue(&buffer, &other.queue, &ours), ErrorKind::InvalidArgument);
    refused(enqueue(&buffer, &bench.queue, &theirs), ErrorKind::InvalidArgument);
    let result = enqueue_command(&Command::Empty, &bench.queue, WaitList::NONE, &theirs);
    refused(result, ErrorKind::InvalidArgument);
    // Waiting across devices works or is refused, as the device says.
    let recorded_there = other.recorded(&[Command::Empty]);
    enqueue(&recorded_there, &other.queue, &theirs).unwrap();
    let wait: &[&dyn Event] = &[&*theirs];
    let result = enqueue_after(&buffer, &bench.queue, WaitList::dependencies(wait), &ours);
    if bench.device.can_wait_for(&other.device) {
        result.unwrap();
        complete(&ours);
    } else {
        refused(result, ErrorKind::InvalidWaitList);
        complete(&theirs);
    }
}

fn impossible_signatures(setup: &Setup) {
    let device = setup.hal();
    let sources = KernelSources::default();
    let create = |name: &str, kind: ParamKind| {
        let params = [Param { name: "p".into(), kind }];
        device.create_kernel(&KernelDesc::new(name, &params, &sources))
    };
    let buffer = |element_size, element_align| ParamKind::Buffer {
        access: AccessMode::Read,
        element_size,
        element_align,
    };
    refused(create("", ParamKind::Value { size: 4 }), ErrorKind::InvalidArgument);
    refused(create("a\0b", ParamKind::Value { size: 4 }), ErrorKind::InvalidArgument);
    refused(create("k", ParamKind::Value { size: 0 }), ErrorKind::InvalidArgument);
    refused(create("k", ParamKind::Local { element_size: 0 }), ErrorKind::InvalidArgument);
    refused(create("k", buffer(0, 1)), ErrorKind::InvalidArgument);
    refused(create("k", buffer(4, 3)), ErrorKind::InvalidArgument);
}

/// Whether the device would take the variant or not: a kernel's sources are right or wrong on all
/// devices alike.
fn empty_sources_are_refused(setup: &Setup) {
    let sources = || KernelSources::new().host(|_, _| Ok(()));
    let empty = [
        ("c", sources().c("")),
        ("opencl_c", sources().opencl_c("")),
        ("spirv", sources().spirv(&[][..])),
        ("cuda_c", sources().cuda_c("")),
        ("ptx", sources().ptx("")),
        ("cubin", sources().cubin(&[][..])),
        ("hip_c", sources().hip_c("")),
        ("code_object", sources().code_object(&[][..])),
    ];
    for (variant, sources) in empty {
        let desc = KernelDesc::new("k", &[], &sources);
        let error = refused(setup.hal().create_kernel(&desc), ErrorKind::InvalidArgument);
        let expected = format!("kernel 'k': its source `{variant}` is empty");
        assert!(error.message().contains(&expected), "{error}");
    }
}

fn kernels_without_code_for_the_device(setup: &Setup) {
    let sources = KernelSources::default();
    let desc = KernelDesc::new("nothing", &[], &sources);
    let error = refused(setup.hal().create_kernel(&desc), ErrorKind::FeatureNotSupported);
    assert!(error.message().contains("nothing"), "{error}");
}

fn properties_follow_capabilities(setup: &Setup) {
    let device = setup.hal();
    let capabilities = device.capabilities();
    let expect = |able: bool, error: Option<Error>| match error {
        None => assert!(able),
        Some(error) => assert!(!able && error.kind() == ErrorKind::FeatureNotSupported, "{error}"),
    };
    let queue = |order, profiling| device.create_queue(&QueueDesc::new(order).profiling(profiling)).err();
    expect(capabilities.out_of_order_queues, queue(QueueOrder::OutOfOrder, false));
    expect(capabilities.profiling, queue(QueueOrder::InOrder, true));
    expect(true, queue(QueueOrder::InOrder, false));
    let buffer = |updatable, profiling| {
        let desc = CommandBufferDesc::new().updatable(updatable).profiling(profiling);
        device.create_command_buffer(&desc).err()
    };
    expect(!capabilities.update.is_empty(), buffer(true, false));
    expect(capabilities.profiling, buffer(false, true));
}
