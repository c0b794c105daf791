//! Operations: commands in the form in which the driver takes them, one call each.
#![expect(unsafe_code, reason = "calls the driver with the caller's memory")]

use std::ffi::c_void;
use std::ptr;

use smallvec::SmallVec;
use wakegraph_hal::support::lowering::DriverOperation;
use wakegraph_hal::{Range, UsmPointer};

use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::host_copy::HostCopy;
use super::kernel::OpenclKernelInstance;
use super::memory::Buffer;
use super::sys::{self, DriverResult, Event, OpenclFailure, Owned, adopt_event, call};

/// One call of the driver.
#[derive(Debug)]
pub(super) enum OpenclOperation {
    Kernel(KernelOperation),
    /// Bytes from an offset in one place to an offset in the other.
    Copy {
        route: Route,
        from: usize,
        to: usize,
        len: usize,
    },
    CopyRect {
        route: Route,
        from: Corner,
        to: Corner,
        region: [usize; 3],
    },
    Fill {
        dst: Buffer,
        offset: usize,
        len: usize,
        pattern: Pattern,
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
    HostCopy(HostCopy),
    /// A hint, which never fails.
    Prefetch(Prefetch),
    /// Does nothing, in its place in the order.
    Marker,
}

impl DriverOperation for OpenclOperation {
    const NOTHING: &'static Self = &Self::Marker;
}

/// A launch.
#[derive(Debug)]
pub(super) struct KernelOperation {
    /// An update of a launch keeps it, and changes its arguments.
    pub(super) instance: OpenclKernelInstance,
    pub(super) range: Range,
    /// The work-group size; `None` leaves it to the driver.
    pub(super) local: Option<[usize; 3]>,
}

/// The two places of a copy. Memory of the host is given by its address.
#[derive(Clone, Debug)]
pub(super) enum Route {
    Copy { src: Buffer, dst: Buffer },
    Read { src: Buffer, host: usize },
    Write { host: usize, dst: Buffer },
}

/// The place of a rectangle in a buffer object or in host memory, in bytes, rows and slices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corner {
    pub(super) origin: [usize; 3],
    pub(super) row: usize,
    pub(super) slice: usize,
}

impl Corner {
    /// Where the last of `depth` slices ends, with all its rows whole.
    pub(super) fn end(&self, depth: usize) -> usize {
        self.slice.saturating_mul(self.origin[2].saturating_add(depth))
    }
}

/// The bytes that a fill repeats: 1, 2, 4 ... 128 of them.
pub(super) type Pattern = SmallVec<[u8; 16]>;

/// The longest pattern that drivers take.
pub(super) const LONGEST_PATTERN: usize = 128;

/// A prefetch of memory to the device.
#[derive(Debug)]
pub(super) struct Prefetch {
    address: usize,
    len: usize,
    /// Whether it is Intel's unified shared memory, or else shared virtual memory.
    unified: bool,
}

impl Prefetch {
    /// The prefetch, if the driver has a function for it.
    pub(super) fn new(context: &OpenclContext, memory: UsmPointer) -> Option<Self> {
        let (address, len) = (memory.address(), memory.len());
        let unified = context.features.unified_memory && is_unified(context, address);
        let possible = len > 0 && (unified || context.features.migrates_shared_memory);
        possible.then_some(Self { address, len, unified })
    }
}

/// Whether the driver knows the address as one in unified shared memory of this context.
fn is_unified(context: &OpenclContext, address: usize) -> bool {
    let mut kind: sys::cl_unified_shared_memory_type_intel = sys::CL_MEM_TYPE_UNKNOWN_INTEL;
    let (what, size, place) = (sys::CL_MEM_ALLOC_TYPE_INTEL, size_of_val(&kind), (&raw mut kind).cast());
    let (raw, start) = (context.raw.raw(), ptr::with_exposed_provenance(address));
    let (extensions, needed) = (&context.platform.extensions, ptr::null_mut());
    // SAFETY: any address may be asked for; `place` has room for `size` bytes.
    let asked = unsafe { call!(extensions, clGetMemAllocInfoINTEL(raw, start, what, size, place, needed)) };
    asked.is_ok() && kind != sys::CL_MEM_TYPE_UNKNOWN_INTEL
}

