//! Running the user's code: a panic is an outcome like any other.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project::{pin_project, pinned_drop};

use crate::types::{Error, ErrorKind, Result};
use crate::util::panics::{catch, catch_and_log};

/// A future of the user's. Resolves to an error where it panics, or panics when it is dropped,
/// which happens as soon as it is ready.
#[pin_project(PinnedDrop)]
#[derive(Debug)]
pub(crate) struct CatchPanics<F> {
    #[pin]
    future: Option<F>,
}

impl<F> CatchPanics<F> {
    pub(crate) fn new(future: F) -> Self {
        Self { future: Some(future) }
    }
}

impl<F: Future> Future for CatchPanics<F> {
    type Output = Result<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = catch_panic(|| future.poll(cx));
        if matches!(polled, Ok(Poll::Pending)) {
            return Poll::Pending;
        }
        let dropped = catch_drop(|| this.future.set(None));
        match (polled, dropped) {
            (Ok(polled), Ok(())) => polled.map(Ok),
            (Ok(polled), Err(error)) => {
                catch_and_log("the drop of a future's output", || drop(polled));
                Poll::Ready(Err(error))
            }
            (Err(error), _) => Poll::Ready(Err(error)),
        }
    }
}

#[pinned_drop]
impl<F> PinnedDrop for CatchPanics<F> {
    fn drop(self: Pin<&mut Self>) {
        catch_and_log("the drop of a future", || self.project().future.set(None));
    }
}

/// Runs the user's code.
///
/// # Errors
/// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked), with what the panic said.
pub(crate) fn catch_panic<R>(code: impl FnOnce() -> R) -> Result<R> {
    catch(code).map_err(|panic| Error::new(ErrorKind::HostTaskPanicked, panic))
}

/// Drops values of the user's.
///
/// # Errors
/// [`HostTaskPanicked`](ErrorKind::HostTaskPanicked), which says that it was a `Drop`.
pub(crate) fn catch_drop(drops: impl FnOnce()) -> Result<()> {
    catch(drops).map_err(|panic| {
        Error::new(ErrorKind::HostTaskPanicked, format!("the `Drop` of a value panicked: {panic}"))
    })
}
