//! What is refused before anything runs: the first mistake comes out of `finalize`, with its place
//! in the source.

use wakegraph::{ErrorKind, Graph, Layout, NodeId, Range, RectCopy, read, write};

use crate::kernels::{add, axpy};
use crate::registry::{Need, Setup, tests};

tests!("graph/refusals":
    &[] => [wrong_nodes, nodes_of_other_graphs, buffers, a_refused_graph_names_all_its_errors],
    &[Need::Results] => [a_graph_runs_when_its_errors_are_taken]);

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

// Refused nodes between good ones, each of another kind of mistake.
fn a_graph_runs_when_its_errors_are_taken(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer_from(&[1u32; 4]).unwrap(), device.buffer::<u32>(3).unwrap());
    let foreign = Graph::new(device).empty().id();
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(4));
    let refused = graph.copy(&x, &y).id();
    graph.launch(add(10, &x), Range::linear(0)).name("none");
    graph.fill_pattern(&x, &[]);
    graph.launch(add(100, &x), Range::linear(4)).after([foreign, refused]);
    let mut wrong = Graph::new(device);
    wrong.launch(axpy(1, &x, &x), Range::linear(4));
    graph.sub_graph(&wrong);
    let kinds: Vec<_> = graph.errors().iter().map(wakegraph::Error::kind).collect();
    let (size, argument) = (ErrorKind::InvalidSize, ErrorKind::InvalidArgument);
    assert_eq!(kinds, [size, size, size, argument, argument]);
    graph.finalize().unwrap_err();
    assert_eq!(graph.take_errors().len(), 5);
    assert!(graph.take_errors().is_empty());
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 1..=2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [1 + 101 * round; 4]);
        }
    });
}
