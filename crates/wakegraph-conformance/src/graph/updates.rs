//! Updates of executables: what submissions see before and after, on every device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wakegraph::hal::{MemoryDesc, MemoryKind, UpdateCapabilities};
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{
    Buffer, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, NodeId, Range, Result, read, write,
};

use super::control::{adds, words};
use crate::kernels::{add, axpy, fold, indices, mix, pack};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/updates":
    &[Need::Results] => [arguments, buffers_are_swapped, ranges, sizes_and_switches_in_a_chain, alternatives, nodes_are_switched,
        pipelined_submissions_see_their_values, all_or_nothing, around_host_tasks, beside_sub_graphs, inside_sub_graphs,
        unordered_memory_inside_sub_graphs_is_refused,
        from_another_graph, from_a_graph_with_conditionals, from_a_graph_with_host_tasks, conflicting_executables_follow_it, random_updates,
        operands_of_fills_and_copies, operands_of_rectangles, operands_in_flight, closures_of_host_tasks, closures_that_wait_for_their_turn, wrong_closures_are_refused],
    &[Need::Results, Need::TwoDevices] => [
        on_two_devices,
        operands_of_copies_between_devices,
        copies_between_devices_are_switched_off,
    ],
    &[Need::ConcurrentParts] => [unordered_memory_is_refused],
    &[] => [misuse_is_refused, other_graphs_are_refused, wrong_operands_are_refused]);

pub(super) fn can_update(setup: &Setup) -> bool {
    let can = setup.device().capabilities().update == UpdateCapabilities::all();
    if !can {
        lacks("all updates");
    }
    can
}

pub(super) fn finalize(graph: &Graph) -> ExecutableGraph {
    graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap()
}

pub(super) fn mixed(start: u32, numbers: &[u32]) -> u32 {
    numbers.iter().fold(start, |x, n| x.wrapping_mul(31).wrapping_add(*n))
}

fn buffer(setup: &Setup, numbers: &[u32]) -> Buffer<u32> {
    setup.device().buffer_from(numbers).unwrap()
}

/// x = 31 * x + n, once for each number.
fn chain(setup: &Setup, x: &Buffer<u32>, numbers: &[u32]) -> (Graph, Vec<NodeId>) {
    let mut graph = Graph::new(setup.device());
    let nodes = numbers.iter().map(|&n| graph.launch(mix(n, x), Range::linear(x.len())).id()).collect();
    (graph, nodes)
}

fn arguments(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let (graph, nodes) = chain(setup, &x, &[1, 2, 3]);
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let mut expected = mixed(1, &[1, 2, 3]);
        exec.update().launch(nodes[1], mix(20, &x)).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            expected = mixed(expected, &[1, 20, 3]);
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        }
        let update = exec.update().launch(nodes[0], mix(5, &x)).launch(nodes[2], mix(6, &x));
        update.launch(nodes[0], mix(7, &x)).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            expected = mixed(expected, &[7, 20, 6]);
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        }
        // The graph is as it was.
        graph.finalize().unwrap().submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(expected, &[1, 2, 3]); 4]);
    });
}

fn buffers_are_swapped(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let buffers = [buffer(setup, &[1; 4]), buffer(setup, &[2; 8]), buffer(setup, &[3; 4])];
    let y = buffer(setup, &[0; 4]);
    let mut graph = Graph::new(setup.device());
    let first = graph.launch(add(1, &buffers[0]), Range::linear(4)).id();
    let second = graph.launch(axpy(1, &buffers[0], &y), Range::linear(4)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let part = buffers[1].slice(2..6).unwrap();
        exec.update().launch(first, add(10, &part)).launch(second, axpy(1, &part, &y)).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        exec.update()
            .launch(first, add(1, &buffers[2]))
            .launch(second, axpy(1, &buffers[2], &y))
            .apply()
            .await
            .unwrap();
        exec.submit().await.unwrap();
        assert_eq!(buffers[0].to_vec().await.unwrap(), [2; 4]);
        assert_eq!(buffers[1].to_vec().await.unwrap(), [2, 2, 22, 22, 22, 22, 2, 2]);
        assert_eq!(buffers[2].to_vec().await.unwrap(), [4; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [2 + 12 + 22 + 4; 4]);
    });
}

/// Kernels grow beyond what a device holds at a time and shrink again, and are switched off and on.
fn sizes_and_switches_in_a_chain(setup: &Setup) {
    const SIZES: [usize; 2] = [64, 150_000];
    const NODES: usize = 4;
    if !can_update(setup) {
        return;
    }
    let (x, mut random) = (setup.device().buffer::<u32>(SIZES[1]).unwrap(), Random::new(7));
    let mut graph = Graph::new(setup.device());
    // What each node does to the first elements, and to those behind them.
    let mut state = [(true, 0); NODES];
    let nodes: Vec<NodeId> =
        (0..NODES as u32).map(|n| graph.launch(mix(n, &x), Range::linear(SIZES[0])).id()).collect();
    let exec = finalize(&graph);
    let mut expected = [0u32; 2];
    let mut submit = |state: &[(bool, usize); NODES]| {
        for (n, (enabled, size)) in (0..).zip(state) {
            for expected in expected.iter_mut().take(if *enabled { size + 1 } else { 0 }) {
                *expected = mixed(*expected, &[n]);
            }
        }
        (exec.submit(), expected)
    };
    setup.block_on(async {
        for _ in 0..8 {
            let (first, _) = submit(&state);
            let (second, [near, far]) = submit(&state);
            let mut update = exec.update();
            for _ in 0..1 + random.below(2) {
                let at = random.below(NODES);
                let (enabled, size) = &mut state[at];
                match random.below(3) {
                    0 => {
                        *enabled = !*enabled;
                        update = update.enabled(nodes[at], *enabled);
                    }
                    _ => {
                        *size = random.below(2);
                        update = update.range(nodes[at], Range::linear(SIZES[*size]));
                    }
                }
            }
            let applied = update.apply();
            first.await.unwrap();
            second.await.unwrap();
            let found = x.to_vec().await.unwrap();
            applied.await.unwrap();
            assert_eq!((found[0], found[SIZES[0] - 1]), (near, near));
            assert_eq!((found[SIZES[0]], found[SIZES[1] - 1]), (far, far));
        }
    });
}

