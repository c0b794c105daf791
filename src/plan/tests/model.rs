//! A slow and simple model of what a random graph means.

use std::collections::{BTreeMap, BTreeSet};

use super::cases::{Kind, Recipe};
use super::*;
use crate::plan::{Origin, PartitionKind};

/// All nodes of a recipe with sub-graphs in place, and which come before which.
///
/// *Joins* are empty nodes and the entries and exits of sub-graphs. Those that a plan keeps are
/// nodes like others once [`Model::of_plan`] has learnt which these are.
pub(super) struct Model {
    /// The way to each node: sub-graph nodes, then its own index. A sub-graph's entry and exit have the same.
    paths: Vec<Vec<u32>>,
    /// Of joins, the device each was given.
    pub(super) joins: BTreeMap<usize, u32>,
    /// `None` for joins that vanish, `Some(None)` for host tasks.
    pub(super) device: Vec<Option<Option<u32>>>,
    pub(super) stream_tasks: BTreeSet<usize>,
    /// Strict ancestors, joins among them.
    pub(super) ancestors: Vec<BTreeSet<usize>>,
    direct: Vec<BTreeSet<usize>>,
}

impl Model {
    /// The model of a graph, with the joins that its plan keeps as nodes, on the devices on which
    /// the plan has them.
    pub(super) fn of_plan(recipe: &Recipe, plan: &Plan) -> Self {
        let mut model = Self {
            paths: vec![],
            joins: BTreeMap::new(),
            device: vec![],
            stream_tasks: BTreeSet::new(),
            ancestors: vec![],
            direct: vec![],
        };
        model.add_all(recipe, &[]);
        let count = model.paths.len();
        model.ancestors = model.direct.clone();
        // Warshall.
        for via in 0..count {
            let more = model.ancestors[via].clone();
            for node in 0..count {
                if model.ancestors[node].contains(&via) {
                    model.ancestors[node].extend(&more);
                }
            }
        }
        for (partition, at) in plan.partitions().iter().zip(0..) {
            if let PartitionKind::Device(device) = partition.kind {
                for &planned in plan.nodes(at) {
                    let node = model.node(plan, planned);
                    if model.joins.contains_key(&node) {
                        model.device[node] = Some(Some(device.as_raw()));
                    }
                }
            }
        }
        model
    }

    fn add(&mut self, path: &[u32], device: Option<Option<u32>>) -> usize {
        self.paths.push(path.to_vec());
        self.device.push(device);
        self.direct.push(BTreeSet::new());
        self.paths.len() - 1
    }

    fn add_join(&mut self, path: &[u32], own_device: u32) -> usize {
        let node = self.add(path, None);
        self.joins.insert(node, own_device);
        node
    }

    /// Adds a recipe's nodes. Gives where each begins and ends, which differ for sub-graphs.
    fn add_all(&mut self, recipe: &Recipe, prefix: &[u32]) -> Vec<(usize, usize)> {
        let mut ends = Vec::new();
        for (index, node) in recipe.nodes.iter().enumerate() {
            let path: Vec<u32> = prefix.iter().copied().chain([index as u32]).collect();
            ends.push(match node {
                &Kind::Kernel(device) => [self.add(&path, Some(Some(device))); 2].into(),
                &Kind::StreamTask(device) => {
                    let node = self.add(&path, Some(Some(device)));
                    self.stream_tasks.insert(node);
                    [node; 2].into()
                }
                Kind::Host => [self.add(&path, Some(None)); 2].into(),
                &Kind::Empty(device) => [self.add_join(&path, device); 2].into(),
                Kind::Sub(child) => {
                    let entry = self.add_join(&path, 0);
                    let inner = self.add_all(child, &path);
                    let exit = self.add_join(&path, 0);
                    if inner.is_empty() {
                        self.direct[exit].insert(entry);
                    }
                    // Only the ends: an edge past a leaf would be implied, but would put more into
                    // signatures.
                    for (index, (start, end)) in inner.into_iter().enumerate() {
                        if child.edges.iter().all(|&(_, to)| to != index) {
                            self.direct[start].insert(entry);
                        }
                        if child.edges.iter().all(|&(from, _)| from != index) {
                            self.direct[exit].insert(end);
                        }
                    }
                    (entry, exit)
                }
            });
        }
        for &(from, to) in &recipe.edges {
            self.direct[ends[to].0].insert(ends[from].1);
        }
        ends
    }

    /// The nodes that are planned: commands, and joins that stay.
    pub(super) fn planned(&self) -> impl Iterator<Item = usize> {
        (0..self.paths.len()).filter(|&node| self.device[node].is_some())
    }

    /// The planned nodes right before a node, through vanished joins only.
    pub(super) fn preds(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut walk = vec![node];
        while let Some(at) = walk.pop() {
            for &pred in &self.direct[at] {
                if self.device[pred].is_some() {
                    found.insert(pred);
                } else {
                    walk.push(pred);
                }
            }
        }
        found
    }

    /// How many paths lead from a join through joins only, vanished or not, to a command.
    pub(super) fn paths_out(&self, join: usize) -> usize {
        let successors = (0..self.paths.len()).filter(|&node| self.direct[node].contains(&join));
        successors.map(|node| if self.joins.contains_key(&node) { self.paths_out(node) } else { 1 }).sum()
    }

    /// The planned nodes, each after its ancestors.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut planned: Vec<_> = self.planned().collect();
        planned.sort_by_key(|&node| self.ancestors[node].len());
        planned
    }

    /// Whether a result crosses here.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let is_alone_before = self.is_alone(from);
        let is_device_change = self.device[from] != self.device[to] && !self.is_alone(to);
        is_alone_before || is_device_change
    }

    /// Whether the node is a partition of its own.
    pub(super) fn is_alone(&self, node: usize) -> bool {
        self.device[node] == Some(None) || self.stream_tasks.contains(&node)
    }

    /// The node that a planned node is.
    pub(super) fn node(&self, plan: &Plan, planned: u32) -> usize {
        let origin = plan.origin(planned);
        let Origin { mut instance, node } = origin;
        let mut path = vec![node];
        while let Some(parent) = plan.instances()[instance as usize].parent {
            path.push(plan.instances()[instance as usize].node);
            instance = parent;
        }
        path.reverse();
        // A sub-graph's entry and exit have one origin; the entry has the lower number.
        let is_exit = plan.origins.iter().take(planned as usize).any(|&other| other == origin);
        let mut same_path = (0..self.paths.len()).filter(|&node| self.paths[node] == path);
        same_path.nth(usize::from(is_exit)).expect("every planned node is in the graph")
    }
}
