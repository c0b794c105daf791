//! Prefetches, as far as the driver takes them: one that it refuses keeps its place in the order,
//! and nothing fails.
//!
//! Advice is not passed on: OpenCL has none, and Intel's extension has the function but no value for it yet.
#![expect(unsafe_code, reason = "enqueues on the driver's queues")]

use std::ptr;
use std::sync::Arc;

use super::device::Shared;
use super::op;
use super::sys::{self, Failure, call};
use crate::hal::UsmPointer;

/// Moves memory to the device.
#[derive(Debug)]
pub(super) struct Prefetch {
    address: usize,
    len: usize,
    way: Way,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Shared virtual memory.
    Shared,
    /// Intel's unified shared memory.
    Unified,
}

impl Prefetch {
    /// The prefetch, where the device has a use for it.
    pub(super) fn new(shared: &Arc<Shared>, memory: UsmPointer) -> Option<Self> {
        let (address, len) = (memory.address(), memory.len());
        let way = if shared.features.unified_memory && is_unified(shared, address) {
            Way::Unified
        } else if shared.features.migrates_shared_memory {
            Way::Shared
        } else {
            return None;
        };
        (len > 0).then(|| Self { address, len, way, shared: Arc::clone(shared) })
    }

    /// Enqueues it behind the events in `wait`; `event` is null or a place for its event.
    ///
    /// # Errors
    /// Those of the marker that takes its place.
    ///
    /// # Safety
    /// As for [`Op::enqueue`](super::op::Op::enqueue).
    pub(super) unsafe fn enqueue(
        &self,
        queue: sys::cl_command_queue,
        wait: &[sys::cl_event],
        event: *mut sys::cl_event,
    ) -> Result<(), Failure> {
        let core = self.shared.core;
        // SAFETY: passed on to the caller.
        let Err(Failure { call, code }) = (unsafe { self.migrate(queue, wait, event) }) else {
            return Ok(());
        };
        tracing::debug!(target: "wakegraph::opencl", call, code, "a prefetch was refused; its order is kept");
        let (waits, wait) = op::list(wait);
        // SAFETY: touches no memory; the queue and the events are alive.
        unsafe { call!(core, clEnqueueMarkerWithWaitList(queue, waits, wait, event)) }
    }

    unsafe fn migrate(
        &self,
        queue: sys::cl_command_queue,
        wait: &[sys::cl_event],
        event: *mut sys::cl_event,
    ) -> Result<(), Failure> {
        let ((waits, wait), len) = (op::list(wait), self.len);
        let mut start = ptr::with_exposed_provenance(self.address);
        // No flag: to the queue's device, with its contents.
        let flags = 0;
        match self.way {
            Way::Shared => {
                let (core, starts, lens) = (self.shared.core, &raw mut start, &raw const len);
                // SAFETY: one range of memory that is valid, as the caller vouched.
                unsafe {
                    call!(core, clEnqueueSVMMigrateMem(queue, 1, starts, lens, flags, waits, wait, event))
                }
            }
            Way::Unified => {
                let extensions = &self.shared.platform.extensions;
                // SAFETY: memory that is valid, as the caller vouched.
                unsafe {
                    call!(extensions, clEnqueueMigrateMemINTEL(queue, start, len, flags, waits, wait, event))
                }
            }
        }
    }
}

/// Whether the address is in memory that the driver knows as unified shared memory of this context.
fn is_unified(shared: &Shared, address: usize) -> bool {
    let mut kind: sys::cl_unified_shared_memory_type_intel = sys::CL_MEM_TYPE_UNKNOWN_INTEL;
    let (what, size, place) = (sys::CL_MEM_ALLOC_TYPE_INTEL, size_of_val(&kind), (&raw mut kind).cast());
    let (context, start) = (shared.context.raw(), ptr::with_exposed_provenance(address));
    let extensions = &shared.platform.extensions;
    // SAFETY: any address may be asked for; `place` has room for `size` bytes.
    let asked = unsafe {
        call!(extensions, clGetMemAllocInfoINTEL(context, start, what, size, place, ptr::null_mut()))
    };
    asked.is_ok() && kind != sys::CL_MEM_TYPE_UNKNOWN_INTEL
}