fn ranges(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let out = setup.device().buffer::<u64>(24).unwrap();
    let mut graph = Graph::new(setup.device());
    let node = graph.launch(indices(out.slice(..4).unwrap()), Range::new([2, 2])).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let ranges = [
            Range::new([4, 6]),
            Range::new([4, 6]).starting_at([3, 5]),
            Range::new([8, 3]).local([4, 1]),
            Range::new([8, 3]).local([2, 3]).starting_at([1]),
        ];
        for range in ranges {
            exec.update().launch(node, indices(&out)).range(node, range).apply().await.unwrap();
            let ([width, height, _], [x0, y0, _]) = (range.global_size(), range.offset());
            let items = (0..height).flat_map(|y| (0..width).map(move |x| pack([x + x0, y + y0, 0])));
            let expected: Vec<_> = items.collect();
            for _ in 0..2 {
                out.write(&[0; 24]).await.unwrap();
                exec.submit().await.unwrap();
                assert_eq!(out.to_vec().await.unwrap(), expected, "{range}");
            }
        }
        let error = exec.update().range(node, Range::linear(4)).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("has 1 dimensions, the node's has 2"), "{error}");
    });
}

fn alternatives(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1]), buffer(setup, &[100]));
    let mut graph = Graph::new(setup.device());
    let node = graph.launch(add(1, &x), Range::linear(1));
    let node = node.alternative(mix(0, &x)).alternative(fold(&x, &y)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.update().launch(node, mix(5, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [67]);
        exec.update().launch(node, fold(&x, &y)).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [(100 * 31 + 67) * 31 + 67]);
        // And back to its own.
        exec.update().launch(node, add(3, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [70]);
        let error = exec.update().launch(node, axpy(1, &x, &y)).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(error.message().contains("'axpy' is neither the node's own nor a registered"), "{error}");
    });
}

// fill x -> mix x -> copy x to y, each of them without the others.
fn nodes_are_switched(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[0; 4]), buffer(setup, &[0; 4]));
    let host = setup.device().host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(setup.device());
    let nodes = [
        graph.fill(&x, 7).id(),
        graph.launch(mix(1, &x), Range::linear(4)).id(),
        graph.copy(&x, &y).id(),
        graph.copy(&y, &host).id(),
    ];
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut model_x, mut model_y, mut model_host) = (0u32, 0, 0);
        for switches in 0..32 {
            let on = |node: usize| switches >> node & 1 == 1;
            let update = (0..4).fold(exec.update(), |update, node| update.enabled(nodes[node], on(node)));
            update.apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model_x = if on(0) { 7 } else { model_x };
                model_x = if on(1) { mixed(model_x, &[1]) } else { model_x };
                model_y = if on(2) { model_x } else { model_y };
                model_host = if on(3) { model_y } else { model_host };
                assert_eq!(x.to_vec().await.unwrap(), [model_x; 4], "{switches:b}");
                assert_eq!(y.to_vec().await.unwrap(), [model_y; 4], "{switches:b}");
                assert_eq!(*host.read().await, [model_host; 4], "{switches:b}");
            }
        }
    });
}

fn pipelined_submissions_see_their_values(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, other) = (buffer(setup, &[1; 64]), buffer(setup, &[1; 64]));
    let (graph, nodes) = chain(setup, &x, &[0, 1, 2]);
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut submissions, mut model) = (Vec::new(), [1u32; 2]);
        for n in 0..60 {
            let to = if n % 3 == 0 { 1 } else { 0 };
            let target = [&x, &other][to];
            let update =
                nodes.iter().fold(exec.update(), |update, &node| update.launch(node, mix(n, target)));
            // Nothing is waited for here but the update.
            update.enabled(nodes[1], n % 2 == 0).apply().await.unwrap();
            submissions.push(exec.submit());
            let numbers: &[u32] = if n % 2 == 0 { &[n, n, n] } else { &[n, n] };
            model[to] = mixed(model[to], numbers);
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [model[0]; 64]);
        assert_eq!(other.to_vec().await.unwrap(), [model[1]; 64]);
    });
}

fn all_or_nothing(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 2]));
    let (graph, nodes) = chain(setup, &x, &[1, 2]);
    let exec = finalize(&graph);
    setup.block_on(async {
        let good = || exec.update().launch(nodes[0], mix(10, &x)).enabled(nodes[1], false);
        let foreign = chain(setup, &x, &[1, 2]).1[0];
        for bad in [
            good().range(nodes[0], Range::new([2, 2])),
            good().launch(nodes[1], add(1, &x)),
            good().launch(foreign, mix(1, &x)),
            good().range(nodes[0], Range::linear(9).local([2])),
            // What only the device's side can tell: a work-group of more than there can be.
            good().range(nodes[1], Range::linear(1 << 40).local([1 << 40])),
        ] {
            bad.apply().await.unwrap_err();
        }
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 2, 1, 2]); 4]);
        assert_eq!(y.to_vec().await.unwrap(), [1; 2]);
    });
}

