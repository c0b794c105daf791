//! Buffers that belong to a graph and share memory where they are not needed at a time.

use wakegraph::hal::UpdateCapabilities;
use wakegraph::interop::NativeAccess;
use wakegraph::memory::{Layout, RectCopy, ScratchArena};
use wakegraph::plan::{ExecutionOrder, PartitionPolicy};
use wakegraph::{Buffer, Device, Error, ErrorKind, FinalizeOptions, Graph, NodeId, Range, read, write};

use crate::kernels::{add, axpy, mix};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/scratch":
    &[Need::Results] => [branches, zeroed_in_every_run, parts_and_rectangles, in_sub_graphs,
        executables_have_memory_of_their_own, updates, updates_from_other_graphs, random_graphs,
        random_graphs_share_an_arena, updates_keep_the_arena],
    &[Need::Results, Need::ConcurrentParts] => [along_a_chain, across_a_host_task],
    &[Need::Results, Need::TwoDevices] => [random_graphs_on_two_devices,
        random_graphs_on_two_devices_share_an_arena],
    &[Need::Results, Need::TwoDevices, Need::ConcurrentParts] => [between_devices],
    &[Need::ConcurrentParts] => [memory_is_shared, an_arena_grows],
    &[] => [refusals]);

const LEN: usize = 1000;

// input -> a: mix 1 -> b: mix 2 -> c: mix 3 -> d: mix 4 -> output
fn along_a_chain(setup: &Setup) {
    let device = setup.device();
    let input = device.host_buffer::<u32>(LEN).unwrap();
    let output = device.host_buffer::<u32>(LEN).unwrap();
    let mut graph = Graph::new(device);
    let buffers = [(); 4].map(|()| graph.scratch::<u32>(LEN).unwrap());
    graph.copy(&input, &buffers[0]);
    for (n, buffer) in buffers.iter().enumerate() {
        graph.launch(mix(n as u32 + 1, buffer), Range::linear(LEN));
        match buffers.get(n + 1) {
            Some(next) => graph.copy(buffer, next),
            None => graph.copy(buffer, &output),
        };
    }
    for in_order in [false, true] {
        let exec = graph.finalize_with(FinalizeOptions::new().in_order(in_order)).unwrap();
        assert_eq!((exec.graph_memory()[0].bytes, exec.graph_memory()[0].saved), (8192, 8192));
        setup.block_on(async {
            for replay in 0..4 {
                input.write().await.fill(replay);
                exec.submit().await.unwrap();
                let expected = (1..=4).fold(replay, |x: u32, n| x.wrapping_mul(31).wrapping_add(n));
                assert_eq!(*output.read().await, [expected; LEN]);
            }
        });
    }
}

fn branches(setup: &Setup) {
    let device = setup.device();
    let mut graph = Graph::new(device);
    let outputs = [(); 6].map(|()| device.buffer::<u32>(LEN).unwrap());
    for (n, output) in (1..).zip(&outputs) {
        let buffer = graph.scratch::<u32>(LEN).unwrap();
        graph.fill(&buffer, n);
        graph.launch(add(10 * n, &buffer), Range::linear(LEN));
        graph.copy(&buffer, output);
    }
    let exec = graph.finalize().unwrap();
    // Nothing orders them.
    assert_eq!((exec.graph_memory()[0].bytes, exec.graph_memory()[0].saved), (6 * 4096, 0));
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            for (n, output) in (1..).zip(&outputs) {
                assert_eq!(output.to_vec().await.unwrap(), [11 * n; LEN]);
            }
        }
    });
}

fn zeroed_in_every_run(setup: &Setup) {
    let device = setup.device();
    let output = device.buffer::<u32>(7).unwrap();
    let mut graph = Graph::new(device);
    let sum = graph.scratch_zeroed::<u32>(7).unwrap();
    graph.launch(add(3, &sum), Range::linear(7));
    graph.launch(add(4, &sum), Range::linear(7));
    graph.copy(&sum, &output);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let submissions = [(); 5].map(|()| exec.submit());
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(output.to_vec().await.unwrap(), [7; 7]);
    });
}

