use std::num::NonZeroUsize;

use super::fake::FakeDevice;
use super::*;
use crate::{CommandKinds, UpdateCapabilities};

#[test]
fn the_backend_is_asked_about_its_own_devices() {
    let this = Fixture::new();
    assert!(this.device.inner().as_any().is::<FakeDevice>());
    assert!(this.device.can_wait_for(&Fixture::new().device));
}

#[test]
fn sub_devices_are_validated_too() {
    let halves = Fixture::new().device.sub_devices(NonZeroUsize::new(2).unwrap()).unwrap();
    assert_eq!(halves.len(), 2);
    for half in halves {
        let none = half.allocate(&MemoryDesc { len: 0, kind: MemoryKind::Device });
        refused(none, ErrorKind::InvalidSize, "an allocation of 0 bytes");
    }
}

#[test]
fn allocations_have_a_size_within_the_limit() {
    let this = Fixture::new();
    for kind in [MemoryKind::Device, MemoryKind::Host] {
        let none = this.device.allocate(&MemoryDesc { len: 0, kind });
        refused(none, ErrorKind::InvalidSize, "an allocation of 0 bytes");
        let huge = this.device.allocate(&MemoryDesc { len: (1 << 20) + 1, kind });
        let message = "an allocation of 1048577 bytes exceeds the device's largest, 1048576 bytes";
        refused(huge, ErrorKind::OutOfMemory, message);
    }
    assert!(this.log.take().is_empty());
    this.device.allocate(&MemoryDesc { len: 1 << 20, kind: MemoryKind::Device }).unwrap();
    assert_eq!(this.log.take(), ["allocate MemoryDesc { len: 1048576, kind: Device }"]);
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
    assert!(this.log.take().is_empty());
    create("saxpy", &saxpy_params()).unwrap();
    assert_eq!(this.log.take(), ["create kernel saxpy"]);
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
