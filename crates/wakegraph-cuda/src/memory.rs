//! Memory: where that of the device comes from, allocations, registered memory of the application's, and
//! addresses of other libraries that use the same driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, MemoryStream, StreamAllocation, retry_with_room};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, Result, UserMemory};

use super::context::{CudaContext, CudaObject};
use super::free_blocks::FreeBlocks;
use super::sys::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_HANDLE_TYPE_NONE, CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE,
    CU_MEMHOSTREGISTER_READ_ONLY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CUdevice, CUdeviceptr,
    CUmemAccessDesc, CUmemLocation, CUmemPoolHandle_st, CUmemPoolProps, CUmemorytype, CudaFailure, call, get,
};

/// Source of device memory that keeps freed memory for later allocations, in the order of a stream of the
/// device's own.
#[derive(Debug)]
pub(super) struct MemoryPool {
    source: PoolSource,
    /// For allocations, reads and writes: they must not queue behind the user's work.
    pub(super) stream: MemoryStream<CudaContext>,
}

/// Source of a pool's memory, which keeps what is freed.
#[derive(Debug)]
enum PoolSource {
    /// A pool of the driver's.
    Driver(CudaObject<CUmemPoolHandle_st>),
    /// Blocks of our own, on devices without pools.
    Blocks(FreeBlocks),
}

/// Whether `WAKEGRAPH_CUDA_POOLS` is `never`: every device is used as one without memory pools.
fn pools_are_forbidden() -> bool {
    match std::env::var("WAKEGRAPH_CUDA_POOLS").as_deref() {
        Ok("never") => true,
        Ok(value) => {
            let why = "WAKEGRAPH_CUDA_POOLS is not `never`, and ignored";
            tracing::warn!(target: "wakegraph::cuda", value, "{why}");
            false
        }
        Err(_) => false,
    }
}

