//! Dropping executables whose last reference goes away inside a device's notification, or under the runtime's locks.
//!
//! A notification must be short and must not run user code, and drivers forbid most of their calls inside one; the drop
//! of an executable frees memory and runs the drops of closures, which may submit. So there it is left to a thread of its
//! own.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::thread;

use parking_lot::{Condvar, Mutex};

thread_local! {
    static ELSEWHERE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, executables that this thread is the last to hold are dropped elsewhere.
#[derive(Debug)]
pub(super) struct Elsewhere {
    before: bool,
}

impl Elsewhere {
    pub(super) fn enter() -> Self {
        // A thread that is ending has no flag any more; nor does a driver call anybody from there.
        Self { before: ELSEWHERE.try_with(|flag| flag.replace(true)).unwrap_or(false) }
    }

    pub(super) fn is_now() -> bool {
        ELSEWHERE.try_with(Cell::get).unwrap_or(false)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = ELSEWHERE.try_with(|flag| flag.set(self.before));
    }
}

/// What is to be dropped, whatever it is.
pub(super) type Garbage = Box<dyn Any + Send>;

/// What is to be dropped, and its thread.
struct Reaper {
    garbage: Mutex<Vec<Garbage>>,
    changed: Condvar,
}

static REAPER: Reaper = Reaper { garbage: Mutex::new(Vec::new()), changed: Condvar::new() };

/// Started when it is first needed; asleep while nothing comes. Without it, garbage stays where it is.
static THREAD: LazyLock<()> = LazyLock::new(|| {
    if let Err(error) = thread::Builder::new().name("wakegraph-reaper".into()).spawn(|| REAPER.run()) {
        tracing::error!(target: "wakegraph", %error, "could not start the reaper's thread");
    }
});

impl Reaper {
    fn run(&self) {
        loop {
            let garbage = {
                let mut garbage = self.garbage.lock();
                self.changed.wait_while(&mut garbage, |garbage| garbage.is_empty());
                std::mem::take(&mut *garbage)
            };
            for garbage in garbage {
                if catch_unwind(AssertUnwindSafe(|| drop(garbage))).is_err() {
                    tracing::error!(target: "wakegraph", "a drop panicked");
                }
            }
        }
    }
}

/// Drops it on another thread.
pub(super) fn drop_elsewhere(garbage: Garbage) {
    LazyLock::force(&THREAD);
    REAPER.garbage.lock().push(garbage);
    REAPER.changed.notify_one();
}
