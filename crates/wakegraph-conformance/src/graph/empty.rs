//! Empty graphs and empty nodes.

use wakegraph::graph::CommandKind;
use wakegraph::{Graph, Range};

use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, tests};

tests!("graph/empty":
    &[] => [an_empty_graph_runs, only_empty_nodes],
    &[Need::Results] => [empty_nodes_join, empty_nodes_cost_nothing_in_the_plan]);

fn an_empty_graph_runs(setup: &Setup) {
    let graph = Graph::new(setup.device());
    assert!(graph.is_empty());
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
        }
    });
    assert!(exec.plan().partitions().is_empty());
}

fn only_empty_nodes(setup: &Setup) {
    let mut graph = Graph::new(setup.device());
    let first = graph.empty().id();
    let second = graph.empty().after([first]).id();
    assert_eq!(graph.kind(second).unwrap(), CommandKind::Empty);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

//  a   b
//   \ /
//  empty
//    |
//    c
fn empty_nodes_join(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
    let output = device.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    let a = graph.launch(add(1, &x), Range::linear(4)).id();
    let b = graph.launch(add(2, &y), Range::linear(4)).id();
    let join = graph.empty().after([a, b]).name("join").id();
    graph.copy(&x, &output).after([join]);
    assert_eq!(graph.find("join"), Some(join));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..=2 {
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, [replay; 4]);
            assert_eq!(y.to_vec().await.unwrap(), [2 * replay; 4]);
        }
    });
}

fn empty_nodes_cost_nothing_in_the_plan(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32]).unwrap();
    let mut graph = Graph::new(device);
    let mut last = graph.launch(mix(1, &x), Range::linear(1)).id();
    for _ in 0..50 {
        last = graph.empty().after([last]).id();
    }
    graph.launch(mix(2, &x), Range::linear(1)).after([last]);
    let exec = graph.finalize().unwrap();
    assert_eq!(exec.plan().partitions().len(), 1);
    assert_eq!(exec.plan().nodes(0).len(), 2);
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [(31 + 1) * 31 + 2]);
    });
}
