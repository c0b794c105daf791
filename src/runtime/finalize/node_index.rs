//! The nodes of an updatable executable by the names that users have for them: ids, parameters, groups.
//!
//! The root and each sub-graph that the plan copies in is an instance of a graph. The bodies of
//! conditionals and loops, with their own sub-graphs, are further instances behind those of the plan.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use wakegraph_hal::{CommandKind, Error, ErrorKind, Result};

use crate::graph::{self, Content, NodePath};
use crate::plan::{Origin, Plan};
use crate::runtime::builder::binding::{ParamKey, Parameter};
use crate::runtime::builder::command::{Command, Group, GroupKey};
use crate::runtime::resource::scratch::PlannedUses;

/// Place of a node's command: the partition, and the index among its commands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct CommandPlace {
    pub(crate) partition: u32,
    pub(crate) position: u32,
}

/// Nodes that one name stands for. Several, where a conditional has the same graph as both bodies.
pub(crate) type NamedNodes = SmallVec<[Origin; 1]>;

/// Finds nodes. It changes only when a body gets other nodes.
pub(crate) struct NodeIndex {
    instances: Box<[IndexedGraph]>,
    /// Number of instances that are the plan's; the others lie in bodies.
    planned: u32,
    /// The instances within each node that holds graphs: one in a sub-graph node, one for each body
    /// in a conditional or loop.
    children: HashMap<Origin, SmallVec<[u32; 2]>>,
    /// The nodes that each parameter is bound to, in any of their alternatives.
    bound: BTreeMap<ParamKey, Vec<Origin>>,
    /// The nodes that run an alternative of each group.
    groups: BTreeMap<GroupKey, Vec<Origin>>,
}

/// One instance of a graph: the root, the graph of one sub-graph node, or a body.
struct IndexedGraph {
    /// Identity that the ids of its nodes carry in the graph that the user built.
    identity: u32,
    len: usize,
    parent: Option<Origin>,
    /// Whether it is a body that came in the place of one with other nodes.
    is_replacement: bool,
    /// Of each node that is one command of the plan. Empty for instances inside bodies.
    places: Box<[Option<CommandPlace>]>,
}

/// Index that a new one replaces: nodes keep their names where they can.
pub(crate) struct IndexBefore<'a> {
    pub(crate) index: &'a NodeIndex,
    pub(crate) graphs: &'a [graph::Graph<Command>],
}

impl NodeIndex {
    /// Of the graphs of the plan's instances, to which this appends those inside bodies.
    ///
    /// Where there was an index before, graphs of the same nodes in the same places keep their ids,
    /// parameters and groups. Their edges may be other ones, which follow from the memory that they use.
    pub(crate) fn new(
        plan: &Plan,
        graphs: &mut Vec<graph::Graph<Command>>,
        before: Option<IndexBefore<'_>>,
    ) -> Self {
        let planned = graphs.len();
        let mut parents: Vec<Option<Origin>> = plan
            .instances()
            .iter()
            .map(|instance| instance.parent.map(|parent| Origin { instance: parent, node: instance.node }))
            .collect();
        let mut children: HashMap<Origin, SmallVec<[u32; 2]>> = HashMap::new();
        for (index, parent) in (0..).zip(&parents) {
            if let Some(parent) = parent {
                children.insert(*parent, smallvec![index]);
            }
        }
        // The instance in whose place each of them is.
        let mut replaced: Vec<Option<u32>> =
            (0..planned as u32).map(|index| before.as_ref().map(|_| index)).collect();
        let mut at = 0;
        while at < graphs.len() {
            for node in 0..graphs[at].len() {
                let origin = Origin { instance: at as u32, node: node as u32 };
                let inner: SmallVec<[graph::Graph<Command>; 2]> = match graphs[at].content_at(node) {
                    Content::Command(Command::Control(control)) => {
                        control.bodies.iter().map(|body| body.inner().clone()).collect()
                    }
                    Content::SubGraph(inner) if at >= planned => smallvec![(**inner).clone()],
                    _ => continue,
                };
                for (slot, graph) in inner.into_iter().enumerate() {
                    let known = before.as_ref().zip(replaced[at]).and_then(|(before, instance)| {
                        let node = Origin { instance, ..origin };
                        let known = *before.index.children.get(&node)?.get(slot)?;
                        has_nodes_of(&graph, &before.graphs[known as usize]).then_some(known)
                    });
                    children.entry(origin).or_default().push(graphs.len() as u32);
                    replaced.push(known);
                    parents.push(Some(origin));
                    graphs.push(graph);
                }
            }
            at += 1;
        }
        if let Some(before) = &before {
            for (graph, known) in graphs.iter_mut().zip(&replaced) {
                known.iter().for_each(|known| keep_names(&before.graphs[*known as usize], graph));
            }
        }
        let instances = graphs.iter().zip(parents).zip(replaced).map(|((graph, parent), replaced)| {
            let known = before.as_ref().zip(replaced);
            let known = known.map(|(before, index)| &before.index.instances[index as usize]);
            IndexedGraph {
                identity: known.map_or_else(|| graph.source(), |known| known.identity),
                len: graph.len(),
                parent,
                is_replacement: known.map_or(before.is_some(), |known| known.is_replacement),
                places: Box::default(),
            }
        });
        let mut index = Self {
            instances: instances.collect(),
            planned: planned as u32,
            children,
            bound: BTreeMap::new(),
            groups: BTreeMap::new(),
        };
        index.add_commands(plan, graphs);
        index
    }

