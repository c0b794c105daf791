use std::sync::Arc;

use proptest::prelude::*;
use wakegraph_hal::{CommandKind, DeviceId, ErrorKind, ResourceId};

use super::{DEVICE, edges, kernel, kernels, write};
use crate::graph::{Content, Graph, NodeId};

#[test]
fn a_node_knows_what_it_was_added_with() {
    let memory = ResourceId::unique();
    let mut graph = Graph::new();
    let first = kernel(&mut graph, &[write(memory, 0, 4)]);
    let line = line!() + 1;
    let second = graph.add(CommandKind::HostTask, DEVICE, Content::Command(()), &[write(memory, 2, 8)]);
    graph.set_name(second, "post").unwrap();
    graph.set_device(second, DeviceId::from_raw(7)).unwrap();

    let node = graph.node(second).unwrap();
    assert_eq!((node.kind(), node.name()), (CommandKind::HostTask, Some("post")));
    assert_eq!((node.device(), node.accesses()), (DeviceId::from_raw(7), &[write(memory, 2, 8)][..]));
    assert!(matches!(node.content(), Content::Command(())));
    assert!(node.location().file().ends_with("building.rs"));
    assert_eq!(node.location().line(), line);
    assert_eq!(node.label(), "host task 'post' (#1)");
    assert!(node.predecessors().eq([first]));
    assert!(graph.successors(first).unwrap().eq([second]));
    assert_eq!(graph.find("post"), Some(second));
    assert_eq!(graph.find("get"), None);
    assert_eq!(graph.label_at(0), "kernel #0");
    assert_eq!((graph.kinds().len(), graph.devices()[1]), (2, DeviceId::from_raw(7)));
    assert!(graph.nodes().eq([first, second]));
}

#[test]
fn the_first_of_two_nodes_with_one_name_is_found() {
    let (mut graph, ids) = kernels(3);
    graph.set_name(ids[2], "twin").unwrap();
    graph.set_name(ids[1], "twin").unwrap();
    assert_eq!(graph.find("twin"), Some(ids[1]));
    graph.set_name(ids[1], "other").unwrap();
    assert_eq!(graph.find("twin"), Some(ids[2]));
}

#[test]
fn foreign_nodes_and_self_edges_are_refused() {
    let (mut graph, ids) = kernels(2);
    let (_, foreign) = kernels(2);
    let refused = |result: crate::Result<()>| {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
    };
    refused(graph.make_edge(ids[0], foreign[1]));
    refused(graph.make_edge(foreign[0], ids[1]));
    refused(graph.make_edge(ids[1], ids[1]));
    refused(graph.set_name(foreign[0], "thief"));
    refused(graph.set_device(foreign[0], DEVICE));
    refused(graph.command_mut(foreign[0]).map(drop));
    refused(graph.node(foreign[0]).map(drop));
    refused(graph.predecessors(foreign[0]).map(drop));
    refused(graph.successors(foreign[0]).map(drop));
    assert_eq!((graph.len(), graph.edge_count(), graph.find("thief")), (2, 0, None));
}

#[test]
fn an_edge_made_twice_is_there_once() {
    let (mut graph, ids) = kernels(2);
    graph.make_edge(ids[1], ids[0]).unwrap();
    graph.make_edge(ids[1], ids[0]).unwrap();
    assert_eq!(edges(&graph), [(1, 0)]);
    assert!(!graph.is_insertion_ordered());
}

#[test]
fn content_decides_the_kind() {
    let mut graph = Graph::<u32>::new();
    assert!(graph.is_empty() && !graph.has_empty_nodes() && !graph.has_sub_graphs());
    let command = graph.add(CommandKind::Kernel, DEVICE, Content::Command(1), &[]);
    let empty = graph.add(CommandKind::Kernel, DEVICE, Content::Empty, &[]);
    assert!(graph.has_empty_nodes() && !graph.has_sub_graphs());
    graph.add(CommandKind::Kernel, DEVICE, Content::SubGraph(Arc::new(Graph::new())), &[]);
    assert!(graph.has_sub_graphs());
    assert_eq!(graph.kinds(), [CommandKind::Kernel, CommandKind::Empty, CommandKind::SubGraph]);

    *graph.command_mut(command).unwrap() = 2;
    assert!(matches!(graph.content_at(0), Content::Command(2)));
    let error = graph.command_mut(empty).unwrap_err();
    assert_eq!((error.kind(), error.node()), (ErrorKind::InvalidArgument, Some("empty node #1")));
}

#[test]
fn a_clone_is_a_graph_of_its_own() {
    let memory = ResourceId::unique();
    let mut graph = Graph::new();
    let first = kernel(&mut graph, &[write(memory, 0, 4)]);
    let mut snapshot = graph.clone();
    kernel(&mut graph, &[write(memory, 0, 4)]);
    kernel(&mut snapshot, &[write(memory, 0, 2)]);
    kernel(&mut snapshot, &[write(memory, 2, 4)]);
    assert_eq!(edges(&graph), [(0, 1)]);
    assert_eq!(edges(&snapshot), [(0, 1), (0, 2)]);

    assert!(snapshot.node(first).is_err());
    let counterpart = snapshot.id_at(first.index()).unwrap();
    assert_eq!(snapshot.node(counterpart).unwrap().location(), graph.node(first).unwrap().location());
    assert_eq!(snapshot.id_at(3), None);
}

#[test]
fn deeply_nested_graphs_are_drawn_without_recursion() {
    const DEPTH: usize = if cfg!(miri) { 50 } else { 100_000 };
    let mut graph = Graph::<()>::new();
    for _ in 0..DEPTH {
        let mut outer = Graph::new();
        outer.add(CommandKind::SubGraph, DEVICE, Content::SubGraph(Arc::new(graph)), &[]);
        graph = outer;
    }
    assert_eq!(graph.dot().to_string().matches("subgraph cluster_").count(), DEPTH - 1);
    drop(graph);
}

#[test]
fn graphs_move_between_threads() {
    fn check<T: Send + Sync>() {}
    check::<Graph<()>>();
    check::<NodeId>();
}

proptest! {
    #[test]
    fn neighbours_roots_and_leaves_agree_with_the_edges(
        count in 1..60usize,
        wanted in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..120),
    ) {
        let (mut graph, ids) = kernels(count);
        for (from, to) in wanted {
            // Refused edges must leave no trace.
            let _ = graph.make_edge(ids[from.index(count)], ids[to.index(count)]);
        }
        let all = edges(&graph);
        prop_assert_eq!(all.len(), graph.edge_count());
        let id = |index: u32| ids[index as usize];
        for &node in &ids {
            let into = all.iter().filter(|(_, to)| id(*to) == node).map(|&(from, _)| id(from));
            let out = all.iter().filter(|(from, _)| id(*from) == node).map(|&(_, to)| id(to));
            prop_assert!(graph.predecessors(node).unwrap().eq(into));
            prop_assert!(graph.successors(node).unwrap().eq(out));
        }
        let none = |node: NodeId, degree: fn(&Graph<()>, NodeId) -> usize| degree(&graph, node) == 0;
        let roots = ids.iter().copied().filter(|&node| none(node, |g, n| g.predecessors(n).unwrap().len()));
        let leaves = ids.iter().copied().filter(|&node| none(node, |g, n| g.successors(n).unwrap().len()));
        prop_assert!(graph.roots().eq(roots));
        prop_assert!(graph.leaves().eq(leaves));
    }
}
