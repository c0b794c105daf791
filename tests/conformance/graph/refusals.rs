//! What is refused before anything runs: the first mistake comes out of `finalize`, with its place
//! in the source.

use wakegraph::{ErrorKind, Graph, Layout, NodeId, Range, RectCopy, read, write};

use crate::kernels::{add, axpy};
use crate::registry::{Setup, tests};

tests!("graph/refusals": &[] => [wrong_nodes, nodes_of_other_graphs, buffers, a_refused_graph_names_all_its_errors]);

#[track_caller]
fn refused(setup: &Setup, kind: ErrorKind, build: impl FnOnce(&mut Graph) -> NodeId) {
    let mut graph = Graph::new(setup.device());
    build(&mut graph);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert_eq!(graph.errors().len(), 1);
    assert!(error.node().is_some(), "{error}");
    assert!(error.to_string().contains("refusals.rs"), "{error}");
}

fn wrong_nodes(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(8).unwrap(), device.buffer::<u32>(9).unwrap());
    let host = device.host_buffer::<u32>(8).unwrap();
    let size = ErrorKind::InvalidSize;
    let argument = ErrorKind::InvalidArgument;
    refused(setup, size, |graph| graph.launch(add(1, &x), Range::linear(0)).id());
    refused(setup, size, |graph| graph.launch(add(1, &x), Range::linear(8).local([3])).id());
    refused(setup, argument, |graph| graph.launch(axpy(1, &x, &x), Range::linear(8)).id());
    refused(setup, size, |graph| graph.copy(&x, &y).id());
    refused(setup, argument, |graph| graph.copy(&host, &host).id());
    refused(setup, size, |graph| graph.fill_pattern(&x, &[1, 2, 3]).id());
    refused(setup, size, |graph| graph.fill_pattern(&x, &[]).id());
    refused(setup, size, |graph| graph.write(&x, &[1]).id());
    let outside = RectCopy::new([4, 3], Layout::rows(4), Layout::rows(4));
    refused(setup, size, |graph| graph.copy_rect(&x, &host, outside).id());
    let empty = RectCopy::new([0, 3], Layout::rows(4), Layout::rows(4));
    refused(setup, size, |graph| graph.copy_rect(&x, &host, empty).id());
    let nothing = async |_| {};
    refused(setup, argument, |graph| graph.host_task((read(&host), write(&host)), nothing).id());
    refused(setup, argument, |graph| graph.host_task((), async |()| {}).on(device).id());
    refused(setup, argument, |graph| graph.sub_graph(&Graph::new(device)).on(device).id());
}

fn nodes_of_other_graphs(setup: &Setup) {
    let mut other = Graph::new(setup.device());
    let foreign = other.empty().id();
    let mut graph = Graph::new(setup.device());
    graph.empty().after([foreign]);
    assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::InvalidArgument);
}

fn buffers(setup: &Setup) {
    let device = setup.device();
    assert_eq!(device.buffer::<u32>(0).unwrap_err().kind(), ErrorKind::InvalidSize);
    assert_eq!(device.buffer::<u64>(usize::MAX).unwrap_err().kind(), ErrorKind::InvalidSize);
    assert_eq!(device.host_buffer::<[u8; 0]>(4).unwrap_err().kind(), ErrorKind::InvalidSize);
    assert_eq!(device.buffer::<u8>(isize::MAX as usize).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let x = device.buffer::<u32>(4).unwrap();
    for range in [0..0, 2..5, 4..4, 5..6] {
        assert_eq!(x.slice(range).unwrap_err().kind(), ErrorKind::InvalidSize);
    }
}

fn a_refused_graph_names_all_its_errors(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(8).unwrap();
    let mut graph = Graph::new(device);
    graph.fill_pattern(&x, &[]);
    graph.launch(add(1, &x), Range::linear(0));
    assert_eq!(graph.errors().len(), 2);
    let mut parent = Graph::new(device);
    parent.sub_graph(&graph);
    assert_eq!(parent.finalize().unwrap_err().kind(), ErrorKind::InvalidSize);
}
