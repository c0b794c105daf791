//! The driver's types, as far as this backend uses them, under the vendor's names.
//!
//! They are declared here rather than taken from `cudarc`: that crate has the types of one version of
//! CUDA in a build, and the application chooses it. What is here is the same in all versions from 12.0
//! on, or used only where the driver has the functions that take it. Tests compare it with `cudarc`.
//! Enumerations are numbers: a newer driver's values would not be values of a Rust enum.
#![allow(non_camel_case_types, non_snake_case, reason = "the vendor's names")]

use std::ffi::{c_int, c_uchar, c_uint, c_void};

/// Handles: pointers to what only the driver knows.
macro_rules! handles {
    ($($handle:ident = $object:ident;)+) => {$(
        #[derive(Debug)]
        pub(in crate) enum $object {}
        pub(in crate) type $handle = *mut $object;
    )+};
}

handles! {
    CUcontext = CUctx_st;
    CUmemoryPool = CUmemPoolHandle_st;
    CUmodule = CUmod_st;
    CUfunction = CUfunc_st;
    CUkernel = CUkern_st;
    CUstream = CUstream_st;
    CUevent = CUevent_st;
    CUarray = CUarray_st;
    CUgraph = CUgraph_st;
    CUgraphNode = CUgraphNode_st;
    CUgraphExec = CUgraphExec_st;
    CUgreenCtx = CUgreenCtx_st;
    CUdevResourceDesc = CUdevResourceDesc_st;
    nvrtcProgram = _nvrtcProgram;
}

/// Enumerations and flags, with the values that are used.
macro_rules! numbers {
    ($($type:ident { $($name:ident = $value:literal,)* })+) => {$(
        pub(in crate) type $type = c_uint;
        $(pub(in crate) const $name: $type = $value;)*
    )+};
}

numbers! {
    CUresult {
        CUDA_SUCCESS = 0,
        CUDA_ERROR_INVALID_VALUE = 1,
        CUDA_ERROR_DEINITIALIZED = 4,
        CUDA_ERROR_INVALID_CONTEXT = 201,
        CUDA_ERROR_INVALID_HANDLE = 400,
        CUDA_ERROR_NOT_FOUND = 500,
        CUDA_ERROR_NOT_READY = 600,
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
        CUDA_ERROR_NOT_SUPPORTED = 801,
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910,
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
    }
    CUdevice_attribute {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 1,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X = 2,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y = 3,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z = 4,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X = 5,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y = 6,
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z = 7,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
        CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM = 91,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
        CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED = 115,
    }
    CUfunction_attribute {
        CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
        CU_FUNC_ATTRIBUTE_PTX_VERSION = 5,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    }
    CUjit_option {
        CU_JIT_ERROR_LOG_BUFFER = 5,
        CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6,
    }
    CUmemAllocationType {
        CU_MEM_ALLOCATION_TYPE_PINNED = 1,
    }
    CUmemAllocationHandleType {
        CU_MEM_HANDLE_TYPE_NONE = 0,
    }
    CUmemLocationType {
        CU_MEM_LOCATION_TYPE_DEVICE = 1,
    }
    CUmemAccess_flags {
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3,
    }
    CUmemPool_attribute {
        CU_MEMPOOL_ATTR_RELEASE_THRESHOLD = 4,
    }
    CUmemHostAlloc_flags {
        CU_MEMHOSTALLOC_PORTABLE = 1,
    }
    CUmemHostRegister_flags {
        CU_MEMHOSTREGISTER_PORTABLE = 1,
        CU_MEMHOSTREGISTER_DEVICEMAP = 2,
        CU_MEMHOSTREGISTER_READ_ONLY = 8,
    }
    CUmemorytype {
        CU_MEMORYTYPE_HOST = 1,
        CU_MEMORYTYPE_DEVICE = 2,
        CU_MEMORYTYPE_UNIFIED = 4,
    }
    CUpointer_attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT = 1,
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
        CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE = 17,
    }
    CUstream_flags {
        CU_STREAM_NON_BLOCKING = 1,
    }
    CUevent_flags {
        CU_EVENT_DEFAULT = 0,
        CU_EVENT_DISABLE_TIMING = 2,
    }
    CUstreamCaptureMode {
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
        CU_STREAM_CAPTURE_MODE_RELAXED = 2,
    }
    CUstreamCaptureStatus {
        CU_STREAM_CAPTURE_STATUS_NONE = 0,
        CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
    }
    CUstreamUpdateCaptureDependencies_flags {
        CU_STREAM_SET_CAPTURE_DEPENDENCIES = 1,
    }
    CUgraphNodeType {
        CU_GRAPH_NODE_TYPE_KERNEL = 0,
        CU_GRAPH_NODE_TYPE_MEM_ALLOC = 10,
        CU_GRAPH_NODE_TYPE_MEM_FREE = 11,
        CU_GRAPH_NODE_TYPE_CONDITIONAL = 13,
    }
    CUgraphInstantiate_flags {
        CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH = 1,
    }
    CUgraphConditionalNodeType {
        CU_GRAPH_COND_TYPE_IF = 0,
        CU_GRAPH_COND_TYPE_WHILE = 1,
        CU_GRAPH_COND_TYPE_SWITCH = 2,
    }
    CUgraphExecUpdateResult {}
    CUdevResourceType {
        CU_DEV_RESOURCE_TYPE_SM = 1,
    }
    CUgreenCtxCreate_flags {
        CU_GREEN_CTX_DEFAULT_STREAM = 1,
    }
}

