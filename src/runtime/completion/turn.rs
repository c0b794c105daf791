//! Giving way to other tasks: what is often ready at once takes part in tokio's budget of each task.

use std::future::poll_fn;
use std::mem;
use std::task::{Context, Poll};

use tokio::task::coop;

/// Uses up a part of the calling task's budget. Lets other tasks run first if nothing is left of it.
pub(crate) async fn take_turn() {
    let mut turn = Turn::default();
    poll_fn(|cx| turn.poll(cx)).await;
}

/// Lets other tasks run. Unlike tokio's own, it works inside executors of others, too.
pub(crate) async fn give_way() {
    let mut has_given_way = false;
    poll_fn(|cx| match mem::replace(&mut has_given_way, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// The turn of a future that is ready.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    gave_way: bool,
}

impl Turn {
    /// Pending if other tasks should run first: once, and no longer. A task that blocks its worker, as
    /// `futures::executor::block_on` does, gets no new budget.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match coop::poll_proceed(cx) {
            Poll::Ready(turn) => turn.made_progress(),
            Poll::Pending if !mem::replace(&mut self.gave_way, true) => {
                // tokio wakes the task when its worker has nothing else to do, which a worker that is
                // blocked never comes to.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Pending => {}
        }
        self.gave_way = false;
        Poll::Ready(())
    }
}
