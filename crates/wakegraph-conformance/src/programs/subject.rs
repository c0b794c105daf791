//! An executable under test, with what it does now.

use std::collections::BTreeSet;

use wakegraph::graph::NodePath;
use wakegraph::hal::UpdateCapabilities;
use wakegraph::memory::ScratchArena;
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::update::{Applied, Update};
use wakegraph::{ErrorKind, ExecutableGraph, FinalizeOptions, Graph, NodeId, read, write};

use super::choices::Choices;
use super::generate::{Mixture, renumber};
use super::settings::Settings;
use super::step::{Kernel, LEN, Node, ON_DEVICES, Part, Step};
use super::world::{Builder, Form, Handles, Memory, Place, World, with};

/// An executable, and the nodes that it runs after all updates.
pub(super) struct Subject {
    pub(super) exec: Option<ExecutableGraph>,
    pub(super) nodes: Vec<Node>,
    pub(super) form: Form,
    /// The nodes in an order that follows all edges: one may lead back to a node that was added earlier.
    order: Vec<usize>,
    world: World,
    /// Edges of the program's, from an earlier to a later node.
    edges: Vec<(usize, usize)>,
    /// The steps with which it was finalized.
    original: Vec<Node>,
    /// Edges that were made when all nodes were there.
    late_edges: Vec<(usize, usize)>,
    /// For each node those that come before it.
    ancestors: Vec<BTreeSet<usize>>,
    handles: Handles,
    is_updatable: bool,
    /// Whether a node inside another one has been switched off: others may be given what it uses.
    has_hidden_uses: bool,
}

/// The outcome that an update must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Expected {
    Applied,
    Refused(ErrorKind),
    /// It depends on what the device can do, or on edges inside of nodes.
    Either,
}

/// An update that has been asked for, its outcome, and the nodes after it.
type Asked = (Applied, Expected, Vec<Node>);

/// Nodes of a graph, at most. Under Miri graphs are small.
const NODES: usize = if cfg!(miri) { 8 } else { 25 };

impl Subject {
    /// Finalizes a random graph; `None` if that is refused, as it has to be with a wrong step.
    pub(super) fn new(
        choices: &mut Choices<'_>,
        world: &World,
        mixture: &Mixture,
        settings: &Settings,
        arena: &ScratchArena,
    ) -> Option<Self> {
        let mut graph = Graph::new(&world.devices[0]);
        let (mut world, mut nodes) = (world.clone(), Vec::new());
        if settings.scratch {
            for buffer in ON_DEVICES / 2..ON_DEVICES {
                world.memory[buffer] = Memory::Device(graph.scratch(LEN).unwrap());
                // Scratch memory holds nothing before it is written.
                let to = Part::whole(buffer);
                nodes.push(Step::Fill { to, pattern: vec![choices.word()] }.into());
            }
        }
        if choices.chance(2) {
            graph.share_scratch(arena);
        }
        nodes.extend(mixture.nodes(choices, NODES));
        let mut edges = Vec::new();
        for index in 1..nodes.len() {
            if choices.chance(5) {
                edges.push((choices.below(index), index));
            }
        }
        let form = Form::random(choices);
        let mut builder = Builder::new(&world, form);
        let ids = builder.add(&mut graph, &nodes, &edges);
        let handles = builder.handles;
        let late_edges = make_edges(choices, &mut graph, &ids);
        let is_wrong = nodes.iter().any(|node| node.step.is_wrong());
        // Some mistakes are seen at once, others by the device.
        assert!(graph.errors().is_empty() || is_wrong, "{:?}: {nodes:?}", graph.errors());
        let can_update =
            |device: &wakegraph::Device| device.capabilities().update == UpdateCapabilities::all();
        let is_updatable = settings.updates
            && !settings.scratch
            && !choices.chance(3)
            && world.devices.iter().all(can_update);
        let exec = match graph.finalize_with(options(choices, &world).updatable(is_updatable)) {
            Ok(exec) => exec,
            Err(error) => {
                assert!(is_wrong, "{error}: {nodes:?}");
                return None;
            }
        };
        assert!(!is_wrong, "a wrong graph is finalized: {nodes:?}");
        let (order, ancestors) = order(&graph, &ids);
        let original = nodes.clone();
        let has_hidden_uses = false;
        Some(Self {
            exec: Some(exec),
            nodes,
            edges,
            form,
            order,
            world,
            original,
            late_edges,
            ancestors,
            handles,
            is_updatable,
            has_hidden_uses,
        })
    }

