//! On CUDA, what is enqueued on the stream is captured.
#![expect(unsafe_code, reason = "every native command vouches for what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakegraph::hal::{NativeStream, UsmPointer};
use wakegraph::interop::NativeAccess;
use wakegraph::{Buffer, Device, Error, ErrorKind, FinalizeOptions, Graph, Range, Result};

use super::raw::{self, Branch, TheirGraph, allocate, copy, free, set, synchronize};
use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, lacks, tests};
use crate::support::PANIC;

tests!("graph/native/cuda": &[Need::Cuda] => [work_is_part_of_the_graph, streams_may_branch, called_once_a_finalize,
    inside_bodies_and_sub_graphs, nothing_is_enqueued, with_profiling, errors_of_the_closure, panics_of_the_closure,
    what_cannot_be_captured, a_stream_that_does_not_join, the_context_is_current,
    a_graph_of_the_application, a_graph_that_allocates_is_refused]);

/// A graph of one native command that writes the buffer.
fn native(
    device: &Device,
    x: &Buffer<u32>,
    closure: impl Fn(&NativeStream<'_>, UsmPointer) -> Result<()> + Send + Sync + 'static,
) -> Graph {
    let mut graph = Graph::new(device);
    // SAFETY: all closures here set the words of the buffer, on the stream.
    unsafe { graph.native("mine", [NativeAccess::write(x)], move |stream, [x]| closure(stream, x)) };
    graph
}

// mix 1 -> y = x, x = 5 -> mix 2
fn work_is_part_of_the_graph(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer_from(&[1u32; 4]).unwrap(), device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(device);
    graph.launch(mix(1, &x), Range::linear(4));
    let accesses = [NativeAccess::write(x.slice(1..3).unwrap()), NativeAccess::write(y.slice(2..).unwrap())];
    // SAFETY: it copies from the one and to the other, and writes the one, in the order of the stream.
    unsafe {
        graph.native("swap", accesses, |stream, [x, y]| {
            assert_eq!((stream.backend(), x.len(), y.len()), ("cuda", 8, 8));
            copy(stream.stream(), x, y)?;
            set(stream.stream(), x, 5)
        })
    };
    graph.launch(mix(2, &x), Range::linear(4));
    graph.launch(add(1, &y), Range::linear(4));
    let exec = graph.finalize().unwrap();
    drop(graph);
    setup.block_on(async {
        let (mut ends, mut inner) = (1u32, 1u32);
        for run in 1..4 {
            exec.submit().await.unwrap();
            let seen = inner.wrapping_mul(31).wrapping_add(1);
            (ends, inner) = (ends.wrapping_mul(961).wrapping_add(33), 5 * 31 + 2);
            assert_eq!(x.to_vec().await.unwrap(), [ends, inner, inner, ends]);
            assert_eq!(y.to_vec().await.unwrap(), [run, run, seen + 1, seen + 1]);
        }
    });
}

fn streams_may_branch(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(1000).unwrap(), device.buffer::<u32>(1000).unwrap());
    let mut graph = Graph::new(device);
    graph.fill(&x, 1);
    graph.fill(&y, 2);
    let branch = Branch::new();
    // SAFETY: the branch writes the one and the stream the other; then, joined, one is copied to the other.
    unsafe {
        graph.native("both", [NativeAccess::write(&x), NativeAccess::write(&y)], move |stream, [x, y]| {
            branch.branch_off(stream)?;
            set(branch.stream(), x, 3)?;
            set(stream.stream(), y, 4)?;
            branch.join(stream)?;
            copy(stream.stream(), x, y)
        })
    };
    graph.launch(add(1, &y), Range::linear(1000));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!(
                (x.to_vec().await.unwrap(), y.to_vec().await.unwrap()),
                (vec![3; 1000], vec![4; 1000])
            );
        }
    });
}

fn called_once_a_finalize(setup: &Setup) {
    let (device, calls) = (setup.device(), Arc::new(AtomicUsize::new(0)));
    let x = device.buffer::<u32>(1).unwrap();
    let counted = calls.clone();
    let graph = native(device, &x, move |stream, x| {
        set(stream.stream(), x, counted.fetch_add(1, Ordering::Relaxed) as u32 + 10)
    });
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let (one, two) = (graph.finalize().unwrap(), graph.finalize().unwrap());
    setup.block_on(async {
        for _ in 0..2 {
            for (exec, value) in [(&one, 10), (&two, 11)] {
                exec.submit().await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [value]);
            }
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

fn inside_bodies_and_sub_graphs(setup: &Setup) {
    let device = setup.device();
    if !device.capabilities().commands.contains(wakegraph::capabilities::CommandKinds::WHILE) {
        return lacks("loops");
    }
    let (flag, x) = (device.buffer::<u32>(1).unwrap(), device.buffer_from(&[1u32; 2]).unwrap());
    let first = x.slice(..1).unwrap();
    let child = native(device, &first, |stream, x| set(stream.stream(), x, 7));
    let mut body = Graph::new(device);
    body.sub_graph(&child);
    body.launch(add(1, &x), Range::linear(2));
    body.launch(add(u32::MAX, &flag), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.sub_graph(&child);
    graph.while_nonzero(&flag, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut second = 1;
        for rounds in [0, 1, 4] {
            flag.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            second += rounds;
            assert_eq!(x.to_vec().await.unwrap(), [if rounds == 0 { 7 } else { 8 }, second]);
        }
    });
}

fn nothing_is_enqueued(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32]).unwrap();
    let mut graph = native(device, &x, |_, _| Ok(()));
    graph.launch(add(1, &x), Range::linear(1));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [2]);
    });
}

