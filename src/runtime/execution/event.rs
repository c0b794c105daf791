//! Handles to the completion of submissions and of commands of queues.

use std::any::Any;
use std::fmt::Debug;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;

use crate::graph::NodeId;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::run_wait::RunWait;
use crate::types::Result;

/// Completion of one submission or of one command of a [`Queue`](crate::Queue): a handle that can be cloned,
/// sent, awaited many times and put into other submissions' wait lists.
///
/// A command that a queue records becomes a node of a graph, and runs only when the graph does. Its event
/// knows the [node](Self::node). Other recorded commands can depend on it; to await it is an error.
#[derive(Clone, Debug)]
pub struct Event(EventKind);

#[derive(Clone, Debug)]
enum EventKind {
    Run(Arc<Run>),
    Recorded { node: NodeId, recording: Arc<dyn EventRecording> },
}

/// The recording that a recorded event is of.
pub(crate) trait EventRecording: Debug + Send + Sync {
    /// The recording as what it is.
    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;

    /// A run that has failed, with the reason why a recorded event cannot be waited for.
    fn refusal(&self) -> &Arc<Run>;
}

impl Event {
    pub(crate) fn new(run: Arc<Run>) -> Self {
        Self(EventKind::Run(run))
    }

    /// The event of a command that has become this node.
    pub(crate) fn recorded(node: NodeId, recording: Arc<dyn EventRecording>) -> Self {
        Self(EventKind::Recorded { node, recording })
    }

    /// Whether the work is final, successful or not; see
    /// [`Submission::is_finished`](crate::Submission::is_finished). Of a recorded command: true, because
    /// there is nothing to wait for.
    pub fn is_finished(&self) -> bool {
        self.run().is_finished()
    }

    /// How the work ended, if it is final.
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        self.is_finished().then(|| self.run().result())
    }

    /// The node that the command has become, if a queue recorded it.
    pub fn node(&self) -> Option<NodeId> {
        match self.0 {
            EventKind::Run(_) => None,
            EventKind::Recorded { node, .. } => Some(node),
        }
    }

    /// Waits until the work is final.
    ///
    /// # Errors
    /// The submission's or command's. [`InvalidOperation`](crate::ErrorKind::InvalidOperation) for the event
    /// of a recorded command.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&self) -> Result<()> {
        let run = self.run();
        RunWait::new(run.clone(), None).await;
        run.result()
    }

    /// The run. That of a recorded command has failed.
    pub(crate) fn run(&self) -> &Arc<Run> {
        match &self.0 {
            EventKind::Run(run) => run,
            EventKind::Recorded { recording, .. } => recording.refusal(),
        }
    }

    /// The recording that it is of, if it is of one.
    pub(crate) fn recording(&self) -> Option<&Arc<dyn EventRecording>> {
        match &self.0 {
            EventKind::Run(_) => None,
            EventKind::Recorded { recording, .. } => Some(recording),
        }
    }
}

impl IntoFuture for Event {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.wait().await })
    }
}