pub(crate) type CUdevice = c_int;
pub(crate) type CUdeviceptr = u64;
pub(crate) type CUgraphConditionalHandle = u64;

/// Structures that the driver reads or writes.
macro_rules! structures {
    ($($name:ident { $($field:ident: $type:ty,)+ })+) => {$(
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(in crate) struct $name {
            $(pub(in crate) $field: $type,)+
        }
    )+};
}

structures! {
    CUmemLocation {
        type_: CUmemLocationType,
        id: c_int,
    }
    CUmemPoolProps {
        allocType: CUmemAllocationType,
        handleTypes: CUmemAllocationHandleType,
        location: CUmemLocation,
        win32SecurityAttributes: *mut c_void,
        reserved: [c_uchar; 64],
    }
    CUmemAccessDesc {
        location: CUmemLocation,
        flags: CUmemAccess_flags,
    }
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: CUfunction,
        gridDimX: c_uint,
        gridDimY: c_uint,
        gridDimZ: c_uint,
        blockDimX: c_uint,
        blockDimY: c_uint,
        blockDimZ: c_uint,
        sharedMemBytes: c_uint,
        kernelParams: *mut *mut c_void,
        extra: *mut *mut c_void,
        kern: CUkernel,
        ctx: CUcontext,
    }
    CUDA_MEMCPY3D {
        srcXInBytes: usize,
        srcY: usize,
        srcZ: usize,
        srcLOD: usize,
        srcMemoryType: CUmemorytype,
        srcHost: *const c_void,
        srcDevice: CUdeviceptr,
        srcArray: CUarray,
        reserved0: *mut c_void,
        srcPitch: usize,
        srcHeight: usize,
        dstXInBytes: usize,
        dstY: usize,
        dstZ: usize,
        dstLOD: usize,
        dstMemoryType: CUmemorytype,
        dstHost: *mut c_void,
        dstDevice: CUdeviceptr,
        dstArray: CUarray,
        reserved1: *mut c_void,
        dstPitch: usize,
        dstHeight: usize,
        WidthInBytes: usize,
        Height: usize,
        Depth: usize,
    }
    CUDA_MEMSET_NODE_PARAMS {
        dst: CUdeviceptr,
        pitch: usize,
        value: c_uint,
        elementSize: c_uint,
        width: usize,
        height: usize,
    }
    CUgraphExecUpdateResultInfo {
        result: CUgraphExecUpdateResult,
        errorNode: CUgraphNode,
        errorFromNode: CUgraphNode,
    }
    CUgraphEdgeData {
        from_port: c_uchar,
        to_port: c_uchar,
        type_: c_uchar,
        reserved: [c_uchar; 5],
    }
    CUDA_CONDITIONAL_NODE_PARAMS {
        handle: CUgraphConditionalHandle,
        type_: CUgraphConditionalNodeType,
        size: c_uint,
        phGraph_out: *mut CUgraph,
        ctx: CUcontext,
    }
    CUgraphKernelParams {
        type_: CUgraphNodeType,
        reserved0: [c_int; 3],
        kernel: CUDA_KERNEL_NODE_PARAMS_v2,
        // The vendor's structure has a union here, whose other members are larger.
        reserved1: [u64; 20],
        reserved2: i64,
    }
    CUgraphConditionalParams {
        type_: CUgraphNodeType,
        reserved0: [c_int; 3],
        conditional: CUDA_CONDITIONAL_NODE_PARAMS,
        // As above.
        reserved1: [u64; 25],
        reserved2: i64,
    }
}

