//! The record that an updatable executable keeps of the graph that it was finalized from.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use wakegraph_hal::{Access, CommandKind, Error, ErrorKind, ResourceId, Result};

use crate::graph::{self, Content};
use crate::plan::{GraphInstance, Origin, Plan};
use crate::runtime::builder::command::Command;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::{ExecutableInner, UpdateState};
use crate::runtime::execution::run::{Fence, FenceGuard};
use crate::runtime::finalize::Source;
use crate::runtime::finalize::node_index::NodeIndex;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::scratch::{Places, PlannedUses};
use crate::util::attachment::Attachment;

/// State that updates need.
pub(crate) struct Updatable {
    pub(crate) options: FinalizeOptions,
    /// Locked while an update is applied or takes a turn, before any register or state. No code of
    /// users runs meanwhile.
    current: Mutex<CurrentGraph>,
}

impl Attachment for UpdateState {
    type Value = Updatable;
}

/// Accesses with their allocations.
pub(crate) type Accesses = Vec<(Arc<Allocation>, Access)>;

/// The executable as it is by now.
pub(crate) struct CurrentGraph {
    /// Finds nodes by their names.
    pub(crate) index: Arc<NodeIndex>,
    /// The graph of each instance: those of the plan without what is inside their sub-graph nodes,
    /// then those inside bodies.
    pub(crate) graphs: Vec<graph::Graph<Command>>,
    /// Number of updates that have changed commands.
    pub(crate) changes: u64,
    /// The last of these that has changed each node, by instance.
    changed: Vec<Box<[u64]>>,
    pub(crate) disabled: HashSet<Origin>,
    pub(crate) uses: Uses,
    /// Place where the scratch buffers lie.
    pub(crate) scratch: Arc<Places>,
    /// The scratch buffers that a node may have: those that it had when they were placed.
    pub(crate) planned: PlannedUses,
    pub(crate) waiting: WaitingUpdates,
}

/// Updates that have taken a turn, until they are applied or given up.
#[derive(Default)]
pub(crate) struct WaitingUpdates {
    /// Oldest first.
    updates: VecDeque<WaitingUpdate>,
    /// Number of updates so far.
    pushed: u64,
    /// The number of the newest that may bring back what those before it bring.
    keeper: Option<u64>,
    /// Accesses that all of them bring, and how often.
    brought: HashMap<ResourceId, HashMap<Access, usize>>,
}

/// An update that waits for its turn.
struct WaitingUpdate {
    number: u64,
    /// Opens when the update and all before it have been applied or given up.
    fence: Arc<Fence>,
    brings: Brings,
    /// The fences of updates right behind it that were given up.
    given_up: Vec<FenceGuard>,
}

/// Accesses that an update may bring, used by runs that are submitted behind it.
#[derive(Default)]
pub(crate) struct Brings {
    pub(crate) accesses: Accesses,
    /// Whether it may also bring back what updates before it bring.
    pub(crate) from_earlier: bool,
}

impl WaitingUpdates {
    pub(crate) fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// The fence of the newest: when it is open, all of them have ended.
    pub(crate) fn last(&self) -> Option<&Arc<Fence>> {
        self.updates.back().map(|update| &update.fence)
    }

    /// Adds an update. Returns the memory that no other one brings in the same way.
    pub(crate) fn push(&mut self, fence: Arc<Fence>, brings: Brings) -> Vec<Arc<Allocation>> {
        let mut new = Vec::new();
        for (allocation, access) in &brings.accesses {
            let count = self.brought.entry(access.resource).or_default().entry(*access).or_default();
            *count += 1;
            if *count == 1 {
                new.push(allocation.clone());
            }
        }
        self.pushed += 1;
        let number = self.pushed;
        if brings.from_earlier {
            self.keeper = Some(number);
        }
        self.updates.push_back(WaitingUpdate { number, fence, brings, given_up: Vec::new() });
        new
    }

