//! Memory: from the device's pool, or pinned on the host.
#![expect(unsafe_code, reason = "allocates, and gives out addresses whose use the caller orders")]

use std::any::Any;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::device_inner::CudaDeviceInner;
use super::stream::CudaStream;
use super::sys::{CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, CudaFailure, call};
use crate::hal::{Memory, MemoryDesc, MemoryKind, UsmPointer};
use crate::types::{DeviceId, Error, ErrorKind, ResourceId, Result};

/// One allocation. The host and all devices share one address space.
#[derive(Debug)]
pub(super) struct CudaMemory {
    device: Arc<CudaDeviceInner>,
    resource: ResourceId,
    kind: MemoryKind,
    len: usize,
    address: CUdeviceptr,
}

impl CudaMemory {
    pub(super) fn allocate(device: &Arc<CudaDeviceInner>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(Error::new(ErrorKind::InvalidSize, "an allocation of 0 bytes"));
        }
        let (driver, _bound) = (device.context.driver, device.context.bind()?);
        // The pool may run out of memory while what it keeps is in pieces that are too small.
        let address = device.pool.retry_with_room(|| match kind {
            MemoryKind::Device => device.pool.allocate(len),
            MemoryKind::Host => {
                let mut start = ptr::null_mut();
                let flags = CU_MEMHOSTALLOC_PORTABLE;
                // SAFETY: the context is bound; the pointer is valid for a pointer.
                unsafe { call!(driver, cuMemHostAlloc(&raw mut start, len, flags)) }?;
                Ok(start as CUdeviceptr)
            }
        })?;
        // From here on the memory is freed when something fails.
        let memory = Self { device: Arc::clone(device), resource: ResourceId::unique(), kind, len, address };
        match kind {
            // SAFETY: the memory is as long as that, and nothing else uses it yet.
            MemoryKind::Device => unsafe { device.pool.zero(address, len) }?,
            // SAFETY: as above.
            MemoryKind::Host => unsafe { ptr::write_bytes(address as *mut u8, 0, len) },
        }
        Ok(memory)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The device that it was allocated on.
    pub(super) fn owner(&self) -> &Arc<CudaDeviceInner> {
        &self.device
    }

    fn range(&self, offset: usize, len: usize) -> Result<CUdeviceptr> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let why = format!("{len} bytes at {offset} are not a range of {} bytes", self.len);
            return Err(Error::new(ErrorKind::InvalidSize, why).on_device(self.device.context.selector()));
        }
        Ok(self.address + offset as CUdeviceptr)
    }

    /// Enqueues a copy on the pool's stream, and waits for it.
    fn transfer(&self, copy: impl FnOnce(&CudaStream) -> Result<(), CudaFailure>) -> Result<()> {
        self.device.context.run(|| {
            let stream = self.device.pool.stream();
            copy(stream)?;
            // A copy from memory that is not pinned returns before the data has arrived.
            stream.synchronize()
        })
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let context = &self.device.context;
        context.destroy(|| match self.kind {
            // SAFETY: allocated from the pool, freed once; nothing that uses it is in flight.
            MemoryKind::Device => unsafe { self.device.pool.free(self.address) },
            MemoryKind::Host => {
                let start = self.address as *mut c_void;
                // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
                unsafe { call!(context.driver, cuMemFreeHost(start)) }
            }
        });
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
        self.kind
    }

    fn len(&self) -> usize {
        self.len
    }

    fn host_ptr(&self) -> Option<NonNull<u8>> {
        match self.kind {
            MemoryKind::Device => None,
            MemoryKind::Host => NonNull::new(self.address as *mut u8),
        }
    }

    fn usm(&self) -> Option<UsmPointer> {
        // SAFETY: the bytes are valid on the device, and pinned ones on the host and all devices. The
        // caller of an enqueue promises that the memory outlives the pointer's use.
        Some(unsafe { UsmPointer::new(self.address as usize, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.kind == MemoryKind::Host {
            // SAFETY: `range` checked the bounds; the caller vouched that nothing else touches the bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            return Ok(());
        }
        let driver = self.device.context.driver;
        self.transfer(|stream| {
            let (from, on) = (bytes.as_ptr().cast(), stream.raw());
            // SAFETY: both sides hold as many bytes, and stay until the copy is done.
            unsafe { call!(driver, cuMemcpyHtoDAsync(to, from, bytes.len(), on)) }
        })
    }

    unsafe fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let from = self.range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.kind == MemoryKind::Host {
            // SAFETY: `range` checked the bounds; the caller vouched that nothing writes the bytes.
            unsafe { ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
            return Ok(());
        }
        let driver = self.device.context.driver;
        self.transfer(|stream| {
            let (to, on) = (bytes.as_mut_ptr().cast(), stream.raw());
            // SAFETY: both sides hold as many bytes, and stay until the copy is done.
            unsafe { call!(driver, cuMemcpyDtoHAsync(to, from, bytes.len(), on)) }
        })
    }
}
