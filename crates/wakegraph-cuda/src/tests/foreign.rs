//! Events, streams, addresses and contexts of other libraries.

use std::ffi::c_void;
use std::sync::Arc;

use wakegraph_hal::NativeStream;

use super::super::graph::add_to_capture;
use super::super::sys::{
    CU_STREAM_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_NONE, CUDA_ERROR_NOT_SUPPORTED,
};
use super::super::{capture_graph, no_capture, not_added};
use super::fake::FakeMemory;
use super::*;

/// A handle that another library would give.
fn handle(number: usize) -> *mut c_void {
    std::ptr::without_provenance_mut(number)
}

fn import(bench: &Bench, number: usize) -> Arc<dyn Event> {
    // SAFETY: the fake driver takes any handle.
    unsafe { bench.device.import_event(handle(number)) }.unwrap()
}

fn order_after(bench: &Bench, stream: usize, events: &[&dyn Event]) -> crate::Result<()> {
    // SAFETY: the fake driver takes any handle.
    unsafe { bench.device.order_after(handle(stream), events) }
}

#[test]
fn an_event_is_taken_over_when_it_is_imported() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    fake::hold(true);
    let imported = import(&bench, 7);
    assert_eq!(fake::last_wait()[1], 7);
    assert!(matches!(imported.status(), EventStatus::Pending));
    let own = bench.event();
    bench.enqueue(&*buffer, &[&*imported], &own).unwrap();
    assert_ne!(fake::last_wait()[1], 7, "the application's may be gone by then");
    assert!(matches!(own.status(), EventStatus::Pending));
    fake::hold(false);
    assert!(matches!(own.wait(None), EventStatus::Complete));
    assert!(matches!(imported.status(), EventStatus::Complete));
}

#[test]
fn events_that_are_awaited_do_not_wait_for_each_other() {
    let bench = Bench::new();
    let stream_of = |number| {
        let event = import(&bench, number);
        (fake::last_wait()[0], event)
    };
    fake::hold(true);
    let (first, second) = (stream_of(1), stream_of(2));
    assert_ne!(first.0, second.0);
    fake::hold(false);
    let created = fake::calls("cuStreamCreate");
    for number in 3..100 {
        assert_eq!(stream_of(number).0, first.0);
    }
    assert_eq!(fake::calls("cuStreamCreate"), created);
}

#[test]
fn streams_of_other_libraries_wait_for_all_kinds_of_ends() {
    let bench = Bench::new();
    let memory = bench.memory();
    fake::hold(true);
    for desc in [PLAIN, LOW_LATENCY] {
        let (buffer, _) = bench.chain(desc, &[bench.launch(1, &memory)]);
        // The count of a counter does not change in the fake, so a counted run is pending as well.
        let event = bench.event();
        bench.enqueue(&*buffer, &[], &event).unwrap();
        let waits = fake::calls("cuStreamWaitEvent");
        for stream in [0, 9] {
            order_after(&bench, stream, &[&*event]).unwrap();
            assert_eq!(fake::last_wait()[0], stream, "null is the default stream");
        }
        assert_eq!(fake::calls("cuStreamWaitEvent"), waits + 2);
    }
    let (batched, _) = bench.chain(PLAIN, &[bench.launch(1, &memory)]);
    let event = bench.event();
    bench.enqueue_batch(&*batched, &event);
    order_after(&bench, 9, &[&*event]).unwrap();
    let idle = order_after(&bench, 9, &[&*bench.event()]);
    assert_eq!(idle.unwrap_err().kind(), ErrorKind::InvalidWaitList);
    fake::hold(false);
}

#[test]
fn a_stream_that_is_captured_does_not_wait() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    let event = bench.event();
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &event).unwrap();
    let waits = fake::calls("cuStreamWaitEvent");
    fake::leave_captures_open(true);
    let error = order_after(&bench, 9, &[&*event]).unwrap_err();
    fake::leave_captures_open(false);
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    assert!(error.to_string().contains("captured"), "{error}");
    assert_eq!(fake::calls("cuStreamWaitEvent"), waits, "a wait would end the capture as invalid");
    order_after(&bench, 9, &[&*event]).unwrap();
    fake::hold(false);
}

