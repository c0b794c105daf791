//! From the operations of a command to nodes of a graph.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::control_flow::decide;
use super::device_inner::CudaDeviceInner;
use super::graph::{ConditionalHandle, CudaGraph, GraphBody, GraphNode};
use super::launch::CudaLaunch;
use super::lower::{BodyCommand, GraphOp};
use super::stream::RawEvent;
use super::sys::CUgraphConditionalNodeType as Conditional;
use crate::types::{Error, Result};

/// The nodes that later commands follow to come after a command: as few as possible, each once.
pub(super) type EndNodes = SmallVec<[GraphNode; 1]>;

/// The nodes of one command in a graph.
pub(super) struct CommandNodes {
    pub(super) ends: EndNodes,
    /// The nodes that do its work.
    pub(super) work: SmallVec<[GraphNode; 1]>,
    /// If the command is one launch: its node, and the launch.
    pub(super) kernel: Option<(GraphNode, CudaLaunch)>,
    /// With profiling: the nodes that record its times.
    pub(super) records: Option<[GraphNode; 2]>,
}

/// Adds the nodes of a command behind others, between two that record `record` if it is there. On
/// an error the graph is as it was. The caller has bound the context.
pub(super) fn add(
    device: &Arc<CudaDeviceInner>,
    graph: &mut CudaGraph,
    ops: SmallVec<[GraphOp; 1]>,
    after: EndNodes,
    record: Option<&RawEvent>,
) -> Result<CommandNodes> {
    let mut adder = NodeAdder { device, nodes: Vec::new(), work: SmallVec::new(), depth: 0 };
    let added = adder.command(graph.body(), ops, after, record);
    if added.is_err() {
        // The driver removes nodes in bodies together with the node that has the bodies.
        for node in adder.nodes.into_iter().rev() {
            if let Err(failure) = graph.remove(node) {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a node could not be removed again");
            }
        }
    }
    added
}

/// Adds the nodes of one command.
struct NodeAdder<'a> {
    device: &'a Arc<CudaDeviceInner>,
    /// All nodes in the graph itself.
    nodes: Vec<GraphNode>,
    /// Those of them that do something.
    work: SmallVec<[GraphNode; 1]>,
    /// How many bodies of conditional nodes the current node is in.
    depth: usize,
}

