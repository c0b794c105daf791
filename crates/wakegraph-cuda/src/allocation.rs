//! Allocations: memory of the device from its pool, or pinned memory of the host.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, StreamAllocation};
use wakegraph_hal::{MemoryKind, Result, UserMemory};

use super::memory_pool::MemoryPool;
use super::sys::{CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, call, get};

/// Memory, freed when dropped. The host and all devices share one address space.
#[derive(Debug)]
pub(super) struct CudaAllocation {
    pub(super) address: CUdeviceptr,
    pub(super) kind: MemoryKind,
    pool: Arc<MemoryPool>,
    /// Memory of the application's, which is not freed but unregistered, and then dropped.
    registered: Option<UserMemory>,
}

impl CudaAllocation {
    /// Zeroed memory of this many bytes, which are not 0.
    pub(super) fn zeroed(pool: &Arc<MemoryPool>, kind: MemoryKind, len: usize) -> Result<Self> {
        let (context, stream) = (pool.context(), &pool.stream);
        let (driver, _bound) = (context.driver, context.bind()?);
        // The pool may run out of memory while what it keeps is in pieces that are too small.
        let address = pool.retry_with_room(|| match kind {
            MemoryKind::Device => {
                // SAFETY: pool and stream are of one device.
                unsafe { get!(driver, cuMemAllocFromPoolAsync(len, pool.raw(), stream.raw())) }
            }
            MemoryKind::Host => {
                // SAFETY: the context is bound.
                let start = unsafe { get!(driver, cuMemHostAlloc(len, CU_MEMHOSTALLOC_PORTABLE)) };
                start.map(|start: *mut c_void| start as CUdeviceptr)
            }
        })?;
        // From here on the memory is freed when something fails.
        let memory = Self { address, kind, pool: Arc::clone(pool), registered: None };
        match kind {
            MemoryKind::Device => {
                // SAFETY: the memory is as long as that, and nothing else uses it yet.
                unsafe { call!(driver, cuMemsetD8Async(address, 0, len, stream.raw())) }?;
                stream.synchronize()?;
            }
            // SAFETY: as above.
            MemoryKind::Host => unsafe { ptr::write_bytes(address as *mut u8, 0, len) },
        }
        Ok(memory)
    }
}

impl CudaAllocation {
    /// Memory that has been registered with the driver.
    pub(super) fn registered(pool: &Arc<MemoryPool>, memory: UserMemory) -> Self {
        let address = memory.start().as_ptr().expose_provenance() as CUdeviceptr;
        Self { address, kind: MemoryKind::Host, pool: Arc::clone(pool), registered: Some(memory) }
    }
}

impl StreamAllocation for CudaAllocation {
    fn address(&self) -> u64 {
        self.address
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }
}

impl Drop for CudaAllocation {
    fn drop(&mut self) {
        let (context, address) = (self.pool.context(), self.address);
        context.destroy(|| match self.kind {
            MemoryKind::Device => {
                let stream = self.pool.stream.raw();
                // SAFETY: allocated from the pool, freed once; nothing that uses it is in flight.
                unsafe { call!(context.driver, cuMemFreeAsync(address, stream)) }
            }
            MemoryKind::Host if self.registered.is_some() => {
                // SAFETY: registered, and unregistered once; nothing that uses it is in flight.
                unsafe { call!(context.driver, cuMemHostUnregister(address as *mut c_void)) }
            }
            // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
            MemoryKind::Host => unsafe { call!(context.driver, cuMemFreeHost(address as *mut c_void)) },
        });
    }
}
