//! On CUDA, native commands may allocate on the stream: such work is a graph of the driver's own, launched
//! between the others.
#![expect(unsafe_code, reason = "every native command vouches for what it does")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use wakegraph::hal::{NativeStream, UsmPointer};
use wakegraph::interop::NativeAccess;
use wakegraph::{Buffer, Error, ErrorKind, FinalizeOptions, Graph, Range, Result};

use super::raw::{allocate, copy, free, set};
use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, lacks, tests};
use crate::support::PANIC;

tests!("graph/native/allocations": &[Need::Cuda] => [a_workspace, many_in_flight, alone_and_in_a_row, beside_each_other,
    memory_that_stays, with_profiling, updates_of_other_commands, whole_updates, bodies_refuse_by_name,
    errors_and_panics, dropped_in_any_order]);

/// Adds a command that exchanges the contents of two buffers by a workspace that it allocates.
fn swap(graph: &mut Graph, x: &Buffer<u32>, y: &Buffer<u32>) {
    let accesses = [NativeAccess::write(x), NativeAccess::write(y)];
    // SAFETY: it copies between the two and memory that it allocates and frees on the stream.
    unsafe { graph.native("swap", accesses, |stream, [x, y]| exchange(stream, x, y)) };
}

fn exchange(stream: &NativeStream<'_>, x: UsmPointer, y: UsmPointer) -> Result<()> {
    let workspace = allocate(stream.stream(), x.len())?;
    copy(stream.stream(), x, workspace)?;
    copy(stream.stream(), y, x)?;
    copy(stream.stream(), workspace, y)?;
    free(stream.stream(), workspace)
}

/// Buffers of ones and of twos.
fn two(setup: &Setup) -> (Buffer<u32>, Buffer<u32>) {
    let buffer = |word| setup.device().buffer_from(&[word; 1000]).unwrap();
    (buffer(1), buffer(2))
}

#[track_caller]
fn check(setup: &Setup, buffers: [&Buffer<u32>; 2], words: [u32; 2]) {
    for (buffer, word) in buffers.into_iter().zip(words) {
        assert_eq!(setup.block_on(async { buffer.to_vec().await.unwrap() }), [word; 1000]);
    }
}

// add 1 to x -> swap -> add 10 to x
fn between_kernels(x: &Buffer<u32>, y: &Buffer<u32>) -> Graph {
    let mut graph = Graph::new(x.device());
    graph.launch(add(1, x), Range::linear(1000));
    swap(&mut graph, x, y);
    graph.launch(add(10, x), Range::linear(1000));
    graph
}

fn a_workspace(setup: &Setup) {
    let (x, y) = two(setup);
    let exec = between_kernels(&x, &y).finalize().unwrap();
    let mut words = [1, 2];
    for _ in 0..3 {
        setup.block_on(async { exec.submit().await.unwrap() });
        words = [words[1] + 10, words[0] + 1];
        check(setup, [&x, &y], words);
    }
}

fn many_in_flight(setup: &Setup) {
    let (x, y) = two(setup);
    let exec = between_kernels(&x, &y).finalize().unwrap();
    setup.block_on(async {
        for _ in 0..100 {
            let submissions = [(); 20].map(|()| exec.submit());
            for submission in submissions {
                submission.await.unwrap();
            }
        }
    });
    // Two submissions add 11 to each.
    check(setup, [&x, &y], [1 + 11 * 1000, 2 + 11 * 1000]);
}

fn alone_and_in_a_row(setup: &Setup) {
    let (x, y) = two(setup);
    for (count, words) in [(1, [2, 1]), (2, [2, 1]), (3, [1, 2])] {
        let mut graph = Graph::new(setup.device());
        (0..count).for_each(|_| swap(&mut graph, &x, &y));
        let exec = graph.finalize().unwrap();
        setup.block_on(async { exec.submit().await.unwrap() });
        check(setup, [&x, &y], words);
    }
}

// Two commands that use different buffers, and kernels beside both.
fn beside_each_other(setup: &Setup) {
    let ((x, y), (z, w), (v, _)) = (two(setup), two(setup), two(setup));
    let mut graph = Graph::new(setup.device());
    graph.launch(mix(1, &v), Range::linear(1000));
    swap(&mut graph, &x, &y);
    graph.launch(add(1, &z), Range::linear(1000));
    swap(&mut graph, &z, &w);
    graph.launch(mix(1, &v), Range::linear(1000));
    graph.launch(add(5, &y), Range::linear(1000));
    graph.launch(add(6, &w), Range::linear(1000));
    let exec = graph.finalize().unwrap();
    setup.block_on(async { exec.submit().await.unwrap() });
    check(setup, [&x, &y], [2, 6]);
    check(setup, [&z, &w], [2, 8]);
    check(setup, [&v, &v], [(31 + 1) * 31 + 1; 2]);
}

/// Memory that a capture has allocated, and that its last user frees.
#[derive(Default)]
struct Kept {
    address: AtomicUsize,
}

impl Kept {
    /// The memory, which has so many bytes.
    fn pointer(&self, len: usize) -> UsmPointer {
        // SAFETY: so many bytes have been allocated there.
        unsafe { UsmPointer::new(self.address.load(Ordering::Relaxed), len) }
    }
}

