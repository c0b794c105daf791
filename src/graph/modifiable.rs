//! The modifiable graph: adding nodes and edges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fmt, mem};

use wakegraph_hal::{Access, CommandKind, DeviceId, Error, ErrorKind, Result, setters};

use super::access_tracker::AccessTracker;
use super::adjacency::Adjacency;
use super::topo_order::TopologicalOrder;
use super::{NodeId, label};

/// The content of a node: what it runs.
#[derive(Clone, Debug)]
pub enum Content<P> {
    /// A command or a host task.
    Command(P),
    /// Nothing: a point that other nodes wait for.
    Empty,
    /// Another graph, as it is now. Finalize inlines it.
    SubGraph(Arc<Graph<P>>),
}

/// The modifiable graph: nodes and edges, in insertion order. Plain data: nothing runs, and no device is
/// asked.
///
/// A graph only grows. Its columns are flat arrays indexed by [`NodeId::index`], which the plan reads
/// directly.
///
/// A clone is a snapshot with the same nodes at the same indices. It refuses the ids of the original;
/// [`nodes`](Self::nodes) returns its own.
///
/// ```
/// use wakegraph::capabilities::DeviceId;
/// use wakegraph::graph::{CommandKind, Content, Graph};
/// use wakegraph::memory::{Access, AccessMode, ResourceId};
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
    /// The identity of the graph that this one is a clone of, or its own.
    pub(super) source: u32,
    pub(super) properties: GraphProperties,
    pub(super) kinds: Vec<CommandKind>,
    pub(super) devices: Vec<DeviceId>,
    pub(super) contents: Vec<Content<P>>,
    pub(super) locations: Vec<&'static Location<'static>>,
    /// The name of each node, up to the last one that has a name.
    pub(super) names: Vec<Option<Arc<str>>>,
    pub(super) accesses: Vec<Access>,
    /// For each node, the end of its accesses. They start where those of the previous node end.
    pub(super) access_ends: Vec<usize>,
    pub(super) adjacency: Adjacency,
    /// `None` without the cycle check.
    pub(super) order: Option<TopologicalOrder>,
    pub(super) insertion_ordered: bool,
    pub(super) has_sub_graphs: bool,
    pub(super) has_empty_nodes: bool,
    tracker: AccessTracker,
}

/// Behaviour of a graph while it is built.
///
/// ```
/// use wakegraph::graph::{Graph, GraphProperties};
/// let graph = Graph::<()>::with_properties(GraphProperties::default().no_cycle_check(true));
/// assert!(graph.properties().no_cycle_check);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct GraphProperties {
    /// Whether [`make_edge`](Graph::make_edge) accepts edges that close a cycle, for finalize to
    /// refuse.
    pub no_cycle_check: bool,
}

setters! {
    GraphProperties {
        /// Sets [`no_cycle_check`](Self#structfield.no_cycle_check), for programs that make very many
        /// edges from newer to older nodes and know that they close no cycle.
        no_cycle_check: bool,
    }
}

impl<P> Graph<P> {
    /// An empty graph.
    pub fn new() -> Self {
        Self::with_properties(GraphProperties::default())
    }

