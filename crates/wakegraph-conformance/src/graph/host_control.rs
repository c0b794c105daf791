//! Conditionals and loops that the runtime drives: bodies with host tasks, several devices, scratch memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wakegraph::graph::CommandKind;
use wakegraph::plan::PartitionKind;
use wakegraph::{
    Buffer, Device, ErrorKind, ExecutableGraph, FinalizeOptions, Graph, HostBuffer, Range, Submission, read,
    write,
};

use super::control::{adds, counts_down, words};
use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/host_control":
    &[Need::Results] => [host_tasks_decide, bodies_of_a_switch_have_host_tasks, loops_with_host_tasks_run_to_their_end, bodies_have_scratch_memory,
        inside_each_other, the_same_body_in_several_places, other_executables_and_guards_wait,
        cancelled_between_two_iterations, a_failure_names_both_nodes, whole_updates_replace_bodies,
        a_dropped_submission_runs_to_its_end, parameters_stay_those_of_the_run],
    &[Need::Results, Need::TwoDevices] => [bodies_of_two_devices, memory_of_another_device, the_flag_is_on_another_device],
    &[] => [the_plan_shows_who_decides]);

/// A body of a copy, a host task that takes 1 from `left` and a kernel that adds 1 to `x`.
fn with_host_task(device: &Device, left: &HostBuffer<u32>, x: &Buffer<u32>) -> Graph {
    let mut body = Graph::new(device);
    body.host_task((write(left),), async |(mut left,)| {
        tokio::task::yield_now().await;
        left[0] -= 1;
    })
    .name("count");
    body.launch(add(1, x), Range::linear(x.len()));
    body
}

fn host_tasks_decide(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let next = Arc::new(AtomicU32::new(0));
    let mut graph = Graph::new(device);
    graph.host_task((write(&flag),), {
        let next = next.clone();
        async move |(mut flag,)| flag[0] = next.fetch_add(1, Ordering::Relaxed) % 2
    });
    let mut otherwise = Graph::new(device);
    otherwise.host_task((), async |()| tokio::task::yield_now().await);
    otherwise.launch(add(100, &x), Range::linear(1));
    graph.if_nonzero_else(&flag, &adds(device, 1, &x), &otherwise);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for expected in [100, 101, 201, 202] {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        }
    });
}

fn bodies_of_a_switch_have_host_tasks(setup: &Setup) {
    let device = setup.device();
    let (index, x) = (words(device, [0]), words(device, [0]));
    let with_task = |n| {
        let mut body = Graph::new(device);
        body.host_task((), async |()| tokio::task::yield_now().await);
        body.launch(add(n, &x), Range::linear(1));
        body
    };
    let mut graph = Graph::new(device);
    graph.switch(&index, [&with_task(1), &adds(device, 100, &x)]).name("choice");
    graph.launch(add(1000, &x), Range::linear(1));
    let exec = graph.finalize().unwrap();
    assert!(
        exec.plan_text().contains("  0:\n") && exec.plan_text().contains("  1:\n"),
        "{}",
        exec.plan_text()
    );
    setup.block_on(async {
        for (value, expected) in [(0, 1001), (1, 2101), (2, 3101), (u32::MAX, 4101)] {
            index.write(&[value]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected]);
        }
    });
}

fn loops_with_host_tasks_run_to_their_end(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0; 3]));
    let flag = words(device, [0]);
    let mut body = with_host_task(device, &left, &x);
    body.copy(&left, &flag);
    let mut graph = Graph::new(device);
    graph.copy(&left, &flag);
    graph.while_nonzero(&flag, &body).name("until nothing is left");
    graph.launch(add(1000, &x), Range::linear(3));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut expected = 0;
        for rounds in [0, 1, 30, 3] {
            left.write().await[0] = rounds;
            exec.submit().await.unwrap();
            expected += rounds + 1000;
            assert_eq!((x.to_vec().await.unwrap(), left.read().await[0]), (vec![expected; 3], 0));
        }
    });
}

fn bodies_have_scratch_memory(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [0]), words(device, [5; 4]));
    let mut body = Graph::new(device);
    let scratch = body.scratch::<u32>(4).unwrap();
    body.copy(&x, &scratch);
    body.launch(add(1, &scratch), Range::linear(4));
    body.copy(&scratch, &x);
    body.launch(add(u32::MAX, &flag), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for (rounds, expected) in [(3, 8), (0, 8), (2, 10)] {
            flag.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        }
    });
}

