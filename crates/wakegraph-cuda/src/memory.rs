//! Memory of the contract's, from the driver's allocations.
#![expect(unsafe_code, reason = "calls the driver")]

use wakegraph_hal::support::streams::{MemoryDevice, PinnedMemories, StreamMemory};
use wakegraph_hal::{MemoryKind, MemoryView, Result, UserMemory};

use super::allocation::CudaAllocation;
use super::device_inner::CudaDeviceInner;
use super::registered::register;
use super::stream::CudaStream;
use super::sys::{CUdeviceptr, CUstream, CudaFailure, call};

pub(super) type CudaMemory = StreamMemory<CudaDeviceInner>;

/// Whether it is memory of this device, and not of the host.
pub(super) fn is_of(device: &CudaDeviceInner, view: &MemoryView) -> bool {
    let memory = view.memory().as_any().downcast_ref::<CudaMemory>();
    let is_on_device = view.memory().kind() == MemoryKind::Device;
    is_on_device && memory.is_some_and(|memory| memory.device.info.id == device.info.id)
}

impl MemoryDevice for CudaDeviceInner {
    type Allocation = CudaAllocation;

    fn allocate(&self, kind: MemoryKind, len: usize) -> Result<CudaAllocation> {
        CudaAllocation::zeroed(&self.pool, kind, len)
    }

    fn register(&self, memory: &UserMemory) -> Result<bool, CudaFailure> {
        register(&self.context, memory)
    }

    fn registered(&self, memory: UserMemory) -> CudaAllocation {
        CudaAllocation::registered(&self.pool, memory)
    }

    fn pinned() -> &'static PinnedMemories<CudaAllocation> {
        static PINNED: PinnedMemories<CudaAllocation> = PinnedMemories::new();
        &PINNED
    }

    fn trim(&self) -> Result<(), CudaFailure> {
        self.pool.trim()
    }

    fn memory_stream(&self) -> &CudaStream {
        &self.pool.stream
    }

    unsafe fn copy_to_device(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        len: usize,
        stream: CUstream,
    ) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, cuMemcpyHtoDAsync(to, from.cast(), len, stream)) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, cuMemcpyDtoHAsync(to.cast(), from, len, stream)) }
    }
}
