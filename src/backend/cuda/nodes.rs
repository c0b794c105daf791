//! From the operations of a command to nodes of a graph.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::condition;
use super::device::Shared;
use super::graph::{Graph, Node, Op, Part};
use super::launch::Launch;
use super::place::Place;
use super::stream::RawEvent;
use super::sys::CUgraphConditionalNodeType as Conditional;
use crate::types::{Error, Result};

/// What has to be waited for to come after a command: as few nodes as possible, each once.
pub(super) type Ends = SmallVec<[Node; 1]>;

/// The nodes of one command in a graph.
pub(super) struct Added {
    pub(super) ends: Ends,
    /// Those that do its work.
    pub(super) work: SmallVec<[Node; 1]>,
    /// Its node and what that was given, if it is one launch.
    pub(super) kernel: Option<(Node, Launch)>,
    /// With profiling: the nodes that record its times.
    pub(super) records: Option<[Node; 2]>,
}

/// Adds the nodes of a command behind others, between two that record `record` if it is there. On
/// an error the graph is as it was. The caller has bound the context.
pub(super) fn add(
    shared: &Arc<Shared>,
    graph: &mut Graph,
    ops: SmallVec<[Op; 1]>,
    after: Ends,
    record: Option<&RawEvent>,
) -> Result<Added> {
    let mut adding = Adding { shared, nodes: Vec::new(), work: SmallVec::new() };
    let added = adding.command(graph.place(), ops, after, record);
    if added.is_err() {
        // Those in bodies go with the node that has the bodies.
        for node in adding.nodes.into_iter().rev() {
            if let Err(failure) = graph.remove(node) {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a node could not be taken back");
            }
        }
    }
    added
}

/// The nodes of one command while they are added.
struct Adding<'a> {
    shared: &'a Arc<Shared>,
    /// Those in the graph itself.
    nodes: Vec<Node>,
    /// Those of them that do something.
    work: SmallVec<[Node; 1]>,
}

