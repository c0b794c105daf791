//! Plans: how a graph is split into partitions, and the choices that one has.
//!
//! [`finalize`](crate::Graph::finalize) plans a graph before it compiles anything. The plan decides which
//! nodes wait for which. [`PartitionPolicy`] limits that, and [`ExecutionOrder`] says which of several
//! independent nodes comes first; both are [options](crate::FinalizeOptions) of `finalize`.
//! [`ExecutableGraph::plan`](crate::ExecutableGraph::plan) shows the plan as data,
//! [`plan_text`](crate::ExecutableGraph::plan_text) as text, and
//! [`explain`](crate::ExecutableGraph::explain) gives the reasons.
//!
//! ```
//! use wakegraph::plan::PartitionPolicy;
//! use wakegraph::{Device, FinalizeOptions, Graph};
//!
//! # fn main() -> wakegraph::Result<()> {
//! let device = Device::open("host")?;
//! let (x, y) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
//! let mut graph = Graph::new(&device);
//! let ask = graph.host_task((), async |()| {}).id();
//! graph.fill(&x, 1).after([ask]);
//! graph.fill(&y, 2); // need not wait for the host task
//!
//! let exec = graph.finalize()?;
//! assert_eq!(exec.plan().partitions().len(), 3);
//! let fewest = FinalizeOptions::new().partition(PartitionPolicy::Fewest);
//! println!("{}", graph.finalize_with(fewest)?.plan_text());
//! # Ok(())
//! # }
//! ```

// A `Plan` says which nodes share a command-buffer, in which order they are appended, which
// sync-points they wait for, and which partitions depend on which. It holds node numbers only: no
// commands, no memory, no device work. The runtime walks over it to create command-buffers. Tests
// and people read it as a list of `Instruction`s.
//
// The passes run in this order, one per file:
//
// | pass | what it does |
// |---|---|
// | `inline` | inlines sub-graphs |
// | `placement` | finds the device of each node and refuses commands that the device cannot run |
// | `order` | sorts topologically and finds cycles; later passes use positions in this order |
// | `elide_empty` | removes empty nodes and connects their neighbours |
// | `partition`, `signature`, `hash_consed_sets` | groups nodes into partitions |
// | `dependencies`, `transitive_reduction` | sorts the partitions and reduces their dependencies |
// | `command_order` | chooses the append order and the sync-points inside each partition |
// | `queue_assignment` | spreads partitions over the queues of their devices |
// | `memory_plan` | on request: lets scratch buffers that are never in use together share memory |
// | `instructions`, `print` | presents the plan as an instruction list, as text and as DOT |
// | `separation` | tells, of a finished plan, why a partition is one of its own |
//
// Lists of numbers are stored as compressed sparse rows (`csr`). Every pass takes time linear in the
// number of nodes and edges, or nearly so (`signature`, `memory_plan`), and no pass recurses.
//
// This module imports from `wakegraph-hal` and `graph` only: no tokio, no FFI, no clock, no locks.

mod command_order;
mod csr;
mod dependencies;
mod elide_empty;
mod hash_consed_sets;
mod inline;
mod instructions;
mod memory_plan;
mod options;
mod order;
mod partition;
mod placement;
mod print;
mod queue_assignment;
mod separation;
mod signature;
mod transitive_reduction;

#[cfg(test)]
mod tests;

use csr::Csr;
use inline::FlatGraph;
pub use instructions::Instruction;
pub use memory_plan::{ArenaSize, MemoryPlan, Transient};
pub use options::{ExecutionOrder, PartitionPolicy, PlanOptions};
use order::Sorted;
use placement::Placement;
pub use separation::Separation;
use wakegraph_hal::{CommandKinds, DeviceId, Error, ErrorKind, Result};

use crate::graph::{Graph, Payload};

