//! The vendor's types, and the functions of its libraries: the only place that names them.
//!
//! This module declares and resolves them itself: `cudarc` has one version of CUDA in a build, which is
//! the application's to choose, and panics where the library, or a function, is missing.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]

mod types;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(super) use types::*;
use wakegraph_hal::support::library::open;
use wakegraph_hal::support::streams::CallFailure;

/// Result of all functions.
pub(super) type Code = CUresult;

/// Calls a function of a table: `Ok` where it returned success.
///
/// Expands to one unsafe operation.
macro_rules! call {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        $crate::sys::outcome(stringify!($function), ($table.$function)($($argument),*))
    };
}

/// Calls a function of a table that writes its result, a number or a pointer, to the place that its
/// first argument names: the result where it returned success.
///
/// Expands to one unsafe operation. The place is valid.
macro_rules! get {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let mut result = bytemuck::Zeroable::zeroed();
        $crate::sys::call!($table, $function(&raw mut result, $($argument),*)).map(|()| result)
    }};
}

/// As [`call!`], of a function that older drivers do not have.
macro_rules! call_newer {
    ($table:expr, $function:ident($($argument:expr),* $(,)?)) => {
        match $table.$function {
            Some(function) => $crate::sys::outcome(stringify!($function), function($($argument),*)),
            None => Err($crate::sys::missing(stringify!($function))),
        }
    };
}

pub(super) use call;
pub(super) use call_newer;
pub(super) use get;

/// The library whose error codes these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CudaLibrary {}

/// A call that did not succeed.
pub(super) type CudaFailure = CallFailure<CudaLibrary>;

pub(super) fn outcome(call: &'static str, code: Code) -> Result<(), CudaFailure> {
    CudaFailure::check(call, code)
}

/// The failure of a call to a function that the driver is too old for.
pub(super) fn missing(call: &'static str) -> CudaFailure {
    CudaFailure::new(call, CUDA_ERROR_NOT_SUPPORTED)
}

/// Declares a table of functions, and how to fill it from a library.
macro_rules! table {
    (
        $(#[$attribute:meta])* $table:ident;
        required: { $($function:ident = $symbol:literal ($($argument:ty),* $(,)?);)+ }
        optional: { $($newer:ident = $newer_symbol:literal ($($newer_argument:ty),* $(,)?);)* }
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(in crate) struct $table {
            $(pub(in crate) $function: unsafe extern "C" fn($($argument),*) -> Code,)+
            $(pub(in crate) $newer:
                Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }

        impl $table {
            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(in crate) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> Code>($symbol)
                        };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($newer_argument),*) -> Code>($newer_symbol)
                        };
                        found.ok().map(|function| *function)
                    },)*
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }

            /// A table for tests without the library: each function does what the fake says to a
            /// call of this name. The optional ones are missing.
            #[cfg(test)]
            #[allow(dead_code, non_snake_case, reason = "not every library has a fake; the vendor's names")]
            pub(in crate) fn fake() -> Self {
                $(unsafe extern "C" fn $function($(_: $argument),*) -> Code {
                    $crate::tests::fake::called(stringify!($function))
                })+
                Self { $($function,)+ $($newer: None,)* }
            }
        }
    };
}

