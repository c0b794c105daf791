//! Copies of memory by several threads: a core copies some 10 GB/s, which is a fraction of what a
//! bus to a device moves.
#![expect(unsafe_code, reason = "lends memory to other threads for the time of a call")]

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Bytes that a thread copies at a time.
const PIECE: usize = if cfg!(miri) { 1 << 10 } else { 128 << 10 };

/// More threads do not copy faster: so many saturate the bus to an H100.
const MOST_THREADS: usize = 12;

/// Number of checks for the end of a copy before a caller lets other threads run.
const SPINS: usize = 1_000;

/// For so long a helper stays awake after a copy: within that the next part of a large one comes.
const AWAKE: Duration = Duration::from_micros(100);

/// Returns the number of threads that copy, including the caller: three quarters of those that the machine
/// runs at a time, or fewer.
pub(crate) fn threads() -> usize {
    static THREADS: LazyLock<usize> = LazyLock::new(|| {
        let all = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        (all * 3 / 4).clamp(1, MOST_THREADS)
    });
    *THREADS
}

/// Copies `from` to `to`, which is as long, and calls `first` before it has the calling thread
/// copy, too. Other threads begin at once to copy what is long enough.
pub(crate) fn copy<R>(to: &mut [u8], from: &[u8], first: impl FnOnce() -> R) -> R {
    static CREW: LazyLock<CopyCrew> = LazyLock::new(|| CopyCrew::new(threads() - 1));
    if from.len() < 2 * PIECE || threads() == 1 {
        let result = first();
        to.copy_from_slice(from);
        return result;
    }
    CREW.copy(to, from, first)
}

/// Threads that help with copies. They end when it is dropped.
struct CopyCrew(Arc<CopyCrewInner>);

#[derive(Default)]
struct CopyCrewInner {
    state: Mutex<CopyCrewState>,
    /// Counts the copies so far.
    copies: AtomicUsize,
    changed: Condvar,
}

#[derive(Default)]
struct CopyCrewState {
    /// In progress.
    copies: Vec<Arc<ParallelCopy>>,
    is_closed: bool,
}

/// One copy. Its caller waits until all of it is done.
struct ParallelCopy {
    from: *const u8,
    to: *mut u8,
    len: usize,
    /// Place where the next piece begins.
    next: AtomicUsize,
    /// Bytes that have been copied.
    done: AtomicUsize,
}

// SAFETY: the memory is that of a shared and of an exclusive slice of bytes, which threads may use
// in parts.
unsafe impl Send for ParallelCopy {}
// SAFETY: as for `Send`.
unsafe impl Sync for ParallelCopy {}

impl ParallelCopy {
    /// Copies pieces until all are taken.
    fn work(&self) {
        loop {
            let start = self.next.fetch_add(PIECE, Ordering::Relaxed);
            let Some(rest) = self.len.checked_sub(start).filter(|rest| *rest > 0) else { return };
            let len = rest.min(PIECE);
            let (from, to) = (self.from.wrapping_add(start), self.to.wrapping_add(start));
            // SAFETY: the piece is inside both slices, which are borrowed until all pieces are
            // done, and no other thread takes it.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            self.done.fetch_add(len, Ordering::Release);
        }
    }

    fn has_more(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.len
    }
}

impl CopyCrew {
    fn new(helpers: usize) -> Self {
        let shared = Arc::<CopyCrewInner>::default();
        for _ in 0..helpers {
            let shared = shared.clone();
            let started = thread::Builder::new().name("wakegraph-copy".into()).spawn(move || shared.help());
            if let Err(error) = started {
                tracing::debug!(target: "wakegraph", %error, "a helper of copies was not started");
            }
        }
        Self(shared)
    }

