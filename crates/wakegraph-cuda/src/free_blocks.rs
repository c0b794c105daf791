//! Memory of devices without the driver's memory pools: blocks of few sizes, kept for later allocations when
//! they are freed, as `cuMemFree` waits for the device.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::Mutex;
use wakegraph_hal::support::streams::DriverContext as _;

use super::context::CudaContext;
use super::sys::{CUdeviceptr, CudaFailure, call, get};

/// The blocks of a device that nothing uses.
#[derive(Debug)]
pub(super) struct FreeBlocks {
    kept: Mutex<KeptBlocks>,
    /// Threads that free blocks.
    freeing: Mutex<Vec<JoinHandle<()>>>,
    /// The most bytes that are kept.
    limit: usize,
    context: Arc<CudaContext>,
}

#[derive(Default, Debug)]
struct KeptBlocks {
    by_size: BTreeMap<usize, Vec<CUdeviceptr>>,
    bytes: usize,
}

/// At most 1/4 of the device's memory is kept.
const KEPT_PART: usize = 4;

/// Bounds of the rounding step: 512 bytes, and the driver's unit of 2 MiB.
const UNITS: [usize; 2] = [512, 2 << 20];

/// The size of the block for `len` bytes: up to an eighth more, so that memory of about the same size can
/// have each other's blocks.
fn block_size(len: usize) -> usize {
    let step = len.checked_next_power_of_two().map_or(usize::MAX, |power| power / 16);
    len.checked_next_multiple_of(step.clamp(UNITS[0], UNITS[1])).unwrap_or(len)
}

impl FreeBlocks {
    pub(super) fn create(context: &Arc<CudaContext>) -> Result<Self, CudaFailure> {
        // SAFETY: the driver gave the device.
        let memory: usize = unsafe { get!(context.driver, cuDeviceTotalMem(context.device)) }?;
        let (kept, freeing) = (Mutex::default(), Mutex::default());
        Ok(Self { kept, freeing, limit: memory / KEPT_PART, context: Arc::clone(context) })
    }

    /// A block for `len` bytes: one that is kept, or else a new one. The caller has bound the context.
    pub(super) fn allocate(&self, len: usize) -> Result<CUdeviceptr, CudaFailure> {
        let size = block_size(len);
        if let Some(address) = self.kept.lock().take(size) {
            return Ok(address);
        }
        // SAFETY: the context is bound.
        unsafe { get!(self.context.driver, cuMemAlloc(size)) }
    }

    /// Keeps a block that [`allocate`](Self::allocate) has given for so many bytes. Where that makes too
    /// much, a thread frees some.
    ///
    /// # Safety
    /// Work in flight that uses the block comes before all uses of the allocation that gets it next.
    pub(super) unsafe fn keep(&self, address: CUdeviceptr, len: usize) {
        let too_much = self.kept.lock().keep(address, block_size(len), self.limit);
        if too_much.is_empty() {
            return;
        }
        let (context, blocks) = (Arc::clone(&self.context), too_much.clone());
        let free_them = move || free(&context, blocks);
        match thread::Builder::new().name("cuda frees".into()).spawn(free_them) {
            Ok(thread) => {
                let mut freeing = self.freeing.lock();
                freeing.retain(|thread| !thread.is_finished());
                freeing.push(thread);
            }
            Err(_) => free(&self.context, too_much),
        }
    }

    /// Frees all that is kept, which waits for the device, and waits for the threads that free some.
    pub(super) fn trim(&self) {
        let kept = std::mem::take(&mut *self.kept.lock());
        free(&self.context, kept.by_size.into_values().flatten());
        let freeing = std::mem::take(&mut *self.freeing.lock());
        // None of them drops this, so none waits for itself. A panic has been reported.
        freeing.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        self.trim();
    }
}

fn free(context: &CudaContext, blocks: impl IntoIterator<Item = CUdeviceptr>) {
    for address in blocks {
        context.destroy(|| {
            // SAFETY: allocated by `cuMemAlloc`, freed once. The call waits for what is in flight.
            unsafe { call!(context.driver, cuMemFree(address)) }
        });
    }
}

impl KeptBlocks {
    fn take(&mut self, size: usize) -> Option<CUdeviceptr> {
        let address = self.by_size.get_mut(&size)?.pop()?;
        self.bytes -= size;
        Some(address)
    }

    /// Keeps a block. With more than `limit` bytes it gives up blocks, the largest first, until half of
    /// that is left, so that few calls give up many.
    fn keep(&mut self, address: CUdeviceptr, size: usize, limit: usize) -> Vec<CUdeviceptr> {
        self.by_size.entry(size).or_default().push(address);
        self.bytes += size;
        let mut too_much = Vec::new();
        let most = if self.bytes > limit { limit / 2 } else { limit };
        while self.bytes > most
            && let Some(mut largest) = self.by_size.last_entry()
        {
            match largest.get_mut().pop() {
                Some(address) => {
                    self.bytes -= *largest.key();
                    too_much.push(address);
                }
                None => _ = largest.remove(),
            }
        }
        too_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_a_little_larger_than_what_they_are_for() {
        assert_eq!([1, 512, 513, 4096, 4097].map(block_size), [512, 512, 1024, 4096, 4608]);
        assert_eq!(block_size((32 << 20) + 1), 34 << 20);
        assert_eq!(block_size((10 << 30) + 1), (10 << 30) + (2 << 20), "of large ones little is lost");
        assert_eq!(block_size(usize::MAX), usize::MAX, "the driver refuses it");
        for len in (1..100_000).step_by(7) {
            assert!((len..=len.max(456) * 9 / 8 + 512).contains(&block_size(len)), "{len}");
        }
    }

    #[test]
    fn too_much_is_given_up_the_largest_first() {
        let mut kept = KeptBlocks::default();
        assert!((1..=4).all(|address| kept.keep(address, 1000, 5000).is_empty()));
        assert_eq!(kept.keep(5, 2000, 5000), [5, 4, 3]);
        assert_eq!((kept.bytes, kept.take(2000), kept.take(1000)), (2000, None, Some(2)));
        assert_eq!(kept.keep(6, 9000, 5000), [6]);
        assert_eq!((kept.bytes, kept.take(1000), kept.take(1000)), (1000, Some(1), None));
    }
}
