//! Allocations: memory of the device, or pinned memory of the host.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::streams::{DriverContext as _, StreamAllocation};
use wakegraph_hal::{Error, ErrorKind, MemoryKind, Result, UserMemory};

use super::memory_pool::HipMemoryPool;
use super::sys::{
    Driver, HipFailure, call, get, hipHostMallocCoherent, hipHostMallocMapped, hipHostMallocPortable,
};

/// Memory, freed after it is dropped. The host and all devices share one address space.
#[derive(Debug)]
pub(super) struct HipAllocation {
    pub(super) address: u64,
    pub(super) kind: MemoryKind,
    pool: Arc<HipMemoryPool>,
    /// Memory of the application's, which is not freed but unregistered, and then dropped.
    registered: Option<UserMemory>,
}

/// Coherent, as the environment decides otherwise: other memory is up to date on the host only
/// after a synchronization.
const HOST_FLAGS: u32 = hipHostMallocPortable | hipHostMallocMapped | hipHostMallocCoherent;

impl HipAllocation {
    /// Zeroed memory of this many bytes, which are not 0.
    pub(super) fn zeroed(pool: &Arc<HipMemoryPool>, kind: MemoryKind, len: usize) -> Result<Self> {
        let (context, stream) = (pool.context(), &pool.stream);
        let (driver, _bound) = (context.driver, context.bind()?);
        // The pool may run out of memory while what it keeps is in pieces that are too small.
        let start = pool.retry_with_room(|| match kind {
            MemoryKind::Device => pool.allocate(len),
            MemoryKind::Host => {
                let _addresses = context.addresses.hold_to_allocate();
                // SAFETY: the context is bound.
                unsafe { get!(driver, hipHostMalloc(len, HOST_FLAGS)) }
            }
        })?;
        // From here on the memory is freed when something fails.
        let address = start.expose_provenance() as u64;
        let memory = Self { address, kind, pool: Arc::clone(pool), registered: None };
        match kind {
            MemoryKind::Device => {
                // SAFETY: the memory is as long as that, and nothing else uses it yet.
                unsafe { call!(driver, hipMemsetAsync(start, 0, len, stream.raw())) }?;
                stream.synchronize()?;
            }
            MemoryKind::Host => {
                if device_address(driver, start)? != start {
                    let why = "the device sees the host's memory at other addresses than the host";
                    return Err(Error::new(ErrorKind::FeatureNotSupported, why));
                }
                // SAFETY: as above.
                unsafe { ptr::write_bytes(start.cast::<u8>(), 0, len) }
            }
        }
        Ok(memory)
    }

    /// Memory that has been registered with the driver.
    pub(super) fn registered(pool: &Arc<HipMemoryPool>, memory: UserMemory) -> Self {
        let address = memory.start().as_ptr().expose_provenance() as u64;
        Self { address, kind: MemoryKind::Host, pool: Arc::clone(pool), registered: Some(memory) }
    }
}

/// The address at which the current device sees memory of the host that the driver knows.
pub(super) fn device_address(driver: &Driver, start: *mut c_void) -> Result<*mut c_void, HipFailure> {
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
}

impl Drop for HipAllocation {
    fn drop(&mut self) {
        let address = self.address;
        let memory = move || ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        let context = self.pool.context();
        match (self.kind, self.registered.take()) {
            (MemoryKind::Device, _) => {
                // SAFETY: allocated by the pool, freed once; nothing that uses it is in flight.
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
