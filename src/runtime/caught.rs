//! Running the user's futures: a panic is an outcome like any other.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::pin_project;

use super::drive;
use crate::types::{Error, ErrorKind, Result};

/// Polls the future that it holds in place, which may refer to itself; resolves to an error if that panics.
#[pin_project]
#[derive(Debug)]
pub(crate) struct Caught<F> {
    #[pin]
    future: F,
}

impl<F> Caught<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future }
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        caught(|| self.project().future.poll(cx))
            .map_or_else(|error| Poll::Ready(Err(error)), |poll| poll.map(Ok))
    }
}

/// Runs the user's code.
///
/// # Errors
/// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked), with what the panic said.
pub(crate) fn caught<R>(code: impl FnOnce() -> R) -> Result<R> {
    // What the code leaves half-done is its own: it is not used again.
    catch_unwind(AssertUnwindSafe(code))
        .map_err(|panic| Error::new(ErrorKind::HostTaskPanicked, drive::panic_message(&*panic)))
}
