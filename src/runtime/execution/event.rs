//! Handles to the completion of submissions.

use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::runtime::execution::run::Run;
use crate::types::Result;

/// Completion of one submission: a handle that can be cloned, sent, awaited many times and put into
/// other submissions' wait lists.
#[derive(Clone, Debug)]
pub struct Event {
    run: Arc<Run>,
}

impl Event {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self { run }
    }

    /// Whether the work is final, successful or not; see
    /// [`Submission::is_finished`](crate::Submission::is_finished).
    pub fn is_finished(&self) -> bool {
        self.run.is_finished()
    }

    /// Waits until the work is final.
    ///
    /// # Errors
    /// The submission's.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Result<()> {
        self.run.done.wait().await;
        self.run.result()
    }

    pub(crate) fn run(&self) -> &Arc<Run> {
        &self.run
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}
