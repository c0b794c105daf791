//! OpenCL's types, constants and functions. No other file names the library or its symbols.
//!
//! This module declares and resolves them itself: a build has one version of `opencl-sys`, which is the
//! application's to choose, and `cl3` asks the driver for an event at every enqueue
//! (docs/adr/0002-vendor-bindings.md). Extension functions have to be requested by platform, or a loader
//! does not find them.
#![expect(unsafe_code, reason = "loads the library and calls it")]
#![allow(non_snake_case, reason = "the vendor's names")]

#[cfg(test)]
mod tests;
mod types;

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

pub(super) use types::*;
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

/// Declares a table of functions, and how to fill it.
macro_rules! table {
    ($(#[$attribute:meta])* $table:ident: $($function:ident($($argument:ty),* $(,)?) -> $result:ty;)+) => {
        $(#[$attribute])*
        #[cfg_attr(test, derive(Clone))]
        pub(crate) struct $table {
            $(pub(crate) $function: Option<unsafe extern "C" fn($($argument),*) -> $result>,)+
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
                        unsafe {
                            std::mem::transmute::<
                                *const c_void,
                                Option<unsafe extern "C" fn($($argument),*) -> $result>,
                            >(address)
                        }
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
    clGetPlatformIDs(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
    clGetPlatformInfo(cl_platform_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clGetDeviceIDs(cl_platform_id, cl_bitfield, cl_uint, *mut cl_device_id, *mut cl_uint) -> cl_int;
    clGetDeviceInfo(cl_device_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clCreateSubDevices(
        cl_device_id, *const cl_device_partition_property, cl_uint, *mut cl_device_id, *mut cl_uint
    ) -> cl_int;
    clReleaseDevice(cl_device_id) -> cl_int;
    clCreateContext(
        *const cl_context_properties, cl_uint, *const cl_device_id, Option<ContextCallback>, *mut c_void,
        *mut cl_int
    ) -> cl_context;
    clGetContextInfo(cl_context, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clRetainContext(cl_context) -> cl_int;
    clReleaseContext(cl_context) -> cl_int;
    clCreateCommandQueue(cl_context, cl_device_id, cl_bitfield, *mut cl_int) -> cl_command_queue;
    clCreateCommandQueueWithProperties(
        cl_context, cl_device_id, *const cl_properties, *mut cl_int
    ) -> cl_command_queue;
    clGetCommandQueueInfo(cl_command_queue, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clReleaseCommandQueue(cl_command_queue) -> cl_int;
    clFlush(cl_command_queue) -> cl_int;
    clFinish(cl_command_queue) -> cl_int;
    clCreateBuffer(cl_context, cl_bitfield, usize, *mut c_void, *mut cl_int) -> cl_mem;
    clCreateSubBuffer(cl_mem, cl_bitfield, cl_uint, *const c_void, *mut cl_int) -> cl_mem;
    clGetMemObjectInfo(cl_mem, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clRetainMemObject(cl_mem) -> cl_int;
    clReleaseMemObject(cl_mem) -> cl_int;
    clSVMAlloc(cl_context, cl_bitfield, usize, cl_uint) -> *mut c_void;
    clSVMFree(cl_context, *mut c_void) -> ();
    clCreateProgramWithSource(
        cl_context, cl_uint, *mut *const c_char, *const usize, *mut cl_int
    ) -> cl_program;
    clCreateProgramWithIL(cl_context, *const c_void, usize, *mut cl_int) -> cl_program;
    clBuildProgram(
        cl_program, cl_uint, *const cl_device_id, *const c_char, Option<ProgramCallback>, *mut c_void
    ) -> cl_int;
    clCompileProgram(
        cl_program, cl_uint, *const cl_device_id, *const c_char, cl_uint, *const cl_program,
        *mut *const c_char, Option<ProgramCallback>, *mut c_void
    ) -> cl_int;
    clGetProgramBuildInfo(cl_program, cl_device_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clReleaseProgram(cl_program) -> cl_int;
    clCreateKernel(cl_program, *const c_char, *mut cl_int) -> cl_kernel;
    clReleaseKernel(cl_kernel) -> cl_int;
    clSetKernelArg(cl_kernel, cl_uint, usize, *const c_void) -> cl_int;
    clSetKernelArgSVMPointer(cl_kernel, cl_uint, *const c_void) -> cl_int;
    clGetKernelInfo(cl_kernel, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clGetKernelArgInfo(cl_kernel, cl_uint, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clGetKernelWorkGroupInfo(cl_kernel, cl_device_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clWaitForEvents(cl_uint, *const cl_event) -> cl_int;
    clGetEventInfo(cl_event, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clGetEventProfilingInfo(cl_event, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clCreateUserEvent(cl_context, *mut cl_int) -> cl_event;
    clSetUserEventStatus(cl_event, cl_int) -> cl_int;
    clSetEventCallback(cl_event, cl_int, Option<EventCallback>, *mut c_void) -> cl_int;
    clRetainEvent(cl_event) -> cl_int;
    clReleaseEvent(cl_event) -> cl_int;
    clEnqueueNDRangeKernel(
        cl_command_queue, cl_kernel, cl_uint, *const usize, *const usize, *const usize, cl_uint,
        *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueCopyBuffer(
        cl_command_queue, cl_mem, cl_mem, usize, usize, usize, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueCopyBufferRect(
        cl_command_queue, cl_mem, cl_mem, *const usize, *const usize, *const usize, usize, usize, usize,
        usize, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueFillBuffer(
        cl_command_queue, cl_mem, *const c_void, usize, usize, usize, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueMapBuffer(
        cl_command_queue, cl_mem, cl_bool, cl_bitfield, usize, usize, cl_uint, *const cl_event, *mut cl_event,
        *mut cl_int
    ) -> *mut c_void;
    clEnqueueUnmapMemObject(
        cl_command_queue, cl_mem, *mut c_void, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueReadBuffer(
        cl_command_queue, cl_mem, cl_bool, usize, usize, *mut c_void, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueReadBufferRect(
        cl_command_queue, cl_mem, cl_bool, *const usize, *const usize, *const usize, usize, usize, usize,
        usize, *mut c_void, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueWriteBuffer(
        cl_command_queue, cl_mem, cl_bool, usize, usize, *const c_void, cl_uint, *const cl_event,
        *mut cl_event
    ) -> cl_int;
    clEnqueueWriteBufferRect(
        cl_command_queue, cl_mem, cl_bool, *const usize, *const usize, *const usize, usize, usize, usize,
        usize, *const c_void, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueSVMMemcpy(
        cl_command_queue, cl_bool, *mut c_void, *const c_void, usize, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueSVMMemFill(
        cl_command_queue, *mut c_void, *const c_void, usize, usize, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clEnqueueSVMMigrateMem(
        cl_command_queue, cl_uint, *mut *const c_void, *const usize, cl_bitfield, cl_uint, *const cl_event,
        *mut cl_event
    ) -> cl_int;
    clEnqueueMarkerWithWaitList(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueBarrierWithWaitList(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clGetDeviceAndHostTimer(cl_device_id, *mut cl_ulong, *mut cl_ulong) -> cl_int;
    clGetExtensionFunctionAddressForPlatform(cl_platform_id, *const c_char) -> *mut c_void;
}

table! {
    /// `cl_khr_command_buffer` with the signatures of 0.9.5 and later, and
    /// `cl_intel_unified_shared_memory`.
    Extensions:
    clCreateCommandBufferKHR(
        cl_uint, *const cl_command_queue, *const cl_properties, *mut cl_int
    ) -> cl_command_buffer_khr;
    clFinalizeCommandBufferKHR(cl_command_buffer_khr) -> cl_int;
    clReleaseCommandBufferKHR(cl_command_buffer_khr) -> cl_int;
    clEnqueueCommandBufferKHR(
        cl_uint, *mut cl_command_queue, cl_command_buffer_khr, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
    clCommandBarrierWithWaitListKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, cl_uint, *const cl_sync_point_khr,
        *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandCopyBufferKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, cl_mem, cl_mem, usize, usize, usize,
        cl_uint, *const cl_sync_point_khr, *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandCopyBufferRectKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, cl_mem, cl_mem, *const usize,
        *const usize, *const usize, usize, usize, usize, usize, cl_uint, *const cl_sync_point_khr,
        *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandFillBufferKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, cl_mem, *const c_void, usize, usize,
        usize, cl_uint, *const cl_sync_point_khr, *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandNDRangeKernelKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, cl_kernel, cl_uint, *const usize,
        *const usize, *const usize, cl_uint, *const cl_sync_point_khr, *mut cl_sync_point_khr,
        *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandSVMMemcpyKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, *mut c_void, *const c_void, usize,
        cl_uint, *const cl_sync_point_khr, *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clCommandSVMMemFillKHR(
        cl_command_buffer_khr, cl_command_queue, *const cl_properties, *mut c_void, *const c_void, usize,
        usize, cl_uint, *const cl_sync_point_khr, *mut cl_sync_point_khr, *mut cl_mutable_command_khr
    ) -> cl_int;
    clUpdateMutableCommandsKHR(cl_command_buffer_khr, cl_uint, *const cl_uint, *mut *const c_void) -> cl_int;
    clGetMemAllocInfoINTEL(cl_context, *const c_void, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clEnqueueMigrateMemINTEL(
        cl_command_queue, *const c_void, usize, cl_bitfield, cl_uint, *const cl_event, *mut cl_event
    ) -> cl_int;
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
