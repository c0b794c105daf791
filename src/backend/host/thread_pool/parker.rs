//! How a worker without a job waits for one: it spins briefly where that pays, then parks.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::util::adaptive_spin::AdaptiveSpin;

/// How long a worker spins. Waking a parked thread takes 5 to 60 us where its core has halted, and
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
}

impl IdleStrategy {
    /// Returns once `parker`, the calling thread's, has been woken. Spins before it parks if no
    /// other worker spins and spinning has paid.
    pub(super) fn wait(&mut self, parker: &Parker, is_spinning: &AtomicBool) {
        if has_spare_core() && self.spin.try_spin() && !is_spinning.swap(true, Ordering::Relaxed) {
            let found = spin(parker);
            is_spinning.store(false, Ordering::Relaxed);
            self.spin.record(found);
        }
        // A park may return spuriously.
        while !parker.is_woken() {
            thread::park();
        }
        parker.woken.store(false, Ordering::Relaxed);
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