#[test]
fn a_graph_is_added_to_a_stream_that_is_captured() {
    let _bench = Bench::new();
    let (stream, graph) = (handle(9).cast(), handle(7).cast());
    let add = || {
        // SAFETY: the fake driver takes any handle.
        unsafe { add_to_capture(fake::driver(), stream, graph) }
    };
    let invalid = 2;
    for (status, kind, found) in [
        (CU_STREAM_CAPTURE_STATUS_NONE, ErrorKind::InvalidOperation, "is not captured"),
        (invalid, ErrorKind::Driver, "a call before has made the capture invalid"),
    ] {
        fake::capture_status(status);
        assert_eq!(add().unwrap(), status);
        let error = no_capture(status);
        assert_eq!(error.kind(), kind);
        assert!(error.message().contains(found), "{error}");
    }
    assert_eq!(fake::calls("cuGraphAddChildGraphNode"), 0);
    fake::leave_captures_open(true);
    assert_eq!(add().unwrap(), CU_STREAM_CAPTURE_STATUS_ACTIVE);
    let added = ["cuGraphAddChildGraphNode", "cuStreamUpdateCaptureDependencies"].map(fake::calls);
    assert_eq!(added, [1, 1]);
    fake::fail("cuGraphAddChildGraphNode", 1, CUDA_ERROR_NOT_SUPPORTED);
    let error = not_added(add().unwrap_err());
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported);
    assert!(error.message().contains("memory nodes or conditional nodes"), "{error}");
    fake::fail("cuStreamUpdateCaptureDependencies", 1, CUDA_ERROR_NOT_SUPPORTED);
    let error = not_added(add().unwrap_err());
    assert!(!error.message().contains("nodes"), "not because of the graph: {error}");
    assert_eq!(
        fake::calls("cuStreamUpdateCaptureDependencies"),
        2,
        "the first one left the capture as it was"
    );
    fake::leave_captures_open(false);
    for backend in ["hip", "cuda"] {
        // SAFETY: nothing is enqueued.
        let lent = unsafe { NativeStream::new(backend, handle(9), handle(1)) };
        let graph = if backend == "cuda" { std::ptr::null_mut() } else { handle(7) };
        // SAFETY: it is refused.
        let error = unsafe { capture_graph(&lent, graph) }.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[test]
fn what_is_over_or_has_failed_holds_no_stream_back() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    let event = bench.event();
    bench.enqueue(&*buffer, &[], &event).unwrap();
    assert!(matches!(event.status(), EventStatus::Complete));
    let waits = fake::calls("cuStreamWaitEvent");
    order_after(&bench, 9, &[&*event]).unwrap();
    assert_eq!(fake::calls("cuStreamWaitEvent"), waits);
    fake::fail("cuEventQuery", 1, ILLEGAL_ADDRESS);
    bench.enqueue(&*buffer, &[], &event).unwrap();
    assert_eq!(failed(event.status()).kind(), ErrorKind::DeviceLost);
    assert_eq!(order_after(&bench, 9, &[&*event]).unwrap_err().kind(), ErrorKind::DeviceLost);
}

#[test]
fn rounds_between_other_libraries_never_synchronise() {
    let bench = Bench::new();
    let (buffer, _) = bench.chain(LOW_LATENCY, &[bench.launch(1, &bench.memory())]);
    let before = fake::calls("cuStreamSynchronize");
    for round in 1..1000 {
        fake::hold(round % 3 == 0);
        let (event, theirs) = (bench.event(), import(&bench, round));
        bench.enqueue(&*buffer, &[&*theirs], &event).unwrap();
        order_after(&bench, 9, &[&*event]).unwrap();
    }
    fake::hold(false);
    // The table has no other function that waits for the device.
    assert_eq!(fake::calls("cuStreamSynchronize"), before);
}

