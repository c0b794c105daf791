//! Pass 1: inlines sub-graphs, so that the later passes see one flat graph.
//!
//! A sub-graph node becomes two joins around the child's nodes:
//!
//! ```text
//!   P1   P2             P1   P2
//!     \ /                 \ /
//!     sub       ==>      entry -> roots of the child ... leaves of the child -> exit
//!     / \                                                                       / \
//!   S1   S2                                                                   S1   S2
//! ```
//!
//! so `p` predecessors and `r` roots cost `p + r` edges and not `p * r`. Joins are empty nodes,
//! which a later pass removes. A work list replaces recursion, so deep nesting uses no stack. A
//! graph without sub-graphs is borrowed as it is.

use std::borrow::Cow;

use wakegraph_hal::{CommandKind, DeviceId, Error, ErrorKind, Result};

use super::{GraphInstance, Origin};
use crate::graph::{Content, Graph};

/// The most nodes a plan can have, with sub-graphs inlined. Small multiples of positions still fit in
/// 32 bits.
pub(super) const MAX_NODES: usize = 1 << 24;
/// The most edges a plan can have.
pub(super) const MAX_EDGES: usize = 1 << 27;

/// One graph without sub-graphs, its nodes numbered from 0.
pub(super) struct FlatGraph<'g, P> {
    pub(super) kinds: Cow<'g, [CommandKind]>,
    pub(super) devices: Cow<'g, [DeviceId]>,
    /// `None` if the edges are those of the root graph.
    pub(super) edges: Option<Vec<(u32, u32)>>,
    /// Empty if node `i` is node `i` of the root graph.
    pub(super) origins: Vec<Origin>,
    pub(super) instances: Vec<GraphInstance>,
    /// The graph of every instance.
    pub(super) graphs: Vec<&'g Graph<P>>,
}

impl<P> FlatGraph<'_, P> {
    pub(super) fn has_empty_nodes(&self) -> bool {
        self.edges.is_some() || self.graphs[0].has_empty_nodes()
    }

    /// Whether every edge leads from a lower to a higher number.
    pub(super) fn is_ordered(&self) -> bool {
        self.edges.is_none() && self.graphs[0].is_insertion_ordered()
    }

    pub(super) fn origin(&self, node: u32) -> Origin {
        self.origins.get(node as usize).copied().unwrap_or(Origin { instance: 0, node })
    }
}

/// Inlines all sub-graphs of `graph`.
///
/// # Errors
/// [`InvalidSize`](ErrorKind::InvalidSize) when the result is larger than a plan can be.
pub(super) fn inline_sub_graphs<P>(graph: &Graph<P>) -> Result<FlatGraph<'_, P>> {
    check_size(graph.len(), graph.edge_count())?;
    let root = GraphInstance { parent: None, node: 0 };
    if !graph.has_sub_graphs() {
        return Ok(FlatGraph {
            kinds: Cow::Borrowed(graph.kinds()),
            devices: Cow::Borrowed(graph.devices()),
            edges: None,
            origins: Vec::new(),
            instances: vec![root],
            graphs: vec![graph],
        });
    }
    let mut flat = FlatGraph {
        kinds: Cow::Owned(Vec::new()),
        devices: Cow::Owned(Vec::new()),
        edges: None,
        origins: Vec::new(),
        instances: vec![root],
        graphs: vec![graph],
    };
    let mut copy = Inliner::default();
    let mut next = 0;
    while next < flat.graphs.len() {
        copy.nodes(&mut flat, next as u32)?;
        next += 1;
    }
    check_size(copy.kinds.len(), 0)?;
    for (instance, &graph) in flat.graphs.iter().enumerate() {
        copy.edges(instance, graph)?;
    }
    flat.kinds = Cow::Owned(copy.kinds);
    flat.devices = Cow::Owned(copy.devices);
    flat.origins = copy.origins;
    flat.edges = Some(copy.edges);
    Ok(flat)
}