table! {
    /// The driver's functions, of version 12.0; newer ones are optional.
    Driver;
    required: {
    cuInit = "cuInit"(c_uint);
    cuDriverGetVersion = "cuDriverGetVersion"(*mut c_int);
    cuGetErrorName = "cuGetErrorName"(Code, *mut *const c_char);
    cuGetErrorString = "cuGetErrorString"(Code, *mut *const c_char);
    cuDeviceGetCount = "cuDeviceGetCount"(*mut c_int);
    cuDeviceGet = "cuDeviceGet"(*mut CUdevice, c_int);
    cuDeviceGetName = "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2"(*mut usize, CUdevice);
    cuDeviceGetAttribute = "cuDeviceGetAttribute"(*mut c_int, CUdevice_attribute, CUdevice);
    cuDeviceCanAccessPeer = "cuDeviceCanAccessPeer"(*mut c_int, CUdevice, CUdevice);
    cuDevicePrimaryCtxRetain = "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    cuDevicePrimaryCtxRelease = "cuDevicePrimaryCtxRelease_v2"(CUdevice);
    cuCtxEnablePeerAccess = "cuCtxEnablePeerAccess"(CUcontext, c_uint);
    cuCtxGetCurrent = "cuCtxGetCurrent"(*mut CUcontext);
    cuCtxGetDevice = "cuCtxGetDevice"(*mut CUdevice);
    cuCtxSetCurrent = "cuCtxSetCurrent"(CUcontext);
    cuCtxPushCurrent = "cuCtxPushCurrent_v2"(CUcontext);
    cuCtxPopCurrent = "cuCtxPopCurrent_v2"(*mut CUcontext);
    cuThreadExchangeStreamCaptureMode = "cuThreadExchangeStreamCaptureMode"(*mut c_uint);
    cuMemPoolCreate = "cuMemPoolCreate"(*mut CUmemoryPool, *const CUmemPoolProps);
    cuMemPoolDestroy = "cuMemPoolDestroy"(CUmemoryPool);
    cuMemPoolTrimTo = "cuMemPoolTrimTo"(CUmemoryPool, usize);
    cuMemPoolSetAttribute = "cuMemPoolSetAttribute"(CUmemoryPool, CUmemPool_attribute, *mut c_void);
    cuMemPoolSetAccess = "cuMemPoolSetAccess"(CUmemoryPool, *const CUmemAccessDesc, usize);
    cuMemAllocFromPoolAsync = "cuMemAllocFromPoolAsync"(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    cuMemFreeAsync = "cuMemFreeAsync"(CUdeviceptr, CUstream);
    cuMemAlloc = "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    cuMemFree = "cuMemFree_v2"(CUdeviceptr);
    cuMemHostAlloc = "cuMemHostAlloc"(*mut *mut c_void, usize, c_uint);
    cuMemHostRegister = "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    cuMemHostUnregister = "cuMemHostUnregister"(*mut c_void);
    cuMemFreeHost = "cuMemFreeHost"(*mut c_void);
    cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2"(CUdeviceptr, *const c_void, usize, CUstream);
    cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
    cuPointerGetAttributes = "cuPointerGetAttributes"(
        c_uint, *const CUpointer_attribute, *const *mut c_void, CUdeviceptr
    );
    cuMemcpyAsync = "cuMemcpyAsync"(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemcpy3DAsync = "cuMemcpy3DAsync_v2"(*const CUDA_MEMCPY3D, CUstream);
    cuMemsetD16Async = "cuMemsetD16Async"(CUdeviceptr, u16, usize, CUstream);
    cuMemsetD32Async = "cuMemsetD32Async"(CUdeviceptr, c_uint, usize, CUstream);
    cuMemsetD8Async = "cuMemsetD8Async"(CUdeviceptr, u8, usize, CUstream);
    cuModuleLoadDataEx = "cuModuleLoadDataEx"(
        *mut CUmodule, *const c_void, c_uint, *mut CUjit_option, *mut *mut c_void
    );
    cuModuleUnload = "cuModuleUnload"(CUmodule);
    cuModuleGetFunction = "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    cuFuncGetAttribute = "cuFuncGetAttribute"(*mut c_int, CUfunction_attribute, CUfunction);
    cuFuncSetAttribute = "cuFuncSetAttribute"(CUfunction, CUfunction_attribute, c_int);
    cuLaunchKernel = "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void,
        *mut *mut c_void
    );
    cuOccupancyMaxActiveBlocksPerMultiprocessor = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
        *mut c_int, CUfunction, c_int, usize
    );
    cuStreamCreate = "cuStreamCreate"(*mut CUstream, c_uint);
    cuStreamCreateWithPriority = "cuStreamCreateWithPriority"(*mut CUstream, c_uint, c_int);
    cuCtxGetStreamPriorityRange = "cuCtxGetStreamPriorityRange"(*mut c_int, *mut c_int);
    cuStreamDestroy = "cuStreamDestroy_v2"(CUstream);
    cuStreamQuery = "cuStreamQuery"(CUstream);
    cuStreamSynchronize = "cuStreamSynchronize"(CUstream);
    cuStreamBeginCapture = "cuStreamBeginCapture_v2"(CUstream, CUstreamCaptureMode);
    cuStreamEndCapture = "cuStreamEndCapture"(CUstream, *mut CUgraph);
    cuStreamIsCapturing = "cuStreamIsCapturing"(CUstream, *mut CUstreamCaptureStatus);
    cuStreamWaitEvent = "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    cuEventCreate = "cuEventCreate"(*mut CUevent, c_uint);
    cuEventDestroy = "cuEventDestroy_v2"(CUevent);
    cuEventRecord = "cuEventRecord"(CUevent, CUstream);
    cuEventQuery = "cuEventQuery"(CUevent);
    cuEventElapsedTime = "cuEventElapsedTime"(*mut f32, CUevent, CUevent);
    cuGraphCreate = "cuGraphCreate"(*mut CUgraph, c_uint);
    cuGraphDestroy = "cuGraphDestroy"(CUgraph);
    cuGraphAddKernelNode = "cuGraphAddKernelNode_v2"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS_v2
    );
    cuGraphAddMemcpyNode = "cuGraphAddMemcpyNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMCPY3D, CUcontext
    );
    cuGraphAddMemsetNode = "cuGraphAddMemsetNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_MEMSET_NODE_PARAMS, CUcontext
    );
    cuGraphAddEmptyNode = "cuGraphAddEmptyNode"(*mut CUgraphNode, CUgraph, *const CUgraphNode, usize);
    cuGraphAddEventRecordNode = "cuGraphAddEventRecordNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUevent
    );
    cuGraphAddChildGraphNode = "cuGraphAddChildGraphNode"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, usize, CUgraph
    );
    cuGraphDestroyNode = "cuGraphDestroyNode"(CUgraphNode);
    cuGraphGetNodes = "cuGraphGetNodes"(CUgraph, *mut CUgraphNode, *mut usize);
    cuGraphNodeGetType = "cuGraphNodeGetType"(CUgraphNode, *mut CUgraphNodeType);
    cuGraphInstantiateWithFlags = "cuGraphInstantiateWithFlags"(*mut CUgraphExec, CUgraph, u64);
    cuGraphUpload = "cuGraphUpload"(CUgraphExec, CUstream);
    cuGraphLaunch = "cuGraphLaunch"(CUgraphExec, CUstream);
    cuGraphExecDestroy = "cuGraphExecDestroy"(CUgraphExec);
    cuGraphExecKernelNodeSetParams = "cuGraphExecKernelNodeSetParams_v2"(
        CUgraphExec, CUgraphNode, *const CUDA_KERNEL_NODE_PARAMS_v2
    );
    cuGraphExecMemcpyNodeSetParams = "cuGraphExecMemcpyNodeSetParams"(
        CUgraphExec, CUgraphNode, *const CUDA_MEMCPY3D, CUcontext
    );
    cuGraphNodeSetEnabled = "cuGraphNodeSetEnabled"(CUgraphExec, CUgraphNode, c_uint);
    cuGraphExecUpdate = "cuGraphExecUpdate_v2"(CUgraphExec, CUgraph, *mut CUgraphExecUpdateResultInfo);
    cuGraphExecEventRecordNodeSetEvent = "cuGraphExecEventRecordNodeSetEvent"(
        CUgraphExec, CUgraphNode, CUevent
    );
    }
    optional: {
    cuFuncGetParamInfo = "cuFuncGetParamInfo"(CUfunction, usize, *mut usize, *mut usize);
    cuGraphAddNode = "cuGraphAddNode_v2"(
        *mut CUgraphNode, CUgraph, *const CUgraphNode, *const CUgraphEdgeData, usize,
        *mut c_void
    );
    cuGraphConditionalHandleCreate = "cuGraphConditionalHandleCreate"(
        *mut CUgraphConditionalHandle, CUgraph, CUcontext, c_uint, c_uint
    );
    cuStreamGetCaptureInfo = "cuStreamGetCaptureInfo_v2"(
        CUstream, *mut CUstreamCaptureStatus, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize
    );
    cuStreamUpdateCaptureDependencies = "cuStreamUpdateCaptureDependencies"(
        CUstream, *mut CUgraphNode, usize, c_uint
    );
    cuDeviceGetDevResource = "cuDeviceGetDevResource"(CUdevice, *mut CUdevResource, CUdevResourceType);
    cuDevSmResourceSplitByCount = "cuDevSmResourceSplitByCount"(
        *mut CUdevResource, *mut c_uint, *const CUdevResource, *mut CUdevResource, c_uint, c_uint
    );
    cuDevResourceGenerateDesc = "cuDevResourceGenerateDesc"(
        *mut CUdevResourceDesc, *mut CUdevResource, c_uint
    );
    cuGreenCtxCreate = "cuGreenCtxCreate"(*mut CUgreenCtx, CUdevResourceDesc, CUdevice, c_uint);
    cuGreenCtxDestroy = "cuGreenCtxDestroy"(CUgreenCtx);
    cuCtxFromGreenCtx = "cuCtxFromGreenCtx"(*mut CUcontext, CUgreenCtx);
    cuGreenCtxStreamCreate = "cuGreenCtxStreamCreate"(*mut CUstream, CUgreenCtx, c_uint, c_int);
    }
}