    /// The nodes in the order in which a run seems to carry them out.
    pub(super) fn in_order(&self) -> Vec<Node> {
        self.order.iter().map(|&index| self.nodes[index].clone()).collect()
    }

    /// Edges of the program's, from an earlier to a later node of that order.
    pub(super) fn edges_in_order(&self) -> Vec<(usize, usize)> {
        let place = |node: usize| self.order.iter().position(|&other| other == node).unwrap();
        self.edges.iter().map(|&(from, to)| (place(from), place(to))).collect()
    }

    /// Changes nodes at random: all by another graph, or some. `None` if the executable is gone.
    pub(super) fn update(&mut self, choices: &mut Choices<'_>, mixture: &Mixture) -> Option<Asked> {
        let exec = self.exec.clone()?;
        if !self.is_updatable {
            // A device may refuse earlier what it cannot do.
            let is_tried = mixture.has_mistakes && choices.chance(4);
            let applied =
                is_tried.then(|| exec.update().enabled(self.handles.nodes[0].1.clone(), true).apply())?;
            let expected = Expected::Refused(ErrorKind::InvalidOperation);
            return Some((applied, expected, self.nodes.clone()));
        }
        if choices.chance(4) {
            return Some(self.update_all(choices, &exec));
        }
        let mut draft = Draft {
            update: exec.update(),
            nodes: self.nodes.clone(),
            moved: BTreeSet::new(),
            is_sure: !self.has_hidden_uses,
        };
        for _ in 0..choices.within(1..=3) {
            draft = self.change(draft, choices, mixture);
        }
        let Draft { update, nodes, moved, is_sure } = draft;
        let expected = match (is_sure, self.orders(&nodes, &moved)) {
            (true, true) => Expected::Applied,
            (true, false) => Expected::Refused(ErrorKind::InvalidArgument),
            (false, _) => Expected::Either,
        };
        Some((update.apply(), expected, nodes))
    }

    /// Updates from another graph with the same topology.
    fn update_all(&mut self, choices: &mut Choices<'_>, exec: &ExecutableGraph) -> Asked {
        let mut nodes = self.original.clone();
        renumber(&mut nodes, choices);
        let mut graph = Graph::new(&self.world.devices[0]);
        let ids = Builder::new(&self.world, self.form).add(&mut graph, &nodes, &self.edges);
        for &(from, to) in &self.late_edges {
            graph.make_edge(ids[from], ids[to]).unwrap();
        }
        (exec.update_from(&graph), Expected::Applied, nodes)
    }

