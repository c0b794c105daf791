//! Copies and fills in the form that the driver takes.

use std::ptr;

use wakegraph_hal::support::copy_box::{BoxSide, CopyBox};
use wakegraph_hal::support::fill_row::FillRow;

use super::sys::{hipExtent, hipMemcpy3DParms, hipMemcpyDefault, hipMemsetParams, hipPitchedPtr, hipPos};

/// A box whose sides are both described by their rows: the driver reads beyond slices of fewer rows
/// than the copy has.
pub(super) fn copy_params(copy: &CopyBox) -> hipMemcpy3DParms {
    let [from_rows, to_rows] = copy.slice_rows();
    let side = |side: BoxSide, rows| hipPitchedPtr {
        ptr: ptr::with_exposed_provenance_mut(side.start.address as usize),
        pitch: side.pitch,
        // With a size, the driver compares memory with whole slices, and the last may end early.
        xsize: 0,
        ysize: rows,
    };
    let origin = hipPos { x: 0, y: 0, z: 0 };
    hipMemcpy3DParms {
        srcArray: ptr::null_mut(),
        srcPos: origin,
        srcPtr: side(copy.from, from_rows),
        dstArray: ptr::null_mut(),
        dstPos: origin,
        dstPtr: side(copy.to, to_rows),
        extent: hipExtent { width: copy.width, height: copy.height, depth: copy.depth },
        // The driver knows the addresses of its own memory; all others are the host's.
        kind: hipMemcpyDefault,
    }
}

pub(super) fn fill_params(fill: &FillRow) -> hipMemsetParams {
    let FillRow { address, value, element, count } = *fill;
    hipMemsetParams {
        dst: ptr::with_exposed_provenance_mut(address as usize),
        elementSize: element,
        height: 1,
        pitch: 0,
        value,
        width: count,
    }
}