// Several partitions, one of them a host task: runs that are not over keep the old values in all of them.
fn around_host_tasks(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (x, host) = (buffer(setup, &[1; 4]), device.host_buffer::<u32>(4).unwrap());
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let mut graph = Graph::new(device);
    let first = graph.launch(mix(1, &x), Range::linear(4)).id();
    graph.copy(&x, &host);
    let tell = seen.clone();
    let task = graph.host_task((read(&host),), async move |(host,)| {
        tokio::task::yield_now().await;
        tell.lock().push(host[0]);
    });
    let task = task.id();
    let last = graph.launch(mix(2, &x), Range::linear(4)).after([task]).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut model, mut expected) = (1, Vec::new());
        let mut submissions = Vec::new();
        let mut updates = Vec::new();
        for n in 0..20 {
            updates.push(exec.update().launch(first, mix(n, &x)).launch(last, mix(n + 100, &x)).apply());
            submissions.push(exec.submit());
            model = mixed(model, &[n]);
            expected.push(model);
            model = mixed(model, &[n + 100]);
        }
        for update in updates {
            update.await.unwrap();
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(*seen.lock(), expected);
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
        let error = exec.update().enabled(task, false).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    });
}

fn beside_sub_graphs(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1]), buffer(setup, &[1]));
    let (child, inner) = chain(setup, &x, &[5, 6]);
    let mut graph = Graph::new(setup.device());
    let before = graph.launch(mix(1, &x), Range::linear(1)).id();
    let node = graph.sub_graph(&child).id();
    let after = graph.launch(mix(2, &x), Range::linear(1)).id();
    let aside = graph.launch(mix(3, &y), Range::linear(1)).name("aside").id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.update().launch(before, mix(10, &x)).enabled(after, false).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[10, 5, 6, 10, 5, 6])]);
        let refused = exec.update().launch(inner[0], mix(1, &x)).apply().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        assert!(refused.message().contains("of another graph than the one that was finalized"), "{refused}");
        let refused = exec.update().enabled(node, false).apply().await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
        // What the sub-graph does counts where order is asked about.
        let refused = exec.update().launch(aside, mix(1, &x)).apply().await.unwrap_err();
        assert!(refused.message().contains("'aside'") && refused.message().contains("no edge"), "{refused}");
    });
}

// The same child twice in a parent, which is twice in the graph: each of the four copies by its path.
fn inside_sub_graphs(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let (child, inner) = chain(setup, &x, &[5, 6]);
    let mut middle = Graph::new(setup.device());
    let copies = [middle.sub_graph(&child).id(), middle.sub_graph(&child).id()];
    let mut graph = Graph::new(setup.device());
    let first = graph.launch(mix(1, &x), Range::linear(4)).id();
    let parents = [graph.sub_graph(&middle).id(), graph.sub_graph(&middle).id()];
    let exec = finalize(&graph);
    let mut numbers = [1, 5, 6, 5, 6, 5, 6, 5, 6].map(Some);
    setup.block_on(async {
        let mut model = 1;
        for (round, (parent, copy)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
            let n = 100 + round as u32;
            let path = |node: usize| inner[node].within(copies[copy]).within(parents[parent]);
            let place = 1 + 4 * parent + 2 * copy;
            numbers[place] = numbers[place].filter(|_| round % 2 == 0);
            (numbers[0], numbers[place + 1]) = (Some(n), Some(n));
            let update = exec.update().launch(path(1), mix(n, &x)).enabled(path(0), round % 2 == 0);
            update.launch(first, mix(n, &x)).apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = mixed(model, &numbers.into_iter().flatten().collect::<Vec<_>>());
                assert_eq!(x.to_vec().await.unwrap(), [model; 4], "round {round}");
            }
        }
        let invalid = ErrorKind::InvalidArgument;
        let wrong = exec.update().enabled(inner[0].within(copies[0]), false).apply().await;
        refused(wrong, invalid, &["of another graph", "within"]);
        let wrong = exec.update().enabled(inner[0].within(first), false).apply().await;
        refused(wrong, invalid, &["has no nodes within it"]);
        let wrong = exec.update().launch(parents[0], mix(1, &x)).apply().await;
        refused(wrong, invalid, &["only kernels have arguments", "within"]);
        // From another graph, which takes all of it back; the paths stay good.
        exec.update_from(&graph).await.unwrap();
        exec.submit().await.unwrap();
        model = mixed(model, &[1, 5, 6, 5, 6, 5, 6, 5, 6]);
        let last = inner[1].within(copies[1]).within(parents[1]);
        exec.update().launch(last, mix(9, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
        model = mixed(model, &[1, 5, 6, 5, 6, 5, 6, 5, 9]);
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

// left and right inside one sub-graph, another node beside it.
fn unordered_memory_inside_sub_graphs_is_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[1; 4]));
    let range = Range::linear(4);
    let mut child = Graph::new(setup.device());
    let left = child.launch(mix(1, &x), range).name("left").id();
    let right = child.launch(mix(1, &y), range).name("right").id();
    let mut graph = Graph::new(setup.device());
    let sub = graph.sub_graph(&child).id();
    let aside = graph.launch(mix(1, &z), range).name("aside").id();
    let after = graph.launch(mix(2, &x), range).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let invalid = ErrorKind::InvalidArgument;
        let update = exec.update().launch(left.within(sub), mix(1, &y)).apply().await;
        refused(update, invalid, &["'left'", "'right'", "no edge"]);
        let update = exec.update().launch(right.within(sub), mix(1, &z)).apply().await;
        refused(update, invalid, &["'right'", "'aside'", "no edge"]);
        // In order with everything inside.
        exec.update().launch(after, mix(3, &y)).apply().await.unwrap();
        exec.update().enabled(aside, false).launch(left.within(sub), mix(4, &x)).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[4, 4]); 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[1, 3, 1, 3]); 4]);
        assert_eq!(z.to_vec().await.unwrap(), [1; 4]);
    });
}

