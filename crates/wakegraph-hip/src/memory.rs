//! Memory of the contract's, from the driver's allocations.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use wakegraph_hal::support::streams::{MemoryDevice, PinnedMemories, StreamMemory};
use wakegraph_hal::{MemoryKind, Result, UserMemory};

use super::allocation::HipAllocation;
use super::device_inner::HipDeviceInner;
use super::registered::register;
use super::stream::HipStream;
use super::sys::{HipFailure, call, hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipStream_t};

pub(super) type HipMemory = StreamMemory<HipDeviceInner>;

impl MemoryDevice for HipDeviceInner {
    type Allocation = HipAllocation;

    fn allocate(&self, kind: MemoryKind, len: usize) -> Result<HipAllocation> {
        HipAllocation::zeroed(&self.pool, kind, len)
    }

    fn register(&self, memory: &UserMemory) -> Result<bool, HipFailure> {
        register(&self.context, memory)
    }

    fn registered(&self, memory: UserMemory) -> HipAllocation {
        HipAllocation::registered(&self.pool, memory)
    }

    fn pinned() -> &'static PinnedMemories<HipAllocation> {
        static PINNED: PinnedMemories<HipAllocation> = PinnedMemories::new();
        &PINNED
    }

    fn trim(&self) -> Result<(), HipFailure> {
        self.pool.trim()
    }

    fn memory_stream(&self) -> &HipStream {
        &self.pool.stream
    }

    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        len: usize,
        stream: hipStream_t,
    ) -> Result<(), HipFailure> {
        let (to, kind) = (ptr::with_exposed_provenance_mut(to as usize), hipMemcpyHostToDevice);
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, hipMemcpyAsync(to, from.cast(), len, kind, stream)) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        len: usize,
        stream: hipStream_t,
    ) -> Result<(), HipFailure> {
        let (from, kind) = (ptr::with_exposed_provenance(from as usize), hipMemcpyDeviceToHost);
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, hipMemcpyAsync(to.cast(), from, len, kind, stream)) }
    }
}
