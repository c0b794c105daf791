//! What an updatable executable remembers of the graph that it was finalized from.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::graph::{self, Content, NodePath};
use crate::plan::{GraphInstance, Origin, Plan};
use crate::runtime::builder::binding::{ParamKey, Parameter};
use crate::runtime::builder::command::{Command, Group, GroupKey};
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::fence::Fence;
use crate::runtime::finalize::Source;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::scratch::{Places, PlannedUses};
use crate::types::{Access, CommandKind, Error, ErrorKind, Result};

/// Where a node's command is: the partition, and which of its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandPlace {
    pub(crate) partition: u32,
    pub(crate) position: u32,
}

/// What updates need to know.
pub(crate) struct Updatable {
    pub(crate) options: FinalizeOptions,
    /// Of each instance of a graph.
    instances: Box<[UpdatableInstance]>,
    /// The instance of each sub-graph node.
    children: HashMap<Origin, u32>,
    /// The nodes that each parameter is bound to, in any of their alternatives.
    bound: HashMap<ParamKey, Vec<Origin>>,
    /// The nodes that run an alternative of each group.
    groups: HashMap<GroupKey, Vec<Origin>>,
    /// Locked while an update is applied or takes a turn, before any register or state. No code of
    /// users runs meanwhile.
    current: Mutex<CurrentGraph>,
}

/// One instance of a graph: the root, or the graph of one sub-graph node.
struct UpdatableInstance {
    /// What the ids of its nodes carry in the graph that the user built.
    identity: u32,
    parent: Option<Origin>,
    /// Of each node that is one command.
    places: Box<[Option<CommandPlace>]>,
}

/// Accesses with their allocations.
pub(crate) type Accesses = Vec<(Arc<Allocation>, Access)>;

/// The executable as it is by now.
pub(crate) struct CurrentGraph {
    /// The graph of each instance, without what is inside its sub-graph nodes.
    pub(crate) graphs: Vec<graph::Graph<Command>>,
    pub(crate) disabled: HashSet<Origin>,
    pub(crate) uses: Uses,
    /// Where the scratch buffers lie.
    pub(crate) scratch: Arc<Places>,
    /// The scratch buffers that a node may have: those that it had when they were placed.
    pub(crate) planned: PlannedUses,
    /// Updates that have taken a turn, oldest first, until they are applied or given up.
    pub(crate) waiting: Vec<WaitingUpdate>,
}

/// An update that waits for its turn.
pub(crate) struct WaitingUpdate {
    /// Opens when the update has been applied or given up.
    pub(crate) fence: Arc<Fence>,
    /// What the update may bring, used by runs that are submitted behind it.
    pub(crate) brings: Accesses,
}

impl Updatable {
    /// Takes over what keeps the memory alive.
    pub(super) fn new(
        source: &Source<'_>,
        plan: &Plan,
        options: FinalizeOptions,
        scratch: &Arc<Places>,
        uses: &mut Uses,
    ) -> Self {
        let graphs = instance_graphs(source.root().clone(), plan.instances());
        let instance = |(instance, graph): (&GraphInstance, &graph::Graph<Command>)| UpdatableInstance {
            identity: graph.source(),
            parent: instance.parent.map(|parent| Origin { instance: parent, node: instance.node }),
            places: vec![None; graph.len()].into(),
        };
        let mut instances: Box<[_]> = plan.instances().iter().zip(&graphs).map(instance).collect();
        let mut bound: HashMap<ParamKey, Vec<Origin>> = HashMap::new();
        let mut groups: HashMap<GroupKey, Vec<Origin>> = HashMap::new();
        for partition in 0..plan.partitions().len() {
            for (position, &node) in plan.nodes(partition).iter().enumerate() {
                let Some((command, _)) = source.command(plan, node) else { continue };
                let origin = plan.origin(node);
                instances[origin.instance as usize].places[origin.node as usize] =
                    Some(CommandPlace { partition: partition as u32, position: position as u32 });
                if let Some(membership) = command.membership() {
                    groups.entry(membership.group.key()).or_default().push(origin);
                }
                for param in command.params() {
                    let nodes = bound.entry(param.key()).or_default();
                    if nodes.last() != Some(&origin) {
                        nodes.push(origin);
                    }
                }
            }
        }
        let children = instances.iter().zip(0..);
        let children = children.filter_map(|(instance, index)| Some((instance.parent?, index))).collect();
        Self {
            options,
            children,
            bound,
            groups,
            instances,
            current: Mutex::new(CurrentGraph {
                graphs,
                disabled: HashSet::new(),
                uses: std::mem::take(uses),
                scratch: scratch.clone(),
                planned: planned_uses(source, plan),
                waiting: Vec::new(),
            }),
        }
    }