// mix x on the first device -> copy to the second -> mix there, both changed by one update.
// Where the devices have no direct path, the copy goes through the host.
fn operands_of_copies_between_devices(setup: &Setup) {
    let all = |device: &wakegraph::Device| device.capabilities().update == UpdateCapabilities::all();
    if !setup.devices.iter().all(all) {
        return lacks("all updates");
    }
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let x = a.buffer_from(&(0..16).collect::<Vec<u32>>()).unwrap();
    let (y, z) = (b.buffer::<u32>(4).unwrap(), b.buffer::<u32>(16).unwrap());
    let mut graph = Graph::new(a);
    let (first, second) = (x.slice(..4).unwrap(), x.slice(4..8).unwrap());
    let copy = graph.copy(&first, &y).id();
    let square = RectCopy::new([2, 2], Layout::rows(4), Layout::rows(2));
    let rect = graph.copy_rect(&x, z.slice(..4).unwrap(), square).after([copy]).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let check = async |in_y: &[u32], in_z: &[u32]| {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), in_y);
                assert_eq!(z.to_vec().await.unwrap()[..in_z.len()], *in_z);
            }
        };
        check(&[0, 1, 2, 3], &[0, 1, 4, 5, 0]).await;
        exec.update().copy(copy, &second, &y).apply().await.unwrap();
        check(&[4, 5, 6, 7], &[0, 1, 4, 5, 0]).await;
        // Shorter, other memory of both devices, and longer than ever.
        let upper = z.slice(14..).unwrap();
        exec.update().copy(copy, x.slice(8..10).unwrap(), &upper).apply().await.unwrap();
        check(&[4, 5, 6, 7], &[0, 1, 4, 5, 0]).await;
        assert_eq!(z.to_vec().await.unwrap()[12..], [0, 0, 8, 9]);
        let update = exec.update().copy(copy, x.slice(4..).unwrap(), z.slice(4..).unwrap());
        let later = RectCopy::new([2, 2], Layout::rows(4).origin([1, 1]), Layout::rows(2));
        update.copy_rect(rect, &x, &y, later).apply().await.unwrap();
        check(&[5, 6, 9, 10], &[0, 1, 4, 5, 4, 5, 6, 7, 8]).await;
        // An update that is refused changes neither half.
        let half = x.slice(..2).unwrap();
        let error = exec.update().copy(copy, &half, &y).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
        let error = exec.update().copy(rect, &first, &y).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        check(&[5, 6, 9, 10], &[0, 1, 4, 5, 4, 5, 6, 7, 8]).await;
    });
}

// Likewise, also in a sub-graph and in the body of a loop.
fn copies_between_devices_are_switched_off(setup: &Setup) {
    let can = |device: &wakegraph::Device| device.capabilities().update.contains(UpdateCapabilities::ENABLED);
    if !setup.devices.iter().all(can) {
        return lacks("switching nodes off");
    }
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let x = a.buffer_from(&[1u32; 4]).unwrap();
    let [y, z, w] = [(); 3].map(|()| b.buffer::<u32>(4).unwrap());
    let left = a.host_buffer::<u32>(1).unwrap();
    let (mut child, mut body) = (Graph::new(a), Graph::new(a));
    let in_child = child.copy(&x, &z).id();
    let in_body = body.copy(&x, &w).id();
    body.host_task((write(&left),), async |(mut left,)| left[0] = 0);
    let mut graph = Graph::new(a);
    let copy = graph.copy(&x, &y).id();
    let in_child = in_child.within(graph.sub_graph(&child).id());
    graph.host_task((write(&left),), async |(mut left,)| left[0] = 1);
    let in_body = in_body.within(graph.while_nonzero(&left, &body).id());
    let exec = finalize(&graph);
    setup.block_on(async {
        let copies = [copy.into(), in_child, in_body];
        for on in [0b000, 0b101, 0b010, 0b111] {
            let is_on = |i: usize| on >> i & 1 == 1;
            let update = exec.update();
            let update = (0..3).fold(update, |update, i| update.enabled(copies[i].clone(), is_on(i)));
            update.apply().await.unwrap();
            for buffer in [&y, &z, &w] {
                buffer.write(&[0; 4]).await.unwrap();
            }
            exec.submit().await.unwrap();
            for (i, buffer) in [&y, &z, &w].into_iter().enumerate() {
                assert_eq!(buffer.to_vec().await.unwrap(), [u32::from(is_on(i)); 4], "copy {i} of {on:b}");
            }
        }
    });
}

fn on_two_devices(setup: &Setup) {
    let all = |device: &wakegraph::Device| device.capabilities().update == UpdateCapabilities::all();
    if !setup.devices.iter().all(all) {
        return lacks("all updates");
    }
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, y, z) =
        (a.buffer_from(&[1u32; 8]).unwrap(), b.buffer::<u32>(8).unwrap(), b.buffer_from(&[1u32; 8]).unwrap());
    let mut graph = Graph::new(a);
    let first = graph.launch(mix(1, &x), Range::linear(8)).id();
    graph.copy(&x, &y);
    let last = graph.launch(axpy(1, &y, &z), Range::linear(8)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut submissions, mut updates, mut model) = (Vec::new(), Vec::new(), [1u32; 2]);
        for n in 0..30 {
            let update = exec.update().launch(first, mix(n, &x)).launch(last, axpy(n, &y, &z));
            updates.push(update.enabled(first, n % 4 > 0).apply());
            submissions.push(exec.submit());
            model[0] = if n % 4 > 0 { mixed(model[0], &[n]) } else { model[0] };
            model[1] = model[1].wrapping_add(n.wrapping_mul(model[0]));
        }
        for update in updates {
            update.await.unwrap();
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [model[0]; 8]);
        assert_eq!(z.to_vec().await.unwrap(), [model[1]; 8]);
        // Memory of the other device, which the node cannot use.
        let far = exec.update().launch(first, mix(1, &z)).apply().await;
        let far_memory = MemoryDesc::new(4, MemoryKind::Device);
        if !a.hal().can_access(&*b.hal().allocate(&far_memory).unwrap()) {
            assert_eq!(far.unwrap_err().kind(), ErrorKind::InvalidArgument);
        }
    });
}

