//! The driver's functions, of version 5.5; newer ones are optional.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::*;

table! {
    /// AMD's HIP library: the driver, as far as this backend is concerned.
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
    hipStreamGetPriority(hipStream_t, *mut c_int);
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
    pub(crate) fn architecture(&self, device: hipDevice_t) -> Result<String, HipFailure> {
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
pub(crate) const DRIVER_LIBRARIES: &[&str] = if cfg!(windows) {
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
