//! The future of an update.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::channel::oneshot;
use wakegraph_hal::{Error, ErrorKind, Result};

use crate::runtime::completion::turn::Turn;

/// The future of an update: resolves when it has been applied, or to why it has not. Dropping it
/// detaches the update.
#[must_use = "an update that fails says so here"]
#[derive(Debug)]
pub struct Applied {
    outcome: Outcome,
    turn: Turn,
}

#[derive(Debug)]
enum Outcome {
    Known(Result<()>),
    WaitingUpdate(oneshot::Receiver<Result<()>>),
}

impl Applied {
    pub(super) fn known(result: Result<()>) -> Self {
        Self { outcome: Outcome::Known(result), turn: Turn::default() }
    }

    pub(super) fn waiting(result: oneshot::Receiver<Result<()>>) -> Self {
        Self { outcome: Outcome::WaitingUpdate(result), turn: Turn::default() }
    }

    /// Whether it is known how the update went.
    pub fn is_known(&self) -> bool {
        matches!(self.outcome, Outcome::Known(_))
    }
}

impl Future for Applied {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Outcome::WaitingUpdate(result) = &mut self.outcome {
            let result = match Pin::new(result).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            };
            let shut_down = |_| {
                let why = "the tokio runtime that was to apply this update shut down";
                Err(Error::new(ErrorKind::Cancelled, why))
            };
            self.outcome = Outcome::Known(result.unwrap_or_else(shut_down));
        }
        ready!(self.turn.poll(cx));
        match &self.outcome {
            Outcome::Known(result) => Poll::Ready(result.clone()),
            Outcome::WaitingUpdate(_) => Poll::Pending,
        }
    }
}