/// fill x with `n` -> mix x -> [copy to y] and, beside it, add to z; and a sub-graph behind.
fn diamond(setup: &Setup, n: u32, [x, y, z]: [&Buffer<u32>; 3]) -> Graph {
    let range = Range::linear(x.len());
    let mut child = Graph::new(setup.device());
    child.launch(mix(n + 2, z), range);
    let mut graph = Graph::new(setup.device());
    graph.fill(x, n);
    graph.launch(mix(n + 1, x), range).alternative(add(0, x));
    graph.copy(x, y);
    graph.launch(add(n, z), range);
    graph.sub_graph(&child);
    graph.empty().after_leaves();
    graph
}

fn from_another_graph(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let buffers = || [(); 3].map(|()| buffer(setup, &[1; 4]));
    let (ours, theirs) = (buffers(), buffers());
    let exec = finalize(&diamond(setup, 5, ours.each_ref()));
    setup.block_on(async {
        let before = exec.submit();
        let other = diamond(setup, 8, theirs.each_ref());
        exec.update_from(&other).await.unwrap();
        drop(other);
        for round in 1..=2 {
            exec.submit().await.unwrap();
            let z = (0..round).fold(1, |z: u32, _| mixed(z + 8, &[10]));
            for (buffer, value) in theirs.iter().zip([mixed(8, &[9]), mixed(8, &[9]), z]) {
                assert_eq!(buffer.to_vec().await.unwrap(), [value; 4]);
            }
        }
        before.await.unwrap();
        for (buffer, value) in ours.iter().zip([mixed(5, &[6]), mixed(5, &[6]), mixed(6, &[7])]) {
            assert_eq!(buffer.to_vec().await.unwrap(), [value; 4]);
        }
        // A registered alternative in the place of the kernel.
        let mut another = Graph::new(setup.device());
        let [x, y, z] = ours.each_ref();
        another.fill(x, 3);
        another.launch(add(4, x), Range::linear(4));
        another.copy(x, y);
        another.launch(add(0, z), Range::linear(4));
        let mut child = Graph::new(setup.device());
        child.launch(mix(0, z), Range::linear(4));
        another.sub_graph(&child);
        another.empty().after_leaves();
        exec.update_from(&another).await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [7; 4]);
    });
}

// add 1 to what the flag allows -> mix x, then other flags, numbers and memory
fn from_a_graph_with_conditionals(setup: &Setup) {
    let device = setup.device();
    if !can_update(setup) {
        return;
    }
    let [on, off, x, y] = [1, 0, 0, 0].map(|word| words(device, [word]));
    let build = |flag, n, x| {
        let mut graph = Graph::new(device);
        graph.if_nonzero(flag, &adds(device, n, x));
        graph.launch(mix(n, x), Range::linear(1));
        graph
    };
    let exec = finalize(&build(&on, 1, &x));
    setup.block_on(async {
        let before = [exec.submit(), exec.submit()];
        exec.update_from(&build(&on, 5, &y)).await.unwrap();
        let between = [exec.submit(), exec.submit()];
        exec.update_from(&build(&off, 7, &x)).await.unwrap();
        exec.submit().await.unwrap();
        for submission in before.into_iter().chain(between) {
            submission.await.unwrap();
        }
        let twice = |n: u32| mixed(mixed(n, &[n]) + n, &[n]);
        assert_eq!(y.to_vec().await.unwrap(), [twice(5)]);
        assert_eq!(x.to_vec().await.unwrap(), [mixed(twice(1), &[7])]);
    });
}

fn from_a_graph_with_host_tasks(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let host = device.host_buffer::<u32>(2).unwrap();
    let last = Arc::new(AtomicU32::new(0));
    let build = |x: &Buffer<u32>, factor: u32| {
        let mut graph = Graph::new(device);
        graph.launch(add(1, x), Range::linear(2));
        graph.copy(x, &host);
        let last = last.clone();
        graph.host_task((read(&host),), async move |(host,)| last.store(factor * host[1], Ordering::SeqCst));
        graph
    };
    let (x, y) = (buffer(setup, &[1; 2]), buffer(setup, &[10; 2]));
    let exec = finalize(&build(&x, 1));
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(last.load(Ordering::SeqCst), 2);
        let running = exec.submit();
        let update = exec.update_from(&build(&y, 1000));
        let after = exec.submit();
        update.await.unwrap();
        running.await.unwrap();
        after.await.unwrap();
        assert_eq!(last.load(Ordering::SeqCst), 11_000);
        assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), (vec![3; 2], vec![11; 2]));
    });
}

// fill x -> copy to y -> read, write back to z, each with other operands than at first.
fn operands_of_fills_and_copies(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[0; 8]));
    let [host, other] = [(); 2].map(|()| device.host_buffer_from(&[0u32; 8]).unwrap());
    let mut graph = Graph::new(device);
    let fill = graph.fill(&x, 1).id();
    let copy = graph.copy(&x, &y).id();
    let down = graph.copy(&y, &host).id();
    let up = graph.copy(&host, &z).after([down]).id();
    graph.launch(add(1, &z), Range::linear(8));
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(z.to_vec().await.unwrap(), [2; 8]);
        exec.update().fill(fill, &x, 5).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(z.to_vec().await.unwrap(), [6; 8]);
        }
        // Patterns of several sizes, parts of buffers, other buffers.
        let parts = |at: usize| [&x, &y, &z].map(|buffer| buffer.slice(at..at + 4).unwrap());
        for (at, pattern) in [(0, &[1u32, 2][..]), (4, &[1, 2, 3, 4]), (2, &[7])] {
            let [x, y, z_part] = parts(at);
            let [h, o] = [&host, &other].map(|host| host.slice(at..at + 4).unwrap());
            let host = if at == 2 { o } else { h };
            exec.update()
                .fill_pattern(fill, &x, pattern)
                .copy(copy, &x, &y)
                .copy(down, &y, &host)
                .copy(up, &host, &z_part)
                .apply()
                .await
                .unwrap();
            let mut model = z.to_vec().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model[at..at + 4].iter_mut().zip(pattern.iter().cycle()).for_each(|(z, value)| *z = *value);
                model.iter_mut().for_each(|z| *z += 1);
                assert_eq!(z.to_vec().await.unwrap(), model, "{at} {pattern:?}");
            }
        }
        // Switched off, changed meanwhile, and on again.
        exec.update().enabled(fill, false).fill(fill, &x, 9).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap()[2], 7);
        exec.update().enabled(fill, true).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [9; 8]);
        // Together with a kernel, and taken back as a whole.
        exec.update_from(&graph).await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(z.to_vec().await.unwrap(), [2; 8]);
    });
}

