//! Memory objects, views of them, pointers of unified shared memory, and memory of the application that a
//! device is to use as host memory.
#![expect(unsafe_code, reason = "raw reads and writes are the caller's to order")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt::{self, Debug};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::support::errors::check_range;
use crate::{DeviceId, Error, ErrorKind, ResourceId, Result};

/// The place of memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryKind {
    /// Memory on the device.
    Device,
    /// Pinned memory on the host, visible to the host and to the device.
    Host,
}

/// Options for allocating memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryDesc {
    /// Length in bytes, at least 1.
    pub len: usize,
    /// The place of the memory.
    pub kind: MemoryKind,
    /// Whether all bytes are 0. Otherwise they hold anything, and the caller reads none that it has not
    /// written.
    pub zeroed: bool,
}

impl MemoryDesc {
    /// Describes `len` zeroed bytes of this kind.
    pub const fn new(len: usize, kind: MemoryKind) -> Self {
        Self { len, kind, zeroed: true }
    }
}

setters! { const MemoryDesc { zeroed: bool } }

/// One allocation.
pub trait Memory: Any + Debug + Send + Sync {
    /// The allocation's identity, taken from [`ResourceId::unique`] when it was made.
    fn resource(&self) -> ResourceId;

    /// The device that allocated it.
    fn device(&self) -> DeviceId;

    /// The place of the memory.
    fn kind(&self) -> MemoryKind;

    /// Length in bytes.
    fn len(&self) -> usize;

    /// Always false: allocations of 0 bytes are refused.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address at which the host sees the memory; always there for [`MemoryKind::Host`].
    ///
    /// The alignment is at least 64 bytes, but for [memory of the application's](crate::Device::register).
    /// Using the pointer is the caller's responsibility: no
    /// command in flight may touch the same bytes in a conflicting way.
    fn host_ptr(&self) -> Option<NonNull<u8>>;

    /// The memory as a pointer of unified shared memory, if the device has such pointers. Whoever uses it
    /// other than in commands [waits](Self::wait_until_ready) first.
    fn usm(&self) -> Option<UsmPointer>;

    /// The driver's handle of the memory, if it has one: a `cl_mem` for OpenCL.
    ///
    /// The default says that there is none, which suits drivers whose memory has addresses only.
    fn native_handle(&self) -> Option<NonNull<c_void>> {
        None
    }

    /// Blocks until the memory is there and cleared. Other libraries call this before they use the memory;
    /// queues of this device, [`read`](Self::read) and [`write`](Self::write) need not.
    ///
    /// The default does nothing, which suits devices whose memory is ready when it has been allocated.
    ///
    /// # Errors
    /// The driver's.
    fn wait_until_ready(&self) -> Result<()> {
        Ok(())
    }

    /// Copies `bytes` to `offset`, blocking the caller until it is done.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when it does not fit; the driver's.
    ///
    /// # Safety
    /// No command in flight and no reference touches these bytes of the memory meanwhile.
    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()>;

    /// Copies from `offset` to `bytes`, blocking the caller until it is done.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when it does not fit; the driver's.
    ///
    /// # Safety
    /// No command in flight and no reference writes these bytes of the memory meanwhile.
    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;

    /// Returns the backend's own object, if this one wraps it. That one wraps no other.
    fn wrapped(&self) -> Option<&dyn Memory> {
        None
    }
}

impl dyn Memory {
    /// Returns the memory, or the [one that it wraps](Memory::wrapped), as the type that a backend has for
    /// it; `None` for memory of others.
    pub fn downcast_ref<T: Any>(&self) -> Option<&T> {
        let memory: &dyn Any = self.wrapped().unwrap_or(self);
        memory.downcast_ref()
    }
}

/// A range of bytes of a memory object, which it keeps alive.
///
/// Only native commands and stream tasks take an empty view. The caller replaces any other command that would
/// do nothing by an [empty one](crate::Command::Empty), and an empty argument of a kernel by a null pointer.
#[derive(Clone)]
pub struct MemoryView {
    memory: Arc<dyn Memory>,
    offset: usize,
    len: usize,
}

impl MemoryView {
    /// The range `offset .. offset + len` of `memory`.
    ///
    /// # Errors
    /// [`InvalidSize`](ErrorKind::InvalidSize) when the range is not inside the memory.
    pub fn new(memory: Arc<dyn Memory>, offset: usize, len: usize) -> Result<Self> {
        let fits = offset.checked_add(len).is_some_and(|end| end <= memory.len());
        if !fits {
            let total = memory.len();
            return Err(Error::new(
                ErrorKind::InvalidSize,
                format!("{len} bytes at {offset} are not a range of {total} bytes"),
            ));
        }
        Ok(Self { memory, offset, len })
    }

    /// All of `memory`.
    pub fn whole(memory: Arc<dyn Memory>) -> Self {
        let len = memory.len();
        Self { memory, offset: 0, len }
    }

    /// The memory object.
    pub fn memory(&self) -> &Arc<dyn Memory> {
        &self.memory
    }

    /// Offset of the first byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Offset one past the last byte.
    pub fn end(&self) -> usize {
        self.offset + self.len
    }
}

impl Debug for MemoryView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}[{}..{}]", self.memory.resource(), self.offset, self.end())
    }
}

/// An address in unified shared memory and how many bytes may be used from it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UsmPointer {
    address: usize,
    len: usize,
}

impl UsmPointer {
    /// Vouches for `len` bytes at `address`, which may be null for 0 bytes.
    ///
    /// # Safety
    /// The bytes must be valid, on every device and host where a command uses the pointer, for as
    /// long as any command-buffer that holds it may run.
    pub unsafe fn new(address: usize, len: usize) -> Self {
        Self { address, len }
    }

    /// Address of the first byte.
    pub fn address(self) -> usize {
        self.address
    }

    /// Number of bytes that may be used.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether no byte may be used.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }
}

/// Memory of the application's, and what owns it, for [`Device::register`](crate::Device::register).
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
