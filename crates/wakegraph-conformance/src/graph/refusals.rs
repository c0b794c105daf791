//! Mistakes that are refused before anything runs: the first one comes out of `finalize`, with its place
//! in the source.
#![expect(unsafe_code, reason = "declares device code")]

use bytemuck::{Pod, Zeroable};
use wakegraph::kernel::{KernelCall, RawKernel};
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{ErrorKind, Graph, Local, NodeId, Range, kernel, read, write};

use crate::kernels::{add, axpy};
use crate::suite::{Need, Setup, tests};

tests!("graph/refusals":
    &[] => [wrong_nodes, nodes_of_other_graphs, buffers, a_refused_graph_names_all_its_errors],
    &[Need::DeviceCode] => [sources_with_other_types],
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
    refused(setup, size, |graph| graph.launch(add(1, &x), Range::linear(8).local([3])).id());
    refused(setup, argument, |graph| graph.launch(axpy(1, &x, &x), Range::linear(8)).id());
    refused(setup, size, |graph| graph.copy(&x, &y).id());
    refused(setup, argument, |graph| graph.copy(&host, &host).id());
    refused(setup, size, |graph| graph.fill_pattern(&x, &[1, 2, 3]).id());
    refused(setup, size, |graph| graph.fill_pattern(&x, &[]).id());
    refused(setup, size, |graph| graph.write(&x, &[1]).id());
    let outside = RectCopy::new([4, 3], Layout::rows(4), Layout::rows(4));
    refused(setup, size, |graph| graph.copy_rect(&x, &host, outside).id());
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
    assert_eq!(device.buffer::<u64>(usize::MAX).unwrap_err().kind(), ErrorKind::InvalidSize);
    assert_eq!(device.host_buffer::<[u8; 0]>(4).unwrap_err().kind(), ErrorKind::InvalidSize);
    assert_eq!(device.buffer::<u8>(isize::MAX as usize).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let x = device.buffer::<u32>(4).unwrap();
    for range in [2..5, 5..5, 5..6] {
        assert_eq!(x.slice(range).unwrap_err().kind(), ErrorKind::InvalidSize);
    }
}

fn a_refused_graph_names_all_its_errors(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(8).unwrap();
    let mut graph = Graph::new(device);
    graph.fill_pattern(&x, &[]);
    graph.launch(add(1, &x), Range::linear(9));
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
    graph.launch(add(10, &x), Range::linear(5)).name("too many");
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

#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Pair {
    number: f32,
    index: u32,
}

/// Kernels that are declared with other types than their source has, and one that is not. None is launched.
const OTHER_TYPES: &str = "
    typedef struct { float number; u32 index; } Pair;
    struct Three { float numbers[3]; };
    typedef float real;
    KERNEL(wide, (SLICE(double, x))) { x[GLOBAL_ID(0)] = 1; }
    KERNEL(written, (SLICE(float, x), SLICE(float, y))) { x[GLOBAL_ID(0)] = 1; y[GLOBAL_ID(0)] = 2; }
    KERNEL(wide_tile, (LOCAL_SLICE(u32, tile), SLICE(u32, x))) { tile[LOCAL_ID(0)] = x[GLOBAL_ID(0)]; }
    KERNEL(wide_value, (double a, SLICE(float, x))) { x[GLOBAL_ID(0)] = (float)a; }
    KERNEL(wide_pair, (SLICE(const struct Three, x))) { }
    KERNEL(wide_struct, (struct Three a, SLICE(float, x))) { x[GLOBAL_ID(0)] = a.numbers[0]; }
    KERNEL(right, (SLICE(const Pair, x), Pair a, SLICE(real, y), LOCAL_SLICE(unsigned char, tile))) { } // \\";

kernel! {
    fn wide(x: &mut [f32]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn written(x: &[f32], y: &mut [f32]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn wide_tile(tile: Local<u16>, x: &mut [u32]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn wide_value(a: f32, x: &mut [f32]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn wide_pair(x: &[Pair]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn wide_struct(a: Pair, x: &mut [f32]) {
        // SAFETY: it has other types, so that it is refused and never launched.
        c: unsafe { OTHER_TYPES },
    }
    fn right(x: &[Pair], a: Pair, y: &mut [f32], tile: Local<u8>) {
        // SAFETY: it does nothing.
        c: unsafe { OTHER_TYPES },
    }
}

fn sources_with_other_types(setup: &Setup) {
    let device = setup.devices.iter().find(|device| device.info().backend != "host").unwrap();
    let (x, y) = (device.buffer::<f32>(8).unwrap(), device.buffer::<f32>(8).unwrap());
    let (words, pairs) = (device.buffer::<u32>(8).unwrap(), device.buffer::<Pair>(8).unwrap());
    let pair = Pair { number: 1.0, index: 2 };
    // SAFETY: it has other types, so that it is refused and never launched.
    let raw = unsafe { RawKernel::new("wide").writes::<f32>("x").with_c(OTHER_TYPES) }.build();
    let finalize = |call: KernelCall| {
        let mut graph = Graph::new(device);
        graph.launch(call, Range::linear(8).local([4]));
        graph.finalize().map(drop)
    };
    for (call, names) in [
        (wide(&x), ["x", "4 bytes"]),
        (raw.call().memory::<f32>(&x).into(), ["x", "4 bytes"]),
        (written(&x, &y), ["x", "read only"]),
        (wide_tile(Local::new(4), &words), ["tile", "2 bytes"]),
        (wide_value(1.0, &x), ["a", "4 bytes"]),
        (wide_pair(&pairs), ["x", "8 bytes"]),
        (wide_struct(pair, &x), ["a", "8 bytes"]),
    ] {
        let error = finalize(call).unwrap_err().to_string();
        for name in names.into_iter().chain(["parameter", "declared", "source"]) {
            assert!(error.contains(name), "{name} in {error}");
        }
    }
    finalize(right(&pairs, pair, &x, Local::new(4))).unwrap();
}
