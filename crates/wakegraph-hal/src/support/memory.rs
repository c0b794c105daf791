//! Memory of a driver, which the host uses at its address or the driver copies; and zeroed memory on the
//! heap, for backends whose memory is the host's.
#![expect(unsafe_code, reason = "allocates, and accesses memory that the caller orders")]

use std::alloc::{self, Layout};
use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::health::DeviceContext;
use super::refusal::{check_range, empty_allocation, foreign};
use crate::{
    DeviceId, Error, ErrorKind, Memory, MemoryDesc, MemoryKind, MemoryView, ResourceId, Result, UsmPointer,
};

/// Memory of the driver, which is freed when dropped.
pub trait DriverAllocation: Debug + Send + Sync + Sized + 'static {
    /// The context that its device shares.
    type Context: DeviceContext;

    /// Zeroed memory of a length that is not 0.
    fn allocate(context: &Arc<Self::Context>, desc: &MemoryDesc) -> Result<Self>;

    /// The context that it was allocated in.
    fn context(&self) -> &Arc<Self::Context>;

    /// Where the host finds the bytes, if it can access them.
    fn host_start(&self) -> Option<NonNull<u8>>;

    /// The address in the memory of the device, if kernels can use one.
    fn usm_address(&self) -> Option<usize>;

    /// The driver's object.
    fn native_handle(&self) -> Option<NonNull<c_void>> {
        None
    }

    /// Has the driver write bytes that the host cannot access, and returns when that is done. The range has
    /// been checked.
    ///
    /// # Safety
    /// As for [`Memory::write`].
    unsafe fn write_by_driver(&self, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Has the driver read such bytes, likewise.
    ///
    /// # Safety
    /// As for [`Memory::read`].
    unsafe fn read_by_driver(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;
}

/// One allocation.
#[derive(Debug)]
pub struct DriverMemory<A> {
    resource: ResourceId,
    kind: MemoryKind,
    len: usize,
    allocation: A,
}

impl<A> Deref for DriverMemory<A> {
    type Target = A;

    fn deref(&self) -> &A {
        &self.allocation
    }
}

impl<A: DriverAllocation> DriverMemory<A> {
    /// The memory that an allocation is.
    pub fn new(desc: &MemoryDesc, allocation: A) -> Self {
        Self { resource: ResourceId::unique(), kind: desc.kind, len: desc.len, allocation }
    }

    /// Allocates memory.
    pub fn allocate(context: &Arc<A::Context>, desc: &MemoryDesc) -> Result<Self> {
        if desc.len == 0 {
            return Err(empty_allocation());
        }
        Ok(Self::new(desc, A::allocate(context, desc)?))
    }

    /// The memory behind a view, if this backend made it.
    pub fn of(view: &MemoryView) -> Result<&Self> {
        view.memory().as_any().downcast_ref().ok_or_else(|| foreign("memory"))
    }
}

impl<A: DriverAllocation> Memory for DriverMemory<A> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.allocation.context().id()
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.allocation.host_start()
    }

    fn native_handle(&self) -> Option<NonNull<c_void>> {
        self.allocation.native_handle()
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.allocation.usm_address()?;
        // SAFETY: these bytes are valid on the device, and where the host can access them there, too. Callers
        // that enqueue the pointer keep the memory alive (`CommandBuffer::enqueue`).
        Some(unsafe { UsmPointer::new(address, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len)?;
        match self.allocation.host_start() {
            _ if bytes.is_empty() => Ok(()),
            Some(start) => {
                // SAFETY: the offset is inside the allocation.
                let to = unsafe { start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nothing else accesses the bytes.
                unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
                Ok(())
            }
            // SAFETY: passed on to the caller.
            None => unsafe { self.allocation.write_by_driver(offset, bytes) },
        }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        check_range(offset, bytes.len(), self.len)?;
        match self.allocation.host_start() {
            _ if bytes.is_empty() => Ok(()),
            Some(start) => {
                // SAFETY: the offset is inside the allocation.
                let from = unsafe { start.add(offset) };
                // SAFETY: the range was checked; the caller vouched that nothing writes the bytes.
                unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
                Ok(())
            }
            // SAFETY: passed on to the caller.
            None => unsafe { self.allocation.read_by_driver(offset, bytes) },
        }
    }
}

/// Alignment of the first byte.
const ALIGN: usize = 64;

/// The alignment to ask the allocator for: one that it gives to every block, so that it can take
/// untouched, already zeroed pages from the system instead of clearing memory page by page.
const ALLOCATOR_ALIGN: usize = 16;

/// A zeroed block.
#[derive(Debug)]
pub struct HeapBlock {
    /// First byte, aligned.
    start: NonNull<u8>,
    len: usize,
    /// The block to give back to the allocator.
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for HeapBlock {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapBlock {}

impl HeapBlock {
    /// The largest length that a block can have at all.
    pub const MAX_LEN: usize = isize::MAX as usize - 2 * ALIGN;

    /// # Errors
    /// [`OutOfMemory`](ErrorKind::OutOfMemory); [`InvalidSize`](ErrorKind::InvalidSize) for no bytes.
    pub fn zeroed(len: usize) -> Result<Self> {
        if len == 0 {
            return Err(empty_allocation());
        }
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated"))
                .help("free memory, or work in smaller pieces")
        };
        let padded = len.checked_add(ALIGN - ALLOCATOR_ALIGN).ok_or_else(out_of_memory)?;
        let layout = Layout::from_size_align(padded, ALLOCATOR_ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not 0.
        let block = unsafe { alloc::alloc_zeroed(layout) };
        let block = NonNull::new(block).ok_or_else(out_of_memory)?;
        let gap = block.as_ptr().align_offset(ALIGN);
        // SAFETY: the block is aligned to 16 bytes, so the gap is at most 48, which is what the
        // padding added.
        let start = unsafe { block.add(gap) };
        Ok(Self { start, len, block, layout })
    }

    /// The first byte, aligned to 64 bytes.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a block of no bytes is a block like any other")]
    pub fn len(&self) -> usize {
        self.len
    }

    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        check_range(offset, len, self.len)?;
        // SAFETY: the offset is inside the block or one past its end.
        Ok(unsafe { self.start.add(offset) })
    }

    /// Writes bytes at an offset.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) beyond the end.
    ///
    /// # Safety
    /// Nothing else accesses these bytes of the block.
    pub unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches the bytes.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    /// Reads bytes at an offset.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) beyond the end.
    ///
    /// # Safety
    /// Nothing writes these bytes of the block.
    pub unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the bytes.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }
}

impl Drop for HeapBlock {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout, given back once.
        unsafe { alloc::dealloc(self.block.as_ptr(), self.layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_zeroed_and_aligned() {
        for len in [1, 7, 64, 4097, 1 << 20] {
            let block = HeapBlock::zeroed(len).unwrap();
            assert_eq!((block.start().as_ptr() as usize % ALIGN, block.len()), (0, len));
            let mut bytes = vec![1; len];
            // SAFETY: nothing else uses the memory.
            unsafe { block.read(0, &mut bytes) }.unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert_eq!(HeapBlock::zeroed(0).unwrap_err().kind(), ErrorKind::InvalidSize);
        for len in [usize::MAX, isize::MAX as usize, HeapBlock::MAX_LEN] {
            assert_eq!(HeapBlock::zeroed(len).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn reads_and_writes_stay_inside() {
        let block = HeapBlock::zeroed(10).unwrap();
        let mut bytes = [0; 3];
        // SAFETY: nothing else uses the memory.
        unsafe { block.write(7, &[1, 2, 3]) }.unwrap();
        // SAFETY: as above.
        unsafe { block.read(7, &mut bytes) }.unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        for offset in [8, 11, usize::MAX] {
            // SAFETY: as above.
            let error = unsafe { block.read(offset, &mut bytes) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
        }
    }
}
