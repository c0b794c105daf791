//! Memory: buffer objects, over fine-grained shared virtual memory where the device has it.
//!
//! Shared memory has one address for kernels, commands and the host. The buffer object over it adds
//! what exists for buffer objects only: rectangular copies, and commands that every version can
//! record. On a device without shared memory, device memory is a buffer object, and host memory is a
//! mapped one that the driver has allocated on the host, of which copies use the address only: from
//! plain memory, NVIDIA's driver takes the bytes of a write when it is enqueued, and not behind the
//! commands that the write waits for.
#![expect(unsafe_code, reason = "allocates, and accesses memory that the caller orders")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use wakegraph_hal::support::errors::foreign;
use wakegraph_hal::support::memory::{DriverAllocation, DriverMemory};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, Result};

use super::context::{BufferPlace, OpenclContext};
use super::sys::{self, Core, DriverResult, MemObject, OpenclFailure, Owned, call, create, get};

/// Alignment of host memory: the size of the largest built-in type. CPU drivers need it for buffer
/// objects, and it is the largest that shared memory can have.
const ALIGN: usize = 128;

/// A buffer object, kept alive by the operations that use it.
pub(super) type Buffer = Arc<Owned<MemObject>>;

pub(super) type OpenclMemory = DriverMemory<OpenclAllocation>;

/// Shared virtual memory and a buffer object over it, or one of the two.
#[derive(Debug)]
pub(super) struct OpenclAllocation {
    /// Released before the shared memory. Without it, the block is a mapped buffer object on the host.
    buffer: Option<Buffer>,
    /// If that is a part of another one: the whole, and the offset in it.
    whole: Option<(Owned<MemObject>, usize)>,
    /// Without it, the buffer object is the device's own.
    block: Option<HostBlock>,
    context: Arc<OpenclContext>,
}

/// Memory that the host can access.
#[derive(Debug)]
struct HostBlock {
    start: NonNull<u8>,
    /// The buffer object that is mapped to this address; `None` for shared virtual memory.
    mapped: Option<Owned<MemObject>>,
    context: Arc<OpenclContext>,
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for HostBlock {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostBlock {}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if let Some(buffer) = &self.mapped {
            if let Err(failure) = self.unmap(buffer) {
                let error = self.context.error(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "host memory was not unmapped");
            }
        } else if let Some(free) = self.context.core.clSVMFree {
            // SAFETY: allocated in this context by `shared`, freed once.
            unsafe { free(self.context.raw.raw(), self.start.as_ptr().cast()) }
        }
    }
}

impl HostBlock {
    /// Shared memory, zeroed if that is asked for.
    fn shared(context: &Arc<OpenclContext>, len: usize, zeroed: bool) -> Option<Self> {
        let allocate = context.core.clSVMAlloc?;
        let flags = sys::CL_MEM_READ_WRITE | sys::CL_MEM_SVM_FINE_GRAIN_BUFFER;
        // SAFETY: the context is alive; the driver refuses sizes that it cannot allocate.
        let start = unsafe { allocate(context.raw.raw(), flags, len, ALIGN as sys::cl_uint) };
        let start = NonNull::new(start.cast::<u8>())?;
        if zeroed {
            // SAFETY: `len` bytes have just been allocated at `start`, and the host may use them.
            unsafe { start.write_bytes(0, len) };
        }
        Some(Self { start, mapped: None, context: Arc::clone(context) })
    }

    /// Memory of a buffer object, zeroed if that is asked for. It stays mapped for as long as the block
    /// lives.
    fn mapped(context: &Arc<OpenclContext>, len: usize, zeroed: bool) -> DriverResult<Self> {
        let buffer = context.create_buffer(len, BufferPlace::Host)?;
        let (service, raw) = (context.service()?, buffer.raw());
        let (queue, flags, none) = (service.raw(), sys::CL_MAP_READ | sys::CL_MAP_WRITE, ptr::null());
        let (wait, event) = (sys::CL_TRUE, ptr::null_mut());
        // SAFETY: the queue and the buffer object are alive, and the buffer object has `len` bytes.
        let start = unsafe {
            get!(context.core, clEnqueueMapBuffer(queue, raw, wait, flags, 0, len, 0, none, event))
        }?;
        let start = start.cast::<u8>();
        if zeroed {
            // SAFETY: `len` bytes have just been mapped at `start` for writing.
            unsafe { start.write_bytes(0, len) };
        }
        Ok(Self { start, mapped: Some(buffer), context: Arc::clone(context) })
    }

    fn unmap(&self, buffer: &Owned<MemObject>) -> DriverResult {
        let service = self.context.service()?;
        let (queue, start) = (service.raw(), self.start.as_ptr().cast());
        let (none, event) = (ptr::null(), ptr::null_mut());
        // SAFETY: the buffer object is mapped at this address, and nothing uses the block any more. The
        // driver keeps the buffer object until the command has ended.
        unsafe {
            call!(self.context.core, clEnqueueUnmapMemObject(queue, buffer.raw(), start, 0, none, event))
        }?;
        service.flush()
    }
}

impl OpenclAllocation {
    /// A buffer object that the application has made. If it is a part of another one, `whole` is
    /// that one and the offset in it.
    pub(super) fn of_buffer(
        context: &Arc<OpenclContext>,
        buffer: Owned<MemObject>,
        whole: Option<(Owned<MemObject>, usize)>,
    ) -> Self {
        Self { buffer: Some(Arc::new(buffer)), whole, block: None, context: Arc::clone(context) }
    }

    /// Whether the device can access it: it has the same driver's context.
    pub(super) fn is_in(&self, device: &OpenclContext) -> bool {
        self.context.shares_memory_with(device)
    }