impl NodeAdder<'_> {
    fn command(
        &mut self,
        graph: GraphBody<'_>,
        mut ops: SmallVec<[GraphOp; 1]>,
        mut after: EndNodes,
        record: Option<&RawEvent>,
    ) -> Result<CommandNodes> {
        let first = record.map(|event| graph.add_record(event, &after)).transpose()?;
        if let Some(first) = first {
            after = smallvec![self.keep(first)];
        }
        let others = self.nodes.len();
        let mut ends = self.ops(graph, &ops, &after)?;
        let kernel = match (ops.pop(), &ends[..]) {
            (Some(GraphOp::Kernel(launch)), &[node]) if ops.is_empty() && self.nodes.len() == others + 1 => {
                Some((node, launch))
            }
            _ => None,
        };
        let mut records = None;
        if let (Some(event), Some(first)) = (record, first) {
            let last = self.keep(graph.add_record(event, &ends)?);
            (records, ends) = (Some([first, last]), smallvec![last]);
        }
        Ok(CommandNodes { ends, work: std::mem::take(&mut self.work), kernel, records })
    }

    /// Adds operations that need no order among themselves. Several are joined by an empty node, so
    /// that later commands follow one node.
    fn ops(&mut self, graph: GraphBody<'_>, ops: &[GraphOp], after: &EndNodes) -> Result<EndNodes> {
        let mut ends = EndNodes::new();
        for op in ops {
            ends.extend(self.op(graph, op, after)?);
        }
        self.joined(graph, ends)
    }

    /// Recursion is limited by the depth of bodies
    /// ([`Body::MAX_DEPTH`](crate::hal::Body::MAX_DEPTH)).
    fn op(&mut self, graph: GraphBody<'_>, op: &GraphOp, after: &EndNodes) -> Result<EndNodes> {
        let node = match op {
            GraphOp::Kernel(launch) => graph.add_kernel(launch, after),
            GraphOp::Copy(copy) => graph.add_copy(copy, after),
            GraphOp::Fill(fill) => graph.add_fill(fill, after),
            // With one predecessor, later commands can follow that.
            GraphOp::Empty if after.len() <= 1 => return Ok(after.clone()),
            GraphOp::Empty => graph.add_empty(after),
            GraphOp::Captured(child) => graph.add_graph(child, after),
            GraphOp::Child(commands) => return self.commands(graph, commands, after),
            GraphOp::If(word, then, otherwise) => {
                return self.conditional(graph, *word, then, otherwise.as_deref(), after);
            }
            GraphOp::While(word, body) => return self.repeated(graph, *word, body, after),
        }?;
        if self.depth == 0 && !matches!(op, GraphOp::Empty) {
            self.work.push(node);
        }
        Ok(smallvec![self.keep(node)])
    }

    /// Adds commands with their order, the first of them behind `after`.
    fn commands(
        &mut self,
        graph: GraphBody<'_>,
        commands: &[BodyCommand],
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let mut all: Vec<EndNodes> = Vec::with_capacity(commands.len());
        let mut is_leaf = vec![true; commands.len()];
        for BodyCommand { ops, after: earlier } in commands {
            let ends_of = |&index: &u32| all[index as usize].iter().copied();
            let follows = match earlier.is_empty() {
                true => after.clone(),
                false => earlier.iter().flat_map(ends_of).collect(),
            };
            earlier.iter().for_each(|&index| is_leaf[index as usize] = false);
            all.push(self.ops(graph, ops, &once_each(follows))?);
        }
        if commands.is_empty() {
            return Ok(after.clone());
        }
        let leaves = all.into_iter().zip(is_leaf).filter(|(_, is_leaf)| *is_leaf);
        self.joined(graph, leaves.flat_map(|(ends, _)| ends).collect())
    }

    /// Adds the commands of a conditional node's body.
    fn body(&mut self, graph: GraphBody<'_>, commands: &[BodyCommand]) -> Result<EndNodes> {
        self.depth += 1;
        let ends = self.commands(graph, commands, &EndNodes::new());
        self.depth -= 1;
        ends
    }

    /// Adds one body or the other. Drivers before CUDA 12.8 have no `else`: there it is a second
    /// conditional, also decided before either body runs and may change the word.
    fn conditional(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        then: &[BodyCommand],
        otherwise: Option<&[BodyCommand]>,
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let kind = Conditional::CU_GRAPH_COND_TYPE_IF;
        let (handle, decided) = self.decision(graph, word, false, after)?;
        match otherwise {
            None => {
                let (node, [body]) = graph.add_conditional(kind, handle, &[decided])?;
                let node = self.keep(node);
                self.body(body, then)?;
                Ok(smallvec![node])
            }
            Some(otherwise) if self.device.has_else => {
                let (node, [first, second]) = graph.add_conditional(kind, handle, &[decided])?;
                let node = self.keep(node);
                self.body(first, then)?;
                self.body(second, otherwise)?;
                Ok(smallvec![node])
            }
            Some(otherwise) => {
                let (inverse, other_decided) = self.decision(graph, word, true, after)?;
                let mut ends = EndNodes::new();
                for (handle, commands) in [(handle, then), (inverse, otherwise)] {
                    let (node, [body]) = graph.add_conditional(kind, handle, &[decided, other_decided])?;
                    ends.push(self.keep(node));
                    self.body(body, commands)?;
                }
                self.joined(graph, ends)
            }
        }
    }

    /// Adds a loop, which is decided before the first run of the body and at the end of the body.
    fn repeated(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        commands: &[BodyCommand],
        after: &EndNodes,
    ) -> Result<EndNodes> {
        let (handle, decided) = self.decision(graph, word, false, after)?;
        let kind = Conditional::CU_GRAPH_COND_TYPE_WHILE;
        let (node, [body]) = graph.add_conditional(kind, handle, &[decided])?;
        let node = self.keep(node);
        let ends = self.body(body, commands)?;
        body.add_kernel(&decide(self.device, handle, word, false)?, &ends)?;
        Ok(smallvec![node])
    }

    /// Adds a node that decides by the word, and returns it and what it sets.
    fn decision(
        &mut self,
        graph: GraphBody<'_>,
        word: u64,
        inverted: bool,
        after: &EndNodes,
    ) -> Result<(ConditionalHandle, GraphNode)> {
        let handle = graph.create_handle()?;
        let node = graph.add_kernel(&decide(self.device, handle, word, inverted)?, after)?;
        Ok((handle, self.keep(node)))
    }

    fn joined(&mut self, graph: GraphBody<'_>, ends: EndNodes) -> Result<EndNodes> {
        let ends = once_each(ends);
        if ends.len() <= 1 {
            return Ok(ends);
        }
        Ok(smallvec![self.keep(graph.add_empty(&ends)?)])
    }

    fn keep(&mut self, node: GraphNode) -> GraphNode {
        if self.depth == 0 {
            self.nodes.push(node);
        }
        node
    }
}

/// Keeps the first of equal nodes: the driver takes each once.
pub(super) fn once_each(nodes: EndNodes) -> EndNodes {
    if nodes.len() <= 1 {
        return nodes;
    }
    let mut indexed: SmallVec<[(GraphNode, usize); 8]> = nodes.into_iter().zip(0..).collect();
    indexed.sort_unstable();
    indexed.dedup_by_key(|(node, _)| *node);
    indexed.sort_unstable_by_key(|&(_, index)| index);
    indexed.into_iter().map(|(node, _)| node).collect()
}
