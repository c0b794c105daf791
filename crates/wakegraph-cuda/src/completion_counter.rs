//! Completion counters: words in pinned memory in which a kernel of ours counts finished runs, so
//! that the host sees the end of a run without a driver call.
#![expect(unsafe_code, reason = "shares memory with the device")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::support::streams::CountedEnd;
use wakegraph_hal::{Error, ErrorKind, MemoryKind, Result};

use super::allocation::CudaAllocation;
use super::memory_pool::MemoryPool;
use super::sys::CUdeviceptr;

/// Counters are allocated in blocks of this many, each on a cache line of its own.
const COUNTERS_IN_BLOCK: usize = 64;
const CACHE_LINE: usize = 64;
/// Where the spare words begin in it.
const SPARE: usize = 32;

/// All counters of a device. Their memory stays until the device goes: the host may poll a counter
/// late, and the device's last write may be late, too.
#[derive(Debug)]
pub(super) struct CounterPool {
    pool: Arc<MemoryPool>,
    slots: Mutex<CounterSlots>,
}

#[derive(Default, Debug)]
struct CounterSlots {
    free: Vec<CounterSlot>,
    /// Each block is two allocations: on the host the words that it polls, on the device the
    /// counts.
    blocks: Vec<[CudaAllocation; 2]>,
}

/// Where a counter counts.
#[derive(Clone, Copy, Debug)]
struct CounterSlot {
    word: *const AtomicU64,
    count: CUdeviceptr,
    /// How many runs had been launched with it before it was taken.
    launched: u64,
}

// SAFETY: it has the address of an atomic in memory that stays.
unsafe impl Send for CounterSlot {}
// SAFETY: as for `Send`.
unsafe impl Sync for CounterSlot {}

/// A counter in use. It goes back to the pool when it is dropped, which is not before every run
/// that counts in it is over.
#[derive(Debug)]
pub(super) struct CompletionCounter {
    /// Keeps the memory.
    pool: Arc<CounterPool>,
    slot: CounterSlot,
    /// How many runs have been launched with it.
    launched: AtomicU64,
}

/// A run that a counter tells the end of.
#[derive(Debug)]
pub(super) struct CountedRun {
    counter: Arc<CompletionCounter>,
    /// What the counter's word will be then.
    runs: u64,
}

impl CounterPool {
    pub(super) fn new(pool: &Arc<MemoryPool>) -> Self {
        Self { pool: Arc::clone(pool), slots: Mutex::default() }
    }

    pub(super) fn take(self: &Arc<Self>) -> Result<CompletionCounter> {
        let mut slots = self.slots.lock();
        if slots.free.is_empty() {
            let block = |kind| CudaAllocation::zeroed(&self.pool, kind, COUNTERS_IN_BLOCK * CACHE_LINE);
            let block = [block(MemoryKind::Host)?, block(MemoryKind::Device)?];
            slots.free.extend((0..COUNTERS_IN_BLOCK).map(|index| {
                let [word, count] = block.each_ref().map(|part| part.address + (index * CACHE_LINE) as u64);
                CounterSlot { word: word as *const AtomicU64, count, launched: 0 }
            }));
            slots.blocks.push(block);
        }
        let slot = slots.free.pop().ok_or_else(|| Error::new(ErrorKind::Bug, "a block without counters"))?;
        Ok(CompletionCounter { pool: Arc::clone(self), slot, launched: AtomicU64::new(slot.launched) })
    }
}

impl CompletionCounter {
    /// The addresses that the counting kernel takes: of the count on the device, of the word on the
    /// host.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.slot.count, self.slot.word as u64]
    }

    /// Words that lie beside those of the counter: two on the host, one on the device. They hold anything.
    pub(super) fn spare_words(&self) -> ([&AtomicU32; 2], CUdeviceptr) {
        let spare = self.slot.word.wrapping_byte_add(SPARE).cast::<AtomicU32>();
        let word = |index| {
            // SAFETY: the cache line stays as long as the pool. This part of it is changed by whole words.
            unsafe { &*spare.wrapping_add(index) }
        };
        ([word(0), word(1)], self.slot.count + SPARE as u64)
    }

    /// One more run has been launched.
    pub(super) fn launched(self: &Arc<Self>) -> CountedRun {
        let runs = self.launched.fetch_add(1, Ordering::Relaxed) + 1;
        CountedRun { counter: Arc::clone(self), runs }
    }

    /// Whether so many runs are over.
    fn has_reached(&self, runs: u64) -> bool {
        // SAFETY: the word stays as long as the pool, and is changed by atomic stores only.
        unsafe { &*self.slot.word }.load(Ordering::Acquire) >= runs
    }
}

impl CountedEnd for CountedRun {
    fn is_over(&self) -> bool {
        self.counter.has_reached(self.runs)
    }
}

impl Drop for CompletionCounter {
    fn drop(&mut self) {
        let launched = *self.launched.get_mut();
        self.pool.slots.lock().free.push(CounterSlot { launched, ..self.slot });
    }
}
