//! The builder of a node that has just been added.

use std::panic::Location;
use std::sync::Arc;

use wakegraph_hal::Result;

use crate::graph::NodeId;
use crate::runtime::builder::Graph;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::kernel::KernelCall;

/// A node that has just been added, to be named, ordered after others, or put on another device.
/// Dropping it does nothing; the node stays.
///
/// It borrows the graph, so it is gone before the next node is added: keep its [`id`](Self::id)
/// where later nodes are to come after it. Edges that follow from buffers need no id.
///
/// What goes wrong here is kept by the graph and comes out of [`finalize`](Graph::finalize), as for
/// the call that added the node.
///
/// ```
/// use wakegraph::{Device, Graph};
///
/// # fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, y) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
/// let mut graph = Graph::new(&device);
/// let clear = graph.fill(&x, 0).name("clear").id();
/// let other = graph.fill(&y, 1).after([clear]).id(); // by hand, as they share no memory
/// assert_eq!(graph.predecessors(other)?, [clear]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NodeBuilder<'g> {
    graph: &'g mut Graph,
    id: NodeId,
    /// A copy through the host: its halves run on the devices that they read and write.
    staged: bool,
}

impl<'g> NodeBuilder<'g> {
    pub(crate) fn new(graph: &'g mut Graph, id: NodeId) -> Self {
        Self { graph, id, staged: false }
    }

    pub(crate) fn staged(self) -> Self {
        Self { staged: true, ..self }
    }

    /// Names the node: in errors, traces, drawings, profiles.
    pub fn name(self, name: impl Into<Arc<str>>) -> Self {
        let result = self.graph.nodes_mut().set_name(self.id, name);
        self.graph.keep_error(result);
        self
    }

    /// Runs the node after all of `predecessors`, besides those it follows from its accesses.
    pub fn after(self, predecessors: impl IntoIterator<Item = NodeId>) -> Self {
        for predecessor in predecessors {
            let result = self.graph.nodes_mut().make_edge(predecessor, self.id);
            self.graph.keep_error(result);
        }
        self
    }

    /// Runs the node after every node that has no successor at this moment.
    pub fn after_leaves(self) -> Self {
        let id = self.id;
        let leaves: Vec<_> = self.graph.leaves().filter(|&leaf| leaf != id).collect();
        self.after(leaves)
    }

    /// Runs the node on `device` instead of the one that its buffers suggest.
    ///
    /// A copy between devices without a direct path runs on both of them, whatever is said here.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a host task, which
    /// runs on no device, and for a sub-graph, whose nodes have devices of their own.
    #[track_caller]
    pub fn on(self, device: &Device) -> Self {
        if !self.staged {
            self.graph.set_node_device(self.id, device, Location::caller());
        }
        self
    }

    /// Runs a kernel that a queue records on the queue's device.
    #[track_caller]
    pub(crate) fn on_queue(self, device: &Device) -> Self {
        match self.graph.inner().devices()[self.id.index()] == device.id() {
            true => self,
            false => self.on(device),
        }
    }

    /// Registers the kernel of `call` as one that an [update](crate::update::Update) may put in the place
    /// of the node's own. The arguments of `call` are of no importance: the update brings new ones.
    ///
    /// # Errors
    /// At finalize: [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node that is no
    /// kernel. If the graph is finalized as updatable,
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) when the kernel has no
    /// variant for the device.
    #[track_caller]
    pub fn alternative(self, call: impl Into<KernelCall>) -> Self {
        self.graph.add_alternative(self.id, call.into().kernel, Location::caller());
        self
    }

    /// Lets `change` refine the node. The graph keeps its error.
    pub(super) fn refine(self, change: impl FnOnce(&mut Graph, NodeId) -> Result<()>) -> Self {
        let result = change(self.graph, self.id);
        self.graph.keep_error(result);
        self
    }

    /// The node's id, for edges and queries.
    pub fn id(&self) -> NodeId {
        self.id
    }
}

impl From<NodeBuilder<'_>> for NodeId {
    fn from(node: NodeBuilder<'_>) -> Self {
        node.id
    }
}
