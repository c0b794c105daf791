//! Layer 1: the modifiable graph, as plain data.
//!
//! A [`Graph`] holds nodes (what runs, where, on which bytes) and edges (what runs before what), in
//! insertion order. Edges follow from the accesses a node declares, or are made by hand; an edge
//! that would close a cycle is refused at once. Nothing here knows a device, a driver or a clock: a
//! graph is generic over the payload of its commands, and a `Graph<()>` is as good a graph as any.
//!
//! | file | holds |
//! |---|---|
//! | `modifiable` | [`Graph`]: adding nodes and edges |
//! | `queries` | what can be asked of a graph; [`NodeRef`] |
//! | `node` | [`NodeId`], [`Content`], [`Payload`] |
//! | `adjacency` | edges, neighbours, roots and leaves |
//! | `order` | the incremental topological order |
//! | `access_tracker` | edges from declared accesses |
//! | `dot` | drawings |
//!
//! Imports from `types` only. The plan, the runtime and the facade may enter; backends may not.

mod access_tracker;
mod adjacency;
mod dot;
mod modifiable;
mod node;
mod order;
mod properties;
mod queries;
#[cfg(test)]
mod tests;

pub use dot::Dot;
pub use modifiable::Graph;
pub use node::{Content, NodeId, Payload};
pub use properties::GraphProperties;
pub use queries::NodeRef;
