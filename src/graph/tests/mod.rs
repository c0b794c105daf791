//! Behaviour of the graph as its users see it.

mod accesses;
mod building;
mod cycles;
mod drawing;

use fixedbitset::FixedBitSet;
use wakegraph_hal::{Access, AccessMode, CommandKind, DeviceId, ResourceId};

use super::{Content, Graph, NodeId};

const DEVICE: DeviceId = DeviceId::from_raw(0);

/// A graph of this many kernels, without edges.
fn kernels(count: usize) -> (Graph<()>, Vec<NodeId>) {
    let mut graph = Graph::new();
    let ids = (0..count).map(|_| kernel(&mut graph, &[])).collect();
    (graph, ids)
}

fn kernel(graph: &mut Graph<()>, accesses: &[Access]) -> NodeId {
    graph.add(CommandKind::Kernel, DEVICE, Content::Command(()), accesses)
}

fn read(resource: ResourceId, start: usize, end: usize) -> Access {
    Access { resource, start, end, mode: AccessMode::Read }
}

fn write(resource: ResourceId, start: usize, end: usize) -> Access {
    Access { resource, start, end, mode: AccessMode::Write }
}

fn edges(graph: &Graph<()>) -> Vec<(u32, u32)> {
    graph.edges().collect()
}

/// `reaches[i][j]`: there is a path of at least one edge from `i` to `j`. By Warshall.
fn closure(nodes: usize, edges: impl IntoIterator<Item = (u32, u32)>) -> Vec<FixedBitSet> {
    let mut reaches = vec![FixedBitSet::with_capacity(nodes); nodes];
    for (from, to) in edges {
        reaches[from as usize].insert(to as usize);
    }
    for via in 0..nodes {
        let beyond = reaches[via].clone();
        for from in reaches.iter_mut().filter(|from| from.contains(via)) {
            from.union_with(&beyond);
        }
    }
    reaches
}