fn with_profiling(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(1 << 20).unwrap();
    let graph = native(device, &x, |stream, x| set(stream.stream(), x, 9));
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let mut submission = exec.submit();
            (&mut submission).await.unwrap();
            let profile = submission.profile().unwrap();
            assert_eq!(profile.nodes.len(), 1);
            assert!(profile.nodes[0].start <= profile.nodes[0].end, "{profile:?}");
        }
        assert_eq!(x.to_vec().await.unwrap(), [9; 1 << 20]);
    });
}

/// Finalizes a graph whose native command fails, and then one whose does not.
#[track_caller]
fn fails(setup: &Setup, graph: &Graph, x: &Buffer<u32>) -> Error {
    let error = graph.finalize().unwrap_err();
    assert!(error.node().unwrap().contains("native command 'mine' (#0)"), "{error}");
    let good = native(setup.device(), x, |stream, x| set(stream.stream(), x, 3)).finalize().unwrap();
    setup.block_on(async {
        good.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [3]);
    });
    error
}

fn errors_of_the_closure(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    let graph = native(setup.device(), &x, |stream, x| {
        set(stream.stream(), x, 1)?;
        Err(Error::new(ErrorKind::OutOfMemory, "no workspace left"))
    });
    let error = fails(setup, &graph, &x);
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("no workspace left"), "{error}");
}

fn panics_of_the_closure(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    let graph = native(setup.device(), &x, |stream, x| {
        set(stream.stream(), x, 1)?;
        panic!("{PANIC}");
    });
    let error = fails(setup, &graph, &x);
    assert_eq!(error.kind(), ErrorKind::NativePanicked, "{error}");
    assert!(error.message().contains(PANIC), "{error}");
}

// A wait breaks the capture, whether the closure minds or not.
fn what_cannot_be_captured(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    for minds in [true, false] {
        let graph = native(setup.device(), &x, move |stream, x| {
            set(stream.stream(), x, 1)?;
            let waited = synchronize(stream.stream());
            if minds { waited } else { Ok(()) }
        });
        let error = fails(setup, &graph, &x);
        assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
        assert!(error.message().contains("'mine'"), "{error}");
    }
}

fn a_stream_that_does_not_join(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    let branch = Branch::new();
    let graph = native(setup.device(), &x, move |stream, x| {
        branch.branch_off(stream)?;
        set(branch.stream(), x, 1)
    });
    let error = fails(setup, &graph, &x);
    assert_eq!(error.kind(), ErrorKind::Driver, "{error}");
}

fn the_context_is_current(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32]).unwrap();
    let mut graph = native(device, &x, |stream, x| {
        assert_eq!(raw::current(), stream.context());
        set(stream.stream(), x, 2)?;
        raw::forget_current();
        Ok(())
    });
    graph.launch(add(1, &x), Range::linear(1));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [3]);
    });
}

// x = 1, their graph: x = 3, y = x -> add 1 to y
fn a_graph_of_the_application(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(1000).unwrap(), device.buffer::<u32>(1000).unwrap());
    let mut graph = Graph::new(device);
    // SAFETY: so many bytes are there, in the order that the graph around it keeps.
    let words = unsafe { UsmPointer::new(x.address().unwrap(), 4000) };
    let theirs = TheirGraph::of(|stream| set(stream, words, 3));
    // SAFETY: their graph and the stream write the one, and the stream copies it to the other.
    unsafe {
        graph.native("both", [NativeAccess::write(&x), NativeAccess::write(&y)], move |stream, [x, y]| {
            set(stream.stream(), x, 1)?;
            theirs.add_to(stream)?;
            copy(stream.stream(), x, y)
        })
    };
    graph.launch(add(1, &y), Range::linear(1000));
    let (one, two) = (graph.finalize().unwrap(), graph.finalize().unwrap());
    // The executables have a copy of the graph.
    drop(graph);
    setup.block_on(async {
        for exec in [&one, &two, &one] {
            exec.submit().await.unwrap();
            assert_eq!(
                (x.to_vec().await.unwrap(), y.to_vec().await.unwrap()),
                (vec![3; 1000], vec![4; 1000])
            );
        }
    });
}

fn a_graph_that_allocates_is_refused(setup: &Setup) {
    let x = setup.device().buffer::<u32>(1).unwrap();
    let theirs = TheirGraph::of(|stream| allocate(stream, 4000).and_then(|memory| free(stream, memory)));
    let graph = native(setup.device(), &x, move |stream, _| theirs.add_to(stream));
    let error = fails(setup, &graph, &x);
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
    assert!(error.to_string().contains("memory nodes"), "{error}");
}
