//! The order in which a command-buffer releases the objects of the driver.
#![expect(unsafe_code, reason = "stands between the backend and the driver")]

use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

use wakegraph_hal::{
    AccessMode, Backend as _, Command, CommandBuffer as _, CommandBufferDesc, Device as _, KernelArg,
    KernelDesc, KernelLaunch, KernelSources, MemoryDesc, MemoryKind, MemoryView, Param, ParamKind, Range,
};

use super::super::OpenclDevice;
use super::super::lower::OpenclOperation;
use super::super::queue::OpenclCommandBuffer;
use super::super::{Lowering, OpenclBackend, OpenclOptions, sys};
use super::kept;

/// An object that was released, by its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Released {
    Kernel(usize),
    Recording,
}

thread_local! {
    static RELEASED: RefCell<Vec<Released>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn release_kernel(kernel: *mut c_void) -> i32 {
    RELEASED.with_borrow_mut(|released| released.push(Released::Kernel(kernel.addr())));
    let release = sys::core().unwrap().clReleaseKernel.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { release(kernel) }
}

thread_local! {
    static RELEASE_RECORDING: RefCell<opencl_sys::clReleaseCommandBufferKHR_t> = const { RefCell::new(None) };
}

unsafe extern "C" fn release_recording(recording: *mut c_void) -> i32 {
    RELEASED.with_borrow_mut(|released| released.push(Released::Recording));
    let release = RELEASE_RECORDING.with_borrow(|release| *release).unwrap();
    // SAFETY: passed on to the caller.
    unsafe { release(recording) }
}

/// PoCL searches a linked list for each kernel that is released, from the newest on.
#[test]
fn kernels_are_released_from_the_newest_on() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        for lowering in [Lowering::Replay, Lowering::CommandBuffer] {
            let options = OpenclOptions::new().lowering(lowering);
            let device = OpenclDevice::open_changed(index, options, |platform| {
                let core = sys::Core { clReleaseKernel: Some(release_kernel), ..platform.core.clone() };
                platform.core = kept(core);
                RELEASE_RECORDING.set(platform.extensions.clReleaseCommandBufferKHR);
                platform.extensions.clReleaseCommandBufferKHR = Some(release_recording);
            })
            .unwrap();
            let buffer = recorded(&device);
            let created: Vec<_> = buffer
                .recorded
                .list
                .commands
                .iter()
                .flat_map(|command| command.operations())
                .filter_map(|operation| match operation {
                    OpenclOperation::Kernel(launch) => {
                        Some(Released::Kernel(launch.instance.kernel.raw().addr()))
                    }
                    _ => None,
                })
                .collect();
            assert_eq!(created.len(), 10);
            let is_recorded = buffer.recording.is_some();
            RELEASED.take();
            drop(buffer);
            let recordings = is_recorded.then_some(Released::Recording);
            let expected: Vec<_> = recordings.into_iter().chain(created.into_iter().rev()).collect();
            assert_eq!(RELEASED.take()[..expected.len()], expected, "{lowering:?}");
        }
    }
}

/// Ten launches of one kernel.
fn recorded(device: &OpenclDevice) -> OpenclCommandBuffer {
    let source = "__kernel void one(__global uint *x) { x[get_global_id(0)] = 1; }";
    let sources = KernelSources::new().opencl_c(source);
    let kind = ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 4, element_align: 4 };
    let params = [Param { name: "x".into(), kind }];
    let kernel =
        device.create_kernel(&KernelDesc { name: "one", params: &params, sources: &sources }).unwrap();
    let memory = device.allocate(&MemoryDesc::new(4, MemoryKind::Device)).unwrap();
    let desc = CommandBufferDesc { updatable: false, in_order: true, profiling: false, low_latency: false };
    let mut buffer = OpenclCommandBuffer::new(&device.context, desc);
    for _ in 0..10 {
        let launch = KernelLaunch {
            kernel: kernel.clone(),
            args: vec![KernelArg::Memory(MemoryView::whole(memory.clone()))],
            range: Range::linear(1),
            alternatives: Vec::new(),
        };
        buffer.append(&Command::Kernel(Arc::new(launch)), &[]).unwrap();
    }
    buffer.finalize().unwrap();
    buffer
}
