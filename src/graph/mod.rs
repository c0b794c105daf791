//! The kinds of nodes, their ids and paths, and graphs as plain data.
//!
//! [`wakegraph::Graph`](crate::Graph) is the graph that programs build. Here is what its queries answer with,
//! and what its nodes are called: [`CommandKind`] tells what a node does, a [`NodePath`] names a node
//! inside a sub-graph or body, and [`GraphProperties`] change how a graph is built.
//!
//! ```
//! use wakegraph::graph::{CommandKind, GraphProperties};
//! use wakegraph::{Device, Graph};
//!
//! # fn main() -> wakegraph::Result<()> {
//! let device = Device::open("host")?;
//! let mut graph = Graph::with_properties(&device, GraphProperties::default().no_cycle_check(true));
//! let fill = graph.fill(&device.buffer::<u32>(4)?, 1).id();
//! assert_eq!(graph.kind(fill)?, CommandKind::BufferFill);
//! # Ok(())
//! # }
//! ```
//!
//! # Graphs as plain data
//!
//! The [`Graph`] of this module is what the other one is built upon, and what a [plan](crate::plan) is
//! made of. One needs it to plan without devices, as tests and benches of plans do. It holds nodes (what
//! runs, where, on which bytes) and edges (what runs before what), in insertion order. Edges follow from
//! the accesses that a node declares, or the caller makes them; a graph refuses an edge that would close a
//! cycle. Nothing here knows a device, a driver or a clock. A graph is generic over the payload of its
//! commands, and tests use `Graph<()>`.

// | file | holds |
// |---|---|
// | this | `GraphId`, `NodeId`, `NodePath`, `Payload` |
// | `adjacency` | edges, neighbours, roots and leaves |
// | `topo_order` | the incremental topological order |
// | `access_tracker` | edges from declared accesses |
// | `modifiable` | `Graph` and the `Content` of its nodes: adding nodes and edges |
// | `query` | the queries of a graph and of one node |
// | `dot` | drawings |
//
// This module imports from `wakegraph-hal` only. Backends must not import it.

mod access_tracker;
mod adjacency;
mod dot;
mod modifiable;
mod query;
mod topo_order;

#[cfg(test)]
mod tests;

use std::borrow::Cow;

pub(crate) use access_tracker::AccessTracker;
pub(crate) use dot::{DotText, device_colour};
pub use modifiable::{Content, Graph, GraphProperties};
use smallvec::{SmallVec, smallvec};
pub use wakegraph_hal::CommandKind;
use wakegraph_hal::{CommandKinds, DeviceId};

/// Identifies a node of one graph.
///
/// A node keeps its id for good. Other graphs, including clones of the node's own, refuse the id.
/// Ids of one graph are ordered by insertion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    graph: u32,
    index: u32,
}

/// Identifies a graph.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct GraphId(u32);

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

    /// Path to this node in a graph that was added to another one as the sub-graph node `sub_graph`.
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
pub(crate) fn label(kind: CommandKind, name: Option<&str>, index: u32) -> String {
    let kind = kind.name();
    match name {
        Some(name) => format!("{kind} '{name}' (#{index})"),
        None => format!("{kind} #{index}"),
    }
}
