//! Extension functions, which are asked for by platform: behind a loader the plain symbols are not there.
#![allow(non_snake_case, reason = "the vendor's names")]

use std::ffi::{CStr, c_void};
use std::ptr;

use opencl_sys::*;

use super::Core;
use super::table::table;

table! {
    /// `cl_khr_command_buffer`, with the signatures of 0.9.5 and later where these changed, and
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

type OldBarrier = Option<
    unsafe extern "C" fn(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int,
>;

type OldCopy = Option<
    unsafe extern "C" fn(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_offset: usize,
        dst_offset: usize,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int,
>;

type OldCopyRect = Option<
    unsafe extern "C" fn(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        src_buffer: cl_mem,
        dst_buffer: cl_mem,
        src_origin: *const usize,
        dst_origin: *const usize,
        region: *const usize,
        src_row_pitch: usize,
        src_slice_pitch: usize,
        dst_row_pitch: usize,
        dst_slice_pitch: usize,
        num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int,
>;

type OldFill = Option<
    unsafe extern "C" fn(
        command_buffer: cl_command_buffer_khr,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        pattern: *const c_void,
        pattern_size: usize,
        offset: usize,
        size: usize,
        num_sync_points_in_wait_list: cl_uint,
        sync_point_wait_list: *const cl_sync_point_khr,
        sync_point: *mut cl_sync_point_khr,
        mutable_handle: *mut cl_mutable_command_khr,
    ) -> cl_int,
>;

table! {
    /// The functions whose signatures had no `properties` before 0.9.5. The wrong one corrupts the
    /// driver: which table is used follows from the version that the device reports.
    OldExtensions:
    clCommandBarrierWithWaitListKHR: OldBarrier,
    clCommandCopyBufferKHR: OldCopy,
    clCommandCopyBufferRectKHR: OldCopyRect,
    clCommandFillBufferKHR: OldFill,
}

/// The functions of `platform` under both of their signatures.
pub(in crate::backend::opencl) fn load(core: &Core, platform: cl_platform_id) -> (Extensions, OldExtensions) {
    let find = |name: &CStr| match core.clGetExtensionFunctionAddressForPlatform {
        // SAFETY: the platform is one that the library named, and the name ends in NUL.
        Some(address) => unsafe { address(platform, name.as_ptr()) }.cast_const(),
        None => ptr::null(),
    };
    // SAFETY: the driver gives the function of this name; which signature it has is decided by its version.
    let new = unsafe { Extensions::load(find) };
    // SAFETY: as above.
    let old = unsafe { OldExtensions::load(find) };
    (new, old)
}
