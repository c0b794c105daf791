//! The wait of a worker that has no job: it spins briefly where that pays, or gives way once where that
//! pays, then parks.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use wakegraph_hal::util::AdaptiveSpin;

/// Time for which a worker spins. Waking a parked thread takes 5 to 60 us where its core has halted, and
/// the caller that waits for a job's result needs a few microseconds to enqueue the next.
const SPIN: Duration = Duration::from_micros(25);

/// How often a spin reads its flag before it reads the clock.
const READS_PER_CLOCK_READ: u32 = 32;

/// Wakes a thread that is parked or about to park.
#[derive(Debug)]
pub(super) struct Parker {
    thread: Thread,
    woken: AtomicBool,
}

impl Parker {
    /// The parker of the calling thread.
    pub(super) fn current() -> Self {
        Self { thread: thread::current(), woken: AtomicBool::new(false) }
    }

    /// Wakes the thread, or keeps it from parking. Makes no system call if the thread is awake.
    pub(super) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }
}

/// How one worker waits, adapted to whether its spins have paid.
#[derive(Debug, Default)]
pub(super) struct IdleStrategy {
    spin: AdaptiveSpin,
    /// Decides when to give way, by the same rule.
    giving_way: AdaptiveSpin,
}

impl IdleStrategy {
    /// Returns once `parker`, the calling thread's, has been woken. Spins before it parks if no
    /// other worker spins and spinning has paid. Returns whether it was woken while it gave way.
    ///
    /// A caller that shares this core with the worker wakes it for each of many commands, which costs
    /// a system call and two task switches each. If the worker gives way instead of parking, the caller
    /// goes on and enqueues many. A caller that waits for each command loses by it, so
    /// [`record_giving_way`](Self::record_giving_way) learns whether it pays.
    pub(super) fn wait(&mut self, parker: &Parker, is_spinning: &AtomicBool) -> bool {
        if has_spare_core() && self.spin.try_spin() && !is_spinning.swap(true, Ordering::Relaxed) {
            let found = spin(parker);
            is_spinning.store(false, Ordering::Relaxed);
            self.spin.record(found);
        }
        let mut gave_way = false;
        if !parker.is_woken() && self.giving_way.try_spin() {
            thread::yield_now();
            gave_way = parker.is_woken();
            if !gave_way {
                self.giving_way.record(false);
            }
        }
        // A park may return spuriously.
        while !parker.is_woken() {
            thread::park();
        }
        parker.woken.store(false, Ordering::Relaxed);
        gave_way
    }

    /// Records whether several runs were enqueued while the worker gave way.
    pub(super) fn record_giving_way(&mut self, found_several: bool) {
        self.giving_way.record(found_several);
    }
}

fn spin(parker: &Parker) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..READS_PER_CLOCK_READ {
            if parker.is_woken() {
                return true;
            }
            hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

/// Whether there is more than one core. On a single one, a spinning thread only keeps the thread
/// that it waits for from running.
fn has_spare_core() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, Into::into)) > 1
}
