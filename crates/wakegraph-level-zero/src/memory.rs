//! Memory: the device's own, or the host's that all devices of the driver see, in one address
//! space.
#![expect(unsafe_code, reason = "allocates, and accesses memory that the caller orders")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use wakegraph_hal::support::errors::{check_range, foreign};
use wakegraph_hal::support::memory::{DriverAllocation, DriverMemory};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, MemoryView, Result};

use super::context::LevelZeroContext;
use super::sys::{self, DriverResult, call, get};

/// Alignment of all memory, in bytes.
const ALIGN: usize = 128;

pub(super) type LevelZeroMemory = DriverMemory<LevelZeroAllocation>;

/// An allocation of the driver's.
#[derive(Debug)]
pub(super) struct LevelZeroAllocation {
    kind: MemoryKind,
    start: NonNull<u8>,
    context: Arc<LevelZeroContext>,
}

// SAFETY: the memory belongs to this object alone, and the methods that touch it are `unsafe` with
// the ordering of accesses as their contract.
unsafe impl Send for LevelZeroAllocation {}
// SAFETY: as for `Send`.
unsafe impl Sync for LevelZeroAllocation {}

impl Drop for LevelZeroAllocation {
    /// A driver that can do so puts the free off until nothing uses the memory.
    fn drop(&mut self) {
        let (context, start) = (&self.context, self.start.as_ptr().cast());
        let freed = if context.features.deferred_free {
            let mut desc = sys::ze_memory_free_ext_desc_t::new();
            desc.freePolicy = sys::ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE;
            // SAFETY: allocated in this context, freed once.
            unsafe { call!(context.api, zeMemFreeExt(context.raw(), &raw const desc, start)) }
        } else {
            // SAFETY: allocated in this context, freed once; nothing that uses it is in flight.
            unsafe { call!(context.api, zeMemFree(context.raw(), start)) }
        };
        if let Err(failure) = freed {
            let error = context.error(failure);
            tracing::warn!(target: "wakegraph::level_zero", %error, "memory could not be freed");
        }
    }
}

impl LevelZeroAllocation {
    /// The first byte, on the host and on all devices that can access the memory.
    pub(super) fn address(&self) -> usize {
        self.start.as_ptr().expose_provenance()
    }

    /// Whether commands on this device can use it.
    pub(super) fn is_open_to(&self, context: &LevelZeroContext) -> bool {
        self.context.shares_memory_with(context)
            && (self.kind == MemoryKind::Host || context.can_access(&self.context))
    }

    fn at(&self, offset: usize) -> *mut c_void {
        self.start.as_ptr().wrapping_add(offset).cast()
    }

    fn copy(&self, to: *mut c_void, from: *const c_void, len: usize) -> Result<()> {
        let copied = self.context.service(|api, list| {
            let (none, no_events) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the caller checked the ranges; both sides stay until the list has ended.
            unsafe { call!(api, zeCommandListAppendMemoryCopy(list, to, from, len, none, 0, no_events)) }
        });
        copied.map_err(|failure| self.context.error(failure))
    }
}

/// The memory behind a view, if a device of this driver made it.
pub(super) fn own_memory<'a>(
    context: &LevelZeroContext,
    view: &'a MemoryView,
) -> Option<&'a LevelZeroMemory> {
    LevelZeroMemory::of(view).ok().filter(|memory| memory.context.shares_memory_with(context))
}

fn allocate_device(context: &LevelZeroContext, len: usize) -> DriverResult<*mut c_void> {
    let mut relaxed = sys::ze_relaxed_allocation_limits_exp_desc_t::new();
    relaxed.flags = sys::ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE;
    let mut desc = sys::ze_device_mem_alloc_desc_t::new();
    if len > context.strict_allocation && context.features.relaxed_limits {
        desc.pNext = (&raw const relaxed).cast();
    }
    let (raw, desc) = (context.raw(), &raw const desc);
    // SAFETY: context and device are of one driver, and the structures live through the call.
    unsafe { get!(context.api, zeMemAllocDevice(raw, desc, len, ALIGN, context.device)) }
}

fn allocate_host(context: &LevelZeroContext, len: usize) -> DriverResult<*mut c_void> {
    let (raw, desc) = (context.raw(), sys::ze_host_mem_alloc_desc_t::new());
    // SAFETY: the context is alive.
    unsafe { get!(context.api, zeMemAllocHost(raw, &raw const desc, len, ALIGN)) }
}

