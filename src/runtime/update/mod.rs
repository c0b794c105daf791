//! Updates: what an executable works on changes, its topology does not.
//!
//! An update takes its place in the order of the submissions at once, and never waits. If everything submitted so far has
//! been handed to its devices, it applies at once: what is in flight keeps its values, as the backends promise. If a
//! run still has partitions to start, or is itself still waiting, the update applies when that run is over, in a task;
//! until then a *gate*, as of a host guard, holds later submissions back.
//!
//! | file | holds |
//! |---|---|
//! | this | [`Update`], [`Applied`]: what users see |
//! | `state` | what an updatable executable remembers |
//! | `turn` | the place in the order |
//! | `carry_out` | one update, all or nothing, and the registers of the memory that it brings or takes out |
//! | `nodes`, `ordered` | changes of single nodes, and whether they stay free of data races |
//! | `whole` | an executable from another graph |

mod carry_out;
mod nodes;
mod ordered;
mod state;
#[cfg(test)]
mod tests;
mod turn;
mod whole;

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::channel::oneshot;

use super::executable::Shared;
use super::kernel::KernelCall;
use crate::graph::NodeId;
use crate::types::{Error, ErrorKind, Range, Result};
use nodes::NodeChange;
pub(crate) use state::Updatable;
pub(crate) use turn::apply;
pub(crate) use whole::whole;

/// What to change.
pub(crate) enum Change {
    Nodes(Vec<(NodeId, NodeChange, &'static Location<'static>)>),
    Whole(Box<whole::Whole>),
}

/// An update in preparation, of an executable that was finalized as
/// [`updatable`](crate::FinalizeOptions::updatable). Nodes are named by the ids that they have in the graph which was
/// finalized. Nothing happens before [`apply`](Self::apply); what is said last about a node counts.
#[must_use = "nothing happens before `apply`"]
pub struct Update<'a> {
    shared: &'a Arc<Shared>,
    changes: Vec<(NodeId, NodeChange, &'static Location<'static>)>,
}

impl<'a> Update<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared, changes: Vec::new() }
    }

    /// Gives a kernel node new arguments: `call` is of the node's own kernel, or of a
    /// [registered alternative](crate::NodeBuilder::alternative), which it launches from then on. The range stays.
    ///
    /// The arguments may be other memory. Its use must be ordered, by the edges that the graph was finalized with, against
    /// every conflicting use by another node.
    #[track_caller]
    pub fn launch(self, node: NodeId, call: impl Into<KernelCall>) -> Self {
        self.with(node, NodeChange::Launch(Arc::new(call.into())))
    }

    /// Launches a kernel node over another range, of as many dimensions.
    #[track_caller]
    pub fn range(self, node: NodeId, range: Range) -> Self {
        self.with(node, NodeChange::Range(range))
    }

    /// Lets a kernel, fill or copy do what it says, or nothing. What follows a disabled node still comes after what it
    /// follows.
    #[track_caller]
    pub fn enabled(self, node: NodeId, enabled: bool) -> Self {
        self.with(node, NodeChange::Enabled(enabled))
    }

    /// Applies all changes, or none of them.
    ///
    /// The update takes its place at once: submissions already made see the old values, later ones the new. It never
    /// blocks. Where everything submitted so far is on its devices, it has been applied when this returns. Else it is
    /// applied by a task when those submissions are over, and later ones wait for that; so it needs a tokio runtime, as they
    /// did.
    ///
    /// # Deadlock
    /// A host task that awaits an update of its own executable waits for ever, as with a
    /// [submission](crate::ExecutableGraph::submit).
    ///
    /// # Errors
    /// They come out of the future, and nothing has changed then.
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) when the executable is not updatable, or when the update has to wait
    /// and there is no tokio runtime; [`InvalidArgument`](ErrorKind::InvalidArgument) for a node that is not of the
    /// finalized graph's top level, a node of a kind that has nothing to be changed so, a kernel that is not
    /// registered, arguments that do not fit, a range of other dimensions, and memory that is used without order;
    /// [`InvalidSize`](ErrorKind::InvalidSize) for a range that cannot be launched;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for what the device cannot update; those of the devices.
    ///
    /// # Cancel safety
    /// Not async: when it returns, the update is on its way. Dropping the future detaches it, and nobody learns of an error.
    pub fn apply(self) -> Applied {
        apply(self.shared, Ok(Change::Nodes(self.changes)))
    }

    #[track_caller]
    fn with(mut self, node: NodeId, change: NodeChange) -> Self {
        self.changes.push((node, change, Location::caller()));
        self
    }
}

impl Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}

/// The future of an update: resolves when it has been applied, or to why it has not. Dropping it detaches the update.
#[must_use = "an update that fails says so here"]
#[derive(Debug)]
pub struct Applied(Outcome);

#[derive(Debug)]
enum Outcome {
    Known(Result<()>),
    Waiting(oneshot::Receiver<Result<()>>),
}

impl Applied {
    fn known(result: Result<()>) -> Self {
        Self(Outcome::Known(result))
    }

    fn waiting(result: oneshot::Receiver<Result<()>>) -> Self {
        Self(Outcome::Waiting(result))
    }

    /// Whether it is known how the update went.
    pub fn is_known(&self) -> bool {
        matches!(self.0, Outcome::Known(_))
    }
}

impl Future for Applied {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        if let Outcome::Waiting(result) = &mut self.0 {
            let result = match Pin::new(result).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(result) => result,
            };
            let shut_down = |_| {
                let why = "the tokio runtime that was to apply this update shut down";
                Err(Error::new(ErrorKind::Cancelled, why))
            };
            self.0 = Outcome::Known(result.unwrap_or_else(shut_down));
        }
        match &self.0 {
            Outcome::Known(result) => Poll::Ready(result.clone()),
            Outcome::Waiting(_) => Poll::Pending,
        }
    }
}
