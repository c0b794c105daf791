//! Operations: commands in the form in which the driver takes them, one call each.
#![expect(unsafe_code, reason = "enqueues on the driver's queues")]

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::hint::Prefetch;
use super::kernel::Instance;
use super::sys::{self, Core, Failure, MemObject, Owned, call};

/// A buffer object that an operation keeps.
pub(super) type Buffer = Arc<Owned<MemObject>>;

/// A rectangle in a buffer object or in plain memory, as the driver counts: bytes, rows, slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corner {
    pub(super) origin: [usize; 3],
    pub(super) row: usize,
    pub(super) slice: usize,
}

/// One call of the driver.
#[derive(Debug)]
pub(super) enum Op {
    Kernel(KernelOp),
    Copy {
        src: Buffer,
        src_offset: usize,
        dst: Buffer,
        dst_offset: usize,
        len: usize,
    },
    CopyRect {
        src: Buffer,
        from: Corner,
        dst: Buffer,
        to: Corner,
        region: [usize; 3],
    },
    Fill {
        dst: Buffer,
        offset: usize,
        len: usize,
        pattern: Pattern,
    },
    /// From a buffer object to the host.
    Read {
        src: Buffer,
        offset: usize,
        host: usize,
        len: usize,
    },
    ReadRect {
        src: Buffer,
        from: Corner,
        host: usize,
        to: Corner,
        region: [usize; 3],
    },
    /// From the host to a buffer object.
    Write {
        host: usize,
        dst: Buffer,
        offset: usize,
        len: usize,
    },
    WriteRect {
        host: usize,
        from: Corner,
        dst: Buffer,
        to: Corner,
        region: [usize; 3],
    },
    /// Between addresses.
    PointerCopy {
        src: usize,
        dst: usize,
        len: usize,
    },
    PointerFill {
        dst: usize,
        len: usize,
        pattern: Pattern,
    },
    /// A hint, which never fails.
    Prefetch(Prefetch),
    /// Nothing, in its place in the order.
    Marker,
}

/// A launch.
#[derive(Debug)]
pub(super) struct KernelOp {
    pub(super) instance: Instance,
    pub(super) dimensions: u32,
    pub(super) offset: [usize; 3],
    pub(super) global: [usize; 3],
    pub(super) local: Option<[usize; 3]>,
}

/// The bytes that a fill repeats: 1, 2, 4 ... 128 of them.
pub(super) type Pattern = SmallVec<[u8; 16]>;

/// The longest pattern that drivers take.
pub(super) const LONGEST_PATTERN: usize = 128;

impl KernelOp {
    pub(super) fn local(&self) -> *const usize {
        self.local.as_ref().map_or(ptr::null(), |local| local.as_ptr())
    }

    /// `NULL` where nothing is shifted, which every version takes.
    pub(super) fn offset(&self) -> *const usize {
        if self.offset == [0; 3] { ptr::null() } else { self.offset.as_ptr() }
    }
}

/// A list for the driver: without an element it wants no address.
pub(super) fn list<T>(items: &[T]) -> (sys::cl_uint, *const T) {
    let address = if items.is_empty() { ptr::null() } else { items.as_ptr() };
    (items.len() as sys::cl_uint, address)
}