    /// What updates of an executable need to know.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) for an executable that cannot be updated.
    pub(crate) fn of(executable: &ExecutableInner) -> Result<&Self> {
        let updatable = executable.updatable.as_deref().and_then(<dyn Any + Send + Sync>::downcast_ref);
        updatable.ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the executable is not updatable")
                .help("finalize with `FinalizeOptions::new().updatable(true)`")
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CurrentGraph> {
        self.current.lock()
    }

    /// The node that a path names.
    pub(crate) fn find(&self, path: &NodePath) -> Result<Origin> {
        let mut at = Origin { instance: 0, node: 0 };
        let mut outside_in = path.outside_in().peekable();
        while let Some(node) = outside_in.next() {
            let UpdatableInstance { identity, places, .. } = &self.instances[at.instance as usize];
            let index = node.index();
            let why = if node.graph() != *identity {
                format!("node #{index} is of another graph than the one that was finalized")
            } else if index >= places.len() {
                format!("node #{index} was added after the graph was finalized")
            } else {
                at.node = index as u32;
                if outside_in.peek().is_none() {
                    return Ok(at);
                }
                match self.children.get(&at) {
                    Some(&instance) => {
                        at = Origin { instance, node: 0 };
                        continue;
                    }
                    None => format!("node #{index} has no nodes within it"),
                }
            };
            return Err(Error::new(ErrorKind::InvalidArgument, why).help(
                "pass ids of that graph; name a node inside a sub-graph with its sub-graph nodes, as in \
                 `node.within(sub_graph)`",
            ));
        }
        Ok(at)
    }

    /// The nodes that a parameter is bound to.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a parameter of a graph that is neither the
    /// finalized one nor a sub-graph of it.
    pub(crate) fn bound_to(&self, param: &Arc<Parameter>) -> Result<&[Origin]> {
        self.of_graph(self.bound.get(&param.key()), param.graph(), "dynamic parameter")
    }

    /// The nodes that run an alternative of a group.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) as for [`bound_to`](Self::bound_to).
    pub(crate) fn members_of(&self, group: &Arc<Group>) -> Result<&[Origin]> {
        self.of_graph(self.groups.get(&group.key()), group.graph(), "command group")
    }

    fn of_graph<'a>(&self, nodes: Option<&'a Vec<Origin>>, graph: u32, what: &str) -> Result<&'a [Origin]> {
        match nodes {
            Some(nodes) => Ok(nodes),
            None if self.instances.iter().any(|instance| instance.identity == graph) => Ok(&[]),
            None => {
                let why = format!("the {what} belongs to another graph");
                Err(Error::new(ErrorKind::InvalidArgument, why)
                    .help("pass one of the graph that was finalized, or of one of its sub-graphs"))
            }
        }
    }

    /// The nodes that hold parameters or run an alternative of a group.
    pub(crate) fn dynamic_nodes(&self) -> impl Iterator<Item = Origin> + '_ {
        self.bound.values().chain(self.groups.values()).flatten().copied()
    }

    pub(crate) fn place(&self, node: Origin) -> Option<CommandPlace> {
        self.instances[node.instance as usize].places[node.node as usize]
    }

    /// The sub-graph node around each of an instance's nodes; none for the root.
    pub(crate) fn parent(&self, instance: u32) -> Option<Origin> {
        self.instances[instance as usize].parent
    }
}

