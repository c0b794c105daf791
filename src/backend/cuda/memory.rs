//! Memory: of a stream-ordered pool on the device, or pinned on the host.
#![expect(
    unsafe_code,
    reason = "allocates, and hands out what the trait's contract says is the caller's to order"
)]

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::context::Context;
use super::device::Shared;
use super::stream::Stream;
use super::sys::{
    CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationHandleType,
    CUmemAllocationType, CUmemLocation, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps, CUmemoryPool,
    Failure, call,
};
use crate::hal::{Memory, MemoryDesc, MemoryKind, UsmPointer};
use crate::types::{DeviceId, Error, ErrorKind, ResourceId, Result};

/// A pool of device memory, which keeps what is given back.
#[derive(Debug)]
pub(super) struct Pool {
    context: Arc<Context>,
    raw: CUmemoryPool,
}

// SAFETY: the driver's pools may be used from any thread, by several at a time.
unsafe impl Send for Pool {}
// SAFETY: as for `Send`.
unsafe impl Sync for Pool {}

fn on_device(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

impl Pool {
    pub(super) fn create(context: &Arc<Context>) -> Result<Self, Failure> {
        let _bound = context.bind()?;
        let properties = CUmemPoolProps {
            allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: on_device(context.device),
            win32SecurityAttributes: ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut raw = ptr::null_mut();
        // SAFETY: the context is bound; the properties are complete; the place is a pointer's.
        unsafe { call!(context.driver, cuMemPoolCreate(&raw mut raw, &raw const properties)) }?;
        let pool = Self { context: Arc::clone(context), raw };
        // Without, every synchronisation would give unused memory back to the system.
        let mut keep = u64::MAX;
        let (attribute, value) =
            (CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast::<c_void>());
        // SAFETY: this attribute is a number of 64 bits.
        unsafe { call!(context.driver, cuMemPoolSetAttribute(pool.raw, attribute, value)) }?;
        Ok(pool)
    }

    /// Lets another device use the memory.
    pub(super) fn open_to(&self, peer: &Context) -> Result<(), Failure> {
        let _bound = self.context.bind()?;
        let access = CUmemAccessDesc {
            location: on_device(peer.device),
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool is alive; there is one description.
        unsafe { call!(self.context.driver, cuMemPoolSetAccess(self.raw, &raw const access, 1)) }
    }

    /// The caller has bound the context.
    pub(super) fn allocate(&self, len: usize, stream: &Stream) -> Result<CUdeviceptr, Failure> {
        let (driver, raw, on) = (self.context.driver, self.raw, stream.raw());
        let mut address = 0;
        // SAFETY: pool and stream are of one device; the place is an address's.
        unsafe { call!(driver, cuMemAllocFromPoolAsync(&raw mut address, len, raw, on)) }?;
        Ok(address)
    }

    /// Gives memory that nobody uses back to the system, once what was freed on the stream is free.
    /// The caller has bound the context.
    pub(super) fn trim(&self, stream: &Stream) -> Result<(), Failure> {
        stream.synchronize()?;
        // SAFETY: the pool is alive.
        unsafe { call!(self.context.driver, cuMemPoolTrimTo(self.raw, 0)) }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let destroy = || {
            let _bound = self.context.bind()?;
            // SAFETY: created by `create`, destroyed once, after all its memory.
            unsafe { call!(self.context.driver, cuMemPoolDestroy(self.raw)) }
        };
        self.context.dropped(destroy());
    }
}

/// One allocation. All addresses are of one space: the host's and every device's.
#[derive(Debug)]
pub(super) struct CudaMemory {
    shared: Arc<Shared>,
    resource: ResourceId,
    kind: MemoryKind,
    len: usize,
    address: CUdeviceptr,
}

impl CudaMemory {
    pub(super) fn allocate(shared: &Arc<Shared>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind } = *desc;
        if len == 0 {
            return Err(Error::new(ErrorKind::InvalidSize, "an allocation of 0 bytes"));
        }
        let (driver, _bound) = (shared.context.driver, shared.context.bind()?);
        // What the pool keeps may be in pieces that are too small.
        let address = shared.retry_with_room(|| match kind {
            MemoryKind::Device => shared.pool.allocate(len, &shared.service),
            MemoryKind::Host => {
                let mut start = ptr::null_mut();
                let flags = CU_MEMHOSTALLOC_PORTABLE;
                // SAFETY: the context is bound; the place is a pointer's.
                unsafe { call!(driver, cuMemHostAlloc(&raw mut start, len, flags)) }?;
                Ok(start as CUdeviceptr)
            }
        })?;
        // From here on it is given back when zeroing fails.
        let memory = Self { shared: Arc::clone(shared), resource: ResourceId::unique(), kind, len, address };
        memory.zero()?;
        Ok(memory)
    }

    fn zero(&self) -> Result<(), Failure> {
        match self.kind {
            MemoryKind::Device => {
                let (service, driver) = (&self.shared.service, self.shared.context.driver);
                // SAFETY: the memory is as long as that, and nobody knows it yet.
                unsafe { call!(driver, cuMemsetD8Async(self.address, 0, self.len, service.raw())) }?;
                service.synchronize()
            }
            MemoryKind::Host => {
                // SAFETY: the memory is as long as that, and nobody knows it yet.
                unsafe { ptr::write_bytes(self.address as *mut u8, 0, self.len) };
                Ok(())
            }
        }
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn range(&self, offset: usize, len: usize) -> Result<CUdeviceptr> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let why = format!("{len} bytes at {offset} are not a range of {} bytes", self.len);
            return Err(Error::new(ErrorKind::InvalidSize, why).on_device(self.shared.context.selector()));
        }
        Ok(self.address + offset as CUdeviceptr)
    }

    /// Enqueues a copy on the device's own stream, and waits for it.
    fn transfer(&self, copy: impl FnOnce(&Stream) -> Result<(), Failure>) -> Result<()> {
        let run = || {
            let _bound = self.shared.context.bind()?;
            copy(&self.shared.service)?;
            // A copy from memory that is not pinned returns before the data has arrived.
            self.shared.service.synchronize()
        };
        run().map_err(|failure| self.shared.context.error(failure))
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let context = &self.shared.context;
        let free = || {
            let _bound = context.bind()?;
            match self.kind {
                MemoryKind::Device => {
                    let on = self.shared.service.raw();
                    // SAFETY: allocated from the pool, freed once; nothing that uses it is in flight.
                    unsafe { call!(context.driver, cuMemFreeAsync(self.address, on)) }
                }
                MemoryKind::Host => {
                    let start = self.address as *mut c_void;
                    // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
                    unsafe { call!(context.driver, cuMemFreeHost(start)) }
                }
            }
        };
        context.dropped(free());
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
        self.shared.info.id
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
        // SAFETY: these bytes are valid on the device (those of the host on all, and there, too);
        // that the memory outlives the pointer's use is the business of whoever enqueues it
        // (`CommandBuffer::enqueue`).
        Some(unsafe { UsmPointer::new(self.address as usize, self.len) })
    }

    unsafe fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        let to = self.range(offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        if self.kind == MemoryKind::Host {
            // SAFETY: `range` checked the bounds; the caller vouched that nobody else touches the bytes.
            unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            return Ok(());
        }
        let driver = self.shared.context.driver;
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
            // SAFETY: `range` checked the bounds; the caller vouched that nobody writes the bytes.
            unsafe { ptr::copy_nonoverlapping(from as *const u8, bytes.as_mut_ptr(), bytes.len()) };
            return Ok(());
        }
        let driver = self.shared.context.driver;
        self.transfer(|stream| {
            let (to, on) = (bytes.as_mut_ptr().cast(), stream.raw());
            // SAFETY: both sides hold as many bytes, and stay until the copy is done.
            unsafe { call!(driver, cuMemcpyDtoHAsync(to, from, bytes.len(), on)) }
        })
    }
}