/// The library's names.
pub(super) const DRIVER_LIBRARIES: &[&str] =
    if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };

table! {
    /// The functions of the run-time compiler, which need not be there.
    Nvrtc;
    required: {
    nvrtcVersion = "nvrtcVersion"(*mut c_int, *mut c_int);
    nvrtcGetNumSupportedArchs = "nvrtcGetNumSupportedArchs"(*mut c_int);
    nvrtcGetSupportedArchs = "nvrtcGetSupportedArchs"(*mut c_int);
    nvrtcCreateProgram = "nvrtcCreateProgram"(
        *mut nvrtcProgram, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char
    );
    nvrtcDestroyProgram = "nvrtcDestroyProgram"(*mut nvrtcProgram);
    nvrtcCompileProgram = "nvrtcCompileProgram"(nvrtcProgram, c_int, *const *const c_char);
    nvrtcGetProgramLogSize = "nvrtcGetProgramLogSize"(nvrtcProgram, *mut usize);
    nvrtcGetProgramLog = "nvrtcGetProgramLog"(nvrtcProgram, *mut c_char);
    nvrtcGetCUBINSize = "nvrtcGetCUBINSize"(nvrtcProgram, *mut usize);
    nvrtcGetCUBIN = "nvrtcGetCUBIN"(nvrtcProgram, *mut c_char);
    nvrtcGetPTXSize = "nvrtcGetPTXSize"(nvrtcProgram, *mut usize);
    nvrtcGetPTX = "nvrtcGetPTX"(nvrtcProgram, *mut c_char);
    }
    optional: {
    }
}

