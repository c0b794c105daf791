//! Memory. **Fill in:** the driver's allocation calls, and its copies for `write` and `read`; `host_ptr` only
//! where the host can really see the memory.
#![expect(unsafe_code, reason = "hands out what the trait's contract says is the caller's to order")]

use std::ptr::NonNull;

use wakegraph_hal::support::memory::HeapBlock;
use wakegraph_hal::{DeviceId, Memory, MemoryDesc, MemoryKind, ResourceId, Result, UsmPointer};

/// Real host memory, so that a read finds zeros or what the host wrote.
#[derive(Debug)]
pub(crate) struct TemplateMemory {
    resource: ResourceId,
    device: DeviceId,
    kind: MemoryKind,
    block: HeapBlock,
}

impl TemplateMemory {
    pub(crate) fn allocate(device: DeviceId, desc: &MemoryDesc) -> Result<Self> {
        let block = HeapBlock::zeroed(desc.len)?;
        Ok(Self { resource: ResourceId::unique(), device, kind: desc.kind, block })
    }
}

impl Memory for TemplateMemory {
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
        (self.kind == MemoryKind::Host).then_some(self.block.start())
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.block.start().as_ptr().expose_provenance();
        // SAFETY: these bytes are valid, and the device never touches them.
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
