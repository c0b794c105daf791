//! Layer 2: what to do with a graph, decided once. Graph + capabilities -> [`Plan`], pure data.
//!
//! A [`Plan`] says which nodes share a command-buffer, in which order they are appended, which
//! sync-points they wait for, and which partitions wait for which. It holds node numbers only: no
//! commands, no memory, no device work. The runtime walks over it to create command-buffers; a test
//! or a person reads it as a list of [`Instruction`]s.
//!
//! One pass a file, in this order:
//!
//! | pass | does |
//! |---|---|
//! | `splice` | copies sub-graphs in |
//! | `check` | refuses commands that their device cannot run |
//! | `order` | sorts topologically, finds cycles; from here on nodes are positions in that order |
//! | `empties` | looks through empty nodes |
//! | `partition`, `signature`, `sets` | gathers nodes into partitions |
//! | `dependencies`, `reduce` | orders the partitions and reduces their dependencies |
//! | `inside` | append order and sync-points inside partitions |
//! | `lanes` | spreads partitions over queues |
//! | `arena` | on request: which buffers that live within a run can share memory |
//! | `lower`, `print` | the instruction list, as data, as text and as DOT |
//!
//! Every pass takes time linear in nodes and edges (signatures and `arena`: nearly, see there), and nothing
//! recurses.
//!
//! Imports from `types` and `graph` only. No tokio, no FFI, no clock, no locks. The runtime may enter.

mod arena;
mod check;
mod dependencies;
mod empties;
mod hash;
mod inside;
mod lanes;
mod lists;
mod lower;
mod options;
mod order;
mod partition;
mod print;
mod reduce;
mod sets;
mod signature;
mod splice;

#[cfg(test)]
mod tests;

pub use arena::{ArenaSize, Arenas, Transient};
pub use lower::Instruction;
pub use options::{ExecutionOrder, PartitionPolicy, PlanOptions};
pub use print::{Dot, Listing};

use dependencies::Edges;
use empties::Remaining;
use lists::Lists;
use splice::Flat;

use crate::graph::Graph;
use crate::types::{CommandKinds, DeviceId, Error, ErrorKind, Result};

/// What a graph becomes: partitions, their nodes, and who waits for whom.
///
/// *Planned nodes* are numbered; [`origin`](Self::origin) tells which node of which graph one is.
/// Without sub-graphs the number is the node's index in the graph. Empty nodes are not planned,
/// unless one is a join too wide to be looked through: then its origin is the empty node, or the
/// sub-graph node around which it stands, and an empty command is to be appended in its place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    partitions: Vec<Partition>,
    /// Planned nodes by partition.
    nodes: Lists,
    /// Of every planned node, in the order of `nodes`.
    waits: Lists,
    predecessors: Lists,
    successors: Lists,
    /// Empty where nothing was spliced.
    origins: Vec<Origin>,
    instances: Vec<Instance>,
}

/// Nodes that run on one device without the host's help, or one host task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partition {
    /// Where it runs.
    pub kind: PartitionKind,
    /// Its nodes run one after the other, in the order of [`Plan::nodes`], and have no sync-points.
    pub in_order: bool,
    /// Which of the device's queues it goes to, counting from 0; 0 for host tasks.
    pub lane: u16,
}

/// Where a partition runs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PartitionKind {
    /// On a device, as one command-buffer.
    Device(DeviceId),
    /// On the host, as one task.
    HostTask,
}

/// Which node of which copy of a graph a planned node is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Origin {
    /// Index into [`Plan::instances`].
    pub instance: u32,
    /// The node's index in that graph.
    pub node: u32,
}

/// One copy of a graph: the root graph, or a sub-graph node's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Instance {
    /// The instance that the sub-graph node is in; `None` for the root graph.
    pub parent: Option<u32>,
    /// The sub-graph node's index in the parent's graph; 0 for the root graph.
    pub node: u32,
}

