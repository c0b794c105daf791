//! Updates: what an executable works on changes, its topology does not.
//!
//! An update takes its place in the order of the submissions at once, and never waits. If
//! everything submitted so far has been handed to its devices, it is applied at once: what is in
//! flight keeps its values, as the backends promise. If a run still has partitions to start, or is
//! itself still waiting, the update takes a *turn*: a task applies it when that run has ended. Until
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
//! | this | [`Update`]: what users see |
//! | `step`, `change` | what an update changes, and what it makes of all nodes that it names |
//! | `apply` | when an update is applied, all or nothing, and registers the memory that it brings |
//! | `draft` | what an update makes of one node, worked out without a lock |
//! | `bodies` | the same for nodes inside conditionals and loops |
//! | `nodes`, `race_check` | changes of single nodes, and whether they stay free of data races |
//! | `replace` | an executable from another graph |
//!
//! What an updatable executable remembers is in `finalize::updatable`, how it finds nodes in
//! `finalize::node_index`.

mod apply;
mod bodies;
mod change;
mod draft;
mod nodes;
mod race_check;
mod replace;
mod step;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::panic::Location;
use std::sync::Arc;

pub use apply::Applied;
use apply::apply;
use bytemuck::Pod;
use change::Change;
use step::{NodeChange, StagedOperands, Steps, UpdateStep};
use wakegraph_hal::Range;

use crate::graph::NodePath;
use crate::runtime::builder::command_group::CommandGroup;
use crate::runtime::builder::memory_command::{MemoryCommand, Transfer};
use crate::runtime::builder::parameter::{AnyParam, DynamicParam, ParamValue};
use crate::runtime::builder::{Graph, host_task_command};
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::executable_graph::ExecutableGraph;
use crate::runtime::execution::host_guard::{HostAccesses, TaskClosure, TaskOutput};
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::resource::buffer::Buffer;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::memory_arg::{CopySource, MemoryArg};
use crate::runtime::resource::rect::RectCopy;

/// Updates.
impl ExecutableGraph {
    /// Prepares a change of what nodes do: kernels' arguments and ranges, dynamic parameters,
    /// alternatives of command groups, closures of host tasks, operands of fills and copies, and
    /// which nodes do anything. The executable must have been finalized as
    /// [`updatable`](crate::FinalizeOptions::updatable).
    ///
    /// ```
    /// # use wakegraph::{Device, FinalizeOptions, Graph, Range};
    /// # wakegraph::kernel! {
    /// #     fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let x = device.buffer::<u32>(3)?;
    /// let mut graph = Graph::new(&device);
    /// let node = graph.launch(add(1, &x), Range::linear(3)).id();
    /// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
    ///
    /// let before = exec.submit();
    /// exec.update().launch(node, add(10, &x)).apply().await?;
    /// let after = exec.submit();
    /// before.await?;
    /// after.await?;
    /// assert_eq!(x.to_vec().await?, [11; 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self) -> Update<'_> {
        Update::new(&self.inner)
    }

    /// Makes the executable do what `graph` says, as if it had been finalized from it: new
    /// operands, ranges and host tasks in the same topology. All nodes are enabled then.
    ///
    /// [Scratch buffers](crate::Graph::scratch) are placed again, in the memory that the executable has
    /// for them if that is enough. Dynamic parameters and command groups stay those of the graph that
    /// was finalized; where the node has a group in `graph`, too, the group then chooses among the
    /// alternatives there. The ids of nodes in bodies stay as well, unless a body has other nodes (another
    /// number, kinds or devices, in the order in which they were added): then it brings its own ids,
    /// parameters and groups. Its edges may be other ones, as they follow from the memory that is used.
    ///
    /// Applies after the submissions already made and before later ones, as [`Update::apply`] does,
    /// with all that is said there. `graph` is read before this returns; its ids are not those of
    /// the executable's nodes, whose own stay good.
    ///
    /// Before the update takes its place, this records the graph on the calling thread, as
    /// [`finalize`](Graph::finalize) does: kernels that are new to the device are loaded, which may
    /// take long, and the closures of [native commands](Graph::native) are called. Meanwhile the
    /// executable can be submitted and updated by others, and by these closures: that comes before
    /// this update.
    ///
    /// # Errors
    /// They come out of the future, and the executable is as it was.
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when it is not updatable;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the graph has other nodes, on
    /// other devices, or other edges, compared in the order in which they were added, or launches a
    /// kernel that is neither the node's own nor a [registered
    /// alternative](crate::NodeBuilder::alternative): each difference by its nodes' names; the first
    /// of the graph's own [errors](crate::Graph::errors); those of the devices.
    pub fn update_from(&self, graph: &Graph) -> Applied {
        let recorded = replace::record(&self.inner, graph);
        apply(&self.inner, recorded.map(|recorded| Change::Whole(Box::new(recorded))))
    }
}

