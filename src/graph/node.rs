//! What a node is: identity, content, and what the content can say about itself.

use std::borrow::Cow;
use std::sync::Arc;

use super::Graph;

/// Identifies a node of one graph.
///
/// A node keeps its id for good. An id presented to another graph, a clone of its own included, is
/// recognised as foreign. Ids of one graph are ordered by insertion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    pub(super) graph: u32,
    pub(super) index: u32,
}

impl NodeId {
    /// Which graph's it is, as [`Graph::identity`] says it.
    pub(crate) fn graph(self) -> u32 {
        self.graph
    }

    /// Position in insertion order, counting from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What a node runs.
#[derive(Clone, Debug)]
pub enum Content<P> {
    /// A command or a host task.
    Command(P),
    /// Nothing; a point that others wait for.
    Empty,
    /// Another graph, as it is now: copied in at finalize.
    SubGraph(Arc<Graph<P>>),
}

/// What the graph asks of the commands it holds.
pub trait Payload {
    /// The operands in a few words, for verbose drawings. Empty when there is nothing to say.
    fn describe(&self) -> Cow<'_, str>;
}

/// For graphs that are data only.
impl Payload for () {
    fn describe(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
}
