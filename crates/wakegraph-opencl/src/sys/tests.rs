//! The declarations, compared with those of `opencl-sys`.

use std::mem::offset_of;

use super::types::NUMBERS;
use super::*;

mod vendor {
    pub(super) use opencl_sys::cl_function_types::*;
    pub(super) use opencl_sys::*;
}

#[test]
fn numbers_are_the_vendors() {
    for (name, ours, vendors) in NUMBERS {
        assert_eq!(ours, vendors, "{name}");
    }
    assert_eq!(CL_NAME_VERSION_MAX_NAME_SIZE, vendor::CL_NAME_VERSION_MAX_NAME_SIZE);
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
        cl_buffer_region: origin size;
        cl_mutable_dispatch_arg_khr: arg_index arg_size arg_value;
        cl_mutable_dispatch_config_khr: command num_args num_svm_args num_exec_infos work_dim arg_list
            arg_svm_list exec_info_list global_work_offset global_work_size local_work_size;
    }
}

/// Fills a table from a library that has no function, with the vendor's types: it compiles only if they are
/// those of our declarations.
macro_rules! same_functions {
    ($table:ident: $($function:ident: $vendors:ident,)+) => {{
        $(let $function: vendor::$vendors = None;)+
        let $table { .. } = $table { $($function,)+ };
    }};
}

#[test]
fn functions_have_the_vendors_types() {
    same_functions! {
        Core:
            clGetPlatformIDs: clGetPlatformIDs_t, clGetPlatformInfo: clGetPlatformInfo_t,
            clGetDeviceIDs: clGetDeviceIDs_t, clGetDeviceInfo: clGetDeviceInfo_t,
            clCreateSubDevices: clCreateSubDevices_t, clReleaseDevice: clReleaseDevice_t,
            clCreateContext: clCreateContext_t, clGetContextInfo: clGetContextInfo_t,
            clRetainContext: clRetainContext_t, clReleaseContext: clReleaseContext_t,
            clCreateCommandQueue: clCreateCommandQueue_t,
            clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
            clGetCommandQueueInfo: clGetCommandQueueInfo_t, clReleaseCommandQueue: clReleaseCommandQueue_t,
            clFlush: clFlush_t, clFinish: clFinish_t, clCreateBuffer: clCreateBuffer_t,
            clCreateSubBuffer: clCreateSubBuffer_t, clGetMemObjectInfo: clGetMemObjectInfo_t,
            clRetainMemObject: clRetainMemObject_t, clReleaseMemObject: clReleaseMemObject_t,
            clSVMAlloc: clSVMAlloc_t, clSVMFree: clSVMFree_t,
            clCreateProgramWithSource: clCreateProgramWithSource_t,
            clCreateProgramWithIL: clCreateProgramWithIL_t, clBuildProgram: clBuildProgram_t,
            clCompileProgram: clCompileProgram_t, clGetProgramBuildInfo: clGetProgramBuildInfo_t,
            clReleaseProgram: clReleaseProgram_t, clCreateKernel: clCreateKernel_t,
            clReleaseKernel: clReleaseKernel_t, clSetKernelArg: clSetKernelArg_t,
            clSetKernelArgSVMPointer: clSetKernelArgSVMPointer_t, clGetKernelInfo: clGetKernelInfo_t,
            clGetKernelArgInfo: clGetKernelArgInfo_t, clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
            clWaitForEvents: clWaitForEvents_t, clGetEventInfo: clGetEventInfo_t,
            clGetEventProfilingInfo: clGetEventProfilingInfo_t, clCreateUserEvent: clCreateUserEvent_t,
            clSetUserEventStatus: clSetUserEventStatus_t, clSetEventCallback: clSetEventCallback_t,
            clRetainEvent: clRetainEvent_t, clReleaseEvent: clReleaseEvent_t,
            clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t, clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
            clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t, clEnqueueFillBuffer: clEnqueueFillBuffer_t,
            clEnqueueMapBuffer: clEnqueueMapBuffer_t, clEnqueueUnmapMemObject: clEnqueueUnmapMemObject_t,
            clEnqueueReadBuffer: clEnqueueReadBuffer_t, clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
            clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
            clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
            clEnqueueSVMMemcpy: clEnqueueSVMMemcpy_t, clEnqueueSVMMemFill: clEnqueueSVMMemFill_t,
            clEnqueueSVMMigrateMem: clEnqueueSVMMigrateMem_t,
            clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
            clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
            clGetDeviceAndHostTimer: clGetDeviceAndHostTimer_t,
            clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
    }
    same_functions! {
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
            clCommandSVMMemcpyKHR: clCommandSVMMemcpyKHR_t, clCommandSVMMemFillKHR: clCommandSVMMemFillKHR_t,
            clUpdateMutableCommandsKHR: clUpdateMutableCommandsKHR_t,
            clGetMemAllocInfoINTEL: clGetMemAllocInfoINTEL_t,
            clEnqueueMigrateMemINTEL: clEnqueueMigrateMemINTEL_t,
    }
}
