//! Random graphs, and a slow and simple model of what they mean.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::plan::Origin;

/// A node of a random graph.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Kernel(u32),
    Host,
    Empty,
    Sub(Recipe),
}

/// A random graph: its nodes in the order in which they are added, and edges in the order in which they are made.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    nodes: Vec<Kind>,
    edges: Vec<(usize, usize)>,
}

/// Graphs on up to `devices` devices, with or without what is not a kernel.
pub(super) fn recipes(devices: u32, only_kernels: bool) -> impl Strategy<Value = Recipe> {
    let kernel = (0..devices).prop_map(Kind::Kernel);
    let leaf = if only_kernels {
        kernel.boxed()
    } else {
        prop_oneof![6 => kernel, 2 => Just(Kind::Host), 1 => Just(Kind::Empty)].boxed()
    };
    let flat = recipe(leaf.clone(), 14);
    if only_kernels {
        return flat.boxed();
    }
    let nested =
        recipe(prop_oneof![5 => leaf.clone(), 1 => recipe(leaf.clone(), 4).prop_map(Kind::Sub)].boxed(), 6);
    let with_subs = recipe(prop_oneof![7 => leaf, 1 => nested.prop_map(Kind::Sub)].boxed(), 10);
    prop_oneof![flat, with_subs].boxed()
}

fn recipe(kind: BoxedStrategy<Kind>, size: usize) -> BoxedStrategy<Recipe> {
    let nodes = prop::collection::vec(kind, 0..=size);
    // Edges go forward in a hidden order of the nodes, so there is no cycle, but back edges of every kind.
    let hidden = Just((0..size).collect::<Vec<_>>()).prop_shuffle();
    let pairs = prop::collection::vec((0..size, 0..size), 0..=2 * size);
    (nodes, hidden, pairs)
        .prop_map(|(nodes, hidden, pairs)| {
            let edges = pairs.into_iter().filter_map(|(a, b)| {
                let (from, to) = if hidden[a] < hidden[b] { (a, b) } else { (b, a) };
                (a != b && from < nodes.len() && to < nodes.len()).then_some((from, to))
            });
            Recipe { edges: edges.collect(), nodes }
        })
        .boxed()
}

impl Recipe {
    pub(super) fn graph(&self) -> Graph<()> {
        let mut graph = Graph::new();
        let host = DeviceId::from_raw(0);
        let mut ids = Vec::new();
        for node in &self.nodes {
            ids.push(match node {
                &Kind::Kernel(device) => {
                    graph.add(CommandKind::Kernel, DeviceId::from_raw(device), Content::Command(()), &[])
                }
                Kind::Host => graph.add(CommandKind::HostTask, host, Content::Command(()), &[]),
                Kind::Empty => graph.add(CommandKind::Empty, host, Content::Empty, &[]),
                Kind::Sub(child) => {
                    graph.add(CommandKind::SubGraph, host, Content::SubGraph(Arc::new(child.graph())), &[])
                }
            });
        }
        for &(from, to) in &self.edges {
            graph.make_edge(ids[from], ids[to]).unwrap();
        }
        graph
    }
}

/// All nodes of a recipe with sub-graphs in place, and which come before which.
pub(super) struct Model {
    /// The way to each node: sub-graph nodes, then its own index. Joins have none.
    pub(super) paths: Vec<Option<Vec<u32>>>,
    /// `None` for joins, `Some(None)` for host tasks.
    pub(super) device: Vec<Option<Option<u32>>>,
    /// Strict ancestors, joins among them.
    pub(super) ancestors: Vec<BTreeSet<usize>>,
    direct: Vec<BTreeSet<usize>>,
}

impl Model {
    pub(super) fn new(recipe: &Recipe) -> Self {
        let mut model = Self { paths: vec![], device: vec![], ancestors: vec![], direct: vec![] };
        model.add_all(recipe, &[]);
        let count = model.paths.len();
        model.ancestors = model.direct.clone();
        // Warshall.
        for via in 0..count {
            for node in 0..count {
                if model.ancestors[node].contains(&via) {
                    let more = model.ancestors[via].clone();
                    model.ancestors[node].extend(more);
                }
            }
        }
        model
    }

    fn add(&mut self, path: Option<Vec<u32>>, device: Option<Option<u32>>) -> usize {
        self.paths.push(path);
        self.device.push(device);
        self.direct.push(BTreeSet::new());
        self.paths.len() - 1
    }

    /// Adds a recipe's nodes. Gives the roots' and the leaves' numbers.
    fn add_all(&mut self, recipe: &Recipe, prefix: &[u32]) -> Vec<(usize, usize)> {
        let mut ends = Vec::new();
        for (index, node) in recipe.nodes.iter().enumerate() {
            let path: Vec<u32> = prefix.iter().copied().chain([index as u32]).collect();
            ends.push(match node {
                &Kind::Kernel(device) => [self.add(Some(path), Some(Some(device))); 2].into(),
                Kind::Host => [self.add(Some(path), Some(None)); 2].into(),
                Kind::Empty => [self.add(None, None); 2].into(),
                Kind::Sub(child) => {
                    let entry = self.add(None, None);
                    let inner = self.add_all(child, &path);
                    let exit = self.add(None, None);
                    if inner.is_empty() {
                        self.direct[exit].insert(entry);
                    }
                    // Only the ends: an edge past a leaf would be implied, but would put more into signatures.
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

    pub(super) fn commands(&self) -> impl Iterator<Item = usize> {
        (0..self.paths.len()).filter(|&node| self.paths[node].is_some())
    }

    /// The commands right before a node, through joins only.
    pub(super) fn preds(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut walk = vec![node];
        while let Some(at) = walk.pop() {
            for &pred in &self.direct[at] {
                if self.paths[pred].is_some() {
                    found.insert(pred);
                } else {
                    walk.push(pred);
                }
            }
        }
        found
    }

    /// The commands, each after its ancestors.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut commands: Vec<_> = self.commands().collect();
        commands.sort_by_key(|&node| self.ancestors[node].len());
        commands
    }

    /// Whether a result crosses here.
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        let (from, to) = (self.device[from].unwrap(), self.device[to].unwrap());
        from.is_none() || (to.is_some() && from != to)
    }

    /// The node that a planned node is.
    pub(super) fn node(&self, plan: &Plan, planned: u32) -> usize {
        let Origin { mut instance, node } = plan.origin(planned);
        let mut path = vec![node];
        while let Some(parent) = plan.instances()[instance as usize].parent {
            path.push(plan.instances()[instance as usize].node);
            instance = parent;
        }
        path.reverse();
        self.paths
            .iter()
            .position(|known| known.as_ref() == Some(&path))
            .expect("a planned node is a command")
    }
}
