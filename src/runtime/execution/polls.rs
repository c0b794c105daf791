//! Which thread runs a host task when: the polls of its future, or the call of its closure. Kept only while a
//! timeline is recorded.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, Thread};

use parking_lot::Mutex;
use pin_project::pin_project;

use crate::runtime::completion::clock;

/// So many polls of a host task are kept, which bounds the memory of a recording.
const MOST_POLLS: usize = 1000;

/// The polls of one host task.
#[derive(Debug, Default)]
pub(crate) struct PollLog(Mutex<Polls>);

/// What a [`PollLog`] holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Polls {
    /// The first ones, in order.
    pub(crate) kept: Vec<PollMoments>,
    /// How many more there were.
    pub(crate) omitted: u64,
}

/// A while in which a thread ran the host task, in nanoseconds of the runtime's clock.
#[derive(Clone, Debug)]
pub(crate) struct PollMoments {
    pub(crate) thread: Thread,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl PollLog {
    pub(crate) fn polls(&self) -> Polls {
        self.0.lock().clone()
    }

    fn add(&self, start: u64) {
        let (thread, end) = (thread::current(), clock::now());
        let mut polls = self.0.lock();
        if polls.kept.len() < MOST_POLLS {
            polls.kept.push(PollMoments { thread, start, end });
        } else {
            polls.omitted += 1;
        }
    }
}

/// Runs code of a host task, and notes when it did in the log, if there is one.
pub(crate) fn timed<R>(log: Option<&PollLog>, code: impl FnOnce() -> R) -> R {
    let Some(log) = log else { return code() };
    let start = clock::now();
    let result = code();
    log.add(start);
    result
}

/// The future of a host task, each of whose polls is noted in the log, if there is one.
#[pin_project]
pub(crate) struct LoggedPolls<F> {
    #[pin]
    future: F,
    log: Option<Arc<PollLog>>,
}

impl<F> LoggedPolls<F> {
    pub(crate) fn new(future: F, log: Option<Arc<PollLog>>) -> Self {
        Self { future, log }
    }
}

impl<F: Future> Future for LoggedPolls<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        timed(this.log.as_deref(), || this.future.poll(cx))
    }
}
