//! Memory: zeroed heap memory, aligned to 64 bytes, visible to the host whatever its kind.
#![expect(
    unsafe_code,
    reason = "allocates, and hands out what the trait's contract says is the caller's to order"
)]

use std::alloc::{self, Layout};
use std::any::Any;
use std::ptr::NonNull;

use crate::hal::support::refusal;
use crate::hal::{Memory, MemoryDesc, MemoryKind, UsmPointer};
use crate::types::{DeviceId, Error, ErrorKind, ResourceId, Result};

const ALIGN: usize = 64;

/// The alignment to ask the allocator for: one that it gives to every block, so that it can take
/// untouched, already zeroed pages from the system instead of clearing memory page by page.
const ALLOCATOR_ALIGN: usize = 16;

/// One allocation.
#[derive(Debug)]
pub(super) struct HostMemory {
    resource: ResourceId,
    device: DeviceId,
    kind: MemoryKind,
    len: usize,
    /// First byte, aligned.
    start: NonNull<u8>,
    /// What to give back to the allocator.
    block: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for HostMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// The largest length that an allocation can have at all.
    pub(super) const MAX_LEN: usize = isize::MAX as usize - 2 * ALIGN;

    pub(super) fn allocate(device: DeviceId, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(refusal::empty_allocation());
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
        Ok(Self { resource: ResourceId::unique(), device, kind, len, start, block, layout })
    }

    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        refusal::check_range(offset, len, self.len)?;
        // SAFETY: the offset is inside the allocation or one past its end.
        Ok(unsafe { self.start.add(offset) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `allocate` with this layout, given back once.
        unsafe { alloc::dealloc(self.block.as_ptr(), self.layout) }
    }
}

impl Memory for HostMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        Some(self.start)
    }

    fn usm(&self) -> Option<UsmPointer> {
        // SAFETY: these bytes are valid on the host and all host devices; the caller of
        // `CommandBuffer::enqueue` keeps the memory for as long as the pointer is used.
        Some(unsafe { UsmPointer::new(self.start.as_ptr().expose_provenance(), self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches the bytes.
        unsafe { to.copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
        Ok(())
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the bytes.
        unsafe { from.copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(len: usize, kind: MemoryKind) -> Result<HostMemory> {
        HostMemory::allocate(DeviceId::from_raw(0), &MemoryDesc { len, kind })
    }

    #[test]
    fn is_zeroed_aligned_and_visible() {
        for len in [1, 7, 64, 4097, 1 << 20] {
            for kind in [MemoryKind::Device, MemoryKind::Host] {
                let memory = allocate(len, kind).unwrap();
                assert_eq!(memory.host_ptr().unwrap().as_ptr() as usize % ALIGN, 0);
                assert_eq!((memory.kind(), memory.len()), (kind, len));
                let mut bytes = vec![1; len];
                // SAFETY: nothing else uses the memory.
                unsafe { memory.read(0, &mut bytes) }.unwrap();
                assert!(bytes.iter().all(|&byte| byte == 0));
            }
        }
    }

    #[test]
    fn absurd_sizes_are_errors() {
        assert_eq!(allocate(0, MemoryKind::Host).unwrap_err().kind(), ErrorKind::InvalidSize);
        for len in [usize::MAX, isize::MAX as usize, HostMemory::MAX_LEN] {
            assert_eq!(allocate(len, MemoryKind::Device).unwrap_err().kind(), ErrorKind::OutOfMemory);
        }
    }

    #[test]
    fn reads_and_writes_stay_inside() {
        let memory = allocate(10, MemoryKind::Device).unwrap();
        let mut bytes = [0; 3];
        // SAFETY: nothing else uses the memory.
        unsafe { memory.write(7, &[1, 2, 3]) }.unwrap();
        // SAFETY: as above.
        unsafe { memory.read(7, &mut bytes) }.unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        for offset in [8, 11, usize::MAX] {
            // SAFETY: as above.
            let error = unsafe { memory.read(offset, &mut bytes) }.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidSize);
        }
    }
}
