//! Memory: buffer objects, over fine-grained shared virtual memory where the device has it.
//!
//! Shared memory has an address that kernels, commands and the host use alike, and the buffer
//! object over it adds what exists for buffer objects only: rectangles, and commands that every
//! version can record. Without it, device memory is a buffer object and host memory is plain
//! memory, which only copies use.
#![expect(
    unsafe_code,
    reason = "allocates, and hands out what the trait's contract says is the caller's to order"
)]

use std::alloc::{self, Layout};
use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::device::Shared;
use super::sys::{self, Failure, MemObject, Owned, call, create};
use crate::hal::{Memory, MemoryDesc, MemoryKind, UsmPointer};
use crate::types::{DeviceId, Error, ErrorKind, ResourceId, Result};

/// What buffer objects and their parts must be aligned to on CPUs, and the largest alignment that
/// shared memory can be asked for: the size of the largest built-in type.
const ALIGN: usize = 128;

/// One allocation.
#[derive(Debug)]
pub(super) struct OpenclMemory {
    resource: ResourceId,
    kind: MemoryKind,
    len: usize,
    /// Released before the block behind it.
    buffer: Option<Arc<Owned<MemObject>>>,
    block: Option<Block>,
    shared: Arc<Shared>,
}

/// Memory that the host sees.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    kind: BlockKind,
    shared: Arc<Shared>,
}

#[derive(Clone, Copy, Debug)]
enum BlockKind {
    Shared,
    Plain(Layout),
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for Block {}
// SAFETY: as for `Send`.
unsafe impl Sync for Block {}

impl Drop for Block {
    fn drop(&mut self) {
        match self.kind {
            BlockKind::Shared => {
                if let Some(free) = self.shared.core.clSVMFree {
                    // SAFETY: allocated in this context by `shared`, freed once.
                    unsafe { free(self.shared.context.raw(), self.start.as_ptr().cast()) }
                }
            }
            // SAFETY: allocated by `plain` with this layout, given back once.
            BlockKind::Plain(layout) => unsafe { alloc::dealloc(self.start.as_ptr(), layout) },
        }
    }
}

impl Block {
    /// Zeroed shared memory.
    fn shared(shared: &Arc<Shared>, len: usize) -> Option<Self> {
        let allocate = shared.core.clSVMAlloc?;
        let flags = sys::CL_MEM_READ_WRITE | sys::CL_MEM_SVM_FINE_GRAIN_BUFFER;
        // SAFETY: the context is alive; the driver refuses sizes that it cannot give.
        let start = unsafe { allocate(shared.context.raw(), flags, len, ALIGN as sys::cl_uint) };
        let start = NonNull::new(start.cast::<u8>())?;
        // SAFETY: `len` bytes have just been allocated at `start`, and the host may use them.
        unsafe { start.write_bytes(0, len) };
        Some(Self { start, kind: BlockKind::Shared, shared: Arc::clone(shared) })
    }

    /// Zeroed memory of the host's own.
    fn plain(shared: &Arc<Shared>, len: usize) -> Option<Self> {
        let layout = Layout::from_size_align(len, ALIGN).ok()?;
        // SAFETY: an allocation of 0 bytes has been refused.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        Some(Self { start, kind: BlockKind::Plain(layout), shared: Arc::clone(shared) })
    }
}

impl OpenclMemory {
    pub(super) fn allocate(shared: &Arc<Shared>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(Error::new(ErrorKind::InvalidSize, "an allocation of 0 bytes"));
        }
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated"))
                .help("free memory, or work in smaller pieces")
        };
        if len > shared.capabilities.max_allocation {
            let most = shared.capabilities.max_allocation;
            return Err(
                out_of_memory().caused_by(format!("the device allocates at most {most} bytes at once"))
            );
        }
        let block = match (shared.features.shared_memory, kind) {
            (true, _) => Some(Block::shared(shared, len).ok_or_else(out_of_memory)?),
            (false, MemoryKind::Host) => Some(Block::plain(shared, len).ok_or_else(out_of_memory)?),
            (false, MemoryKind::Device) => None,
        };
        let buffer = match (&block, shared.features.shared_memory) {
            (Some(block), true) => {
                Some(create_buffer(shared, sys::CL_MEM_USE_HOST_PTR, len, block.start.as_ptr()))
            }
            (Some(_), false) => None,
            (None, _) => Some(create_zeroed(shared, len)),
        };
        let buffer = buffer.transpose().map_err(|failure| match failure.code {
            sys::CL_OUT_OF_RESOURCES | sys::CL_INVALID_BUFFER_SIZE => {
                out_of_memory().caused_by(Error::from(failure))
            }
            _ => failure.into(),
        })?;
        Ok(Self {
            resource: ResourceId::unique(),
            kind,
            len,
            buffer: buffer.map(Arc::new),
            block,
            shared: Arc::clone(shared),
        })
    }

    /// Whether the device is one of its context.
    pub(super) fn is_in(&self, device: &Shared) -> bool {
        Arc::ptr_eq(&self.shared.context, &device.context)
    }

    /// Whether a kernel can be given this range as it is; else it has to be given a copy.
    pub(super) fn is_argument(&self, device: &Shared, offset: usize) -> bool {
        let part = self.buffer_in(device).is_some() && offset.is_multiple_of(device.features.part_alignment);
        self.shared_address().is_some() || part
    }

    /// The buffer object, for devices of its context.
    pub(super) fn buffer_in(&self, device: &Shared) -> Option<&Arc<Owned<MemObject>>> {
        self.buffer.as_ref().filter(|_| self.is_in(device))
    }

    /// The address that kernels can use, where it is shared memory.
    pub(super) fn shared_address(&self) -> Option<NonNull<u8>> {
        self.block.as_ref().filter(|block| matches!(block.kind, BlockKind::Shared)).map(|block| block.start)
    }

    fn check_range(&self, offset: usize, len: usize) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let why = format!("{len} bytes at {offset} are not a range of {} bytes", self.len);
        Err(Error::new(ErrorKind::InvalidSize, why))
    }
}

