use proptest::prelude::*;
use wakegraph_hal::ErrorKind;

use super::{closure, edges, kernels};
use crate::graph::{Graph, GraphProperties};

//   a --> b --> c
//   ^-----------'  refused
#[test]
fn a_cycle_is_refused_and_named_in_path_order() {
    let (mut graph, ids) = kernels(4);
    let [a, b, c, _] = ids[..] else { unreachable!() };
    graph.set_name(a, "a").unwrap();
    graph.set_name(b, "b").unwrap();
    graph.make_edge(a, b).unwrap();
    graph.make_edge(b, c).unwrap();

    let error = graph.make_edge(c, a).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Cycle);
    assert_eq!(
        error.message(),
        "the edge kernel #2 -> kernel 'a' (#0) would close \
         kernel #2 -> kernel 'a' (#0) -> kernel 'b' (#1) -> kernel #2"
    );
    assert_eq!(edges(&graph), [(0, 1), (1, 2)]);
}

#[test]
fn a_long_cycle_is_named_without_its_middle() {
    let (mut graph, ids) = kernels(100);
    for pair in ids.windows(2) {
        graph.make_edge(pair[0], pair[1]).unwrap();
    }
    let error = graph.make_edge(ids[99], ids[0]).unwrap_err();
    assert!(
        error.message().ends_with(
            "would close kernel #99 -> kernel #0 -> kernel #1 -> kernel #2 -> ... (93 more) ... \
             -> kernel #96 -> kernel #97 -> kernel #98 -> kernel #99"
        ),
        "{error}"
    );
}

//   0 --> 1 --> ... --> 9       the short way back counts
//   '-------------------^
#[test]
fn errors_name_a_shortest_cycle() {
    let (mut graph, ids) = kernels(10);
    for pair in ids.windows(2) {
        graph.make_edge(pair[0], pair[1]).unwrap();
    }
    graph.make_edge(ids[0], ids[9]).unwrap();
    let error = graph.make_edge(ids[9], ids[0]).unwrap_err();
    assert!(error.message().ends_with("close kernel #9 -> kernel #0 -> kernel #9"), "{error}");
}

#[test]
fn without_cycle_check_all_edges_are_accepted() {
    let mut graph = Graph::with_properties(GraphProperties::default().no_cycle_check(true));
    let [a, b] = [0; 2].map(|_| super::kernel(&mut graph, &[]));
    graph.make_edge(a, b).unwrap();
    assert!(graph.is_insertion_ordered());
    graph.make_edge(b, a).unwrap();
    graph.make_edge(b, a).unwrap();
    assert_eq!(edges(&graph), [(0, 1), (1, 0)]);
    assert!(!graph.is_insertion_ordered());
    assert_eq!(graph.make_edge(a, a).unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert_eq!(graph.topological_ranks(), None);
    assert_eq!((graph.roots().count(), graph.leaves().count()), (0, 0));
}

/// Nodes are added and edges made in any order; a model decides each edge from scratch.
#[derive(Clone, Debug)]
enum Step {
    Node,
    Edge(prop::sample::Index, prop::sample::Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::Node),
        4 => any::<(prop::sample::Index, prop::sample::Index)>().prop_map(|(from, to)| Step::Edge(from, to)),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #[test]
    fn only_edges_that_close_a_cycle_are_refused(steps in steps()) {
        let (mut graph, mut ids) = kernels(3);
        let mut model: Vec<(u32, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Node => ids.push(super::kernel(&mut graph, &[])),
                Step::Edge(from, to) => {
                    let (from, to) = (from.index(ids.len()), to.index(ids.len()));
                    let edge = (from as u32, to as u32);
                    let result = graph.make_edge(ids[from], ids[to]);
                    let reaches = closure(ids.len(), model.iter().copied());
                    if from == to {
                        prop_assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument);
                    } else if reaches[to][from] {
                        let error = result.unwrap_err();
                        prop_assert_eq!(error.kind(), ErrorKind::Cycle);
                        check_named_cycle(error.message(), edge, &model)?;
                    } else {
                        result.unwrap();
                        if !model.contains(&edge) {
                            model.push(edge);
                        }
                    }
                }
            }
            prop_assert_eq!(edges(&graph), &model[..]);
            prop_assert_eq!(graph.is_insertion_ordered(), model.iter().all(|(from, to)| from < to));
            let ranks = graph.topological_ranks().unwrap();
            for &(from, to) in &model {
                prop_assert!(ranks[from as usize] < ranks[to as usize]);
            }
            let mut sorted = ranks.to_vec();
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..ids.len() as u32));
        }
    }
}

/// The cycle in the message starts with the new edge, and goes on along edges of the graph.
fn check_named_cycle(message: &str, edge: (u32, u32), model: &[(u32, u32)]) -> Result<(), TestCaseError> {
    let cycle = message.split_once("would close ").unwrap().1;
    if cycle.contains("more") {
        return Ok(());
    }
    let nodes: Vec<u32> = cycle.split(" -> ").map(|label| label[8..].parse().unwrap()).collect();
    prop_assert_eq!((nodes[0], nodes[1]), edge);
    for step in nodes[1..].windows(2) {
        prop_assert!(model.contains(&(step[0], step[1])));
    }
    prop_assert_eq!(nodes.first(), nodes.last());
    Ok(())
}
