//! The vendor's types, and the functions of its libraries: the only place that names them.
//!
//! AMD's libraries are loaded at run time, so that nothing is needed to build.
#![expect(unsafe_code, reason = "loads the libraries and calls them")]

#[cfg(test)]
mod tests;
mod types;

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

pub(super) use types::*;
use wakegraph_hal::support::library::open;
use wakegraph_hal::support::streams::CallFailure;

/// Result of most functions.
pub(super) type Code = hipError_t;

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

pub(super) use call;
pub(super) use get;

/// The library whose error codes these are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HipLibrary {}

/// A call that did not succeed.
pub(super) type HipFailure = CallFailure<HipLibrary>;

pub(super) fn outcome(call: &'static str, code: Code) -> Result<(), HipFailure> {
    HipFailure::check(call, code)
}

/// Declares a table of functions, and how to fill it from a library.
macro_rules! table {
    (
        $(#[$attribute:meta])* $table:ident;
        required: { $($function:ident ($($argument:ty),* $(,)?) $(-> $result:ty)?;)+ }
        optional: { $($newer:ident ($($newer_argument:ty),* $(,)?);)* }
    ) => {
        $(#[$attribute])*
        #[allow(non_snake_case, reason = "the vendor's names")]
        pub(in crate) struct $table {
            $(pub(in crate) $function:
                unsafe extern "C" fn($($argument),*) -> $crate::sys::result!($($result)?),)+
            $(pub(in crate) $newer:
                Option<unsafe extern "C" fn($($newer_argument),*) -> Code>,)*
        }

        impl std::fmt::Debug for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($table)).finish_non_exhaustive()
            }
        }

        impl $table {
            /// The functions, with the types of their arguments.
            #[cfg(test)]
            const DECLARATIONS: &[(&str, &[&str])] = &[
                $((stringify!($function), &[$(stringify!($argument)),*]),)+
                $((stringify!($newer), &[$(stringify!($newer_argument)),*]),)*
            ];

            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(in crate) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe { library.get(stringify!($function)) };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe { library.get(stringify!($newer)) };
                        found.ok().map(|function| *function)
                    },)*
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }
        }
    };
}

/// The type that a function of a table returns: a code, unless it says something else.
macro_rules! result {
    () => {
        Code
    };
    ($result:ty) => {
        $result
    };
}
use result;

