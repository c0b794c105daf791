//! A refused enqueue does not change the order of the others.
#![expect(unsafe_code, reason = "enqueues, and stands in for the driver")]

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use wakegraph_hal::{
    AccessMode, Backend as _, Command, CommandBuffer, CommandBufferDesc, Device as _, Event, EventStatus,
    KernelArg, KernelDesc, KernelLaunch, KernelSources, Memory, MemoryDesc, MemoryKind, MemoryView, Param,
    ParamKind, Queue, Range, Result, Signal, WaitList,
};

use super::super::OpenclDevice;
use super::super::events::OpenclEvent;
use super::super::{Lowering, OpenclBackend, OpenclOptions, sys};
use super::{devices, end, pending, queue};

/// Time in which a command that wrongly starts ends. A correct result does not depend on it.
const A_MOMENT: Duration = Duration::from_millis(200);

fn memory(device: &OpenclDevice) -> Arc<dyn Memory> {
    device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap()
}

fn read(memory: &Arc<dyn Memory>) -> [u8; 4] {
    let mut bytes = [0; 4];
    // SAFETY: nothing is in flight.
    unsafe { memory.read(0, &mut bytes) }.unwrap();
    bytes
}

fn fill(memory: &Arc<dyn Memory>, byte: u8) -> Command {
    Command::BufferFill { dst: MemoryView::whole(memory.clone()), pattern: [byte].as_slice().into() }
}

/// A launch in a larger work-group than the device has, which drivers refuse when it is enqueued.
fn too_large(device: &OpenclDevice, memory: &Arc<dyn Memory>) -> Command {
    let source = "__kernel void one(__global uint *x) { x[0] = 1; }";
    let sources = KernelSources::new().opencl_c(source);
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    let params = [Param { name: "x".into(), kind }];
    let kernel =
        device.create_kernel(&KernelDesc { name: "one", params: &params, sources: &sources }).unwrap();
    let items = 4 * device.capabilities().max_work_group_size;
    Command::Kernel(Arc::new(KernelLaunch {
        kernel,
        args: vec![KernelArg::Memory(MemoryView::whole(memory.clone()))],
        range: Range::linear(items).local([items]),
        alternatives: Vec::new(),
    }))
}

fn recorded(device: &OpenclDevice, command: &Command, profiling: bool) -> Box<dyn CommandBuffer> {
    let desc = CommandBufferDesc { updatable: false, in_order: true, profiling, low_latency: false };
    let mut buffer = device.create_command_buffer(&desc).unwrap();
    buffer.append(command, &[]).unwrap();
    buffer.finalize().unwrap();
    buffer
}

fn event(device: &OpenclDevice) -> Arc<dyn Event> {
    Arc::new(OpenclEvent::new(&device.context))
}

fn enqueue(
    buffer: &dyn CommandBuffer,
    queue: &dyn Queue,
    wait: &[&dyn Event],
    event: &Arc<dyn Event>,
) -> Result<()> {
    let wait = WaitList { dependencies: &[], order: wait };
    // SAFETY: every test waits for what it enqueues, and orders it.
    unsafe { buffer.enqueue(queue, wait, Signal::new(event)) }
}

/// Behind an in-order queue there are two of the driver: commands with times go to one with profiling.
#[test]
fn a_refused_enqueue_with_times_keeps_the_order_of_its_queue() {
    for device in devices() {
        let (queue, other) = (queue(&device), queue(&device));
        let (start, driver_event) = pending(&device, &other);
        let (x, y) = (memory(&device), memory(&device));
        let first = recorded(&device, &fill(&x, 7), false);
        let refused = recorded(&device, &too_large(&device, &y), true);
        let copy =
            Command::BufferCopy { src: MemoryView::whole(x.clone()), dst: MemoryView::whole(y.clone()) };
        let last = recorded(&device, &copy, true);
        let [filled, never, copied] = std::array::from_fn(|_| event(&device));
        enqueue(&*first, &queue, &[&*start], &filled).unwrap();
        enqueue(&*refused, &queue, &[], &never).unwrap_err();
        enqueue(&*last, &queue, &[], &copied).unwrap();
        let status = copied.wait(Some(A_MOMENT));
        assert!(matches!(status, EventStatus::Pending), "it overtook the one before: {status:?}");
        end(&device, &driver_event, 0);
        for event in [filled, copied] {
            assert!(matches!(event.wait(None), EventStatus::Complete));
        }
        assert_eq!(read(&y), [7; 4]);
        assert!(matches!(never.status(), EventStatus::Idle));
    }
}

unsafe extern "C" fn refuse_recording(
    _: u32,
    _: *mut sys::cl_command_queue,
    _: sys::cl_command_buffer_khr,
    _: u32,
    _: *const *mut c_void,
    _: *mut *mut c_void,
) -> i32 {
    sys::CL_OUT_OF_RESOURCES
}

/// The backend cannot know how many commands of a refused recording run, so its event fails. It does not
/// fail before the wait list has ended, because the commands may run only then.
#[test]
fn a_refused_recording_fails_after_its_wait_list() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let options = OpenclOptions::new().lowering(Lowering::CommandBuffer);
        let device = OpenclDevice::open_changed(index, options, |platform| {
            platform.extensions.clEnqueueCommandBufferKHR = Some(refuse_recording);
        })
        .unwrap();
        if device.context.features.recording.is_none() {
            continue;
        }
        let (queue, other) = (queue(&device), queue(&device));
        let (start, driver_event) = pending(&device, &other);
        let x = memory(&device);
        let (buffer, failed) = (recorded(&device, &fill(&x, 7), false), event(&device));
        enqueue(&*buffer, &queue, &[&*start], &failed).unwrap();
        let status = failed.wait(Some(A_MOMENT));
        assert!(matches!(status, EventStatus::Pending), "{status:?}");
        end(&device, &driver_event, 0);
        assert!(matches!(failed.wait(None), EventStatus::Failed(_)));
    }
}