impl Plan {
    /// Plans a graph. `supported` tells which commands a device can put into a command-buffer.
    ///
    /// Equal graphs and options give equal plans.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](ErrorKind::FeatureNotSupported) for a command that its device cannot run, with the
    /// command, node, device and place in the source; [`Cycle`](ErrorKind::Cycle) with the cycle's
    /// nodes for a graph that was built without a check; [`InvalidSize`](ErrorKind::InvalidSize)
    /// for a graph with more than 16 million nodes or 134 million edges once its sub-graphs are
    /// copied in.
    pub fn new<P>(
        graph: &Graph<P>,
        supported: impl Fn(DeviceId) -> CommandKinds,
        options: &PlanOptions,
    ) -> Result<Self> {
        let flat = splice::splice(graph)?;
        let places = check::places(&flat, &supported)?;

        let count = flat.kinds.len();
        let preds = match &flat.edges {
            Some(edges) => Lists::gather(count, edges.iter().map(|&(from, to)| (to, from))),
            None => Lists::gather(count, graph.edges().map(|(from, to)| (to, from))),
        };
        let (nodes, preds) = if flat.is_ordered() {
            ((0..count as u32).collect(), preds)
        } else {
            let sorted = order::depth_first(&preds).map_err(|cycle| cycle_error(&flat, &cycle))?;
            (sorted.nodes, sorted.preds)
        };
        let Remaining { nodes, preds, places: at } = if flat.has_empty_nodes() {
            empties::look_through(&nodes, &preds, &places)
        } else {
            let places = nodes.iter().map(|&node| places.of[node as usize]).collect();
            Remaining { nodes, preds, places }
        };

        let groups = partition::partition(&preds, &at, options.partition);
        let members = dependencies::members(&groups);
        let Edges { quotient, inner } =
            dependencies::split(&preds, &groups, &members).map_err(|cycle| circle(&cycle))?;
        let partition_places: Vec<u32> =
            quotient.nodes.iter().map(|&group| groups.places[group as usize]).collect();
        let mut predecessors = reduce::reduce(&quotient, &partition_places);
        let mut successors = predecessors.transposed(predecessors.len());

        let mut inside =
            inside::arrange(&members, &inner, &quotient.nodes, options).map_err(|cycle| circle(&cycle))?;
        inside.nodes.map_items(|position| nodes[position as usize]);
        let lanes = lanes::lanes(&predecessors, &partition_places, places.devices.len(), options.max_lanes);

        let partitions = (partition_places.iter().zip(inside.in_order).zip(lanes))
            .map(|((&place, in_order), lane)| match places.device(place) {
                Some(device) => Partition { kind: PartitionKind::Device(device), in_order, lane },
                None => Partition { kind: PartitionKind::HostTask, in_order: false, lane },
            })
            .collect();
        for lists in [&mut predecessors, &mut successors, &mut inside.waits] {
            lists.shrink();
        }
        Ok(Self {
            partitions,
            nodes: inside.nodes,
            waits: inside.waits,
            predecessors,
            successors,
            origins: flat.origins,
            instances: flat.instances,
        })
    }

    /// The partitions, each after all that it waits for.
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The planned nodes of a partition, in the order in which they are appended. A host task's has one.
    ///
    /// # Panics
    /// If there is no such partition. So do all methods that take one.
    pub fn nodes(&self, partition: usize) -> &[u32] {
        self.nodes.get(partition)
    }

    /// The sync-points of a node: which nodes of its partition it waits for, as positions in
    /// [`nodes`](Self::nodes), ascending and all before its own. Empty where the partition is in-order.
    ///
    /// A node that another one's sync-points already wait for may be left out.
    ///
    /// # Panics
    /// If there is no such partition or position.
    pub fn waits(&self, partition: usize, position: usize) -> &[u32] {
        assert!(position < self.nodes(partition).len(), "partition {partition} has no node at {position}");
        self.waits.get(self.nodes.start(partition) + position)
    }

    /// The partitions that a partition waits for, ascending; those that follow from others are left out.
    pub fn predecessors(&self, partition: usize) -> &[u32] {
        self.predecessors.get(partition)
    }

    /// The partitions that wait for a partition, ascending.
    pub fn successors(&self, partition: usize) -> &[u32] {
        self.successors.get(partition)
    }

    /// Where a planned node comes from.
    pub fn origin(&self, node: u32) -> Origin {
        self.origins.get(node as usize).copied().unwrap_or(Origin { instance: 0, node })
    }

    /// The copies of graphs in the plan. The first is the root graph; every other comes after its parent.
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// How many nodes are planned, in all partitions.
    pub fn node_count(&self) -> usize {
        self.nodes.items().len()
    }

    /// The memory the plan holds, in bytes.
    pub fn heap_bytes(&self) -> usize {
        let lists = [&self.nodes, &self.waits, &self.predecessors, &self.successors];
        lists.iter().map(|lists| lists.heap_bytes()).sum::<usize>()
            + self.partitions.capacity() * size_of::<Partition>()
            + self.origins.capacity() * size_of::<Origin>()
            + self.instances.capacity() * size_of::<Instance>()
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
fn cycle_error<P>(flat: &Flat<'_, P>, cycle: &[u32]) -> Error {
    const NAMED: usize = 8;
    let mut names: Vec<String> = cycle.iter().take(NAMED).map(|&node| flat.label(node)).collect();
    if cycle.len() > NAMED {
        names.push(format!("({} more)", cycle.len() - NAMED));
    }
    // The joins around a sub-graph are two nodes of one name.
    names.dedup();
    names.extend(cycle.first().map(|&node| flat.label(node)));
    Error::new(ErrorKind::Cycle, format!("the graph has a cycle: {}", names.join(" -> "))).help(
        "take out one of these edges, or build the graph with its cycle check on to see which edge closes it",
    )
}
