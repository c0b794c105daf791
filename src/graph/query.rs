//! The queries of a graph.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use wakegraph_hal::{Access, CommandKind, DeviceId, Result};

use super::modifiable::GraphProperties;
use super::modifiable::{Content, Graph};
use super::{GraphId, NodeId, label};

/// Nodes and edges.
impl<P> Graph<P> {
    /// The number of nodes; a sub-graph counts as one.
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Whether the graph has no node.
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// The number of edges.
    pub(crate) fn edge_count(&self) -> usize {
        self.adjacency.edges().len()
    }

    /// Identifies the graph. A clone has an id of its own.
    pub fn id(&self) -> GraphId {
        GraphId(self.identity)
    }

    /// Identifies the graph that this one is a clone of, or the graph itself. The ids of its nodes
    /// carry it.
    pub(crate) fn source(&self) -> u32 {
        self.source
    }

    /// The properties that the graph was created with.
    pub fn properties(&self) -> GraphProperties {
        self.properties
    }

    /// All current nodes in insertion order.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = NodeId> + DoubleEndedIterator + Clone + use<P> {
        let graph = self.identity;
        (0..self.len()).map(move |index| NodeId { graph, index: index as u32 })
    }

    /// Whether there is an edge between the nodes with these indices.
    pub(crate) fn has_edge_at(&self, from: u32, to: u32) -> bool {
        self.adjacency.contains(from, to)
    }

    /// Nodes without a predecessor, in insertion order. Takes time proportional to their number.
    pub fn roots(&self) -> impl Iterator<Item = NodeId> + Clone + '_ {
        self.adjacency.roots().map(|index| NodeId { graph: self.identity, index })
    }

    /// Nodes without a successor, in insertion order. Takes time proportional to their number.
    pub fn leaves(&self) -> impl DoubleEndedIterator<Item = NodeId> + Clone + '_ {
        self.adjacency.leaves().map(|index| NodeId { graph: self.identity, index })
    }

    /// A view of a node, for its kind, name, accesses and neighbours.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub(crate) fn node(&self, id: NodeId) -> Result<NodeRef<'_, P>> {
        Ok(NodeRef { graph: self, index: self.index_of(id)? })
    }

    /// The nodes that a node has edges from, in the order in which the edges were made.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn predecessors(&self, id: NodeId) -> Result<impl ExactSizeIterator<Item = NodeId> + Clone + '_> {
        Ok(self.node(id)?.predecessors())
    }

    /// The nodes that a node has edges to, in the order in which the edges were made.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph.
    pub fn successors(&self, id: NodeId) -> Result<impl ExactSizeIterator<Item = NodeId> + Clone + '_> {
        Ok(self.node(id)?.successors())
    }

    /// The first node with this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        let index = self.names.iter().position(|given| given.as_deref() == Some(name))?;
        self.id_at(index)
    }

    /// The id of the node with this index. A node has the same index in a graph and in its clones.
    pub(crate) fn id_at(&self, index: usize) -> Option<NodeId> {
        (index < self.len()).then_some(NodeId { graph: self.identity, index: index as u32 })
    }
}

/// Raw columns, indexed by [`NodeId::index`].
impl<P> Graph<P> {
    /// The kind of each node.
    pub fn kinds(&self) -> &[CommandKind] {
        &self.kinds
    }

    /// The device of each node.
    pub fn devices(&self) -> &[DeviceId] {
        &self.devices
    }

    /// The content of a node.
    ///
    /// # Panics
    /// When there is no such node.
    pub(crate) fn content_at(&self, index: usize) -> &Content<P> {
        &self.contents[index]
    }

