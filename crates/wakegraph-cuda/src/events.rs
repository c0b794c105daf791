//! Words in pinned memory by which the host and a run that is on the device tell each other something
//! without a driver call: that the run has ended, and that its loops are to stop.
#![expect(unsafe_code, reason = "shares memory with the device")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::support::streams::{CountedEnd, StoppableLoops};
use wakegraph_hal::{Error, ErrorKind, MemoryDesc, MemoryKind, Result};

use super::context::CudaStream;
use super::memory::{CudaAllocation, MemoryPool};
use super::sys::{CUdeviceptr, CudaFailure, call};

/// Counters are allocated in blocks of this many, each on a cache line of its own.
const COUNTERS_IN_BLOCK: usize = 64;
const CACHE_LINE: usize = 64;
/// Place where the spare words begin in it.
const SPARE: usize = 32;

/// All completion counters of a device: words in pinned memory in which a kernel of ours counts runs that
/// have ended. Their memory stays until the device goes: the host may poll a counter late, and the device's
/// last write may be late, too.
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

/// The place where a counter counts.
#[derive(Clone, Copy, Debug)]
struct CounterSlot {
    word: *const AtomicU64,
    count: CUdeviceptr,
    /// Number of runs that had been launched with it before it was taken.
    launched: u64,
}

// SAFETY: it has the address of an atomic in memory that stays.
unsafe impl Send for CounterSlot {}
// SAFETY: as for `Send`.
unsafe impl Sync for CounterSlot {}

/// A counter in use. It goes back to the pool when it is dropped, which is not before every run
/// that counts in it has ended.
#[derive(Debug)]
pub(super) struct CompletionCounter {
    /// Keeps the memory.
    pool: Arc<CounterPool>,
    slot: CounterSlot,
    /// Number of runs that have been launched with it.
    launched: AtomicU64,
}

/// A run that a counter tells the end of.
#[derive(Debug)]
pub(super) struct CountedRun {
    counter: Arc<CompletionCounter>,
    /// The counter's word then.
    runs: u64,
}

impl CounterPool {
    pub(super) fn new(pool: &Arc<MemoryPool>) -> Self {
        Self { pool: Arc::clone(pool), slots: Mutex::default() }
    }

    pub(super) fn take(self: &Arc<Self>) -> Result<CompletionCounter> {
        let mut slots = self.slots.lock();
        if slots.free.is_empty() {
            let desc = |kind| MemoryDesc::new(COUNTERS_IN_BLOCK * CACHE_LINE, kind);
            let block = |kind| CudaAllocation::create(&self.pool, &desc(kind));
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
    fn spare_words(&self) -> ([&AtomicU32; 2], CUdeviceptr) {
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

    /// Whether this many runs have ended.
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

/// Stops the loops of a graph's runs about which the device decides.
///
/// Each run of a graph with loops has a number, which a memset before the launch writes to a word on the
/// device. The kernel that decides about a loop compares it with a word in pinned memory, where the host
/// writes the number of the run whose loops are to end. So a word that is written late never ends the loops
/// of a later run. The runs of a graph come one after the other, and one word serves all of them: it has
/// the number of the earliest run that has been asked to stop and is not known to have ended.
///
/// The kernel reads both words and the flag at the same time. The host's memory is about a microsecond away.
#[derive(Debug)]
pub(super) struct LoopStop {
    /// Spare words are, on the host, the number of the run that is to stop, and of the last run that the
    /// device has stopped; on the device, the number of the run that is there.
    words: CompletionCounter,
    launched: AtomicU64,
    /// The runs that have been asked to stop and are not known to have ended.
    asked: Mutex<BTreeSet<u64>>,
}

/// A run that can be stopped.
#[derive(Debug)]
pub(super) struct StoppableRun {
    stop: Arc<LoopStop>,
    run: u64,
    state: AtomicU8,
}

/// No caller has asked the run to stop.
const RUNNING: u8 = 0;
/// A caller has.
const ASKED: u8 = 1;
/// It has ended.
const ENDED: u8 = 2;

impl LoopStop {
    pub(super) fn create(pool: &Arc<CounterPool>) -> Result<Self> {
        let words = pool.take()?;
        words.spare_words().0.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        Ok(Self { words, launched: AtomicU64::new(0), asked: Mutex::default() })
    }

    /// Arguments of the deciding kernel: the addresses of the run's number on the device, and of the number
    /// of the run that is to stop. The device answers in the word behind the latter.
    pub(super) fn addresses(&self) -> [u64; 2] {
        let ([asked, _], run) = self.words.spare_words();
        [run, asked.as_ptr().expose_provenance() as u64]
    }

    /// Begins a run, whose launch comes next on the stream, where all earlier runs have ended by then. The
    /// caller has bound the context.
    pub(super) fn begin_run(self: &Arc<Self>, stream: &CudaStream) -> Result<StoppableRun, CudaFailure> {
        let run = self.launched.fetch_add(1, Ordering::Relaxed);
        let (_, place) = self.words.spare_words();
        // SAFETY: the word stays as long as the device.
        unsafe { call!(stream.driver(), cuMemsetD32Async(place, number(run), 1, stream.raw())) }?;
        Ok(StoppableRun { stop: Arc::clone(self), run, state: AtomicU8::new(RUNNING) })
    }

    /// Tells the device which run is to stop.
    fn show(&self, asked: &BTreeSet<u64>) {
        let ([shown, _], _) = self.words.spare_words();
        shown.store(asked.first().map_or(0, |&run| number(run)), Ordering::Release);
    }
}

/// The number that the device has for a run, which is not 0.
fn number(run: u64) -> u32 {
    (run % u64::from(u32::MAX)) as u32 + 1
}

impl StoppableLoops for StoppableRun {
    fn stop(&self) {
        let mut asked = self.stop.asked.lock();
        if self.state.compare_exchange(RUNNING, ASKED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            asked.insert(self.run);
            self.stop.show(&asked);
        }
    }

    fn have_been_stopped(&self) -> bool {
        if self.state.swap(ENDED, Ordering::AcqRel) != ASKED {
            return false;
        }
        // A caller that has asked keeps the lock until the run is among those that have been asked.
        let mut asked = self.stop.asked.lock();
        let ([_, answer], _) = self.stop.words.spare_words();
        // A later run gives another answer only after it is shown.
        let is_stopped = answer.load(Ordering::Acquire) == number(self.run);
        asked.remove(&self.run);
        self.stop.show(&asked);
        is_stopped
    }
}

impl Drop for StoppableRun {
    /// The signal of a device that is given up may be dropped before the run is known to have ended.
    fn drop(&mut self) {
        if *self.state.get_mut() == ASKED {
            self.have_been_stopped();
        }
    }
}
