//! Cancelling a run: what has not started never will, and what can be given up half-way is.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use futures::task::AtomicWaker;

use crate::runtime::completion::wakers::wake;
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
        let starter = self.inner.lock().extras.if_made(|extras| extras.starter.take());
        starter.into_iter().for_each(wake);
        for slot in &self.slots {
            slot.task().into_iter().for_each(AtomicWaker::wake);
        }
        self.stop_loops();
        let nested = self.extra(|extras| extras.nested.clone());
        nested.iter().for_each(|(_, run)| run.cancel());
    }

    /// Loops of devices that can stop them end before their next iteration. For a run whose deadline passes,
    /// too, of which nothing else starts anyway.
    pub(crate) fn stop_loops(&self) {
        self.progress.stops_loops.store(true, Ordering::SeqCst);
        for slot in &self.slots {
            let event = slot.event().filter(|_| slot.state.load(Ordering::SeqCst) == ENQUEUED);
            event.into_iter().for_each(|event| event.stop());
        }
    }

    /// The error of a loop says what has stopped it: a device does not know.
    pub(super) fn of_deadline(&self, error: Error) -> Error {
        let is_late = self.progress.stops_loops.load(Ordering::SeqCst) && !self.is_cancelled();
        if !is_late || error.kind() != ErrorKind::Cancelled {
            return error;
        }
        let why = "the deadline passed before the next iteration of a loop";
        let late = Error::new(ErrorKind::DeadlineExceeded, why);
        match error.command() {
            Some(command) => late.at_command(command),
            None => late,
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the run is cancelled; for the task that waits to start it.
    pub(crate) fn cancellation(&self) -> impl Future<Output = ()> + Unpin + '_ {
        poll_fn(|cx| {
            let new = cx.waker().clone();
            let old = self.inner.lock().extras.get_or_make().starter.replace(new);
            // Wakers are an executor's code: they are dropped outside the lock.
            drop(old);
            if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// The outcome of an async host task, which is dropped if the run is cancelled.
    pub(super) async fn unless_cancelled(
        &self,
        partition: usize,
        mut task: impl Future<Output = Result<()>> + Unpin,
    ) -> Result<()> {
        let waker = self.slots[partition].task();
        let outcome = poll_fn(|cx| {
            waker.into_iter().for_each(|waker| waker.register(cx.waker()));
            match self.is_cancelled() {
                true => Poll::Ready(None),
                false => Pin::new(&mut task).poll(cx).map(Some),
            }
        });
        let outcome = outcome.await;
        drop(waker.and_then(AtomicWaker::take));
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
