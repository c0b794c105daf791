//! Memory: zeroed heap memory (the system gives it so), aligned to 64 bytes, visible to the host whatever
//! its kind.
#![expect(unsafe_code, reason = "hands out what the trait's contract says is the caller's to order")]

use std::ptr::NonNull;

use wakegraph_hal::support::memory::HeapBlock;
use wakegraph_hal::{DeviceId, Memory, MemoryDesc, MemoryKind, ResourceId, Result, UsmPointer};

/// One allocation.
#[derive(Debug)]
pub(super) struct HostMemory {
    resource: ResourceId,
    device: DeviceId,
    kind: MemoryKind,
    block: HeapBlock,
}

impl HostMemory {
    /// The largest length that an allocation can have at all.
    pub(super) const MAX_LEN: usize = HeapBlock::MAX_LEN;

    pub(super) fn allocate(device: DeviceId, desc: &MemoryDesc) -> Result<Self> {
        let block = HeapBlock::zeroed(desc.len)?;
        Ok(Self { resource: ResourceId::unique(), device, kind: desc.kind, block })
    }
}

impl Memory for HostMemory {
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
        self.block.len()
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        Some(self.block.start())
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.block.start().as_ptr().expose_provenance();
        // SAFETY: these bytes are valid on the host and all host devices; the caller of
        // `CommandBuffer::enqueue` keeps the memory for as long as the pointer is used.
        Some(unsafe { UsmPointer::new(address, self.len()) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.block.write(offset, bytes) }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { self.block.read(offset, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_visible_to_the_host_whatever_its_kind() {
        for kind in [MemoryKind::Device, MemoryKind::Host] {
            let memory = HostMemory::allocate(DeviceId::from_raw(0), &MemoryDesc::new(7, kind)).unwrap();
            assert_eq!((memory.kind(), memory.len()), (kind, 7));
            let start = memory.host_ptr().unwrap().as_ptr();
            assert_eq!(memory.usm().unwrap().address(), start as usize);
        }
    }
}