impl Adding<'_> {
    fn command(
        &mut self,
        place: Place<'_>,
        mut ops: SmallVec<[Op; 1]>,
        mut after: Ends,
        record: Option<&RawEvent>,
    ) -> Result<Added> {
        let first = record.map(|event| place.add_record(event, &after)).transpose()?;
        if let Some(first) = first {
            self.nodes.push(first);
            after = smallvec![first];
        }
        let outside = self.nodes.len();
        let mut ends = self.ops(place, &ops, &after, Level::Graph)?;
        let kernel = match (ops.pop(), &ends[..]) {
            (Some(Op::Kernel(launch)), &[node]) if ops.is_empty() && self.nodes.len() == outside + 1 => {
                Some((node, launch))
            }
            _ => None,
        };
        let mut records = None;
        if let (Some(event), Some(first)) = (record, first) {
            let last = place.add_record(event, &ends)?;
            self.nodes.push(last);
            (records, ends) = (Some([first, last]), smallvec![last]);
        }
        Ok(Added { ends, work: std::mem::take(&mut self.work), kernel, records })
    }

    /// Operations that need no order among themselves. Many are joined, so that what comes after
    /// waits for one node.
    fn ops(&mut self, place: Place<'_>, ops: &[Op], after: &Ends, level: Level) -> Result<Ends> {
        let mut ends = Ends::new();
        for op in ops {
            ends.extend(self.op(place, op, after, level)?);
        }
        self.joined(place, ends, level)
    }

    /// Bodies lie in each other less deep than the stack is
    /// ([`Body::MAX_DEPTH`](crate::hal::Body::MAX_DEPTH)).
    fn op(&mut self, place: Place<'_>, op: &Op, after: &Ends, level: Level) -> Result<Ends> {
        let node = match op {
            Op::Kernel(launch) => place.add_kernel(launch, after),
            Op::Copy(shape, foreign) => place.add_copy(shape, *foreign, after),
            Op::Set(shape) => place.add_set(shape, after),
            // One that only orders adds nothing where there is one thing to order after.
            Op::Empty if after.len() <= 1 => return Ok(after.clone()),
            Op::Empty => place.add_empty(after),
            Op::Captured(graph) => place.add_graph(graph, after),
            Op::Child(parts) => return self.parts(place, parts, after, level),
            Op::If(word, then, otherwise) => {
                return self.choice(place, *word, (then, otherwise.as_deref()), after, level);
            }
            Op::While(word, body) => return self.repeated(place, *word, body, after, level),
        }?;
        if level == Level::Graph && !matches!(op, Op::Empty) {
            self.work.push(node);
        }
        Ok(smallvec![self.keep(node, level)])
    }

    /// Parts with their order, the first of them behind `after`.
    fn parts(&mut self, place: Place<'_>, parts: &[Part], after: &Ends, level: Level) -> Result<Ends> {
        let mut all: Vec<Ends> = Vec::with_capacity(parts.len());
        let mut is_leaf = vec![true; parts.len()];
        for part in parts {
            let mut behind = after.clone();
            if !part.after.is_empty() {
                part.after.iter().for_each(|&earlier| is_leaf[earlier as usize] = false);
                behind =
                    part.after.iter().flat_map(|&earlier| all[earlier as usize].iter().copied()).collect();
            }
            all.push(self.ops(place, &part.ops, &once_each(behind), level)?);
        }
        if parts.is_empty() {
            return Ok(after.clone());
        }
        let leaves = all.into_iter().zip(is_leaf).filter(|(_, leaf)| *leaf).flat_map(|(ends, _)| ends);
        self.joined(place, leaves.collect(), level)
    }

    /// One body or the other. Drivers before CUDA 12.8 have no `else`: there it is a second
    /// conditional, decided, too, before either body runs and may change the word.
    fn choice(
        &mut self,
        place: Place<'_>,
        word: u64,
        (then, otherwise): (&[Part], Option<&[Part]>),
        after: &Ends,
        level: Level,
    ) -> Result<Ends> {
        let kind = Conditional::CU_GRAPH_COND_TYPE_IF;
        let (handle, set) = self.decided(place, word, false, after, level)?;
        match otherwise {
            None => {
                let (node, [body]) = place.add_conditional(kind, handle, &[set])?;
                let node = self.keep(node, level);
                self.parts(body, then, &Ends::new(), Level::Body)?;
                Ok(smallvec![node])
            }
            Some(otherwise) if self.shared.has_else => {
                let (node, [first, second]) = place.add_conditional(kind, handle, &[set])?;
                let node = self.keep(node, level);
                self.parts(first, then, &Ends::new(), Level::Body)?;
                self.parts(second, otherwise, &Ends::new(), Level::Body)?;
                Ok(smallvec![node])
            }
            Some(otherwise) => {
                let (inverse, other_set) = self.decided(place, word, true, after, level)?;
                let decided = [set, other_set];
                let mut ends = Ends::new();
                for (handle, parts) in [(handle, then), (inverse, otherwise)] {
                    let (node, [body]) = place.add_conditional(kind, handle, &decided)?;
                    ends.push(self.keep(node, level));
                    self.parts(body, parts, &Ends::new(), Level::Body)?;
                }
                self.joined(place, ends, level)
            }
        }
    }

    /// A body again and again: decided before the first time, and at the end of the body.
    fn repeated(
        &mut self,
        place: Place<'_>,
        word: u64,
        parts: &[Part],
        after: &Ends,
        level: Level,
    ) -> Result<Ends> {
        let (handle, set) = self.decided(place, word, false, after, level)?;
        let (node, [body]) = place.add_conditional(Conditional::CU_GRAPH_COND_TYPE_WHILE, handle, &[set])?;
        let node = self.keep(node, level);
        let ends = self.parts(body, parts, &Ends::new(), Level::Body)?;
        body.add_kernel(&condition::set(self.shared, handle, word, false)?, &ends)?;
        Ok(smallvec![node])
    }

    /// A handle, and the node that sets it by the word.
    fn decided(
        &mut self,
        place: Place<'_>,
        word: u64,
        inverted: bool,
        after: &Ends,
        level: Level,
    ) -> Result<(super::place::Handle, Node)> {
        let handle = place.create_handle()?;
        let set = condition::set(self.shared, handle, word, inverted)?;
        let node = place.add_kernel(&set, after)?;
        Ok((handle, self.keep(node, level)))
    }

    fn joined(&mut self, place: Place<'_>, ends: Ends, level: Level) -> Result<Ends> {
        let ends = once_each(ends);
        if ends.len() <= 1 {
            return Ok(ends);
        }
        let node = place.add_empty(&ends)?;
        Ok(smallvec![self.keep(node, level)])
    }

    fn keep(&mut self, node: Node, level: Level) -> Node {
        if level == Level::Graph {
            self.nodes.push(node);
        }
        node
    }
}

/// Where nodes are added.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    /// To the graph itself.
    Graph,
    /// To a body in it.
    Body,
}

/// The driver takes each once: the first of them.
pub(super) fn once_each(ends: Ends) -> Ends {
    if ends.len() <= 1 {
        return ends;
    }
    let mut places: SmallVec<[(Node, usize); 8]> = ends.into_iter().zip(0..).collect();
    places.sort_unstable();
    places.dedup_by_key(|(node, _)| *node);
    places.sort_unstable_by_key(|&(_, place)| place);
    places.into_iter().map(|(node, _)| node).collect()
}
