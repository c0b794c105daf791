//! Memory: where device memory comes from, allocations, registered memory of the application's, and
//! addresses of other libraries.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, MemoryStream, StreamAllocation, retry_with_room};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, Result, UserMemory};

use super::context::{HipContext, HipObject};
use super::sys::{
    Driver, HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, HIP_POINTER_ATTRIBUTE_IS_MANAGED,
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, HipFailure, call, get, hipDeviceAttributeMemoryPoolsSupported,
    hipErrorInvalidValue, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable,
    hipHostRegisterMapped, hipHostRegisterPortable, hipMemAccessDesc, hipMemAccessFlagsProtReadWrite,
    hipMemAllocationTypePinned, hipMemHandleTypeNone, hipMemLocation, hipMemLocationTypeDevice,
    hipMemPoolAttrReleaseThreshold, hipMemPoolProps, hipPointer_attribute, ihipMemPoolHandle_t,
};

/// Source of device memory, ordered by a stream of the device's own: a pool of the driver's, or, on devices
/// and versions without pools, its plain allocations.
#[derive(Debug)]
pub(super) struct HipMemoryPool {
    /// Keeps freed memory for later allocations. None where the driver has no pools.
    pool: Option<HipObject<ihipMemPoolHandle_t>>,
    /// For allocations, reads and writes: they must not queue behind the user's work.
    pub(super) stream: MemoryStream<HipContext>,
    context: Arc<HipContext>,
}

fn on_device(device: c_int) -> hipMemLocation {
    hipMemLocation { type_: hipMemLocationTypeDevice, id: device }
}

impl HipMemoryPool {
    pub(super) fn create(context: &Arc<HipContext>) -> Result<Self, HipFailure> {
        let has_pools = context.attribute(hipDeviceAttributeMemoryPoolsSupported)? != 0;
        let pool = if has_pools { Some(create_pool(context)?) } else { None };
        Ok(Self { pool, stream: MemoryStream::create(context)?, context: Arc::clone(context) })
    }

    pub(super) fn context(&self) -> &Arc<HipContext> {
        &self.context
    }