fn parts_and_rectangles(setup: &Setup) {
    let device = setup.device();
    let input = device.buffer_from(&(0..20u32).collect::<Vec<_>>()).unwrap();
    let output = device.host_buffer::<u32>(6).unwrap();
    let mut graph = Graph::new(device);
    // Something before it, so that it does not begin where its memory does.
    let other = graph.scratch_zeroed::<u8>(300).unwrap();
    let x = graph.scratch::<u32>(20).unwrap();
    graph.copy(input.slice(..10).unwrap(), x.slice(10..).unwrap());
    graph.copy(input.slice(10..).unwrap(), x.slice(..10).unwrap());
    graph.launch(add(100, x.slice(1..=5).unwrap()), Range::linear(5));
    let tile = RectCopy::new([3, 2], Layout::rows(5).origin([0, 1]), Layout::rows(3));
    graph.copy_rect(&x, &output, tile);
    graph.fill(&other, 1).after_leaves();
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, [115, 16, 17, 0, 1, 2]);
        }
    });
}

// a -> host task -> b, whose memory is a's
fn across_a_host_task(setup: &Setup) {
    let device = setup.device();
    let host = device.host_buffer::<u32>(LEN).unwrap();
    let output = device.buffer::<u32>(LEN).unwrap();
    let mut graph = Graph::new(device);
    let [a, b] = [(); 2].map(|()| graph.scratch::<u32>(LEN).unwrap());
    graph.fill(&a, 5);
    graph.copy(&a, &host);
    graph.host_task((write(&host),), async |(mut host,)| host.iter_mut().for_each(|x| *x *= 2));
    graph.copy(&host, &b);
    graph.copy(&b, &output);
    let exec = graph.finalize().unwrap();
    assert_eq!((exec.graph_memory()[0].bytes, exec.graph_memory()[0].saved), (4096, 4096));
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!(output.to_vec().await.unwrap(), [10; LEN]);
        }
    });
}

fn in_sub_graphs(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32; LEN]).unwrap();
    let mut child = Graph::new(device);
    let copy = child.scratch::<u32>(LEN).unwrap();
    child.copy(&x, &copy);
    child.launch(axpy(2, &copy, &x), Range::linear(LEN));
    let mut parent = Graph::new(device);
    let own = parent.scratch::<u32>(LEN).unwrap();
    parent.sub_graph(&child);
    parent.copy(&x, &own);
    parent.launch(axpy(1, &own, &x), Range::linear(LEN));
    parent.sub_graph(&child);
    let (alone, parent) = (child.finalize().unwrap(), parent.finalize().unwrap());
    setup.block_on(async {
        let mut expected = 1u32;
        for _ in 0..3 {
            parent.submit().await.unwrap();
            alone.submit().await.unwrap();
            expected *= 3 * 2 * 3 * 3;
            assert_eq!(x.to_vec().await.unwrap(), [expected; LEN]);
        }
    });
}

fn executables_have_memory_of_their_own(setup: &Setup) {
    let device = setup.device();
    let inputs = [(); 4].map(|()| device.buffer::<u32>(LEN).unwrap());
    let mut graph = Graph::new(device);
    let sum = graph.scratch_zeroed::<u32>(LEN).unwrap();
    let output = device.buffer::<u32>(LEN).unwrap();
    for (n, input) in (1..).zip(&inputs) {
        graph.fill(input, n);
        graph.launch(axpy(1, input, &sum), Range::linear(LEN));
    }
    graph.copy(&sum, &output);
    let execs = [(); 3].map(|()| graph.finalize().unwrap());
    // An executable's memory is its own, and outlives its graph.
    drop((graph, sum));
    setup.block_on(async {
        let submissions: Vec<_> = (0..12).map(|n| execs[n % 3].submit()).collect();
        drop(execs);
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(output.to_vec().await.unwrap(), [10; LEN]);
    });
}

