//! HIP's library in front of AMD's, where a test puts it: every call is noted, with the thread that makes
//! it, and can be made to fail, and the version can be another one. Everything else is AMD's.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(unsafe_code, reason = "a C library")]
#![allow(clippy::too_many_arguments, reason = "HIP's functions have them")]
#![allow(non_snake_case, reason = "HIP's names")]
#![allow(clippy::unwrap_used, reason = "part of the tests")]

#[allow(unused_imports, unused_macros, reason = "shared with the HSA runtime")]
#[path = "../hsa_runtime/calls.rs"]
mod calls;
#[allow(dead_code, reason = "shared with the HSA runtime")]
#[path = "../hsa_runtime/raw.rs"]
mod raw;
#[allow(dead_code, reason = "shared with the HSA runtime")]
#[path = "../hsa_runtime/settings.rs"]
mod settings;

use std::ffi::{c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use settings::abort;

/// What a call returns that fails: `hipErrorUnknown`.
const UNKNOWN: u32 = 999;

fn library() -> &'static Library {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let Some(path) = &settings::get().hip else { abort("WAKEGRAPH_HSA_HIP names no library") };
        // SAFETY: AMD's library, whose initialization takes no parameters.
        let library = unsafe { Library::new(path) };
        library.unwrap_or_else(|error| abort(format_args!("{}: {error}", path.display())))
    })
}

/// A function of AMD's library, if it has that.
fn find<F: Copy>(name: &str) -> Option<F> {
    // SAFETY: each caller names a type with as many arguments as AMD's documentation gives. All of them
    // are numbers and addresses.
    unsafe { library().get::<F>(name.as_bytes()) }.ok().map(|function| *function)
}

fn amd<F: Copy>(name: &str) -> F {
    find(name).unwrap_or_else(|| abort(format_args!("AMD's library has no {name}")))
}

/// Declares functions with these arguments, each of which is in a register or in a word on the stack.
macro_rules! hand_over {
    ($(($($argument:ident),*): $($name:ident)*;)*) => { $(hand_over!(@each ($($argument),*) $($name)*);)* };
    (@each $arguments:tt $($name:ident)*) => { $(hand_over!(@one $name $arguments);)* };
    (@one $name:ident ($($argument:ident),*)) => {
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: usize),*) -> u32 {
            static AMD: OnceLock<extern "C" fn($(hand_over!(@word $argument)),*) -> u32> = OnceLock::new();
            if calls::fails(stringify!($name)) {
                return UNKNOWN;
            }
            AMD.get_or_init(|| amd(stringify!($name)))($($argument),*)
        }
    };
    (@word $argument:ident) => { usize };
}

hand_over! {
    (a): hipInit hipDeviceSynchronize hipGetDeviceCount hipGetDevice hipSetDevice hipThreadExchangeStreamCaptureMode hipFree
        hipMemPoolDestroy hipHostFree hipHostUnregister hipModuleUnload hipStreamDestroy hipStreamQuery
        hipStreamSynchronize hipEventDestroy hipEventQuery hipGraphDestroy hipGraphDestroyNode
        hipGraphExecDestroy;
    (a, b): hipGraphNodeGetType hipDeviceTotalMem hipGetDeviceProperties hipDeviceEnablePeerAccess hipDeviceGetStreamPriorityRange
        hipMalloc hipMemPoolCreate hipMemPoolTrimTo hipFreeAsync hipModuleLoadData hipStreamCreateWithFlags
        hipStreamBeginCapture hipStreamIsCapturing hipEventCreateWithFlags hipEventRecord
        hipGraphCreate hipGraphUpload hipGraphLaunch;
    (a, b, c): hipGraphGetNodes hipDeviceGetName hipDeviceGetAttribute hipDeviceCanAccessPeer hipMemPoolSetAttribute
        hipMemPoolSetAccess hipHostMalloc hipHostRegister hipHostGetDevicePointer hipPointerGetAttribute
        hipModuleGetFunction hipFuncGetAttribute hipStreamCreateWithPriority hipStreamWaitEvent
        hipEventElapsedTime hipGraphInstantiateWithFlags hipGraphExecKernelNodeSetParams
        hipGraphNodeSetEnabled hipGraphExecEventRecordNodeSetEvent;
    (a, b, c, d): hipMallocFromPoolAsync hipGraphExecUpdate;
    (a, b, c, d, e): hipMemcpyAsync hipMemsetAsync hipGraphAddKernelNode hipGraphAddMemcpyNode
        hipGraphAddMemsetNode hipGraphAddEventRecordNode hipGraphAddChildGraphNode;
    (a, b, c, d, e, f, g, h): hipGraphAddMemcpyNode1D;
    (a, b, c, d, e, f, g, h, i, j, k): hipModuleLaunchKernel;
}

#[unsafe(no_mangle)]
extern "C" fn hipDriverGetVersion(version: *mut c_int) -> u32 {
    if calls::fails("hipDriverGetVersion") {
        return UNKNOWN;
    }
    let result = amd::<extern "C" fn(*mut c_int) -> u32>("hipDriverGetVersion")(version);
    if let Some(other) = settings::get().hip_version {
        raw::write(version, other);
    }
    result
}

/// When it fails, the capture has ended all the same.
#[unsafe(no_mangle)]
extern "C" fn hipStreamEndCapture(stream: usize, graph: *mut usize) -> u32 {
    let result = amd::<extern "C" fn(usize, *mut usize) -> u32>("hipStreamEndCapture")(stream, graph);
    if calls::fails("hipStreamEndCapture") {
        amd::<extern "C" fn(usize) -> u32>("hipGraphDestroy")(raw::read(graph));
        raw::write(graph, 0);
        return UNKNOWN;
    }
    result
}

/// In version 5, which does not have this layout, the architecture at the place where version 6 has it.
#[unsafe(no_mangle)]
extern "C" fn hipGetDevicePropertiesR0600(properties: *mut c_void, device: c_int) -> u32 {
    const BEFORE_6: usize = 396;
    const R0600: usize = 1160;
    const LEN: usize = 256;
    type Get = extern "C" fn(*mut c_void, c_int) -> u32;
    if calls::fails("hipGetDevicePropertiesR0600") {
        return UNKNOWN;
    }
    if let Some(get) = find::<Get>("hipGetDevicePropertiesR0600") {
        return get(properties, device);
    }
    let mut old = [0_u8; 8192];
    let result = amd::<Get>("hipGetDeviceProperties")(old.as_mut_ptr().cast(), device);
    raw::copy(properties as usize + R0600, old.as_ptr() as usize + BEFORE_6, LEN);
    result
}

macro_rules! texts {
    ($($name:ident)*) => { $(
        #[unsafe(no_mangle)]
        extern "C" fn $name(code: u32) -> *const c_char {
            amd::<extern "C" fn(u32) -> *const c_char>(stringify!($name))(code)
        }
    )* };
}

texts! { hipGetErrorName hipGetErrorString }