fn on_device(device: c_int) -> CUmemLocation {
    CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// A pool that keeps freed memory for later allocations.
fn create_pool(context: &Arc<CudaContext>) -> Result<CudaObject<CUmemPoolHandle_st>, CudaFailure> {
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
    Ok(pool)
}

impl MemoryPool {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        let has_pools = context.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? != 0;
        let source = match has_pools && !pools_are_forbidden() {
            true => PoolSource::Driver(create_pool(context)?),
            false => PoolSource::Blocks(FreeBlocks::create(context)?),
        };
        Ok(Self { source, stream: MemoryStream::create(context)? })
    }

    pub(super) fn context(&self) -> &Arc<CudaContext> {
        self.stream.context()
    }

    /// Memory of this many bytes, which are not 0. The caller has bound the context.
    fn allocate(&self, len: usize) -> Result<CUdeviceptr, CudaFailure> {
        match &self.source {
            PoolSource::Driver(pool) => {
                // SAFETY: pool and stream are of one device.
                unsafe { get!(pool.driver(), cuMemAllocFromPoolAsync(len, pool.raw(), self.stream.raw())) }
            }
            PoolSource::Blocks(blocks) => blocks.allocate(len),
        }
    }

    /// Frees memory of this length that [`allocate`](Self::allocate) has given, without waiting. The caller
    /// has bound the context.
    ///
    /// # Safety
    /// The memory is freed once, and nothing but what is on the stream uses it.
    unsafe fn free(&self, address: CUdeviceptr, len: usize) -> Result<(), CudaFailure> {
        match &self.source {
            PoolSource::Driver(pool) => {
                // SAFETY: passed on to the caller.
                unsafe { call!(pool.driver(), cuMemFreeAsync(address, self.stream.raw())) }
            }
            PoolSource::Blocks(blocks) => {
                // Whoever gets the block uses it behind what is on the stream now.
                // SAFETY: passed on to the caller.
                unsafe { blocks.keep(address, len) };
                Ok(())
            }
        }
    }

    /// Lets another device use the memory, as far as a pool needs to know.
    pub(super) fn open_to(&self, peer: &CudaContext) -> Result<(), CudaFailure> {
        let PoolSource::Driver(pool) = &self.source else { return Ok(()) };
        let _bound = self.context().bind()?;
        let access =
            CUmemAccessDesc { location: on_device(peer.device), flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the pool is alive; there is one description.
        unsafe { call!(pool.driver(), cuMemPoolSetAccess(pool.raw(), &raw const access, 1)) }
    }

    /// Returns unused memory to the system, once everything on the stream is done. The caller has
    /// bound the context.
    pub(super) fn trim(&self) -> Result<(), CudaFailure> {
        self.stream.synchronize()?;
        match &self.source {
            PoolSource::Driver(pool) => {
                // SAFETY: the pool is alive.
                unsafe { call!(pool.driver(), cuMemPoolTrimTo(pool.raw(), 0)) }
            }
            PoolSource::Blocks(blocks) => {
                blocks.trim();
                Ok(())
            }
        }
    }
}

/// Memory of the device, or pinned memory of the host; freed when dropped. The host and all devices share one
/// address space.
#[derive(Debug)]
pub(super) struct CudaAllocation {
    pub(super) address: CUdeviceptr,
    pub(super) kind: MemoryKind,
    len: usize,
    /// The number on the memory stream, of memory of the device.
    number: u64,
    pool: Arc<MemoryPool>,
    /// Memory of the application's, which is not freed but unregistered, and then dropped.
    registered: Option<UserMemory>,
}

impl CudaAllocation {
    /// Memory as described, of a length that is not 0. No call waits for the device.
    pub(super) fn create(pool: &Arc<MemoryPool>, desc: &MemoryDesc) -> Result<Self> {
        let (MemoryDesc { len, kind, zeroed }, context, stream) = (*desc, pool.context(), &pool.stream);
        let (driver, _bound) = (context.driver, context.bind()?);
        // Memory may run out while what is kept is in pieces that are too small.
        let room = || pool.trim();
        let address = retry_with_room(room, || match kind {
            MemoryKind::Device => pool.allocate(len),
            MemoryKind::Host => {
                // SAFETY: the context is bound.
                let start = unsafe { get!(driver, cuMemHostAlloc(len, CU_MEMHOSTALLOC_PORTABLE)) };
                start.map(|start: *mut c_void| start as CUdeviceptr)
            }
        })?;
        // From here on the memory is freed when something fails.
        let pool = Arc::clone(pool);
        let mut allocation = Self { address, kind, len, number: 0, pool, registered: None };
        match kind {
            MemoryKind::Device => {
                if zeroed {
                    // SAFETY: the memory is as long as that, and all uses of it come later on the stream, or
                    // behind the allocation when it is counted.
                    unsafe { call!(driver, cuMemsetD8Async(address, 0, len, stream.raw())) }?;
                }
                allocation.number = stream.count_allocation();
            }
            MemoryKind::Host if zeroed => {
                // SAFETY: the memory is as long as that, and nothing else uses it yet.
                unsafe { ptr::write_bytes(address as *mut u8, 0, len) }
            }
            MemoryKind::Host => {}
        }
        Ok(allocation)
    }

    /// Memory that has been registered with the driver.
    pub(super) fn registered(pool: &Arc<MemoryPool>, memory: UserMemory) -> Self {
        let address = memory.start().as_ptr().expose_provenance() as CUdeviceptr;
        let (len, pool, registered) = (memory.len(), Arc::clone(pool), Some(memory));
        Self { address, kind: MemoryKind::Host, len, number: 0, pool, registered }
    }
}

impl StreamAllocation for CudaAllocation {
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

impl Drop for CudaAllocation {
    fn drop(&mut self) {
        let (context, address) = (self.pool.context(), self.address);
        context.destroy(|| match self.kind {
            // SAFETY: allocated there, freed once; what is in flight and uses it is on the stream.
            MemoryKind::Device => unsafe { self.pool.free(address, self.len) },
            MemoryKind::Host if self.registered.is_some() => {
                // SAFETY: registered, and unregistered once; nothing that uses it is in flight.
                unsafe { call!(context.driver, cuMemHostUnregister(address as *mut c_void)) }
            }
            // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
            MemoryKind::Host => unsafe { call!(context.driver, cuMemFreeHost(address as *mut c_void)) },
        });
    }
}

/// Registers memory of the application's with the driver, if the hardware can: says whether it does. Its
/// pages then stay where they are, so that the device copies from and to them itself, and kernels may use
/// them. Some hardware cannot register files that are mapped for reading only. The caller has bound the
/// context.
pub(super) fn register(context: &CudaContext, memory: &UserMemory) -> Result<bool, CudaFailure> {
    if context.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? == 0 {
        return Ok(false);
    }
    let mut flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if memory.is_read_only() && context.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)? != 0
    {
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    }
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
    unsafe { call!(context.driver, cuMemHostRegister(start, len, flags)) }.map(|()| true)
}

/// The driver's knowledge about an address.
#[derive(Default, Debug)]
struct AddressInfo {
    /// 0 for memory that the driver does not know.
    kind: CUmemorytype,
    context: usize,
    pool: usize,
    is_managed: c_uint,
    /// The device's number.
    device: c_int,
    /// Of the allocation.
    start: CUdeviceptr,
    /// 0 if the driver does not say.
    len: usize,
}

impl AddressInfo {
    fn query(context: &CudaContext, address: CUdeviceptr) -> Result<Self, CudaFailure> {
        let mut info = Self::default();
        let attributes = [
            (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut info.kind).cast::<c_void>()),
            (CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut info.context).cast()),
            (CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (&raw mut info.pool).cast()),
            (CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut info.is_managed).cast()),
            (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut info.device).cast()),
            (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut info.start).cast()),
            (CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut info.len).cast()),
        ];
        let (names, places) = (attributes.map(|(name, _)| name), attributes.map(|(_, place)| place));
        let (count, names, places) = (attributes.len() as c_uint, names.as_ptr(), places.as_ptr());
        // SAFETY: each place has the size of its attribute.
        unsafe { call!(context.driver, cuPointerGetAttributes(count, names, places, address)) }?;
        Ok(info)
    }

    fn end(&self) -> CUdeviceptr {
        self.start.saturating_add(self.len as CUdeviceptr)
    }

    /// Whether the memory is mapped in parts, so that what follows may belong to it.
    fn is_mapped(&self) -> bool {
        self.context == 0 && self.pool == 0 && self.is_managed == 0 && self.kind == CU_MEMORYTYPE_DEVICE
    }
}

/// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can use.
pub(super) fn check_address(context: &CudaContext, address: usize, len: usize) -> Result<()> {
    let _bound = context.bind()?;
    let mut part = AddressInfo::query(context, address as CUdeviceptr)?;
    check_owner(context.device, &part, address)?;
    let end = (address as CUdeviceptr).saturating_add(len as CUdeviceptr);
    let mut known_to = part.end();
    while part.len > 0 && known_to < end {
        let is_mapped = part.is_mapped();
        part = AddressInfo::query(context, known_to)?;
        if !is_mapped || !part.is_mapped() || part.end() <= known_to {
            let there = known_to - address as CUdeviceptr;
            let why = format!("the memory at {address:#x} ends after {there} bytes, and {len} are asked for");
            return Err(Error::new(ErrorKind::InvalidSize, why));
        }
        known_to = part.end();
    }
    Ok(())
}

fn check_owner(own: CUdevice, info: &AddressInfo, address: usize) -> Result<()> {
    let (why, help) = match info.kind {
        _ if info.is_managed != 0 => return Ok(()),
        CU_MEMORYTYPE_HOST => return Ok(()),
        CU_MEMORYTYPE_DEVICE if info.device == own => return Ok(()),
        CU_MEMORYTYPE_DEVICE => (
            format!("the memory at {address:#x} is of CUDA device {}, and this is device {own}", info.device),
            "import it on its own device",
        ),
        _ => (
            format!("the driver knows no memory at {address:#x}"),
            "pass an address on the device; memory of the host has to be registered with the driver",
        ),
    };
    Err(Error::new(ErrorKind::InvalidArgument, why).help(help))
}
