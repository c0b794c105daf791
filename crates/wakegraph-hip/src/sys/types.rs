//! The driver's types, as far as this backend uses them, under the vendor's names.
//!
//! The public headers (`hip_runtime_api.h`, MIT) are where they come from, and a test compares them
//! with the headers of each version that is unpacked. What is here is the same in all versions from
//! 5.5 on; `hipMemoryType`, whose numbers changed in 6.0, is not. Enumerations are numbers: a newer
//! runtime's values would not be values of a Rust enum.
#![allow(non_camel_case_types, non_snake_case, reason = "the vendor's names")]

use std::ffi::{c_int, c_uchar, c_uint, c_void};

/// Handles: pointers to what only the runtime knows.
macro_rules! handles {
    ($($handle:ident = $object:ident;)+) => {$(
        #[derive(Debug)]
        pub(in crate) enum $object {}
        pub(in crate) type $handle = *mut $object;
    )+};
}

handles! {
    hipArray_t = hipArray;
    hipEvent_t = ihipEvent_t;
    hipFunction_t = ihipModuleSymbol_t;
    hipGraph_t = ihipGraph;
    hipGraphExec_t = hipGraphExec;
    hipGraphNode_t = hipGraphNode;
    hipMemPool_t = ihipMemPoolHandle_t;
    hipModule_t = ihipModule_t;
    hipStream_t = ihipStream_t;
    hiprtcProgram = _hiprtcProgram;
}

/// Enumerations and flags, with the values that are used.
macro_rules! numbers {
    ($($type:ident { $($name:ident = $value:literal,)* })+) => {
        $(
            pub(in crate) type $type = c_uint;
            $(pub(in crate) const $name: $type = $value;)*
        )+

        #[cfg(test)]
        pub(super) const NUMBERS: &[(&str, u32)] = &[$($((stringify!($name), $value),)*)+];
    };
}

numbers! {
    hiprtcResult {
        HIPRTC_ERROR_COMPILATION = 6,
    }
    hipError_t {
        hipSuccess = 0,
        hipErrorInvalidValue = 1,
        hipErrorDeinitialized = 4,
        hipErrorNoDevice = 100,
        hipErrorInvalidDevice = 101,
        hipErrorInvalidImage = 200,
        hipErrorNoBinaryForGpu = 209,
        hipErrorInvalidKernelFile = 218,
        hipErrorSharedObjectInitFailed = 303,
        hipErrorInvalidHandle = 400,
        hipErrorNotFound = 500,
        hipErrorNotReady = 600,
        hipErrorPeerAccessAlreadyEnabled = 704,
        hipErrorNotSupported = 801,
        hipErrorGraphExecUpdateFailure = 910,
    }
    hipDeviceAttribute_t {
        hipDeviceAttributeMaxBlockDimX = 26,
        hipDeviceAttributeMaxBlockDimY = 27,
        hipDeviceAttributeMaxBlockDimZ = 28,
        hipDeviceAttributeMaxGridDimX = 29,
        hipDeviceAttributeMaxGridDimY = 30,
        hipDeviceAttributeMaxGridDimZ = 31,
        hipDeviceAttributeMaxThreadsPerBlock = 56,
        hipDeviceAttributeMultiprocessorCount = 63,
        hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
        hipDeviceAttributeWarpSize = 87,
        hipDeviceAttributeMemoryPoolsSupported = 88,
    }
    hipFunction_attribute {
        HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
        HIP_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    }
    hipMemAllocationType {
        hipMemAllocationTypePinned = 1,
    }
    hipMemAllocationHandleType {
        hipMemHandleTypeNone = 0,
    }
    hipMemLocationType {
        hipMemLocationTypeDevice = 1,
    }
    hipMemAccessFlags {
        hipMemAccessFlagsProtReadWrite = 3,
    }
    hipMemPoolAttr {
        hipMemPoolAttrReleaseThreshold = 4,
    }
    hipHostMalloc_flags {
        hipHostMallocPortable = 1,
        hipHostMallocMapped = 2,
        hipHostMallocCoherent = 0x4000_0000,
    }
    hipHostRegister_flags {
        hipHostRegisterPortable = 1,
        hipHostRegisterMapped = 2,
    }
    hipMemcpyKind {
        hipMemcpyHostToDevice = 1,
        hipMemcpyDeviceToHost = 2,
        hipMemcpyDefault = 4,
    }
    hipPointer_attribute {
        HIP_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
        HIP_POINTER_ATTRIBUTE_IS_MANAGED = 8,
        HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
        HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
        HIP_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
    }
    hipStream_flags {
        hipStreamNonBlocking = 1,
    }
    hipEvent_flags {
        hipEventDefault = 0,
        hipEventDisableTiming = 2,
    }
    hipStreamCaptureMode {
        hipStreamCaptureModeThreadLocal = 1,
        hipStreamCaptureModeRelaxed = 2,
    }
    hipStreamCaptureStatus {
        hipStreamCaptureStatusNone = 0,
    }
    hipGraphNodeType {
        hipGraphNodeTypeMemAlloc = 10,
        hipGraphNodeTypeMemFree = 11,
    }
    hipGraphExecUpdateResult {
    }
}

