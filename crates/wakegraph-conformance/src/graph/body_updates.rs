//! Updates of single nodes inside the bodies of conditionals and loops, on every device: where the
//! device decides by itself, and where the runtime does.
#![expect(unsafe_code, reason = "imports memory by its address")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wakegraph::graph::NodePath;
use wakegraph::{Buffer, Device, ErrorKind, Graph, HostBuffer, NodeId, Range, write};

use super::control::{adds, words};
use super::updates::{can_update, finalize, mixed};
use crate::kernels::{add, axpy, mix};
use crate::suite::{Need, Setup, tests};

tests!("graph/body_updates":
    &[Need::Results] => [arguments_ranges_and_switches, operands_and_other_kernels, host_tasks_get_other_closures,
        parameters_and_groups, both_branches, inside_each_other, the_same_graph_as_both_branches,
        runs_in_flight_keep_their_bodies, memory_is_ordered_for_other_executables, several_bodies_at_once,
        scratch_memory_stays_with_its_nodes, after_a_whole_update, disabled_nodes_keep_their_memory,
        operands_of_disabled_nodes_are_checked, names_stay_when_memory_changes_the_edges],
    &[Need::Results, Need::TwoDevices] => [switched_off_until_one_device_is_left],
    &[Need::Results, Need::ConcurrentParts] => [unordered_memory_is_refused],
    &[] => [misuse_is_refused]);

/// Whether the runtime drives the body.
const BY: [bool; 2] = [false, true];

/// An empty body, which needs the host if asked for.
fn body(device: &Device, by_host: bool) -> Graph {
    let mut body = Graph::new(device);
    if by_host {
        body.host_task((), async |()| tokio::task::yield_now().await);
    }
    body
}

fn host_words<const N: usize>(device: &Device, words: [u32; N]) -> HostBuffer<u32> {
    device.host_buffer_from(&words).unwrap()
}

fn arguments_ranges_and_switches(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x, y) = (words(device, [0]), words(device, [0; 4]), words(device, [0; 4]));
        let mut looping = body(device, by_host);
        let first = looping.launch(add(1, &x), Range::linear(4)).id();
        looping.launch(add(u32::MAX, &flag), Range::linear(1));
        let mut graph = Graph::new(device);
        let node = graph.while_nonzero(&flag, &looping).id();
        let exec = finalize(&graph);
        let run = async || {
            for _ in 0..2 {
                flag.write(&[3]).await.unwrap();
                exec.submit().await.unwrap();
            }
            let results = (x.to_vec().await.unwrap(), y.to_vec().await.unwrap());
            x.write(&[0; 4]).await.unwrap();
            y.write(&[0; 4]).await.unwrap();
            results
        };
        let path = || first.within(node);
        setup.block_on(async {
            assert_eq!(run().await, (vec![6; 4], vec![0; 4]));
            exec.update().launch(path(), add(10, &x)).apply().await.unwrap();
            assert_eq!(run().await, (vec![60; 4], vec![0; 4]));
            exec.update().range(path(), Range::linear(2)).apply().await.unwrap();
            assert_eq!(run().await, (vec![60, 60, 0, 0], vec![0; 4]));
            // Other memory, and another update of a node that has been updated.
            exec.update().launch(path(), add(7, &y)).apply().await.unwrap();
            assert_eq!(run().await, (vec![0; 4], vec![42, 42, 0, 0]));
            exec.update().enabled(path(), false).apply().await.unwrap();
            assert_eq!(run().await, (vec![0; 4], vec![0; 4]));
            // What is said about a disabled node holds when it is enabled again.
            exec.update().launch(path(), add(2, &x)).apply().await.unwrap();
            assert_eq!(run().await, (vec![0; 4], vec![0; 4]));
            exec.update().enabled(path(), true).range(path(), Range::linear(3)).apply().await.unwrap();
            assert_eq!(run().await, (vec![12, 12, 12, 0], vec![0; 4]));
        });
    }
}

