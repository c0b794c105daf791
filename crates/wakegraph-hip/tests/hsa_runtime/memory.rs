//! Address ranges that agents may touch: allocations, and memory of the program that it has locked.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use crate::agents::Agent;
use crate::settings::{abort, delay};

const PAGE: usize = 4096;

/// A range that agents may touch.
#[derive(Clone)]
pub(crate) struct Region {
    pub(crate) base: usize,
    pub(crate) bytes: usize,
    /// The pool it came from; 0 for memory that was locked.
    pub(crate) pool: u64,
    /// The agents that may touch it, besides those that its pool names.
    pub(crate) access: Vec<Agent>,
    /// How many times it has been locked.
    locks: usize,
}

static REGIONS: Mutex<BTreeMap<usize, Region>> = Mutex::new(BTreeMap::new());

fn regions() -> MutexGuard<'static, BTreeMap<usize, Region>> {
    REGIONS.lock().unwrap()
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, bytes: usize, access: i32, flags: i32, file: i32, offset: i64) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> i32;
    fn mprotect(at: *mut c_void, bytes: usize, access: i32) -> i32;
}

/// Pages that nothing else has, between two that nobody may touch.
pub(crate) fn allocate(bytes: usize, pool: u64) -> Option<usize> {
    const READ_WRITE: i32 = 3;
    const PRIVATE_ANONYMOUS: i32 = 0x22;
    let bytes = bytes.max(1).checked_next_multiple_of(PAGE)?;
    let whole = bytes.checked_add(2 * PAGE)?;
    // SAFETY: new pages.
    let at = unsafe { mmap(std::ptr::null_mut(), whole, 0, PRIVATE_ANONYMOUS, -1, 0) } as usize;
    if at == usize::MAX {
        return None;
    }
    let base = at + PAGE;
    // SAFETY: pages of this mapping.
    let made = unsafe { mprotect(base as *mut c_void, bytes, READ_WRITE) };
    assert_eq!(made, 0, "mprotect");
    regions().insert(base, Region { base, bytes, pool, access: Vec::new(), locks: 0 });
    Some(base)
}

/// Gives pages back; false where none were allocated.
pub(crate) fn free(base: usize) -> bool {
    let Some(region) = regions().remove(&base).filter(|region| region.pool != 0) else { return false };
    // SAFETY: the mapping that `allocate` made, which nothing refers to any more.
    let freed = unsafe { munmap((base - PAGE) as *mut c_void, region.bytes + 2 * PAGE) };
    // The address may be another thread's before the caller goes on.
    delay();
    freed == 0
}

/// Lets agents touch memory of the program.
pub(crate) fn lock(base: usize, bytes: usize) {
    let mut regions = regions();
    let region = regions.entry(base).or_insert(Region { base, bytes, pool: 0, access: Vec::new(), locks: 0 });
    region.bytes = region.bytes.max(bytes);
    region.locks += 1;
}

/// The reverse of `lock`.
pub(crate) fn unlock(base: usize) -> bool {
    let mut regions = regions();
    let Some(region) = regions.get_mut(&base).filter(|region| region.locks > 0) else { return false };
    region.locks -= 1;
    if region.locks == 0 && region.pool == 0 {
        regions.remove(&base);
    }
    true
}

/// The region that an address lies in.
pub(crate) fn region_of(address: usize) -> Option<Region> {
    let regions = regions();
    // Locked regions may overlap, so the nearest that begins before the address need not be the
    // one.
    regions
        .range(..=address)
        .rev()
        .take(16)
        .map(|(_, region)| region)
        .find(|region| address - region.base < region.bytes)
        .cloned()
}

/// Lets further agents touch an allocation.
pub(crate) fn allow(base: usize, agents: &[Agent]) -> bool {
    let mut regions = regions();
    let Some((_, region)) = regions.range_mut(..=base).next_back() else { return false };
    if base - region.base >= region.bytes {
        return false;
    }
    region.access = agents.to_vec();
    true
}

/// How many bytes of a pool are in use.
pub(crate) fn used(pool: u64) -> usize {
    regions().values().filter(|region| region.pool == pool).map(|region| region.bytes).sum()
}

/// Ends the process unless the whole range is one that agents may touch.
pub(crate) fn require(address: usize, bytes: usize, what: &str) {
    let inside = region_of(address).is_some_and(|region| bytes <= region.bytes - (address - region.base));
    if bytes > 0 && !inside {
        abort(format_args!("{what} touches {bytes} bytes at {address:#x}, which are not allocated"));
    }
}
