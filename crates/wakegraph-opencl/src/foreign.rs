//! Objects of other libraries that use the same driver: contexts, memory objects, events and queues.
//!
//! Each object that is kept gets a reference of our own, so the application may release its own at any time.
#![expect(unsafe_code, reason = "calls the driver with handles that the caller vouches for")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::errors::{foreign, idle_wait};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, Result};

use super::context::OpenclContext;
use super::events::{OpenclEvent, OpenclSignal};
use super::memory::{OpenclAllocation, OpenclMemory};
use super::platform::{Query as _, query_context, query_event, query_memory, query_queue};
use super::sys::{self, Context, Core, Owned, call};

/// Takes a reference by the driver's function for this kind of object.
macro_rules! retain {
    ($core:expr, $function:ident($raw:expr)) => {{
        // SAFETY: the caller vouched for the object.
        unsafe { call!($core, $function($raw)) }?;
        sys::adopt($core, sys::object(stringify!($function), sys::CL_SUCCESS, $raw)?)
    }};
}

/// The application's context, which must have the device.
///
/// # Safety
/// The context is null or live.
pub(super) unsafe fn context(
    core: &'static Core,
    context: *mut c_void,
    device: *mut c_void,
) -> Result<(Owned<Context>, usize)> {
    let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
    if context.is_null() {
        return Err(invalid("a null handle is no context"));
    }
    let devices = query_context(core, context).values::<usize>(sys::CL_CONTEXT_DEVICES)?;
    if !devices.contains(&device.addr()) {
        return Err(invalid("the device is not one of the context's")
            .help("give a device that the context was created for"));
    }
    Ok((retain!(core, clRetainContext(context)), devices.len()))
}

/// # Safety
/// The handle is that of a live memory object.
pub(super) unsafe fn memory(
    context: &Arc<OpenclContext>,
    handle: *mut c_void,
    len: usize,
) -> Result<OpenclMemory> {
    let (core, invalid) = (context.core, |why| Error::new(ErrorKind::InvalidArgument, why));
    let query = query_memory(core, handle);
    check_context(context, query.value(sys::CL_MEM_CONTEXT)?, "memory object")?;
    let kind: sys::cl_uint = query.value(sys::CL_MEM_TYPE)?;
    if kind != sys::CL_MEM_OBJECT_BUFFER {
        return Err(invalid("the memory object is not a buffer but an image or a pipe"));
    }
    let flags: sys::cl_bitfield = query.value(sys::CL_MEM_FLAGS)?;
    if flags & (sys::CL_MEM_READ_ONLY | sys::CL_MEM_WRITE_ONLY) != 0 {
        return Err(invalid("kernels may only read, or only write, the memory object")
            .help("create it with CL_MEM_READ_WRITE"));
    }
    if flags & (sys::CL_MEM_HOST_READ_ONLY | sys::CL_MEM_HOST_WRITE_ONLY | sys::CL_MEM_HOST_NO_ACCESS) != 0 {
        let remedy =
            "create it without CL_MEM_HOST_READ_ONLY, CL_MEM_HOST_WRITE_ONLY and CL_MEM_HOST_NO_ACCESS";
        return Err(invalid("the host may not both read and write the memory object").help(remedy));
    }
    let size: usize = query.value(sys::CL_MEM_SIZE)?;
    if len == 0 || len > size {
        let why = format!("{len} bytes are not a part of a memory object of {size}");
        return Err(Error::new(ErrorKind::InvalidSize, why));
    }
    let whole = match query.value(sys::CL_MEM_ASSOCIATED_MEMOBJECT)? {
        0 => None,
        address => {
            let whole = ptr::with_exposed_provenance_mut::<c_void>(address);
            Some((retain!(core, clRetainMemObject(whole)), query.value(sys::CL_MEM_OFFSET)?))
        }
    };
    let buffer = retain!(core, clRetainMemObject(handle));
    let desc = MemoryDesc::new(len, MemoryKind::Device);
    Ok(OpenclMemory::new(&desc, OpenclAllocation::of_buffer(context, buffer, whole)))
}

/// # Safety
/// The handle is that of a live event.
pub(super) unsafe fn event(context: &Arc<OpenclContext>, handle: *mut c_void) -> Result<OpenclEvent> {
    let (core, query) = (context.core, query_event(context.core, handle));
    check_context(context, query.value(sys::CL_EVENT_CONTEXT)?, "event")?;
    let event = retain!(core, clRetainEvent(handle));
    // A command never runs that stays in a queue without a flush. User events have no queue.
    let queue = ptr::with_exposed_provenance_mut::<c_void>(query.value(sys::CL_EVENT_COMMAND_QUEUE)?);
    if let Some(queue) = NonNull::new(queue) {
        // SAFETY: the driver has named the queue, which lives as long as its event.
        unsafe { call!(core, clFlush(queue.as_ptr())) }?;
    }
    Ok(OpenclEvent::signalled(context, OpenclSignal::foreign(context, event)))
}

/// # Safety
/// The handle is null or that of a live queue.
pub(super) unsafe fn order_after(
    context: &OpenclContext,
    queue: *mut c_void,
    events: &[&dyn wakegraph_hal::Event],
) -> Result<()> {
    if queue.is_null() {
        return Err(Error::new(ErrorKind::InvalidArgument, "a null handle is no queue"));
    }
    let query = query_queue(context.core, queue);
    check_context(context, query.value(sys::CL_QUEUE_CONTEXT)?, "queue")?;
    let mut signals: SmallVec<[Arc<OpenclSignal>; 4]> = SmallVec::new();
    for event in events {
        let last = OpenclEvent::awaited(*event, |other| other.shares_memory_with(context))?;
        signals.push(last.get().ok_or_else(idle_wait)?);
    }
    // A barrier for each: Intel's CPU runtime ends one as soon as one of its events fails.
    for end in signals.iter().filter_map(|signal| signal.end()) {
        // SAFETY: the caller vouched for the queue, and the signals keep the event alive.
        unsafe {
            call!(context.core, clEnqueueBarrierWithWaitList(queue, 1, &raw const end, ptr::null_mut()))
        }?;
    }
    Ok(())
}

fn check_context(context: &OpenclContext, address: usize, what: &str) -> Result<()> {
    if address == context.raw.raw().addr() {
        return Ok(());
    }
    Err(foreign(what).help("open the device in the application's context: `opencl::open_in_context`"))
}
