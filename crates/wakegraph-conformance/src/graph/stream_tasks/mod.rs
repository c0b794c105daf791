//! Stream tasks: closures that run live in every submission, in their place.
#![expect(unsafe_code, reason = "every stream task vouches for what it does")]

mod calls;
mod cuda;
mod hip;
mod level_zero;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use parking_lot::Mutex;
use wakegraph::graph::CommandKind;
use wakegraph::interop::{NativeAccess, NativeMemory, NativeStream};
use wakegraph::plan::PartitionKind;
use wakegraph::{
    Buffer, Device, Error, ErrorKind, FinalizeOptions, Graph, NodeId, Range, Result, Submission, read,
};

use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, Test, lacks, tests};
use crate::support::PANIC;
use calls::{copy, set};

tests!("graph/stream_tasks":
    &[] => [accesses_make_edges, plans_show_what_is_live, bodies_refuse_by_name, scratch_memory_is_refused,
        single_updates_refuse_by_name],
    &[Need::Results] => [between_kernels, one_after_the_other, alone, on_views, errors_of_the_closure,
        panics_of_the_closure, what_depends_on_a_failure_does_not_run, it_may_submit, several_threads_submit,
        whole_updates_replace_the_closure, after_a_host_task, inside_a_sub_graph, on_a_queue, with_profiling,
        memory_outlives_handles],
    &[Need::FailingKernels] => [nothing_is_called_after_a_failure],
    &[Need::Results, Need::TwoDevices] => [between_two_devices]);

pub(crate) fn tests() -> impl Iterator<Item = Test> {
    TESTS.iter().chain(cuda::TESTS).copied()
}

/// Adds a stream task that writes the buffer.
fn task(
    graph: &mut Graph,
    x: &Buffer<u32>,
    closure: impl Fn(&NativeStream<'_>, NativeMemory<'_>) -> Result<()> + Send + Sync + 'static,
) -> NodeId {
    let accesses = [NativeAccess::write(x)];
    // SAFETY: all closures here set words of the buffer, on the stream.
    unsafe { graph.stream_task("mine", accesses, move |stream, [x]| closure(stream, x)) }.id()
}

fn buffer<const N: usize>(device: &Device, words: [u32; N]) -> Buffer<u32> {
    device.buffer_from(&words).unwrap()
}

fn accesses_make_edges(setup: &Setup) {
    let device = setup.device();
    let [x, y] = [(); 2].map(|()| device.buffer::<u32>(4).unwrap());
    let mut graph = Graph::new(device);
    let [a, b] = [&x, &y].map(|buffer| graph.fill(buffer, 1).id());
    let accesses = [NativeAccess::read(&x), NativeAccess::write(y.slice(..2).unwrap())];
    // SAFETY: it does nothing.
    let node = unsafe { graph.stream_task("mine", accesses, |_, [_, _]| Ok(())) }.id();
    assert_eq!(graph.predecessors(node).unwrap(), [a, b]);
    let after = graph.fill(&x, 2).id();
    assert_eq!(graph.predecessors(after).unwrap(), [node]);
    assert_eq!(graph.kind(node).unwrap(), CommandKind::StreamTask);
    assert_eq!(graph.name(node).unwrap(), Some("mine"));
    assert!(graph.dot(true).contains("stream task 'mine' (#2)\\l2 accesses"), "{}", graph.dot(true));
}

fn plans_show_what_is_live(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.fill(&x, 1);
    task(&mut graph, &x, |_, _| Ok(()));
    graph.fill(&x, 2);
    let exec = graph.finalize().unwrap();
    let kinds: Vec<_> = exec.plan().partitions().iter().map(|partition| partition.kind).collect();
    let (on_device, live) =
        (PartitionKind::Device(device.info().id), PartitionKind::StreamTask(device.info().id));
    assert_eq!(kinds, [on_device, live, on_device]);
    let text = exec.plan_text();
    let line = format!("stream task 1 on {}, queue 0, calls 'mine' (#1) live after 0\n", device.selector());
    assert!(text.contains(&line), "{text}");
    let explained = exec.explain();
    assert!(explained.partitions[1].is_live && !explained.partitions[0].is_live, "{explained}");
    assert!(explained.to_string().contains("runs as:  live calls"), "{explained}");
    assert!(exec.explain().partitions.iter().all(|partition| partition.starts_in_submit), "{explained}");
}

