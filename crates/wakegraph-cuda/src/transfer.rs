//! Copies and fills in the form that the driver takes.

use std::ffi::c_void;
use std::ptr;

use wakegraph_hal::support::copy_box::{BoxSide, CopyBox};
use wakegraph_hal::support::fill_row::FillRow;

use super::sys::{CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_UNIFIED, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS};

pub(super) fn copy_params(copy: &CopyBox) -> CUDA_MEMCPY3D {
    let CopyBox { from, to, width, height, depth } = *copy;
    // The driver knows its own addresses, those of pinned memory among them. Others have to be
    // named as the host's.
    let kind = |side: BoxSide| match side.start.is_foreign {
        true => CU_MEMORYTYPE_HOST,
        false => CU_MEMORYTYPE_UNIFIED,
    };
    let [from_rows, to_rows] = copy.slice_rows();
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: kind(from),
        srcHost: from.start.address as *const c_void,
        srcDevice: from.start.address,
        srcArray: ptr::null_mut(),
        reserved0: ptr::null_mut(),
        srcPitch: from.pitch,
        srcHeight: from_rows,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: kind(to),
        dstHost: to.start.address as *mut c_void,
        dstDevice: to.start.address,
        dstArray: ptr::null_mut(),
        reserved1: ptr::null_mut(),
        dstPitch: to.pitch,
        dstHeight: to_rows,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    }
}

pub(super) fn fill_params(fill: &FillRow) -> CUDA_MEMSET_NODE_PARAMS {
    let FillRow { address, value, element, count } = *fill;
    CUDA_MEMSET_NODE_PARAMS { dst: address, pitch: 0, value, elementSize: element, width: count, height: 1 }
}
