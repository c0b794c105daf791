//! The functions of the library and of its extensions.
#![allow(non_snake_case, reason = "the vendor's names")]

use std::ffi::{CStr, c_void};
use std::path::PathBuf;
use std::ptr;
use std::sync::OnceLock;

use opencl_sys::cl_function_types::*;
use opencl_sys::*;
use wakegraph_hal::support::library::open;

/// Declares a table of functions, whose types `opencl-sys` names after them, and how to fill it.
macro_rules! table {
    ($(#[$attribute:meta])* $table:ident: $($function:ident: $type:ident),+ $(,)?) => {
        $(#[$attribute])*
        #[cfg_attr(test, derive(Clone))]
        pub(in crate) struct $table {
            $(pub(in crate) $function: $type,)+
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
        // on that has these signatures (`features.rs`).
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
    let named = std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from);
    let paths = match named {
        Some(path) => vec![path],
        None => NAMES.iter().map(PathBuf::from).collect(),
    };
    let library = open(&paths)?;
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