    fn add_commands(&mut self, plan: &Plan, graphs: &[graph::Graph<Command>]) {
        for (instance, graph) in self.instances.iter_mut().zip(graphs).take(self.planned as usize) {
            instance.places = vec![None; graph.len()].into();
        }
        for partition in 0..plan.partitions().len() {
            for (position, &node) in plan.nodes(partition).iter().enumerate() {
                let origin = plan.origin(node);
                let graph = &graphs[origin.instance as usize];
                let Content::Command(command) = graph.content_at(origin.node as usize) else { continue };
                self.instances[origin.instance as usize].places[origin.node as usize] =
                    Some(CommandPlace { partition: partition as u32, position: position as u32 });
                self.add_names(origin, command);
            }
        }
        for (origin, command) in self.body_commands(graphs) {
            self.add_names(origin, command);
        }
    }

    /// The commands inside bodies.
    fn body_commands<'g>(
        &self,
        graphs: &'g [graph::Graph<Command>],
    ) -> impl Iterator<Item = (Origin, &'g Command)> + use<'g> {
        (0..).zip(graphs).skip(self.planned as usize).flat_map(|(instance, graph)| {
            (0..graph.len()).filter_map(move |node| match graph.content_at(node) {
                Content::Command(command) => Some((Origin { instance, node: node as u32 }, command)),
                Content::Empty | Content::SubGraph(_) => None,
            })
        })
    }

    fn add_names(&mut self, origin: Origin, command: &Command) {
        if let Some(membership) = command.membership() {
            self.groups.entry(membership.group.key()).or_default().push(origin);
        }
        for param in command.params() {
            let nodes = self.bound.entry(param.key()).or_default();
            if nodes.last() != Some(&origin) {
                nodes.push(origin);
            }
        }
    }

    /// The scratch buffers that each node has.
    pub(crate) fn planned_uses(&self, plan: &Plan, graphs: &[graph::Graph<Command>]) -> PlannedUses {
        let nodes = (0..plan.partitions().len()).flat_map(|partition| plan.nodes(partition));
        let planned = nodes.filter_map(|&node| {
            let origin = plan.origin(node);
            match graphs[origin.instance as usize].content_at(origin.node as usize) {
                Content::Command(command) => Some((origin, command)),
                Content::Empty | Content::SubGraph(_) => None,
            }
        });
        let all = planned.chain(self.body_commands(graphs));
        PlannedUses::new(all.flat_map(|(origin, command)| command.views().map(move |view| (origin, view))))
    }

    /// The nodes that a path names.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a path that leads nowhere.
    pub(crate) fn find(&self, path: &NodePath) -> Result<NamedNodes> {
        if let Some(node) = self.find_in_root(path) {
            return Ok(smallvec![node]);
        }
        let mut instances: SmallVec<[u32; 2]> = smallvec![0];
        let mut nodes = NamedNodes::new();
        for node in path.outside_in() {
            let index = node.index();
            let is_here = |instance: &u32| self.instances[*instance as usize].identity == node.graph();
            let within = |instance: u32| Origin { instance, node: index as u32 };
            let has_node = |origin: &Origin| index < self.instances[origin.instance as usize].len;
            if let Some(container) = nodes.first() {
                let inner = nodes.iter().filter_map(|origin| self.children.get(origin));
                instances = inner.flatten().copied().collect();
                if instances.is_empty() {
                    let container = container.node;
                    return Err(unknown(format!("node #{container} has no nodes within it")));
                }
            }
            nodes = instances.iter().copied().filter(is_here).map(within).collect();
            if nodes.is_empty() {
                let is_replaced = instances.iter().any(|&at| self.instances[at as usize].is_replacement);
                return Err(match is_replaced {
                    true => replaced(format!("node #{index} is of another graph than the body there")),
                    false => {
                        unknown(format!("node #{index} is of another graph than the one that was finalized"))
                    }
                });
            }
            if !nodes.iter().all(has_node) {
                return Err(unknown(format!("node #{index} was added after the graph was finalized")));
            }
        }
        Ok(nodes)
    }

    /// The node that a path of one step names, if there is one.
    pub(crate) fn find_in_root(&self, path: &NodePath) -> Option<Origin> {
        let (node, root) = (path.only()?, self.instances.first()?);
        let is_there = root.identity == node.graph() && node.index() < root.len;
        is_there.then_some(Origin { instance: 0, node: node.index() as u32 })
    }

    /// The nodes that a path names; of copies through the host, the halves.
    ///
    /// # Errors
    /// Those of [`find`](Self::find).
    pub(crate) fn find_switched(
        &self,
        path: &NodePath,
        graphs: &[graph::Graph<Command>],
    ) -> Result<NamedNodes> {
        let nodes = self.find(path)?;
        Ok(self.staged_halves(&nodes, graphs).unwrap_or(nodes))
    }

    /// The halves of copies through the host, if all of these nodes are that: sub-graphs of a read to
    /// staging memory and a write from it.
    pub(crate) fn staged_halves(
        &self,
        copies: &[Origin],
        graphs: &[graph::Graph<Command>],
    ) -> Option<NamedNodes> {
        let mut halves = NamedNodes::new();
        for copy in copies {
            let [instance] = self.children.get(copy)?[..] else { return None };
            let graph = &graphs[instance as usize];
            let [CommandKind::BufferRead, CommandKind::BufferWrite | CommandKind::BufferWriteRect] =
                *graph.kinds()
            else {
                return None;
            };
            let (Content::Command(read), Content::Command(write)) =
                (graph.content_at(0), graph.content_at(1))
            else {
                return None;
            };
            let (staged, taken) = (read.views().nth(1)?, write.views().next()?);
            if !Arc::ptr_eq(staged.allocation(), taken.allocation()) || staged.offset != taken.offset {
                return None;
            }
            halves.extend([0, 1].map(|node| Origin { instance, node }));
        }
        Some(halves)
    }

    /// The nodes that a parameter is bound to.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for a parameter of a graph that is neither the
    /// finalized one nor a sub-graph or body in it.
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
            None if self.instances.iter().any(|instance| instance.is_replacement) => {
                Err(replaced(format!("the {what} belongs to another graph than the bodies there are")))
            }
            None => {
                let why = format!("the {what} belongs to another graph");
                Err(Error::new(ErrorKind::InvalidArgument, why)
                    .help("pass one of the graph that was finalized, or of one of its sub-graphs or bodies"))
            }
        }
    }

    pub(crate) fn place(&self, node: Origin) -> Option<CommandPlace> {
        self.instances[node.instance as usize].places.get(node.node as usize).copied().flatten()
    }

    /// The node around each of an instance's nodes: a sub-graph, conditional or loop; none for the root.
    pub(crate) fn parent(&self, instance: u32) -> Option<Origin> {
        self.instances[instance as usize].parent
    }

    /// Whether the nodes of an instance lie in a body.
    pub(crate) fn is_in_body(&self, instance: u32) -> bool {
        instance >= self.planned
    }

    /// Number of an instance among its parent's bodies.
    pub(crate) fn slot(&self, instance: u32) -> usize {
        let siblings = self.parent(instance).and_then(|parent| self.children.get(&parent));
        siblings.and_then(|all| all.iter().position(|one| *one == instance)).unwrap_or(0)
    }
}