/// An update in preparation, of an executable that was finalized as
/// [`updatable`](crate::FinalizeOptions::updatable). Nodes are named by the ids that they have in
/// the graph which was finalized, and nodes inside its sub-graphs and bodies by a [`NodePath`]. Nothing
/// happens before [`apply`](Self::apply); what is said last about a node counts.
///
/// A changed node of a body has its outermost conditional or loop recorded again, as
/// [`finalize`](Graph::finalize) does.
#[must_use = "nothing happens before `apply`"]
pub struct Update<'a> {
    executable: &'a Arc<ExecutableInner>,
    /// In a box, because each change passes the update by value.
    steps: Box<Steps>,
}

impl<'a> Update<'a> {
    pub(crate) fn new(executable: &'a Arc<ExecutableInner>) -> Self {
        Self { executable, steps: Box::default() }
    }

    /// Gives a kernel node new arguments: `call` is of the node's own kernel, or of a [registered
    /// alternative](crate::NodeBuilder::alternative), which it launches from then on. The range
    /// stays.
    ///
    /// The arguments may be other memory. Its use must be ordered, by the edges that the graph was
    /// finalized with, against every conflicting use by another node.
    #[track_caller]
    pub fn launch(mut self, node: impl Into<NodePath>, call: impl Into<KernelCall>) -> Self {
        let number = self.steps.calls.len();
        self.steps.calls.push(call.into());
        self.with(node, NodeChange::Launch(number))
    }

    /// Launches a kernel node over another range, of as many dimensions.
    #[track_caller]
    pub fn range(self, node: impl Into<NodePath>, range: Range) -> Self {
        self.with(node, NodeChange::Range(Box::new(range)))
    }

    /// Lets a kernel, fill or copy do what it says, or nothing. What follows a disabled node still
    /// comes after what it follows.
    #[track_caller]
    pub fn enabled(self, node: impl Into<NodePath>, enabled: bool) -> Self {
        self.with(node, NodeChange::Enabled(enabled))
    }