pub(crate) type hipDevice_t = c_int;
pub(crate) type hipDeviceptr_t = *mut c_void;

/// Structures that the runtime reads or writes.
macro_rules! structures {
    ($($name:ident { $($field:ident: $type:ty,)+ })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub(in crate) struct $name {
                $(pub(in crate) $field: $type,)+
            }
        )+

        /// Name, size, and the offsets of the fields.
        #[cfg(test)]
        pub(super) const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($field), std::mem::offset_of!($name, $field)),)+],
        ),)+];
    };
}

structures! {
    dim3 {
        x: c_uint,
        y: c_uint,
        z: c_uint,
    }
    hipPos {
        x: usize,
        y: usize,
        z: usize,
    }
    hipExtent {
        width: usize,
        height: usize,
        depth: usize,
    }
    hipPitchedPtr {
        ptr: *mut c_void,
        pitch: usize,
        xsize: usize,
        ysize: usize,
    }
    hipMemcpy3DParms {
        srcArray: hipArray_t,
        srcPos: hipPos,
        srcPtr: hipPitchedPtr,
        dstArray: hipArray_t,
        dstPos: hipPos,
        dstPtr: hipPitchedPtr,
        extent: hipExtent,
        kind: hipMemcpyKind,
    }
    hipKernelNodeParams {
        blockDim: dim3,
        extra: *mut *mut c_void,
        func: *mut c_void,
        gridDim: dim3,
        kernelParams: *mut *mut c_void,
        sharedMemBytes: c_uint,
    }
    hipMemsetParams {
        dst: *mut c_void,
        elementSize: c_uint,
        height: usize,
        pitch: usize,
        value: c_uint,
        width: usize,
    }
    hipMemLocation {
        type_: hipMemLocationType,
        id: c_int,
    }
    hipMemAccessDesc {
        location: hipMemLocation,
        flags: hipMemAccessFlags,
    }
    hipMemPoolProps {
        allocType: hipMemAllocationType,
        handleTypes: hipMemAllocationHandleType,
        location: hipMemLocation,
        win32SecurityAttributes: *mut c_void,
        // From 6.0 on, its first word is `maxSize`, of which 0 is the default.
        reserved: [c_uchar; 64],
    }
}

/// A device's properties. Their layout changed in 6.0, and the function that fills them is named
/// after it (`R0600`). Only the name of the architecture is read, which no attribute has.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct hipDeviceProp_t {
    /// More than the structure takes.
    bytes: [u8; 8192],
}

impl hipDeviceProp_t {
    /// Where `gcnArchName` begins before 6.0, and in `R0600`.
    pub(super) const ARCHITECTURE_BEFORE_6: usize = 396;
    pub(super) const ARCHITECTURE_R0600: usize = 1160;
    const ARCHITECTURE_LEN: usize = 256;

    pub(super) fn empty() -> Self {
        Self { bytes: [0; 8192] }
    }

    /// The text at this offset.
    pub(super) fn architecture(&self, offset: usize) -> String {
        let field = &self.bytes[offset..][..Self::ARCHITECTURE_LEN];
        let text = field.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}