fn operands_and_other_kernels(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let flag = words(device, [1]);
        let [x, y, z] = [1, 2, 3].map(|word| words(device, [word; 4]));
        let mut then = body(device, by_host);
        let fill = then.fill(&x, 5).id();
        let copy = then.copy(&x, &y).id();
        let kernel = then.launch(add(1, &y), Range::linear(4)).alternative(axpy(1, &x, &y)).id();
        let mut graph = Graph::new(device);
        let node = graph.if_nonzero(&flag, &then).id();
        let exec = finalize(&graph);
        let run = async || {
            for _ in 0..2 {
                exec.submit().await.unwrap();
            }
            [&x, &y, &z].map(|buffer| buffer.clone())
        };
        let check = async |expected: [u32; 3]| {
            for (buffer, expected) in run().await.iter().zip(expected) {
                assert_eq!(buffer.to_vec().await.unwrap(), [expected; 4]);
            }
        };
        setup.block_on(async {
            check([5, 6, 3]).await;
            exec.update().fill(fill.within(node), &x, 9).apply().await.unwrap();
            check([9, 10, 3]).await;
            let update = exec.update().launch(kernel.within(node), axpy(10, &x, &y));
            update.fill(fill.within(node), &x, 2).apply().await.unwrap();
            check([2, 22, 3]).await;
            exec.update().copy(copy.within(node), &x, &z).apply().await.unwrap();
            check([2, 62, 2]).await;
            exec.update().launch(kernel.within(node), add(1, &y)).apply().await.unwrap();
            check([2, 64, 2]).await;
        });
    }
}

fn host_tasks_get_other_closures(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (left, count) = (host_words(device, [0]), Arc::new(AtomicU32::new(0)));
    let mut looping = Graph::new(device);
    let task = looping.host_task((write(&left),), async |(mut left,)| left[0] -= 1).id();
    let mut graph = Graph::new(device);
    let node = graph.while_nonzero(&left, &looping).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let run = async || {
            count.store(0, Ordering::SeqCst);
            left.write().await[0] = 4;
            exec.submit().await.unwrap();
            count.load(Ordering::SeqCst)
        };
        assert_eq!(run().await, 0);
        for (step, rounds) in [(1, 4), (2, 2), (4, 1)] {
            let count = count.clone();
            let counting = async move |(mut left,): (wakegraph::HostMut<u32>,)| {
                count.fetch_add(1, Ordering::SeqCst);
                left[0] -= step;
            };
            exec.update().host_task(task.within(node), (write(&left),), counting).apply().await.unwrap();
            assert_eq!([run().await, run().await], [rounds; 2]);
        }
    });
}

fn parameters_and_groups(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x, y) = (words(device, [1]), words(device, [1; 2]), words(device, [1; 2]));
        let mut then = body(device, by_host);
        let (n, out) = (then.param(3u32), then.param(&x));
        then.launch(mix(0, &x), Range::linear(2)).param("n", &n).param("x", &out);
        then.launch(add(0, &x), Range::linear(2)).param("n", &n).param("x", &out);
        let group =
            then.command_group().launch(add(100, &x), Range::linear(2)).launch(mix(7, &x), Range::linear(2));
        let group = group.build();
        then.add_group(&group);
        let mut graph = Graph::new(device);
        graph.if_nonzero(&flag, &then);
        let exec = finalize(&graph);
        setup.block_on(async {
            let (mut of_x, mut of_y) = (1u32, 1u32);
            let check = async |x_now: u32, y_now: u32| {
                exec.submit().await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [x_now; 2]);
                assert_eq!(y.to_vec().await.unwrap(), [y_now; 2]);
            };
            for _ in 0..2 {
                of_x = mixed(of_x, &[3]) + 103;
                check(of_x, of_y).await;
            }
            exec.update().param(&n, 5).apply().await.unwrap();
            for _ in 0..2 {
                of_x = mixed(of_x, &[5]).wrapping_add(105);
                check(of_x, of_y).await;
            }
            exec.update().param(&out, &y).choose(&group, 1).apply().await.unwrap();
            for _ in 0..2 {
                (of_x, of_y) = (mixed(of_x, &[7]), mixed(of_y, &[5]).wrapping_add(5));
                check(of_x, of_y).await;
            }
            // The body is a copy, which sees the graph's values only when it is told to.
            n.set(8);
            exec.update().from_params([&n, &out]).choose(&group, 0).apply().await.unwrap();
            for _ in 0..2 {
                of_x = mixed(of_x, &[8]).wrapping_add(108);
                check(of_x, of_y).await;
            }
        });
    }
}