/// Plan of a graph: its partitions, the nodes of each, and the dependencies between them.
///
/// *Planned nodes* are numbered. [`origin`](Self::origin) maps such a number to a node of a graph.
/// Without sub-graphs the number is the node's index in the graph. Empty nodes are not planned,
/// except for joins that are too wide to be removed. The origin of such a join is the empty node, or
/// the sub-graph node that it encloses, and an empty command is appended in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    partitions: Vec<Partition>,
    /// Planned nodes by partition.
    nodes: Csr,
    /// Of every planned node, in the order of `nodes`.
    waits: Csr,
    predecessors: Csr,
    successors: Csr,
    /// Empty if the graph has no sub-graphs.
    origins: Vec<Origin>,
    instances: Vec<GraphInstance>,
    policy: PartitionPolicy,
}

/// A set of nodes that runs on one device without the host's help, or one stream task, or one host task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Place where it runs.
    pub kind: PartitionKind,
    /// Whether its nodes run one after the other, in the order of [`Plan::nodes`], without sync-points.
    pub in_order: bool,
    /// Index of the device queue that it is enqueued on; 0 for host tasks.
    pub queue: u16,
}

/// Place where a partition runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PartitionKind {
    /// A device, as one command-buffer.
    Device(DeviceId),
    /// A device, live: a stream task, whose closure is called in every submission.
    StreamTask(DeviceId),
    /// The host, as one task.
    HostTask,
}

impl PartitionKind {
    /// The device that it is on; `None` for host tasks.
    pub fn device(self) -> Option<DeviceId> {
        match self {
            Self::Device(device) | Self::StreamTask(device) => Some(device),
            Self::HostTask => None,
        }
    }
}

/// Origin of a planned node: a node of one instance of a graph.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// Index into [`Plan::instances`].
    pub instance: u32,
    /// The node's index in that graph.
    pub node: u32,
}

/// One instance of a graph in a plan: the root graph, or the graph of one sub-graph node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GraphInstance {
    /// The instance that the sub-graph node is in; `None` for the root graph.
    pub parent: Option<u32>,
    /// The sub-graph node's index in the parent's graph; 0 for the root graph.
    pub node: u32,
}

impl Plan {
    /// Plans a graph. `supported` returns the commands that a device can put into a command-buffer.
    ///
    /// Equal graphs and options give equal plans.
    ///
    /// # Errors
    /// - [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) if a device cannot run one of its commands;
    ///   the error names the command, the node, the device and the place in the source.
    /// - [`Cycle`](ErrorKind::Cycle), with the nodes of the cycle, if a graph that was built without the
    ///   cycle check has one.
    /// - [`InvalidSize`](ErrorKind::InvalidSize) if the graph, with its sub-graphs inlined, has more than
    ///   16 million nodes or 134 million edges.
    pub fn new<P: Payload>(
        graph: &Graph<P>,
        supported: impl Fn(DeviceId) -> CommandKinds,
        options: &PlanOptions,
    ) -> Result<Self> {
        let flat = inline::inline_sub_graphs(graph)?;
        let Placement { of: places, devices } = placement::place_nodes(&flat, &supported)?;

        let count = flat.kinds.len();
        let preds = match &flat.edges {
            Some(edges) => Csr::gather(count, edges.iter().map(|&(from, to)| (to, from))),
            None => Csr::gather(count, graph.edges().map(|(from, to)| (to, from))),
        };
        let mut sorted =
            order::sort(preds, places, flat.is_ordered()).map_err(|cycle| cycle_error(&flat, &cycle))?;
        if flat.has_empty_nodes() {
            sorted = elide_empty::elide_empty_nodes(sorted, &devices);
        }
        let Sorted { nodes, preds, places } = sorted;

        let groups = partition::partition(&preds, &places, options.partition);
        let members = dependencies::members(&groups);
        let edges = dependencies::split(&preds, &groups, &members).map_err(|cycle| circle(&cycle))?;
        let partition_places: Vec<u32> =
            edges.quotient.nodes.iter().map(|&group| groups.places[group as usize]).collect();
        let mut predecessors = transitive_reduction::reduce(&edges.quotient, &partition_places);
        let mut successors = predecessors.transposed(predecessors.len());

        let mut commands =
            command_order::order_commands(&members, &edges, options).map_err(|cycle| circle(&cycle))?;
        if let Some(nodes) = nodes {
            commands.nodes.map_items(|position| nodes[position as usize]);
        }
        let queues = queue_assignment::assign_queues(
            &predecessors,
            &partition_places,
            devices.len(),
            options.max_queues,
        );

        let partitions = (partition_places.iter().zip(commands.in_order).zip(queues))
            .map(|((&place, in_order), queue)| match devices.device(place) {
                Some(device) if placement::is_stream_task(place) => {
                    Partition { kind: PartitionKind::StreamTask(device), in_order: false, queue }
                }
                Some(device) => Partition { kind: PartitionKind::Device(device), in_order, queue },
                None => Partition { kind: PartitionKind::HostTask, in_order: false, queue },
            })
            .collect();
        for lists in [&mut predecessors, &mut successors, &mut commands.waits] {
            lists.shrink();
        }
        Ok(Self {
            partitions,
            nodes: commands.nodes,
            waits: commands.waits,
            predecessors,
            successors,
            origins: flat.origins,
            instances: flat.instances,
            policy: options.partition,
        })
    }