    /// Memory of the device. The caller has bound the context.
    fn allocate(&self, len: usize) -> Result<*mut c_void, HipFailure> {
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
    /// The memory is freed once, and nothing but what is on the stream uses it.
    unsafe fn free(&self, address: u64) {
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

/// Memory of the device, or pinned memory of the host; freed after it is dropped. The host and all devices
/// share one address space.
#[derive(Debug)]
pub(super) struct HipAllocation {
    pub(super) address: u64,
    pub(super) kind: MemoryKind,
    /// The number on the memory stream, of memory of the device.
    number: u64,
    pool: Arc<HipMemoryPool>,
    /// Memory of the application's, which is not freed but unregistered, and then dropped.
    registered: Option<UserMemory>,
}

/// Coherent, as the environment decides otherwise: other memory is up to date on the host only
/// after a synchronization.
const HOST_FLAGS: u32 = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;

impl HipAllocation {
    /// Memory as described, of a length that is not 0. No call waits for the device.
    pub(super) fn create(pool: &Arc<HipMemoryPool>, desc: &MemoryDesc) -> Result<Self> {
        let (MemoryDesc { len, kind, zeroed }, context, stream) = (*desc, pool.context(), &pool.stream);
        let (driver, _bound) = (context.driver, context.bind()?);
        // The pool may run out of memory while what it keeps is in pieces that are too small.
        let room = || pool.trim();
        let start = retry_with_room(room, || match kind {
            MemoryKind::Device => pool.allocate(len),
            MemoryKind::Host => {
                let _addresses = context.addresses.hold_to_allocate();
                // SAFETY: the context is bound.
                unsafe { get!(driver, hipHostMalloc(len, HOST_FLAGS)) }
            }
        })?;
        // From here on the memory is freed when something fails.
        let address = start.expose_provenance() as u64;
        let mut memory = Self { address, kind, number: 0, pool: Arc::clone(pool), registered: None };
        match kind {
            MemoryKind::Device => {
                if zeroed {
                    // SAFETY: the memory is as long as that, and all uses of it come later on the stream, or
                    // behind the allocation when it is counted.
                    unsafe { call!(driver, hipMemsetAsync(start, 0, len, stream.raw())) }?;
                }
                memory.number = stream.count_allocation();
            }
            MemoryKind::Host => {
                if device_address(driver, start)? != start {
                    let why = "the device sees the host's memory at other addresses than the host";
                    return Err(Error::new(ErrorKind::FeatureNotSupported, why));
                }
                if zeroed {
                    // SAFETY: the memory is as long as that, and nothing else uses it yet.
                    unsafe { ptr::write_bytes(start.cast::<u8>(), 0, len) }
                }
            }
        }
        Ok(memory)
    }

    /// Memory that has been registered with the driver.
    pub(super) fn registered(pool: &Arc<HipMemoryPool>, memory: UserMemory) -> Self {
        let address = memory.start().as_ptr().expose_provenance() as u64;
        Self { address, kind: MemoryKind::Host, number: 0, pool: Arc::clone(pool), registered: Some(memory) }
    }
}

/// The address at which the current device sees memory of the host that the driver knows.
fn device_address(driver: &Driver, start: *mut c_void) -> Result<*mut c_void, HipFailure> {
    // SAFETY: the driver translates the address, or refuses it; there are no flags.
    unsafe { get!(driver, hipHostGetDevicePointer(start, 0)) }
}

impl StreamAllocation for HipAllocation {
    fn address(&self) -> u64 {
        self.address
    }

    fn kind(&self) -> MemoryKind {
        self.kind
    }

    fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for HipAllocation {
    fn drop(&mut self) {
        let address = self.address;
        let memory = move || ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        let context = self.pool.context();
        match (self.kind, self.registered.take()) {
            (MemoryKind::Device, _) => {
                // SAFETY: allocated by the pool, freed once; what is in flight and uses it is on the stream.
                unsafe { self.pool.free(address) }
            }
            // Now, as the owner may register the memory again as soon as this is over.
            (MemoryKind::Host, Some(_registered)) => context.destroy(|| {
                // SAFETY: registered, and unregistered once; nothing that uses it is in flight.
                unsafe { call!(context.driver, hipHostUnregister(memory())) }
            }),
            (MemoryKind::Host, None) => {
                let addresses = context.addresses;
                context.releases.later(move |driver| {
                    let _addresses = addresses.hold_to_free(|| {
                        // It fails while an application records a stream: then the free waits longer.
                        // SAFETY: a device is current.
                        let _ = unsafe { call!(driver, hipDeviceSynchronize()) };
                    });
                    // SAFETY: allocated by `hipHostMalloc`, freed once; nothing that uses it is in flight.
                    unsafe { call!(driver, hipHostFree(memory())) }
                });
            }
        }
    }
}

/// Registers memory of the application's with the driver, if the device then sees it at the same address as
/// the host: says whether it does. Its pages then stay where they are, so that the device copies from and
/// to them itself, and kernels may use them. The caller has bound the context.
pub(super) fn register(context: &HipContext, memory: &UserMemory) -> Result<bool, HipFailure> {
    let driver = context.driver;
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    let _addresses = context.addresses.hold_to_allocate();
    let flags = hipHostRegisterPortable | hipHostRegisterMapped;
    // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
    unsafe { call!(driver, hipHostRegister(start, len, flags)) }?;
    if device_address(driver, start).is_ok_and(|address| address == start) {
        return Ok(true);
    }
    // SAFETY: registered above.
    unsafe { call!(driver, hipHostUnregister(start)) }?;
    Ok(false)
}

/// The driver's knowledge about an address.
#[derive(Default, Debug)]
struct HipAddressInfo {
    /// A number of `hipMemoryType`, which changed in version 6.
    kind: c_uint,
    is_managed: c_uint,
    /// The device's number.
    device: c_int,
    /// Of the allocation.
    start: usize,
    len: usize,
}

impl HipAddressInfo {
    fn query(context: &HipContext, address: usize) -> Result<Self, HipFailure> {
        let mut info = Self::default();
        let attributes: [(hipPointer_attribute, *mut c_void); 5] = [
            (HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut info.start).cast()),
            (HIP_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut info.len).cast()),
            (HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut info.kind).cast()),
            (HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut info.device).cast()),
            (HIP_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut info.is_managed).cast()),
        ];
        for (attribute, place) in attributes {
            let address = ptr::with_exposed_provenance_mut(address);
            // SAFETY: the place has the size of its attribute.
            unsafe { call!(context.driver, hipPointerGetAttribute(place, attribute, address)) }?;
        }
        Ok(info)
    }

    fn is_of_host(&self, version: c_int) -> bool {
        // `hipMemoryTypeHost`
        self.kind == if version >= 60_000_000 { 1 } else { 0 }
    }
}

/// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can use.
pub(super) fn check_address(context: &HipContext, address: usize, len: usize) -> Result<()> {
    let _bound = context.bind()?;
    let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
    let info = match HipAddressInfo::query(context, address) {
        Ok(info) => info,
        Err(failure) if failure.code == hipErrorInvalidValue => {
            return Err(invalid(format!("the driver knows no memory at {address:#x}")).help(
                "pass an address on the device; memory of the host has to be registered with the driver",
            ));
        }
        Err(failure) => return Err(failure.into()),
    };
    let own = context.device;
    if info.is_managed == 0 && !info.is_of_host(context.version) && info.device != own {
        let theirs = info.device;
        let why = format!("the memory at {address:#x} is of HIP device {theirs}, and this is device {own}");
        return Err(invalid(why).help("import it on its own device"));
    }
    let end = address.saturating_add(len);
    let known_to = info.start.saturating_add(info.len);
    if info.len > 0 && known_to < end {
        let there = known_to - address;
        let why = format!("the memory at {address:#x} ends after {there} bytes, and {len} are asked for");
        return Err(Error::new(ErrorKind::InvalidSize, why));
    }
    Ok(())
}