#[cold]
fn unknown(why: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, why).help(
        "pass ids of that graph; name a node inside a sub-graph, conditional or loop with the nodes around \
         it, as in `node.within(sub_graph)`",
    )
}

/// The error of a name that is not known, where bodies have come that have names of their own.
#[cold]
fn replaced(why: String) -> Error {
    let why = format!("{why}: an `update_from` has replaced a body by one with other nodes");
    Error::new(ErrorKind::InvalidArgument, why)
        .help("use the ids, parameters and groups of the body that was passed to `update_from`")
}

/// Whether both have nodes of the same kinds and devices.
fn has_nodes_of(one: &graph::Graph<Command>, other: &graph::Graph<Command>) -> bool {
    one.kinds() == other.kinds() && one.devices() == other.devices()
}

/// Parameters and groups stay those of the graph that was finalized.
fn keep_names(ours: &graph::Graph<Command>, theirs: &mut graph::Graph<Command>) {
    for node in 0..ours.len().min(theirs.len()) {
        let Content::Command(command) = ours.content_at(node) else { continue };
        let Some(names) = command.dynamic() else { continue };
        let theirs = theirs.id_at(node).and_then(|id| theirs.command_mut(id).ok());
        if let Some(theirs) = theirs.and_then(Command::dynamic_mut)
            && !theirs.as_ref().is_some_and(|theirs| theirs.has_names_of(names))
        {
            *theirs = Some(names.with_choice_of(theirs.as_deref()));
        }
    }
}