// The inner conditional is on the first device, and may be left with commands of the second one.
fn switched_off_until_one_device_is_left(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    if !can_update(setup) || b.capabilities().update != a.capabilities().update {
        return;
    }
    let flag = words(a, [1]);
    let (x, y) = (words(a, [0]), words(b, [0]));
    let (mut inner, mut body, mut graph) = (Graph::new(a), Graph::new(a), Graph::new(a));
    let nodes = [&x, &y].map(|to| inner.launch(add(1, to), Range::linear(1)).id());
    let inside = body.if_nonzero(&flag, &inner).id();
    let outside = graph.if_nonzero(&flag, &body).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = [0, 0];
        for on in [[false, true], [true, true], [true, false], [false, false], [true, true], [false, true]] {
            let update = exec.update().enabled(nodes[0].within(inside).within(outside), on[0]);
            update.enabled(nodes[1].within(inside).within(outside), on[1]).apply().await.unwrap();
            exec.submit().await.unwrap();
            model = [0, 1].map(|i| model[i] + u32::from(on[i]));
            assert_eq!([x.to_vec().await.unwrap(), y.to_vec().await.unwrap()], model.map(|x| vec![x]));
        }
    });
}

fn both_branches(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x) = (words(device, [0]), words(device, [0]));
        let branches = [1, 100].map(|n| {
            let mut branch = body(device, by_host);
            let node = branch.launch(add(n, &x), Range::linear(1)).id();
            (branch, node)
        });
        let [(then, one), (otherwise, other)] = branches;
        let mut graph = Graph::new(device);
        let node = graph.if_nonzero_else(&flag, &then, &otherwise).id();
        let exec = finalize(&graph);
        setup.block_on(async {
            let mut model = 0;
            let mut check = async |values: [u32; 2]| {
                for (set, value) in [(1, values[0]), (0, values[1]), (1, values[0])] {
                    flag.write(&[set]).await.unwrap();
                    exec.submit().await.unwrap();
                    model += value;
                    assert_eq!(x.to_vec().await.unwrap(), [model]);
                }
            };
            check([1, 100]).await;
            exec.update().launch(one.within(node), add(2, &x)).apply().await.unwrap();
            check([2, 100]).await;
            exec.update().launch(other.within(node), add(200, &x)).apply().await.unwrap();
            check([2, 200]).await;
            let update = exec.update().launch(one.within(node), add(3, &x));
            update.launch(other.within(node), add(300, &x)).apply().await.unwrap();
            check([3, 300]).await;
        });
    }
}

// A loop in a sub-graph; in its body a sub-graph with a conditional, whose body has a sub-graph.
fn inside_each_other(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, yes, x) = (words(device, [0]), words(device, [1]), words(device, [0]));
        let innermost = adds(device, 1, &x);
        let target = innermost.nodes().next().unwrap();
        let mut then = body(device, by_host);
        let in_then = then.sub_graph(&innermost).id();
        let mut deciding = Graph::new(device);
        let conditional = deciding.if_nonzero(&yes, &then).id();
        let mut looping = Graph::new(device);
        let in_loop = looping.sub_graph(&deciding).id();
        looping.launch(add(u32::MAX, &flag), Range::linear(1));
        let mut around = Graph::new(device);
        let loop_node = around.while_nonzero(&flag, &looping).id();
        let mut graph = Graph::new(device);
        let copies = [(); 2].map(|()| graph.sub_graph(&around).id());
        let exec = finalize(&graph);
        let path =
            |copy| target.within(in_then).within(conditional).within(in_loop).within(loop_node).within(copy);
        setup.block_on(async {
            let mut model = 0;
            let mut check = async |n: u32| {
                for rounds in [2, 3] {
                    flag.write(&[rounds]).await.unwrap();
                    exec.submit().await.unwrap();
                    model += rounds * n;
                    assert_eq!(x.to_vec().await.unwrap(), [model]);
                }
            };
            check(1).await;
            exec.update().launch(path(copies[0]), add(10, &x)).apply().await.unwrap();
            check(10).await;
            // The second copy's loop finds the flag cleared, and is a loop of its own.
            exec.update().launch(path(copies[1]), add(50, &x)).apply().await.unwrap();
            check(10).await;
            exec.update().enabled(path(copies[0]), false).apply().await.unwrap();
            check(0).await;
            exec.update().enabled(path(copies[0]), true).apply().await.unwrap();
            check(10).await;
            let error = exec.update().launch(target, add(1, &x)).apply().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            check(10).await;
        });
    }
}

