//! OpenCL's types, constants and functions. No other file names the library or its symbols.
//!
//! `opencl-sys` has the declarations. This module loads the functions itself instead of using `cl3`,
//! for three reasons: `cl3` asks the driver for an event at every enqueue, which a replayed
//! list needs for its last command only; its table declares the functions with Rust's calling
//! convention; and extension functions have to be requested by platform, or a loader does not find
//! them.
#![expect(unsafe_code, reason = "loads the library and calls it")]
#![allow(non_snake_case, reason = "the vendor's names")]

use std::ffi::{CStr, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use opencl_sys::cl_function_types::*;
pub(super) use opencl_sys::*;
pub(super) use wakegraph_hal::support::library::Owned;
use wakegraph_hal::support::library::{ObjectKind, open_named};

/// Calls a function of the core table or of the extensions: `Ok` where it returned success.
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => {
                $crate::sys::outcome(stringify!($function), function($($argument),*))
            }
            None => Err($crate::sys::missing(stringify!($function))),
        }
    };
}

/// Calls a function that returns an address, and an error code through its last argument.
///
/// Expands to one unsafe operation.
macro_rules! get {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => {
                let mut code = $crate::sys::CL_SUCCESS;
                let raw = function($($argument,)* &raw mut code);
                $crate::sys::object(stringify!($function), code, raw)
            }
            None => Err($crate::sys::missing(stringify!($function))),
        }
    };
}

/// Calls a core function that creates an object, and takes over the object.
///
/// Expands to one unsafe operation.
macro_rules! create {
    ($core:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::get!($core, $function($($argument),*))
            .map(|object| $crate::sys::adopt($core, object))
    };
}

pub(super) use call;
pub(super) use create;
pub(super) use get;

/// A call that did not succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OpenclFailure {
    /// The function.
    pub(super) call: &'static str,
    /// The code that it returned.
    pub(super) code: cl_int,
}

pub(super) type DriverResult<T = ()> = Result<T, OpenclFailure>;

/// The code for a function that the library does not have; not one of OpenCL's.
pub(super) const MISSING_FUNCTION: cl_int = cl_int::MIN;

pub(super) fn outcome(call: &'static str, code: cl_int) -> DriverResult {
    if code == CL_SUCCESS { Ok(()) } else { Err(OpenclFailure { call, code }) }
}

#[cold]
pub(super) fn missing(call: &'static str) -> OpenclFailure {
    OpenclFailure { call, code: MISSING_FUNCTION }
}

/// A driver that reports success without an object has run out of memory.
pub(super) fn object(call: &'static str, code: cl_int, raw: *mut c_void) -> DriverResult<NonNull<c_void>> {
    outcome(call, code)?;
    NonNull::new(raw).ok_or(OpenclFailure { call, code: CL_OUT_OF_HOST_MEMORY })
}

