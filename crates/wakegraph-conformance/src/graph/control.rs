//! Conditionals and loops that a device may decide by itself.

use std::time::{Duration, Instant};

use wakegraph::graph::CommandKind;
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{Buffer, Device, ErrorKind, Graph, Range};

use crate::kernels::{add, mix};
use crate::suite::{Need, Setup, lacks, tests};
use crate::support::PANIC;

tests!("graph/control":
    &[Need::Results] => [the_flag_decides, the_index_decides, switches_inside_each_other, earlier_nodes_decide, loops_run_while_the_flag_is_set, inside_each_other,
        in_and_around_sub_graphs, every_command_has_its_place_in_a_body, the_body_stays_as_it_was,
        the_flag_may_be_on_the_host, other_executables_wait, profiles_give_the_whole],
    &[Need::Results, Need::Alone] => [
        a_loop_that_does_not_end_is_cancelled, a_loop_that_does_not_end_meets_its_deadline],
    &[Need::Results, Need::FailingKernels] => [a_failure_in_a_body_names_the_node],
    &[] => [empty_bodies]);

const MINUS_ONE: u32 = u32::MAX;

pub(super) fn words<const N: usize>(device: &Device, words: [u32; N]) -> Buffer<u32> {
    device.buffer_from(&words).unwrap()
}

/// A graph of one launch of `add`.
pub(super) fn adds(device: &Device, n: u32, x: &Buffer<u32>) -> Graph {
    let mut graph = Graph::new(device);
    graph.launch(add(n, x), Range::linear(x.len()));
    graph
}

/// A body that adds 1 to `x`, and takes 1 from `flag`.
pub(super) fn counts_down(device: &Device, flag: &Buffer<u32>, x: &Buffer<u32>) -> Graph {
    let mut body = adds(device, 1, x);
    body.launch(add(MINUS_ONE, flag), Range::linear(1));
    body
}

fn the_flag_decides(setup: &Setup) {
    let device = setup.device();
    let (flag, x, y) = (words(device, [0]), words(device, [0; 3]), words(device, [0; 3]));
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &adds(device, 1, &x)).name("alone");
    graph.if_nonzero_else(&flag, &adds(device, 1, &y), &adds(device, 100, &y)).name("either");
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let (mut set, mut clear) = (0, 0);
        for value in [0, 1, 1, 0, 7, 0, 1 << 31] {
            flag.write(&[value]).await.unwrap();
            exec.submit().await.unwrap();
            if value == 0 {
                clear += 1
            } else {
                set += 1
            }
            assert_eq!(x.to_vec().await.unwrap(), [set; 3]);
            assert_eq!(y.to_vec().await.unwrap(), [set + 100 * clear; 3]);
        }
    });
}

fn the_index_decides(setup: &Setup) {
    let device = setup.device();
    let (index, x) = (words(device, [0]), words(device, [0; 3]));
    let bodies = [1, 100, 10_000].map(|n| adds(device, n, &x));
    let mut graph = Graph::new(device);
    graph.switch(&index, &bodies).name("one of three");
    graph.switch(&index, []).name("one of none");
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 0;
        for value in [0, 1, 2, 3, 2, u32::MAX, 1 << 31, 0] {
            index.write(&[value]).await.unwrap();
            exec.submit().await.unwrap();
            expected += [1, 100, 10_000].get(value as usize).unwrap_or(&0);
            assert_eq!(x.to_vec().await.unwrap(), [expected; 3], "{value}");
        }
    });
}

// while left { switch left { 0: none, 1: switch inner { x += 1, x += 10 }, 2: inner += 1 }, left -= 1 }
fn switches_inside_each_other(setup: &Setup) {
    let device = setup.device();
    let [left, inner, x] = [(); 3].map(|()| words(device, [0]));
    let mut second = Graph::new(device);
    second.switch(&inner, [&adds(device, 1, &x), &adds(device, 10, &x)]);
    let mut body = Graph::new(device);
    body.switch(&left, [&Graph::new(device), &second, &adds(device, 1, &inner)]);
    body.launch(add(MINUS_ONE, &left), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&left, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        // Each run from 2 on raises `inner` before it is read.
        for (rounds, in_inner, in_x) in [(1, 0, 1), (3, 1, 11), (1, 1, 21), (2, 2, 21)] {
            left.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(inner.to_vec().await.unwrap(), [in_inner]);
            assert_eq!(x.to_vec().await.unwrap(), [in_x]);
        }
    });
}

