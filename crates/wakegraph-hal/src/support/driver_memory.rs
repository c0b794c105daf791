//! Memory of a driver: the host uses the bytes at their address, or the driver copies them.
#![expect(unsafe_code, reason = "accesses memory that the caller orders")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::device_context::DeviceContext;
use super::refusal::{check_range, empty_allocation, foreign};
use crate::{DeviceId, Memory, MemoryDesc, MemoryKind, MemoryView, ResourceId, Result, UsmPointer};

/// Memory of the driver, which is freed when dropped.
pub trait DriverAllocation: Debug + Send + Sync + Sized + 'static {
    /// What its device shares.
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