fn updates(setup: &Setup) {
    let device = setup.device();
    let needed = UpdateCapabilities::KERNEL_ARGUMENTS | UpdateCapabilities::GLOBAL_WORK_SIZE;
    if !device.capabilities().update.contains(needed) {
        return lacks("updates of arguments and sizes");
    }
    let (output, y) = (device.buffer::<u32>(LEN).unwrap(), device.buffer::<u32>(LEN).unwrap());
    let mut graph = Graph::new(device);
    let [before, x, unused] = [(); 3].map(|()| graph.scratch::<u32>(LEN).unwrap());
    graph.fill(&before, 1);
    graph.copy(&before, &x);
    let node = graph.launch(add(10, &x), Range::linear(LEN)).id();
    graph.copy(&x, &output);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    setup.block_on(async {
        let runs = async |expected: u32| {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(output.to_vec().await.unwrap(), [expected; LEN]);
            }
        };
        runs(11).await;
        exec.update().launch(node, add(20, &x)).apply().await.unwrap();
        runs(21).await;
        for other in [&before, &unused] {
            let refused_one = exec.update().launch(node, add(30, other)).apply().await;
            refused(refused_one, ErrorKind::InvalidArgument, "a scratch buffer that it does not use");
        }
        exec.update_from(&graph).await.unwrap();
        runs(11).await;
        exec.update().launch(node, add(5, &y)).apply().await.unwrap();
        runs(1).await;
        assert_eq!(y.to_vec().await.unwrap(), [10; LEN]);
        // The place of what the node had before is still planned for it, and that of others is not.
        let refused_one = exec.update().launch(node, add(30, &before)).apply().await;
        refused(refused_one, ErrorKind::InvalidArgument, "a scratch buffer that it does not use");
        exec.update().launch(node, add(40, &x)).apply().await.unwrap();
        runs(41).await;
        assert_eq!(y.to_vec().await.unwrap(), [10; LEN]);
    });
}

// The same topology with scratch buffers of its own: as large, larger, and used by other nodes.
fn updates_from_other_graphs(setup: &Setup) {
    let device = setup.device();
    if device.capabilities().update != UpdateCapabilities::all() {
        return lacks("all updates");
    }
    const LONG: usize = 4 * LEN;
    let output = device.buffer::<u32>(LONG).unwrap();
    let build = |n: u32, len: usize, swapped: bool| {
        let mut graph = Graph::new(device);
        let [a, b, c] = [(); 3].map(|()| graph.scratch::<u32>(len).unwrap());
        let (first, last) = if swapped { (c, a) } else { (a, c) };
        graph.fill(&first, n);
        graph.copy(&first, &b);
        let node = graph.launch(add(n, &b), Range::linear(len)).id();
        graph.copy(&b, &last);
        graph.copy(&last, output.slice(..len).unwrap());
        (graph, node, b)
    };
    let (graph, node, b) = build(1, LEN, false);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    setup.block_on(async {
        let runs = async |expected: u32, len: usize| {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(output.to_vec().await.unwrap()[..len], vec![expected; len]);
            }
        };
        runs(2, LEN).await;
        for (n, len, swapped) in [(10, LEN, false), (20, LONG, false), (30, LEN, true), (40, LONG, true)] {
            let before = exec.submit();
            let (other, _, other_b) = build(n, len, swapped);
            exec.update_from(&other).await.unwrap();
            drop(other);
            runs(2 * n, len).await;
            before.await.unwrap();
            exec.update().launch(node, add(5, &other_b)).apply().await.unwrap();
            runs(n + 5, len).await;
            // The buffers of the graph before have no places any more.
            let refused_one = exec.update().launch(node, add(5, &b)).apply().await;
            refused(refused_one, ErrorKind::InvalidArgument, "a scratch buffer that it does not use");
            runs(n + 5, len).await;
        }
        exec.update_from(&graph).await.unwrap();
        runs(2, LEN).await;
    });
}

// a: fill -> copy -> b: mix -> copy -> a: mix -> output
fn between_devices(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let output = a.buffer::<u32>(LEN).unwrap();
    let mut graph = Graph::new(a);
    let first = graph.scratch::<u32>(LEN).unwrap();
    let there = graph.scratch_on::<u32>(b, LEN).unwrap();
    let back = graph.scratch_on::<u32>(a, LEN).unwrap();
    graph.fill(&first, 1);
    graph.copy(&first, &there);
    graph.launch(mix(2, &there), Range::linear(LEN));
    graph.copy(&there, &back);
    graph.launch(mix(3, &back), Range::linear(LEN));
    graph.copy(&back, &output);
    let exec = graph.finalize().unwrap();
    let mut memory: Vec<_> =
        exec.graph_memory().iter().map(|of| (of.device.selector(), of.bytes, of.saved)).collect();
    memory.sort_by_key(|(selector, ..)| *selector != a.selector());
    assert_eq!(memory, [(a.selector(), 4096, 4096), (b.selector(), 4096, 0)]);
    setup.block_on(async {
        for _ in 0..3 {
            exec.submit().await.unwrap();
            assert_eq!(output.to_vec().await.unwrap(), [(31 + 2) * 31 + 3; LEN]);
        }
    });
}