fn the_same_graph_as_both_branches(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0]));
    let branch = adds(device, 1, &x);
    let node = branch.nodes().next().unwrap();
    let mut graph = Graph::new(device);
    let conditional = graph.if_nonzero_else(&flag, &branch, &branch).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.update().launch(node.within(conditional), add(5, &x)).apply().await.unwrap();
        for (set, expected) in [(0, 5), (1, 10), (0, 15)] {
            flag.write(&[set]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        }
    });
}

fn runs_in_flight_keep_their_bodies(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, start, x) = (words(device, [0]), host_words(device, [3]), words(device, [0]));
        let mut looping = body(device, by_host);
        let node = looping.launch(mix(1, &x), Range::linear(1)).id();
        looping.launch(add(u32::MAX, &flag), Range::linear(1));
        let mut graph = Graph::new(device);
        graph.copy(&start, &flag);
        let around = graph.while_nonzero(&flag, &looping).id();
        let exec = finalize(&graph);
        setup.block_on(async {
            let mut submissions = Vec::new();
            let mut model = 0;
            for n in [1, 2, 3, 4] {
                let update = exec.update().launch(node.within(around), mix(n, &x)).apply();
                submissions.extend([exec.submit(), exec.submit()]);
                update.await.unwrap();
                model = mixed(model, &[n; 6]);
            }
            for submission in submissions {
                submission.await.unwrap();
            }
            assert_eq!(x.to_vec().await.unwrap(), [model]);
        });
    }
}

fn memory_is_ordered_for_other_executables(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x, y) = (words(device, [0]), words(device, [0]), words(device, [0]));
        let (start, out) = (host_words(device, [20]), host_words(device, [0]));
        let mut looping = body(device, by_host);
        let node = looping.launch(add(1, &x), Range::linear(1)).id();
        looping.launch(add(u32::MAX, &flag), Range::linear(1));
        let mut graph = Graph::new(device);
        graph.copy(&start, &flag);
        let around = graph.while_nonzero(&flag, &looping).id();
        let exec = finalize(&graph);
        let mut graph = Graph::new(device);
        graph.copy(&y, &out);
        let reading = graph.finalize().unwrap();
        setup.block_on(async {
            exec.update().launch(node.within(around), add(1, &y)).apply().await.unwrap();
            for round in 1..4 {
                let (first, second) = (exec.submit(), reading.submit());
                assert_eq!(out.read().await[0], 20 * round);
                second.await.unwrap();
                first.await.unwrap();
            }
            assert_eq!(x.to_vec().await.unwrap(), [0]);
        });
    }
}

fn several_bodies_at_once(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (flag, x) = (words(device, [1]), words(device, [0]));
    let mut graph = Graph::new(device);
    let outside = graph.launch(mix(1, &x), Range::linear(1)).id();
    let [one, other] = BY.map(|by_host| {
        let mut then = body(device, by_host);
        let node = then.launch(mix(2, &x), Range::linear(1)).id();
        node.within(graph.if_nonzero(&flag, &then).id())
    });
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = 0;
        for [a, b, c] in [[1, 2, 2], [4, 5, 6], [7, 8, 9]] {
            let update = exec.update().launch(outside, mix(a, &x)).launch(one.clone(), mix(b, &x));
            update.launch(other.clone(), mix(c, &x)).apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = mixed(model, &[a, b, c]);
                assert_eq!(x.to_vec().await.unwrap(), [model]);
            }
        }
        // One that is refused leaves all of them as they were.
        let update = exec.update().launch(outside, mix(1, &x)).launch(one.clone(), mix(1, &x));
        let error = update.range(other.clone(), Range::new([1, 1])).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(model, &[7, 8, 9])]);
    });
}