/// Where an operation goes.
#[derive(Clone, Copy, Debug)]
enum OperationTarget {
    /// Onto a queue, behind the events of a wait list; `event` is null or a place for its own.
    Queue {
        queue: sys::cl_command_queue,
        waits: sys::cl_uint,
        wait: *const sys::cl_event,
        event: *mut sys::cl_event,
    },
    /// Into a recording for in-order queues.
    Recording {
        buffer: sys::cl_command_buffer_khr,
        properties: *const sys::cl_command_properties_khr,
        handle: *mut sys::cl_mutable_command_khr,
    },
}

/// Calls the function that passes an operation to its target: the first for a queue, the second for a
/// recording. Both take the arguments; the first also takes those in brackets, before the others.
macro_rules! emit {
    ($table:expr, $to:expr, $enqueue:ident $([$first:expr])?: $($argument:expr),*) => {
        match $to {
            // SAFETY: the caller of `emit` vouches for the queue, the events and the memory. Arrays have
            // three elements, and the driver copies patterns.
            OperationTarget::Queue { queue, waits, wait, event } => unsafe {
                call!($table, $enqueue(queue, $($first,)? $($argument,)* waits, wait, event))
            },
            OperationTarget::Recording { .. } => Err(sys::missing("clCommand*KHR")),
        }
    };
    ($context:expr, $to:expr, $enqueue:ident $([$first:expr])?, $record:ident: $($argument:expr),*) => {
        match $to {
            // SAFETY: the caller of `emit` vouches for the recording and the memory. A null queue means
            // the recording's own.
            OperationTarget::Recording { buffer, properties, handle } => unsafe {
                let (queue, none, point) = (ptr::null_mut(), ptr::null(), ptr::null_mut());
                let extensions = &$context.platform.extensions;
                call!(extensions, $record(buffer, queue, properties, $($argument,)* 0, none, point, handle))
            },
            to => emit!($context.core, to, $enqueue $([$first])?: $($argument),*),
        }
    };
}

impl OpenclOperation {
    /// Enqueues it behind the events in `wait`. Gives its event if one is wanted.
    ///
    /// # Safety
    /// The memory that the operation names stays valid, and nothing else touches it in a
    /// conflicting way, until the operation is over. The queue is one of the objects' context; the
    /// events in `wait` are alive.
    pub(super) unsafe fn enqueue(
        &self,
        context: &OpenclContext,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
        wants_event: bool,
    ) -> DriverResult<Option<Owned<Event>>> {
        match self {
            Self::Marker if wants_event => return queue.marker(wait),
            // SAFETY: passed on to the caller.
            Self::HostCopy(copy) => return unsafe { copy.enqueue(context, queue, wait) },
            _ => {}
        }
        let (mut event, (waits, wait)) = (ptr::null_mut(), sys::list(wait));
        let place = if wants_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: passed on to the caller.
        unsafe {
            self.emit(context, OperationTarget::Queue { queue: queue.raw(), waits, wait, event: place })
        }?;
        if wants_event { adopt_event(context.core, event).map(Some) } else { Ok(None) }
    }

    /// Appends it to a recording for in-order queues. Gives the handle by which it can be changed:
    /// null unless it is a launch and the recording can be changed in these `mutable` fields.
    ///
    /// # Safety
    /// The recording is alive, not finalized, and of the context. It is enqueued as
    /// [`enqueue`](Self::enqueue) asks.
    pub(super) unsafe fn record(
        &self,
        context: &OpenclContext,
        buffer: sys::cl_command_buffer_khr,
        mutable: sys::cl_mutable_dispatch_fields_khr,
    ) -> DriverResult<sys::cl_mutable_command_khr> {
        let mut handle = ptr::null_mut();
        let list = [sys::CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR, mutable, 0];
        let (properties, place) = match self {
            Self::Kernel(_) if mutable != 0 => (list.as_ptr(), &raw mut handle),
            _ => (ptr::null(), ptr::null_mut()),
        };
        // SAFETY: passed on to the caller.
        unsafe { self.emit(context, OperationTarget::Recording { buffer, properties, handle: place }) }?;
        Ok(handle)
    }

    /// Whether a recording can hold it: not if it copies from or to host memory without a buffer object.
    pub(super) fn can_be_recorded(&self) -> bool {
        !matches!(
            self,
            Self::Copy { route: Route::Read { .. } | Route::Write { .. }, .. }
                | Self::CopyRect { route: Route::Read { .. } | Route::Write { .. }, .. }
                | Self::HostCopy(_)
        )
    }