fn operands_of_rectangles(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let numbers: Vec<u32> = (0..16).collect();
    let (x, y) = (buffer(setup, &numbers), buffer(setup, &[100; 16]));
    let mut graph = Graph::new(setup.device());
    let rows = |column, row| Layout::rows(4).origin([column, row]);
    let copy = graph.copy_rect(&x, &y, RectCopy::new([2, 2], rows(0, 0), rows(0, 0))).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let mut model = [100; 16];
        let square = |model: &mut [u32; 16], [from, to]: [usize; 2]| {
            [0, 1, 4, 5].iter().for_each(|at| model[to + at] = numbers[from + at]);
        };
        square(&mut model, [0, 0]);
        let other = RectCopy::new([2, 2], rows(1, 1), rows(2, 2));
        exec.update().copy_rect(copy, &x, &y, other).apply().await.unwrap();
        square(&mut model, [5, 10]);
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), model);
        }
    });
}

fn operands_in_flight(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let buffers = [buffer(setup, &[1; 64]), buffer(setup, &[1; 64])];
    let mut graph = Graph::new(setup.device());
    let fill = graph.fill(&buffers[0], 0).id();
    let node = graph.launch(mix(1, &buffers[0]), Range::linear(64)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut submissions, mut model) = (Vec::new(), [1u32; 2]);
        for n in 0..30u32 {
            let target = n as usize % 3 % 2;
            let update = exec.update().fill(fill, &buffers[target], n).launch(node, mix(n, &buffers[target]));
            update.apply().await.unwrap();
            submissions.push(exec.submit());
            model[target] = mixed(n, &[n]);
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        for (buffer, model) in buffers.iter().zip(model) {
            assert_eq!(buffer.to_vec().await.unwrap(), [model; 64]);
        }
    });
}

fn wrong_operands_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[1; 4]));
    let host = device.host_buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    let fill = graph.fill(&x, 2).name("fill").id();
    let copy = graph.copy(&x, &y).name("copy").id();
    let launch = graph.launch(mix(1, &z), Range::linear(4)).name("launch").id();
    let exec = finalize(&graph);
    let (invalid, size) = (ErrorKind::InvalidArgument, ErrorKind::InvalidSize);
    setup.block_on(async {
        let update = || exec.update().fill(fill, &x, 50);
        let short = y.slice(..3).unwrap();
        refused(update().copy(copy, &x, &short).apply().await, size, &["'copy'", "cannot copy 4 elements"]);
        refused(update().copy(copy, &x, &host).apply().await, invalid, &["'copy'", "those of a buffer read"]);
        refused(update().copy(copy, &host, &host).apply().await, invalid, &["both sides"]);
        refused(update().copy(copy, &x, &x).apply().await, invalid, &["copy"]);
        refused(update().copy(fill, &x, &y).apply().await, invalid, &["'fill'", "the node is a buffer fill"]);
        refused(update().fill(launch, &x, 1).apply().await, invalid, &["'launch'", "only fills and copies"]);
        refused(update().fill_pattern(fill, &x, &[1, 2, 3]).apply().await, size, &["'fill'", "pattern"]);
        refused(update().fill(fill, &z, 1).apply().await, invalid, &["'fill'", "'launch'", "no edge"]);
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        if setup.can(Need::Results) {
            assert_eq!(y.to_vec().await.unwrap(), [2; 4]);
        }
    });
}

// Other closures: over the memory that the task has, over other memory, and blocking.
fn closures_of_host_tasks(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let x = buffer(setup, &[1; 2]);
    let [host, other] = [(); 2].map(|()| device.host_buffer_from(&[0u32; 2]).unwrap());
    let seen = Arc::new(AtomicU32::new(0));
    let tell = |factor: u32| {
        let seen = seen.clone();
        move |number: u32| seen.store(factor * number, Ordering::SeqCst)
    };
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(2));
    graph.copy(&x, &host);
    let first = tell(1);
    let task = graph.host_task((read(&host),), async move |(host,)| first(host[0])).id();
    graph.launch(add(10, &x), Range::linear(2)).after([task]);
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 2);
        let ten = tell(10);
        let closure = async move |(host,): (wakegraph::HostRef<u32>,)| {
            tokio::task::yield_now().await;
            ten(host[1]);
        };
        exec.update().host_task(task, (read(&host),), closure).apply().await.unwrap();
        for number in [13, 24] {
            exec.submit().await.unwrap();
            assert_eq!(seen.load(Ordering::SeqCst), 10 * number);
        }
        // Memory that the graph did not use before, and a guard of it beside submissions.
        let closure = async |(mut other,): (wakegraph::HostMut<u32>,)| other[1] += 1;
        exec.update().host_task(task, (write(&other),), closure).apply().await.unwrap();
        let submissions = [exec.submit(), exec.submit()];
        assert_eq!(*other.read().await, [0, 2]);
        for submission in submissions {
            submission.await.unwrap();
        }
        let hundred = tell(100);
        let closure = move |(host, other): (wakegraph::HostRef<u32>, wakegraph::HostRef<u32>)| {
            hundred(host[0] + other[1]);
        };
        let accesses = (read(&host), read(&other));
        exec.update().host_task_blocking(task, accesses, closure).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 100 * (2 + 11 * 6 + 2));
        // The graph is as it was.
        graph.finalize().unwrap().submit().await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 2 + 11 * 7);
    });
}