/// A buffer, and what it should hold in the end.
type Output = (Buffer<u32>, Vec<u32>);

/// Buffers come and go; the result is that of running the nodes one after the other, each buffer
/// with its own memory.
fn random_graph(devices: &[Device], seed: u64, random: &mut Random) -> (Graph, Vec<Output>) {
    let mut graph = Graph::new(&devices[0]);
    let host = devices.iter().map(|device| device.host_buffer::<u32>(100).unwrap()).collect::<Vec<_>>();
    let mut live: Vec<(usize, Buffer<u32>, Vec<u32>)> = Vec::new();
    let mut outputs = Vec::new();
    for _ in 0..random.within(5..=40) {
        let n = random.next() as u32;
        match random.below(if live.is_empty() { 1 } else { 7 }) {
            0 => {
                let (at, len) = (random.below(devices.len()), [6, 50, 100][random.below(3)]);
                let buffer = graph.scratch_on::<u32>(&devices[at], len).unwrap();
                let fill = graph.fill(&buffer, n);
                // What is over by then can leave its memory.
                if random.chance(2) {
                    fill.after_leaves();
                }
                live.push((at, buffer, vec![n; len]));
            }
            1 | 2 => {
                let index = random.below(live.len());
                let (_, buffer, model) = &mut live[index];
                graph.launch(mix(n, &*buffer), Range::linear(model.len()));
                model.iter_mut().for_each(|x| *x = x.wrapping_mul(31).wrapping_add(n));
            }
            3 | 4 => {
                let (from, to) = (random.below(live.len()), random.below(live.len()));
                let len = live[from].2.len().min(live[to].2.len());
                if from != to {
                    let part = |index: usize| live[index].1.slice(..len).unwrap();
                    let source = live[from].2.clone();
                    let same_device = live[from].0 == live[to].0;
                    if same_device {
                        graph.launch(axpy(n, part(from), part(to)), Range::linear(len));
                    } else {
                        graph.copy(part(from), part(to));
                    }
                    for (to, from) in live[to].2.iter_mut().zip(source) {
                        *to = if same_device { to.wrapping_add(n.wrapping_mul(from)) } else { from };
                    }
                }
            }
            5 => {
                let index = random.below(live.len());
                let (at, buffer, model) = &mut live[index];
                let part = host[*at].slice(..model.len()).unwrap();
                graph.copy(&*buffer, &part);
                graph.host_task((read(&part),), async |_| tokio::task::yield_now().await);
                graph.copy(&part, &*buffer);
            }
            _ => {
                let (at, buffer, model) = live.swap_remove(random.below(live.len()));
                let output = devices[at].buffer::<u32>(model.len()).unwrap();
                graph.copy(&buffer, &output).name(format!("output of seed {seed}"));
                outputs.push((output, model));
            }
        }
    }
    (graph, outputs)
}

fn check_random_graphs(setup: &Setup, devices: &[Device], seeds: u64) {
    let mut saved = 0;
    setup.block_on(async {
        for seed in 0..seeds {
            let random = &mut Random::new(seed);
            let (graph, outputs) = random_graph(devices, seed, random);
            let policies = [PartitionPolicy::Signature, PartitionPolicy::Fewest, PartitionPolicy::Eager];
            let orders = [ExecutionOrder::DepthFirst, ExecutionOrder::BreadthFirst];
            let options = FinalizeOptions::new()
                .partition(policies[random.below(3)])
                .order(orders[random.below(2)])
                .in_order(random.chance(4))
                .profiling(random.chance(4));
            let exec = graph.finalize_with(options).unwrap();
            saved += exec.graph_memory().iter().map(|memory| memory.saved).sum::<usize>();
            for submission in [(); 3].map(|()| exec.submit()) {
                submission.await.unwrap();
            }
            for (output, model) in outputs {
                assert_eq!(output.to_vec().await.unwrap(), model, "seed {seed}\n{}", exec.plan_text());
            }
        }
    });
    assert_eq!(saved > 0, setup.can(Need::ConcurrentParts), "whether a graph shared anything");
}

fn random_graphs(setup: &Setup) {
    check_random_graphs(setup, &setup.devices[..1], 60);
}