    /// All edges, `(from, to)`, in insertion order.
    pub fn edges(&self) -> impl ExactSizeIterator<Item = (u32, u32)> + Clone + '_ {
        self.adjacency.edges()
    }

    /// A rank for each node such that every edge leads from a lower to a higher rank: a permutation
    /// of `0..len`. `None` under [`no_cycle_check`](GraphProperties::no_cycle_check).
    #[cfg(test)]
    pub(super) fn topological_ranks(&self) -> Option<&[u32]> {
        self.order.as_ref().map(|order| order.ranks())
    }

    /// Whether every edge leads from an older to a newer node. Insertion order is then a topological order.
    pub(crate) fn is_insertion_ordered(&self) -> bool {
        self.insertion_ordered
    }

    /// Whether a node has [`Content::SubGraph`].
    pub(crate) fn has_sub_graphs(&self) -> bool {
        self.has_sub_graphs
    }

    /// Whether a node is a [`CommandKind::Empty`], not counting nodes inside sub-graphs.
    pub(crate) fn has_empty_nodes(&self) -> bool {
        self.has_empty_nodes
    }

    /// The label of a node in errors: `kernel 'blur' (#3)`, or `kernel #3` without a name.
    ///
    /// # Panics
    /// When there is no such node.
    pub(crate) fn label_at(&self, index: usize) -> String {
        label(self.kinds[index], self.name_at(index).map(|name| &**name), index as u32)
    }

    /// The name of a node, if it has one.
    pub(crate) fn name_at(&self, index: usize) -> Option<&Arc<str>> {
        self.names.get(index)?.as_ref()
    }

    /// The accesses that the node at `index` was added with.
    ///
    /// # Panics
    /// When there is no such node.
    pub(crate) fn accesses_at(&self, index: usize) -> &[Access] {
        let start = index.checked_sub(1).map_or(0, |before| self.access_ends[before]);
        &self.accesses[start..self.access_ends[index]]
    }

    /// The place in the source where a node was added.
    ///
    /// # Panics
    /// When there is no such node.
    pub(crate) fn location_at(&self, index: usize) -> &'static Location<'static> {
        self.locations[index]
    }
}

/// A view of one node of a graph.
pub(crate) struct NodeRef<'a, P> {
    graph: &'a Graph<P>,
    index: u32,
}

impl<'a, P> NodeRef<'a, P> {
    /// The kind of the node.
    pub(crate) fn kind(self) -> CommandKind {
        self.graph.kinds[self.index as usize]
    }

    /// The name of the node, if it has one.
    pub(crate) fn name(self) -> Option<&'a str> {
        self.graph.name_at(self.index as usize).map(|name| &**name)
    }

    /// The device of the node.
    pub(crate) fn device(self) -> DeviceId {
        self.graph.devices[self.index as usize]
    }

    /// The content of the node.
    pub(crate) fn content(self) -> &'a Content<P> {
        self.graph.content_at(self.index as usize)
    }

    /// The accesses that the node was added with.
    pub(crate) fn accesses(self) -> &'a [Access] {
        self.graph.accesses_at(self.index as usize)
    }

    /// The place in the source where the node was added.
    pub(crate) fn location(self) -> &'static Location<'static> {
        self.graph.location_at(self.index as usize)
    }

    /// The nodes it has edges from, in the order in which the edges were made.
    pub(crate) fn predecessors(self) -> impl ExactSizeIterator<Item = NodeId> + Clone + 'a {
        self.graph.adjacency.predecessors(self.index).map(move |index| self.at(index))
    }

    /// The nodes it has edges to, in the order in which the edges were made.
    pub(crate) fn successors(self) -> impl ExactSizeIterator<Item = NodeId> + Clone + 'a {
        self.graph.adjacency.successors(self.index).map(move |index| self.at(index))
    }

    /// The label of the node in errors; see [`Graph::label_at`].
    pub(crate) fn label(self) -> String {
        self.graph.label_at(self.index as usize)
    }

    fn at(self, index: u32) -> NodeId {
        NodeId { graph: self.graph.identity, index }
    }
}

impl<P> Clone for NodeRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for NodeRef<'_, P> {}

impl<P> fmt::Debug for NodeRef<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NodeRef").field(&format_args!("{}", self.label())).finish()
    }
}