    /// Takes out an update. Returns the memory that no other one brings in the same way, and fences to be
    /// opened without a lock. If updates before this one still wait, its fence opens with theirs: what
    /// waits for it comes behind them, too.
    fn remove(&mut self, lease: FenceGuard) -> (Vec<Arc<Allocation>>, Vec<FenceGuard>) {
        let is_its = |update: &WaitingUpdate| Arc::ptr_eq(&update.fence, lease.fence());
        let Some(at) = self.updates.iter().position(is_its) else { return (Vec::new(), vec![lease]) };
        let Some(WaitingUpdate { number, brings, mut given_up, .. }) = self.updates.remove(at) else {
            return (Vec::new(), vec![lease]);
        };
        given_up.push(lease);
        if let Some(before) = at.checked_sub(1).and_then(|before| self.updates.get_mut(before)) {
            before.given_up.append(&mut given_up);
        }
        if self.keeper == Some(number) {
            let keeper = self.updates.iter().rev().find(|update| update.brings.from_earlier);
            self.keeper = keeper.map(|update| update.number);
        }
        // The newest keeps it for all.
        if let Some(keeper) = self.keeper.filter(|keeper| *keeper > number)
            && let Ok(keeper) = self.updates.binary_search_by_key(&keeper, |update| update.number)
        {
            self.updates[keeper].brings.accesses.extend(brings.accesses);
            return (Vec::new(), given_up);
        }
        let mut gone = Vec::new();
        for (allocation, access) in brings.accesses {
            let Some(all) = self.brought.get_mut(&access.resource) else { continue };
            let Some(count) = all.get_mut(&access) else { continue };
            *count -= 1;
            if *count == 0 {
                all.remove(&access);
                gone.push(allocation);
            }
            if all.is_empty() {
                self.brought.remove(&access.resource);
            }
        }
        (gone, given_up)
    }