fn scratch_memory_stays_with_its_nodes(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (flag, x) = (words(device, [1]), words(device, [1; 4]));
    let mut then = Graph::new(device);
    let scratch = then.scratch::<u32>(4).unwrap();
    then.copy(&x, &scratch);
    let inside = then.launch(add(1, &scratch), Range::linear(4)).id();
    then.copy(&scratch, &x);
    let last = then.launch(add(1, &x), Range::linear(4)).id();
    let mut graph = Graph::new(device);
    let node = graph.if_nonzero(&flag, &then).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.update().launch(inside.within(node), add(10, &scratch)).apply().await.unwrap();
        let wrong = exec.update().launch(last.within(node), add(5, &scratch)).apply().await;
        assert_eq!(wrong.unwrap_err().kind(), ErrorKind::InvalidArgument);
        for expected in [12, 23] {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        }
    });
}

fn after_a_whole_update(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x) = (words(device, [1]), words(device, [0]));
        let build = |numbers: &[u32]| {
            let mut then = body(device, by_host);
            let n = then.param(numbers[0]);
            let nodes: Vec<_> =
                numbers.iter().map(|n| then.launch(mix(*n, &x), Range::linear(1)).id()).collect();
            then.node_mut(nodes[0]).unwrap().param("n", &n);
            let mut graph = Graph::new(device);
            let around = graph.if_nonzero(&flag, &then).id();
            (graph, around, nodes, n)
        };
        let (graph, around, nodes, n) = build(&[1, 2]);
        let exec = finalize(&graph);
        setup.block_on(async {
            let mut model = 0;
            let mut check = async |numbers: &[u32]| {
                for _ in 0..2 {
                    exec.submit().await.unwrap();
                    model = mixed(model, numbers);
                    assert_eq!(x.to_vec().await.unwrap(), [model]);
                }
            };
            exec.update().enabled(nodes[1].within(around), false).apply().await.unwrap();
            check(&[1]).await;
            // A body of the same nodes keeps ids and parameters.
            exec.update_from(&build(&[5, 6]).0).await.unwrap();
            check(&[5, 6]).await;
            let update = exec.update().launch(nodes[1].within(around), mix(7, &x));
            update.param(&n, 9).apply().await.unwrap();
            check(&[9, 7]).await;
            // A body of other nodes brings its own.
            let (other, _, others, theirs) = build(&[1, 2, 3]);
            exec.update_from(&other).await.unwrap();
            check(&[1, 2, 3]).await;
            for gone in
                [exec.update().launch(nodes[1].within(around), mix(1, &x)), exec.update().param(&n, 1)]
            {
                let error = gone.apply().await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                let why = "an `update_from` has replaced a body by one with other nodes";
                assert!(error.message().contains(why), "{error}");
            }
            let update = exec.update().launch(others[2].within(around), mix(4, &x));
            update.param(&theirs, 8).apply().await.unwrap();
            check(&[8, 2, 4]).await;
        });
    }
}

// Without the memory that both use, no edge leads from the one to the other.
fn names_stay_when_memory_changes_the_edges(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let (flag, x, y) = (words(device, [1]), words(device, [0]), words(device, [0]));
        let build = |second: &Buffer<u32>, numbers: [u32; 2]| {
            let mut then = body(device, by_host);
            let (n, to) = (then.param(numbers[1]), then.param(second));
            let first = then.launch(mix(numbers[0], &x), Range::linear(1)).id();
            then.launch(mix(0, second), Range::linear(1)).param("n", &n).param("x", &to);
            let mut graph = Graph::new(device);
            let around = graph.if_nonzero(&flag, &then).id();
            (graph, first.within(around), n, to)
        };
        let (graph, first, n, to) = build(&x, [1, 2]);
        let exec = finalize(&graph);
        setup.block_on(async {
            let check = async |in_x: u32, in_y: u32| {
                exec.submit().await.unwrap();
                assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), (vec![in_x], vec![in_y]));
                x.write(&[0]).await.unwrap();
                y.write(&[0]).await.unwrap();
            };
            check(mixed(0, &[1, 2]), 0).await;
            exec.update().param(&to, &y).apply().await.unwrap();
            check(1, 2).await;
            exec.update_from(&build(&y, [3, 4]).0).await.unwrap();
            check(3, 4).await;
            let update = exec.update().launch(first.clone(), mix(5, &x)).param(&n, 6);
            update.param(&to, &y).apply().await.unwrap();
            check(5, 6).await;
            // The new edges count.
            let unordered = exec.update().param(&to, &x).apply().await.unwrap_err();
            assert!(unordered.message().contains("no edge orders the two"), "{unordered}");
            exec.update_from(&build(&x, [7, 8]).0).await.unwrap();
            check(mixed(0, &[7, 8]), 0).await;
            exec.update().param(&to, &y).param(&n, 9).apply().await.unwrap();
            check(7, 9).await;
        });
    }
}