fn bodies_refuse_by_name(setup: &Setup) {
    let device = setup.device();
    let flag = device.buffer::<u32>(1).unwrap();
    let mut inner = Graph::new(device);
    task(&mut inner, &flag, |_, _| Ok(()));
    let mut body = Graph::new(device);
    body.sub_graph(&inner);
    for is_loop in [false, true] {
        let mut graph = Graph::new(device);
        match is_loop {
            true => graph.while_nonzero(&flag, &body),
            false => graph.if_nonzero_else(&flag, &Graph::new(device), &body),
        };
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        let kind = if is_loop { "loop" } else { "conditional" };
        assert!(error.message().contains("stream task 'mine'") && error.message().contains(kind), "{error}");
    }
}

fn scratch_memory_is_refused(setup: &Setup) {
    let device = setup.device();
    let mut graph = Graph::new(device);
    let scratch = graph.scratch::<u32>(4).unwrap();
    task(&mut graph, &scratch, |_, _| Ok(()));
    let error = graph.finalize().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    assert!(error.message().contains("stream task"), "{error}");
}

fn single_updates_refuse_by_name(setup: &Setup) {
    let device = setup.device();
    if device.capabilities().update.is_empty() {
        return lacks("updates");
    }
    let x = device.buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    let node = task(&mut graph, &x, |_, _| Ok(()));
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let refused = setup.block_on(async {
        [
            exec.update().enabled(node, false).apply().await,
            exec.update().launch(node, add(1, &x)).apply().await,
        ]
    });
    for error in refused.map(Result::unwrap_err) {
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert!(error.to_string().contains("stream task"), "{error}");
    }
}

/// Mixes 1 into `x`; live, copies it to `y` and sets it to the number of the call; mixes 2 into it.
fn three(device: &Device, x: &Buffer<u32>, y: &Buffer<u32>) -> Graph {
    let mut graph = Graph::new(device);
    let len = x.len();
    graph.launch(mix(1, x), Range::linear(len));
    let (accesses, calls) = ([NativeAccess::write(x), NativeAccess::write(y)], AtomicU32::new(0));
    // SAFETY: it copies from the one to the other, and writes the one, in the order of the stream.
    unsafe {
        graph.stream_task("swap", accesses, move |stream, [x, y]| {
            copy(stream, x, y)?;
            set(stream, x, calls.fetch_add(1, Ordering::Relaxed))
        })
    };
    graph.launch(mix(2, x), Range::linear(len));
    graph
}

fn between_kernels(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (buffer(device, [1; 100]), device.buffer::<u32>(100).unwrap());
    let exec = three(device, &x, &y).finalize().unwrap();
    setup.block_on(async {
        let mut expected = 1u32;
        for call in 0..4 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [expected * 31 + 1; 100]);
            expected = call * 31 + 2;
            assert_eq!(x.to_vec().await.unwrap(), [expected; 100]);
        }
    });
}

// Neither the host nor the test waits in between.
fn one_after_the_other(setup: &Setup) {
    const RUNS: u32 = 200;
    let device = setup.device();
    let (x, y) = (buffer(device, [1; 100]), device.buffer::<u32>(100).unwrap());
    let exec = three(device, &x, &y).finalize().unwrap();
    let submissions: Vec<Submission> = (0..RUNS).map(|_| exec.submit()).collect();
    setup.block_on(async {
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(y.to_vec().await.unwrap(), [((RUNS - 2) * 31 + 2) * 31 + 1; 100]);
        assert_eq!(x.to_vec().await.unwrap(), [(RUNS - 1) * 31 + 2; 100]);
    });
}

fn alone(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [0; 10]);
    let mut graph = Graph::new(device);
    task(&mut graph, &x, |stream, x| set(stream, x, 7));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [7; 10]);
            x.write(&[1; 10]).await.unwrap();
        }
    });
}

