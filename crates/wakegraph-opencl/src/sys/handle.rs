//! The kinds of objects of the driver.

use std::ffi::c_void;

use wakegraph_hal::support::object::ObjectKind;

use super::{Core, DriverResult, OpenclFailure, call};

/// Logs a failed call whose caller cannot handle the failure.
pub(crate) fn report(result: DriverResult, consequence: &'static str) {
    if let Err(OpenclFailure { call, code }) = result {
        tracing::warn!(target: "wakegraph::opencl", call, code, consequence);
    }
}

macro_rules! kinds {
    ($($(#[$attribute:meta])* $kind:ident: $release:ident),+ $(,)?) => {
        $(
            $(#[$attribute])*
            #[derive(Debug)]
            pub(in crate) struct $kind;

            // SAFETY: OpenCL's objects may be used and released on any thread. The one exception, setting
            // arguments of a kernel while it is used, is up to the kernel's owner (`kernel.rs`).
            unsafe impl ObjectKind for $kind {
                type Handle = *mut c_void;
                type Owner = &'static Core;

                unsafe fn destroy(core: &&'static Core, object: *mut c_void) {
                    // SAFETY: passed on to the caller.
                    report(unsafe { call!(core, $release(object)) }, "an object could not be released");
                }
            }
        )+
    };
}

kinds! {
    /// A part of a device.
    SubDevice: clReleaseDevice,
    /// The devices that share memory and events.
    Context: clReleaseContext,
    /// A queue.
    CommandQueue: clReleaseCommandQueue,
    /// A buffer or part of one.
    MemObject: clReleaseMemObject,
    /// A program.
    Program: clReleaseProgram,
    /// A kernel with its arguments.
    Kernel: clReleaseKernel,
    /// Completion of one enqueued command.
    Event: clReleaseEvent,
}
