//! Queries of a graph.

use std::panic::Location;

use wakegraph_hal::{Access, CommandKind, Error, Result};

use crate::graph::{GraphId, NodeId};
use crate::runtime::builder::Graph;
use crate::runtime::resource::device::Device;

impl Graph {
    /// Identifies the graph, also in the [ids of its nodes](NodeId::graph_id).
    pub fn id(&self) -> GraphId {
        self.nodes.id()
    }

    /// The device of nodes that use no device's buffers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no node.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All nodes in the order in which they were added.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.nodes()
    }

    /// All edges as `(from, to)`, in the order in which they were made: those that follow from accesses and
    /// those that were asked for.
    pub fn edges(&self) -> impl Iterator<Item = (NodeId, NodeId)> + '_ {
        let id = |index: u32| self.nodes.id_at(index as usize);
        self.nodes.edges().filter_map(move |(from, to)| Some((id(from)?, id(to)?)))
    }

    /// Nodes without a predecessor.
    pub fn roots(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.roots()
    }

    /// Nodes without a successor.
    pub fn leaves(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.nodes.leaves()
    }

    /// The nodes that `node` directly follows.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph; so for all
    /// queries.
    pub fn predecessors(&self, node: NodeId) -> Result<Vec<NodeId>> {
        Ok(self.nodes.node(node)?.predecessors().collect())
    }

    /// The nodes that directly follow `node`.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn successors(&self, node: NodeId) -> Result<Vec<NodeId>> {
        Ok(self.nodes.node(node)?.successors().collect())
    }

    /// Returns the kind of the node's command.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn kind(&self, node: NodeId) -> Result<CommandKind> {
        Ok(self.nodes.node(node)?.kind())
    }

    /// The node's name, if it has one.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn name(&self, node: NodeId) -> Result<Option<&str>> {
        Ok(self.nodes.node(node)?.name())
    }

    /// The device that runs the node, or whose node it was added as, if the host runs it.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn device_of(&self, node: NodeId) -> Result<&Device> {
        let device = self.nodes.node(node)?.device();
        Ok(self.find_device(device).unwrap_or(&self.device))
    }

    /// The memory that the node uses, and how: what its edges follow from.
    ///
    /// ```
    /// use wakegraph::memory::AccessMode;
    /// use wakegraph::{Device, Graph};
    ///
    /// # fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let x = device.buffer::<u32>(8)?;
    /// let mut graph = Graph::new(&device);
    /// let fill = graph.fill(&x.slice(2..4)?, 7).id();
    /// let [access] = graph.accesses(fill)? else { unreachable!() };
    /// assert_eq!((access.resource, access.mode), (x.resource(), AccessMode::Write));
    /// assert_eq!((access.start, access.end), (8, 16)); // in bytes
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn accesses(&self, node: NodeId) -> Result<&[Access]> {
        Ok(self.nodes.node(node)?.accesses())
    }

    /// The place in the source where the node was added.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn location(&self, node: NodeId) -> Result<&'static Location<'static>> {
        Ok(self.nodes.node(node)?.location())
    }

    /// The first node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.find(name)
    }

    /// The graph in Graphviz' language; `verbose` adds operands with the values of arguments, accesses and
    /// places in the source.
    pub fn dot(&self, verbose: bool) -> String {
        let dot = self.nodes.dot();
        if verbose { dot.verbose().to_string() } else { dot.to_string() }
    }

    /// Returns the errors in adding nodes so far; [`finalize`](Self::finalize) returns the first.
    ///
    /// These are the mistakes that can be seen without asking a device:
    ///
    /// - a range of no work-items, or whose numbers are too large;
    /// - arguments and accesses of one node that overlap while one of them writes, or lengths that
    ///   do not match;
    /// - rectangles outside their buffers;
    /// - a scratch buffer of another graph, or where none can be used;
    /// - an edge to a node of another graph, or one that would close a cycle, asked for with
    ///   [`after`](crate::NodeBuilder::after) ([`make_edge`](Self::make_edge) returns its own errors);
    /// - [`on`](crate::NodeBuilder::on) and [`alternative`](crate::NodeBuilder::alternative) for
    ///   nodes that cannot have them;
    /// - a [sub-graph](Self::sub_graph) or body that has an error itself.
    ///
    /// What depends on devices, on the graph as a whole or on the options comes out of
    /// [`finalize`](Self::finalize) only: a command that the device lacks, a kernel without a variant for it
    /// or whose source does not compile, a range beyond its limits, memory that it cannot reach, memory that
    /// cannot be allocated, and a cycle in a graph that was built [without a
    /// check](crate::graph::GraphProperties::no_cycle_check).
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }

    /// Takes the [`errors`](Self::errors) out, so that the graph can be finalized without the nodes
    /// that were refused. An empty node stays in the place of each, so that the ids which were
    /// returned for them remain valid. A node of which only a refinement was refused (an edge, a
    /// device, a parameter) stays without that refinement.
    ///
    /// ```
    /// # use wakegraph::{Device, ErrorKind, Graph};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// let device = Device::open("host")?;
    /// let (x, y) = (device.buffer_from(&[1u32, 2])?, device.buffer::<u32>(3)?);
    /// let mut graph = Graph::new(&device);
    /// graph.fill(&x, 7);
    /// graph.copy(&x, &y);
    /// let refused = graph.take_errors();
    /// assert_eq!(refused[0].kind(), ErrorKind::InvalidSize);
    /// graph.copy(&x, y.slice(..2)?);
    /// graph.finalize()?.submit().await?;
    /// assert_eq!(y.to_vec().await?, [7, 7, 0]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use = "what was refused is not in the graph"]
    pub fn take_errors(&mut self) -> Vec<Error> {
        std::mem::take(&mut self.errors)
    }
}
