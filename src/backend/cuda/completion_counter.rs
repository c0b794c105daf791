//! Completion counters: words in pinned memory in which a kernel of ours counts finished runs, so
//! that the host sees the end of a run without a driver call.
#![expect(unsafe_code, reason = "shares memory with the device")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::context::CudaContext;
use super::memory_pool::MemoryPool;
use super::sys::{CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, CUresult, CudaFailure, call};
use crate::types::{Error, ErrorKind, Result};

/// Counters are allocated in blocks of this many, each on a cache line of its own.
const COUNTERS_IN_BLOCK: usize = 64;
const CACHE_LINE: usize = 64;
const BLOCK_LEN: usize = COUNTERS_IN_BLOCK * CACHE_LINE;

/// All counters of a device. Their memory stays until the device goes: the host may poll a counter
/// late, and the device's last write may be late, too.
#[derive(Debug)]
pub(super) struct CounterPool {
    context: Arc<CudaContext>,
    pool: Arc<MemoryPool>,
    blocks: Mutex<Vec<CounterBlock>>,
    free: Mutex<Vec<FreeCounter>>,
}

/// Memory for counters: on the host the words that it polls, on the device the counts.
#[derive(Debug)]
struct CounterBlock {
    context: Arc<CudaContext>,
    pool: Arc<MemoryPool>,
    words: NonNull<c_void>,
    counts: CUdeviceptr,
}

// SAFETY: any thread may free the memory.
unsafe impl Send for CounterBlock {}

/// A counter that is not in use.
#[derive(Clone, Copy, Debug)]
struct FreeCounter {
    word: NonNull<AtomicU64>,
    count: CUdeviceptr,
    /// How many runs have been launched with it.
    launched: u64,
}

// SAFETY: it is an address of memory that stays, where an atomic is.
unsafe impl Send for FreeCounter {}

/// A counter in use. It goes back to the pool when it is dropped, which is not before every run that
/// counts in it is over.
#[derive(Debug)]
pub(super) struct CompletionCounter {
    /// Keeps the memory.
    pool: Arc<CounterPool>,
    word: NonNull<AtomicU64>,
    count: CUdeviceptr,
    launched: AtomicU64,
}

// SAFETY: as for `FreeCounter`.
unsafe impl Send for CompletionCounter {}
// SAFETY: as for `FreeCounter`.
unsafe impl Sync for CompletionCounter {}

/// A run that a counter tells the end of, and what the counter's word will be then.
pub(super) type CountedRun = (Arc<CompletionCounter>, u64);

impl CounterPool {
    pub(super) fn new(context: &Arc<CudaContext>, pool: &Arc<MemoryPool>) -> Self {
        let (context, pool) = (Arc::clone(context), Arc::clone(pool));
        Self { context, pool, blocks: Mutex::default(), free: Mutex::default() }
    }

    pub(super) fn take(self: &Arc<Self>) -> Result<CompletionCounter> {
        let mut free = self.free.lock();
        if free.is_empty() {
            let _bound = self.context.bind()?;
            let block = self.pool.retry_with_room(|| CounterBlock::allocate(&self.context, &self.pool))?;
            free.extend((0..COUNTERS_IN_BLOCK).map(|index| block.counter(index)));
            self.blocks.lock().push(block);
        }
        let taken = free.pop();
        let FreeCounter { word, count, launched } =
            taken.ok_or_else(|| Error::new(ErrorKind::Bug, "a block without counters"))?;
        Ok(CompletionCounter { pool: Arc::clone(self), word, count, launched: AtomicU64::new(launched) })
    }
}

impl CounterBlock {
    /// The caller has bound the context.
    fn allocate(context: &Arc<CudaContext>, pool: &Arc<MemoryPool>) -> Result<Self, CudaFailure> {
        let (driver, flags) = (context.driver, CU_MEMHOSTALLOC_PORTABLE);
        let mut words = ptr::null_mut();
        // SAFETY: the context is bound; the pointer is valid for a pointer.
        unsafe { call!(driver, cuMemHostAlloc(&raw mut words, BLOCK_LEN, flags)) }?;
        let Some(words) = NonNull::new(words) else {
            return Err(CudaFailure {
                call: "cuMemHostAlloc",
                code: CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32,
            });
        };
        // From here on the memory is freed when something fails.
        let mut block = Self { context: Arc::clone(context), pool: Arc::clone(pool), words, counts: 0 };
        // SAFETY: the memory is as long as that, and nothing else uses it yet.
        unsafe { ptr::write_bytes(words.as_ptr().cast::<u8>(), 0, BLOCK_LEN) };
        block.counts = pool.allocate(BLOCK_LEN)?;
        // SAFETY: as above.
        unsafe { pool.zero(block.counts, BLOCK_LEN) }?;
        Ok(block)
    }

    fn counter(&self, index: usize) -> FreeCounter {
        let offset = index * CACHE_LINE;
        // SAFETY: inside the block.
        let word = unsafe { self.words.byte_add(offset) }.cast();
        FreeCounter { word, count: self.counts + offset as CUdeviceptr, launched: 0 }
    }
}

impl Drop for CounterBlock {
    fn drop(&mut self) {
        self.context.destroy(|| {
            if self.counts != 0 {
                // SAFETY: allocated from the pool, freed once; nothing that uses it is in flight.
                unsafe { self.pool.free(self.counts) }?;
            }
            // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
            unsafe { call!(self.context.driver, cuMemFreeHost(self.words.as_ptr())) }
        });
    }
}

impl CompletionCounter {
    /// The addresses that the counting kernel takes: of the count on the device, of the word on the host.
    pub(super) fn addresses(&self) -> [u64; 2] {
        [self.count, self.word.as_ptr().expose_provenance() as u64]
    }

    /// One more run has been launched.
    pub(super) fn launched(self: &Arc<Self>) -> CountedRun {
        (Arc::clone(self), self.launched.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Whether so many runs are over.
    pub(super) fn has_reached(&self, runs: u64) -> bool {
        // SAFETY: the word stays as long as the pool.
        unsafe { self.word.as_ref() }.load(Ordering::Acquire) >= runs
    }
}

impl Drop for CompletionCounter {
    fn drop(&mut self) {
        let Self { word, count, .. } = *self;
        let launched = *self.launched.get_mut();
        self.pool.free.lock().push(FreeCounter { word, count, launched });
    }
}
