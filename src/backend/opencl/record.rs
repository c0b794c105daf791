//! Recordings: a list as a `cl_khr_command_buffer`.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use smallvec::SmallVec;

use super::device::Shared;
use super::op::{self, KernelOp, Op};
use super::queue::DriverQueue;
use super::replay::List;
use super::signal;
use super::sys::{self, Event, Failure, Owned, call, create};
use crate::hal::QueueOrder;

/// A command-buffer of the driver's.
pub(super) struct Recording {
    raw: NonNull<c_void>,
    shared: Arc<Shared>,
    order: QueueOrder,
    simultaneous: bool,
    /// Of each step, the handle to change it by; null where it cannot be changed.
    pub(super) handles: Vec<Handle>,
    /// What can be changed; 0 in a recording that is not for updates.
    pub(super) mutable: sys::cl_mutable_dispatch_fields_khr,
}

/// What a recorded command is changed by.
pub(super) type Handle = sys::cl_mutable_command_khr;

// SAFETY: the driver's command-buffers may be used on any thread; enqueues and updates of one are
// behind its owner's lock or exclusive reference (`command_buffer.rs`).
unsafe impl Send for Recording {}
// SAFETY: as for `Send`.
unsafe impl Sync for Recording {}

impl Recording {
    /// Whether every step of the list can be recorded on the device, for a queue of this order.
    pub(super) fn supports(shared: &Shared, list: &List, order: QueueOrder) -> bool {
        let Some(recording) = &shared.features.recording else { return false };
        let ordered = order == QueueOrder::InOrder || recording.out_of_order;
        ordered
            && list.steps().iter().all(|step| match &step.op {
                // A prefetch has no recorded form: it keeps its place in the order.
                Op::Kernel(_)
                | Op::Copy { .. }
                | Op::CopyRect { .. }
                | Op::Fill { .. }
                | Op::Prefetch(_)
                | Op::Marker => true,
                Op::PointerCopy { .. } | Op::PointerFill { .. } => recording.pointers,
                Op::Read { .. } | Op::ReadRect { .. } | Op::Write { .. } | Op::WriteRect { .. } => false,
            })
    }

    /// Records the list for queues like `queue`.
    pub(super) fn new(
        shared: &Arc<Shared>,
        list: &List,
        queue: &DriverQueue,
        updatable: bool,
    ) -> Result<Self, Failure> {
        let Some(features) = shared.features.recording else {
            return Err(sys::missing("clCreateCommandBufferKHR"));
        };
        let mutable = if updatable { features.mutable } else { 0 };
        let mut flags = 0;
        if mutable != 0 {
            flags |= sys::CL_COMMAND_BUFFER_MUTABLE_KHR;
        }
        if features.simultaneous {
            flags |= sys::CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR;
        }
        let properties = [sys::CL_COMMAND_BUFFER_FLAGS_KHR, flags, 0];
        let properties = if flags == 0 { ptr::null() } else { properties.as_ptr() };
        let (extensions, raw_queue) = (&shared.platform.extensions, queue.raw());
        // SAFETY: one queue, which is alive; the list of properties ends in 0.
        let raw =
            unsafe { create!(extensions, clCreateCommandBufferKHR(1, &raw const raw_queue, properties)) }?;
        let mut recording = Self {
            raw,
            shared: Arc::clone(shared),
            order: queue.order(),
            simultaneous: features.simultaneous,
            handles: Vec::with_capacity(list.steps().len()),
            mutable,
        };
        let mut points: Vec<sys::cl_sync_point_khr> = Vec::with_capacity(list.steps().len());
        for step in list.steps() {
            // On an in-order queue the commands follow each other as they are recorded.
            let after: SmallVec<[sys::cl_sync_point_khr; 8]> = match queue.order() {
                QueueOrder::InOrder => SmallVec::new(),
                QueueOrder::OutOfOrder => {
                    step.after.iter().map(|&earlier| points[earlier as usize]).collect()
                }
            };
            let (point, handle) = recording.record(list.op(step), features.properties, &after)?;
            points.push(point);
            recording.handles.push(handle);
        }
        // SAFETY: the command-buffer is alive and recording.
        unsafe { call!(extensions, clFinalizeCommandBufferKHR(recording.raw.as_ptr())) }?;
        Ok(recording)
    }