/// The compiler, loaded by the first call; the error says what could not be. `driver` gives the driver's
/// version, if there is one.
pub(super) fn nvrtc(driver: impl FnOnce() -> Option<c_int>) -> Result<&'static Nvrtc, &'static str> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    NVRTC.get_or_init(|| choose(NVRTC_LIBRARIES, driver(), load)).as_ref().map_err(String::as_str)
}

/// The first compiler that is not of a newer CUDA than the driver, which may refuse the code of newer ones.
/// The first of those serves where there is no other.
fn choose<T>(
    names: &[&str],
    driver: Option<c_int>,
    load: impl Fn(&str) -> Result<(c_int, T), String>,
) -> Result<T, String> {
    let (mut newer, mut reasons) = (None, Vec::new());
    for name in names {
        match load(name) {
            Ok((major, compiler)) if driver.is_none_or(|driver| major <= driver / 1000) => {
                return Ok(compiler);
            }
            Ok((_, compiler)) => newer = newer.or(Some(compiler)),
            Err(reason) => reasons.push(reason),
        }
    }
    newer.ok_or_else(|| reasons.join("; "))
}

/// A compiler, and the number before the point in its version.
fn load(name: &str) -> Result<(c_int, Nvrtc), String> {
    let nvrtc =
        Nvrtc::fill(open(&[name])?).map_err(|function| format!("{name} is too old: it has no {function}"))?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for numbers.
    unsafe { call!(nvrtc, nvrtcVersion(&raw mut major, &raw mut minor)) }
        .map_err(|failure| format!("{name} does not tell its version: code {}", failure.code))?;
    Ok((major, nvrtc))
}

/// The compiler's names, the newest first; then where the toolkit's installer puts it.
pub(super) const NVRTC_LIBRARIES: &[&str] = if cfg!(windows) {
    &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"]
} else {
    &[
        "libnvrtc.so.13",
        "libnvrtc.so.12",
        "libnvrtc.so.11.2",
        "libnvrtc.so",
        "/usr/local/cuda/lib64/libnvrtc.so",
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn a_library_without_the_functions_is_an_error_that_names_one() {
        let library = open(&["libc.so.6"]).unwrap();
        assert_eq!(Driver::fill(library).err(), Some("cuInit"));
    }

    #[test]
    fn the_compiler_is_not_newer_than_the_driver() {
        let chosen = |installed: &[(&'static str, c_int)], driver| {
            let load = |name: &str| {
                let found = installed.iter().find(|(installed, _)| *installed == name);
                found.map(|&(name, major)| (major, name)).ok_or_else(|| format!("{name} is not there"))
            };
            choose(&["so.13", "so.12", "so"], driver, load)
        };
        let both = [("so.13", 13), ("so.12", 12)];
        assert_eq!(chosen(&both, Some(13_000)), Ok("so.13"));
        assert_eq!(chosen(&both, Some(12_090)), Ok("so.12"));
        assert_eq!(chosen(&both, None), Ok("so.13"));
        assert_eq!(chosen(&[("so.13", 13), ("so", 12)], Some(12_020)), Ok("so"), "whatever it is called");
        assert_eq!(chosen(&[("so.13", 13), ("so", 14)], Some(12_020)), Ok("so.13"), "there is no other");
        assert!(chosen(&[], Some(12_020)).unwrap_err().contains("so.12 is not there"));
    }
}