// A result that a library allocates while it is captured, and that is read after each run.
fn memory_that_stays(setup: &Setup) {
    let device = setup.device();
    let ((x, y), kept) = (two(setup), Arc::new(Kept::default()));
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(1000));
    let allocated = kept.clone();
    // SAFETY: it copies to memory that it allocates on the stream.
    unsafe {
        graph.native("result", [NativeAccess::read(&x)], move |stream, [x]| {
            let result = allocate(stream.stream(), x.len())?;
            allocated.address.store(result.address(), Ordering::Relaxed);
            copy(stream.stream(), x, result)
        })
    };
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        let address = kept.address.load(Ordering::Relaxed);
        // SAFETY: the memory lives until it is freed below, and each submission is awaited.
        let result = unsafe { device.import::<u32>(address, 1000, ()) }.unwrap();
        let mut reader = Graph::new(device);
        reader.copy(&result, &y);
        let reader = reader.finalize().unwrap();
        for run in 2..50 {
            reader.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [run; 1000]);
            exec.submit().await.unwrap();
        }
        drop((exec, graph));
        reader.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [50; 1000]);
    });
    super::raw::bind();
    free(std::ptr::null_mut(), kept.pointer(4000)).unwrap();
}

fn with_profiling(setup: &Setup) {
    let (x, y) = two(setup);
    let exec = between_kernels(&x, &y).finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let mut submission = exec.submit();
            (&mut submission).await.unwrap();
            let profile = submission.profile().unwrap();
            assert_eq!(profile.nodes.len(), 3);
            assert!(profile.nodes.iter().all(|node| node.start <= node.end), "{profile:?}");
        }
    });
    check(setup, [&x, &y], [1 + 11, 2 + 11]);
}

fn updates_of_other_commands(setup: &Setup) {
    let (x, y) = two(setup);
    let mut graph = Graph::new(setup.device());
    let first = graph.launch(add(1, &x), Range::linear(1000)).id();
    swap(&mut graph, &x, &y);
    let last = graph.launch(add(10, &x), Range::linear(1000)).id();
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    setup.block_on(async {
        exec.update().launch(first, add(2, &x)).launch(last, add(20, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
    });
    check(setup, [&x, &y], [22, 3]);
    setup.block_on(async {
        exec.update().enabled(last, false).apply().await.unwrap();
        exec.submit().await.unwrap();
    });
    check(setup, [&x, &y], [3, 24]);
}

fn whole_updates(setup: &Setup) {
    let device = setup.device();
    let (x, y) = two(setup);
    let exec = between_kernels(&x, &y).finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let in_flight = exec.submit();
    let (z, w) = (device.buffer_from(&[7u32; 50]).unwrap(), device.buffer_from(&[8u32; 50]).unwrap());
    let mut other = Graph::new(device);
    other.launch(add(1, &z), Range::linear(50));
    swap(&mut other, &z, &w);
    other.launch(add(10, &z), Range::linear(50));
    setup.block_on(async {
        exec.update_from(&other).await.unwrap();
        exec.submit().await.unwrap();
        in_flight.await.unwrap();
        assert_eq!((z.to_vec().await.unwrap(), w.to_vec().await.unwrap()), (vec![18; 50], vec![8; 50]));
    });
    check(setup, [&x, &y], [12, 2]);
}

fn bodies_refuse_by_name(setup: &Setup) {
    let device = setup.device();
    if !device.capabilities().commands.contains(wakegraph::capabilities::CommandKinds::IF) {
        return lacks("conditionals");
    }
    let ((x, y), flag) = (two(setup), device.buffer_from(&[1u32]).unwrap());
    let mut body = Graph::new(device);
    swap(&mut body, &x, &y);
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &body);
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
    assert!(error.to_string().contains("'swap' allocates memory"), "{error}");
}

fn errors_and_panics(setup: &Setup) {
    let (x, y) = two(setup);
    for panics in [false, true] {
        let mut graph = Graph::new(setup.device());
        // SAFETY: it writes the buffer, and allocates on the stream.
        unsafe {
            graph.native("step", [NativeAccess::write(&x)], move |stream, [x]| {
                let workspace = allocate(stream.stream(), x.len())?;
                set(stream.stream(), workspace, 1)?;
                assert!(!panics, "{PANIC}");
                Err(Error::new(ErrorKind::OutOfMemory, "no workspace left"))
            })
        };
        let error = graph.finalize().unwrap_err();
        let expected = if panics { ErrorKind::NativePanicked } else { ErrorKind::OutOfMemory };
        assert_eq!(error.kind(), expected, "{error}");
        assert!(error.to_string().contains("'step'"), "{error}");
    }
    let exec = between_kernels(&x, &y).finalize().unwrap();
    setup.block_on(async { exec.submit().await.unwrap() });
    check(setup, [&x, &y], [12, 2]);
}

fn dropped_in_any_order(setup: &Setup) {
    let (x, y) = two(setup);
    for _ in 0..20 {
        let graph = between_kernels(&x, &y);
        let (one, two) = (graph.finalize().unwrap(), graph.finalize().unwrap());
        let (first, second) = (one.submit(), two.submit());
        drop((two, graph));
        setup.block_on(async { second.await.unwrap() });
        drop((one, first));
    }
    check(setup, [&x, &y], [1 + 11 * 20, 2 + 11 * 20]);
}
