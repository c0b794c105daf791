//! The driver's graphs, and what a backend keeps about them.

use std::fmt::Debug;

use crate::support::streams::{ContextFailure, DriverStream, LaunchDevice, MemoryDevice, RawEvent};
use crate::{KernelLaunch, Result};

/// A device whose command-buffers are graphs of the driver. The caller of the functions has bound the
/// context.
pub trait GraphObjects: LaunchDevice + MemoryDevice {
    /// A graph under construction. The driver takes one call at a time.
    type Graph: Debug + Send + 'static;
    /// A node of a graph, which keeps it alive.
    type Node: Copy + Debug + Send + Sync;
    /// A launch of a kernel as nodes take it.
    type Launch: Clone + Debug + Send + Sync + 'static;
    /// An instantiated graph.
    type Exec: InstantiatedGraph<Self>;
    /// What a recording knows about the order of its nodes.
    type Order: Default + Debug + Send + Sync;
    /// What it knows about the place of one command in that order.
    type Place: Debug + Send + Sync;
    /// What an instance has beside the instantiated graph.
    type Form: Debug + Send + Sync + 'static;

    /// Creates an empty graph.
    fn create_graph(&self) -> Result<Self::Graph>;

    /// The launch of a kernel of this device.
    fn launch_of(&self, launch: &KernelLaunch) -> Result<Self::Launch>;

    /// Gives a launch the argument with this index of `launch`, from which it differs in arguments alone.
    /// False, and without effect, if it has to be made again for that.
    fn replace_argument(current: &mut Self::Launch, launch: &KernelLaunch, index: usize) -> Result<bool>;
}

/// An instantiated graph, which the driver launches. It takes one call at a time, and the caller has bound
/// the context.
pub trait InstantiatedGraph<D: GraphObjects>: Debug + Send + Sync + Sized + 'static {
    /// Instantiates a graph.
    fn instantiate(graph: &mut D::Graph) -> Result<Self, ContextFailure<D::Context>>;

    /// Prepares the first launch.
    fn upload(&mut self, stream: &DriverStream<D::Context>) -> Result<(), ContextFailure<D::Context>>;

    /// Launches it. If a part of it cannot be launched behind other parts, which are on the stream then, that
    /// failure is in the result.
    fn launch(
        &mut self,
        stream: &DriverStream<D::Context>,
    ) -> Result<Option<ContextFailure<D::Context>>, ContextFailure<D::Context>>;

    /// Changes a kernel node for later launches.
    fn set_kernel(&mut self, node: D::Node, launch: &D::Launch) -> Result<(), ContextFailure<D::Context>>;

    /// Enables or disables a node in later launches.
    fn set_enabled(&mut self, node: D::Node, enabled: bool) -> Result<(), ContextFailure<D::Context>>;

    /// Lets a record node record another event in later launches.
    fn set_event(
        &mut self,
        node: D::Node,
        event: &RawEvent<D::Context>,
    ) -> Result<(), ContextFailure<D::Context>>;

    /// Makes later launches do what `graph` says, whose nodes are like those of the graph that this
    /// was made from. False where the driver refuses; then later launches may do anything.
    fn update(&mut self, graph: &mut D::Graph) -> Result<bool, ContextFailure<D::Context>>;
}
