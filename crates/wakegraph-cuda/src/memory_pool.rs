//! The pool that device memory comes from, ordered by a stream of the device's own.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, retry_with_room};
use wakegraph_hal::{Error, Result};

use super::context::CudaContext;
use super::handle::CudaObject;
use super::stream::CudaStream;
use super::sys::{
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE,
    CU_MEM_LOCATION_TYPE_DEVICE, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CUmemAccessDesc, CUmemLocation,
    CUmemPoolHandle_st, CUmemPoolProps, CUmemoryPool, CudaFailure, call,
};

/// A pool of device memory that keeps freed memory for later allocations.
#[derive(Debug)]
pub(super) struct MemoryPool {
    pool: CudaObject<CUmemPoolHandle_st>,
    /// For allocations, reads and writes: they must not queue behind the user's work.
    pub(super) stream: CudaStream,
}

fn on_device(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

impl MemoryPool {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let stream = CudaStream::create(context)?;
        let _bound = context.bind()?;
        let properties = CUmemPoolProps {
            allocType: CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: CU_MEM_HANDLE_TYPE_NONE,
            location: on_device(context.device),
            win32SecurityAttributes: ptr::null_mut(),
            reserved: [0; 64],
        };
        let pool = CudaObject::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid; the properties are complete.
            unsafe { call!(driver, cuMemPoolCreate(place, &raw const properties)) }
        })?;
        // By default every synchronization would return unused memory to the system.
        let mut keep = u64::MAX;
        let (attribute, value) = (CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (&raw mut keep).cast::<c_void>());
        // SAFETY: this attribute is a number of 64 bits.
        unsafe { call!(context.driver, cuMemPoolSetAttribute(pool.raw(), attribute, value)) }?;
        Ok(Self { pool, stream })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.pool.context()
    }

    pub(super) fn raw(&self) -> CUmemoryPool {
        self.pool.raw()
    }

    /// Lets another device use the memory.
    pub(super) fn open_to(&self, peer: &CudaContext) -> Result<(), CudaFailure> {
        let _bound = self.context().bind()?;
        let access =
            CUmemAccessDesc { location: on_device(peer.device), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the pool is alive; there is one description.
        unsafe { call!(self.pool.driver(), cuMemPoolSetAccess(self.raw(), &raw const access, 1)) }
    }

    /// Returns unused memory to the system, once everything on the stream is done. The caller has
    /// bound the context.
    pub(super) fn trim(&self) -> Result<(), CudaFailure> {
        self.stream.synchronize()?;
        // SAFETY: the pool is alive.
        unsafe { call!(self.pool.driver(), cuMemPoolTrimTo(self.raw(), 0)) }
    }

    /// As [`retry_with_room`](retry_with_room()). The caller has bound the context.
    pub(super) fn retry_with_room<T, E: Into<Error>>(&self, work: impl FnMut() -> Result<T, E>) -> Result<T> {
        retry_with_room(|| self.trim(), work)
    }
}
