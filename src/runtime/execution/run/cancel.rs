//! Cancelling a run: what has not started never will, and what can be given up half-way is.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use crate::runtime::execution::host_task::NestedRun;
use crate::runtime::execution::run::{ENQUEUED, Run};
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind, Result};
use crate::util::panics::catch_and_log;

impl Run {
    /// Partitions that have not started never will. Async host tasks that run are dropped at their next
    /// await, and loops of devices that can stop them end before their next iteration.
    pub(crate) fn cancel(&self) {
        self.progress.cancelled.store(true, Ordering::SeqCst);
        self.starter.wake();
        for slot in &self.slots {
            slot.task.wake();
            if let Some(event) = slot.event.as_ref().filter(|_| slot.state.load(Ordering::SeqCst) == ENQUEUED)
            {
                event.stop();
            }
        }
        let nested = self.inner.lock().nested.clone();
        nested.iter().for_each(|(_, run)| run.cancel());
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the run is cancelled; for the task that waits to start it.
    pub(crate) fn cancellation(&self) -> impl Future<Output = ()> + Unpin + '_ {
        poll_fn(|cx| {
            self.starter.register(cx.waker());
            if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// The outcome of an async host task, which is dropped if the run is cancelled.
    pub(super) async fn unless_cancelled(
        &self,
        partition: usize,
        mut task: impl Future<Output = Result<()>> + Unpin,
    ) -> Result<()> {
        let waker = &self.slots[partition].task;
        let outcome = poll_fn(|cx| {
            waker.register(cx.waker());
            match self.is_cancelled() {
                true => Poll::Ready(None),
                false => Pin::new(&mut task).poll(cx).map(Some),
            }
        });
        let outcome = outcome.await;
        drop(waker.take());
        outcome.unwrap_or_else(|| {
            catch_and_log("the drop of a cancelled host task", || drop(task));
            Err(Error::new(ErrorKind::Cancelled, "the submission was cancelled while this host task ran"))
        })
    }
}

impl NestedRun for Run {
    fn cancel(&self) {
        self.cancel();
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled before this partition started")
}
