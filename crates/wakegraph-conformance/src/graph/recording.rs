//! Recording: commands of queues become nodes of graphs.

use std::panic::{AssertUnwindSafe, catch_unwind};

use wakegraph::capabilities::{CommandKinds, UpdateCapabilities};
use wakegraph::graph::CommandKind;
use wakegraph::{
    Buffer, Device, ErrorKind, Event, FinalizeOptions, Graph, HostBuffer, NodeId, Queue, Range, read, write,
};

use crate::kernels::{add, fold, mix};
use crate::suite::{Need, Setup, tests};
use crate::support::PANIC;

tests!("graph/recording":
    &[Need::Results] => [one_function_runs_and_is_recorded, every_command_is_recorded, several_queues_at_once,
        several_queues_in_turn, commands_between_recordings_run, threads_record_at_once, a_dependent_queue_joins,
        recorded_and_added_graphs_do_the_same, a_graph_can_be_recorded_and_added_to_in_turn,
        recorded_nodes_are_refined_and_updated],
    &[] => [in_order_edges, eager_commands_are_not_linked, barrier_edges, events_are_dependencies,
        a_panic_ends_the_recording, a_leaked_guard_is_safe, a_dropped_graph_ends_a_leaked_recording,
        a_graph_that_records_again_ends_a_leaked_recording, a_recording_queue_begins_no_other,
        nothing_recorded_can_be_waited_for,
        recorded_events_stay_in_their_graph, executables_are_not_recorded, refused_commands_are_left_out,
        dropped_queues_and_buffers],
    &[Need::Results, Need::TwoDevices] => [queues_of_two_devices]);

/// The fixture of most tests.
struct Data {
    device: Device,
    x: Buffer<u32>,
    y: Buffer<u32>,
    host: HostBuffer<u32>,
}

fn data(setup: &Setup) -> Data {
    let device = setup.device().clone();
    Data {
        x: device.buffer(4).unwrap(),
        y: device.buffer(4).unwrap(),
        host: device.host_buffer(4).unwrap(),
        device,
    }
}

fn queues(device: &Device) -> [Queue; 2] {
    [device.queue().unwrap(), device.out_of_order_queue().unwrap()]
}

fn edges(graph: &Graph) -> Vec<(usize, usize)> {
    let mut edges: Vec<_> = graph.edges().map(|(from, to)| (from.index(), to.index())).collect();
    edges.sort_unstable();
    edges
}

fn node(event: &Event) -> NodeId {
    event.node().unwrap()
}

fn one_function_runs_and_is_recorded(setup: &Setup) {
    let Data { device, x, y, host } = data(setup);
    let step = |queue: &Queue| {
        queue.launch(mix(7, &x), Range::linear(4));
        queue.launch(fold(&x, &y), Range::linear(1));
        queue.copy(&y, &host);
        queue.host_task((write(&host),), async |(mut host,)| {
            tokio::task::yield_now().await;
            host.iter_mut().for_each(|x| *x ^= 5);
        });
        queue.copy(&host, &y)
    };
    let reset = async || {
        x.write(&[1, 2, 3, 4]).await.unwrap();
        y.write(&[0; 4]).await.unwrap();
    };
    setup.block_on(async {
        let [eager, _] = queues(&device);
        reset().await;
        let mut expected = Vec::new();
        for _ in 0..3 {
            step(&eager).await.unwrap();
            expected.push((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()));
        }
        for queue in queues(&device) {
            reset().await;
            let mut graph = Graph::new(&device);
            {
                let _recording = graph.record([&queue]).unwrap();
                assert!(queue.is_recording());
                step(&queue);
            }
            assert!(!queue.is_recording());
            assert_eq!(x.to_vec().await.unwrap(), [1, 2, 3, 4], "nothing has run");
            let exec = graph.finalize().unwrap();
            for expected in &expected {
                exec.submit().await.unwrap();
                assert_eq!((x.to_vec().await.unwrap(), y.to_vec().await.unwrap()), *expected);
            }
        }
    });
}

