//! The identity and the label of a node, and what a graph needs to know of a command.

use std::borrow::Cow;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::{CommandKind, CommandKinds, DeviceId};

/// Identifies a node of one graph.
///
/// A node keeps its id for good. Other graphs, including clones of the node's own, refuse the id.
/// Ids of one graph are ordered by insertion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    pub(super) graph: u32,
    pub(super) index: u32,
}

/// Identifies a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GraphId(pub(super) u32);

impl NodeId {
    /// The identity of the graph that the node belongs to.
    pub(crate) fn graph(self) -> u32 {
        self.graph
    }

    /// The id of the graph that the node belongs to.
    pub fn graph_id(self) -> GraphId {
        GraphId(self.graph)
    }

    /// Position in insertion order, counting from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }

    /// This node of a graph that was added to another one as the sub-graph node `sub_graph`.
    pub fn within(self, sub_graph: NodeId) -> NodePath {
        NodePath::from(self).within(sub_graph)
    }
}

/// A node of an executable: one of the graph that was finalized, or one inside its sub-graphs, conditionals
/// and loops.
///
/// A graph can be added to others several times, so the id of its node alone does not say which of
/// the copies is meant. The path names the nodes around it, from the inside out:
/// `node.within(inner).within(outer)`. A [`NodeId`] is the path of a node of the finalized graph.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NodePath {
    /// From the node to the outermost one around it.
    nodes: SmallVec<[NodeId; 2]>,
}

impl NodePath {
    /// Returns the same node in a graph that was added to another one as `outer`: a sub-graph node, or
    /// a conditional or loop with the graph as a body.
    #[must_use]
    pub fn within(mut self, outer: NodeId) -> Self {
        self.nodes.push(outer);
        self
    }

    /// The node, if there is none around it.
    pub(crate) fn only(&self) -> Option<NodeId> {
        match self.nodes[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    /// The nodes of the path, from the outermost one to the node itself.
    pub(crate) fn outside_in(&self) -> impl ExactSizeIterator<Item = NodeId> + '_ {
        self.nodes.iter().rev().copied()
    }
}

impl From<NodeId> for NodePath {
    fn from(node: NodeId) -> Self {
        Self { nodes: smallvec![node] }
    }
}

/// Properties of commands that a graph needs.
pub trait Payload {
    /// Describes the operands in a few words, for verbose drawings. Empty if there are none.
    fn describe(&self) -> Cow<'_, str>;

    /// Whether the host has to run a command of `device`, because the device cannot. `supported` gives
    /// the commands that a device can run. The plan asks conditionals and loops only.
    fn needs_host(&self, device: DeviceId, supported: &dyn Fn(DeviceId) -> CommandKinds) -> bool {
        let _ = (device, supported);
        false
    }
}

/// A graph without commands, for tests and tools.
impl Payload for () {
    fn describe(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
}

/// The label of a node in errors and drawings: `kernel 'blur' (#3)`, or `kernel #3` without a name.
pub(super) fn label(kind: CommandKind, name: Option<&str>, index: usize) -> String {
    // Finalize makes one of each node: concatenated, it takes no second allocation for its exact size.
    let index = index.to_string();
    match name {
        Some(name) => [kind.name(), " '", name, "' (#", &index, ")"].concat(),
        None => [kind.name(), " #", &index].concat(),
    }
}
