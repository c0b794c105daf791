//! Changes of nodes inside the bodies of conditionals and loops, worked out without a lock.
//!
//! A conditional or loop is one command, of a device or of the host, so it is replaced by one whose
//! bodies hold the changed nodes. The outermost one is what the executable sees: its partition gets a
//! new command, or a new task with new executables of its bodies.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use wakegraph_hal::{Access, Error, ErrorKind, Result};

use crate::graph::{self, Content};
use crate::plan::Origin;
use crate::runtime::builder::command::{Command, Control};
use crate::runtime::builder::merged_accesses;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::finalize::control_flow;
use crate::runtime::finalize::node_index::NodeIndex;
use crate::runtime::finalize::options::FinalizeOptions;
use crate::runtime::finalize::updatable::CurrentGraph;
use crate::runtime::update::draft::{Draft, Lowered};
use crate::runtime::update::race_check;

/// The conditionals and loops around nodes that an update names, as they are before it.
pub(super) struct Surroundings {
    /// The graphs of instances inside bodies.
    graphs: BTreeMap<u32, graph::Graph<Command>>,
    outermost: BTreeMap<Origin, Outermost>,
    /// Disabled nodes of the graphs.
    disabled: HashSet<Origin>,
}

/// A conditional or loop that lies in no other one.
struct Outermost {
    label: String,
    before: Option<Arc<Control>>,
    draft: Draft,
}

/// Changes inside bodies, for the executable to remember.
#[derive(Default)]
pub(super) struct ChangedBodies {
    pub(super) nodes: Vec<Draft>,
    /// Of the instances around these nodes.
    pub(super) graphs: Vec<(u32, graph::Graph<Command>)>,
}

impl Surroundings {
    pub(super) fn of(current: &CurrentGraph, nodes: impl Iterator<Item = Origin>) -> Self {
        let (mut graphs, mut outermost) = (BTreeMap::new(), BTreeMap::new());
        for node in nodes {
            let mut at = node;
            while current.index.is_in_body(at.instance)
                && let Some(parent) = current.index.parent(at.instance)
            {
                graphs.entry(at.instance).or_insert_with(|| current.graph(at).clone());
                at = parent;
            }
            if at != node {
                outermost.entry(at).or_insert_with(|| {
                    let (label, draft) = (current.label(at), Draft::of(current, at));
                    Outermost { label, before: control_of(draft.command.as_deref()), draft }
                });
            }
        }
        let disabled = match graphs.is_empty() {
            true => HashSet::new(),
            false => {
                current.disabled.iter().filter(|node| graphs.contains_key(&node.instance)).copied().collect()
            }
        };
        Self { graphs, outermost, disabled }
    }

    /// Puts changed nodes into their bodies. Gives back what becomes of the outermost conditionals and
    /// loops.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for memory that is used without order; those of
    /// the new commands.
    pub(super) fn apply(
        mut self,
        index: &NodeIndex,
        executable: &ExecutableInner,
        options: &FinalizeOptions,
        nodes: Vec<Draft>,
    ) -> Result<(Vec<Draft>, ChangedBodies)> {
        // By instance: nodes with the accesses that they had before.
        let mut changed: BTreeMap<u32, Vec<(u32, Vec<Access>)>> = BTreeMap::new();
        for draft in &nodes {
            self.change(draft, &mut changed)?;
        }
        let mut graphs = Vec::new();
        // Children come behind their parents.
        while let Some((instance, graph)) = self.graphs.pop_last() {
            let Some((nodes, parent)) = changed.remove(&instance).zip(index.parent(instance)) else {
                continue;
            };
            race_check::check_within(&graph, nodes)?;
            let recorded = self.with_disabled(instance, &graph);
            let around = self.graphs.get_mut(&parent.instance);
            let before = match (&around, self.outermost.get(&parent)) {
                (Some(around), _) => control_at(around, parent.node),
                (None, outermost) => control_of(outermost.and_then(|known| known.draft.command.as_deref())),
            };
            let (content, accesses) = match before {
                Some(before) => {
                    let control = before.with_body(index.slot(instance), recorded)?;
                    let accesses = control.accesses();
                    (Content::Command(Command::Control(Arc::new(control))), accesses)
                }
                None => {
                    let accesses = merged_accesses(&recorded);
                    (Content::SubGraph(Arc::new(recorded)), accesses)
                }
            };
            match (around, content) {
                (Some(around), content) => {
                    let place = parent.node as usize;
                    let before = around.accesses_at(place).to_vec();
                    around.replace_accesses(place, &accesses);
                    around.replace_content(place, content);
                    changed.entry(parent.instance).or_default().push((parent.node, before));
                }
                (None, Content::Command(command)) => {
                    if let Some(Outermost { draft, .. }) = self.outermost.get_mut(&parent) {
                        (draft.command, draft.is_changed) = (Some(Box::new(command)), true);
                        draft.accesses = Some(accesses.into());
                    }
                }
                (None, _) => return Err(Error::new(ErrorKind::Bug, "a body belongs to no command")),
            }
            graphs.push((instance, graph));
        }
        let mut controls = Vec::new();
        for Outermost { label, before, mut draft } in self.outermost.into_values() {
            if draft.is_changed {
                let lowered = lower(before, &draft, index, executable, options, &label);
                draft.lowered = Some(Box::new(lowered.map_err(|error| error.in_node(label))?));
            }
            // One that does not change has been read, so it must still be the same.
            controls.push(draft);
        }
        Ok((controls, ChangedBodies { nodes, graphs }))
    }