// while outer { if inner { x += 1, a host task } else { while y { y -= 1, z += 1 } }, outer -= 1 }
fn inside_each_other(setup: &Setup) {
    let device = setup.device();
    let [outer, inner, x, y, z] = [(); 5].map(|()| words(device, [0]));
    let mut then = adds(device, 1, &x);
    then.host_task((), async |()| tokio::task::yield_now().await);
    let mut otherwise = Graph::new(device);
    otherwise.while_nonzero(&y, &counts_down(device, &y, &z));
    let mut body = Graph::new(device);
    body.if_nonzero_else(&inner, &then, &otherwise);
    body.launch(add(u32::MAX, &outer), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&outer, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let (mut in_x, mut in_z) = (0, 0);
        for (rounds, decides, more) in [(2, 1, 0), (3, 0, 4), (0, 1, 7), (1, 1, 0)] {
            outer.write(&[rounds]).await.unwrap();
            inner.write(&[decides]).await.unwrap();
            y.write(&[more]).await.unwrap();
            exec.submit().await.unwrap();
            if decides == 1 {
                in_x += rounds;
            } else if rounds > 0 {
                in_z += more;
            }
            assert_eq!((x.to_vec().await.unwrap(), z.to_vec().await.unwrap()), (vec![in_x], vec![in_z]));
        }
    });
}

fn the_same_body_in_several_places(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let mut around = Graph::new(device);
    around.host_task((write(&left),), async |(mut left,)| left[0] = 3);
    around.while_nonzero(&left, &with_host_task(device, &left, &x));
    let mut graph = Graph::new(device);
    graph.sub_graph(&around);
    graph.launch(add(10, &x), Range::linear(1));
    graph.sub_graph(&around);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 1..=3 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [16 * round]);
        }
    });
}

// The body's memory is the executable's: others that use it wait for the whole loop.
fn other_executables_and_guards_wait(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let output = device.host_buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    graph.while_nonzero(&left, &with_host_task(device, &left, &x));
    let looping = graph.finalize().unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&x, &output);
    let reading = graph.finalize().unwrap();
    setup.block_on(async {
        for round in 1..4 {
            left.write().await[0] = 20;
            let first = looping.submit();
            let second = reading.submit();
            assert_eq!(left.read().await[0], 0, "a guard waits for the loop");
            second.await.unwrap();
            first.await.unwrap();
            assert_eq!(output.read().await[0], 20 * round);
        }
    });
}

/// A loop that has no end of its own: its third iteration calls `third`.
fn endless(device: &Device, x: &Buffer<u32>, third: impl Fn() + Send + Sync + 'static) -> ExecutableGraph {
    let flag = device.host_buffer_from(&[1u32]).unwrap();
    let (count, third) = (Arc::new(AtomicU32::new(0)), Arc::new(third));
    let mut body = adds(device, 1, x);
    body.host_task((), async move |()| {
        if count.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
            third();
        }
    });
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &body);
    graph.finalize().unwrap()
}

fn cancelled_between_two_iterations(setup: &Setup) {
    let device = setup.device();
    let x = words(device, [0]);
    let (send, mut third) = tokio::sync::mpsc::unbounded_channel();
    let exec = endless(device, &x, move || send.send(()).unwrap());
    setup.block_on(async {
        for _ in 0..3 {
            let submission = exec.submit();
            third.recv().await.unwrap();
            submission.cancel();
            let error = submission.await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            while third.try_recv().is_ok() {}
            assert!(x.to_vec().await.unwrap()[0] >= 3);
        }
    });
}

fn a_failure_names_both_nodes(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let mut body = Graph::new(device);
    body.host_task((write(&left),), async |(mut left,)| {
        left[0] -= 1;
        if left[0] == 7 { Err("no sevens") } else { Ok(()) }
    })
    .name("picky");
    body.launch(add(1, &x), Range::linear(1));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&left, &body).name("rounds");
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for (start, fails) in [(9, true), (5, false), (8, true)] {
            left.write().await[0] = start;
            let result = exec.submit().await;
            let Err(error) = result else {
                assert!(!fails);
                continue;
            };
            assert!(fails && error.kind() == ErrorKind::HostTaskFailed, "{error}");
            let text = format!("{error}");
            assert!(text.contains("'picky'") && text.contains("loop 'rounds'"), "{text}");
            assert_eq!(left.read().await[0], 7);
        }
    });
}

