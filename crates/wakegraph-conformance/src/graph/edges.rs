//! Explicit edges: forwards, backwards, to all leaves; what is refused.

use wakegraph::graph::GraphProperties;
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::service::Priority;
use wakegraph::{ErrorKind, FinalizeOptions, Graph, NodeId, Range};

use crate::kernels::note;
use crate::suite::{Need, Setup, lacks, tests};
use crate::watch::List;

tests!("graph/edges":
    &[Need::Results] => [explicit_edges_order, backward_edges_order, after_leaves_follows_everything,
        every_way_to_finalize_keeps_the_order],
    &[] => [wrong_edges_are_refused, edges_can_be_walked, without_the_check_finalize_finds_the_cycle]);

fn edges_can_be_walked(setup: &Setup) {
    let x = setup.device().buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(setup.device());
    let a = graph.fill(&x, 1).id();
    let b = graph.fill(&x, 2).id();
    let c = graph.empty().after([a]).id();
    assert_eq!(graph.edges().collect::<Vec<_>>(), [(a, b), (a, c)]);
}

/// A graph of nodes without accesses that note their numbers: only explicit edges order them.
struct Noted {
    graph: Graph,
    list: List,
    nodes: Vec<NodeId>,
    edges: Vec<(usize, usize)>,
}

impl Noted {
    /// `None` if kernels take no address; the test is then reported as ignored.
    fn new(setup: &Setup, count: usize) -> Option<Self> {
        let Some(list) = List::new(setup, count + 1) else {
            lacks("pointers to memory");
            return None;
        };
        let mut graph = Graph::new(setup.device());
        let nodes = (0..count as u32)
            .map(|number| graph.launch(note(&list, number), Range::linear(1)).id())
            .collect();
        Some(Self { graph, list, nodes, edges: Vec::new() })
    }

    fn edge(&mut self, from: usize, to: usize) {
        self.graph.make_edge(self.nodes[from], self.nodes[to]).unwrap();
        self.edges.push((from, to));
    }

    fn check(&self, setup: &Setup, options: FinalizeOptions) {
        let exec = self.graph.finalize_with(options.clone()).unwrap();
        setup.block_on(async {
            for _ in 0..10 {
                exec.submit().await.unwrap();
                let ran = self.list.take();
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
    let Some(mut this) = Noted::new(setup, 4) else { return };
    [(0, 1), (0, 2), (1, 3), (2, 3)].into_iter().for_each(|(from, to)| this.edge(from, to));
    this.check(setup, FinalizeOptions::new());
}

fn backward_edges_order(setup: &Setup) {
    let Some(mut this) = Noted::new(setup, 6) else { return };
    for (from, to) in [(5, 0), (3, 1), (0, 3), (4, 2), (1, 4)] {
        this.edge(from, to);
    }
    this.check(setup, FinalizeOptions::new());
}

fn after_leaves_follows_everything(setup: &Setup) {
    let Some(mut this) = Noted::new(setup, 5) else { return };
    this.edge(0, 1);
    let last = note(&this.list, 5);
    let last = this.graph.launch(last, Range::linear(1)).after_leaves().id();
    this.nodes.push(last);
    this.edges.extend((0..5).map(|number| (number, 5)));
    assert_eq!(this.graph.predecessors(last).unwrap().len(), 4);
    this.check(setup, FinalizeOptions::new());
}

fn every_way_to_finalize_keeps_the_order(setup: &Setup) {
    for partition in [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager] {
        for order in [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst] {
            for (in_order, profiling, priority) in [
                (false, false, Priority::Normal),
                (true, false, Priority::High),
                (false, true, Priority::Low),
                (false, true, Priority::High),
            ] {
                let Some(mut this) = Noted::new(setup, 8) else { return };
                let edges = [(0, 2), (1, 2), (2, 3), (2, 4), (7, 5), (3, 5), (4, 6), (6, 5)];
                edges.into_iter().for_each(|(from, to)| this.edge(from, to));
                let options = FinalizeOptions::new().partition(partition).order(order);
                this.check(setup, options.in_order(in_order).profiling(profiling).priority(priority));
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

fn without_the_check_finalize_finds_the_cycle(setup: &Setup) {
    let properties = GraphProperties::default().no_cycle_check(true);
    let mut graph = Graph::with_properties(setup.device(), properties);
    let x = setup.device().buffer::<u32>(4).unwrap();
    let (a, b) = (graph.fill(&x, 1).id(), graph.fill(&x, 2).id());
    let exec = graph.finalize().unwrap();
    setup.block_on(async { exec.submit().await }).unwrap();
    graph.make_edge(b, a).unwrap();
    assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::Cycle);
    assert_eq!(graph.successors(a).unwrap(), [b]);
}
