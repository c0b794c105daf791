//! What can be asked of a graph.

use super::Graph;
use crate::graph::NodeId;
use crate::runtime::device::Device;
use crate::types::{CommandKind, Error, Result};

impl Graph {
    /// The device of nodes that use no device's buffers.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// How many nodes there are.
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
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a node of another graph; so for all queries.
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

    /// What the node does.
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

    /// The first node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.nodes.find(name)
    }

    /// The graph in Graphviz' language; `verbose` adds operands and accesses.
    pub fn dot(&self, verbose: bool) -> String {
        let dot = self.nodes.dot();
        if verbose { dot.verbose().to_string() } else { dot.to_string() }
    }

    /// What went wrong so far in adding nodes; [`finalize`](Self::finalize) returns the first.
    pub fn errors(&self) -> &[Error] {
        &self.errors
    }
}
