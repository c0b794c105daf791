//! An allocator that counts, over all threads. Switched off it costs a load per allocation.
#![expect(unsafe_code, reason = "implements GlobalAlloc by passing on to the system's")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// The system's allocator, counting while switched on.
#[derive(Debug)]
pub struct Counting;

/// What was counted since [`start`].
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// Allocations, growing ones included.
    pub allocations: u64,
    /// Bytes allocated less bytes freed.
    pub bytes: i64,
}

static ON: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicI64 = AtomicI64::new(0);

/// Counts from zero.
pub fn start() {
    ALLOCATIONS.store(0, Relaxed);
    BYTES.store(0, Relaxed);
    ON.store(true, Relaxed);
}

/// What has been counted so far.
pub fn so_far() -> Count {
    Count { allocations: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed) }
}

/// Stops counting.
pub fn stop() -> Count {
    ON.store(false, Relaxed);
    so_far()
}

fn count(allocations: u64, bytes: i64) {
    if ON.load(Relaxed) {
        ALLOCATIONS.fetch_add(allocations, Relaxed);
        BYTES.fetch_add(bytes, Relaxed);
    }
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises are the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: as for `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(1, size as i64 - layout.size() as i64);
        // SAFETY: as for `alloc`.
        unsafe { System.realloc(block, layout, size) }
    }
}