fn every_command_is_recorded(setup: &Setup) {
    let Data { device, x, y, host } = data(setup);
    let mut child = Graph::new(&device);
    child.launch(add(100, &y), Range::linear(4));
    for queue in queues(&device) {
        let mut graph = Graph::new(&device);
        let events = {
            let _recording = graph.record([&queue]).unwrap();
            [
                queue.write(&x, &[1, 2, 3, 4]),
                queue.fill(&y, 5),
                queue.fill_pattern(&y.slice(2..).unwrap(), &[6, 7]),
                queue.prefetch(&x),
                queue.launch(add(10, &x), Range::linear(4)),
                queue.copy(x.slice(..2).unwrap(), y.slice(..2).unwrap()),
                queue.sub_graph(&child),
                queue.copy(&y, &host),
                queue.host_task_blocking((write(&host),), |(mut host,)| host[3] += 1),
                queue.copy(&host, &y),
                queue.barrier(),
            ]
        };
        let kinds: Vec<_> = events.iter().map(|event| graph.kind(node(event)).unwrap()).collect();
        assert_eq!(kinds[1..3], [CommandKind::BufferFill; 2]);
        assert_eq!(kinds[4], CommandKind::Kernel);
        assert_eq!((kinds[6], kinds[8]), (CommandKind::SubGraph, CommandKind::HostTask));
        assert_eq!(kinds[10], CommandKind::Empty);
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), [111, 112, 106, 108]);
            }
        });
    }
    if device.capabilities().commands.contains(CommandKinds::IF) {
        let (queue, flag) = (device.queue().unwrap(), device.buffer_from(&[1u32]).unwrap());
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        queue.fill(&y, 1);
        let event = queue.if_nonzero(&flag, &child);
        drop(recording);
        assert_eq!(graph.kind(node(&event)).unwrap(), CommandKind::If);
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(y.to_vec().await.unwrap(), [101; 4]);
            }
            queue.fill(&y, 2);
            queue.if_nonzero(&flag, &child).await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [102; 4]);
        });
    }
}

fn several_queues_at_once(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let [one, other] = queues(&device);
    let mut graph = Graph::new(&device);
    {
        let _recording = graph.record([&one, &other]).unwrap();
        one.fill(&x, 1);
        other.fill(&y, 2);
        one.launch(mix(3, &x), Range::linear(4));
        other.launch(fold(&x, &y), Range::linear(1));
        one.launch(mix(4, &x), Range::linear(4));
    }
    assert_eq!(edges(&graph), [(0, 2), (1, 3), (2, 3), (2, 4), (3, 4)]);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [(31 + 3) * 31 + 4; 4]);
            assert_eq!(y.to_vec().await.unwrap(), [2 * 31 + 4 * (31 + 3); 4]);
        }
    });
}

fn several_queues_in_turn(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let [one, other] = queues(&device);
    let mut graph = Graph::new(&device);
    {
        let _recording = graph.record([&one]).unwrap();
        one.fill(&x, 1);
    }
    {
        let _recording = graph.record([&other]).unwrap();
        other.launch(add(1, &x), Range::linear(4));
    }
    {
        let _recording = graph.record([&one]).unwrap();
        one.fill(&y, 7);
    }
    {
        let _recording = graph.record([&other]).unwrap();
        other.launch(add(1, &x), Range::linear(4));
    }
    assert_eq!(edges(&graph), [(0, 1), (0, 2), (1, 3)]);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [3; 4]);
            assert_eq!(y.to_vec().await.unwrap(), [7; 4]);
        }
    });
}