fn on_views(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [1; 1024]);
    let mut graph = Graph::new(device);
    task(&mut graph, &x.slice(256..512).unwrap(), |stream, x| {
        assert_eq!(x.len(), 1024);
        set(stream, x, 2)
    });
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        let words = x.to_vec().await.unwrap();
        assert!((0..1024).all(|at| words[at] == if (256..512).contains(&at) { 2 } else { 1 }));
    });
}

/// Whether closures fail, which tests switch.
#[derive(Clone, Default)]
struct Switch(Arc<AtomicBool>);

impl Switch {
    fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Runs a graph whose stream task fails, and then the same one without a failure.
#[track_caller]
fn fails(setup: &Setup, fail: impl Fn() -> Result<()> + Send + Sync + 'static) -> Error {
    let device = setup.device();
    let (x, fails) = (buffer(device, [1; 10]), Switch::default());
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(10));
    let is_failing = fails.clone();
    task(&mut graph, &x, move |stream, x| {
        set(stream, x, 3)?;
        if is_failing.is_on() { fail() } else { Ok(()) }
    });
    graph.launch(add(10, &x), Range::linear(10));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        fails.set(true);
        let error = exec.submit().await.unwrap_err();
        assert_eq!(error.partition(), Some(1), "{error}");
        assert!(error.node().unwrap().contains("stream task 'mine' (#1)"), "{error}");
        // In flight with it, behind it.
        let failing = [(); 3].map(|()| exec.submit());
        for submission in failing {
            assert_eq!(submission.await.unwrap_err().kind(), error.kind());
        }
        fails.set(false);
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [13; 10]);
        }
        error
    })
}

fn errors_of_the_closure(setup: &Setup) {
    let error = fails(setup, || Err(Error::new(ErrorKind::OutOfMemory, "no workspace left")));
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("no workspace left"), "{error}");
}

fn panics_of_the_closure(setup: &Setup) {
    let error = fails(setup, || panic!("{PANIC}"));
    assert_eq!(error.kind(), ErrorKind::NativePanicked, "{error}");
    assert!(error.message().contains(PANIC), "{error}");
}

// task -> kernel -> task, and beside them a kernel on other memory
fn what_depends_on_a_failure_does_not_run(setup: &Setup) {
    let device = setup.device();
    let (x, other, called) = (buffer(device, [1; 10]), buffer(device, [1; 10]), Switch::default());
    let mut graph = Graph::new(device);
    task(&mut graph, &x, |_, _| Err(Error::new(ErrorKind::Driver, "as it should")));
    graph.launch(add(1, &x), Range::linear(10));
    let calls = called.clone();
    task(&mut graph, &x, move |_, _| {
        calls.set(true);
        Ok(())
    });
    graph.launch(add(1, &other), Range::linear(10));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let error = exec.submit().await.unwrap_err();
        assert!(error.node().unwrap().contains("(#0)"), "{error}");
        assert_eq!(x.to_vec().await.unwrap(), [1; 10]);
        assert_eq!(other.to_vec().await.unwrap(), [2; 10]);
    });
    assert!(!called.is_on());
}

fn nothing_is_called_after_a_failure(setup: &Setup) {
    let device = setup.device();
    let (x, called) = (buffer(device, [1; 10]), Switch::default());
    let mut graph = Graph::new(device);
    let kernel =
        wakegraph::kernel::RawKernel::new("fails").host(|_, _| Err(Error::new(ErrorKind::Driver, PANIC)));
    let before = graph.launch(kernel.call(), Range::linear(1)).id();
    let calls = called.clone();
    let after = task(&mut graph, &x, move |_, _| {
        calls.set(true);
        Ok(())
    });
    graph.make_edge(before, after).unwrap();
    let exec = graph.finalize().unwrap();
    let error = setup.block_on(async { exec.submit().await.unwrap_err() });
    assert!(error.node().unwrap().contains("fails"), "{error}");
    assert!(!called.is_on());
}

