//! What an updatable executable remembers of the graph that it was finalized from.

use std::any::Any;
use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::graph::{self, Content};
use crate::plan::{GraphInstance, Origin, Plan};
use crate::runtime::builder::command::Command;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::fence::Fence;
use crate::runtime::finalize::Source;
use crate::runtime::finalize::node_index::NodeIndex;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::kernel::KernelCall;
use crate::runtime::resource::scratch::{Places, PlannedUses};
use crate::types::{Access, CommandKind, Error, ErrorKind, Result};

/// What updates need to know.
pub(crate) struct Updatable {
    pub(crate) options: FinalizeOptions,
    /// Locked while an update is applied or takes a turn, before any register or state. No code of
    /// users runs meanwhile.
    current: Mutex<CurrentGraph>,
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
    /// How many updates have changed commands.
    pub(crate) changes: u64,
    /// The last of these that has changed each node, by instance.
    changed: Vec<Box<[u64]>>,
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

    /// What a node accesses.
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

    /// How messages name a node.
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

    /// Gives a node the accesses of a new command, which uses these allocations.
    pub(crate) fn replace_accesses<'a>(
        &mut self,
        node: Origin,
        allocations: impl Iterator<Item = &'a Arc<Allocation>>,
        accesses: &[Access],
    ) {
        let (graph, place) = (&mut self.graphs[node.instance as usize], node.node as usize);
        self.uses.remove(node, graph.accesses_at(place));
        self.uses.add(node, allocations, accesses);
        graph.replace_accesses(place, accesses);
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