    pub(super) fn simultaneous(&self) -> bool {
        self.simultaneous
    }

    pub(super) fn raw(&self) -> sys::cl_command_buffer_khr {
        self.raw.as_ptr()
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether it can be enqueued on `queue`: one like that for which it was recorded.
    pub(super) fn fits(&self, queue: &DriverQueue) -> bool {
        self.order == queue.order() && !queue.profiling()
    }

    /// # Safety
    /// As for [`CommandBuffer::enqueue`](crate::hal::CommandBuffer::enqueue); the events in `wait` are alive.
    pub(super) unsafe fn enqueue(
        &self,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
    ) -> Result<Owned<Event>, Failure> {
        let (waits, wait) = op::list(wait);
        let (mut raw_queue, mut event) = (queue.raw(), ptr::null_mut());
        let (extensions, buffer) = (&self.shared.platform.extensions, self.raw.as_ptr());
        let queues = &raw mut raw_queue;
        // SAFETY: the queue is like that of the recording, and the recording is finalized; else as
        // the caller vouched.
        unsafe {
            call!(extensions, clEnqueueCommandBufferKHR(1, queues, buffer, waits, wait, &raw mut event))
        }?;
        signal::adopt(self.shared.core, event)
    }

    /// Records one operation; `new` is whether the device's version has `properties` everywhere.
    fn record(
        &self,
        op: &Op,
        new: bool,
        after: &[sys::cl_sync_point_khr],
    ) -> Result<(sys::cl_sync_point_khr, Handle), Failure> {
        let (mut point, mut handle) = (0, ptr::null_mut());
        let place = Place { buffer: self.raw.as_ptr(), after: op::list(after), point: &raw mut point };
        match op {
            Op::Kernel(op) => self.record_kernel(op, &place, &mut handle)?,
            // SAFETY: objects of this context, alive; the version says which signature it is.
            other => unsafe { self.record_transfer(other, new, &place) }?,
        }
        Ok((point, handle))
    }

    fn record_kernel(&self, op: &KernelOp, place: &Place, handle: &mut Handle) -> Result<(), Failure> {
        let updatable = self.mutable != 0;
        let properties = [sys::CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR, self.mutable, 0];
        let properties = if updatable { properties.as_ptr() } else { ptr::null() };
        let handle = if updatable { ptr::from_mut(handle) } else { ptr::null_mut() };
        let queue = ptr::null_mut();
        let (kernel, dimensions) = (op.instance.kernel.raw(), op.dimensions);
        let (offset, global, local) = (op.offset.as_ptr(), op.global.as_ptr(), op.local());
        let ((waits, wait), point, buffer) = (place.after, place.point, place.buffer);
        // SAFETY: the command-buffer is recording, the kernel has its arguments, the sizes have
        // three elements.
        unsafe {
            call!(
                self.shared.platform.extensions,
                clCommandNDRangeKernelKHR(
                    buffer, queue, properties, kernel, dimensions, offset, global, local, waits, wait, point,
                    handle
                )
            )
        }
    }

    /// # Safety
    /// The objects are of this context; `new` is whether the device's version has `properties` everywhere.
    #[expect(clippy::too_many_lines, reason = "a call for each kind, and two signatures of most")]
    unsafe fn record_transfer(&self, op: &Op, new: bool, place: &Place) -> Result<(), Failure> {
        let (extensions, old) = (&self.shared.platform.extensions, &self.shared.platform.old_extensions);
        let (buffer, queue, none) = (place.buffer, ptr::null_mut(), ptr::null());
        let ((waits, wait), point, handle) = (place.after, place.point, ptr::null_mut());
        match op {
            Op::Copy { src, src_offset, dst, dst_offset, len } => {
                let (from, to, len) = ((src.raw(), *src_offset), (dst.raw(), *dst_offset), *len);
                if new {
                    // SAFETY: as the caller vouched.
                    unsafe {
                        call!(
                            extensions,
                            clCommandCopyBufferKHR(
                                buffer, queue, none, from.0, to.0, from.1, to.1, len, waits, wait, point,
                                handle
                            )
                        )
                    }
                } else {
                    // SAFETY: as the caller vouched.
                    unsafe {
                        call!(
                            old,
                            clCommandCopyBufferKHR(
                                buffer, queue, from.0, to.0, from.1, to.1, len, waits, wait, point, handle
                            )
                        )
                    }
                }
            }
            Op::CopyRect { src, from, dst, to, region } => {
                let (source, target, region) = (src.raw(), dst.raw(), region.as_ptr());
                let (from_origin, to_origin) = (from.origin.as_ptr(), to.origin.as_ptr());
                if new {
                    // SAFETY: as the caller vouched; origins and regions have three elements.
                    unsafe {
                        call!(
                            extensions,
                            clCommandCopyBufferRectKHR(
                                buffer,
                                queue,
                                none,
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
                                point,
                                handle
                            )
                        )
                    }
                } else {
                    // SAFETY: as above.
                    unsafe {
                        call!(
                            old,
                            clCommandCopyBufferRectKHR(
                                buffer,
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
                                point,
                                handle
                            )
                        )
                    }
                }
            }
            Op::Fill { dst, offset, len, pattern } => {
                let (target, bytes, size) = (dst.raw(), pattern.as_ptr().cast(), pattern.len());
                let (offset, len) = (*offset, *len);
                if new {
                    // SAFETY: as the caller vouched; the driver copies the pattern.
                    unsafe {
                        call!(
                            extensions,
                            clCommandFillBufferKHR(
                                buffer, queue, none, target, bytes, size, offset, len, waits, wait, point,
                                handle
                            )
                        )
                    }
                } else {
                    // SAFETY: as above.
                    unsafe {
                        call!(
                            old,
                            clCommandFillBufferKHR(
                                buffer, queue, target, bytes, size, offset, len, waits, wait, point, handle
                            )
                        )
                    }
                }
            }
            Op::PointerCopy { src, dst, len } => {
                let (to, from) = (ptr::with_exposed_provenance_mut(*dst), ptr::with_exposed_provenance(*src));
                // SAFETY: as the caller vouched; devices that record this have the one signature.
                unsafe {
                    call!(
                        extensions,
                        clCommandSVMMemcpyKHR(
                            buffer, queue, none, to, from, *len, waits, wait, point, handle
                        )
                    )
                }
            }
            Op::PointerFill { dst, len, pattern } => {
                let (to, bytes) = (ptr::with_exposed_provenance_mut(*dst), pattern.as_ptr().cast());
                let size = pattern.len();
                // SAFETY: as above; the driver copies the pattern.
                unsafe {
                    call!(
                        extensions,
                        clCommandSVMMemFillKHR(
                            buffer, queue, none, to, bytes, size, *len, waits, wait, point, handle
                        )
                    )
                }
            }
            Op::Prefetch(_) | Op::Marker if new => {
                // SAFETY: touches no memory.
                unsafe {
                    call!(
                        extensions,
                        clCommandBarrierWithWaitListKHR(buffer, queue, none, waits, wait, point, handle)
                    )
                }
            }
            Op::Prefetch(_) | Op::Marker => {
                // SAFETY: touches no memory.
                unsafe {
                    call!(old, clCommandBarrierWithWaitListKHR(buffer, queue, waits, wait, point, handle))
                }
            }
            // `supports` has said no to these.
            Op::Kernel(_)
            | Op::Read { .. }
            | Op::ReadRect { .. }
            | Op::Write { .. }
            | Op::WriteRect { .. } => Err(sys::missing("clCommand*KHR")),
        }
    }
}

/// Where a command is recorded.
struct Place {
    buffer: sys::cl_command_buffer_khr,
    after: (sys::cl_uint, *const sys::cl_sync_point_khr),
    point: *mut sys::cl_sync_point_khr,
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: the reference is this object's own, and given up once.
        let released =
            unsafe { call!(self.shared.platform.extensions, clReleaseCommandBufferKHR(self.raw.as_ptr())) };
        if let Err(Failure { call, code }) = released {
            tracing::warn!(target: "wakegraph::opencl", call, code, "an object could not be released");
        }
    }
}

impl Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").field("order", &self.order).finish_non_exhaustive()
    }
}
