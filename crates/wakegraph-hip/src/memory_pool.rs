//! Where device memory comes from, ordered by a stream of the device's own: a pool of the driver's,
//! or, on devices and versions without pools, its plain allocations.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, retry_with_room};
use wakegraph_hal::{Error, Result};

use super::context::HipContext;
use super::handle::HipObject;
use super::stream::HipStream;
use super::sys::{
    HipFailure, call, get, hipDeviceAttributeMemoryPoolsSupported, hipMemAccessDesc,
    hipMemAccessFlagsProtReadWrite, hipMemAllocationTypePinned, hipMemHandleTypeNone, hipMemLocation,
    hipMemLocationTypeDevice, hipMemPoolAttrReleaseThreshold, hipMemPoolProps, ihipMemPoolHandle_t,
};

/// Device memory, and where it goes when it is freed.
#[derive(Debug)]
pub(super) struct HipMemoryPool {
    /// Keeps freed memory for later allocations. None where the driver has no pools.
    pool: Option<HipObject<ihipMemPoolHandle_t>>,
    /// For allocations, reads and writes: they must not queue behind the user's work.
    pub(super) stream: HipStream,
    context: Arc<HipContext>,
}

fn on_device(device: c_int) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationTypeDevice, id: device }
}

impl HipMemoryPool {
    pub(super) fn create(context: &Arc<HipContext>) -> Result<Self, HipFailure> {
        let has_pools = context.attribute(hipDeviceAttributeMemoryPoolsSupported)? != 0;
        let pool = if has_pools { Some(create_pool(context)?) } else { None };
        Ok(Self { pool, stream: HipStream::create(context)?, context: Arc::clone(context) })
    }

    pub(super) fn context(&self) -> &Arc<HipContext> {
        &self.context
    }

    /// Memory of the device. The caller has bound the context.
    pub(super) fn allocate(&self, len: usize) -> Result<*mut c_void, HipFailure> {
        let (driver, _addresses) = (self.context.driver, self.context.addresses.hold_to_allocate());
        match &self.pool {
            Some(pool) => {
                // SAFETY: pool and stream are of one device.
                unsafe { get!(driver, hipMallocFromPoolAsync(len, pool.raw(), self.stream.raw())) }
            }
            // SAFETY: the context is bound.
            None => unsafe { get!(driver, hipMalloc(len)) },
        }
    }

    /// Frees memory that [`allocate`](Self::allocate) has given, without waiting.
    ///
    /// # Safety
    /// The memory is freed once, and nothing that uses it is in flight.
    pub(super) unsafe fn free(&self, address: u64) {
        let memory = move || ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        match &self.pool {
            Some(pool) => self.context.destroy(|| {
                // SAFETY: passed on to the caller.
                unsafe { call!(pool.driver(), hipFreeAsync(memory(), self.stream.raw())) }
            }),
            None => self.context.releases.later(move |driver| {
                // SAFETY: passed on to the caller.
                unsafe { call!(driver, hipFree(memory())) }
            }),
        }
    }

    /// Lets another device use the memory, as far as the pool needs to know.
    pub(super) fn open_to(&self, peer: &HipContext) -> Result<(), HipFailure> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let _bound = self.context.bind()?;
        let access =
            hipMemAccessDesc { location: on_device(peer.device), flags: hipMemAccessFlagsProtReadWrite };
        // SAFETY: the pool is alive; there is one description.
        unsafe { call!(pool.driver(), hipMemPoolSetAccess(pool.raw(), &raw const access, 1)) }
    }

    /// Returns unused memory to the system, once all that was dropped is freed. The caller has bound
    /// the context.
    pub(super) fn trim(&self) -> Result<(), HipFailure> {
        self.context.releases.drain();
        self.stream.synchronize()?;
        let Some(pool) = &self.pool else { return Ok(()) };
        // SAFETY: the pool is alive.
        unsafe { call!(pool.driver(), hipMemPoolTrimTo(pool.raw(), 0)) }
    }

    /// As [`retry_with_room`](retry_with_room()). The caller has bound the context.
    pub(super) fn retry_with_room<T, E: Into<Error>>(&self, work: impl FnMut() -> Result<T, E>) -> Result<T> {
        retry_with_room(|| self.trim(), work)
    }
}

fn create_pool(context: &Arc<HipContext>) -> Result<HipObject<ihipMemPoolHandle_t>, HipFailure> {
    let _bound = context.bind()?;
    let properties = hipMemPoolProps {
        allocType: hipMemAllocationTypePinned,
        handleTypes: hipMemHandleTypeNone,
        location: on_device(context.device),
        win32SecurityAttributes: ptr::null_mut(),
        reserved: [0; 64],
    };
    let pool = HipObject::create_by(context, |driver, place| {
        // SAFETY: the context is bound, the place valid; the properties are complete.
        unsafe { call!(driver, hipMemPoolCreate(place, &raw const properties)) }
    })?;
    // By default every synchronization would return unused memory to the system.
    let mut keep = u64::MAX;
    let (attribute, value) = (hipMemPoolAttrReleaseThreshold, (&raw mut keep).cast::<c_void>());
    // SAFETY: this attribute is a number of 64 bits.
    unsafe { call!(context.driver, hipMemPoolSetAttribute(pool.raw(), attribute, value)) }?;
    Ok(pool)
}