    /// # Safety
    /// As for [`enqueue`](Self::enqueue) or [`record`](Self::record).
    unsafe fn emit(&self, context: &OpenclContext, to: OperationTarget) -> DriverResult {
        let (core, wait) = (context.core, sys::CL_FALSE);
        match self {
            Self::Kernel(KernelOperation { instance, range, local }) => {
                let (kernel, dimensions) = (instance.kernel.raw(), range.dimensions() as sys::cl_uint);
                let (offset, global) = (range.global_offset(), range.global_size());
                let local = local.as_ref().map_or(ptr::null(), |local| local.as_ptr());
                emit!(context, to, clEnqueueNDRangeKernel, clCommandNDRangeKernelKHR:
                    kernel, dimensions, offset.as_ptr(), global.as_ptr(), local)
            }
            Self::Copy { route, from, to: offset, len } => match route {
                Route::Copy { src, dst } => {
                    emit!(context, to, clEnqueueCopyBuffer, clCommandCopyBufferKHR:
                        src.raw(), dst.raw(), *from, *offset, *len)
                }
                Route::Read { src, host } => {
                    emit!(core, to, clEnqueueReadBuffer: src.raw(), wait, *from, *len, place(host + offset))
                }
                Route::Write { host, dst } => {
                    emit!(core, to, clEnqueueWriteBuffer: dst.raw(), wait, *offset, *len, place(host + from))
                }
            },
            Self::CopyRect { route, from: a, to: b, region } => {
                let (start, end, region) = (a.origin.as_ptr(), b.origin.as_ptr(), region.as_ptr());
                match route {
                    Route::Copy { src, dst } => {
                        emit!(context, to, clEnqueueCopyBufferRect, clCommandCopyBufferRectKHR:
                            src.raw(), dst.raw(), start, end, region, a.row, a.slice, b.row, b.slice)
                    }
                    Route::Read { src, host } => {
                        emit!(core, to, clEnqueueReadBufferRect: src.raw(), wait,
                            start, end, region, a.row, a.slice, b.row, b.slice, place(*host))
                    }
                    Route::Write { host, dst } => {
                        emit!(core, to, clEnqueueWriteBufferRect: dst.raw(), wait,
                            end, start, region, b.row, b.slice, a.row, a.slice, place(*host))
                    }
                }
            }
            Self::Fill { dst, offset, len, pattern } => {
                emit!(context, to, clEnqueueFillBuffer, clCommandFillBufferKHR:
                    dst.raw(), pattern.as_ptr().cast(), pattern.len(), *offset, *len)
            }
            Self::PointerCopy { src, dst, len } => {
                emit!(context, to, clEnqueueSVMMemcpy[wait], clCommandSVMMemcpyKHR:
                    place(*dst), place(*src), *len)
            }
            Self::PointerFill { dst, len, pattern } => {
                emit!(context, to, clEnqueueSVMMemFill, clCommandSVMMemFillKHR:
                    place(*dst), pattern.as_ptr().cast(), pattern.len(), *len)
            }
            Self::Prefetch(Prefetch { address, len, unified })
                if matches!(to, OperationTarget::Queue { .. }) =>
            {
                // Without a flag: to the queue's device, with the contents.
                let (mut start, flags) = (place(*address).cast_const(), 0);
                let extensions = &context.platform.extensions;
                let migrated = match unified {
                    true => emit!(extensions, to, clEnqueueMigrateMemINTEL: start, *len, flags),
                    false => emit!(core, to, clEnqueueSVMMigrateMem: 1, &raw mut start, len, flags),
                };
                let Err(OpenclFailure { call, code }) = migrated else { return Ok(()) };
                tracing::debug!(target: "wakegraph::opencl", call, code, "a prefetch was refused");
                // SAFETY: passed on to the caller.
                unsafe { Self::Marker.emit(context, to) }
            }
            Self::HostCopy(_) => Err(sys::missing("clCommand*KHR")),
            Self::Prefetch(_) | Self::Marker => {
                emit!(context, to, clEnqueueMarkerWithWaitList, clCommandBarrierWithWaitListKHR:)
            }
        }
    }
}

/// The address as the driver takes it.
fn place(address: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(address)
}