    /// Gives a dynamic parameter a value in this executable. Every kernel gets it that the parameter
    /// is bound to, those inside sub-graphs and bodies included.
    ///
    /// New memory must be ordered as for [`launch`](Self::launch). Where a [launch](Self::launch) has
    /// replaced the kernel by another one, the parameter stands for the argument of the same name
    /// and type, if there is one.
    #[track_caller]
    pub fn param<T: ?Sized + 'static>(self, param: &DynamicParam<T>, value: impl ParamValue<T>) -> Self {
        self.step(UpdateStep::Param(param.inner().clone(), value.into_arg()))
    }

    /// Gives dynamic parameters the values that the graph has now.
    #[track_caller]
    pub fn from_params<const N: usize>(self, params: [&dyn AnyParam; N]) -> Self {
        params.into_iter().fold(self, |update, param| {
            let param = param.parameter();
            let value = param.value();
            update.step(UpdateStep::Param(param, value))
        })
    }

    /// Runs another alternative of a [command group](crate::update::CommandGroup) in this executable, in all
    /// nodes that share the group. Arguments, ranges and closures that an update has given to the
    /// alternative which was active stay with it until it is chosen again.
    #[track_caller]
    pub fn choose(self, group: &CommandGroup, index: usize) -> Self {
        self.step(UpdateStep::Choose(group.inner().clone(), index))
    }

    /// Gives a host task another closure, with accesses of its own, as for
    /// [`Graph::host_task`](crate::Graph::host_task). Other memory must be ordered as for
    /// [`launch`](Self::launch).
    ///
    /// ```
    /// # use wakegraph::{Device, FinalizeOptions, Graph, write};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let numbers = device.host_buffer::<u32>(2)?;
    /// let mut graph = Graph::new(&device);
    /// let task = graph.host_task((write(&numbers),), async |(mut numbers,)| numbers[0] += 1).id();
    /// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
    /// exec.submit().await?;
    /// let update = exec.update();
    /// update.host_task(task, (write(&numbers),), async |(mut numbers,)| numbers[1] += 10).apply().await?;
    /// exec.submit().await?;
    /// assert_eq!(*numbers.read().await, [1, 10]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn host_task<A, F, R>(self, node: impl Into<NodePath>, accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + TaskClosure,
        R: Future + Send + 'static,
        R::Output: TaskOutput,
    {
        let declared = accesses.declared();
        let command = host_task_command(declared, Arc::new(HostTask::new(accesses, closure)));
        self.with(node, NodeChange::HostTask(Box::new(command)))
    }

    /// Changes as [`host_task`](Self::host_task) does, with a closure that blocks or computes for long: see
    /// [`Graph::host_task_blocking`](crate::Graph::host_task_blocking).
    #[track_caller]
    pub fn host_task_blocking<A, F, R>(self, node: impl Into<NodePath>, accesses: A, closure: F) -> Self
    where
        A: HostAccesses,
        F: FnOnce(A::Views) -> R + TaskClosure,
        R: TaskOutput,
    {
        let declared = accesses.declared();
        let command = host_task_command(declared, Arc::new(HostTask::blocking(accesses, closure)));
        self.with(node, NodeChange::HostTask(Box::new(command)))
    }

    /// Gives a copy other operands, as for [`Graph::copy`](crate::Graph::copy): buffers and host
    /// buffers where the node has them, of the same devices. Other memory must be ordered as for
    /// [`launch`](Self::launch). A copy between devices without a direct path still goes through the host,
    /// in larger memory there if it is longer than before.
    ///
    /// ```
    /// # use wakegraph::{Device, FinalizeOptions, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let (x, y) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
    /// let mut graph = Graph::new(&device);
    /// let fill = graph.fill(&x, 1).id();
    /// let copy = graph.copy(&x, &y).id();
    /// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
    /// let (left, right) = (y.slice(..2)?, y.slice(2..)?);
    /// exec.update().fill(fill, &left, 7).copy(copy, &left, &right).apply().await?;
    /// exec.submit().await?;
    /// assert_eq!(y.to_vec().await?, [7; 4]);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn copy<T: Pod>(
        self,
        node: impl Into<NodePath>,
        src: impl CopySource<T>,
        dst: impl MemoryArg<T>,
    ) -> Self {
        self.with(node, transfer(Transfer::copy(src, dst)))
    }

    /// Gives a rectangular copy other operands, as for [`Graph::copy_rect`](crate::Graph::copy_rect).
    #[track_caller]
    pub fn copy_rect<T: Pod>(
        self,
        node: impl Into<NodePath>,
        src: impl CopySource<T>,
        dst: impl MemoryArg<T>,
        copy: RectCopy,
    ) -> Self {
        self.with(node, transfer(Transfer::rect(src, dst, copy)))
    }

    /// Gives a fill another destination and another value, as for
    /// [`Graph::fill`](crate::Graph::fill).
    #[track_caller]
    pub fn fill<T: Pod>(self, node: impl Into<NodePath>, dst: &Buffer<T>, value: T) -> Self {
        self.fill_pattern(node, dst, &[value])
    }

    /// Gives a fill another destination and another pattern, as for
    /// [`Graph::fill_pattern`](crate::Graph::fill_pattern).
    #[track_caller]
    pub fn fill_pattern<T: Pod>(self, node: impl Into<NodePath>, dst: &Buffer<T>, pattern: &[T]) -> Self {
        self.with(node, NodeChange::Memory(Box::new(MemoryCommand::fill(dst, pattern))))
    }

    /// Applies all changes, or none of them.
    ///
    /// The update takes its place at once: submissions already made see the old values, later ones
    /// the new. It never waits for devices or loads kernels, because
    /// [alternatives](crate::NodeBuilder::alternative) are loaded by finalize. Where everything
    /// submitted so far is on its devices, it has been applied when this returns. Otherwise a task
    /// applies it when those submissions have ended, and later submissions wait for it; so it needs a
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
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when the executable is not updatable, or
    /// when the update has to wait and there is no tokio runtime;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node that is not of the finalized
    /// graph, a parameter or command group of another graph, an alternative that a group does not
    /// have, a node of a kind that has nothing to be changed so, a kernel that is not
    /// registered, arguments that do not fit, a range of other dimensions, memory that is used
    /// without order, and a [scratch buffer](crate::Graph::scratch) that the node does not use in
    /// the finalized graph; [`InvalidSize`](crate::ErrorKind::InvalidSize) for a range that cannot be
    /// launched, or beyond the bound of the kernel with its arguments, whichever of the two is new;
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for what the device cannot update;
    /// those of the devices.
    ///
    /// If a device refuses the update and the other devices cannot be given the old values again,
    /// the executable is of no more use: submissions that wait behind the update, and all later
    /// ones, fail without being started.
    ///
    /// # Cancel safety
    /// Not async: when it returns, the update is on its way. Dropping the future detaches the
    /// update, which is applied all the same, and an error goes to `tracing` only. An update that waits
    /// is given up only when its tokio runtime shuts down.
    pub fn apply(self) -> Applied {
        apply(self.executable, Ok(Change::nodes(self.steps)))
    }

    #[inline]
    #[track_caller]
    fn with(self, node: impl Into<NodePath>, change: NodeChange) -> Self {
        self.step(UpdateStep::Node(node.into(), change))
    }

    #[inline]
    #[track_caller]
    fn step(mut self, step: UpdateStep) -> Self {
        self.steps.all.push((step, Location::caller()));
        self
    }
}

/// Other operands of a copy.
fn transfer(transfer: Transfer) -> NodeChange {
    match transfer {
        Transfer::Direct(command) => NodeChange::Memory(Box::new(command)),
        Transfer::Staged(copy) => NodeChange::Staged(Box::new(StagedOperands::new(copy))),
    }
}

impl Debug for Update<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Update").field("changes", &self.steps.all.len()).finish_non_exhaustive()
    }
}