/// Where a node may lie: in the graph itself, or in a body, which the runtime drives or not.
const PLACES: [Option<bool>; 3] = [None, Some(false), Some(true)];

/// Adds the nodes in such a place: to the graph itself, or to the body of a conditional in a loop in it.
fn add_at<const N: usize>(
    place: Option<bool>,
    device: &Device,
    graph: &mut Graph,
    add: impl FnOnce(&mut Graph) -> [NodeId; N],
) -> [NodePath; N] {
    let Some(by_host) = place else { return add(graph).map(Into::into) };
    let (once, yes) = (words(device, [1]), words(device, [1]));
    let (mut inner, mut outer) = (body(device, by_host), Graph::new(device));
    let nodes = add(&mut inner);
    let conditional = outer.if_nonzero(&yes, &inner).id();
    outer.fill(&once, 0);
    let around = graph.while_nonzero(&once, &outer).id();
    nodes.map(|node| node.within(conditional).within(around))
}

fn disabled_nodes_keep_their_memory(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for place in PLACES {
        let [x, y, z] = [(); 3].map(|()| words(device, [0; 4]));
        let mut graph = Graph::new(device);
        let [node] =
            add_at(place, device, &mut graph, |graph| [graph.launch(add(1, &x), Range::linear(4)).id()]);
        let fill = graph.fill(&y, 5).name("outside").id();
        let exec = finalize(&graph);
        setup.block_on(async {
            let enable = |on| exec.update().enabled(node.clone(), on).apply();
            enable(false).await.unwrap();
            let moved = exec.update().fill(fill, &x, 6).apply().await.unwrap_err();
            assert_eq!(moved.kind(), ErrorKind::InvalidArgument, "{place:?}: {moved}");
            assert!(moved.message().contains("no edge orders the two"), "{place:?}: {moved}");
            // Nor may it take memory while it is disabled that it could not have otherwise.
            let taken = exec.update().launch(node.clone(), add(1, &y)).apply().await;
            assert_eq!(taken.unwrap_err().kind(), ErrorKind::InvalidArgument, "{place:?}");
            exec.update().launch(node.clone(), add(2, &z)).apply().await.unwrap();
            exec.update().fill(fill, &x, 6).apply().await.unwrap();
            enable(true).await.unwrap();
            exec.submit().await.unwrap();
            for (buffer, expected) in [(&x, 6), (&y, 0), (&z, 2)] {
                assert_eq!(buffer.to_vec().await.unwrap(), [expected; 4], "{place:?}");
            }
        });
    }
}