impl CUgraphEdgeData {
    /// From the port of a kernel that opens when all of its work-groups allow it.
    pub(crate) const PROGRAMMATIC: Self = Self { from_port: 1, to_port: 0, type_: 1, reserved: [0; 5] };
}

/// Resources of a device; here always multiprocessors. Newer versions end in a pointer, and are as long.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CUdevResource {
    pub(crate) type_: CUdevResourceType,
    pub(crate) padding: [c_uchar; 92],
    pub(crate) smCount: c_uint,
    pub(crate) internal: [c_uchar; 44],
}

impl Default for CUdevResource {
    fn default() -> Self {
        Self { type_: 0, padding: [0; 92], smCount: 0, internal: [0; 44] }
    }
}

impl CUgraphKernelParams {
    pub(crate) const fn of(kernel: CUDA_KERNEL_NODE_PARAMS_v2) -> Self {
        Self { type_: CU_GRAPH_NODE_TYPE_KERNEL, reserved0: [0; 3], kernel, reserved1: [0; 20], reserved2: 0 }
    }
}

#[cfg(test)]
mod tests {
    use std::mem::{align_of, offset_of, size_of};

    use cudarc::driver::sys as vendor;

    use super::*;

    macro_rules! same_values {
        ($($type:ident: $($name:ident)+;)+) => {$($(
            assert_eq!($name, vendor::$type::$name as c_uint, stringify!($name));
        )+)+};
    }

    #[test]
    fn numbers_are_the_vendors() {
        same_values! {
            CUresult: CUDA_SUCCESS CUDA_ERROR_INVALID_VALUE CUDA_ERROR_DEINITIALIZED
                CUDA_ERROR_INVALID_CONTEXT CUDA_ERROR_INVALID_HANDLE CUDA_ERROR_NOT_FOUND CUDA_ERROR_NOT_READY
                CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED CUDA_ERROR_NOT_SUPPORTED
                CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
            CUdevice_attribute: CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X
                CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y
                CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
                CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
                CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
                CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
                CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
            CUfunction_attribute: CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
                CU_FUNC_ATTRIBUTE_PTX_VERSION CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            CUjit_option: CU_JIT_ERROR_LOG_BUFFER CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES;
            CUmemAllocationType: CU_MEM_ALLOCATION_TYPE_PINNED;
            CUmemLocationType: CU_MEM_LOCATION_TYPE_DEVICE;
            CUmemAccess_flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
            CUmemPool_attribute: CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
            CUmemorytype: CU_MEMORYTYPE_HOST CU_MEMORYTYPE_DEVICE CU_MEMORYTYPE_UNIFIED;
            CUpointer_attribute: CU_POINTER_ATTRIBUTE_CONTEXT CU_POINTER_ATTRIBUTE_MEMORY_TYPE
                CU_POINTER_ATTRIBUTE_IS_MANAGED CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
                CU_POINTER_ATTRIBUTE_RANGE_START_ADDR CU_POINTER_ATTRIBUTE_RANGE_SIZE
                CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
            CUstream_flags_enum: CU_STREAM_NON_BLOCKING;
            CUevent_flags_enum: CU_EVENT_DEFAULT CU_EVENT_DISABLE_TIMING;
            CUstreamCaptureMode: CU_STREAM_CAPTURE_MODE_THREAD_LOCAL CU_STREAM_CAPTURE_MODE_RELAXED;
            CUstreamCaptureStatus: CU_STREAM_CAPTURE_STATUS_NONE CU_STREAM_CAPTURE_STATUS_ACTIVE;
            CUstreamUpdateCaptureDependencies_flags: CU_STREAM_SET_CAPTURE_DEPENDENCIES;
            CUgraphNodeType: CU_GRAPH_NODE_TYPE_KERNEL CU_GRAPH_NODE_TYPE_MEM_ALLOC
                CU_GRAPH_NODE_TYPE_MEM_FREE CU_GRAPH_NODE_TYPE_CONDITIONAL;
            CUgraphConditionalNodeType: CU_GRAPH_COND_TYPE_IF CU_GRAPH_COND_TYPE_WHILE
                CU_GRAPH_COND_TYPE_SWITCH;
            CUdevResourceType: CU_DEV_RESOURCE_TYPE_SM;
            CUgreenCtxCreate_flags: CU_GREEN_CTX_DEFAULT_STREAM;
        }
        assert_eq!(CU_MEMHOSTALLOC_PORTABLE, vendor::CU_MEMHOSTALLOC_PORTABLE);
        assert_eq!(CU_MEMHOSTREGISTER_PORTABLE, vendor::CU_MEMHOSTREGISTER_PORTABLE);
        assert_eq!(CU_MEMHOSTREGISTER_DEVICEMAP, vendor::CU_MEMHOSTREGISTER_DEVICEMAP);
        assert_eq!(CU_MEMHOSTREGISTER_READ_ONLY, vendor::CU_MEMHOSTREGISTER_READ_ONLY);
        let auto_free = vendor::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        assert_eq!(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, auto_free.0);
        assert_eq!(CU_MEM_HANDLE_TYPE_NONE, vendor::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE.0);
    }

