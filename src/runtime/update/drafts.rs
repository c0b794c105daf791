//! What an update makes of the nodes that its steps name.

use std::collections::BTreeMap;
use std::panic::Location;
use std::sync::Arc;

use crate::graph;
use crate::plan::Origin;
use crate::runtime::builder::command::Command;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::finalize::node_index::{NamedNodes, NodeIndex};
use crate::runtime::finalize::updatable::{CurrentGraph, Updatable};
use crate::runtime::update::bodies::{ChangedBodies, Surroundings};
use crate::runtime::update::draft::Draft;
use crate::runtime::update::step::{NodeChange, StagedOperands, UpdateStep};
use crate::types::{Error, Result};

/// What an update makes of all nodes that it names.
#[derive(Default)]
pub(crate) struct Drafts {
    /// What the nodes were found with.
    index: Option<Arc<NodeIndex>>,
    /// Nodes of the plan, among them the conditionals and loops whose bodies change.
    pub(super) nodes: Vec<Draft>,
    pub(super) bodies: ChangedBodies,
}

impl Drafts {
    /// Whether the executable still holds what this was worked out from.
    pub(super) fn is_current(&self, current: &CurrentGraph) -> bool {
        self.index.as_ref().is_some_and(|index| Arc::ptr_eq(index, &current.index))
            && self.nodes.iter().all(|draft| draft.is_current(current))
    }
}

/// Works out what the nodes become that the steps name, from the state that the executable has now.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) for what a node does not have.
pub(super) fn drafts(
    executable: &ExecutableInner,
    updatable: &Updatable,
    steps: &[(UpdateStep, &'static Location<'static>)],
) -> Result<Drafts> {
    let mut drafts: BTreeMap<(u32, u32), Draft> = BTreeMap::new();
    let key = |node: Origin| (node.instance, node.node);
    let current = updatable.lock();
    let index = current.index.clone();
    let found: Result<Vec<Touched<'_>>> =
        steps.iter().map(|(step, at)| step.nodes(&index, &current.graphs, at)).collect();
    let found = found?;
    for &node in found.iter().flat_map(Touched::all) {
        drafts.entry(key(node)).or_insert_with(|| Draft::of(&current, node));
    }
    let surroundings = Surroundings::of(&current, drafts.values().map(|draft| draft.node));
    drop(current);
    let named = |error: Error, node| {
        let current = updatable.lock();
        if Arc::ptr_eq(&index, &current.index) { error.in_node(current.label(node)) } else { error }
    };
    for (nodes, (step, at)) in found.iter().zip(steps) {
        for node in nodes.all() {
            let Some(draft) = drafts.get_mut(&key(*node)) else { continue };
            draft.take(step).map_err(|error| named(error, *node).at(at))?;
        }
    }
    let (inside, mut nodes): (Vec<_>, Vec<_>) =
        drafts.into_values().partition(|draft| index.is_in_body(draft.node.instance));
    let mut bodies = ChangedBodies::default();
    if !inside.is_empty() {
        let (controls, changed) = surroundings.apply(&index, executable, updatable.options, inside)?;
        nodes.extend(controls);
        bodies = changed;
    }
    drop(found);
    Ok(Drafts { index: Some(index), nodes, bodies })
}

/// The nodes that a step changes.
enum Touched<'a> {
    Named(NamedNodes),
    Bound(&'a [Origin]),
}

impl Touched<'_> {
    fn all(&self) -> &[Origin] {
        match self {
            Self::Named(nodes) => nodes,
            Self::Bound(nodes) => nodes,
        }
    }
}

impl UpdateStep {
    fn nodes<'a>(
        &self,
        index: &'a NodeIndex,
        graphs: &[graph::Graph<Command>],
        at: &'static Location<'static>,
    ) -> Result<Touched<'a>> {
        let nodes = match self {
            Self::Node(path, NodeChange::Staged(_)) => index.find(path).and_then(|copies| {
                let halves = index.staged_halves(&copies, graphs).map(Touched::Named);
                halves.ok_or_else(StagedOperands::unfit)
            }),
            Self::Node(path, _) => index.find(path).map(Touched::Named),
            Self::Param(param, _) => index.bound_to(param).map(Touched::Bound),
            Self::Choose(group, alternative) => {
                group.check(*alternative).and_then(|()| index.members_of(group)).map(Touched::Bound)
            }
        };
        nodes.map_err(|error| error.at(at))
    }
}
