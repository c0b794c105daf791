//! The driver's functions, of version 12.0; newer ones are optional.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::*;

table! {
    /// The driver.
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
    }
}

/// The library's names.
pub(crate) const DRIVER_LIBRARIES: &[&str] =
    if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };
