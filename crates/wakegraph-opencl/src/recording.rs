//! Recordings: the list of a command-buffer as a `cl_khr_command_buffer`, for in-order queues.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use wakegraph_hal::QueueOrder;
use wakegraph_hal::support::command_list::CommandList;

use super::context::OpenclContext;
use super::driver_queue::DriverQueue;
use super::operation::OpenclOperation;
use super::sys::{self, DriverResult, Event, Owned, adopt_event, call, get};

/// A command-buffer of the driver.
#[derive(Debug)]
pub(super) struct OpenclRecording {
    raw: NonNull<c_void>,
    pub(super) context: Arc<OpenclContext>,
    /// It can be enqueued again, behind its last run, while that is pending.
    pub(super) repeats: bool,
    /// The handle by which each command can be changed; null for one that cannot be.
    pub(super) handles: Vec<sys::cl_mutable_command_khr>,
    /// The fields that can be changed; 0 in a recording that is not for updates.
    pub(super) mutable: sys::cl_mutable_dispatch_fields_khr,
}

// SAFETY: the driver's command-buffers may be used on any thread. Enqueues and updates of one are
// behind its owner's lock or exclusive reference (`command_buffer.rs`).
unsafe impl Send for OpenclRecording {}
// SAFETY: as for `Send`.
unsafe impl Sync for OpenclRecording {}

impl OpenclRecording {
    /// Whether the device can record every operation of the list.
    pub(super) fn can_hold(context: &OpenclContext, list: &CommandList<OpenclOperation>) -> bool {
        let mut operations = list.commands.iter().flat_map(|command| &command.lowered.operations);
        context.features.recording.is_some() && operations.all(|ordered| ordered.operation.can_be_recorded())
    }

    /// Records the list.
    pub(super) fn new(
        context: &Arc<OpenclContext>,
        list: &CommandList<OpenclOperation>,
        updatable: bool,
    ) -> DriverResult<Self> {
        let features = context.features.recording.ok_or(sys::missing("clCreateCommandBufferKHR"))?;
        let mutable = if updatable { features.mutable } else { 0 };
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(mutable != 0, sys::CL_COMMAND_BUFFER_MUTABLE_KHR)
            | flag(features.simultaneous, sys::CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR);
        let properties = [sys::CL_COMMAND_BUFFER_FLAGS_KHR, flags, 0];
        let properties = if flags == 0 { ptr::null() } else { properties.as_ptr() };
        let (extensions, queue) = (&context.platform.extensions, context.service()?.raw());
        // SAFETY: one queue, which is alive; the list of properties ends in 0.
        let raw = unsafe { get!(extensions, clCreateCommandBufferKHR(1, &raw const queue, properties)) }?;
        let (repeats, handles) = (features.repeats, Vec::with_capacity(list.commands.len()));
        let mut recording = Self { raw, context: Arc::clone(context), repeats, handles, mutable };
        for command in &list.commands {
            let (mut handle, mut count) = (ptr::null_mut(), 0);
            // On an in-order queue the operations follow each other as they are recorded.
            for operation in command.operations() {
                // SAFETY: the recording is alive and not finalized; enqueues of it are the caller's.
                handle = unsafe { operation.record(context, raw.as_ptr(), mutable) }?;
                count += 1;
            }
            recording.handles.push(if count == 1 { handle } else { ptr::null_mut() });
        }
        // SAFETY: the recording is alive and not finalized.
        unsafe { call!(extensions, clFinalizeCommandBufferKHR(raw.as_ptr())) }?;
        Ok(recording)
    }

    pub(super) fn raw(&self) -> sys::cl_command_buffer_khr {
        self.raw.as_ptr()
    }

    /// Whether it can be enqueued on `queue`: one like that for which it was recorded.
    pub(super) fn fits(&self, queue: &DriverQueue) -> bool {
        queue.order == QueueOrder::InOrder && !queue.profiling
    }

    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue); the events in `wait` are
    /// alive, and it [fits](Self::fits) the queue.
    pub(super) unsafe fn enqueue(
        &self,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
    ) -> DriverResult<Owned<Event>> {
        let (extensions, (waits, wait)) = (&self.context.platform.extensions, sys::list(wait));
        let (mut queue, mut event) = (queue.raw(), ptr::null_mut());
        let (queues, place) = (&raw mut queue, &raw mut event);
        // SAFETY: the recording is finalized; else as the caller vouched.
        unsafe { call!(extensions, clEnqueueCommandBufferKHR(1, queues, self.raw(), waits, wait, place)) }?;
        adopt_event(self.context.core, event)
    }
}

impl Drop for OpenclRecording {
    fn drop(&mut self) {
        let extensions = &self.context.platform.extensions;
        // SAFETY: the reference is this object's own, and given up once.
        let released = unsafe { call!(extensions, clReleaseCommandBufferKHR(self.raw())) };
        sys::report(released, "a recording could not be released");
    }
}