table! {
    /// AMD's HIP library: the driver, as far as this backend is concerned. Its functions are those of version
    /// 5.5; newer ones are optional.
    Driver;
    required: {
    hipDriverGetVersion(*mut c_int);
    hipInit(c_uint);
    hipGetErrorName(hipError_t) -> *const c_char;
    hipGetErrorString(hipError_t) -> *const c_char;
    hipGetDeviceCount(*mut c_int);
    hipGetDevice(*mut c_int);
    hipSetDevice(c_int);
    hipDeviceSynchronize();
    hipDeviceGetName(*mut c_char, c_int, hipDevice_t);
    hipDeviceTotalMem(*mut usize, hipDevice_t);
    hipDeviceGetAttribute(*mut c_int, hipDeviceAttribute_t, c_int);
    hipGetDeviceProperties(*mut hipDeviceProp_t, c_int);
    hipDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    hipDeviceEnablePeerAccess(c_int, c_uint);
    hipDeviceGetStreamPriorityRange(*mut c_int, *mut c_int);
    hipThreadExchangeStreamCaptureMode(*mut hipStreamCaptureMode);
    hipMalloc(*mut *mut c_void, usize);
    hipFree(*mut c_void);
    hipMemPoolCreate(*mut hipMemPool_t, *const hipMemPoolProps);
    hipMemPoolDestroy(hipMemPool_t);
    hipMemPoolTrimTo(hipMemPool_t, usize);
    hipMemPoolSetAttribute(hipMemPool_t, hipMemPoolAttr, *mut c_void);
    hipMemPoolSetAccess(hipMemPool_t, *const hipMemAccessDesc, usize);
    hipMallocFromPoolAsync(*mut *mut c_void, usize, hipMemPool_t, hipStream_t);
    hipFreeAsync(*mut c_void, hipStream_t);
    hipHostMalloc(*mut *mut c_void, usize, c_uint);
    hipHostFree(*mut c_void);
    hipHostRegister(*mut c_void, usize, c_uint);
    hipHostUnregister(*mut c_void);
    hipHostGetDevicePointer(*mut *mut c_void, *mut c_void, c_uint);
    hipPointerGetAttribute(*mut c_void, hipPointer_attribute, hipDeviceptr_t);
    hipMemcpyAsync(*mut c_void, *const c_void, usize, hipMemcpyKind, hipStream_t);
    hipMemsetAsync(*mut c_void, c_int, usize, hipStream_t);
    hipModuleLoadData(*mut hipModule_t, *const c_void);
    hipModuleUnload(hipModule_t);
    hipModuleGetFunction(*mut hipFunction_t, hipModule_t, *const c_char);
    hipFuncGetAttribute(*mut c_int, hipFunction_attribute, hipFunction_t);
    hipModuleLaunchKernel(
        hipFunction_t, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, hipStream_t,
        *mut *mut c_void, *mut *mut c_void
    );
    hipStreamCreateWithFlags(*mut hipStream_t, c_uint);
    hipStreamCreateWithPriority(*mut hipStream_t, c_uint, c_int);
    hipStreamDestroy(hipStream_t);
    hipStreamQuery(hipStream_t);
    hipStreamSynchronize(hipStream_t);
    hipStreamBeginCapture(hipStream_t, hipStreamCaptureMode);
    hipStreamEndCapture(hipStream_t, *mut hipGraph_t);
    hipStreamIsCapturing(hipStream_t, *mut hipStreamCaptureStatus);
    hipStreamWaitEvent(hipStream_t, hipEvent_t, c_uint);
    hipEventCreateWithFlags(*mut hipEvent_t, c_uint);
    hipEventDestroy(hipEvent_t);
    hipEventRecord(hipEvent_t, hipStream_t);
    hipEventQuery(hipEvent_t);
    hipEventElapsedTime(*mut f32, hipEvent_t, hipEvent_t);
    hipGraphCreate(*mut hipGraph_t, c_uint);
    hipGraphDestroy(hipGraph_t);
    hipGraphAddKernelNode(
        *mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, *const hipKernelNodeParams
    );
    hipGraphAddMemcpyNode(
        *mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, *const hipMemcpy3DParms
    );
    hipGraphAddMemcpyNode1D(
        *mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, *mut c_void, *const c_void, usize,
        hipMemcpyKind
    );
    hipGraphAddMemsetNode(
        *mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, *const hipMemsetParams
    );
    hipGraphAddEventRecordNode(*mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, hipEvent_t);
    hipGraphAddChildGraphNode(*mut hipGraphNode_t, hipGraph_t, *const hipGraphNode_t, usize, hipGraph_t);
    hipGraphDestroyNode(hipGraphNode_t);
    hipGraphGetNodes(hipGraph_t, *mut hipGraphNode_t, *mut usize);
    hipGraphNodeGetType(hipGraphNode_t, *mut hipGraphNodeType);
    hipGraphInstantiateWithFlags(*mut hipGraphExec_t, hipGraph_t, u64);
    hipGraphUpload(hipGraphExec_t, hipStream_t);
    hipGraphLaunch(hipGraphExec_t, hipStream_t);
    hipGraphExecDestroy(hipGraphExec_t);
    hipGraphExecKernelNodeSetParams(hipGraphExec_t, hipGraphNode_t, *const hipKernelNodeParams);
    hipGraphNodeSetEnabled(hipGraphExec_t, hipGraphNode_t, c_uint);
    hipGraphExecUpdate(hipGraphExec_t, hipGraph_t, *mut hipGraphNode_t, *mut hipGraphExecUpdateResult);
    hipGraphExecEventRecordNodeSetEvent(hipGraphExec_t, hipGraphNode_t, hipEvent_t);
    }
    optional: {
    hipGetDevicePropertiesR0600(*mut hipDeviceProp_t, c_int);
    }
}

