//! Dropping executables whose last reference goes away inside a device's notification, or under the runtime's locks.
//!
//! A notification must be short and must not run user code, and drivers forbid most of their calls inside one; the drop
//! of an executable frees memory and runs the drops of closures, which may submit. So there it is left to a thread of its
//! own.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

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

type Garbage = Box<dyn Any + Send>;

/// Started when it is first needed; asleep while nothing comes.
static REAPER: LazyLock<Option<Sender<Garbage>>> = LazyLock::new(|| {
    let (send, receive) = channel::<Garbage>();
    let reap = move || {
        for garbage in receive {
            if catch_unwind(AssertUnwindSafe(|| drop(garbage))).is_err() {
                tracing::error!(target: "wakegraph", "a drop panicked");
            }
        }
    };
    match thread::Builder::new().name("wakegraph-reaper".into()).spawn(reap) {
        Ok(_) => Some(send),
        Err(error) => {
            tracing::error!(target: "wakegraph", %error, "could not start the reaper's thread");
            None
        }
    }
});

/// Drops it on another thread; on this one if there is none.
pub(super) fn drop_elsewhere(garbage: Garbage) {
    if let Some(reaper) = &*REAPER {
        // The receiver lives as long as the process.
        let _ = reaper.send(garbage);
    }
}