    /// Makes one change, unless the node that was chosen has nothing to change.
    fn change<'e>(
        &mut self,
        mut draft: Draft<'e>,
        choices: &mut Choices<'_>,
        mixture: &Mixture,
    ) -> Draft<'e> {
        match choices.below(8) {
            0 => {
                let Some((level, index, param)) = choices.pick(&self.handles.params) else { return draft };
                let value = choices.word();
                draft.update = draft.update.param(&param, value);
                draft.is_sure &= level.is_empty();
                for node in level_at(&mut draft.nodes, &level) {
                    if let Step::Kernel { kernel, param: Some(bound) } = &mut node.step
                        && *bound == index
                    {
                        *kernel = kernel.with_number(value);
                    }
                }
            }
            1 => {
                let Some((place, group)) = choices.pick(&self.handles.groups) else { return draft };
                let choice = choices.below(group.len());
                draft.update = draft.update.choose(&group, choice);
                draft.is_sure &= place.len() == 1;
                if let Step::Group { chosen, .. } = &mut node_at(&mut draft.nodes, &place).step {
                    *chosen = choice;
                }
            }
            which => {
                // Of nodes inside others less is known beforehand.
                let may_be_inside = choices.chance(3);
                let all = self.handles.nodes.iter();
                let nodes: Vec<_> = all.filter(|(place, _)| may_be_inside || place.len() == 1).collect();
                let (place, path) = choices.pick(&nodes).cloned().unwrap();
                if which <= 3 {
                    return self.switch(draft, choices, &place, path);
                }
                return self.operands(draft, choices, mixture, &place, path);
            }
        }
        draft
    }

    fn switch<'e>(
        &mut self,
        mut draft: Draft<'e>,
        choices: &mut Choices<'_>,
        place: &Place,
        path: NodePath,
    ) -> Draft<'e> {
        let node = node_at(&mut draft.nodes, place);
        if self.world.can_be_disabled(&node.step) {
            node.enabled = choices.chance(2);
            self.has_hidden_uses |= place.len() > 1;
            draft.is_sure &= place.len() == 1;
            draft.update = draft.update.enabled(path, node.enabled);
        }
        draft
    }

    /// Other numbers, another kernel, or other memory.
    fn operands<'e>(
        &self,
        mut draft: Draft<'e>,
        choices: &mut Choices<'_>,
        mixture: &Mixture,
        place: &Place,
        path: NodePath,
    ) -> Draft<'e> {
        let (world, is_inside) = (&self.world, place.len() > 1);
        let Node { step, .. } = node_at(&mut draft.nodes, place);
        let mut update = draft.update;
        match step {
            Step::Kernel { kernel, param: None } => {
                let old = *kernel;
                let is_moved = !is_inside && choices.chance(2);
                let other = is_moved.then(|| self.elsewhere(old, choices, mixture)).flatten();
                *kernel = match other {
                    Some(other) => {
                        draft.moved.insert(place[0]);
                        other
                    }
                    None if choices.chance(2) => old.alternative().unwrap_or(old).with_number(choices.word()),
                    None => old.with_number(choices.word()),
                };
                if kernel.range() != old.range() {
                    update = update.range(path.clone(), kernel.range());
                }
                update = update.launch(path, world.call(*kernel));
            }
            Step::Fill { to, pattern } => {
                pattern.iter_mut().for_each(|number| *number = choices.word());
                update = match pattern[..] {
                    [value] => update.fill(path, &world.on_device(*to), value),
                    _ => update.fill_pattern(path, &world.on_device(*to), pattern),
                };
            }
            Step::Copy { from, to } if !is_inside => {
                if let Some(new) = mixture.beside(choices, from.buffer, from.len(), *to) {
                    *from = new;
                    draft.moved.insert(place[0]);
                    update =
                        with!(world.part(new), |x| with!(world.part(*to), |y| update.copy(path, &x, &y)));
                }
            }
            Step::Task(task) => {
                task.n = choices.word();
                let (from, to) = (world.on_host(task.from), world.on_host(task.to));
                update = update.host_task(path, (read(&from), write(&to)), task.closure());
            }
            _ => return Draft { update, ..draft },
        }
        draft.is_sure &= !is_inside;
        Draft { update, ..draft }
    }

    /// A kernel that may take the place of another one, on other memory of the device, if some choices find
    /// one.
    fn elsewhere(&self, old: Kernel, choices: &mut Choices<'_>, mixture: &Mixture) -> Option<Kernel> {
        const CANDIDATES: usize = 12;
        let home = |kernel: Kernel| self.world.homes[kernel.to.buffer];
        (0..CANDIDATES)
            .map(|_| mixture.kernel(choices))
            .find(|kernel| kernel.can_replace(old) && !kernel.is_wrong() && home(*kernel) == home(old))
    }

    /// Whether edges order the nodes with other memory against all others with which they conflict.
    fn orders(&self, nodes: &[Node], moved: &BTreeSet<usize>) -> bool {
        let is_ordered = |one: usize, other: usize| {
            self.ancestors[one].contains(&other) || self.ancestors[other].contains(&one)
        };
        moved.iter().all(|&node| {
            let mine = nodes[node].step.uses();
            (0..nodes.len()).filter(|&other| other != node && !is_ordered(node, other)).all(|other| {
                let theirs = nodes[other].step.uses();
                !mine.iter().any(|mine| theirs.iter().any(|theirs| mine.conflicts(*theirs)))
            })
        })
    }
}