    /// An empty graph with these properties.
    pub fn with_properties(properties: GraphProperties) -> Self {
        let identity = fresh_identity();
        Self {
            identity,
            source: identity,
            properties,
            kinds: Vec::new(),
            devices: Vec::new(),
            contents: Vec::new(),
            locations: Vec::new(),
            names: Vec::new(),
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

    /// Adds a node, with an edge from every earlier node whose accesses conflict with its own, unless
    /// other such edges order the two already.
    ///
    /// An access with an empty range orders nothing. The caller declares the accesses of a sub-graph, too.
    /// [`Content::Empty`] and [`Content::SubGraph`] determine the node's kind, whatever `kind` says. The
    /// graph keeps the caller's location for errors and drawings.
    ///
    /// # Panics
    /// If the graph has 2^32 - 1 nodes, or as many edges or declared reads.
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

    /// Makes `to` wait for `from`. Does nothing if the edge exists already.
    ///
    /// Edges may lead from newer to older nodes. An edge from an older to a newer node takes constant
    /// time, unless the graph has edges from newer to older nodes. Any other edge costs a search among
    /// the nodes that are ordered between the two.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidArgument`] for a node of another graph, or for an edge from a node to itself.
    /// - [`ErrorKind::Cycle`], with the nodes of the cycle, if `from` already waits for `to`. With
    ///   [`no_cycle_check`](GraphProperties::no_cycle_check), finalize refuses the cycle instead.
    ///
    /// The graph is unchanged after an error.
    ///
    /// # Panics
    /// If the graph has 2^32 - 1 edges.
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
    pub(crate) fn set_name(&mut self, id: NodeId, name: impl Into<Arc<str>>) -> Result<()> {
        let index = self.index_of(id)? as usize;
        self.names.resize(self.names.len().max(index + 1), None);
        self.names[index] = Some(name.into());
        Ok(())
    }

    /// Moves a node to another device.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph.
    pub(crate) fn set_device(&mut self, id: NodeId, device: DeviceId) -> Result<()> {
        let index = self.index_of(id)?;
        self.devices[index as usize] = device;
        Ok(())
    }

    /// The command of a node, to change its operands. The declared accesses and the edges stay as they are.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidArgument`] for a node of another graph, or for a node without a command.
    pub(crate) fn command_mut(&mut self, id: NodeId) -> Result<&mut P> {
        let index = self.index_of(id)?;
        let slot = index as usize;
        match &mut self.contents[slot] {
            Content::Command(command) => Ok(command),
            Content::Empty | Content::SubGraph(_) => {
                Err(Error::new(ErrorKind::InvalidArgument, "the node holds no command")
                    .in_node(label(self.kinds[slot], self.names.get(slot).and_then(Option::as_deref), index))
                    .at(self.locations[slot])
                    .help("only commands and host tasks have operands"))
            }
        }
    }

    /// The command of the node with this index, if it holds one.
    pub(crate) fn command_at_mut(&mut self, index: usize) -> Option<&mut P> {
        match &mut self.contents[index] {
            Content::Command(command) => Some(command),
            Content::Empty | Content::SubGraph(_) => None,
        }
    }

    /// Replaces the declared accesses of a node. The edges stay as they are; see
    /// [`rederive_edges`](Self::rederive_edges).
    pub(crate) fn replace_accesses(&mut self, index: usize, accesses: &[Access]) {
        let start = index.checked_sub(1).map_or(0, |before| self.access_ends[before]);
        let end = self.access_ends[index];
        if accesses.len() == end - start {
            return self.accesses[start..end].copy_from_slice(accesses);
        }
        self.accesses.splice(start..end, accesses.iter().copied());
        for later in &mut self.access_ends[index..] {
            *later = *later + accesses.len() - (end - start);
        }
    }

    /// Replaces what a node runs. Its kind, accesses and edges stay.
    pub(crate) fn replace_content(&mut self, index: usize, content: Content<P>) {
        self.contents[index] = content;
    }

    /// Takes the sub-graphs out of their nodes, which keep their kind and their edges.
    pub(crate) fn empty_sub_graphs(&mut self) {
        self.take_sub_graphs(&mut Vec::new());
    }

    /// Adds the edges that the accesses of the newest node ask for, after these have been replaced.
    pub(crate) fn rederive_newest_edges(&mut self) {
        let Some(newest) = self.len().checked_sub(1) else { return };
        // A node that others wait for by now may have to come before nodes that conflict with it.
        if self.adjacency.successors(newest as u32).len() > 0 {
            return self.rederive_edges();
        }
        let start = newest.checked_sub(1).map_or(0, |before| self.access_ends[before]);
        let predecessors = self.tracker.record(newest as u32, &self.accesses[start..]);
        for &predecessor in predecessors {
            if predecessor != newest as u32 && !self.adjacency.contains(predecessor, newest as u32) {
                self.adjacency.insert(predecessor, newest as u32);
            }
        }
    }

    /// Adds the edges that the declared accesses of all nodes ask for, after some have been replaced.
    /// Edges that exist stay: nodes that conflict run in the order that these give, otherwise in that of
    /// insertion.
    pub(crate) fn rederive_edges(&mut self) {
        let mut tracker = AccessTracker::default();
        for index in self.in_order() {
            for &predecessor in tracker.record(index, self.accesses_at(index as usize)) {
                if self.adjacency.contains(predecessor, index) {
                    continue;
                }
                let order = self.order.as_mut();
                if order.is_none_or(|order| order.admit(&self.adjacency, predecessor, index).is_ok()) {
                    self.adjacency.insert(predecessor, index);
                    self.insertion_ordered &= predecessor < index;
                }
            }
        }
        self.tracker = tracker;
    }

    /// All nodes, each after those that it waits for, and as far as edges allow in the order of insertion.
    /// Nodes on a cycle, and behind one, come last.
    pub(crate) fn in_order(&self) -> Vec<u32> {
        let count = self.len() as u32;
        if self.insertion_ordered {
            return (0..count).collect();
        }
        let mut waits: Vec<usize> = (0..count).map(|node| self.adjacency.predecessors(node).len()).collect();
        let mut ready: BinaryHeap<Reverse<u32>> = self.adjacency.roots().map(Reverse).collect();
        let mut all = Vec::with_capacity(self.len());
        while let Some(Reverse(node)) = ready.pop() {
            all.push(node);
            for next in self.adjacency.successors(node) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.push(Reverse(next));
                }
            }
        }
        all.extend((0..count).filter(|&node| waits[node as usize] > 0));
        all
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

    /// Moves the sub-graphs out, so that the caller can drop them in a loop.
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
            source: self.source,
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

/// Returns a new identity. It wraps around after 2^32 graphs; an id of a graph dropped long ago might then
/// be accepted by a new one.
fn fresh_identity() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Displays the nodes of a cycle in path order, with the first one repeated at the end. Omits the middle of a
/// long cycle.
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