fn closures_that_wait_for_their_turn(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let tell = |number: u32| {
        let seen = seen.clone();
        async move |()| {
            tokio::task::yield_now().await;
            seen.lock().push(number);
        }
    };
    let mut graph = Graph::new(setup.device());
    let task = graph.host_task((), tell(0)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut updates, mut submissions) = (Vec::new(), vec![exec.submit()]);
        for number in 1..20 {
            updates.push(exec.update().host_task(task, (), tell(number)).apply());
            submissions.push(exec.submit());
        }
        for update in updates {
            update.await.unwrap();
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert!(seen.lock().iter().copied().eq(0..20));
    });
}

fn wrong_closures_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let x = buffer(setup, &[1; 2]);
    let [host, other] = [(); 2].map(|()| device.host_buffer_from(&[0u32; 2]).unwrap());
    let mut graph = Graph::new(device);
    let launch = graph.launch(add(1, &x), Range::linear(2)).name("launch").id();
    graph.copy(&x, &other).name("copy");
    let task = graph.host_task((write(&host),), async |(mut host,)| host[0] += 1).name("task").id();
    let exec = finalize(&graph);
    let invalid = ErrorKind::InvalidArgument;
    setup.block_on(async {
        let update = exec.update().host_task(launch, (), async |()| {}).apply().await;
        refused(update, invalid, &["only host tasks have a closure", "'launch'"]);
        let accesses = (read(&host), write(&host));
        let update = exec.update().host_task(task, accesses, async |_| {}).apply().await;
        refused(update, invalid, &["accesses overlap", "'task'"]);
        let update = exec.update().host_task(task, (read(&other),), async |_| {}).apply().await;
        refused(update, invalid, &["'task'", "'copy'", "no edge orders the two"]);
        // A launch that is refused takes the closure with it.
        let update = exec.update().host_task(task, (), async |()| {}).range(launch, Range::linear(3));
        refused(update.apply().await, ErrorKind::InvalidSize, &["'launch'"]);
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        assert_eq!(*host.read().await, [2, 0]);
    });
}

// Another executable uses what the update brings, and what it leaves.
fn conflicting_executables_follow_it(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1; 256]), buffer(setup, &[1; 256]));
    let (graph, nodes) = chain(setup, &x, &[1]);
    let exec = finalize(&graph);
    let others = [&x, &y].map(|buffer| chain(setup, buffer, &[2]).0.finalize().unwrap());
    setup.block_on(async {
        let (mut submissions, mut model) = (Vec::new(), [1u32; 2]);
        for n in 0..40u32 {
            let to = (n / 3 % 2) as usize;
            exec.update().launch(nodes[0], mix(n, [&x, &y][to])).apply().await.unwrap();
            submissions.extend([exec.submit(), others[0].submit(), others[1].submit(), exec.submit()]);
            model[to] = mixed(model[to], &[n, 2, n]);
            model[1 - to] = mixed(model[1 - to], &[2]);
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [model[0]; 256]);
        assert_eq!(y.to_vec().await.unwrap(), [model[1]; 256]);
    });
}

// Any number of updates and submissions, against a model; nothing is waited for in between.
fn random_updates(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let buffers: Vec<_> = (0..3).map(|_| buffer(setup, &[1; 16])).collect();
        let mut graph = Graph::new(setup.device());
        // Each after the one before, so that any memory is in order.
        let mut nodes: Vec<NodeId> = Vec::new();
        for _ in 0..5 {
            let node = graph.launch(mix(0, &buffers[0]), Range::linear(16));
            let node = node.alternative(add(0, &buffers[0])).after(nodes.last().copied());
            nodes.push(node.id());
        }
        let exec = finalize(&graph);
        // Kernel, number, buffer, enabled.
        let mut state = [(true, 0u32, 0usize, true); 5];
        let mut model = [[1u32]; 3];
        setup.block_on(async {
            let mut submissions = Vec::new();
            for _ in 0..40 {
                let mut update = exec.update();
                for _ in 0..random.within(1..=3) {
                    let node = random.below(5);
                    let (mixes, n, to) = (random.below(2) == 0, random.below(1000) as u32, random.below(3));
                    let on = random.below(4) > 0;
                    state[node] = (mixes, n, to, on);
                    update = if mixes {
                        update.launch(nodes[node], mix(n, &buffers[to]))
                    } else {
                        update.launch(nodes[node], add(n, &buffers[to]))
                    };
                    update = update.enabled(nodes[node], on);
                }
                update.apply().await.unwrap();
                for _ in 0..random.within(1..=2) {
                    submissions.push(exec.submit());
                    for (mixes, n, to, on) in state {
                        let [x] = &mut model[to];
                        match (on, mixes) {
                            (true, true) => *x = mixed(*x, &[n]),
                            (true, false) => *x = x.wrapping_add(n),
                            (false, _) => {}
                        }
                    }
                }
            }
            for submission in submissions {
                submission.await.unwrap();
            }
            for (buffer, [value]) in buffers.iter().zip(model) {
                assert_eq!(buffer.to_vec().await.unwrap(), [value; 16], "seed {seed}");
            }
        });
    }
}

#[track_caller]
pub(super) fn refused(result: Result<()>, kind: ErrorKind, words: &[&str]) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
}