    macro_rules! same_layout {
        ($($name:ident: $($field:ident)+;)+) => {$(
            assert_eq!(size_of::<$name>(), size_of::<vendor::$name>(), stringify!($name));
            assert_eq!(align_of::<$name>(), align_of::<vendor::$name>(), stringify!($name));
            $(assert_eq!(
                offset_of!($name, $field), offset_of!(vendor::$name, $field), stringify!($name::$field)
            );)+
        )+};
    }

    #[test]
    fn structures_are_laid_out_as_the_vendors() {
        same_layout! {
            CUmemPoolProps: allocType handleTypes location win32SecurityAttributes;
            CUmemAccessDesc: location flags;
            CUDA_KERNEL_NODE_PARAMS_v2: func gridDimX gridDimY gridDimZ blockDimX blockDimY blockDimZ
                sharedMemBytes kernelParams extra kern ctx;
            CUDA_MEMCPY3D: srcXInBytes srcY srcZ srcLOD srcMemoryType srcHost srcDevice srcArray reserved0
                srcPitch srcHeight dstXInBytes dstY dstZ dstLOD dstMemoryType dstHost dstDevice dstArray
                reserved1 dstPitch dstHeight WidthInBytes Height Depth;
            CUDA_MEMSET_NODE_PARAMS: dst pitch value elementSize width height;
            CUgraphExecUpdateResultInfo: result errorNode errorFromNode;
            CUgraphEdgeData: from_port to_port type_ reserved;
            CUDA_CONDITIONAL_NODE_PARAMS: handle type_ size phGraph_out ctx;
        }
        assert_eq!(size_of::<CUdevResource>(), size_of::<vendor::CUdevResource>());
        assert_eq!(offset_of!(CUdevResource, smCount), offset_of!(vendor::CUdevResource, __bindgen_anon_1));
        type VendorParams = vendor::CUgraphNodeParams;
        macro_rules! same_params {
            ($($params:ident: $member:ident;)+) => {$(
                assert_eq!(size_of::<$params>(), size_of::<VendorParams>());
                assert_eq!(align_of::<$params>(), align_of::<VendorParams>());
                assert_eq!(offset_of!($params, $member), offset_of!(VendorParams, __bindgen_anon_1));
                assert_eq!(offset_of!($params, reserved2), offset_of!(VendorParams, reserved2));
            )+};
        }
        same_params! { CUgraphKernelParams: kernel; CUgraphConditionalParams: conditional; }
        let programmatic = (CUgraphEdgeData::PROGRAMMATIC.from_port, CUgraphEdgeData::PROGRAMMATIC.type_);
        assert_eq!(programmatic.0, vendor::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8);
        assert_eq!(
            u32::from(programmatic.1),
            vendor::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u32
        );
        assert_eq!(
            offset_of!(CUDA_KERNEL_NODE_PARAMS_v2, ctx),
            offset_of!(vendor::CUDA_KERNEL_NODE_PARAMS_v3, ctx)
        );
    }
}