impl Op {
    /// Enqueues it behind the events in `wait`; `event` is null or a place for its event.
    ///
    /// # Safety
    /// The memory that the operation names stays valid, and nothing else touches it in a
    /// conflicting way, until the operation is over. The queue is one of the objects' context; the
    /// events in `wait` are alive.
    pub(super) unsafe fn enqueue(
        &self,
        core: &Core,
        queue: sys::cl_command_queue,
        wait: &[sys::cl_event],
        event: *mut sys::cl_event,
    ) -> Result<(), Failure> {
        if let Self::Prefetch(prefetch) = self {
            // SAFETY: passed on to the caller.
            return unsafe { prefetch.enqueue(queue, wait, event) };
        }
        let (waits, wait) = list(wait);
        match self {
            Self::Kernel(op) => {
                let (kernel, dimensions) = (op.instance.kernel.raw(), op.dimensions);
                let (offset, global, local) = (op.offset(), op.global.as_ptr(), op.local());
                // SAFETY: the sizes have three elements, at least as many as there are dimensions;
                // else as the caller vouched.
                unsafe {
                    call!(
                        core,
                        clEnqueueNDRangeKernel(
                            queue, kernel, dimensions, offset, global, local, waits, wait, event
                        )
                    )
                }
            }
            Self::Copy { src, src_offset, dst, dst_offset, len } => {
                let (from, to, len) = ((src.raw(), *src_offset), (dst.raw(), *dst_offset), *len);
                // SAFETY: as the caller vouched; the driver checks the bounds.
                unsafe {
                    call!(
                        core,
                        clEnqueueCopyBuffer(queue, from.0, to.0, from.1, to.1, len, waits, wait, event)
                    )
                }
            }
            Self::CopyRect { src, from, dst, to, region } => {
                let (source, target, region) = (src.raw(), dst.raw(), region.as_ptr());
                let (from_origin, to_origin) = (from.origin.as_ptr(), to.origin.as_ptr());
                // SAFETY: as the caller vouched; origins and regions have three elements.
                unsafe {
                    call!(
                        core,
                        clEnqueueCopyBufferRect(
                            queue,
                            source,
                            target,
                            from_origin,
                            to_origin,
                            region,
                            from.row,
                            from.slice,
                            to.row,
                            to.slice,
                            waits,
                            wait,
                            event
                        )
                    )
                }
            }
            Self::Fill { dst, offset, len, pattern } => {
                let (buffer, bytes, size) = (dst.raw(), pattern.as_ptr().cast(), pattern.len());
                // SAFETY: as the caller vouched; the driver copies the pattern.
                unsafe {
                    call!(
                        core,
                        clEnqueueFillBuffer(queue, buffer, bytes, size, *offset, *len, waits, wait, event)
                    )
                }
            }
            Self::Read { src, offset, host, len } => {
                let (buffer, host) = (src.raw(), ptr::with_exposed_provenance_mut(*host));
                // SAFETY: as the caller vouched for the `len` bytes at `host`.
                unsafe {
                    call!(
                        core,
                        clEnqueueReadBuffer(
                            queue,
                            buffer,
                            sys::CL_FALSE,
                            *offset,
                            *len,
                            host,
                            waits,
                            wait,
                            event
                        )
                    )
                }
            }
            Self::ReadRect { src, from, host, to, region } => {
                let (buffer, host) = (src.raw(), ptr::with_exposed_provenance_mut(*host));
                let (from_origin, to_origin) = (from.origin.as_ptr(), to.origin.as_ptr());
                let region = region.as_ptr();
                // SAFETY: as the caller vouched for the rectangle at `host`.
                unsafe {
                    call!(
                        core,
                        clEnqueueReadBufferRect(
                            queue,
                            buffer,
                            sys::CL_FALSE,
                            from_origin,
                            to_origin,
                            region,
                            from.row,
                            from.slice,
                            to.row,
                            to.slice,
                            host,
                            waits,
                            wait,
                            event
                        )
                    )
                }
            }
            Self::Write { host, dst, offset, len } => {
                let (buffer, host) = (dst.raw(), ptr::with_exposed_provenance(*host));
                // SAFETY: as the caller vouched for the `len` bytes at `host`.
                unsafe {
                    call!(
                        core,
                        clEnqueueWriteBuffer(
                            queue,
                            buffer,
                            sys::CL_FALSE,
                            *offset,
                            *len,
                            host,
                            waits,
                            wait,
                            event
                        )
                    )
                }
            }
            Self::WriteRect { host, from, dst, to, region } => {
                let (buffer, host) = (dst.raw(), ptr::with_exposed_provenance(*host));
                let (from_origin, to_origin) = (from.origin.as_ptr(), to.origin.as_ptr());
                let region = region.as_ptr();
                // SAFETY: as the caller vouched for the rectangle at `host`.
                unsafe {
                    call!(
                        core,
                        clEnqueueWriteBufferRect(
                            queue,
                            buffer,
                            sys::CL_FALSE,
                            to_origin,
                            from_origin,
                            region,
                            to.row,
                            to.slice,
                            from.row,
                            from.slice,
                            host,
                            waits,
                            wait,
                            event
                        )
                    )
                }
            }
            Self::PointerCopy { src, dst, len } => {
                let (to, from) = (ptr::with_exposed_provenance_mut(*dst), ptr::with_exposed_provenance(*src));
                // SAFETY: as the caller vouched for the `len` bytes at both.
                unsafe {
                    call!(core, clEnqueueSVMMemcpy(queue, sys::CL_FALSE, to, from, *len, waits, wait, event))
                }
            }
            Self::PointerFill { dst, len, pattern } => {
                let (to, bytes) = (ptr::with_exposed_provenance_mut(*dst), pattern.as_ptr().cast());
                let size = pattern.len();
                // SAFETY: as the caller vouched for the `len` bytes at `dst`; the driver copies the pattern.
                unsafe { call!(core, clEnqueueSVMMemFill(queue, to, bytes, size, *len, waits, wait, event)) }
            }
            Self::Prefetch(_) | Self::Marker => {
                // SAFETY: touches no memory.
                unsafe { call!(core, clEnqueueMarkerWithWaitList(queue, waits, wait, event)) }
            }
        }
    }
}
