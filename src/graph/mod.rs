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
//!
//! | file | holds |
//! |---|---|
//! | `node` | [`GraphId`], [`NodeId`], [`NodePath`], [`Payload`] |
//! | `adjacency` | edges, neighbours, roots and leaves |
//! | `topo_order` | the incremental topological order |
//! | `access_tracker` | edges from declared accesses |
//! | `modifiable` | [`Graph`] and the [`Content`] of its nodes: adding nodes and edges |
//! | `query` | the queries of a graph and of one node |
//! | `dot` | drawings |
//!
//! This module imports from `types` only. Backends must not import it.

mod access_tracker;
mod adjacency;
mod dot;
mod modifiable;
mod node;
mod properties;
mod query;
mod topo_order;

#[cfg(test)]
mod tests;

pub(crate) use access_tracker::AccessTracker;
pub(crate) use dot::{DotText, device_colour};
pub use modifiable::{Content, Graph};
pub use node::{GraphId, NodeId, NodePath, Payload};
pub use properties::GraphProperties;
pub use wakegraph_hal::CommandKind;
