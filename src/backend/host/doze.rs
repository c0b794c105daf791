//! How a worker without a job waits for one: awake for a moment where that pays, then parked.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::util::adaptive_spin::AdaptiveSpin;

/// How long a worker stays awake for the next job. Waking a parked thread takes 5 to 60 us where
/// its core has halted, and whoever waits for a job's result needs a few microseconds to hand in
/// the next.
const SPIN: Duration = Duration::from_micros(25);

/// How often a spin looks at its flag between two looks at the clock.
const LOOKS: u32 = 32;

/// A thread that waits to be woken, as seen by others.
#[derive(Debug)]
pub(super) struct Sleeper {
    thread: Thread,
    woken: AtomicBool,
}

impl Sleeper {
    /// The calling thread.
    pub(super) fn current() -> Self {
        Self { thread: thread::current(), woken: AtomicBool::new(false) }
    }

    /// Wakes the thread, or keeps it from going to sleep. Without a system call if it is awake.
    pub(super) fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }

    fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }
}

/// Whether staying awake has paid for one worker.
#[derive(Debug, Default)]
pub(super) struct Doze {
    patience: AdaptiveSpin,
}

impl Doze {
    /// Returns once `me`, the calling thread, has been woken. Spins before it parks if nobody else
    /// does and it has paid.
    pub(super) fn until_woken(&mut self, me: &Sleeper, spinning: &AtomicBool) {
        if has_spare_core() && self.patience.try_spin() && !spinning.swap(true, Ordering::Relaxed) {
            let found = spin(me);
            spinning.store(false, Ordering::Relaxed);
            self.patience.record(found);
        }
        // A park may end without a reason.
        while !me.is_woken() {
            thread::park();
        }
        me.woken.store(false, Ordering::Relaxed);
    }
}

fn spin(me: &Sleeper) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if me.is_woken() {
                return true;
            }
            hint::spin_loop();
        }
        if start.elapsed() > SPIN {
            return false;
        }
    }
}

/// On a single core a spinning thread only keeps the one it waits for from running.
fn has_spare_core() -> bool {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| thread::available_parallelism().map_or(1, Into::into)) > 1
}
