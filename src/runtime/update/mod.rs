//! Updates: what an executable works on changes, its topology does not.
//!
//! An update takes its place in the order of the submissions at once, and never waits. If
//! everything submitted so far has been handed to its devices, it is applied at once: what is in
//! flight keeps its values, as the backends promise. If a run still has partitions to start, or is
//! itself still waiting, the update takes a *turn*: a task applies it when that run is over. Until
//! then later submissions wait, and the memory that the update may bring is registered as theirs,
//! beside the memory that the executable uses already. So guards and other executables are ordered
//! against these submissions as soon as they are made. When the update has been applied or given
//! up, what is not used any more is taken out.
//!
//! Users' code never runs under the locks of this module. Another graph is recorded, which loads
//! kernels and calls the closures of native commands, before its update takes its place.
//!
//! | file | holds |
//! |---|---|
//! | this | [`Update`], [`Applied`]: what users see |
//! | `state` | what an updatable executable remembers |
//! | `turn` | the place of an update that has to wait |
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

use crate::graph::NodeId;
use crate::runtime::execution::executable::Shared;
use crate::runtime::resource::kernel::KernelCall;
use crate::types::{Error, ErrorKind, Range, Result};
use carry_out::Accesses;
use nodes::NodeChange;
pub(crate) use state::Updatable;
pub(crate) use turn::apply;
use whole::Recorded;
pub(crate) use whole::whole;

/// What to change.
pub(crate) enum Change {
    Nodes(Vec<(NodeId, NodeChange, &'static Location<'static>)>),
    Whole(Box<Recorded>),
}

impl Change {
    /// Everything that the executable may use once the change is applied, and may not have used before.
    fn brings(&self) -> Accesses {
        match self {
            Self::Whole(recorded) => recorded.uses().accesses(),
            Self::Nodes(changes) => {
                let calls = changes.iter().filter_map(|(_, change, _)| match change {
                    NodeChange::Launch(call) => Some(call),
                    NodeChange::Range(_) | NodeChange::Enabled(_) => None,
                });
                calls.flat_map(|call| nodes::brings(call)).collect()
            }
        }
    }
}

/// An update in preparation, of an executable that was finalized as
/// [`updatable`](crate::FinalizeOptions::updatable). Nodes are named by the ids that they have in
/// the graph which was finalized. Nothing happens before [`apply`](Self::apply); what is said last
/// about a node counts.
#[must_use = "nothing happens before `apply`"]
pub struct Update<'a> {
    shared: &'a Arc<Shared>,
    changes: Vec<(NodeId, NodeChange, &'static Location<'static>)>,
}

impl<'a> Update<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared, changes: Vec::new() }
    }

    /// Gives a kernel node new arguments: `call` is of the node's own kernel, or of a [registered
    /// alternative](crate::NodeBuilder::alternative), which it launches from then on. The range
    /// stays.
    ///
    /// The arguments may be other memory. Its use must be ordered, by the edges that the graph was
    /// finalized with, against every conflicting use by another node.
    #[track_caller]
    pub fn launch(self, node: NodeId, call: impl Into<KernelCall>) -> Self {
        self.with(node, NodeChange::Launch(Arc::new(call.into())))
    }

    /// Launches a kernel node over another range, of as many dimensions.
    #[track_caller]
    pub fn range(self, node: NodeId, range: Range) -> Self {
        self.with(node, NodeChange::Range(range))
    }

    /// Lets a kernel, fill or copy do what it says, or nothing. What follows a disabled node still
    /// comes after what it follows.
    #[track_caller]
    pub fn enabled(self, node: NodeId, enabled: bool) -> Self {
        self.with(node, NodeChange::Enabled(enabled))
    }

    /// Applies all changes, or none of them.
    ///
    /// The update takes its place at once: submissions already made see the old values, later ones
    /// the new. It never waits for devices or loads kernels, because
    /// [alternatives](crate::NodeBuilder::alternative) are loaded by finalize. Where everything
    /// submitted so far is on its devices, it has been applied when this returns. Otherwise a task
    /// applies it when those submissions are over, and later submissions wait for it; so it needs a
    /// tokio runtime, as they did.
    ///
    /// Memory that the update brings belongs to the later submissions from now on: they are ordered
    /// against [guards](crate::HostBuffer) and other executables that use it, in the order in which
    /// all of them were asked for, also while the update still waits. If the update fails, a
    /// submission behind it may have waited for memory that it does not use.
    ///
    /// # Deadlock
    /// A host task that awaits an update of its own executable waits for ever, as with a
    /// [submission](crate::ExecutableGraph::submit).
    ///
    /// # Errors
    /// They come out of the future, and nothing has changed then.
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) when the executable is not updatable, or
    /// when the update has to wait and there is no tokio runtime;
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a node that is not of the finalized
    /// graph's top level, a node of a kind that has nothing to be changed so, a kernel that is not
    /// registered, arguments that do not fit, a range of other dimensions, memory that is used
    /// without order, and a [scratch buffer](crate::Graph::scratch) that the node does not use in
    /// the finalized graph; [`InvalidSize`](ErrorKind::InvalidSize) for a range that cannot be
    /// launched, or beyond the bound of the kernel with its arguments, whichever of the two is new;
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for what the device cannot update;
    /// those of the devices.
    ///
    /// If a device refuses the update and the other devices cannot be told the old values again,
    /// the executable is of no more use: submissions that wait behind the update, and all later
    /// ones, fail without being started.
    ///
    /// # Cancel safety
    /// Not async: when it returns, the update is on its way. Dropping the future detaches the
    /// update, which is applied all the same, and nobody learns of an error. An update that waits
    /// is given up only when its tokio runtime shuts down.
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

/// The future of an update: resolves when it has been applied, or to why it has not. Dropping it
/// detaches the update.
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
