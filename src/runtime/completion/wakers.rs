//! Calling the wakers of tasks. A waker is the code of an executor, so it is called without locks, and its
//! panics go no further.

use std::cell::{Cell, RefCell};
use std::task::Waker;

use crate::util::panics::catch_and_log;

thread_local! {
    /// Whether this thread is inside [`wake_after_locks`].
    static DEFERRING: Cell<bool> = const { Cell::new(false) };
    /// Whether there are wakers in [`DEFERRED`]. It has no destructor, unlike those, so that reading
    /// it costs next to nothing.
    static HAS_DEFERRED: Cell<bool> = const { Cell::new(false) };
    /// The wakers that this thread calls when it leaves [`wake_after_locks`].
    static DEFERRED: RefCell<Vec<Waker>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work`, which takes locks, and wakes the tasks that it made ready once the locks are
/// released, because a waker is the code of an executor. Where no task is woken, this costs a few
/// accesses to flags of the thread. The tasks are woken even if `work` panics.
#[inline]
pub(crate) fn wake_after_locks<R>(work: impl FnOnce() -> R) -> R {
    struct Leave {
        outer: bool,
    }

    impl Drop for Leave {
        #[inline]
        fn drop(&mut self) {
            DEFERRING.set(self.outer);
            if !self.outer && HAS_DEFERRED.get() {
                wake_deferred();
            }
        }
    }

    let _leave = Leave { outer: DEFERRING.replace(true) };
    work()
}

#[inline(never)]
fn wake_deferred() {
    HAS_DEFERRED.set(false);
    let mut wakers = DEFERRED.try_with(RefCell::take).unwrap_or_default();
    wakers.drain(..).for_each(wake);
    // The next time needs no allocation.
    let _ = DEFERRED.try_with(|deferred| {
        let mut deferred = deferred.borrow_mut();
        if deferred.capacity() == 0 {
            *deferred = wakers;
        }
    });
}

/// Wakes at once, or when the locks are released if the caller is inside [`wake_after_locks`].
pub(crate) fn wake_or_defer(waker: Waker) {
    let mut waker = Some(waker);
    if DEFERRING.get() {
        // A thread that is ending has no list any more.
        let _ = DEFERRED.try_with(|deferred| deferred.borrow_mut().extend(waker.take()));
        HAS_DEFERRED.set(true);
    }
    if let Some(waker) = waker {
        wake(waker);
    }
}

/// Wakes one task of possibly many.
///
/// A waker is the code of an executor. If it panics, the tasks behind it must still be woken, and
/// the thread that wakes them, often a device's, has no part in the mistake: the panic is logged
/// and goes no further.
pub(crate) fn wake(waker: Waker) {
    catch_and_log("a waker", || waker.wake());
}
