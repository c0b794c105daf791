//! What an updatable executable remembers of the graph that it was finalized from.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

use crate::graph::{self, Content, NodeId};
use crate::plan::Plan;
use crate::runtime::builder::Graph;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::{FinalizeOptions, Shared};
use crate::runtime::execution::fence::Gate;
use crate::runtime::finalize::uses::Uses;
use crate::runtime::resource::allocation::{Allocation, View};
use crate::runtime::resource::scratch::PlannedUses;
use crate::runtime::update::carry_out::Accesses;
use crate::types::{Access, Error, ErrorKind, Result};

/// Where a node's command is: the partition, and which of its commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) partition: u32,
    pub(super) position: u32,
}

/// What updates need to know.
pub(crate) struct Updatable {
    /// What the ids of the finalized graph's nodes carry.
    identity: u32,
    pub(super) options: FinalizeOptions,
    /// Of each node of the root graph that is one command.
    pub(super) places: Box<[Option<Place>]>,
    /// The scratch buffers that a node may have: those that it had in the finalized graph.
    pub(super) scratch: PlannedUses,
    /// Why nobody knows any more what the executable would do.
    broken: OnceLock<Error>,
    /// Locked while an update is applied or takes a turn, before any register or state. No code of
    /// users runs meanwhile.
    current: Mutex<Current>,
}

/// The executable as it is by now.
pub(super) struct Current {
    /// Its topology, and its commands but for their declared accesses.
    pub(super) graph: graph::Graph<Command>,
    /// The accesses of nodes that have been updated.
    pub(super) accesses: HashMap<u32, Box<[Access]>>,
    pub(super) disabled: HashSet<u32>,
    pub(super) uses: Uses,
    /// Updates that have taken a turn, oldest first, until they are applied or given up.
    pub(super) waiting: Vec<Waiting>,
}

/// An update that waits for its turn.
pub(super) struct Waiting {
    /// Opens when the update has been applied or given up.
    pub(super) gate: Arc<Gate>,
    /// What the update may bring, used by runs that are submitted behind it.
    pub(super) brings: Accesses,
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
                    let place = Place { partition: partition as u32, position: position as u32 };
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
            broken: OnceLock::new(),
            current: Mutex::new(Current {
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
    pub(super) fn of(executable: &Shared) -> Result<&Self> {
        executable.updatable.as_deref().ok_or_else(|| {
            Error::new(ErrorKind::InvalidOperation, "the executable is not updatable")
                .help("finalize with `FinalizeOptions::new().updatable(true)`")
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock()
    }

    pub(crate) fn broken(&self) -> Option<&Error> {
        self.broken.get()
    }

    /// An update could not be taken back: the executable must not run any more.
    pub(super) fn set_broken(&self, cause: Error) {
        let why = "an update failed half-way, and could not be taken back";
        let error = Error::new(cause.kind(), why).caused_by(cause).help("finalize the graph anew");
        tracing::error!(target: "wakegraph", %error, "an executable is of no more use");
        let _ = self.broken.set(error);
    }

    /// The index of a node of the finalized graph.
    pub(super) fn index_of(&self, node: NodeId) -> Result<usize> {
        let why = if node.graph() != self.identity {
            format!("node #{} is of another graph than the one that was finalized", node.index())
        } else if node.index() >= self.places.len() {
            format!("node #{} was added after the graph was finalized", node.index())
        } else {
            return Ok(node.index());
        };
        Err(Error::new(ErrorKind::InvalidArgument, why).help(
            "pass ids of that graph; nodes inside sub-graphs cannot be updated one by one, only with `update_from`",
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

impl Current {
    /// The accesses of a node of the root graph.
    pub(super) fn accesses_of(&self, node: usize) -> &[Access] {
        match self.accesses.get(&(node as u32)) {
            Some(accesses) => accesses,
            None => self.graph.accesses_at(node),
        }
    }

    pub(super) fn is_enabled(&self, node: usize) -> bool {
        !self.disabled.contains(&(node as u32))
    }

    /// Makes known what later submissions of the executable use: its memory, `more`, and what
    /// updates that wait may bring. `before` is what they may no longer use.
    pub(super) fn register(
        &self,
        executable: &Arc<Shared>,
        before: &[Arc<Allocation>],
        more: &[(Arc<Allocation>, Access)],
    ) {
        let brought = self.waiting.iter().flat_map(|waiting| &waiting.brings);
        let uses = self.uses.merged_with(more.iter().chain(brought).cloned());
        conflicts::register(executable, before, uses);
    }

    /// An update has been applied or given up: takes out what only it has brought.
    pub(super) fn leave(&mut self, executable: &Arc<Shared>, gate: &Arc<Gate>) {
        let Some(at) = self.waiting.iter().position(|waiting| Arc::ptr_eq(&waiting.gate, gate)) else {
            return;
        };
        let brought: Vec<_> =
            self.waiting.remove(at).brings.into_iter().map(|(allocation, _)| allocation).collect();
        if !brought.is_empty() {
            self.register(executable, &brought, &[]);
        }
    }
}
