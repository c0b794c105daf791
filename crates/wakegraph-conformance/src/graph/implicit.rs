//! Edges from accesses: read-after-write, write-after-read, write-after-write, on buffers and their parts.

use wakegraph::{Buffer, Graph, NodeId, Range};

use crate::kernels::{add, axpy, mix};
use crate::suite::{Need, Setup, tests};

tests!("graph/implicit":
    &[] => [edges_follow_accesses, reads_do_not_order_each_other],
    &[Need::ConcurrentParts] => [disjoint_parts_are_independent],
    &[Need::Results] => [results_follow_the_order_of_adding]);

fn follows(graph: &Graph, later: NodeId, earlier: NodeId) -> bool {
    graph.predecessors(later).unwrap().contains(&earlier)
}

fn buffer(setup: &Setup) -> Buffer<u32> {
    setup.device().buffer(8).unwrap()
}

fn edges_follow_accesses(setup: &Setup) {
    let (x, y, z) = (buffer(setup), buffer(setup), buffer(setup));
    let mut graph = Graph::new(setup.device());
    let write_x = graph.fill(&x, 1).id();
    let raw = graph.copy(&x, &y).id();
    let war = graph.fill(&x, 2).id();
    let waw = graph.fill(&y, 3).id();
    let apart = graph.fill(&z, 4).id();
    assert!(follows(&graph, raw, write_x), "read after write");
    assert!(follows(&graph, war, raw), "write after read");
    assert!(follows(&graph, waw, raw), "write after write");
    assert!(graph.predecessors(apart).unwrap().is_empty());
    assert_eq!(graph.successors(write_x).unwrap(), [raw]);
    assert_eq!(graph.roots().collect::<Vec<_>>(), [write_x, apart]);
    assert_eq!(graph.leaves().collect::<Vec<_>>(), [war, waw, apart]);
    assert_eq!(graph.nodes().collect::<Vec<_>>(), [write_x, raw, war, waw, apart]);
}

fn disjoint_parts_are_independent(setup: &Setup) {
    let x = buffer(setup);
    let part = |range| x.slice(range).unwrap();
    let mut graph = Graph::new(setup.device());
    let low = graph.fill(&part(0..3), 1).id();
    let high = graph.fill(&part(3..8), 2).id();
    let middle = graph.fill(&part(2..4), 3).id();
    let end = graph.launch(add(1, part(4..8)), Range::linear(4)).id();
    assert!(!follows(&graph, high, low));
    assert!(follows(&graph, middle, low) && follows(&graph, middle, high));
    assert!(follows(&graph, end, high) && !follows(&graph, end, middle));
}

fn reads_do_not_order_each_other(setup: &Setup) {
    let (x, y, z) = (buffer(setup), buffer(setup), buffer(setup));
    let mut graph = Graph::new(setup.device());
    let first = graph.launch(axpy(1, &x, &y), Range::linear(8)).id();
    let second = graph.launch(axpy(1, &x, &z), Range::linear(8)).id();
    assert!(!follows(&graph, second, first));
    let third = graph.fill(&x, 0).id();
    assert!(follows(&graph, third, first) && follows(&graph, third, second));
}

fn results_follow_the_order_of_adding(setup: &Setup) {
    let (x, y) = (buffer(setup), buffer(setup));
    let mut graph = Graph::new(setup.device());
    graph.fill(&x, 1);
    graph.launch(mix(2, &x), Range::linear(8));
    graph.copy(&x, &y);
    graph.launch(mix(3, &x), Range::linear(8));
    graph.launch(axpy(2, &x, &y), Range::linear(8));
    graph.fill(&x, 5);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [33 + 2 * (33 * 31 + 3); 8]);
            assert_eq!(x.to_vec().await.unwrap(), [5; 8]);
        }
    });
}