    /// The partitions, in topological order: each comes after the partitions that it waits for.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The planned nodes of a partition, in append order. The partition of a host task or stream task has
    /// one node.
    ///
    /// # Panics
    /// If there is no such partition, like every method that takes a partition.
    pub fn nodes(&self, partition: usize) -> &[u32] {
        self.nodes.get(partition)
    }

    /// The sync-points of a node: which nodes of its partition it waits for, as positions in
    /// [`nodes`](Self::nodes), ascending and all before its own. Empty where the partition is in-order.
    ///
    /// A node may be left out if another sync-point implies it.
    ///
    /// # Panics
    /// If there is no such partition or position.
    pub fn waits(&self, partition: usize, position: usize) -> &[u32] {
        assert!(position < self.nodes(partition).len(), "partition {partition} has no node at {position}");
        self.waits.get(self.nodes.start(partition) + position)
    }

    /// The partitions that a partition waits for, ascending, without those that others imply.
    pub fn predecessors(&self, partition: usize) -> &[u32] {
        self.predecessors.get(partition)
    }

    /// The partitions that wait for a partition, ascending.
    pub fn successors(&self, partition: usize) -> &[u32] {
        self.successors.get(partition)
    }

    /// The node of a graph that a planned node comes from.
    pub fn origin(&self, node: u32) -> Origin {
        self.origins.get(node as usize).copied().unwrap_or(Origin { instance: 0, node })
    }

    /// The instances of graphs in the plan. The root graph comes first, and every other after its parent.
    pub fn instances(&self) -> &[GraphInstance] {
        &self.instances
    }

    /// The number of planned nodes in all partitions.
    pub fn node_count(&self) -> usize {
        self.nodes.items().len()
    }

    /// The heap memory of the plan, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let lists = [&self.nodes, &self.waits, &self.predecessors, &self.successors];
        lists.iter().map(|lists| lists.heap_bytes()).sum::<usize>()
            + self.partitions.capacity() * size_of::<Partition>()
            + self.origins.capacity() * size_of::<Origin>()
            + self.instances.capacity() * size_of::<GraphInstance>()
    }
}

#[cold]
fn circle(cycle: &[u32]) -> Error {
    Error::new(
        ErrorKind::Bug,
        format!("partitions, or nodes inside one, wait for each other in a circle: {cycle:?}"),
    )
}

#[cold]
fn cycle_error<P>(flat: &FlatGraph<'_, P>, cycle: &[u32]) -> Error {
    const NAMED: usize = 8;
    let mut names: Vec<String> = cycle.iter().take(NAMED).map(|&node| flat.label(node)).collect();
    if cycle.len() > NAMED {
        names.push(format!("({} more)", cycle.len() - NAMED));
    }
    // The joins around a sub-graph are two nodes of one name.
    names.dedup();
    names.extend(cycle.first().map(|&node| flat.label(node)));
    Error::new(ErrorKind::Cycle, format!("the graph has a cycle: {}", names.join(" -> "))).help(
        "remove one of these edges, or build the graph with its cycle check on to see which edge closes it",
    )
}