    /// Whether a kernel can be given the part from this offset on, or only a copy of it.
    pub(super) fn is_argument(&self, device: &OpenclContext, offset: usize) -> bool {
        let features = &device.features;
        let origin = self.whole.as_ref().map_or(0, |(_, origin)| *origin);
        let is_part = features.sub_buffers && (origin + offset).is_multiple_of(features.part_alignment);
        self.usm_address().is_some() || self.buffer_in(device).is_some() && (offset == 0 || is_part)
    }

    /// The buffer object, for devices of its context.
    pub(super) fn buffer_in(&self, device: &OpenclContext) -> Option<&Buffer> {
        self.buffer.as_ref().filter(|_| self.is_in(device))
    }

    /// A part of the buffer object, as a buffer object of its own, for devices of its context. A
    /// part of a part is made of the whole, as OpenCL makes none of a part.
    pub(super) fn part(
        &self,
        device: &OpenclContext,
        offset: usize,
        size: usize,
    ) -> Result<Owned<MemObject>> {
        let (from, origin) = match &self.whole {
            Some((whole, origin)) => (whole, *origin),
            None => (&**self.buffer_in(device).ok_or_else(|| foreign("memory"))?, 0),
        };
        let region = sys::cl_buffer_region { origin: origin + offset, size };
        let (from, flags, kind) = (from.raw(), sys::CL_MEM_READ_WRITE, sys::CL_BUFFER_CREATE_TYPE_REGION);
        let region = (&raw const region).cast();
        // SAFETY: the buffer is alive, and the kind says that there is a region behind the pointer.
        Ok(unsafe { create!(device.core, clCreateSubBuffer(from, flags, kind, region)) }?)
    }

    /// Has `transfer` enqueue on the device's own queue, and waits for it.
    fn transfer(
        &self,
        transfer: impl FnOnce(&Core, sys::cl_command_queue, sys::cl_mem) -> DriverResult,
    ) -> Result<()> {
        let buffer = self.buffer.as_ref().ok_or_else(|| foreign("memory"))?;
        // Not by a blocking transfer: on Intel's CPU runtime (2026.2), a blocking write of a few bytes
        // has not ended when it returns.
        let transferred = self.context.service().and_then(|queue| {
            transfer(self.context.core, queue.raw(), buffer.raw())?;
            queue.finish()
        });
        transferred.map_err(|failure| self.context.error(failure))
    }
}

/// The fill also makes the driver allocate the memory, which it otherwise does at the first use. So it is
/// there whether zeroes are asked for or not.
fn create_zeroed(context: &OpenclContext, len: usize) -> DriverResult<Owned<MemObject>> {
    let (buffer, service) = (context.create_buffer(len, BufferPlace::Device)?, context.service()?);
    service.clear(&buffer, len, &[])?;
    service.finish()?;
    Ok(buffer)
}

impl DriverAllocation for OpenclAllocation {
    type Context = OpenclContext;

    fn allocate(context: &Arc<OpenclContext>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind, zeroed } = *desc;
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated"))
                .help("free memory, or work in smaller pieces")
        };
        let most = context.capabilities.max_allocation;
        if len > most {
            let why = format!("the device allocates at most {most} bytes at once");
            return Err(out_of_memory().caused_by(why));
        }
        let refused = |failure: OpenclFailure| match failure.code {
            sys::CL_OUT_OF_RESOURCES | sys::CL_INVALID_BUFFER_SIZE => {
                out_of_memory().caused_by(Error::from(failure))
            }
            _ => failure.into(),
        };
        let (block, buffer) = match (context.features.shared_memory, kind) {
            (true, _) => {
                let block = HostBlock::shared(context, len, zeroed).ok_or_else(out_of_memory)?;
                let buffer = context.create_buffer(len, BufferPlace::Block(block.start));
                (Some(block), Some(buffer))
            }
            (false, MemoryKind::Host) => {
                (Some(HostBlock::mapped(context, len, zeroed).map_err(refused)?), None)
            }
            (false, MemoryKind::Device) => (None, Some(create_zeroed(context, len))),
        };
        let buffer = buffer.transpose().map_err(refused)?.map(Arc::new);
        Ok(Self { buffer, whole: None, block, context: Arc::clone(context) })
    }

    fn context(&self) -> &Arc<OpenclContext> {
        &self.context
    }

    fn host_start(&self) -> Option<NonNull<u8>> {
        self.block.as_ref().map(|block| block.start)
    }

    /// Kernels can use shared memory only.
    fn usm_address(&self) -> Option<usize> {
        let start = self.buffer.as_ref().and(self.host_start());
        start.map(|start| start.as_ptr().expose_provenance())
    }

    fn native_handle(&self) -> Option<NonNull<c_void>> {
        self.buffer.as_ref().and_then(|buffer| NonNull::new(buffer.raw()))
    }

    unsafe fn write_by_driver(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.transfer(|core, queue, to| {
            let (from, len) = (bytes.as_ptr().cast(), bytes.len());
            let (wait, none, event) = (sys::CL_FALSE, ptr::null(), ptr::null_mut());
            // SAFETY: the range was checked; the queue is finished before the bytes may go.
            unsafe { call!(core, clEnqueueWriteBuffer(queue, to, wait, offset, len, from, 0, none, event)) }
        })
    }

    unsafe fn read_by_driver(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.transfer(|core, queue, from| {
            let (to, len) = (bytes.as_mut_ptr().cast(), bytes.len());
            let (wait, none, event) = (sys::CL_FALSE, ptr::null(), ptr::null_mut());
            // SAFETY: the range was checked; the queue is finished before the bytes are used.
            unsafe { call!(core, clEnqueueReadBuffer(queue, from, wait, offset, len, to, 0, none, event)) }
        })
    }
}
