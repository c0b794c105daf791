//! The callers of a batch: who still waits, and their answers.

use std::fmt::{self, Debug};
use std::future::poll_fn;
use std::mem;
use std::sync::Arc;
use std::task::{Poll, ready};

use parking_lot::Mutex;

use crate::service::item_queue::Caller;

/// The callers of a batch, as its closure sees them; see
/// [`build_with_callers`](super::BatcherBuilder::build_with_callers).
pub struct Callers(Option<Arc<dyn Waiting>>);

impl Callers {
    /// The caller of an item that runs by itself. When it leaves, the closure's future is dropped.
    pub(super) fn alone() -> Self {
        Self(None)
    }

    /// Whether the caller of the item with this index waits for its result. It does not if it has given up,
    /// or has had its answer as the batch has ended.
    pub fn is_waiting(&self, item: usize) -> bool {
        self.0.as_ref().map_or(item == 0, |callers| callers.is_waiting(item))
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
        Callers(Some(self.clone()))
    }

    /// Resolves when no caller waits any more.
    pub(super) async fn all_have_left(&self) {
        // The wakers are tokio's, whose code may run under the lock.
        poll_fn(|cx| {
            for caller in self.0.lock().iter_mut() {
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