    fn change(&mut self, draft: &Draft, changed: &mut BTreeMap<u32, Vec<(u32, Vec<Access>)>>) -> Result<()> {
        let Origin { instance, node } = draft.node;
        let Some(graph) = self.graphs.get_mut(&instance) else { return Ok(()) };
        let switched = draft.enabled.is_some_and(|enabled| match enabled {
            true => self.disabled.remove(&draft.node),
            false => self.disabled.insert(draft.node),
        });
        if switched {
            changed.entry(instance).or_default();
        }
        let label = graph.label_at(node as usize);
        let Some((command, accesses)) = draft.checked().map_err(|error| error.in_node(label))? else {
            return Ok(());
        };
        let before = graph.accesses_at(node as usize).to_vec();
        graph.replace_accesses(node as usize, &accesses);
        graph.replace_content(node as usize, Content::Command(command));
        changed.entry(instance).or_default().push((node, before));
        Ok(())
    }

    /// The graph as it is recorded: its disabled nodes say so.
    fn with_disabled(&self, instance: u32, graph: &graph::Graph<Command>) -> graph::Graph<Command> {
        let mut recorded = graph.clone();
        for node in self.disabled.iter().filter(|node| node.instance == instance) {
            let index = node.node as usize;
            if let Content::Command(command) = graph.content_at(index) {
                let disabled = Command::Disabled(Arc::new(command.clone()));
                recorded.replace_content(index, Content::Command(disabled));
            }
        }
        recorded
    }
}

fn control_at(graph: &graph::Graph<Command>, node: u32) -> Option<Arc<Control>> {
    match graph.content_at(node as usize) {
        Content::Command(command) => control_of(Some(command)),
        _ => None,
    }
}

fn control_of(command: Option<&Command>) -> Option<Arc<Control>> {
    match command {
        Some(Command::Control(control)) => Some(control.clone()),
        _ => None,
    }
}

/// Records a new conditional or loop for the partition that runs it.
fn lower(
    old: Option<Arc<Control>>,
    draft: &Draft,
    index: &NodeIndex,
    executable: &ExecutableInner,
    options: &FinalizeOptions,
    label: &str,
) -> Result<Lowered> {
    let place = index.place(draft.node);
    let (Some(old), Some(new), Some(place)) = (&old, &control_of(draft.command.as_deref()), place) else {
        return Err(Error::new(ErrorKind::Bug, "a conditional or loop has no place in the plan"));
    };
    match executable.partitions[place.partition as usize].device() {
        Some(device) => {
            let [new, old] = [new, old].map(|control| control_flow::to_hal(control, device).map(Box::new));
            Ok(Lowered::Command { new: new?, old: old? })
        }
        None => Ok(Lowered::Task(Arc::new(control_flow::host_task(new, label.into(), options)?))),
    }
}