// The closure submits its own executable, which comes behind this run, and another on its memory.
fn it_may_submit(setup: &Setup) {
    let device = setup.device();
    let (x, left) = (buffer(device, [0; 10]), Arc::new(AtomicU32::new(3)));
    let mut other = Graph::new(device);
    other.launch(add(100, &x), Range::linear(10));
    let other = other.finalize().unwrap();
    let own = Arc::new(Mutex::new(None::<wakegraph::ExecutableGraph>));
    let submitted = Arc::new(Mutex::new(Vec::new()));
    let mut graph = Graph::new(device);
    let (this, list) = (own.clone(), submitted.clone());
    task(&mut graph, &x, move |stream, x| {
        if left.fetch_sub(1, Ordering::Relaxed) > 0 {
            let again = this.lock().as_ref().map(wakegraph::ExecutableGraph::submit);
            list.lock().extend(again);
            list.lock().push(other.submit());
        } else {
            left.store(0, Ordering::Relaxed);
        }
        set(stream, x, 1)
    });
    graph.launch(add(1, &x), Range::linear(10));
    let exec = graph.finalize().unwrap();
    *own.lock() = Some(exec.clone());
    setup.block_on(async {
        // On the host a thread without a runtime calls the closure, so submissions there may not wait.
        exec.submit().await.unwrap();
        loop {
            let Some(next) = submitted.lock().pop() else { break };
            match next.await {
                Ok(()) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::InvalidOperation, "{error}"),
            }
        }
        let words = x.to_vec().await.unwrap();
        assert!(words[0] % 100 == 2 && words.iter().all(|&word| word == words[0]), "{words:?}");
    });
    own.lock().take();
}

// Outside tokio: whoever comes second waits for the first to have enqueued its run, and no longer.
fn several_threads_submit(setup: &Setup) {
    const THREADS: u32 = 4;
    const RUNS: u32 = 50;
    let device = setup.device();
    let (x, y) = (buffer(device, [0; 100]), buffer(device, [0; 100]));
    let busy = Arc::new(AtomicU32::new(0));
    let execs = [&x, &y].map(|written| {
        let mut graph = Graph::new(device);
        graph.launch(add(1, &x), Range::linear(100));
        let (busy, counted) = (busy.clone(), AtomicU32::new(0));
        task(&mut graph, written, move |_, _| {
            assert_eq!(counted.fetch_add(1, Ordering::Relaxed), 0, "called twice at a time");
            busy.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            counted.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        });
        graph.launch(add(1, written), Range::linear(100));
        graph.finalize().unwrap()
    });
    let submissions = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (execs, submissions) = (&execs, &submissions);
            scope.spawn(move || {
                for run in 0..RUNS {
                    let submission = execs[(number + run) as usize % 2].submit();
                    submissions.lock().push(submission);
                }
            });
        }
    });
    setup.block_on(async {
        for submission in submissions.into_inner() {
            submission.await.unwrap();
        }
        assert_eq!(busy.load(Ordering::Relaxed), THREADS * RUNS);
        let half = THREADS * RUNS / 2;
        assert_eq!(x.to_vec().await.unwrap(), [half * 3; 100]);
        assert_eq!(y.to_vec().await.unwrap(), [half; 100]);
    });
}

fn whole_updates_replace_the_closure(setup: &Setup) {
    let device = setup.device();
    if device.capabilities().update.is_empty() {
        return lacks("updates");
    }
    let (x, y) = (buffer(device, [0; 10]), buffer(device, [0; 10]));
    let sets = |x: &Buffer<u32>, word| {
        let mut graph = Graph::new(device);
        task(&mut graph, x, move |stream, x| set(stream, x, word));
        graph.launch(add(1, x), Range::linear(10));
        graph
    };
    let exec = sets(&x, 1).finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    setup.block_on(async {
        let first = exec.submit();
        exec.update_from(&sets(&y, 5)).await.unwrap();
        exec.submit().await.unwrap();
        first.await.unwrap();
        assert_eq!((x.to_vec().await.unwrap()[9], y.to_vec().await.unwrap()[9]), (2, 6));
        exec.update_from(&sets(&x, 7)).await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!((x.to_vec().await.unwrap()[9], y.to_vec().await.unwrap()[9]), (8, 6));
    });
}

