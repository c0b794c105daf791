//! Finalizing a graph as a whole, beside adding the same nodes to the driver's graph by hand.

use std::hint::black_box;

use wakegraph::{Buffer, Device, Graph, Range};

use crate::raw::Raw;
use crate::support::{self, Contender, Report, Row};
use crate::{bump, memory_of};

pub(crate) fn rows(report: &mut Report, device: &Device, raw: &Raw) {
    for (nodes, rounds, samples) in [(10, 50, 10), (1_000, 20, 1), (100_000, 3, 1)] {
        let name = format!("finalize_{nodes}");
        if report.wants(&name) {
            let memory = memory_of(device);
            let row = Row::new(&name).limit(2.0).operations(nodes).rounds(rounds, samples);
            let base = AddedByHand { raw: raw.clone(), nodes, memory: memory.clone() };
            report.race(row, &support::current_thread(), Finalized::new(device, nodes, &memory), base);
        }
    }
}

struct Finalized(Graph);

impl Finalized {
    fn new(device: &Device, nodes: usize, x: &Buffer<u32>) -> Self {
        let mut graph = Graph::new(device);
        for _ in 0..nodes {
            graph.launch(bump(1, x), Range::linear(1));
        }
        Self(graph)
    }
}

impl Contender for Finalized {
    async fn once(&mut self) {
        black_box(self.0.finalize().expect("a valid graph"));
    }
}

struct AddedByHand {
    raw: Raw,
    nodes: usize,
    memory: Buffer<u32>,
}

impl Contender for AddedByHand {
    async fn once(&mut self) {
        black_box(self.raw.chain_on(self.nodes, &self.memory));
    }
}