fn random_graphs_on_two_devices(setup: &Setup) {
    check_random_graphs(setup, &setup.devices[..2], 40);
}

/// Executables of random graphs with one arena, of which many are in flight at a time.
fn check_random_graphs_with_an_arena(setup: &Setup, devices: &[Device], seeds: u64) {
    setup.block_on(async {
        for seed in 0..seeds {
            let random = &mut Random::new(seed ^ 0xa7e4a);
            let (arena, mut executables) = (ScratchArena::new(), Vec::new());
            for _ in 0..random.within(2..=6) {
                let (mut graph, outputs) = random_graph(devices, seed, random);
                graph.share_scratch(&arena);
                executables.push((graph.finalize().unwrap(), outputs));
            }
            let chosen = (0..random.within(1..=30)).map(|_| random.below(executables.len()));
            let chosen: Vec<_> = chosen.collect();
            let submissions: Vec<_> = chosen.iter().map(|&index| executables[index].0.submit()).collect();
            for submission in submissions {
                // Some are dropped, and run on.
                if random.chance(3) {
                    submission.await.unwrap();
                }
            }
            for (index, (exec, outputs)) in executables.iter().enumerate() {
                for (output, model) in outputs.iter().filter(|_| chosen.contains(&index)) {
                    assert_eq!(output.to_vec().await.unwrap(), *model, "seed {seed}\n{}", exec.plan_text());
                }
            }
        }
    });
}

fn random_graphs_share_an_arena(setup: &Setup) {
    check_random_graphs_with_an_arena(setup, &setup.devices[..1], 30);
}

fn random_graphs_on_two_devices_share_an_arena(setup: &Setup) {
    check_random_graphs_with_an_arena(setup, &setup.devices[..2], 20);
}

// scratch: n -> scratch -> output, with the memory of an arena, where an executable fills it with another
// number again and again
fn updates_keep_the_arena(setup: &Setup) {
    let device = setup.device();
    if device.capabilities().update != UpdateCapabilities::all() {
        return lacks("all updates");
    }
    const LONG: usize = 50 * LEN;
    let arena = ScratchArena::new();
    let build = |n: u32, len: usize, output: &Buffer<u32>| {
        let mut graph = Graph::new(device);
        let [a, b] = [(); 2].map(|()| graph.scratch::<u32>(len).unwrap());
        graph.fill(&a, n);
        graph.launch(add(n, &a), Range::linear(len));
        graph.copy(&a, &b);
        graph.copy(&b, output.slice(..len).unwrap());
        graph
    };
    let [output, other_output] = [(); 2].map(|()| device.buffer::<u32>(LONG).unwrap());
    let [mut first, mut other] = [build(1, LEN, &output), build(1000, LEN, &other_output)];
    first.share_scratch(&arena);
    other.share_scratch(&arena);
    let exec = first.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let mut others = vec![other.finalize().unwrap()];
    setup.block_on(async {
        for (n, len) in [(2, LEN), (3, LONG), (4, LEN), (5, LONG)] {
            let before = others.iter().map(|other| other.submit()).collect::<Vec<_>>();
            exec.update_from(&build(n, len, &output)).await.unwrap();
            if len == LONG && others.len() == 1 {
                let mut long = build(2000, LONG, &other_output);
                long.share_scratch(&arena);
                others.push(long.finalize().unwrap());
            }
            for _ in 0..5 {
                let (own, theirs) = (exec.submit(), others.iter().map(|other| other.submit()));
                let theirs: Vec<_> = theirs.collect();
                own.await.unwrap();
                for theirs in theirs {
                    theirs.await.unwrap();
                }
                assert_eq!(output.to_vec().await.unwrap()[..len], vec![2 * n; len]);
            }
            for before in before {
                before.await.unwrap();
            }
        }
    });
}

