//! HIP's functions and structures, declared by hand.
#![allow(non_snake_case, reason = "HIP's names")]

use std::ffi::{c_char, c_void};

use libloading::Library;

/// `dim3`.
pub(crate) type Dim3 = [u32; 3];

/// `hipKernelNodeParams`.
#[repr(C)]
pub(crate) struct KernelNode {
    pub(crate) block: Dim3,
    pub(crate) extra: usize,
    pub(crate) function: usize,
    pub(crate) grid: Dim3,
    pub(crate) arguments: *const *const c_void,
    pub(crate) shared_bytes: u32,
}

/// `hipMemsetParams`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Memset {
    pub(crate) to: usize,
    pub(crate) element: u32,
    pub(crate) height: usize,
    pub(crate) pitch: usize,
    pub(crate) value: u32,
    pub(crate) width: usize,
}

/// One end of `hipMemcpy3DParms`: array, position, address, pitch, width and height of a slice.
#[repr(C)]
pub(crate) struct End {
    pub(crate) array: usize,
    pub(crate) position: [usize; 3],
    pub(crate) base: usize,
    pub(crate) pitch: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// `hipMemcpy3DParms`.
#[repr(C)]
pub(crate) struct Memcpy3d {
    pub(crate) from: End,
    pub(crate) to: End,
    pub(crate) extent: [usize; 3],
    pub(crate) kind: u32,
}

pub(crate) const MEMCPY_DEFAULT: u32 = 4;
pub(crate) const NOT_READY: i32 = 600;
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
/// Portable, mapped, coherent.
pub(crate) const HOST_FLAGS: u32 = 0x4000_0003;

macro_rules! api {
    ($table:ident: $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*) => {
        pub(crate) struct $table {
            _library: Library,
            $($name: unsafe extern "C" fn($($kind),*) -> i32,)*
        }

        impl $table {
            pub(crate) fn load(name: &str) -> Result<Self, String> {
                // SAFETY: a library of AMD's or the one in front of it.
                let library = unsafe { Library::new(name) }.map_err(|error| error.to_string())?;
                $(
                    // SAFETY: the declaration is that of HIP's header.
                    let found = unsafe { library.get(concat!(stringify!($name), "\0").as_bytes()) };
                    let $name = *found.map_err(|error| error.to_string())?;
                )*
                Ok(Self { _library: library, $($name),* })
            }

            $(
                pub(crate) fn $name(&self, $($argument: $kind),*) -> i32 {
                    // SAFETY: the tests pass valid handles and addresses.
                    unsafe { (self.$name)($($argument),*) }
                }
            )*
        }
    };
}

api! { Hip:
    fn hipInit(flags: u32);
    fn hipGetDeviceCount(count: *mut i32);
    fn hipSetDevice(device: i32);
    fn hipMalloc(address: *mut usize, bytes: usize);
    fn hipFree(address: usize);
    fn hipHostMalloc(address: *mut usize, bytes: usize, flags: u32);
    fn hipHostFree(address: usize);
    fn hipStreamCreateWithFlags(stream: *mut usize, flags: u32);
    fn hipStreamDestroy(stream: usize);
    fn hipStreamSynchronize(stream: usize);
    fn hipStreamWaitEvent(stream: usize, event: usize, flags: u32);
    fn hipEventCreateWithFlags(event: *mut usize, flags: u32);
    fn hipEventDestroy(event: usize);
    fn hipEventRecord(event: usize, stream: usize);
    fn hipEventQuery(event: usize);
    fn hipEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize);
    fn hipMemcpyAsync(to: usize, from: usize, bytes: usize, kind: u32, stream: usize);
    fn hipMemsetAsync(to: usize, value: i32, bytes: usize, stream: usize);
    fn hipMemsetD16Async(to: usize, value: u16, count: usize, stream: usize);
    fn hipMemsetD32Async(to: usize, value: i32, count: usize, stream: usize);
    fn hipModuleLoadData(module: *mut usize, code: *const c_void);
    fn hipModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    fn hipModuleUnload(module: usize);
    fn hipModuleLaunchKernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: usize, arguments: *const *const c_void, extra: usize);
    fn hipGraphCreate(graph: *mut usize, flags: u32);
    fn hipGraphDestroy(graph: usize);
    fn hipGraphAddKernelNode(node: *mut usize, graph: usize, after: *const usize, count: usize,
        parameters: *const KernelNode);
    fn hipGraphAddMemsetNode(node: *mut usize, graph: usize, after: *const usize, count: usize,
        parameters: *const Memset);
    fn hipGraphAddMemcpyNode1D(node: *mut usize, graph: usize, after: *const usize, count: usize, to: usize,
        from: usize, bytes: usize, kind: u32);
    fn hipGraphAddMemcpyNode(node: *mut usize, graph: usize, after: *const usize, count: usize,
        parameters: *const Memcpy3d);
    fn hipGraphAddEventRecordNode(node: *mut usize, graph: usize, after: *const usize, count: usize,
        event: usize);
    fn hipGraphInstantiateWithFlags(instance: *mut usize, graph: usize, flags: u64);
    fn hipGraphUpload(instance: usize, stream: usize);
    fn hipGraphLaunch(instance: usize, stream: usize);
    fn hipGraphExecDestroy(instance: usize);
    fn hipGraphExecKernelNodeSetParams(instance: usize, node: usize, parameters: *const KernelNode);
    fn hipGraphNodeSetEnabled(instance: usize, node: usize, enabled: u32);
    fn hipDeviceCanAccessPeer(result: *mut i32, device: i32, peer: i32);
    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32);
}

api! { Hiprtc:
    fn hiprtcCreateProgram(program: *mut usize, source: *const c_char, name: *const c_char, count: i32,
        headers: usize, names: usize);
    fn hiprtcCompileProgram(program: usize, count: i32, options: *const *const c_char);
    fn hiprtcGetCodeSize(program: usize, bytes: *mut usize);
    fn hiprtcGetCode(program: usize, code: *mut u8);
    fn hiprtcGetProgramLogSize(program: usize, bytes: *mut usize);
    fn hiprtcGetProgramLog(program: usize, log: *mut u8);
    fn hiprtcDestroyProgram(program: *mut usize);
}