    /// How they may use an allocation.
    fn accesses_to(&self, resource: ResourceId) -> impl Iterator<Item = Access> + '_ {
        self.brought.get(&resource).into_iter().flat_map(|all| all.keys().copied())
    }
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
        let mut graphs = instance_graphs(source.root().clone(), plan.instances());
        let index = NodeIndex::new(plan, &mut graphs, None);
        Self {
            options,
            current: Mutex::new(CurrentGraph {
                planned: index.planned_uses(plan, &graphs),
                index: Arc::new(index),
                changes: 0,
                changed: never_changed(&graphs),
                graphs,
                disabled: HashSet::new(),
                uses: std::mem::take(uses),
                scratch: scratch.clone(),
                waiting: WaitingUpdates::default(),
            }),
        }
    }

    /// Returns the state that updates of an executable need.
    ///
    /// # Errors
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) for an executable that cannot be updated.
    pub(crate) fn of(executable: &ExecutableInner) -> Result<&Self> {
        executable.updatable.get().ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the executable is not updatable")
                .help("finalize with `FinalizeOptions::new().updatable(true)`")
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, CurrentGraph> {
        self.current.lock()
    }
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

fn never_changed(graphs: &[graph::Graph<Command>]) -> Vec<Box<[u64]>> {
    graphs.iter().map(|graph| vec![0; graph.len()].into()).collect()
}

impl CurrentGraph {
    /// The command of a node, which is there.
    pub(crate) fn command(&self, node: Origin) -> Option<&Command> {
        match self.graph(node).content_at(node.node as usize) {
            Content::Command(command) => Some(command),
            Content::Empty | Content::SubGraph(_) => None,
        }
    }

    pub(crate) fn accesses_of(&self, node: Origin) -> &[Access] {
        self.graph(node).accesses_at(node.node as usize)
    }

    /// Returns the accesses of a node.
    pub(crate) fn uses_of(&self, node: Origin) -> Accesses {
        let find = |access: &Access| {
            let mut all = self.command(node)?.allocations();
            let used = all.find(|allocation| allocation.memory().resource() == access.resource)?;
            Some((used.clone(), *access))
        };
        self.accesses_of(node).iter().filter_map(find).collect()
    }

    pub(crate) fn is_enabled(&self, node: Origin) -> bool {
        !self.disabled.contains(&node)
    }

    pub(crate) fn kind(&self, node: Origin) -> CommandKind {
        self.graph(node).kinds()[node.node as usize]
    }

    /// Returns the name of a node in messages.
    pub(crate) fn label(&self, node: Origin) -> String {
        self.graph(node).label_at(node.node as usize)
    }

    pub(crate) fn graph(&self, node: Origin) -> &graph::Graph<Command> {
        &self.graphs[node.instance as usize]
    }

    /// Whether the command of a node is the one that it had after so many changes.
    pub(crate) fn is_unchanged(&self, node: Origin, changes: u64) -> bool {
        self.changed[node.instance as usize][node.node as usize] <= changes
    }

    /// Takes out the accesses of nodes, which are about to [get](Self::replace_accesses) others.
    pub(crate) fn remove_uses(&mut self, nodes: &HashSet<Origin>) {
        let accesses = nodes.iter().flat_map(|node| self.accesses_of(*node));
        let resources = accesses.map(|access| access.resource).collect();
        self.uses.remove(nodes, &resources);
    }

    /// Gives a node the accesses of a new command, which uses these allocations, after those of the old one
    /// have been [taken out](Self::remove_uses).
    pub(crate) fn replace_accesses<'a>(
        &mut self,
        node: Origin,
        allocations: impl Iterator<Item = &'a Arc<Allocation>>,
        accesses: &[Access],
    ) {
        self.uses.add(node, allocations, accesses);
        self.graphs[node.instance as usize].replace_accesses(node.node as usize, accesses);
    }

    /// Exchanges a node's command and the new one. The caller has counted the change.
    pub(crate) fn exchange(&mut self, node: Origin, command: &mut Command) {
        if let Some(current) = self.change(node) {
            std::mem::swap(current, command);
        }
    }

    /// Exchanges the call of a kernel and the new one. The caller has counted the change.
    pub(crate) fn exchange_call(&mut self, node: Origin, call: &mut KernelCall) {
        if let Some(Command::Kernel { call: current, .. }) = self.change(node) {
            // If others share it, `call` becomes a copy, so that no value of the user's is dropped here.
            std::mem::swap(Arc::make_mut(current), call);
        }
    }

    /// The command of a node, for the change that was counted last.
    fn change(&mut self, node: Origin) -> Option<&mut Command> {
        let (instance, place) = (node.instance as usize, node.node as usize);
        self.changed[instance][place] = self.changes;
        self.graphs[instance].command_at_mut(place)
    }

    /// Holds these graphs from now on, with a new index. Gives back the old ones.
    pub(crate) fn replace_graphs(
        &mut self,
        index: NodeIndex,
        graphs: Vec<graph::Graph<Command>>,
    ) -> Vec<graph::Graph<Command>> {
        self.changed = never_changed(&graphs);
        self.index = Arc::new(index);
        std::mem::replace(&mut self.graphs, graphs)
    }

    /// Makes known how later submissions of the executable use some memory: as its nodes do, with `more`, and
    /// as updates that wait may do. What has `changed`, and `more`, is all that they may use otherwise than
    /// before.
    pub(crate) fn register(
        &self,
        executable: &Arc<ExecutableInner>,
        changed: &[Arc<Allocation>],
        more: &[(Arc<Allocation>, Access)],
    ) {
        let more_allocations = more.iter().map(|(allocation, _)| allocation);
        let mut allocations: Vec<_> = changed.iter().chain(more_allocations).cloned().collect();
        allocations.sort_unstable_by_key(|allocation| allocation.memory().resource());
        allocations.dedup_by_key(|allocation| allocation.memory().resource());
        let mut more_of: HashMap<ResourceId, Vec<Access>> = HashMap::new();
        more.iter().for_each(|(_, access)| more_of.entry(access.resource).or_default().push(*access));
        let uses = self.uses.merged_with(allocations.iter(), |resource| {
            let more = more_of.get(&resource).into_iter().flatten().copied();
            more.chain(self.waiting.accesses_to(resource)).collect()
        });
        conflicts::register(executable, &allocations, uses);
    }

    /// An update has been applied or given up: takes out what only it has brought. Returns fences to be
    /// opened without a lock.
    pub(crate) fn leave(&mut self, executable: &Arc<ExecutableInner>, lease: FenceGuard) -> Vec<FenceGuard> {
        let (gone, fences) = self.waiting.remove(lease);
        if !gone.is_empty() {
            self.register(executable, &gone, &[]);
        }
        fences
    }
}