fn after_a_host_task(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [0; 10]);
    let host = device.host_buffer::<u32>(10).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(10));
    graph.copy(&x, &host);
    let seen = Arc::new(AtomicU32::new(0));
    let sees = seen.clone();
    let before = graph
        .host_task((read(&host),), async move |(host,)| {
            tokio::task::yield_now().await;
            sees.store(host[3], Ordering::Relaxed);
        })
        .id();
    let node = task(&mut graph, &x, move |stream, x| set(stream, x, 10 * seen.load(Ordering::Relaxed)));
    graph.make_edge(before, node).unwrap();
    graph.launch(add(2, &x), Range::linear(10));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for expected in [12, 132] {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected; 10]);
        }
    });
}

fn inside_a_sub_graph(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [0; 10]);
    let mut inner = Graph::new(device);
    inner.launch(add(1, &x), Range::linear(10));
    let (y, calls) = (x.slice(..5).unwrap(), AtomicU32::new(0));
    task(&mut inner, &y, move |stream, y| set(stream, y, calls.fetch_add(1, Ordering::Relaxed)));
    let mut graph = Graph::new(device);
    graph.sub_graph(&inner);
    graph.launch(add(100, &x), Range::linear(10));
    graph.sub_graph(&inner);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [1, 1, 1, 1, 1, 102, 102, 102, 102, 102]);
    });
}

fn on_a_queue(setup: &Setup) {
    let device = setup.device();
    let x = buffer(device, [0; 10]);
    let mut graph = Graph::new(device);
    task(&mut graph, &x, |stream, x| set(stream, x, 1));
    graph.launch(add(1, &x), Range::linear(10));
    let exec = graph.finalize().unwrap();
    let queue = device.queue().unwrap();
    setup.block_on(async {
        for _ in 0..10 {
            queue.fill(&x, 50);
            drop(queue.submit(&exec));
            let last = queue.launch(add(3, &x), Range::linear(10));
            drop(queue.submit(&exec));
            queue.launch(mix(1, &x), Range::linear(10)).await.unwrap();
            last.await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [2 * 31 + 1; 10]);
        }
    });
}

fn with_profiling(setup: &Setup) {
    let device = setup.device();
    if !device.capabilities().profiling {
        return lacks("profiling");
    }
    let x = buffer(device, [0; 1000]);
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(1000));
    task(&mut graph, &x, |stream, x| set(stream, x, 1));
    graph.launch(add(1, &x), Range::linear(1000));
    let exec = graph.finalize_with(FinalizeOptions::new().profiling(true)).unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            let mut submission = exec.submit();
            (&mut submission).await.unwrap();
            let profile = submission.profile().unwrap();
            let kinds: Vec<_> = profile.nodes.iter().map(|node| node.kind).collect();
            assert_eq!(
                kinds,
                [CommandKind::Kernel, CommandKind::StreamTask, CommandKind::Kernel],
                "{profile:?}"
            );
            assert!(profile.nodes.iter().all(|node| node.start <= node.end), "{profile:?}");
            assert!(profile.partitions.iter().all(|partition| partition.measured), "{profile:?}");
        }
    });
}

fn memory_outlives_handles(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (buffer(device, [1; 1000]), buffer(device, [0; 1000]));
    let exec = {
        let given = buffer(device, [1; 1000]);
        let mut graph = three(device, &given, &y);
        graph.copy(&given, &x);
        graph.finalize().unwrap()
    };
    let submissions = [(); 5].map(|()| exec.submit());
    drop(exec);
    setup.block_on(async {
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [4 * 31 + 2; 1000]);
    });
}

// On the first device, then live on the second, then back on the first.
fn between_two_devices(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, y) = (buffer(a, [0; 10]), buffer(b, [0; 10]));
    let mut graph = Graph::new(a);
    graph.launch(add(1, &x), Range::linear(10));
    graph.copy(&x, &y);
    let accesses = [NativeAccess::write(y.slice(5..).unwrap())];
    // SAFETY: it sets words of the memory, on the stream.
    unsafe { graph.stream_task("there", accesses, |stream, [y]| set(stream, y, 70)) };
    graph.copy(&y, &x);
    let exec = graph.finalize().unwrap();
    let live: Vec<_> = exec.plan().partitions().iter().map(|partition| partition.kind).collect();
    assert!(live.contains(&PartitionKind::StreamTask(b.info().id)), "{}", exec.plan_text());
    setup.block_on(async {
        for count in 1..4 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [count, count, count, count, count, 70, 70, 70, 70, 70]);
        }
    });
}