fn an_arena_grows(setup: &Setup) {
    let device = setup.device();
    let arena = ScratchArena::new();
    let finalize = |len: usize| {
        let mut graph = Graph::new(device);
        graph.share_scratch(&arena);
        let x = graph.scratch::<u8>(len)?;
        graph.fill(&x, 1);
        graph.finalize()
    };
    assert_eq!(arena.bytes(device), 0);
    for (len, bytes) in [(4096, 4096), (2048, 4096), (8192, 8192), (1, 8192)] {
        let exec = finalize(len).unwrap();
        assert_eq!(exec.graph_memory()[0].bytes, len.next_multiple_of(256));
        assert_eq!(arena.bytes(device), bytes);
    }
    // A failure leaves the arena and its executables as they were.
    let exec = finalize(8192).unwrap();
    assert!(arena.reserve(device, usize::MAX / 4).is_err());
    assert!(finalize(usize::MAX / 4).is_err());
    assert_eq!(arena.bytes(device), 8192);
    arena.reserve(device, 0).unwrap();
    arena.reserve(device, 100_000).unwrap();
    assert_eq!(arena.bytes(device), 100_000);
    finalize(4096).unwrap();
    setup.block_on(exec.submit()).unwrap();
}

fn memory_is_shared(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u8>(1 << 20).unwrap();
    let mut graph = Graph::new(device);
    assert!(graph.finalize().unwrap().graph_memory().is_empty());
    for _ in 0..100 {
        let buffer = graph.scratch::<u8>(1 << 20).unwrap();
        graph.copy(&x, &buffer);
        graph.copy(&buffer, &x);
    }
    let unused = graph.scratch::<u8>(1 << 30).unwrap();
    let exec = graph.finalize().unwrap();
    let [memory] = exec.graph_memory() else { panic!("{:?}", exec.graph_memory()) };
    assert_eq!(memory.device, *device);
    assert_eq!((memory.bytes, memory.saved), (1 << 20, 99 << 20));
    drop(unused);
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Error>, kind: ErrorKind, words: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    assert!(error.to_string().contains(words), "{error}");
}

/// Adds a node that uses the first buffer, and perhaps the second.
type Use = fn(&mut Graph, &Buffer<u32>, &Buffer<u32>) -> NodeId;

#[expect(unsafe_code, reason = "adds a native command, which is refused")]
fn refusals(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut owner = Graph::new(device);
    refused(owner.scratch::<[u32; 0]>(4), ErrorKind::InvalidSize, "0 bytes");
    refused(owner.scratch::<u64>(usize::MAX), ErrorKind::InvalidSize, "elements");
    let scratch = owner.scratch::<u32>(4).unwrap();

    let argument = ErrorKind::InvalidArgument;
    let uses: [Use; 4] = [
        |graph, scratch, _| graph.fill(scratch, 1).id(),
        |graph, scratch, x| graph.copy(scratch, x).id(),
        |graph, scratch, x| graph.copy(x, scratch).id(),
        |graph, scratch, _| graph.launch(add(1, scratch), Range::linear(4)).id(),
    ];
    for with_own in [false, true] {
        for add in uses {
            let mut other = Graph::new(device);
            if with_own {
                other.scratch::<u32>(4).unwrap();
            }
            add(&mut other, &scratch, &x);
            refused(other.finalize(), argument, "belongs to another graph");
            assert!(
                other.errors()[0].node().is_some() && other.errors()[0].to_string().contains("scratch.rs")
            );
        }
    }
    setup.block_on(async {
        refused(scratch.to_vec().await, argument, "another graph");
        refused(scratch.write(&[1]).await, argument, "another graph");
    });
    // A sub-graph's buffers are not its parent's.
    owner.fill(&scratch, 1);
    let mut parent = Graph::new(device);
    parent.sub_graph(&owner);
    parent.finalize().unwrap();
    parent.copy(&scratch, &x);
    refused(parent.finalize(), argument, "another graph");

    // Places are planned for nodes of the graph itself.
    let mut body = Graph::new(device);
    body.fill(&device.buffer::<u32>(4).unwrap(), 1);
    let flag = scratch.slice(..1).unwrap();
    let mut decided = Graph::new(device);
    decided.if_nonzero(&flag, &body);
    refused(decided.finalize(), argument, "the flag of a conditional cannot use scratch buffers");
    let mut foreign = Graph::new(device);
    // SAFETY: it is refused.
    unsafe { foreign.native("mine", [NativeAccess::write(&scratch)], |_, [_]| Ok(())) };
    refused(foreign.finalize(), argument, "a native command cannot use scratch buffers");

    owner.prefetch(&scratch);
    refused(owner.finalize(), argument, "hints are not for scratch buffers");
    let mut large = Graph::new(device);
    let too_large = large.scratch::<u8>(isize::MAX as usize).unwrap();
    large.fill(&too_large, 1);
    refused(large.finalize(), ErrorKind::OutOfMemory, "");
}
