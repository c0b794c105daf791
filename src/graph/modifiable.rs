//! The modifiable graph: adding nodes and edges.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::access_tracker::AccessTracker;
use super::adjacency::Adjacency;
use super::order::TopologicalOrder;
use super::queries::label;
use super::{Content, GraphProperties, NodeId};
use crate::types::{Access, CommandKind, DeviceId, Error, ErrorKind, Result};

/// Nodes and edges, in insertion order. Plain data: nothing runs, and no device is asked.
///
/// What is added stays; a graph only grows. Its columns lie in flat arrays indexed by
/// [`NodeId::index`], which is how the plan reads them.
///
/// A clone is a snapshot: the same nodes at the same indices, and from then on a graph of its own.
/// It does not accept the ids of the original; [`id_at`](Self::id_at) gives its own.
///
/// ```
/// use wakegraph::graph::{Content, Graph};
/// use wakegraph::{Access, AccessMode, CommandKind, DeviceId, ResourceId};
///
/// let (device, buffer) = (DeviceId::unique(), ResourceId::unique());
/// let touch = |mode| Access { resource: buffer, start: 0, end: 64, mode };
/// let mut graph = Graph::new();
/// let fill = graph.add(CommandKind::BufferFill, device, Content::Command(()), &[touch(AccessMode::Write)]);
/// let read = graph.add(CommandKind::BufferRead, device, Content::Command(()), &[touch(AccessMode::Read)]);
/// assert!(graph.predecessors(read)?.eq([fill]));
/// # Ok::<(), wakegraph::Error>(())
/// ```
pub struct Graph<P> {
    pub(super) identity: u32,
    pub(super) properties: GraphProperties,
    pub(super) kinds: Vec<CommandKind>,
    pub(super) devices: Vec<DeviceId>,
    pub(super) contents: Vec<Content<P>>,
    pub(super) locations: Vec<&'static Location<'static>>,
    /// Only of the nodes that have one.
    pub(super) names: BTreeMap<u32, Box<str>>,
    pub(super) accesses: Vec<Access>,
    /// For each node, where its accesses end; they start where those of the node before end.
    pub(super) access_ends: Vec<usize>,
    pub(super) adjacency: Adjacency,
    /// `None` without cycle check.
    pub(super) order: Option<TopologicalOrder>,
    pub(super) insertion_ordered: bool,
    pub(super) has_sub_graphs: bool,
    pub(super) has_empty_nodes: bool,
    tracker: AccessTracker,
}

impl<P> Graph<P> {
    /// An empty graph.
    pub fn new() -> Self {
        Self::with_properties(GraphProperties::default())
    }

    /// An empty graph with these properties.
    pub fn with_properties(properties: GraphProperties) -> Self {
        Self {
            identity: fresh_identity(),
            properties,
            kinds: Vec::new(),
            devices: Vec::new(),
            contents: Vec::new(),
            locations: Vec::new(),
            names: BTreeMap::new(),
            accesses: Vec::new(),
            access_ends: Vec::new(),
            adjacency: Adjacency::default(),
            order: (!properties.no_cycle_check).then(TopologicalOrder::default),
            insertion_ordered: true,
            has_sub_graphs: false,
            has_empty_nodes: false,
            tracker: AccessTracker::default(),
        }
    }

    /// Adds a node, with an edge from every earlier node whose accesses it conflicts with, unless
    /// other edges of the same kind order the two already.
    ///
    /// An access whose range is empty orders nothing. A sub-graph's accesses are for the caller to
    /// name, like any other node's. Where `content` is [`Content::Empty`] or [`Content::SubGraph`],
    /// that is the node's kind, whatever `kind` says. The caller's location is kept for errors and
    /// drawings.
    ///
    /// # Panics
    /// When the graph holds 2^32 - 1 nodes, or as many edges or declared reads.
    #[track_caller]
    pub fn add(
        &mut self,
        kind: CommandKind,
        device: DeviceId,
        content: Content<P>,
        accesses: &[Access],
    ) -> NodeId {
        let index = u32::try_from(self.len()).ok().filter(|&index| index != u32::MAX);
        let index = index.expect("a graph holds fewer than 2^32 - 1 nodes");
        let kind = match &content {
            Content::Command(_) => kind,
            Content::Empty => CommandKind::Empty,
            Content::SubGraph(_) => CommandKind::SubGraph,
        };
        self.has_sub_graphs |= matches!(content, Content::SubGraph(_));
        self.has_empty_nodes |= kind == CommandKind::Empty;

        self.kinds.push(kind);
        self.devices.push(device);
        self.contents.push(content);
        self.locations.push(Location::caller());
        self.accesses.extend_from_slice(accesses);
        self.access_ends.push(self.accesses.len());
        self.adjacency.push_node();
        if let Some(order) = &mut self.order {
            order.push_node();
        }
        // These edges lead to the newest node, which is ranked last and has no others: no check is needed.
        for &predecessor in self.tracker.record(index, accesses) {
            self.adjacency.insert(predecessor, index);
        }
        NodeId { graph: self.identity, index }
    }