fn commands_between_recordings_run(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    for queue in queues(&device) {
        setup.block_on(async {
            let mut graph = Graph::new(&device);
            {
                let _recording = graph.record([&queue]).unwrap();
                queue.fill(&x, 1);
            }
            assert!(!queue.is_recording());
            queue.fill(&y, 5).await.unwrap();
            queue.wait().await.unwrap();
            {
                let _recording = graph.record([&queue]).unwrap();
                queue.launch(add(1, &x), Range::linear(4));
            }
            assert_eq!(y.to_vec().await.unwrap(), [5; 4]);
            assert_eq!((graph.len(), edges(&graph)), (2, vec![(0, 1)]));
            let exec = graph.finalize().unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [2; 4]);
            }
        });
    }
}

fn threads_record_at_once(setup: &Setup) {
    const THREADS: usize = 4;
    const EACH: u32 = 25;
    let Data { device, x, .. } = data(setup);
    for shared in queues(&device) {
        let own: Vec<_> =
            (0..THREADS).map(|_| (device.queue().unwrap(), device.buffer::<u32>(4).unwrap())).collect();
        let mut graph = Graph::new(&device);
        {
            let recorded: Vec<_> = own.iter().map(|(queue, _)| queue).chain([&shared]).collect();
            let _recording = graph.record(recorded).unwrap();
            std::thread::scope(|scope| {
                for (queue, buffer) in &own {
                    let (shared, x) = (&shared, &x);
                    scope.spawn(move || {
                        for n in 0..EACH {
                            queue.launch(mix(n, buffer), Range::linear(4));
                            shared.launch(add(1, x), Range::linear(4));
                        }
                    });
                }
            });
        }
        assert_eq!(graph.len(), 2 * THREADS * EACH as usize);
        let exec = graph.finalize().unwrap();
        setup.block_on(async {
            x.write(&[0; 4]).await.unwrap();
            let mut expected = 0u32;
            for replay in 1..3 {
                exec.submit().await.unwrap();
                expected = (0..EACH).fold(expected, |sum, n| sum.wrapping_mul(31).wrapping_add(n));
                assert_eq!(x.to_vec().await.unwrap(), [replay * THREADS as u32 * EACH; 4]);
                for (_, buffer) in &own {
                    assert_eq!(buffer.to_vec().await.unwrap(), [expected; 4]);
                }
            }
        });
    }
}

fn a_dependent_queue_joins(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let queue = device.queue().unwrap();
    for joining in queues(&device) {
        setup.block_on(async {
            y.write(&[0; 4]).await.unwrap();
            let mut graph = Graph::new(&device);
            {
                let _recording = graph.record([&queue]).unwrap();
                let recorded = queue.fill(&x, 1);
                joining.fill(&y, 3).await.unwrap();
                let joined = joining.after([&recorded]).launch(add(1, &y), Range::linear(4));
                assert!(joining.is_recording());
                assert_eq!(node(&joined).index(), 1);
                joining.launch(add(1, &x), Range::linear(4));
            }
            assert!(!joining.is_recording());
            assert_eq!(y.to_vec().await.unwrap(), [3; 4]);
            let in_order = joining.is_in_order();
            let expected = if in_order { vec![(0, 1), (0, 2), (1, 2)] } else { vec![(0, 1), (0, 2)] };
            assert_eq!(edges(&graph), expected);
            let exec = graph.finalize().unwrap();
            for replay in 1..3 {
                exec.submit().await.unwrap();
                assert_eq!(x.to_vec().await.unwrap(), [2; 4]);
                assert_eq!(y.to_vec().await.unwrap(), [3 + replay; 4]);
            }
        });
    }
}