#[test]
fn handles_that_the_driver_refuses_are_invalid_arguments() {
    let bench = Bench::new();
    for (function, code, kind) in [
        ("cuEventQuery", 400, ErrorKind::InvalidArgument),
        ("cuStreamWaitEvent", 400, ErrorKind::InvalidArgument),
        // Recorded in a capture.
        ("cuEventQuery", 907, ErrorKind::Driver),
        ("cuEventCreate", OUT_OF_MEMORY, ErrorKind::OutOfMemory),
    ] {
        fake::fail(function, 1, code);
        // SAFETY: the fake driver takes any handle.
        let error = unsafe { bench.device.import_event(handle(7)) }.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("cuda:0"), "{error}");
    }
    let (buffer, _) = bench.chain(PLAIN, &[bench.launch(1, &bench.memory())]);
    let event = bench.event();
    fake::hold(true);
    bench.enqueue(&*buffer, &[], &event).unwrap();
    fake::fail("cuStreamWaitEvent", 1, 400);
    assert_eq!(order_after(&bench, 9, &[&*event]).unwrap_err().kind(), ErrorKind::InvalidArgument);
    fake::hold(false);
}

#[test]
fn addresses_are_checked_against_what_the_driver_knows() {
    let bench = Bench::new();
    let memory = |start, len, kind, device| FakeMemory { start, len, kind, device, context: 1 };
    let [pinned, device] = [1, 2];
    fake::know(memory(0x1000, 100, device, 0));
    fake::know(memory(0x1064, 100, device, 0));
    fake::know(memory(0x2000, 100, device, 1));
    fake::know(memory(0x3000, 100, pinned, 1));
    // Mapped in parts, one behind the other.
    for start in [0x4000, 0x4040] {
        fake::know(FakeMemory { context: 0, ..memory(start, 0x40, device, 0) });
    }
    let check = |address, len| bench.device.check_address(address, len);
    for (address, len) in [(0x1000, 100), (0x1010, 84), (0x3000, 100), (0x4000, 0x80), (0x4020, 0x60)] {
        check(address, len).unwrap();
    }
    let (invalid, size) = (ErrorKind::InvalidArgument, ErrorKind::InvalidSize);
    for (address, len, kind, found) in [
        (0x5000, 1, invalid, "no memory at 0x5000"),
        (0x2000, 1, invalid, "CUDA device 1"),
        (0x1000, 101, size, "ends after 100 bytes"),
        (0x1000, 200, size, "ends after 100 bytes"),
        (0x1010, 100, size, "ends after 84 bytes"),
        (0x1010, usize::MAX, size, "ends after 84 bytes"),
        (0x4020, 0x61, size, "ends after 96 bytes"),
    ] {
        let error = check(address, len).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.message().contains(found), "{error}");
    }
}

#[test]
fn contexts_of_the_application_are_kept_and_not_released() {
    let open = |context, keep_alive| {
        // SAFETY: the fake driver takes any context.
        unsafe { open_lent(fake::driver(), context, keep_alive) }
    };
    let owner = Arc::new(());
    assert_eq!(open(std::ptr::null_mut(), Box::new(())).unwrap_err().kind(), ErrorKind::InvalidArgument);
    fake::fail("cuCtxPushCurrent", 1, 201);
    assert_eq!(open(handle(5).cast(), Box::new(())).unwrap_err().kind(), ErrorKind::InvalidArgument);
    let device = open(handle(5).cast(), Box::new(owner.clone())).unwrap();
    assert_eq!((&*device.info().selector, device.inner().context.raw.addr()), ("cuda:0", 5));
    let memory = device.allocate(&MemoryDesc::new(64, MemoryKind::Device)).unwrap();
    drop(device);
    assert_eq!(Arc::strong_count(&owner), 2, "memory is freed in its context");
    drop(memory);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(fake::calls("cuDevicePrimaryCtxRelease"), 0);
}
