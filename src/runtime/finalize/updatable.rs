//! What an updatable executable remembers of the graph that it was finalized from.

use std::any::Any;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use crate::graph::{self, Content, NodeId};
use crate::plan::Plan;
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::fence::Fence;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::scratch::PlannedUses;
use crate::types::{Access, Error, ErrorKind, Result};

/// Where a node's command is: the partition, and which of its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CommandPlace {
    pub(crate) partition: u32,
    pub(crate) position: u32,
}

/// What updates need to know.
pub(crate) struct Updatable {
    /// What the ids of the finalized graph's nodes carry.
    identity: u32,
    pub(crate) options: FinalizeOptions,
    /// Of each node of the root graph that is one command.
    pub(crate) places: Box<[Option<CommandPlace>]>,
    /// The scratch buffers that a node may have: those that it had in the finalized graph.
    pub(crate) scratch: PlannedUses,
    /// Locked while an update is applied or takes a turn, before any register or state. No code of
    /// users runs meanwhile.
    current: Mutex<CurrentGraph>,
}

/// Accesses with their allocations.
pub(crate) type Accesses = Vec<(Arc<Allocation>, Access)>;

/// The executable as it is by now.
pub(crate) struct CurrentGraph {
    /// Its topology, and its commands but for their declared accesses.
    pub(crate) graph: graph::Graph<Command>,
    /// The accesses of nodes that have been updated.
    pub(crate) accesses: HashMap<u32, Box<[Access]>>,
    pub(crate) disabled: HashSet<u32>,
    pub(crate) uses: Uses,
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
    pub(crate) fn new(graph: &Graph, plan: &Plan, options: FinalizeOptions, uses: &mut Uses) -> Self {
        let (graph, has_scratch) = (graph.inner(), graph.has_scratch());
        let mut places = vec![None; graph.len()];
        for partition in 0..plan.partitions().len() {
            for (position, &node) in plan.nodes(partition).iter().enumerate() {
                let origin = plan.origin(node);
                if origin.instance == 0 {
                    let place = CommandPlace { partition: partition as u32, position: position as u32 };
                    places[origin.node as usize] = Some(place);
                }
            }
        }
        let scratch = if has_scratch { PlannedUses::new(views(graph)) } else { PlannedUses::default() };
        Self {
            identity: graph.identity(),
            options,
            scratch,
            places: places.into(),
            current: Mutex::new(CurrentGraph {
                graph: graph.clone(),
                accesses: HashMap::new(),
                disabled: HashSet::new(),
                uses: std::mem::take(uses),
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

    /// The index of a node of the finalized graph.
    pub(crate) fn index_of(&self, node: NodeId) -> Result<usize> {
        let why = if node.graph() != self.identity {
            format!("node #{} is of another graph than the one that was finalized", node.index())
        } else if node.index() >= self.places.len() {
            format!("node #{} was added after the graph was finalized", node.index())
        } else {
            return Ok(node.index());
        };
        Err(Error::new(ErrorKind::InvalidArgument, why).help(
            "pass ids of that graph; nodes inside sub-graphs cannot be updated one by one, only with \
             `update_from`",
        ))
    }
}

/// What each node of a graph uses itself.
fn views(graph: &graph::Graph<Command>) -> impl Iterator<Item = (u32, &View)> {
    (0..graph.len()).flat_map(|node| {
        let command = match graph.content_at(node) {
            Content::Command(command) => Some(command),
            Content::Empty | Content::SubGraph(_) => None,
        };
        command.into_iter().flat_map(Command::views).map(move |view| (node as u32, view))
    })
}

impl CurrentGraph {
    /// The accesses of a node of the root graph.
    pub(crate) fn accesses_of(&self, node: usize) -> &[Access] {
        match self.accesses.get(&(node as u32)) {
            Some(accesses) => accesses,
            None => self.graph.accesses_at(node),
        }
    }

    pub(crate) fn is_enabled(&self, node: usize) -> bool {
        !self.disabled.contains(&(node as u32))
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
