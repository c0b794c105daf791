//! Random graphs.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;

/// A node of a random graph.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    Kernel(u32),
    StreamTask(u32),
    Host,
    /// An empty node that was given a device.
    Empty(u32),
    Sub(Recipe),
}

/// A random graph: its nodes in the order in which they are added, and edges in the order in which
/// they are made.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) nodes: Vec<Kind>,
    pub(super) edges: Vec<(usize, usize)>,
}

/// A graph, and the devices (one bit each) that can hold an empty command, and so a join.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) recipe: Recipe,
    pub(super) joins: u32,
}

/// Graphs of all kinds of nodes on up to `devices` devices, many of them with joins too wide to be
/// removed.
pub(super) fn cases(devices: u32) -> impl Strategy<Value = Case> {
    let leaf = prop_oneof![
        6 => (0..devices).prop_map(Kind::Kernel),
        1 => (0..devices).prop_map(Kind::StreamTask),
        2 => Just(Kind::Host),
        1 => (0..devices).prop_map(Kind::Empty),
    ];
    with_joins(leaf.boxed(), devices)
}

/// Graphs without host tasks on one device.
pub(super) fn device_cases() -> impl Strategy<Value = Case> {
    with_joins(prop_oneof![6 => Just(Kind::Kernel(0)), 1 => Just(Kind::Empty(0))].boxed(), 1)
}

fn with_joins(leaf: BoxedStrategy<Kind>, devices: u32) -> impl Strategy<Value = Case> {
    let recipe = prop_oneof![narrow(leaf.clone()), wide(leaf, devices)];
    // Most often every device can hold a join, since only then there are many.
    let joins = prop_oneof![3 => Just(u32::MAX), 1 => 0..1u32 << devices];
    (recipe, joins).prop_map(|(recipe, joins)| Case { recipe, joins })
}

fn narrow(leaf: BoxedStrategy<Kind>) -> BoxedStrategy<Recipe> {
    let flat = recipe(leaf.clone(), 14);
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

/// Layers of about as many nodes as make a join wide, with one or two joins between each two: empty
/// nodes, and sub-graphs that are as wide inside. Nearly all edges between neighbouring layers are
/// there, and a few others.
fn wide(leaf: BoxedStrategy<Kind>, devices: u32) -> BoxedStrategy<Recipe> {
    let row = |sizes| {
        prop::collection::vec(leaf.clone(), sizes).prop_map(|nodes| Recipe { nodes, edges: Vec::new() })
    };
    let inner = prop_oneof![
        3 => row(9..=11),
        1 => row(9..=10).prop_map(|row| Recipe { nodes: vec![Kind::Sub(row)], edges: Vec::new() }),
        1 => recipe(leaf.clone(), 3),
    ];
    let join = prop_oneof![4 => (0..devices).prop_map(Kind::Empty), 1 => inner.prop_map(Kind::Sub)];
    let layer = (prop::collection::vec(join, 1..=2), prop::collection::vec(leaf.clone(), 10..=13));
    let layers = (prop::collection::vec(leaf, 10..=13), prop::collection::vec(layer, 1..=2));
    let dropped = prop::collection::vec(any::<prop::sample::Index>(), 0..=6);
    let more = prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..=6);
    (layers, dropped, more)
        .prop_flat_map(|((first, rest), dropped, more)| {
            let mut layers = vec![first];
            layers.extend(rest.into_iter().flat_map(|(joins, row)| [joins, row]));
            let count = layers.iter().map(Vec::len).sum::<usize>();
            // Where every node is added, so that edges lead backwards, too.
            let places = Just((0..count).collect::<Vec<_>>()).prop_shuffle();
            (Just(layers), Just(dropped), Just(more), places)
        })
        .prop_map(|(layers, dropped, more, places)| {
            let mut edges = Vec::new();
            let mut start = 0;
            for pair in layers.windows(2) {
                let middle = start + pair[0].len();
                let end = middle + pair[1].len();
                edges.extend((start..middle).flat_map(|from| (middle..end).map(move |to| (from, to))));
                start = middle;
            }
            for index in dropped {
                edges.swap_remove(index.index(edges.len()));
            }
            for (a, b) in more {
                let (a, b) = (a.index(places.len()), b.index(places.len()));
                if a != b {
                    edges.push((a.min(b), a.max(b)));
                }
            }
            let mut nodes: Vec<_> = places.iter().copied().zip(layers.into_iter().flatten()).collect();
            nodes.sort_by_key(|&(place, _)| place);
            Recipe {
                nodes: nodes.into_iter().map(|(_, kind)| kind).collect(),
                edges: edges.into_iter().map(|(from, to)| (places[from], places[to])).collect(),
            }
        })
        .boxed()
}

impl Case {
    pub(super) fn plan(&self, options: &PlanOptions) -> Plan {
        let supported = |device: DeviceId| {
            let can_join = self.joins >> device.as_raw() & 1 == 1;
            if can_join { CommandKinds::all() } else { CommandKinds::all() - CommandKinds::EMPTY }
        };
        Plan::new(&self.recipe.graph(), supported, options).unwrap()
    }
}

impl Recipe {
    fn graph(&self) -> Graph<()> {
        let mut graph = Graph::new();
        let host = DeviceId::from_raw(0);
        let mut ids = Vec::new();
        for node in &self.nodes {
            ids.push(match node {
                &Kind::Kernel(device) => {
                    graph.add(CommandKind::Kernel, DeviceId::from_raw(device), Content::Command(()), &[])
                }
                &Kind::StreamTask(device) => {
                    graph.add(CommandKind::StreamTask, DeviceId::from_raw(device), Content::Command(()), &[])
                }
                Kind::Host => graph.add(CommandKind::HostTask, host, Content::Command(()), &[]),
                &Kind::Empty(device) => {
                    graph.add(CommandKind::Empty, DeviceId::from_raw(device), Content::Empty, &[])
                }
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