    fn copy<R>(&self, to: &mut [u8], from: &[u8], first: impl FnOnce() -> R) -> R {
        assert_eq!(to.len(), from.len(), "both sides of a copy are as long");
        let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let copy =
            Arc::new(ParallelCopy { from: from.as_ptr(), to: to.as_mut_ptr(), len: from.len(), next, done });
        let mut state = self.0.state.lock();
        state.copies.push(copy.clone());
        // Under the lock, as helpers decide under it whether to sleep.
        self.0.copies.fetch_add(1, Ordering::Release);
        drop(state);
        self.0.changed.notify_all();
        // The slices are borrowed until it is dropped, also when `first` panics.
        let _borrow = CopyInProgress { crew: &self.0, copy };
        first()
    }
}

/// A copy that other threads have begun. The thread that drops it does the rest.
struct CopyInProgress<'a> {
    crew: &'a CopyCrewInner,
    copy: Arc<ParallelCopy>,
}

impl Drop for CopyInProgress<'_> {
    fn drop(&mut self) {
        let Self { crew, copy } = self;
        copy.work();
        crew.state.lock().copies.retain(|other| !Arc::ptr_eq(other, copy));
        // Helpers have taken what is not done yet, a piece each.
        let mut spins = 0;
        while copy.done.load(Ordering::Acquire) < copy.len {
            match spins < SPINS {
                true => std::hint::spin_loop(),
                false => thread::yield_now(),
            }
            spins += 1;
        }
    }
}

impl Drop for CopyCrew {
    fn drop(&mut self) {
        self.0.state.lock().is_closed = true;
        self.0.changed.notify_all();
    }
}

impl CopyCrewInner {
    fn help(&self) {
        loop {
            let seen = self.copies.load(Ordering::Acquire);
            let copy = {
                let state = self.state.lock();
                if state.is_closed {
                    return;
                }
                state.copies.iter().find(|copy| copy.has_more()).cloned()
            };
            match copy {
                Some(copy) => copy.work(),
                None => self.wait(seen),
            }
        }
    }

    /// Waits until there has been another copy than so many, or there will be none.
    fn wait(&self, seen: usize) {
        let since = Instant::now();
        while since.elapsed() < AWAKE {
            if self.copies.load(Ordering::Acquire) != seen {
                return;
            }
            std::hint::spin_loop();
        }
        let mut state = self.state.lock();
        while self.copies.load(Ordering::Acquire) == seen && !state.is_closed {
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|index| (index * 7 + index / 251) as u8).collect()
    }

    #[test]
    fn all_bytes_arrive() {
        let crew = CopyCrew::new(3);
        for len in [0, 1, PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3] {
            let (from, mut to) = (bytes(len), vec![0; len]);
            assert_eq!(crew.copy(&mut to, &from, || 7), 7);
            assert!(to == from, "{len}");
            to.fill(0);
            assert_eq!(copy(&mut to, &from, || 7), 7);
            assert!(to == from, "{len}");
        }
    }

    #[test]
    fn several_threads_copy_at_once() {
        let crew = CopyCrew::new(2);
        let from = bytes(4 * PIECE + 5);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..if cfg!(miri) { 3 } else { 20 } {
                        let mut to = vec![0; from.len()];
                        crew.copy(&mut to, &from, || ());
                        assert!(to == from);
                    }
                });
            }
        });
    }

    #[test]
    fn a_copy_is_whole_when_its_caller_panics() {
        let crew = CopyCrew::new(2);
        let (from, mut to) = (bytes(4 * PIECE), vec![0; 4 * PIECE]);
        let panics = || std::panic::resume_unwind(Box::new(()));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crew.copy(&mut to, &from, panics);
        }));
        assert!(outcome.is_err() && to == from);
    }

    #[test]
    fn helpers_end_with_their_crew() {
        let crew = CopyCrew::new(2);
        let shared = Arc::downgrade(&crew.0);
        let from = bytes(3 * PIECE);
        crew.copy(&mut vec![0; from.len()], &from, || ());
        drop(crew);
        while shared.upgrade().is_some() {
            thread::yield_now();
        }
    }
}
