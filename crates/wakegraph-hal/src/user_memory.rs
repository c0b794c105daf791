//! Memory of the application's that a device is to use as host memory.
#![expect(unsafe_code, reason = "wraps memory that the caller vouches for")]

use std::any::Any;
use std::fmt::{self, Debug};
use std::ptr::NonNull;

use super::support::refusal::check_range;
use super::{Memory, MemoryKind, UsmPointer};
use crate::{DeviceId, ResourceId, Result};

/// Memory of the application's, and what owns it, for [`Device::register`](super::Device::register).
pub struct UserMemory {
    start: NonNull<u8>,
    len: usize,
    is_read_only: bool,
    /// Dropped with this object.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the bytes may be used on any thread, as `new` demands, and the owner goes between threads.
unsafe impl Send for UserMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for UserMemory {}

impl UserMemory {
    /// The bytes `start .. start + len`, which stay valid until `owner` is dropped.
    ///
    /// # Safety
    /// Until then the bytes are valid on any thread, for reads and, unless they are read-only, for writes.
    pub unsafe fn new(
        start: NonNull<u8>,
        len: usize,
        is_read_only: bool,
        owner: Box<dyn Send + Sync>,
    ) -> Self {
        Self { start, len, is_read_only, _owner: owner }
    }

    /// The first byte, of any alignment.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the bytes must not be written.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }
}

impl Debug for UserMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserMemory")
            .field("start", &self.start)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Memory of the application's as plain host memory: copies use it by its address on the host.
#[derive(Debug)]
pub struct PlainMemory {
    resource: ResourceId,
    device: DeviceId,
    memory: UserMemory,
    /// Whether the device uses the host's addresses.
    is_shared: bool,
}

impl PlainMemory {
    /// Memory of the application's, for the device.
    pub fn new(device: DeviceId, memory: UserMemory, is_shared: bool) -> Self {
        Self { resource: ResourceId::unique(), device, memory, is_shared }
    }

    fn range(&self, offset: usize, len: usize) -> Result<NonNull<u8>> {
        check_range(offset, len, self.len())?;
        // SAFETY: the offset is inside the memory or one past its end.
        Ok(unsafe { self.memory.start.add(offset) })
    }
}

impl Memory for PlainMemory {
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
        MemoryKind::Host
    }

    fn len(&self) -> usize {
        self.memory.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        Some(self.memory.start)
    }

    fn usm(&self) -> Option<UsmPointer> {
        let address = self.memory.start.as_ptr().expose_provenance();
        // SAFETY: the bytes are valid on the host, and on a device that uses the host's addresses.
        self.is_shared.then(|| unsafe { UsmPointer::new(address, self.memory.len) })
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
