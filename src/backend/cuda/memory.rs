//! Memory, as the contract has it.
#![expect(unsafe_code, reason = "accesses memory that the caller orders")]

use std::any::Any;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::allocation::CudaAllocation;
use super::device_inner::CudaDeviceInner;
use super::sys::{CUdeviceptr, CUstream, CudaFailure, Driver, call};
use crate::hal::support::refusal;
use crate::hal::support::streams::DriverContext as _;
use crate::hal::{Memory, MemoryDesc, MemoryKind, UserMemory, UsmPointer};
use crate::types::{DeviceId, ResourceId, Result};

/// One allocation.
#[derive(Debug)]
pub(super) struct CudaMemory {
    allocation: CudaAllocation,
    resource: ResourceId,
    len: usize,
    /// The device that it was allocated on.
    pub(super) device: Arc<CudaDeviceInner>,
}

impl CudaMemory {
    pub(super) fn allocate(device: &Arc<CudaDeviceInner>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(refusal::empty_allocation());
        }
        let allocation = CudaAllocation::zeroed(&device.pool, kind, len)?;
        Ok(Self { device: Arc::clone(device), resource: ResourceId::unique(), len, allocation })
    }

    /// Memory that has been registered with the driver.
    pub(super) fn registered(device: &Arc<CudaDeviceInner>, memory: UserMemory) -> Self {
        let (len, resource) = (memory.len(), ResourceId::unique());
        let allocation = CudaAllocation::registered(&device.pool, memory);
        Self { device: Arc::clone(device), resource, len, allocation }
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.allocation.address
    }

    fn range(&self, offset: usize, len: usize) -> Result<CUdeviceptr> {
        refusal::check_range(offset, len, self.len).map_err(|error| self.device.context.error(error))?;
        Ok(self.address() + offset as CUdeviceptr)
    }

    /// Enqueues a copy on the pool's stream, and waits for it.
    fn transfer(&self, copy: impl FnOnce(&Driver, CUstream) -> Result<(), CudaFailure>) -> Result<()> {
        let (context, stream) = (&self.device.context, &self.device.pool.stream);
        context.run(|| {
            copy(context.driver, stream.raw())?;
            // A copy from memory that is not pinned returns before the data has arrived.
            stream.synchronize()
        })
    }
}

impl Memory for CudaMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resource(&self) -> ResourceId {
        self.resource
    }

    fn device(&self) -> DeviceId {
        self.device.info.id
    }

    fn kind(&self) -> MemoryKind {
        self.allocation.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        match self.allocation.kind {
            MemoryKind::Device => None,
            MemoryKind::Host => NonNull::new(self.address() as *mut u8),
        }
    }

    fn usm(&self) -> Option<UsmPointer> {
        // SAFETY: the bytes are valid on the device, and pinned ones on the host and all devices.
        // The caller of an enqueue promises that the memory outlives the pointer's use.
        Some(unsafe { UsmPointer::new(self.address() as usize, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let (to, from, len) = (self.range(offset, bytes.len())?, bytes.as_ptr(), bytes.len());
        match self.allocation.kind {
            _ if bytes.is_empty() => Ok(()),
            MemoryKind::Host => {
                // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches
                // the bytes.
                unsafe { ptr::copy_nonoverlapping(from, to as *mut u8, len) };
                Ok(())
            }
            MemoryKind::Device => self.transfer(|driver, stream| {
                // SAFETY: both sides hold as many bytes, and stay until the copy is done.
                unsafe { call!(driver, cuMemcpyHtoDAsync(to, from.cast(), len, stream)) }
            }),
        }
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (from, to, len) = (self.range(offset, bytes.len())?, bytes.as_mut_ptr(), bytes.len());
        match self.allocation.kind {
            _ if bytes.is_empty() => Ok(()),
            MemoryKind::Host => {
                // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the
                // bytes.
                unsafe { ptr::copy_nonoverlapping(from as *const u8, to, len) };
                Ok(())
            }
            MemoryKind::Device => self.transfer(|driver, stream| {
                // SAFETY: both sides hold as many bytes, and stay until the copy is done.
                unsafe { call!(driver, cuMemcpyDtoHAsync(to.cast(), from, len, stream)) }
            }),
        }
    }
}