// Each of two runs: flag += 1, if flag { flag -= 2 }: the device decides by what has just been written.
fn earlier_nodes_decide(setup: &Setup) {
    let device = setup.device();
    let (flags, x) = (words(device, [5, 1, 5]), words(device, [0]));
    let flag = flags.slice(1..2).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(MINUS_ONE, &flag), Range::linear(1));
    graph.if_nonzero_else(&flag, &adds(device, 1, &x), &adds(device, 10, &flag));
    graph.launch(add(1000, &x), Range::linear(1));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(flags.to_vec().await.unwrap(), [5, 10, 5]);
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!((flags.to_vec().await.unwrap(), x.to_vec().await.unwrap()), (vec![5, 8, 5], vec![3002]));
    });
}

fn a_loop_that_does_not_end_meets_its_deadline(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x)).name("endless");
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..3 {
            // More rounds than any device has time for.
            flag.write(&[u32::MAX]).await.unwrap();
            let soon = Instant::now() + Duration::from_millis(5);
            let error = exec.prepare().deadline(soon).submit().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DeadlineExceeded, "{error}");
            assert!(error.node().is_some_and(|node| node.contains("endless")), "{error}");
            flag.write(&[3]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(flag.to_vec().await.unwrap(), [0]);
        }
    });
}

fn a_loop_that_does_not_end_is_cancelled(setup: &Setup) {
    let device = setup.device();
    let (flag, x, y) = (words(device, [0]), words(device, [0]), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 1..=3 {
            // More rounds than any device has time for.
            flag.write(&[u32::MAX]).await.unwrap();
            let submission = exec.submit();
            submission.cancel();
            assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::Cancelled);
            drop(exec.submit().cancel_on_drop());
            // Of these only the second one is cancelled.
            flag.write(&[3]).await.unwrap();
            let [first, second] = [exec.submit(), exec.submit()];
            second.cancel();
            first.await.unwrap();
            let _ = second.await;
            assert_eq!(flag.to_vec().await.unwrap(), [0]);
            let mut graph = Graph::new(device);
            graph.launch(add(1, &y), Range::linear(1));
            graph.finalize().unwrap().submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [round]);
        }
    });
}

fn loops_run_while_the_flag_is_set(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0; 2]));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x));
    graph.launch(mix(0, &x), Range::linear(2));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 0u32;
        for rounds in [0, 1, 5, 0, 300, 2] {
            flag.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            expected = expected.wrapping_add(rounds).wrapping_mul(31);
            assert_eq!(x.to_vec().await.unwrap(), [expected; 2], "{rounds} rounds");
            assert_eq!(flag.to_vec().await.unwrap(), [0]);
        }
    });
}

// if a { while b { x += 1, inner = 2, while inner { y += 1, inner -= 1 }, b -= 1 } } else { y += 50 }
fn inside_each_other(setup: &Setup) {
    let device = setup.device();
    let [a, b, inner, x, y] = [(); 5].map(|()| words(device, [0]));
    let mut body = adds(device, 1, &x);
    body.fill(&inner, 2);
    body.while_nonzero(&inner, &counts_down(device, &inner, &y));
    body.launch(add(MINUS_ONE, &b), Range::linear(1));
    let mut then = Graph::new(device);
    then.while_nonzero(&b, &body);
    let mut graph = Graph::new(device);
    graph.if_nonzero_else(&a, &then, &adds(device, 50, &y));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let (mut in_x, mut in_y) = (0, 0);
        for (decides, rounds) in [(0, 3), (1, 3), (1, 0), (9, 1)] {
            a.write(&[decides]).await.unwrap();
            b.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            (in_x, in_y) = if decides == 0 { (in_x, in_y + 50) } else { (in_x + rounds, in_y + 2 * rounds) };
            assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), (vec![in_x], vec![in_y]));
        }
    });
}

// A sub-graph with a conditional in it, whose body is a sub-graph with branches and an empty node.
fn in_and_around_sub_graphs(setup: &Setup) {
    let device = setup.device();
    let (flag, x, y) = (words(device, [1]), words(device, [1]), words(device, [1]));
    let mut branches = Graph::new(device);
    let one = branches.launch(add(1, &x), Range::linear(1)).id();
    let ends = [one, branches.launch(add(2, &y), Range::linear(1)).id()];
    let join = branches.empty().after(ends).id();
    branches.launch(mix(3, &x), Range::linear(1)).after([join]);
    branches.launch(mix(4, &y), Range::linear(1)).after([join]);
    let mut body = Graph::new(device);
    body.sub_graph(&branches);
    body.launch(mix(5, &x), Range::linear(1));
    let mut middle = adds(device, 7, &x);
    middle.if_nonzero(&flag, &body);
    let mut graph = Graph::new(device);
    graph.sub_graph(&middle);
    graph.sub_graph(&middle);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let (mut in_x, mut in_y) = (1u32, 1u32);
        for value in [1, 0, 1] {
            flag.write(&[value]).await.unwrap();
            exec.submit().await.unwrap();
            for _ in 0..2 {
                in_x += 7;
                if value != 0 {
                    in_x = (in_x + 1).wrapping_mul(31).wrapping_add(3).wrapping_mul(31).wrapping_add(5);
                    in_y = (in_y + 2).wrapping_mul(31).wrapping_add(4);
                }
            }
            assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), (vec![in_x], vec![in_y]));
        }
    });
}