fn operands_of_disabled_nodes_are_checked(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (device, range) = (setup.device(), Range::linear(4));
    let other = Device::open("host:5").unwrap();
    let owner = words(&other, [0; 4]);
    // SAFETY: the clone keeps the memory, and nothing else uses it.
    let far = unsafe { other.import::<u32>(owner.address().unwrap(), 4, owner.clone()) }.unwrap();
    for place in PLACES {
        let (x, y) = (words(device, [1; 4]), words(device, [2; 4]));
        let part = |range| x.slice(range).unwrap();
        let mut graph = Graph::new(device);
        let [copy, kernel] = add_at(place, device, &mut graph, |graph| {
            [graph.copy(&x, &y).id(), graph.launch(axpy(1, &x, &y), range).id()]
        });
        let exec = finalize(&graph);
        let refused = async |on| {
            let (copy, kernel, update) = (copy.clone(), kernel.clone(), || exec.update());
            let switched = update().enabled(copy.clone(), on).enabled(kernel.clone(), on).apply();
            switched.await.unwrap();
            for (number, wrong) in [
                update().copy(copy.clone(), part(0..2), part(1..3)),
                update().copy(copy.clone(), part(0..2), &y),
                update().launch(kernel.clone(), axpy(1, &x, part(0..4))),
                update().launch(kernel.clone(), axpy(1, &far, &y)),
                update().launch(kernel.clone(), add(1, &x)),
                update().range(kernel.clone(), Range::linear(5)),
                update().range(kernel.clone(), range.local([3])),
            ]
            .into_iter()
            .enumerate()
            {
                let Err(error) = wrong.apply().await else { panic!("{place:?}, {on}: {number}") };
                assert!(
                    matches!(error.kind(), ErrorKind::InvalidArgument | ErrorKind::InvalidSize),
                    "{place:?}, {on}, {number}: {error}"
                );
            }
        };
        setup.block_on(async {
            refused(true).await;
            refused(false).await;
            // What has been refused has changed nothing.
            exec.update().enabled(copy.clone(), true).enabled(kernel.clone(), true).apply().await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [2; 4], "{place:?}");
        });
    }
}

fn unordered_memory_is_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    for by_host in BY {
        let flag = words(device, [1]);
        let [x, y, z] = [(); 3].map(|()| words(device, [0]));
        let mut then = body(device, by_host);
        let first = then.launch(add(1, &x), Range::linear(1)).name("first").id();
        then.launch(add(1, &y), Range::linear(1)).name("second");
        let mut graph = Graph::new(device);
        let node = graph.if_nonzero(&flag, &then).name("around").id();
        graph.launch(add(1, &z), Range::linear(1)).name("outside");
        let exec = finalize(&graph);
        let update = |buffer: &Buffer<u32>| exec.update().launch(first.within(node), add(10, buffer)).apply();
        setup.block_on(async {
            for (buffer, names) in [(&y, ["'first'", "'second'"]), (&z, ["'around'", "'outside'"])] {
                let error = update(buffer).await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
                let text = error.to_string();
                assert!(names.iter().all(|name| text.contains(name)), "{text}");
            }
            update(&x).await.unwrap();
            exec.submit().await.unwrap();
            for (buffer, expected) in [(&x, 10), (&y, 1), (&z, 1)] {
                assert_eq!(buffer.to_vec().await.unwrap(), [expected]);
            }
        });
    }
}

fn misuse_is_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0; 4]));
    let mut then = adds(device, 1, &x);
    let inside = then.nodes().next().unwrap();
    let mut graph = Graph::new(device);
    let node = graph.if_nonzero(&flag, &then).id();
    let elsewhere = graph.launch(add(1, &x), Range::linear(4)).id();
    let late = then.launch(add(1, &x), Range::linear(4)).id();
    let exec = finalize(&graph);
    let other = Graph::new(device).param(1u32);
    setup.block_on(async {
        for (update, why) in [
            (exec.update().launch(inside, add(2, &x)), "another graph"),
            (exec.update().launch(elsewhere.within(node), add(2, &x)), "another graph"),
            (exec.update().launch(inside.within(elsewhere), add(2, &x)), "no nodes within it"),
            (exec.update().launch(late.within(node), add(2, &x)), "added after"),
            (exec.update().launch(inside.within(node), mix(2, &x)), "alternative"),
            (exec.update().fill(inside.within(node), &x, 1), "only fills and copies"),
            (exec.update().enabled(node, false), "enabled and disabled"),
            (exec.update().param(&other, 3), "another graph"),
        ] {
            let error = update.apply().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
            assert!(error.message().contains(why), "{error}");
        }
        let update = exec.update().range(inside.within(node), Range::linear(5));
        assert_eq!(update.apply().await.unwrap_err().kind(), ErrorKind::InvalidSize);
        let good = exec.update().range(inside.within(node), Range::linear(2));
        good.apply().await.unwrap();
        exec.submit().await.unwrap();
    });
}