impl Driver {
    /// The name of the device's architecture with its features, such as `gfx90a:sramecc+:xnack-`.
    pub(super) fn architecture(&self, device: hipDevice_t) -> Result<String, HipFailure> {
        let mut properties = hipDeviceProp_t::empty();
        let place = &raw mut properties;
        if let Some(properties_of) = self.hipGetDevicePropertiesR0600 {
            // SAFETY: the place has room for this layout of the structure.
            outcome("hipGetDevicePropertiesR0600", unsafe { properties_of(place, device) })?;
            return Ok(properties.architecture(hipDeviceProp_t::ARCHITECTURE_R0600));
        }
        // SAFETY: as above, for the layout before version 6.
        unsafe { call!(self, hipGetDeviceProperties(place, device)) }?;
        Ok(properties.architecture(hipDeviceProp_t::ARCHITECTURE_BEFORE_6))
    }
}

/// The library's names.
pub(super) const DRIVER_LIBRARIES: &[&str] = if cfg!(windows) {
    &["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
} else {
    &[
        "libamdhip64.so",
        "libamdhip64.so.7",
        "libamdhip64.so.6",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libamdhip64.so",
    ]
};

table! {
    /// The functions of the run-time compiler, which need not be there.
    Hiprtc;
    required: {
    hiprtcCreateProgram(
        *mut hiprtcProgram, *const c_char, *const c_char, c_int, *mut *const c_char, *mut *const c_char
    );
    hiprtcDestroyProgram(*mut hiprtcProgram);
    hiprtcCompileProgram(hiprtcProgram, c_int, *mut *const c_char);
    hiprtcGetProgramLogSize(hiprtcProgram, *mut usize);
    hiprtcGetProgramLog(hiprtcProgram, *mut c_char);
    hiprtcGetCodeSize(hiprtcProgram, *mut usize);
    hiprtcGetCode(hiprtcProgram, *mut c_char);
    hiprtcGetErrorString(hiprtcResult) -> *const c_char;
    }
    optional: {
    }
}

/// The compiler, loaded by the first call; the error says what could not be. `driver` gives the driver's
/// version, if there is one.
pub(super) fn hiprtc(driver: impl FnOnce() -> Option<c_int>) -> Result<&'static Hiprtc, &'static str> {
    static HIPRTC: OnceLock<Result<Hiprtc, String>> = OnceLock::new();
    let hiprtc = HIPRTC.get_or_init(|| {
        Hiprtc::fill(open(&names(driver()))?)
            .map_err(|function| format!("it is too old: it has no {function}"))
    });
    hiprtc.as_ref().map_err(String::as_str)
}

/// The libraries of the driver's own version first: it may refuse the code of newer ones.
fn names(driver: Option<c_int>) -> Vec<&'static str> {
    let mut names = NAMES.to_vec();
    if let Some(driver) = driver {
        let own = format!(".so.{}", driver / 10_000_000);
        names.sort_by_key(|name| !name.ends_with(&own));
    }
    names
}

/// Up to version 5, the functions are in the runtime's library itself.
const NAMES: &[&str] = if cfg!(windows) {
    &["hiprtc0701.dll", "hiprtc0604.dll", "hiprtc0507.dll"]
} else {
    &[
        "libhiprtc.so",
        "libhiprtc.so.7",
        "libhiprtc.so.6",
        "libhiprtc.so.5",
        "libamdhip64.so.5",
        "/opt/rocm/lib/libhiprtc.so",
    ]
};
