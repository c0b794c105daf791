//! Layer 1: the modifiable graph, as plain data.
//!
//! A [`Graph`] holds nodes (what runs, where, on which bytes) and edges (what runs before what), in
//! insertion order. Edges follow from the accesses that a node declares, or the caller makes them; a
//! graph refuses an edge that would close a cycle. Nothing here knows a device, a driver or a clock.
//! A graph is generic over the payload of its commands, and tests use `Graph<()>`.
//!
//! | file | holds |
//! |---|---|
//! | `node` | [`GraphId`], [`NodeId`], [`NodePath`], [`Payload`] |
//! | `adjacency` | edges, neighbours, roots and leaves |
//! | `topo_order` | the incremental topological order |
//! | `access_tracker` | edges from declared accesses |
//! | `modifiable` | [`Graph`] and the [`Content`] of its nodes: adding nodes and edges |
//! | `query` | the queries of a graph; [`NodeRef`] |
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
pub use dot::Dot;
pub(crate) use dot::{DotText, device_colour};
pub use modifiable::{Content, Graph};
pub use node::{GraphId, NodeId, NodePath, Payload};
pub use properties::GraphProperties;
pub use query::NodeRef;