/// An update, and what it changes.
struct Draft<'e> {
    update: Update<'e>,
    nodes: Vec<Node>,
    /// Nodes with other memory.
    moved: BTreeSet<usize>,
    is_sure: bool,
}

fn level_at<'n>(mut nodes: &'n mut Vec<Node>, place: &[usize]) -> &'n mut Vec<Node> {
    for step in place.chunks(2) {
        nodes = &mut nodes[step[0]].step.bodies_mut()[step[1]];
    }
    nodes
}

fn node_at<'n>(nodes: &'n mut Vec<Node>, place: &[usize]) -> &'n mut Node {
    let (index, level) = place.split_last().unwrap();
    &mut level_at(nodes, level)[*index]
}

fn options(choices: &mut Choices<'_>, world: &World) -> FinalizeOptions {
    let policies = [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager];
    let orders = [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst];
    let can_profile = world.devices.iter().all(|device| device.capabilities().profiling);
    FinalizeOptions::new()
        .partition(policies[choices.below(policies.len())])
        .order(orders[choices.below(orders.len())])
        .in_order(choices.chance(5))
        .profiling(can_profile && choices.chance(6))
}

/// Makes some edges between any nodes. Those that would close a cycle are refused.
fn make_edges(choices: &mut Choices<'_>, graph: &mut Graph, ids: &[NodeId]) -> Vec<(usize, usize)> {
    let mut made = Vec::new();
    while choices.chance(3) {
        let (from, to) = (choices.below(ids.len()), choices.below(ids.len()));
        let [one, other] = [ids[from], ids[to]];
        let is_cycle = from == to || order(graph, ids).1[from].contains(&to);
        match graph.make_edge(one, other) {
            Ok(()) => {
                assert!(!is_cycle, "an edge closes a cycle");
                assert!(graph.successors(one).unwrap().contains(&other));
                made.push((from, to));
            }
            Err(error) => {
                assert!(is_cycle, "an edge is refused: {error}");
                let kind = if from == to { ErrorKind::InvalidArgument } else { ErrorKind::Cycle };
                assert_eq!(error.kind(), kind, "{error}");
            }
        }
    }
    made
}

/// The nodes, each behind all that come before it, otherwise as they were added; and for each those before
/// it.
fn order(graph: &Graph, ids: &[NodeId]) -> (Vec<usize>, Vec<BTreeSet<usize>>) {
    let before = |id: &NodeId| graph.predecessors(*id).unwrap().iter().map(|id| id.index()).collect();
    let mut ancestors: Vec<BTreeSet<usize>> = ids.iter().map(before).collect();
    let mut order: Vec<usize> = Vec::new();
    while order.len() < ids.len() {
        let is_next =
            |node: &usize| !order.contains(node) && ancestors[*node].iter().all(|one| order.contains(one));
        let next = (0..ids.len()).find(is_next).expect("a graph without cycles");
        let of_those: Vec<_> = ancestors[next].iter().flat_map(|&one| ancestors[one].clone()).collect();
        ancestors[next].extend(of_those);
        order.push(next);
    }
    (order, ancestors)
}
