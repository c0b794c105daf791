//! Host buffers in steady state.
#![expect(unsafe_code, reason = "stands between the backend and the driver")]

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use wakegraph_hal::Backend as _;

use super::super::OpenclDevice;
use super::super::{OpenclBackend, OpenclOptions, sys};
use super::kept;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

fn count() -> &'static sys::Core {
    CALLS.set(CALLS.get() + 1);
    sys::core().unwrap()
}

unsafe extern "C" fn allocate(context: *mut c_void, flags: u64, len: usize, align: u32) -> *mut c_void {
    let allocate = count().clSVMAlloc.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { allocate(context, flags, len, align) }
}

unsafe extern "C" fn free(context: *mut c_void, memory: *mut c_void) {
    let free = count().clSVMFree.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { free(context, memory) }
}

unsafe extern "C" fn create(
    context: *mut c_void,
    flags: u64,
    len: usize,
    memory: *mut c_void,
    code: *mut i32,
) -> *mut c_void {
    let create = count().clCreateBuffer.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { create(context, flags, len, memory, code) }
}

unsafe extern "C" fn release(object: *mut c_void) -> i32 {
    let release = count().clReleaseMemObject.unwrap();
    // SAFETY: passed on to the caller.
    unsafe { release(object) }
}

#[test]
fn host_buffers_in_steady_state_make_no_driver_call() {
    for index in 0..OpenclBackend.device_count().unwrap_or(0) {
        let device = OpenclDevice::open_changed(index, OpenclOptions::new(), |platform| {
            let mut core = platform.core.clone();
            core.clSVMAlloc = core.clSVMAlloc.map(|_| allocate as _);
            core.clSVMFree = core.clSVMFree.map(|_| free as _);
            core.clCreateBuffer = Some(create);
            core.clReleaseMemObject = Some(release);
            platform.core = kept(core);
        });
        let device = wakegraph::Device::from_hal(Arc::new(device.unwrap()));
        let round = || {
            drop(device.host_buffer::<f32>(2 << 20).unwrap());
            drop(device.host_buffer_from(&[1u8; 5000]).unwrap());
        };
        round();
        CALLS.set(0);
        (0..100).for_each(|_| round());
        assert_eq!(CALLS.get(), 0, "{device:?}");
        assert_eq!(device.host_pool_stats().allocations, 2);
    }
}