fn recorded_and_added_graphs_do_the_same(setup: &Setup) {
    let Data { device, x, y, host } = data(setup);
    let queue = device.out_of_order_queue().unwrap();
    let (mut added, mut recorded) = (Graph::new(&device), Graph::new(&device));
    added.fill(&x, 1);
    added.launch(mix(2, &x), Range::linear(4));
    added.launch(fold(&x, &y), Range::linear(1));
    added.copy(&y, &host);
    added.host_task((read(&host),), async |_| ());
    {
        let _recording = recorded.record([&queue]).unwrap();
        queue.fill(&x, 1);
        queue.launch(mix(2, &x), Range::linear(4));
        queue.launch(fold(&x, &y), Range::linear(1));
        queue.copy(&y, &host);
        queue.host_task((read(&host),), async |_| ());
    }
    assert_eq!(added.dot(false), recorded.dot(false));
    let [added, recorded] = [added, recorded].map(|graph| graph.finalize().unwrap());
    assert_eq!(added.plan_text(), recorded.plan_text());
    setup.block_on(async {
        for _ in 0..2 {
            y.write(&[9; 4]).await.unwrap();
            added.submit().await.unwrap();
            let expected = y.to_vec().await.unwrap();
            y.write(&[9; 4]).await.unwrap();
            recorded.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), expected);
        }
    });
}

fn a_graph_can_be_recorded_and_added_to_in_turn(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut graph = Graph::new(&device);
    let first = graph.fill(&x, 1).id();
    let recording = graph.record([&queue]).unwrap();
    let second = queue.launch(add(1, &x), Range::linear(4));
    drop(recording);
    let third = graph.launch(add(1, &x), Range::linear(4)).after(second.node()).id();
    assert_eq!(graph.predecessors(node(&second)).unwrap(), [first]);
    assert_eq!(graph.predecessors(third).unwrap(), [node(&second)]);
    let before = graph.finalize().unwrap();
    let recording = graph.record([&queue]).unwrap();
    queue.launch(add(10, &x), Range::linear(4));
    drop(recording);
    let after = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            before.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [3; 4]);
            after.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [13; 4]);
        }
    });
}

fn recorded_nodes_are_refined_and_updated(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut graph = Graph::new(&device);
    let n = graph.param(1u32);
    let (filled, added) = {
        let _recording = graph.record([&queue]).unwrap();
        (queue.fill(&x, 1), queue.launch(add(7, &x), Range::linear(4)))
    };
    graph.node_mut(node(&filled)).unwrap().name("clear");
    graph.node_mut(node(&added)).unwrap().param("n", &n);
    assert_eq!(graph.find("clear"), filled.node());
    let foreign = Graph::new(&device).node_mut(node(&added)).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::InvalidArgument);
    let exec = graph.finalize().unwrap();
    n.set(2);
    let later = graph.finalize_with(FinalizeOptions::new().updatable(setup_updates(&device))).unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [2; 4]);
            later.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [3; 4]);
        }
        if setup_updates(&device) {
            later.update().param(&n, 5).apply().await.unwrap();
            later.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [6; 4]);
        }
    });
}

/// Whether executables of the device can be updated.
fn setup_updates(device: &Device) -> bool {
    device.capabilities().update.contains(UpdateCapabilities::KERNEL_ARGUMENTS)
}

fn in_order_edges(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let [in_order, out_of_order] = queues(&device);
    for (queue, expected) in [(in_order, vec![(0, 1), (1, 2)]), (out_of_order, vec![])] {
        let z = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        {
            let _recording = graph.record([&queue]).unwrap();
            queue.fill(&x, 1);
            queue.fill(&y, 1);
        }
        // A later recording into the same graph goes on where the first one ended.
        let _ = queue.fill(&x, 3);
        {
            let _recording = graph.record([&queue]).unwrap();
            queue.fill(&z, 1);
        }
        assert_eq!(edges(&graph), expected);
        // Another graph begins anew.
        let mut other = Graph::new(&device);
        let recording = other.record([&queue]).unwrap();
        queue.fill(&x, 1);
        drop(recording);
        assert_eq!(edges(&other), []);
        setup.block_on(async {
            let exec = graph.finalize().unwrap();
            exec.submit().await.unwrap();
            exec.submit().await.unwrap();
            queue.wait().await.unwrap();
        });
    }
}

