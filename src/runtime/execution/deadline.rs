//! Deadlines of submissions: what would start too late does not start.

use std::future::{Future, pending};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::execution::progress::SubmissionProgress;
use crate::util::panics::catch;

/// The error of work that did not start in time.
pub(crate) fn exceeded() -> Error {
    Error::new(ErrorKind::DeadlineExceeded, "the deadline passed before this could start")
}

/// Resolves when the deadline has passed. Without one it never does, and costs nothing.
///
/// # Errors
/// Those of [`timer`].
pub(crate) async fn passed(deadline: Option<Instant>) -> Result<()> {
    match deadline {
        Some(at) => timer(at)?.await,
        None => pending().await,
    }
    Ok(())
}

/// A timer of the tokio runtime that runs the caller.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) on a runtime that was built without one. tokio has no way to ask
/// for it but to try, which panics.
pub(crate) fn timer(at: Instant) -> Result<Pin<Box<Sleep>>> {
    catch(|| Box::pin(sleep_until(at))).map_err(|panic| {
        Error::new(ErrorKind::Unavailable, format!("the tokio runtime has no timer: {panic}"))
            .help("build the runtime with `enable_time()` or `enable_all()`")
    })
}

/// The time at which a submission is answered, also where its work goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerBy {
    pub(crate) at: Instant,
    /// How long the request had taken before it was submitted.
    pub(crate) before: Duration,
}

/// The timer of an [`AnswerBy`], which is made when a poll has to wait.
pub(crate) struct AnswerTimer {
    answer_by: AnswerBy,
    timer: Option<Pin<Box<Sleep>>>,
}

impl AnswerTimer {
    pub(crate) fn new(answer_by: AnswerBy) -> Box<Self> {
        Box::new(Self { answer_by, timer: None })
    }

    /// Ready at the time.
    ///
    /// # Errors
    /// Those of [`timer`].
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        let timer = match &mut self.timer {
            Some(timer) => timer,
            none => none.insert(timer(self.answer_by.at)?),
        };
        ready!(timer.as_mut().poll(cx));
        Poll::Ready(Ok(()))
    }

    /// The error of a submission that is only so far by then.
    pub(crate) fn error(&self, progress: &SubmissionProgress) -> Error {
        let before = self.answer_by.before;
        let why = format!("the deadline passed; the request was submitted after {before:?}: {progress}");
        progress.locate(Error::new(ErrorKind::DeadlineExceeded, why))
    }
}
