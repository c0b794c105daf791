//! The callers of a batch: who still waits, and their answers.

use std::fmt::{self, Debug};
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Poll, ready};

use parking_lot::Mutex;

use crate::service::item_queue::Caller;

/// The callers of a batch, as its closure sees them; see
/// [`build_with_callers`](super::BatcherBuilder::build_with_callers).
///
/// It does not keep the batch: work that outlives the closure's future sees that nobody waits any more.
pub struct Callers(Weak<dyn Waiting>);

impl Callers {
    /// Whether the caller of the item with this index waits for its result. It does not if it has given up,
    /// or has had its answer as the batch has ended.
    pub fn is_waiting(&self, item: usize) -> bool {
        self.0.upgrade().is_some_and(|callers| callers.is_waiting(item))
    }
}

impl Debug for Callers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Callers").finish_non_exhaustive()
    }
}

/// Callers, without the type of their results.
trait Waiting: Send + Sync {
    fn is_waiting(&self, item: usize) -> bool;
}

/// The caller of an item that runs by itself, as long as it polls the closure's future.
pub(super) struct LoneCaller;

impl LoneCaller {
    pub(super) fn view(self: &Arc<Self>) -> Callers {
        Callers(Arc::<Self>::downgrade(self))
    }
}

impl Waiting for LoneCaller {
    fn is_waiting(&self, item: usize) -> bool {
        item == 0
    }
}

/// The callers of a batch, until they have their answers.
pub(super) struct BatchCallers<R>(Mutex<Vec<Caller<R>>>);

impl<R: Send> Waiting for BatchCallers<R> {
    fn is_waiting(&self, item: usize) -> bool {
        self.0.lock().get(item).is_some_and(|caller| !caller.is_closed())
    }
}

impl<R: Send + 'static> BatchCallers<R> {
    pub(super) fn new(callers: Vec<Caller<R>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(callers)))
    }

    pub(super) fn view(self: &Arc<Self>) -> Callers {
        Callers(Arc::<Self>::downgrade(self))
    }

    /// Resolves when no caller waits any more.
    pub(super) async fn all_have_left(&self) {
        // The wakers are tokio's, whose code may run under the lock.
        poll_fn(|cx| {
            // Each poll of a closed one takes a part of the task's budget, which many of them would use up.
            for caller in self.0.lock().iter_mut().filter(|caller| !caller.is_closed()) {
                ready!(caller.poll_closed(cx));
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Takes the callers out, to be answered.
    pub(super) fn take(&self) -> Vec<Caller<R>> {
        mem::take(&mut self.0.lock())
    }
}