/// Takes over an object that a call has just created, or a reference that it has taken.
pub(super) fn adopt<K>(core: &'static Core, object: NonNull<c_void>) -> Owned<K>
where
    K: ObjectKind<Handle = *mut c_void, Owner = &'static Core>,
{
    // SAFETY: the driver has given the reference to the caller, who passes it on.
    unsafe { Owned::new(core, object.as_ptr()) }
}

/// Takes over the event that an enqueue has returned.
pub(super) fn adopt_event(core: &'static Core, event: cl_event) -> DriverResult<Owned<Event>> {
    Ok(adopt(core, object("clEnqueue*", CL_SUCCESS, event)?))
}

/// A list as the driver expects it: its length, and a null pointer if it is empty.
pub(super) fn list<T>(items: &[T]) -> (cl_uint, *const T) {
    let address = if items.is_empty() { ptr::null() } else { items.as_ptr() };
    (items.len() as cl_uint, address)
}

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
            pub(crate) struct $kind;

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

/// Declares a table of functions, whose types `opencl-sys` names after them, and how to fill it.
macro_rules! table {
    ($(#[$attribute:meta])* $table:ident: $($function:ident: $type:ident),+ $(,)?) => {
        $(#[$attribute])*
        #[cfg_attr(test, derive(Clone))]
        pub(crate) struct $table {
            $(pub(crate) $function: $type,)+
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }

        impl $table {
            /// `find` gives the address of a function by its name, which ends in NUL.
            ///
            /// # Safety
            /// Each address is null or that of the function with this name.
            unsafe fn load(mut find: impl FnMut(&CStr) -> *const c_void) -> Self {
                $(
                    let $function = {
                        const NAME: &[u8] = concat!(stringify!($function), "\0").as_bytes();
                        let address = CStr::from_bytes_with_nul(NAME)
                            .map_or(ptr::null(), |name| find(name));
                        // SAFETY: an optional function pointer has the layout of a nullable
                        // pointer, and the caller vouched for what it points to.
                        unsafe { std::mem::transmute::<*const c_void, $type>(address) }
                    };
                )+
                Self { $($function,)+ }
            }
        }
    };
}

table! {
    /// The core functions up to OpenCL 2.1. A function that the library does not have is `None`.
    Core:
    clGetPlatformIDs: clGetPlatformIDs_t,
    clGetPlatformInfo: clGetPlatformInfo_t,
    clGetDeviceIDs: clGetDeviceIDs_t,
    clGetDeviceInfo: clGetDeviceInfo_t,
    clCreateSubDevices: clCreateSubDevices_t,
    clReleaseDevice: clReleaseDevice_t,
    clCreateContext: clCreateContext_t,
    clGetContextInfo: clGetContextInfo_t,
    clRetainContext: clRetainContext_t,
    clReleaseContext: clReleaseContext_t,
    clCreateCommandQueue: clCreateCommandQueue_t,
    clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
    clGetCommandQueueInfo: clGetCommandQueueInfo_t,
    clReleaseCommandQueue: clReleaseCommandQueue_t,
    clFlush: clFlush_t,
    clFinish: clFinish_t,
    clCreateBuffer: clCreateBuffer_t,
    clCreateSubBuffer: clCreateSubBuffer_t,
    clGetMemObjectInfo: clGetMemObjectInfo_t,
    clRetainMemObject: clRetainMemObject_t,
    clReleaseMemObject: clReleaseMemObject_t,
    clSVMAlloc: clSVMAlloc_t,
    clSVMFree: clSVMFree_t,
    clCreateProgramWithSource: clCreateProgramWithSource_t,
    clCreateProgramWithIL: clCreateProgramWithIL_t,
    clBuildProgram: clBuildProgram_t,
    clCompileProgram: clCompileProgram_t,
    clGetProgramBuildInfo: clGetProgramBuildInfo_t,
    clReleaseProgram: clReleaseProgram_t,
    clCreateKernel: clCreateKernel_t,
    clReleaseKernel: clReleaseKernel_t,
    clSetKernelArg: clSetKernelArg_t,
    clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t,
    clGetKernelInfo: clGetKernelInfo_t,
    clGetKernelArgInfo: clGetKernelArgInfo_t,
    clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
    clWaitForEvents: clWaitForEvents_t,
    clGetEventInfo: clGetEventInfo_t,
    clGetEventProfilingInfo: clGetEventProfilingInfo_t,
    clCreateUserEvent: clCreateUserEvent_t,
    clSetUserEventStatus: clSetUserEventStatus_t,
    clSetEventCallback: clSetEventCallback_t,
    clRetainEvent: clRetainEvent_t,
    clReleaseEvent: clReleaseEvent_t,
    clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
    clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
    clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t,
    clEnqueueFillBuffer: clEnqueueFillBuffer_t,
    clEnqueueMapBuffer: clEnqueueMapBuffer_t,
    clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
    clEnqueueReadBuffer: clEnqueueReadBuffer_t,
    clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
    clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
    clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
    clEnqueueSVMMemcpy: clEnqueueSVMMemcpy_t,
    clEnqueueSVMMemFill: clEnqueueSVMMemFill_t,
    clEnqueueSVMMigrateMem: clEnqueueSVMMigrateMem_t,
    clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
    clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
    clGetDeviceAndHostTimer: clGetDeviceAndHostTimer_t,
    clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
}

table! {
    /// `cl_khr_command_buffer` with the signatures of 0.9.5 and later, and
    /// `cl_intel_unified_shared_memory`.
    Extensions:
    clCreateCommandBufferKHR: clCreateCommandBufferKHR_t,
    clFinalizeCommandBufferKHR: clFinalizeCommandBufferKHR_t,
    clReleaseCommandBufferKHR: clReleaseCommandBufferKHR_t,
    clEnqueueCommandBufferKHR: clEnqueueCommandBufferKHR_t,
    clCommandBarrierWithWaitListKHR: clCommandBarrierWithWaitListKHR_t,
    clCommandCopyBufferKHR: clCommandCopyBufferKHR_t,
    clCommandCopyBufferRectKHR: clCommandCopyBufferRectKHR_t,
    clCommandFillBufferKHR: clCommandFillBufferKHR_t,
    clCommandNDRangeKernelKHR: clCommandNDRangeKernelKHR_t,
    clCommandSVMMemcpyKHR: clCommandSVMMemcpyKHR_t,
    clCommandSVMMemFillKHR: clCommandSVMMemFillKHR_t,
    clUpdateMutableCommandsKHR: clUpdateMutableCommandsKHR_t,
    clGetMemAllocInfoINTEL: clGetMemAllocInfoINTEL_t,
    clEnqueueMigrateMemINTEL: clEnqueueMigrateMemINTEL_t,
}

impl Extensions {
    /// The functions of a platform, which have to be requested by platform: a loader does not
    /// export them.
    pub(crate) fn of(core: &Core, platform: cl_platform_id) -> Self {
        let find = |name: &CStr| match core.clGetExtensionFunctionAddressForPlatform {
            // SAFETY: the platform is one that the library named, and the name ends in NUL.
            Some(address) => unsafe { address(platform, name.as_ptr()) }.cast_const(),
            None => ptr::null(),
        };
        // SAFETY: the driver gives the function of this name. Recordings are used from the version
        // on that has these signatures (`platform.rs`).
        unsafe { Self::load(find) }
    }
}

/// Names another library than the system's `OpenCL`.
const LIBRARY_VARIABLE: &str = "WAKEGRAPH_OPENCL_LIBRARY";

#[cfg(target_os = "windows")]
const NAMES: &[&str] = &["OpenCL.dll"];
#[cfg(target_os = "macos")]
const NAMES: &[&str] = &["/System/Library/Frameworks/OpenCL.framework/OpenCL"];
#[cfg(not(any(target_os = "windows", target_os = "macos")))]
const NAMES: &[&str] = &["libOpenCL.so.1", "libOpenCL.so"];

/// The core library, loaded at the first call and never unloaded: drivers leave threads behind.
///
/// # Errors
/// Why it could not be loaded.
pub(crate) fn core() -> Result<&'static Core, &'static str> {
    static CORE: OnceLock<Result<Core, String>> = OnceLock::new();
    CORE.get_or_init(load).as_ref().map_err(String::as_str)
}

fn load() -> Result<Core, String> {
    let library = open_named(LIBRARY_VARIABLE, NAMES)?;
    let find = |name: &CStr| {
        // SAFETY: nothing is called through this address before it has the function's type.
        let symbol = unsafe { library.get::<*const c_void>(name) };
        symbol.map_or(ptr::null(), |symbol| *symbol)
    };
    // SAFETY: a library under OpenCL's name exports OpenCL's functions under their names.
    let core = unsafe { Core::load(find) };
    // It stays loaded: its functions are used until the process ends.
    std::mem::forget(library);
    Ok(core)
}