fn every_command_has_its_place_in_a_body(setup: &Setup) {
    let device = setup.device();
    let (flag, x, y) = (words(device, [0]), words(device, [0; 6]), words(device, [0; 6]));
    let (input, output) =
        (device.host_buffer_from(&[1u32, 2, 3]).unwrap(), device.host_buffer::<u32>(6).unwrap());
    let mut body = Graph::new(device);
    body.copy(&input, x.slice(..3).unwrap());
    // A pattern that no driver knows by itself.
    body.fill_pattern(&x.slice(3..).unwrap(), &[7u32, 8, 9]);
    body.copy_rect(&x, &y, RectCopy::new([2, 2], Layout::rows(3).origin([1, 0]), Layout::rows(3)));
    body.fill(&x, 4);
    body.copy(&y, &output);
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(*output.read().await, [0; 6]);
        flag.write(&[1]).await.unwrap();
        for _ in 0..2 {
            y.write(&[0; 6]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(*output.read().await, [2, 3, 0, 8, 9, 0]);
            assert_eq!(x.to_vec().await.unwrap(), [4; 6]);
        }
    });
}

fn the_body_stays_as_it_was(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [1]), words(device, [0]));
    let mut body = adds(device, 1, &x);
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &body);
    // Added later: not in the copy.
    body.launch(add(100, &x), Range::linear(1));
    let exec = graph.finalize().unwrap();
    // The node keeps all that it needs.
    drop((graph, body, flag));
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [1]);
    });
}

fn the_flag_may_be_on_the_host(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &adds(device, 1, &x));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for (value, expected) in [(0, 0), (1, 1), (0, 1)] {
            flag.write().await[0] = value;
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        }
    });
}

// An executable that reads what a loop writes comes after it, though only the body touches the buffer.
fn other_executables_wait(setup: &Setup) {
    let device = setup.device();
    let (flag, x, output) = (words(device, [0]), words(device, [0]), device.host_buffer::<u32>(1).unwrap());
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x));
    let looping = graph.finalize().unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&x, &output);
    let reading = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 1..4 {
            flag.write(&[200]).await.unwrap();
            let first = looping.submit();
            let second = reading.submit();
            second.await.unwrap();
            first.await.unwrap();
            assert_eq!(output.read().await[0], 200 * round);
        }
    });
}

fn profiles_give_the_whole(setup: &Setup) {
    let device = setup.device();
    if !device.capabilities().profiling {
        return lacks("profiling");
    }
    let (flag, x) = (words(device, [3]), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x)).name("count");
    let exec = graph.finalize_with(wakegraph::FinalizeOptions::new().profiling(true)).unwrap();
    setup.block_on(async {
        let mut submission = exec.submit();
        (&mut submission).await.unwrap();
        let profile = submission.profile().unwrap();
        let kinds: Vec<_> = profile.nodes.iter().map(|node| node.kind).collect();
        assert_eq!(kinds, [CommandKind::While]);
        assert!(profile.nodes[0].start <= profile.nodes[0].end);
        assert_eq!(x.to_vec().await.unwrap(), [3]);
    });
}

fn a_failure_in_a_body_names_the_node(setup: &Setup) {
    wakegraph::kernel! {
        fn refuses(_x: &mut [u32]) { host: |_, _x| panic!("{PANIC}") }
    }
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [0; 2]));
    let mut body = Graph::new(device);
    body.launch(refuses(&x), Range::linear(2));
    let mut graph = Graph::new(device);
    graph.fill(&x, 1);
    graph.if_nonzero(&flag, &body).name("choice");
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        flag.write(&[1]).await.unwrap();
        let error = exec.submit().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KernelPanicked, "{error}");
        assert!(error.to_string().contains("'choice'"), "{error}");
        flag.write(&[0]).await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn empty_bodies(setup: &Setup) {
    let device = setup.device();
    let flag = words(device, [0]);
    let (empty, mut hollow) = (Graph::new(device), Graph::new(device));
    hollow.sub_graph(&empty);
    hollow.empty();
    let mut graph = Graph::new(device);
    graph.if_nonzero(&flag, &empty);
    graph.if_nonzero_else(&flag, &hollow, &empty);
    graph.while_nonzero(&flag, &hollow);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}
