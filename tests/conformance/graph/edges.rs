//! Explicit edges: forwards, backwards, to all leaves; what is refused.

use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph::kernel::RawKernel;
use wakegraph::{ErrorKind, ExecutionOrder, FinalizeOptions, Graph, NodeId, PartitionPolicy, Range};

use crate::registry::{Need, Setup, tests};

tests!("graph/edges":
    &[Need::Results, Need::Closures] => [explicit_edges_order, backward_edges_order, after_leaves_follows_everything,
        every_way_to_finalize_keeps_the_order],
    &[] => [wrong_edges_are_refused]);

/// A graph of nodes without accesses that log their numbers: only explicit edges order them.
struct Logged {
    graph: Graph,
    log: Arc<Mutex<Vec<usize>>>,
    nodes: Vec<NodeId>,
    edges: Vec<(usize, usize)>,
}

impl Logged {
    fn new(setup: &Setup, count: usize) -> Self {
        let log = Arc::<Mutex<Vec<usize>>>::default();
        let mut graph = Graph::new(setup.device());
        let nodes = (0..count)
            .map(|number| {
                let log = log.clone();
                let kernel = RawKernel::new(format!("n{number}")).host(move |_, _| {
                    log.lock().push(number);
                    Ok(())
                });
                graph.launch(kernel.call(), Range::linear(1)).id()
            })
            .collect();
        Self { graph, log, nodes, edges: Vec::new() }
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.graph.make_edge(self.nodes[from], self.nodes[to]).unwrap();
        self.edges.push((from, to));
    }

    fn check(&self, setup: &Setup, options: FinalizeOptions) {
        let exec = self.graph.finalize_with(options).unwrap();
        setup.block_on(async {
            for _ in 0..10 {
                exec.submit().await.unwrap();
                let ran = std::mem::take(&mut *self.log.lock());
                let place = |number: usize| ran.iter().position(|&at| at == number).unwrap();
                assert_eq!(ran.len(), self.nodes.len());
                for &(from, to) in &self.edges {
                    assert!(place(from) < place(to), "{from} -> {to} in {ran:?} with {options:?}");
                }
            }
        });
    }
}

// 0 -> 1 -> 3, 0 -> 2 -> 3
fn explicit_edges_order(setup: &Setup) {
    let mut this = Logged::new(setup, 4);
    [(0, 1), (0, 2), (1, 3), (2, 3)].into_iter().for_each(|(from, to)| this.edge(from, to));
    this.check(setup, FinalizeOptions::new());
}

fn backward_edges_order(setup: &Setup) {
    let mut this = Logged::new(setup, 6);
    for (from, to) in [(5, 0), (3, 1), (0, 3), (4, 2), (1, 4)] {
        this.edge(from, to);
    }
    this.check(setup, FinalizeOptions::new());
}

fn after_leaves_follows_everything(setup: &Setup) {
    let mut this = Logged::new(setup, 5);
    this.edge(0, 1);
    let log = this.log.clone();
    let kernel = RawKernel::new("last").host(move |_, _| {
        log.lock().push(5);
        Ok(())
    });
    let last = this.graph.launch(kernel.call(), Range::linear(1)).after_leaves().id();
    this.nodes.push(last);
    this.edges.extend((0..5).map(|number| (number, 5)));
    assert_eq!(this.graph.predecessors(last).unwrap().len(), 4);
    this.check(setup, FinalizeOptions::new());
}

fn every_way_to_finalize_keeps_the_order(setup: &Setup) {
    for partition in [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager] {
        for order in [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst] {
            for (in_order, profiling) in [(false, false), (true, false), (false, true)] {
                let mut this = Logged::new(setup, 8);
                let edges = [(0, 2), (1, 2), (2, 3), (2, 4), (7, 5), (3, 5), (4, 6), (6, 5)];
                edges.into_iter().for_each(|(from, to)| this.edge(from, to));
                let options = FinalizeOptions::new().partition(partition).order(order);
                this.check(setup, options.in_order(in_order).profiling(profiling));
            }
        }
    }
}

fn wrong_edges_are_refused(setup: &Setup) {
    let mut graph = Graph::new(setup.device());
    let [a, b, c] = [(); 3].map(|()| graph.empty().id());
    let mut other = Graph::new(setup.device());
    let foreign = other.empty().id();
    graph.make_edge(a, b).unwrap();
    graph.make_edge(b, c).unwrap();
    for (from, to, kind) in [
        (a, a, ErrorKind::InvalidArgument),
        (a, foreign, ErrorKind::InvalidArgument),
        (foreign, a, ErrorKind::InvalidArgument),
        (c, a, ErrorKind::Cycle),
        (b, a, ErrorKind::Cycle),
    ] {
        assert_eq!(graph.make_edge(from, to).unwrap_err().kind(), kind);
        assert_eq!(graph.successors(c).unwrap(), []);
        assert_eq!(graph.predecessors(a).unwrap(), []);
    }
    assert!(graph.predecessors(foreign).is_err());
    let exec = graph.finalize().unwrap();
    setup.block_on(async { exec.submit().await }).unwrap();
}