/// The scratch buffers that each node has.
pub(crate) fn planned_uses(source: &Source<'_>, plan: &Plan) -> PlannedUses {
    PlannedUses::new(source.views(plan).map(|(node, view)| (plan.origin(node), view)))
}

/// The graph of each instance of a root, without what is inside its sub-graph nodes. Where the root
/// has no such sub-graph, there is an empty graph.
pub(crate) fn instance_graphs(
    root: graph::Graph<Command>,
    instances: &[GraphInstance],
) -> Vec<graph::Graph<Command>> {
    let mut graphs = Vec::with_capacity(instances.len());
    graphs.push(root);
    for GraphInstance { parent, node } in instances.iter().skip(1) {
        // A parent comes before its children.
        let parent: Option<&graph::Graph<Command>> = parent.and_then(|parent| graphs.get(parent as usize));
        let parent = parent.filter(|parent| (*node as usize) < parent.len());
        graphs.push(match parent.map(|parent| parent.content_at(*node as usize)) {
            Some(Content::SubGraph(child)) => (**child).clone(),
            _ => graph::Graph::new(),
        });
    }
    graphs.iter_mut().for_each(graph::Graph::empty_sub_graphs);
    graphs
}

impl CurrentGraph {
    pub(crate) fn command(&self, node: Origin) -> Option<&Command> {
        match self.graph(node).content_at(node.node as usize) {
            Content::Command(command) => Some(command),
            Content::Empty | Content::SubGraph(_) => None,
        }
    }

    pub(crate) fn accesses_of(&self, node: Origin) -> &[Access] {
        self.graph(node).accesses_at(node.node as usize)
    }

    pub(crate) fn is_enabled(&self, node: Origin) -> bool {
        !self.disabled.contains(&node)
    }

    pub(crate) fn kind(&self, node: Origin) -> CommandKind {
        self.graph(node).kinds()[node.node as usize]
    }

    pub(crate) fn label(&self, node: Origin) -> String {
        self.graph(node).label_at(node.node as usize)
    }

    pub(crate) fn graph(&self, node: Origin) -> &graph::Graph<Command> {
        &self.graphs[node.instance as usize]
    }

    /// Replaces a node's command and accesses. Gives back the old command.
    pub(crate) fn replace(&mut self, node: Origin, command: Command, accesses: &[Access]) -> Option<Command> {
        let old = self.accesses_of(node);
        if old != accesses {
            let old = old.to_vec();
            self.uses.remove(node, &old);
            self.uses.add(node, &command, accesses);
        }
        let graph = &mut self.graphs[node.instance as usize];
        graph.replace_accesses(node.node as usize, accesses);
        let place = graph.id_at(node.node as usize).and_then(|id| graph.command_mut(id).ok())?;
        Some(std::mem::replace(place, command))
    }

    /// Makes known what later submissions of the executable use: its memory, `more`, and what
    /// updates that wait may bring. `before` is what they may no longer use.
    pub(crate) fn register(
        &self,
        executable: &Arc<ExecutableInner>,
        before: &[Arc<Allocation>],
        more: &[(Arc<Allocation>, Access)],
    ) {
        let brought = self.waiting.iter().flat_map(|waiting| &waiting.brings);
        let uses = self.uses.merged_with(more.iter().chain(brought).cloned());
        conflicts::register(executable, before, uses);
    }

    /// An update has been applied or given up: takes out what only it has brought.
    pub(crate) fn leave(&mut self, executable: &Arc<ExecutableInner>, fence: &Arc<Fence>) {
        let Some(at) = self.waiting.iter().position(|waiting| Arc::ptr_eq(&waiting.fence, fence)) else {
            return;
        };
        let brought: Vec<_> =
            self.waiting.remove(at).brings.into_iter().map(|(allocation, _)| allocation).collect();
        if !brought.is_empty() {
            self.register(executable, &brought, &[]);
        }
    }
}