fn whole_updates_replace_bodies(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let graph_with = |n: u32| {
        let mut body = with_host_task(device, &left, &x);
        body.launch(add(n, &x), Range::linear(1));
        let mut graph = Graph::new(device);
        graph.while_nonzero(&left, &body);
        graph
    };
    let exec = graph_with(10).finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
    let run = async |expected: u32| {
        left.write().await[0] = 2;
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [expected]);
    };
    setup.block_on(async {
        run(22).await;
        left.write().await[0] = 2;
        let before = exec.submit();
        exec.update_from(&graph_with(100)).await.unwrap();
        before.await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [44], "a run in flight keeps its body");
        run(246).await;
        run(448).await;
    });
}

fn a_dropped_submission_runs_to_its_end(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer_from(&[5u32]).unwrap(), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.while_nonzero(&left, &with_host_task(device, &left, &x));
    let exec = graph.finalize().unwrap();
    drop(graph);
    setup.block_on(async {
        let event = Submission::event(&exec.submit());
        // Nothing but the run keeps the bodies now.
        drop(exec);
        event.wait().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [5]);
    });
}

// Two executables of one graph have bodies of their own, and so have runs behind each other.
fn parameters_stay_those_of_the_run(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let mut graph = Graph::new(device);
    graph.host_task((write(&left),), async |(mut left,)| left[0] = 4);
    graph.while_nonzero(&left, &with_host_task(device, &left, &x));
    let execs = [(); 2].map(|()| graph.finalize().unwrap());
    setup.block_on(async {
        let submissions: Vec<_> = (0..6).map(|round| execs[round % 2].submit()).collect();
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [24]);
    });
}

fn bodies_of_two_devices(setup: &Setup) {
    let [one, two] = [0, 1].map(|index| &setup.devices[index]);
    let (flag, x, y) = (words(one, [0]), words(one, [1, 2]), words(two, [0, 0]));
    let mut body = Graph::new(one);
    body.copy(&x, &y);
    body.launch(add(1, &y), Range::linear(2));
    body.copy(&y, &x);
    body.launch(add(u32::MAX, &flag), Range::linear(1));
    let mut graph = Graph::new(one);
    graph.while_nonzero(&flag, &body);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for (rounds, expected) in [(3, [4, 5]), (1, [5, 6])] {
            flag.write(&[rounds]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), expected);
        }
    });
}

fn memory_of_another_device(setup: &Setup) {
    let [one, two] = [0, 1].map(|index| &setup.devices[index]);
    let (flag, x, out) = (words(one, [3]), words(one, [1, 2]), two.host_buffer::<u32>(2).unwrap());
    let mut body = Graph::new(one);
    body.launch(add(1, &x), Range::linear(2));
    body.copy(&x, &out);
    body.launch(add(u32::MAX, &flag), Range::linear(1));
    let mut inner = Graph::new(one);
    inner.copy(&out, &x);
    let mut graph = Graph::new(one);
    graph.while_nonzero(&flag, &body);
    graph.if_nonzero_else(&flag, &Graph::new(one), &inner);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!((*out.read().await)[..], [4, 5]);
        assert_eq!(x.to_vec().await.unwrap(), [4, 5]);
    });
}

fn the_flag_is_on_another_device(setup: &Setup) {
    let [one, two] = [0, 1].map(|index| &setup.devices[index]);
    let (flag, x, y) = (words(one, [0]), words(two, [0]), words(two, [0]));
    let mut graph = Graph::new(one);
    graph.if_nonzero_else(&flag, &adds(two, 1, &x), &adds(two, 1, &y));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for (value, expected) in [(0, [0, 1]), (3, [1, 1]), (0, [1, 2])] {
            flag.write(&[value]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!([x.to_vec().await.unwrap()[0], y.to_vec().await.unwrap()[0]], expected);
        }
    });
}

fn the_plan_shows_who_decides(setup: &Setup) {
    let device = setup.device();
    let (left, x) = (device.host_buffer::<u32>(1).unwrap(), words(device, [0]));
    let flag = words(device, [0]);
    let mut graph = Graph::new(device);
    graph.while_nonzero(&left, &with_host_task(device, &left, &x)).name("by the host");
    let exec = graph.finalize().unwrap();
    let text = exec.plan_text();
    for line in ["host task 0 runs loop 'by the host' (#0)", "  do:", "    host task 0 runs 'count' (#0)"] {
        assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
    }
    // What a device can do by itself is left to it.
    let mut graph = Graph::new(device);
    graph.while_nonzero(&flag, &counts_down(device, &flag, &x)).name("counting");
    let exec = graph.finalize().unwrap();
    let commands = device.capabilities().commands;
    let by_device = commands.contains(CommandKind::While.as_set());
    let is_device = matches!(exec.plan().partitions()[0].kind, PartitionKind::Device(_));
    assert_eq!(is_device, by_device, "{}", exec.plan_text());
    let _ = read(&left);
}
