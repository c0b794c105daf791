//! Memory of the test's own that kernels use while they run: turnstiles that hold them back, lists
//! of who has run.
//!
//! Kernels get its address as a number, so that it orders nothing.
#![expect(unsafe_code, reason = "kernels get addresses as numbers")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use wakegraph::hal::{MemoryDesc, MemoryKind, MemoryView};

use crate::suite::{Need, Setup};
use crate::support::forget;

/// Holds kernels back until the test lets them go on, on devices with [`Need::SharedMemory`].
/// Dropping it lets everybody go on for good, so that a test that fails does not hang.
pub(crate) struct Turnstile(Arc<[AtomicU32; 2]>);

const ARRIVED: usize = 0;
const PERMITTED: usize = 1;

impl Turnstile {
    pub(crate) fn new() -> Self {
        Self(Arc::default())
    }

    /// The argument of the kernel `hold`.
    pub(crate) fn address(&self) -> u64 {
        Arc::as_ptr(&self.0).expose_provenance() as u64
    }

    /// How many have arrived so far.
    pub(crate) fn arrived(&self) -> usize {
        self.0[ARRIVED].load(Ordering::SeqCst) as usize
    }

    /// Blocks until `count` have arrived, counting from the start. They must be on their way:
    /// enqueued and flushed.
    pub(crate) fn wait_for(&self, count: usize) {
        while self.arrived() < count {
            thread::yield_now();
        }
    }

    /// Lets one go on, now or when it arrives.
    pub(crate) fn release_one(&self) {
        self.0[PERMITTED].fetch_add(1, Ordering::SeqCst);
    }

    /// Lets everybody go on from now on.
    pub(crate) fn open(&self) {
        self.0[PERMITTED].store(u32::MAX, Ordering::SeqCst);
    }
}

impl Drop for Turnstile {
    fn drop(&mut self) {
        self.open();
        // A kernel that is still inside reads the state once more.
        forget(self.0.clone());
    }
}

/// The kernel `hold` on the host.
pub(crate) fn hold(turnstile: u64) {
    let state = words(turnstile, 2);
    let turn = state[ARRIVED].fetch_add(1, Ordering::SeqCst);
    while state[PERMITTED].load(Ordering::SeqCst) <= turn {
        thread::yield_now();
    }
}

/// A list to which the kernel `note` adds numbers, in the order in which its launches run.
pub(crate) enum List {
    Test(Arc<[AtomicU32]>),
    Device(MemoryView),
}

impl List {
    /// Room for this many numbers; `None` on a device without pointers.
    pub(crate) fn new(setup: &Setup, capacity: usize) -> Option<Self> {
        if setup.can(Need::SharedMemory) {
            return Some(Self::Test((0..=capacity).map(|_| AtomicU32::new(0)).collect()));
        }
        let desc = MemoryDesc::new(4 * (capacity + 1), MemoryKind::Device);
        let memory = setup.hal().allocate(&desc).unwrap();
        memory.usm()?;
        Some(Self::Device(MemoryView::whole(memory)))
    }

    /// The argument of the kernel `note`.
    pub(crate) fn address(&self) -> u64 {
        match self {
            Self::Test(words) => Arc::as_ptr(words).cast::<AtomicU32>().expose_provenance() as u64,
            Self::Device(view) => view.memory().usm().unwrap().address() as u64,
        }
    }

    /// How many numbers it can hold.
    pub(crate) fn room(&self) -> u32 {
        let words = match self {
            Self::Test(words) => words.len(),
            Self::Device(view) => view.len() / 4,
        };
        words as u32 - 1
    }

    /// Takes the numbers out, when no kernel adds any.
    pub(crate) fn take(&self) -> Vec<usize> {
        let words: Vec<u32> = match self {
            Self::Test(words) => words.iter().map(|word| word.swap(0, Ordering::SeqCst)).collect(),
            Self::Device(view) => {
                let mut bytes = vec![0; view.len()];
                // SAFETY: the test has waited for all kernels that add numbers.
                unsafe { view.memory().read(0, &mut bytes) }.unwrap();
                // SAFETY: as above.
                unsafe { view.memory().write(0, &vec![0; view.len()]) }.unwrap();
                bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
            }
        };
        words[1..=words[0] as usize].iter().map(|&id| id as usize).collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // After a failure a kernel may still be about to add a number.
        if let Self::Test(words) = self {
            forget(words.clone());
        }
    }
}

/// The kernel `note` on the host.
pub(crate) fn note(list: u64, room: u32, id: u32) {
    let words = words(list, 1 + room as usize);
    let place = words[0].fetch_add(1, Ordering::SeqCst) as usize;
    if let Some(free) = words[1..].get(place) {
        free.store(id, Ordering::SeqCst);
    }
}

fn words(address: u64, len: usize) -> &'static [AtomicU32] {
    let start = std::ptr::with_exposed_provenance::<AtomicU32>(address as usize);
    // SAFETY: the address is that of a `Turnstile` or `List` with at least so many words, which are
    // never freed.
    unsafe { std::slice::from_raw_parts(start, len) }
}