/// A buffer object of `len` bytes; `bytes` is what the flags say.
pub(super) fn create_buffer(
    shared: &Shared,
    flags: sys::cl_mem_flags,
    len: usize,
    bytes: *mut u8,
) -> Result<Owned<MemObject>, Failure> {
    let (context, flags) = (shared.context.raw(), flags | sys::CL_MEM_READ_WRITE);
    // SAFETY: the context is alive; callers pass as many bytes as they say, for as long as the
    // flags need them.
    let buffer = unsafe { create!(shared.core, clCreateBuffer(context, flags, len, bytes.cast())) }?;
    // SAFETY: the buffer has just been created, for us.
    Ok(unsafe { Owned::new(shared.core, buffer) })
}

fn create_zeroed(shared: &Shared, len: usize) -> Result<Owned<MemObject>, Failure> {
    let buffer = create_buffer(shared, 0, len, ptr::null_mut())?;
    let (queue, zero) = (shared.service()?, 0u8);
    let (to, from) = (buffer.raw(), (&raw const zero).cast());
    // SAFETY: the buffer has `len` bytes; the driver copies the pattern during the call.
    unsafe {
        call!(
            shared.core,
            clEnqueueFillBuffer(queue.raw(), to, from, 1, 0, len, 0, ptr::null(), ptr::null_mut())
        )
    }?;
    queue.finish()?;
    Ok(buffer)
}

impl Memory for OpenclMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.shared.info.id
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.block.as_ref().map(|block| block.start)
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.shared_address()?.as_ptr().expose_provenance();
        // SAFETY: these bytes are valid on the host and on the context's devices; that the memory
        // outlives the pointer's use is the business of whoever enqueues it
        // (`CommandBuffer::enqueue`).
        Some(unsafe { UsmPointer::new(address, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check_range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.block, &self.buffer) {
            (Some(block), _) => {
                // SAFETY: the offset is inside the allocation.
                let to = unsafe { block.start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nobody else touches the bytes.
                unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
                Ok(())
            }
            (None, Some(buffer)) => {
                let core = self.shared.core;
                let service = self.shared.service().map_err(|failure| self.shared.error(failure))?;
                let (queue, to, len) = (service.raw(), buffer.raw(), bytes.len());
                let (from, wait) = (bytes.as_ptr().cast(), sys::CL_FALSE);
                // SAFETY: the range was checked; the queue is finished before the bytes may go.
                unsafe {
                    call!(
                        core,
                        clEnqueueWriteBuffer(
                            queue,
                            to,
                            wait,
                            offset,
                            len,
                            from,
                            0,
                            ptr::null(),
                            ptr::null_mut()
                        )
                    )
                }
                // A blocking write of a few bytes is not over when it returns, on Intel's CPU
                // runtime (2026.2).
                .and_then(|()| service.finish())
                .map_err(|failure| self.shared.error(failure))
            }
            (None, None) => Err(no_memory()),
        }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        match (&self.block, &self.buffer) {
            (Some(block), _) => {
                // SAFETY: the offset is inside the allocation.
                let from = unsafe { block.start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nobody writes the bytes.
                unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
                Ok(())
            }
            (None, Some(buffer)) => {
                let core = self.shared.core;
                let queue = self.shared.service().map_err(|failure| self.shared.error(failure))?;
                let (queue, from, len) = (queue.raw(), buffer.raw(), bytes.len());
                let (to, wait) = (bytes.as_mut_ptr().cast(), sys::CL_TRUE);
                // SAFETY: the range was checked; the call is over when the bytes have been written.
                unsafe {
                    call!(
                        core,
                        clEnqueueReadBuffer(
                            queue,
                            from,
                            wait,
                            offset,
                            len,
                            to,
                            0,
                            ptr::null(),
                            ptr::null_mut()
                        )
                    )
                }
                .map_err(|failure| self.shared.error(failure))
            }
            (None, None) => Err(no_memory()),
        }
    }
}

/// Every allocation has one of the two.
fn no_memory() -> Error {
    Error::new(ErrorKind::Bug, "an allocation without memory")
}