fn eager_commands_are_not_linked(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    setup.block_on(async {
        let before = queue.fill(&x, 1);
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        let recorded = queue.fill(&x, 2);
        drop(recording);
        let after = queue.fill(&x, 3);
        assert_eq!((before.node(), after.node()), (None, None));
        assert_eq!(graph.predecessors(node(&recorded)).unwrap(), []);
        before.await.unwrap();
        after.await.unwrap();
        graph.finalize().unwrap().submit().await.unwrap();
        graph.finalize().unwrap().submit().await.unwrap();
    });
}

fn barrier_edges(setup: &Setup) {
    let device = setup.device();
    let queue = device.out_of_order_queue().unwrap();
    let other = device.out_of_order_queue().unwrap();
    let buffers: Vec<_> = (0..6).map(|_| device.buffer::<u32>(4).unwrap()).collect();
    let mut graph = Graph::new(device);
    {
        let _recording = graph.record([&queue, &other]).unwrap();
        queue.fill(&buffers[0], 1); // 0
        queue.fill(&buffers[0], 2); // 1, after 0
        let listed = queue.fill(&buffers[1], 1); // 2
        other.fill(&buffers[2], 1); // 3, of another queue
        queue.barrier(); // 4, after 1 and 2
        queue.fill(&buffers[3], 1); // 5, after 4
        other.fill(&buffers[4], 1); // 6
        queue.barrier_after([&listed]); // 7, after 2 and 4
        queue.fill(&buffers[5], 1); // 8, after 7
        queue.barrier(); // 9, after 5, 7 and 8
    }
    let expected = [(0, 1), (1, 4), (2, 4), (2, 7), (4, 5), (4, 7), (5, 9), (7, 8), (7, 9), (8, 9)];
    assert_eq!(edges(&graph), expected);
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn events_are_dependencies(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let [one, other] = [device.out_of_order_queue().unwrap(), device.out_of_order_queue().unwrap()];
    let mut graph = Graph::new(&device);
    let first = {
        let _recording = graph.record([&one, &other]).unwrap();
        let first = one.fill(&x, 1);
        other.after([&first]).fill(&y, 1);
        first
    };
    // An event of an earlier recording of the same graph is good, too.
    {
        let _recording = graph.record([&one]).unwrap();
        one.after([&first]).fill(&device.buffer::<u32>(4).unwrap(), 1);
    }
    assert_eq!(edges(&graph), [(0, 1), (0, 2)]);
    setup.block_on(async {
        let exec = graph.finalize().unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn a_panic_ends_the_recording(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut graph = Graph::new(&device);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _recording = graph.record([&queue]).unwrap();
        queue.fill(&x, 1);
        if queue.is_recording() {
            panic!("{PANIC}");
        }
    }));
    assert!(panicked.is_err() && !queue.is_recording());
    assert_eq!(graph.len(), 1);
    setup.block_on(async {
        queue.fill(&x, 2).await.unwrap();
        let exec = graph.finalize().unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn a_leaked_guard_is_safe(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut graph = Graph::new(&device);
    graph.fill(&x, 1);
    std::mem::forget(graph.record([&queue]).unwrap());
    let event = queue.fill(&x, 2);
    assert!(queue.is_recording() && event.node().is_some());
    assert!(graph.is_empty());
    drop(queue);
    setup.block_on(async {
        graph.finalize().unwrap().submit().await.unwrap();
        let other = device.queue().unwrap();
        other.fill(&x, 3).await.unwrap();
        let recording = graph.record([&other]).unwrap();
        other.fill(&x, 4);
        drop(recording);
        assert_eq!(graph.len(), 1);
    });
}

fn a_dropped_graph_ends_a_leaked_recording(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let [queue, joined] = queues(&device);
    let mut graph = Graph::new(&device);
    std::mem::forget(graph.record([&queue]).unwrap());
    let recorded = queue.fill(&x, 2);
    joined.after([&recorded]).fill(&x, 3);
    assert!(queue.is_recording() && joined.is_recording());
    drop(graph);
    assert!(!queue.is_recording() && !joined.is_recording());
    setup.block_on(async {
        queue.fill(&x, 4).await.unwrap();
        assert!(joined.after([&recorded]).fill(&x, 5).await.is_err(), "nothing joins any more");
    });
    let mut other = Graph::new(&device);
    drop(other.record([&queue, &joined]).unwrap());
}

fn a_graph_that_records_again_ends_a_leaked_recording(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut graph = Graph::new(&device);
    std::mem::forget(graph.record([&queue]).unwrap());
    let recording = graph.record([&queue]).unwrap();
    queue.fill(&x, 1);
    drop(recording);
    assert!(!queue.is_recording());
    assert_eq!(graph.len(), 1);
    drop(graph);
    setup.block_on(async { queue.fill(&x, 2).await.unwrap() });
}

fn a_recording_queue_begins_no_other(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let (queue, idle) = (device.queue().unwrap(), device.queue().unwrap());
    let (mut graph, mut other) = (Graph::new(&device), Graph::new(&device));
    {
        let _recording = graph.record([&queue]).unwrap();
        let error = other.record([&idle, &queue]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
        assert!(error.to_string().contains("already recording into a graph"), "{error}");
        assert!(error.to_string().contains("end that recording first"), "{error}");
        assert!(!idle.is_recording() && queue.is_recording());
        queue.fill(&x, 1);
    }
    let error = other.record([&idle, &idle]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidOperation);
    assert!(!idle.is_recording());
    // All of them still work.
    let recording = other.record([&queue, &idle]).unwrap();
    idle.fill(&x, 1);
    drop(recording);
    assert_eq!((graph.len(), other.len()), (1, 1));
    setup.block_on(async {
        graph.finalize().unwrap().submit().await.unwrap();
        other.finalize().unwrap().submit().await.unwrap();
        idle.fill(&x, 2).await.unwrap();
    });
}

fn nothing_recorded_can_be_waited_for(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut used = Graph::new(&device);
    used.fill(&y, 1);
    let exec = used.finalize().unwrap();
    setup.block_on(async {
        let mut graph = Graph::new(&device);
        let recorded = {
            let _recording = graph.record([&queue]).unwrap();
            let recorded = queue.fill(&x, 1);
            let error = queue.wait().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidOperation);
            assert!(error.to_string().contains("the queue is recording"), "{error}");
            recorded
        };
        for error in [
            recorded.wait().await.unwrap_err(),
            recorded.clone().await.unwrap_err(),
            exec.prepare().after_event(&recorded).submit().await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::InvalidOperation);
            assert!(error.to_string().contains("recorded command"), "{error}");
            assert!(error.to_string().contains("; submit an executable"), "{error}");
        }
        exec.submit().await.unwrap();
        queue.wait().await.unwrap();
        graph.finalize().unwrap().submit().await.unwrap();
    });
}

fn recorded_events_stay_in_their_graph(setup: &Setup) {
    let Data { device, x, y, .. } = data(setup);
    let (queue, other) = (device.queue().unwrap(), device.queue().unwrap());
    setup.block_on(async {
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        let recorded = queue.fill(&x, 1);
        drop(recording);
        // The recording is over: nothing can join it.
        let error = other.after([&recorded]).fill(&y, 1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
        assert!(error.to_string().contains("after the end of its recording"), "{error}");
        assert_eq!(other.wait().await.unwrap_err().kind(), ErrorKind::InvalidOperation);
        // Another graph does not know the node; and what runs cannot be depended on by what is recorded.
        let eager = queue.fill(&x, 2);
        for (event, words) in [(&recorded, "another graph"), (&eager, "that runs")] {
            let mut second = Graph::new(&device);
            let recording = second.record([&other]).unwrap();
            other.after([event]).fill(&y, 1);
            other.barrier_after([event]);
            drop(recording);
            for error in second.take_errors() {
                assert_eq!(error.kind(), ErrorKind::InvalidArgument);
                assert!(error.to_string().contains(words), "{error}");
                assert!(error.to_string().contains(file!()), "{error}");
            }
            let exec = second.finalize().unwrap();
            exec.submit().await.unwrap();
            exec.submit().await.unwrap();
        }
        eager.await.unwrap();
        other.fill(&y, 2).await.unwrap();
    });
}

fn executables_are_not_recorded(setup: &Setup) {
    let Data { device, x, .. } = data(setup);
    let queue = device.queue().unwrap();
    let mut child = Graph::new(&device);
    child.fill(&x, 1);
    let exec = child.finalize().unwrap();
    setup.block_on(async {
        let mut graph = Graph::new(&device);
        let recording = graph.record([&queue]).unwrap();
        let error = queue.submit(&exec).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
        assert!(error.to_string().contains("sub_graph"), "{error}");
        drop(queue.submit(&exec));
        queue.sub_graph(&child);
        drop(recording);
        queue.submit(&exec).await.unwrap();
        // As for other commands that are refused, also where nobody looks at the submission.
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidOperation);
        assert!(error.to_string().contains("recording.rs"), "{error}");
        assert_eq!(graph.take_errors().len(), 2);
        graph.finalize().unwrap().submit().await.unwrap();
        // An empty node stands for each of them.
        assert_eq!(graph.len(), 3);
        // A queue joins the recording of an event that it depends on, before it refuses.
        let mut graph = Graph::new(&device);
        let [recorded, joined] = queues(&device);
        let recording = graph.record([&recorded]).unwrap();
        let event = recorded.fill(&device.buffer::<u32>(1).unwrap(), 1);
        drop(joined.after([&event]).submit(&exec));
        assert!(joined.is_recording());
        drop(recording);
        assert_eq!(graph.errors().len(), 1);
    });
}

fn refused_commands_are_left_out(setup: &Setup) {
    let Data { device, x, host, .. } = data(setup);
    let (queue, short) = (device.queue().unwrap(), device.buffer::<u32>(3).unwrap());
    let mut graph = Graph::new(&device);
    {
        let _recording = graph.record([&queue]).unwrap();
        queue.fill(&x, 1);
        queue.copy(&x, &short);
        queue.launch(add(1, &x), Range::linear(5));
        queue.host_task((read(&host), write(&host)), async |_| ());
        queue.fill(&x, 2);
    }
    assert_eq!(graph.finalize().unwrap_err().kind(), ErrorKind::InvalidSize);
    let kinds: Vec<_> = graph.take_errors().iter().map(wakegraph::Error::kind).collect();
    assert_eq!(kinds, [ErrorKind::InvalidSize, ErrorKind::InvalidSize, ErrorKind::InvalidArgument]);
    setup.block_on(async {
        let exec = graph.finalize().unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        queue.wait().await.unwrap();
    });
}

fn dropped_queues_and_buffers(setup: &Setup) {
    let device = setup.device();
    let mut graph = Graph::new(device);
    {
        let queue = device.queue().unwrap();
        let _recording = graph.record([&queue]).unwrap();
        let x = device.buffer::<u32>(4).unwrap();
        queue.fill(&x, 1);
        drop(queue);
    }
    setup.block_on(async {
        let exec = graph.finalize().unwrap();
        drop(graph);
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
    });
}

fn queues_of_two_devices(setup: &Setup) {
    let [one, other] = &setup.devices[..2] else { unreachable!() };
    let (x, y) = (one.buffer::<u32>(4).unwrap(), other.buffer::<u32>(4).unwrap());
    let (first, second) = (one.queue().unwrap(), other.queue().unwrap());
    let mut graph = Graph::new(one);
    {
        let _recording = graph.record([&first, &second]).unwrap();
        first.launch(add(1, &x), Range::linear(4));
        first.copy(&x, &y);
        second.launch(add(10, &y), Range::linear(4));
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for replay in 1..4 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [replay + 10; 4]);
        }
    });
}