fn check_size(nodes: usize, edges: usize) -> Result<()> {
    if nodes > MAX_NODES || edges > MAX_EDGES {
        return Err(Error::new(
            ErrorKind::InvalidSize,
            format!(
                "the graph has more than {MAX_NODES} nodes or {MAX_EDGES} edges with its sub-graphs inlined"
            ),
        )
        .help("split it into several graphs and submit them one after the other"));
    }
    Ok(())
}

/// The flat graph under construction.
#[derive(Default)]
struct Inliner {
    kinds: Vec<CommandKind>,
    devices: Vec<DeviceId>,
    origins: Vec<Origin>,
    edges: Vec<(u32, u32)>,
    /// Where edges out of a node start: at itself, or at the exit join of a sub-graph.
    exits: Vec<u32>,
    /// The first node of every instance, and the sub-graph node (the entry join) that encloses it.
    bases: Vec<u32>,
    entries: Vec<Option<u32>>,
}

impl Inliner {
    /// Copies the nodes of one instance and puts its sub-graphs on the work list.
    fn nodes<'g, P>(&mut self, flat: &mut FlatGraph<'g, P>, instance: u32) -> Result<()> {
        let graph = flat.graphs[instance as usize];
        check_size(self.kinds.len() + graph.len(), 0)?;
        let base = self.kinds.len() as u32;
        self.bases.push(base);
        if instance == 0 {
            self.entries.push(None);
        }
        self.kinds.extend_from_slice(graph.kinds());
        self.devices.extend_from_slice(graph.devices());
        self.origins.extend((0..graph.len() as u32).map(|node| Origin { instance, node }));
        self.exits.extend(base..base + graph.len() as u32);
        for index in 0..graph.len() {
            let Content::SubGraph(child) = graph.content_at(index) else { continue };
            let (node, entry) = (index as u32, base + index as u32);
            self.kinds[entry as usize] = CommandKind::Empty;
            self.exits[entry as usize] = self.kinds.len() as u32;
            self.exits.push(self.kinds.len() as u32);
            self.kinds.push(CommandKind::Empty);
            self.devices.push(graph.devices()[index]);
            self.origins.push(Origin { instance, node });
            flat.instances.push(GraphInstance { parent: Some(instance), node });
            flat.graphs.push(child);
            self.entries.push(Some(entry));
        }
        Ok(())
    }

    /// Copies the edges of one instance and connects it to the joins around it.
    fn edges<P>(&mut self, instance: usize, graph: &Graph<P>) -> Result<()> {
        check_size(0, self.edges.len() + graph.edge_count() + 2 * graph.len() + 1)?;
        let base = self.bases[instance];
        let exit_of = |exits: &[u32], node: u32| exits[(base + node) as usize];
        for (from, to) in graph.edges() {
            self.edges.push((exit_of(&self.exits, from), base + to));
        }
        let Some(entry) = self.entries[instance] else { return Ok(()) };
        let exit = self.exits[entry as usize];
        if graph.is_empty() {
            self.edges.push((entry, exit));
            return Ok(());
        }
        let mut has_predecessor = vec![false; graph.len()];
        let mut has_successor = vec![false; graph.len()];
        for (from, to) in graph.edges() {
            has_successor[from as usize] = true;
            has_predecessor[to as usize] = true;
        }
        for node in 0..graph.len() as u32 {
            if !has_predecessor[node as usize] {
                self.edges.push((entry, base + node));
            }
            if !has_successor[node as usize] {
                self.edges.push((exit_of(&self.exits, node), exit));
            }
        }
        Ok(())
    }
}

impl<P> FlatGraph<'_, P> {
    /// The node's name for error messages, preceded by the names of the sub-graphs that enclose it.
    #[cold]
    pub(super) fn label(&self, node: u32) -> String {
        let mut at = self.origin(node);
        let mut path = vec![self.graphs[at.instance as usize].label_at(at.node as usize)];
        while let GraphInstance { parent: Some(parent), node } = self.instances[at.instance as usize] {
            at = Origin { instance: parent, node };
            path.push(self.graphs[at.instance as usize].label_at(at.node as usize));
        }
        path.reverse();
        path.join(" / ")
    }
}
