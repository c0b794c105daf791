//! A change as an update makes it: its steps, and what they make of all nodes that they name. That is worked
//! out without a lock, because kernels' bounds are code of the user's.

use std::collections::HashSet;
use std::sync::Arc;

use wakegraph_hal::{Error, Result};

use crate::graph;
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::finalize::node_index::NodeIndex;
use crate::runtime::finalize::updatable::{Accesses, Brings, CurrentGraph, Updatable};
use crate::runtime::update::bodies::{ChangedBodies, Surroundings};
use crate::runtime::update::draft::Draft;
use crate::runtime::update::replace::Recorded;
use crate::runtime::update::step::{NodeChange, StagedOperands, Steps, UpdateStep};

/// Change that an update makes.
pub(crate) enum Change {
    Nodes {
        steps: Box<Steps>,
        /// Results for the nodes, worked out before any lock is taken.
        drafts: Drafts,
    },
    Whole(Box<Recorded>),
}

impl Change {
    pub(crate) fn nodes(steps: Box<Steps>) -> Self {
        Self::Nodes { steps, drafts: Drafts::default() }
    }

    /// Works out what the nodes become. This calls code of the user's, so the caller holds no lock.
    pub(super) fn prepare(&mut self, executable: &ExecutableInner, updatable: &Updatable) -> Result<()> {
        if let Self::Nodes { steps, drafts } = self {
            *drafts = Drafts::of(executable, updatable, steps)?;
        }
        Ok(())
    }

    /// Everything that the executable may use once the change is applied, and may not have used
    /// before.
    pub(super) fn brings(&self, current: &CurrentGraph) -> Brings {
        let (mut accesses, from_earlier): (Accesses, bool) = match self {
            Self::Whole(recorded) => (recorded.uses().accesses(), false),
            Self::Nodes { steps, .. } => {
                let Steps { all: steps, calls } = &**steps;
                let mut steps = steps.iter().map(|(step, _)| step);
                let accesses = steps.clone().flat_map(|step| step.brings(calls, current)).collect();
                (accesses, steps.any(UpdateStep::brings_back))
            }
        };
        let mut seen = HashSet::new();
        accesses.retain(|(_, access)| seen.insert(*access));
        Brings { accesses, from_earlier }
    }
}

/// Results of an update for all nodes that it names.
#[derive(Default)]
pub(crate) struct Drafts {
    /// Index in which the nodes were found.
    index: Option<Arc<NodeIndex>>,
    /// Number of changes that the executable had seen by then.
    changes: u64,
    /// Nodes of the plan, each once, among them the conditionals and loops whose bodies change.
    pub(super) nodes: Vec<Draft>,
    pub(super) bodies: ChangedBodies,
}

impl Drafts {
    /// Works out what the nodes become that the steps name, from the state that the executable has now.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for what a node does not have.
    fn of(executable: &ExecutableInner, updatable: &Updatable, steps: &Steps) -> Result<Self> {
        let current = updatable.lock();
        let (index, changes) = (current.index.clone(), current.changes);
        // Each node that a step names, with the number of the step.
        let mut named: Vec<(Origin, usize)> = Vec::with_capacity(steps.all.len());
        for (number, (step, at)) in steps.all.iter().enumerate() {
            let mut add = |node: &Origin| named.push((*node, number));
            step.for_each_node(&index, &current.graphs, &mut add).map_err(|error| error.at(at))?;
        }
        named.sort_unstable();
        let mut nodes: Vec<Draft> = Vec::with_capacity(named.len());
        for named in of_each_node(&named) {
            nodes.push(match *named {
                [(node, step)] => Draft::of_step(&current, node, steps, step),
                _ => Draft::of(&current, named[0].0),
            });
        }
        let surroundings = Surroundings::of(&current, nodes.iter().map(|draft| draft.node));
        drop(current);
        let in_node = |error: Error, node| {
            let current = updatable.lock();
            if Arc::ptr_eq(&index, &current.index) { error.in_node(current.label(node)) } else { error }
        };
        for (draft, named) in nodes.iter_mut().zip(of_each_node(&named)) {
            if draft.call.is_some() {
                continue;
            }
            for (node, number) in named {
                let (step, at) = &steps.all[*number];
                draft.take(step, &steps.calls).map_err(|error| in_node(error, *node).at(at))?;
            }
        }
        let mut bodies = ChangedBodies::default();
        if nodes.iter().any(|draft| index.is_in_body(draft.node.instance)) {
            let (inside, outside) =
                nodes.into_iter().partition(|draft| index.is_in_body(draft.node.instance));
            nodes = outside;
            let (controls, changed) = surroundings.apply(&index, executable, &updatable.options, inside)?;
            nodes.extend(controls);
            bodies = changed;
        }
        Ok(Self { index: Some(index), changes, nodes, bodies })
    }

    /// Whether the executable still holds what this was worked out from.
    pub(super) fn is_current(&self, current: &CurrentGraph) -> bool {
        self.index.as_ref().is_some_and(|index| Arc::ptr_eq(index, &current.index))
            && self.nodes.iter().all(|draft| current.is_unchanged(draft.node, self.changes))
    }
}

/// Groups the entries by node; those of one node are adjacent, as `named` is sorted.
fn of_each_node(named: &[(Origin, usize)]) -> impl Iterator<Item = &[(Origin, usize)]> {
    named.chunk_by(|(one, _), (other, _)| one == other)
}

impl UpdateStep {
    /// Passes each node that the step changes to `add`.
    fn for_each_node(
        &self,
        index: &NodeIndex,
        graphs: &[graph::Graph<Command>],
        add: &mut dyn FnMut(&Origin),
    ) -> Result<()> {
        match self {
            Self::Node(path, NodeChange::Staged(_)) => {
                let copies = index.find(path)?;
                let halves = index.staged_halves(&copies, graphs).ok_or_else(StagedOperands::unfit)?;
                halves.iter().for_each(add);
            }
            Self::Node(path, NodeChange::Enabled(_)) => {
                index.find_switched(path, graphs)?.iter().for_each(add);
            }
            Self::Node(path, _) => match index.find_in_root(path) {
                Some(node) => add(&node),
                None => index.find(path)?.iter().for_each(add),
            },
            Self::Param(param, _) => index.bound_to(param)?.iter().for_each(add),
            Self::Choose(group, alternative) => {
                group.check(*alternative)?;
                index.members_of(group)?.iter().for_each(add);
            }
        }
        Ok(())
    }
}