    /// Makes `to` wait for `from`. An edge that is there already is left as it is.
    ///
    /// Edges may lead from newer to older nodes. One that leads from an older to a newer node is
    /// constant time unless such edges have come before; any other costs a search among the nodes
    /// ordered between the two.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph, or for an edge from a node to itself;
    /// [`ErrorKind::Cycle`], with the nodes of the cycle, where `from` already waits for `to`. The graph is unchanged
    /// then. Under [`no_cycle_check`](GraphProperties::no_cycle_check) a cycle is accepted here,
    /// for finalize to refuse.
    ///
    /// # Panics
    /// When the graph holds 2^32 - 1 edges.
    pub fn make_edge(&mut self, from: NodeId, to: NodeId) -> Result<()> {
        let (source, target) = (self.index_of(from)?, self.index_of(to)?);
        if source == target {
            return Err(Error::new(ErrorKind::InvalidArgument, "the edge leads from a node to itself")
                .in_node(self.label_at(from.index()))
                .at(self.location_at(from.index()))
                .help("a node can only wait for another node"));
        }
        if self.adjacency.contains(source, target) {
            return Ok(());
        }
        if let Some(order) = &mut self.order {
            order
                .admit(&self.adjacency, source, target)
                .map_err(|path| self.cycle_error(source, target, &path))?;
        }
        self.adjacency.insert(source, target);
        self.insertion_ordered &= source < target;
        Ok(())
    }

    /// Names a node, for errors, drawings and [`find`](Self::find). Names need not be unique.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph.
    pub fn set_name(&mut self, id: NodeId, name: impl Into<Box<str>>) -> Result<()> {
        let index = self.index_of(id)?;
        self.names.insert(index, name.into());
        Ok(())
    }

    /// Moves a node to another device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph.
    pub fn set_device(&mut self, id: NodeId, device: DeviceId) -> Result<()> {
        let index = self.index_of(id)?;
        self.devices[index as usize] = device;
        Ok(())
    }

    /// The command of a node, to change its operands. Its declared accesses, and so the edges, stay
    /// as they are.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph, or for one that holds no command.
    pub fn command_mut(&mut self, id: NodeId) -> Result<&mut P> {
        let index = self.index_of(id)?;
        let slot = index as usize;
        match &mut self.contents[slot] {
            Content::Command(command) => Ok(command),
            Content::Empty | Content::SubGraph(_) => {
                Err(Error::new(ErrorKind::InvalidArgument, "the node holds no command")
                    .in_node(label(self.kinds[slot], self.names.get(&index).map(|name| &**name), slot))
                    .at(self.locations[slot])
                    .help("only commands and host tasks have operands"))
            }
        }
    }

    /// The index of a node of this graph.
    pub(super) fn index_of(&self, id: NodeId) -> Result<u32> {
        if id.graph == self.identity && id.index() < self.len() {
            return Ok(id.index);
        }
        Err(Error::new(ErrorKind::InvalidArgument, format!("node #{} belongs to another graph", id.index))
            .help("use the ids that this graph's own add returned; a clone has ids of its own"))
    }

    fn cycle_error(&self, from: u32, to: u32, path: &[u32]) -> Error {
        let label = |node: u32| self.label_at(node as usize);
        let cycle = Cycle { labels: [from].iter().chain(path).map(|&node| label(node)).collect() };
        Error::new(ErrorKind::Cycle, format!("the edge {} -> {} would close {cycle}", label(from), label(to)))
            .help("leave the edge out, or remove the cause of the opposite one; the graph is unchanged")
    }

    /// Moves the sub-graphs out, so that dropping them can be somebody else's loop.
    fn take_sub_graphs(&mut self, into: &mut Vec<Arc<Self>>) {
        if !mem::take(&mut self.has_sub_graphs) {
            return;
        }
        for content in &mut self.contents {
            if matches!(content, Content::SubGraph(_))
                && let Content::SubGraph(graph) = mem::replace(content, Content::Empty)
            {
                into.push(graph);
            }
        }
    }
}

impl<P> Drop for Graph<P> {
    // The compiler's own drop would recurse once for each level of nesting.
    fn drop(&mut self) {
        let mut pending = Vec::new();
        self.take_sub_graphs(&mut pending);
        while let Some(graph) = pending.pop() {
            if let Some(mut graph) = Arc::into_inner(graph) {
                graph.take_sub_graphs(&mut pending);
            }
        }
    }
}

impl<P: Clone> Clone for Graph<P> {
    fn clone(&self) -> Self {
        Self {
            identity: fresh_identity(),
            properties: self.properties,
            kinds: self.kinds.clone(),
            devices: self.devices.clone(),
            contents: self.contents.clone(),
            locations: self.locations.clone(),
            names: self.names.clone(),
            accesses: self.accesses.clone(),
            access_ends: self.access_ends.clone(),
            adjacency: self.adjacency.clone(),
            order: self.order.clone(),
            insertion_ordered: self.insertion_ordered,
            has_sub_graphs: self.has_sub_graphs,
            has_empty_nodes: self.has_empty_nodes,
            tracker: self.tracker.clone(),
        }
    }
}

impl<P> Default for Graph<P> {
    fn default() -> Self {
        Self::new()
    }
}

impl<P> fmt::Debug for Graph<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field(
                "nodes",
                &format_args!("{:?}", self.nodes().map(|id| self.label_at(id.index())).collect::<Vec<_>>()),
            )
            .field("edges", &format_args!("{:?}", self.edges().collect::<Vec<_>>()))
            .field("properties", &self.properties)
            .finish_non_exhaustive()
    }
}

/// Comes around after 2^32 graphs; then the id of a graph long gone might be taken for one of a new graph's.
fn fresh_identity() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The nodes of a cycle in path order, the first of them last again; a long one without its middle.
struct Cycle {
    labels: Vec<String>,
}

impl Cycle {
    const LONG: usize = 12;
    const SHOWN_AT_AN_END: usize = 4;
}

impl fmt::Display for Cycle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { labels } = self;
        if labels.len() <= Self::LONG {
            return f.write_str(&labels.join(" -> "));
        }
        let (start, rest) = labels.split_at(Self::SHOWN_AT_AN_END);
        let (middle, end) = rest.split_at(rest.len() - Self::SHOWN_AT_AN_END);
        write!(f, "{} -> ... ({} more) ... -> {}", start.join(" -> "), middle.len(), end.join(" -> "))
    }
}