/// Where copies on the device find a view: memory of the same driver, or any other host memory,
/// which the driver copies from and to as it does with plain memory.
pub(super) fn copy_address(context: &LevelZeroContext, view: &MemoryView) -> Result<usize> {
    let start = match own_memory(context, view) {
        Some(memory) => Some(memory.address()),
        None if view.memory().kind() == MemoryKind::Host => {
            view.memory().host_ptr().map(|start| start.as_ptr().expose_provenance())
        }
        None => None,
    };
    start.map(|start| start + view.offset()).ok_or_else(|| foreign("memory"))
}

/// Checks that the driver knows memory of `len` bytes at an address.
pub(super) fn check_address(context: &LevelZeroContext, address: usize, len: usize) -> Result<()> {
    let (raw, address) = (context.raw(), ptr::with_exposed_provenance(address));
    let (mut properties, mut device) = (sys::ze_memory_allocation_properties_t::new(), ptr::null_mut());
    let places = (&raw mut properties, &raw mut device);
    // SAFETY: the driver accepts any address, and both places are valid.
    unsafe { call!(context.api, zeMemGetAllocProperties(raw, address, places.0, places.1)) }?;
    if properties.type_ == sys::ZE_MEMORY_TYPE_UNKNOWN {
        let why = format!("the driver knows no memory at {address:p}");
        return Err(Error::new(ErrorKind::InvalidArgument, why)
            .help("give an address that Level Zero has allocated in the context of this device"));
    }
    let (mut start, mut size) = (ptr::null_mut::<c_void>(), 0);
    let places = (&raw mut start, &raw mut size);
    // SAFETY: as above.
    unsafe { call!(context.api, zeMemGetAddressRange(raw, address, places.0, places.1)) }?;
    check_range(address.addr().saturating_sub(start.addr()), len, size)
}

impl DriverAllocation for LevelZeroAllocation {
    type Context = LevelZeroContext;

    fn allocate(context: &Arc<LevelZeroContext>, desc: &MemoryDesc) -> Result<Self> {
        let MemoryDesc { len, kind, zeroed } = *desc;
        let start = match kind {
            MemoryKind::Device => allocate_device(context, len),
            MemoryKind::Host => allocate_host(context, len),
        };
        let start = start.map_err(|failure| {
            let error = Error::from(failure);
            match error.kind() {
                ErrorKind::OutOfMemory => {
                    let most = context.capabilities.max_allocation;
                    let why = format!("{len} bytes cannot be allocated; the most at once is {most}");
                    Error::new(ErrorKind::OutOfMemory, why)
                        .help("free memory, or work in smaller pieces")
                        .caused_by(error)
                }
                _ => error,
            }
        })?;
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(Error::new(ErrorKind::OutOfMemory, format!("{len} bytes cannot be allocated")));
        };
        // From here on the memory is freed when something fails.
        let memory = Self { kind, start, context: Arc::clone(context) };
        match kind {
            _ if !zeroed => {}
            MemoryKind::Device => context.service(|api, list| {
                let (start, zero) = (start.as_ptr().cast(), 0u8);
                let (zero, none) = ((&raw const zero).cast(), ptr::null_mut());
                // SAFETY: the memory has `len` bytes; the pattern stays until the list has ended.
                unsafe {
                    call!(api, zeCommandListAppendMemoryFill(list, start, zero, 1, len, none, 0, none.cast()))
                }
            })?,
            // SAFETY: the memory has `len` bytes, and nothing else uses it yet.
            MemoryKind::Host => unsafe { start.write_bytes(0, len) },
        }
        Ok(memory)
    }

    fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    fn host_start(&self) -> Option<NonNull<u8>> {
        (self.kind == MemoryKind::Host).then_some(self.start)
    }

    fn usm_address(&self) -> Option<usize> {
        Some(self.address())
    }

    unsafe fn write_by_driver(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.copy(self.at(offset), bytes.as_ptr().cast(), bytes.len())
    }

    unsafe fn read_by_driver(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.copy(bytes.as_mut_ptr().cast(), self.at(offset), bytes.len())
    }
}
