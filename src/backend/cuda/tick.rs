//! Ticks: words in pinned memory that a kernel of ours counts up, so that the host sees the end of
//! a run without a call.
#![expect(unsafe_code, reason = "shares memory with the device")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use super::context::Context;
use super::device::Shared;
use super::kernel::CudaKernel;
use super::launch::Launch;
use super::lower::lower_kernel;
use super::sys::{CU_MEMHOSTALLOC_PORTABLE, CUdeviceptr, CUresult, Failure, call};
use crate::hal::{KernelArg, KernelDesc, KernelLaunch, KernelSources, Param, ParamKind, UsmPointer};
use crate::types::{AccessMode, Error, ErrorKind, Range, Result};

/// Words of a block, each on a cache line of its own.
const WORDS: usize = 64;
const LINE: usize = 64;

/// All words of a device. They stay until the device goes: a look may be late, and so may the
/// device's last write.
#[derive(Debug, Default)]
pub(super) struct Ticks {
    blocks: Mutex<Vec<Block>>,
    free: Mutex<Vec<Word>>,
    kernel: OnceLock<Arc<CudaKernel>>,
}

/// Memory for words, and on the device for the counts that they follow.
#[derive(Debug)]
struct Block {
    context: Arc<Context>,
    words: NonNull<c_void>,
    runs: CUdeviceptr,
}

// SAFETY: the memory may be freed from any thread.
unsafe impl Send for Block {}

/// A word that nobody uses.
#[derive(Clone, Copy, Debug)]
struct Word {
    seen: NonNull<AtomicU64>,
    runs: CUdeviceptr,
    /// What it has been counted up to.
    sent: u64,
}

// SAFETY: a word is an address of memory that stays, and is an atomic there.
unsafe impl Send for Word {}

/// A word in use: given back when dropped, which is not before everything that counts it up is over.
#[derive(Debug)]
pub(super) struct Tick {
    /// Has the words.
    shared: Arc<Shared>,
    seen: NonNull<AtomicU64>,
    runs: CUdeviceptr,
    sent: AtomicU64,
}

// SAFETY: as for `Word`.
unsafe impl Send for Tick {}
// SAFETY: as for `Word`.
unsafe impl Sync for Tick {}

impl Ticks {
    fn take(&self, shared: &Shared) -> Result<Word> {
        let mut free = self.free.lock();
        if free.is_empty() {
            let block = shared.retry_with_room(|| Block::allocate(shared))?;
            free.extend((0..WORDS).map(|index| block.word(index)));
            self.blocks.lock().push(block);
        }
        free.pop().ok_or_else(|| Error::new(ErrorKind::Bug, "a block without words"))
    }

    fn kernel(&self, shared: &Shared) -> Result<Arc<CudaKernel>> {
        if let Some(kernel) = self.kernel.get() {
            return Ok(Arc::clone(kernel));
        }
        let number = |name: &'static str| Param {
            name: name.into(),
            kind: ParamKind::Buffer { access: AccessMode::ReadWrite, element_size: 8, element_align: 8 },
        };
        let params = [number("runs"), number("seen")];
        let sources = KernelSources::new().ptx(include_str!("tick.ptx"));
        let desc = KernelDesc { name: "wakegraph_tick", params: &params, sources: &sources };
        let kernel = Arc::new(CudaKernel::load(shared, &desc)?);
        Ok(Arc::clone(self.kernel.get_or_init(|| kernel)))
    }
}

impl Block {
    fn allocate(shared: &Shared) -> Result<Self, Failure> {
        const LEN: usize = WORDS * LINE;
        let (context, driver) = (&shared.context, shared.context.driver);
        let _bound = context.bind()?;
        let mut words = ptr::null_mut();
        // SAFETY: the context is bound; the place is a pointer's.
        unsafe { call!(driver, cuMemHostAlloc(&raw mut words, LEN, CU_MEMHOSTALLOC_PORTABLE)) }?;
        let Some(words) = NonNull::new(words) else {
            return Err(Failure { call: "cuMemHostAlloc", code: CUresult::CUDA_ERROR_OUT_OF_MEMORY as u32 });
        };
        // From here on it is given back when something fails.
        let mut block = Self { context: Arc::clone(context), words, runs: 0 };
        // SAFETY: the memory is as long as that, and nobody knows it yet.
        unsafe { ptr::write_bytes(words.as_ptr().cast::<u8>(), 0, LEN) };
        block.runs = shared.pool.allocate(LEN, &shared.service)?;
        let on = shared.service.raw();
        // SAFETY: as above.
        unsafe { call!(driver, cuMemsetD8Async(block.runs, 0, LEN, on)) }?;
        shared.service.synchronize()?;
        Ok(block)
    }

    fn word(&self, index: usize) -> Word {
        // SAFETY: inside the block.
        let seen = unsafe { self.words.byte_add(index * LINE) }.cast();
        Word { seen, runs: self.runs + (index * LINE) as CUdeviceptr, sent: 0 }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let free = || {
            let _bound = self.context.bind()?;
            let driver = self.context.driver;
            if self.runs != 0 {
                // SAFETY: allocated from the pool, freed once; nothing that uses it is in flight.
                unsafe { call!(driver, cuMemFreeAsync(self.runs, ptr::null_mut())) }?;
            }
            // SAFETY: allocated by `cuMemHostAlloc`, freed once; nothing that uses it is in flight.
            unsafe { call!(driver, cuMemFreeHost(self.words.as_ptr())) }
        };
        self.context.dropped(free());
    }
}

impl Tick {
    pub(super) fn take(shared: &Arc<Shared>) -> Result<Self> {
        let Word { seen, runs, sent } = shared.ticks.take(shared)?;
        Ok(Self { shared: Arc::clone(shared), seen, runs, sent: AtomicU64::new(sent) })
    }

    /// The kernel that counts it up by one.
    pub(super) fn launch(&self) -> Result<Launch> {
        let shared = &*self.shared;
        let seen = self.seen.as_ptr().expose_provenance();
        let args = [self.runs as usize, seen].map(|address| {
            // SAFETY: both stay as long as the device, on which they can be used.
            KernelArg::Usm(unsafe { UsmPointer::new(address, 8) })
        });
        let kernel = shared.ticks.kernel(shared)?;
        let launch =
            KernelLaunch { kernel, args: args.into(), range: Range::linear(1), alternatives: Vec::new() };
        lower_kernel(shared, &launch)
    }

    /// One more run has been launched. Gives what the word will be when it is over.
    pub(super) fn launched(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether the run of this number is over.
    pub(super) fn has_seen(&self, run: u64) -> bool {
        // SAFETY: the word stays as long as what it was taken from.
        unsafe { self.seen.as_ref() }.load(Ordering::Acquire) >= run
    }

    /// Whether all runs are over.
    pub(super) fn is_idle(&self) -> bool {
        self.has_seen(self.sent.load(Ordering::Relaxed))
    }
}

impl Drop for Tick {
    fn drop(&mut self) {
        let Self { seen, runs, .. } = *self;
        let sent = *self.sent.get_mut();
        self.shared.ticks.free.lock().push(Word { seen, runs, sent });
    }
}
