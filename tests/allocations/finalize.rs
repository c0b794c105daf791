//! What `finalize` and `submit` allocate grows with the graph, and not faster.

use std::sync::atomic::Ordering;

use wakegraph::{Device, Graph, NodeId};

use crate::BYTES;

fn task(graph: &mut Graph) -> NodeId {
    graph.host_task((), async |()| {}).id()
}

/// One task, `width` that follow it, one that follows all of those.
fn fan(device: &Device, width: usize) -> Graph {
    let mut graph = Graph::new(device);
    let first = task(&mut graph);
    let middle: Vec<NodeId> = (0..width).map(|_| task(&mut graph)).collect();
    let last = task(&mut graph);
    for node in middle {
        graph.make_edge(first, node).unwrap();
        graph.make_edge(node, last).unwrap();
    }
    graph
}

/// Bytes allocated meanwhile, on all threads.
fn bytes<R>(work: impl FnOnce() -> R) -> (usize, R) {
    let before = BYTES.load(Ordering::Relaxed);
    let result = work();
    (BYTES.load(Ordering::Relaxed) - before, result)
}

pub(crate) fn wide_graphs_cost_in_proportion() {
    let device = Device::open("host").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let cost = |width| {
        let graph = fan(&device, width);
        let (finalize, exec) = bytes(|| graph.finalize().unwrap());
        let (submit, ()) = bytes(|| runtime.block_on(async { exec.submit().await.unwrap() }));
        (finalize, submit)
    };
    cost(10);
    let (small, large) = (cost(10_000), cost(20_000));
    // Twice as wide, at most twice the bytes, and some more for tables that double.
    assert!(large.0 < small.0 * 5 / 2, "finalize: {} and {} bytes", small.0, large.0);
    assert!(large.1 < small.1 * 5 / 2, "submit: {} and {} bytes", small.1, large.1);
}