fn misuse_is_refused(setup: &Setup) {
    let x = buffer(setup, &[1; 4]);
    let (mut graph, nodes) = chain(setup, &x, &[1, 2]);
    let hint = graph.empty().id();
    let fixed = graph.finalize().unwrap();
    let options = FinalizeOptions::new().updatable(true);
    let invalid = ErrorKind::InvalidArgument;
    setup.block_on(async {
        let update = fixed.update().launch(nodes[0], mix(1, &x)).apply().await;
        refused(update, ErrorKind::InvalidOperation, &["not updatable", "updatable(true)"]);
        refused(fixed.update_from(&graph).await, ErrorKind::InvalidOperation, &["not updatable"]);
        if setup.device().capabilities().update.is_empty() {
            let error = graph.finalize_with(options).unwrap_err();
            return assert_eq!(error.kind(), ErrorKind::FeatureNotSupported, "{error}");
        }
        let exec = graph.finalize_with(options).unwrap();
        let late = graph.launch(mix(1, &x), Range::linear(4)).id();
        let (_, others) = chain(setup, &x, &[1]);
        let update = exec.update().launch(others[0], mix(1, &x)).apply().await;
        refused(update, invalid, &["node #0", "another graph", "updates.rs"]);
        let update = exec.update().enabled(late, false).apply().await;
        refused(update, invalid, &["node #3", "added after"]);
        let update = exec.update().enabled(hint, false).apply().await;
        refused(update, invalid, &["only kernels, fills and copies", "empty node #2"]);
        let update = exec.update().range(hint, Range::linear(1)).apply().await;
        refused(update, invalid, &["only kernels have arguments and a range", "empty node #2"]);
        let update = exec.update().launch(nodes[0], add(1, &x)).apply().await;
        refused(update, invalid, &["'add'", "registered alternative", "kernel 'mix' (#0)"]);
        let y = x.slice(..3).unwrap();
        let overlapping = exec.update().launch(nodes[0], axpy(1, &x, &y)).apply().await;
        refused(overlapping, invalid, &["'axpy'"]);
        exec.update().apply().await.unwrap();
        exec.submit().await.unwrap();
        graph.launch(mix(1, &x), Range::linear(4)).alternative(add(0, &x));
        graph.fill(&x, 1).alternative(add(0, &x));
        let error = graph.finalize().unwrap_err();
        assert!(error.to_string().contains("only kernels have alternatives"), "{error}");
    });
}

fn unordered_memory_is_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[1; 4]));
    let range = Range::linear(4);
    let mut graph = Graph::new(setup.device());
    let left = graph.launch(mix(1, &x), range).name("left").id();
    let right = graph.launch(axpy(1, &z, &y), range).name("right").id();
    let join = graph.launch(axpy(1, &x, &y), range).name("join").id();
    let exec = finalize(&graph);
    let refuses = ["'left'", "'right'", "no edge orders the two", "finalize"];
    let invalid = ErrorKind::InvalidArgument;
    setup.block_on(async {
        // Writes what the other one writes, or reads.
        refused(exec.update().launch(left, mix(1, &y)).apply().await, invalid, &refuses);
        refused(exec.update().launch(left, mix(1, &z)).apply().await, invalid, &refuses);
        // Both at once, neither with what it had: the same memory, or each other's.
        let w = buffer(setup, &[1; 4]);
        let both = exec.update().launch(left, mix(1, &w)).launch(right, axpy(1, &z, &w));
        refused(both.apply().await, invalid, &["no edge orders the two"]);
        exec.update().launch(left, mix(1, &z)).launch(right, axpy(1, &w, &y)).apply().await.unwrap();
        // Now that `right` reads something else, `z` is free for `left`, and no longer for `right`.
        refused(exec.update().launch(right, axpy(1, &z, &y)).apply().await, invalid, &refuses);
        // Parts that do not meet, and memory of nodes in order.
        let halves = [x.slice(..2).unwrap(), x.slice(2..).unwrap()];
        let parts = exec.update().launch(left, mix(1, &halves[0])).range(left, Range::linear(2));
        let parts =
            parts.launch(right, axpy(1, &halves[1], w.slice(..2).unwrap())).range(right, Range::linear(2));
        parts.apply().await.unwrap();
        exec.update().launch(join, axpy(1, &w, &z)).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn other_graphs_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[1; 4]));
    let range = Range::linear(4);
    let build = |change: usize| {
        let mut child = Graph::new(setup.device());
        match change {
            1 => child.fill(&z, 1),
            _ => child.launch(mix(1, &z), range),
        };
        let mut graph = Graph::new(setup.device());
        let first = match change {
            2 => graph.launch(add(1, &x), range),
            _ => graph.launch(mix(1, &x), range),
        };
        let first = first.name("first").id();
        match change {
            3 => graph.copy(&y, &x),
            4 => graph.copy(&z, &y),
            _ => graph.copy(&x, &y),
        };
        let child = graph.sub_graph(&child).name("child").id();
        match change {
            5 => _ = graph.make_edge(first, child),
            6 => _ = graph.empty(),
            _ => {}
        }
        graph
    };
    let exec = finalize(&build(0));
    setup.block_on(async {
        for (change, words) in [
            (1, &["sub-graph 'child' (#2) / kernel", "buffer fill there"][..]),
            (2, &["kernel 'first' (#0)", "kernel 'add' there", "no registered alternative"]),
            (4, &["edge"]),
            (5, &["edge", "kernel 'first' (#0) -> sub-graph 'child' (#2)", "there only"]),
            (6, &["empty node #3", "there only"]),
        ] {
            refused(exec.update_from(&build(change)).await, ErrorKind::InvalidArgument, words);
        }
        let mut wrong = build(0);
        wrong.copy(&x, x.slice(..2).unwrap());
        refused(exec.update_from(&wrong).await, ErrorKind::InvalidSize, &["cannot copy 4 elements"]);
        // The other way round is another edge set only where it is one.
        exec.update_from(&build(3)).await.unwrap();
        exec.update_from(&build(0)).await.unwrap();
        exec.submit().await.unwrap();
    });
}
