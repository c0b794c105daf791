//! The identity and the label of a node, and what a graph needs to know of a command.

use std::borrow::Cow;

use crate::types::CommandKind;

/// Identifies a node of one graph.
///
/// A node keeps its id for good. Other graphs, including clones of the node's own, refuse the id.
/// Ids of one graph are ordered by insertion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct NodeId {
    pub(super) graph: u32,
    pub(super) index: u32,
}

impl NodeId {
    /// The identity of the graph that the node belongs to.
    pub(crate) fn graph(self) -> u32 {
        self.graph
    }

    /// Position in insertion order, counting from 0.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// What a graph needs to know of its commands.
pub trait Payload {
    /// Describes the operands in a few words, for verbose drawings. Empty if there are none.
    fn describe(&self) -> Cow<'_, str>;
}

/// A graph without commands, for tests and tools.
impl Payload for () {
    fn describe(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }
}

/// The label of a node in errors and drawings: `kernel 'blur' (#3)`, or `kernel #3` without a name.
pub(super) fn label(kind: CommandKind, name: Option<&str>, index: usize) -> String {
    match name {
        Some(name) => format!("{kind} '{name}' (#{index})"),
        None => format!("{kind} #{index}"),
    }
}
