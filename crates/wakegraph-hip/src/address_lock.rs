//! Keeps allocations apart from frees of host memory, where there are several devices.
//!
//! The driver frees host memory once for each device: it frees what it finds at the address. From the second
//! device on it should find nothing. But once the first has freed the memory, the system may give the address
//! to another thread that allocates, and the driver frees that memory, too (5.7.1 and 6.4.3 do so).

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Of all devices: host memory belongs to all of them.
static ADDRESSES: RwLock<()> = RwLock::new(());

/// Held for each call that allocates, as instantiating a graph and loading code do, too, that registers
/// memory, or that frees host memory; not where there is only one device. Callers take it before the lock of
/// arguments, which launches need: so no launch waits for a free.
#[derive(Clone, Copy, Debug)]
pub(super) struct HipAddressLock {
    is_needed: bool,
}

impl HipAddressLock {
    pub(super) fn for_devices(count: usize) -> Self {
        Self { is_needed: count > 1 }
    }

    /// Waits until no memory of the host is being freed.
    pub(super) fn hold_to_allocate(self) -> Option<RwLockReadGuard<'static, ()>> {
        self.is_needed.then(|| ADDRESSES.read())
    }

    /// Calls `wait`, and then waits for all calls that allocate. A free waits for what runs on the device:
    /// with `wait` it does most of that before anyone has to wait for the lock.
    pub(super) fn hold_to_free(self, wait: impl FnOnce()) -> Option<RwLockWriteGuard<'static, ()>> {
        self.is_needed.then(|| {
            wait();
            ADDRESSES.write()
        })
    }
}
