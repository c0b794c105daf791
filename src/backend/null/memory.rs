//! Memory. **Fill in:** the driver's allocation calls, and its copies for `write` and `read`.
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

/// Real host memory, so that a read finds zeros or what the host wrote.
#[derive(Debug)]
pub(super) struct NullMemory {
    resource: ResourceId,
    device: DeviceId,
    kind: MemoryKind,
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the block belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for NullMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for NullMemory {}

impl NullMemory {
    pub(super) fn allocate(device: DeviceId, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(refusal::empty_allocation());
        }
        let out_of_memory = || {
            Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated"))
                .help("free memory, or work in smaller pieces")
        };
        let layout = Layout::from_size_align(len, ALIGN).map_err(|_| out_of_memory())?;
        // SAFETY: the layout's size is not 0.
        let start = unsafe { alloc::alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or_else(out_of_memory)?;
        Ok(Self { resource: ResourceId::unique(), device, kind, start, layout })
    }

    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        refusal::check_range(offset, len, self.len())?;
        // SAFETY: the offset is inside the allocation or one past its end.
        Ok(unsafe { self.start.add(offset) })
    }
}

impl Drop for NullMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `allocate` with this layout, given back once.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Memory for NullMemory {
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
        self.layout.size()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        (self.kind == MemoryKind::Host).then_some(self.start)
    }

    fn usm(&self) -> Option<UsmPointer> {
        // SAFETY: these bytes are valid, and the null device never touches them.
        Some(unsafe { UsmPointer::new(self.start.as_ptr().expose_provenance(), self.len()) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches the
        // bytes.
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
