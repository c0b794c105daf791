//! The orderly end of a pool, batcher or cache: nothing new is taken, and what was accepted ends.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::service::deadline::{exceeded, until};
use crate::sync::{AtomicBool, Ordering};
use crate::util::panics;

/// Whether its owner still takes work, and those who wait until all that was taken has ended.
///
/// The owner counts the work that it has taken. Pools and batchers count, [close](Self::close) and
/// [ask](Self::accepts) under one lock. A cache has a counter: a caller adds to it and then asks. Either way
///
/// - work that was accepted is in the count when a drain first reads it;
/// - whoever takes the last work out of the count after that finds the drain closed, and
///   [says so](Self::work_left). The total order of sequentially consistent accesses gives this to the
///   counter.
pub(super) struct Drain {
    /// The owner with its name, for errors.
    owner: String,
    is_closed: AtomicBool,
    changed: Notify,
}

impl Drain {
    pub(super) fn new(owner: impl Into<String>) -> Self {
        Self { owner: owner.into(), is_closed: AtomicBool::new(false), changed: Notify::new() }
    }

    /// Closes the owner.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
    }

    /// Whether the owner takes more work.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) if it is closed.
    pub(super) fn accepts(&self) -> Result<()> {
        if !self.is_closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        let why = format!("the {} is closed", self.owner);
        Err(Error::new(ErrorKind::Unavailable, why).help("send the request to another instance"))
    }

    /// Some work has ended or was given up. Called after the owner's lock, and before a value of the user's
    /// is dropped, which may panic.
    pub(super) fn work_left(&self) {
        if self.is_closed.load(Ordering::SeqCst) {
            panics::catch_and_log("a waker", || self.changed.notify_waiters());
        }
    }

    /// Waits until nothing is left, for `limit` at most. `what_is_left` says what is, as its owner counts it.
    ///
    /// # Errors
    /// [`DeadlineExceeded`](ErrorKind::DeadlineExceeded) with what is left;
    /// [`Unavailable`](ErrorKind::Unavailable) on a runtime without its timer.
    pub(super) async fn wait(
        &self,
        limit: Duration,
        what_is_left: impl Fn() -> Option<String>,
    ) -> Result<()> {
        let drained = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                // What leaves from here on is heard, and what has left before is not counted.
                changed.as_mut().enable();
                if what_is_left().is_none() {
                    return;
                }
                changed.await;
            }
        };
        // A time too far away to be represented is no limit.
        let end = Instant::now().checked_add(limit);
        let late = || exceeded(format!("the {} has not ended after {limit:?}", self.owner));
        match (until(end, drained, late).await, what_is_left()) {
            (Err(error), Some(left)) => Err(error.with_note(&left)),
            _ => Ok(()),
        }
    }
}
