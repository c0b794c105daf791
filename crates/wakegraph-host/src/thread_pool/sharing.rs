//! Work that a worker shares with others: it offers the work, does it, and leaves once no helper uses it.
#![expect(unsafe_code, reason = "lends work of a worker's stack to other workers")]

use std::fmt::{self, Debug};
use std::hint;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::Instant;

use crate::launch::SharedWork;

/// Counts the helpers of one worker. Each worker has one of these, as it shares one work at a time.
#[derive(Debug)]
pub(super) struct Helpers {
    owner: Thread,
    count: AtomicUsize,
}

impl Helpers {
    /// The helpers of the calling thread.
    pub(super) fn of_current() -> Self {
        Self { owner: thread::current(), count: AtomicUsize::new(0) }
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Blocks the owner until there is none. No work is offered any more.
    pub(super) fn wait_for_none(&self) {
        for _ in 0..SPINS {
            if self.count() == 0 {
                return;
            }
            hint::spin_loop();
        }
        // A park may return spuriously.
        while self.count() > 0 {
            thread::park();
        }
    }
}

/// How often an owner checks before it parks: blocks end within a few microseconds of each other, mostly.
const SPINS: usize = 2000;

/// Work that a worker offers to others, as the schedule holds it.
pub(super) struct Offer {
    work: NonNull<dyn SharedWork>,
    helpers: Arc<Helpers>,
    most: usize,
    /// Time at which it was made, until the first helper has come.
    pub(super) made: Option<Instant>,
}

// SAFETY: the work can be used by all threads.
unsafe impl Send for Offer {}

impl Offer {
    /// Offers work to so many helpers.
    ///
    /// # Safety
    /// The work stays until the offer has been withdrawn and, after that, the helpers are none.
    pub(super) unsafe fn new(work: &dyn SharedWork, helpers: &Arc<Helpers>, most: usize) -> Self {
        let work = NonNull::from(work);
        // SAFETY: only the lifetime changes, and the caller keeps the work as long as it is used.
        let work =
            unsafe { std::mem::transmute::<NonNull<dyn SharedWork + '_>, NonNull<dyn SharedWork>>(work) };
        Self { work, helpers: Arc::clone(helpers), most, made: Some(Instant::now()) }
    }

    pub(super) fn is_of(&self, helpers: &Arc<Helpers>) -> bool {
        Arc::ptr_eq(&self.helpers, helpers)
    }

    pub(super) fn helpers(&self) -> usize {
        self.helpers.count()
    }

    pub(super) fn has_room(&self) -> bool {
        self.helpers() < self.most
    }

    /// Adds a helper. The schedule, which holds the offer, is locked.
    pub(super) fn join(&self) -> Help {
        self.helpers.count.fetch_add(1, Ordering::Relaxed);
        Help { work: self.work, helpers: Arc::clone(&self.helpers) }
    }
}

impl Debug for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Offer")
            .field("helpers", &self.helpers)
            .field("most", &self.most)
            .finish_non_exhaustive()
    }
}

/// A helper's share of an offer. The owner waits until it is dropped.
pub(super) struct Help {
    work: NonNull<dyn SharedWork>,
    helpers: Arc<Helpers>,
}

// SAFETY: the work can be used by all threads.
unsafe impl Send for Help {}

impl Help {
    /// Does a part of the work. Returns whether anything was left to do.
    pub(super) fn step(&self) -> bool {
        // SAFETY: the owner keeps the work while this helper counts.
        unsafe { self.work.as_ref() }.step()
    }

    pub(super) fn helpers(&self) -> &Arc<Helpers> {
        &self.helpers
    }
}

impl Drop for Help {
    fn drop(&mut self) {
        // Release: the owner sees what this helper wrote.
        if self.helpers.count.fetch_sub(1, Ordering::Release) == 1 {
            self.helpers.owner.unpark();
        }
    }
}

impl Debug for Help {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Help").field("helpers", &self.helpers).finish_non_exhaustive()
    }
}
