//! Memory without elements, and commands that have nothing to do: launches without work-items, fills and
//! copies of no bytes. They keep their place in the order.

use wakegraph::graph::CommandKind;
use wakegraph::memory::{Layout, RectCopy};
use wakegraph::{Buffer, Device, ErrorKind, FinalizeOptions, Graph, HostBuffer, Local, Range, read};

use super::control::words;
use super::updates::{can_update, finalize, mixed};
use crate::kernels::{add, axpy, lengths, mix, raise};
use crate::suite::{Need, Setup, tests};

tests!("graph/idle":
    &[] => [memory_may_have_no_elements, nodes_keep_their_kind_and_edges, mistakes_are_refused_all_the_same],
    &[Need::Results] => [idle_nodes_keep_the_order, idle_commands_of_queues, recorded_commands,
        kernels_see_no_elements, a_range_is_updated_to_nothing_and_back, nodes_begin_idle, operands_come_and_go,
        rectangles_come_and_go, switches_stay_with_the_user, from_a_graph_with_other_sizes, in_bodies],
    &[Need::Results, Need::TwoDevices] => [copies_between_devices]);

fn memory_may_have_no_elements(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(0).unwrap(), device.buffer_from::<u64>(&[]).unwrap());
    let (host, source) = (device.host_buffer::<u32>(0).unwrap(), device.host_buffer_from::<u8>(&[]).unwrap());
    assert!(x.is_empty() && y.is_empty() && host.is_empty() && source.is_empty());
    assert_ne!(x.resource(), device.buffer::<u32>(0).unwrap().resource());
    let owned = device.register_owned(Vec::<u32>::new()).unwrap();
    let shared = device.register_source(Vec::<u32>::new()).unwrap();
    assert!(owned.is_empty() && shared.is_empty());
    assert!(Graph::new(device).scratch::<u32>(0).unwrap().is_empty());
    let four = device.buffer_from(&[1u32, 2, 3, 4]).unwrap();
    for none in [four.slice(0..0), four.slice(2..2), four.slice(4..), x.slice(..)] {
        assert_eq!(none.unwrap().len(), 0);
    }
    setup.block_on(async {
        assert_eq!(x.to_vec().await.unwrap(), []);
        x.write(&[]).await.unwrap();
        four.slice(2..2).unwrap().read(&mut []).await.unwrap();
        assert!(host.read().await.is_empty() && host.write().await.is_empty());
        assert_eq!(owned.slice(..).unwrap().read().await.into_bytes().len(), 0);
    });
}

/// A node of each kind that has nothing to do, and the kind.
fn idle_nodes(graph: &mut Graph, device: &Device, x: &Buffer<u32>) -> Vec<(wakegraph::NodeId, CommandKind)> {
    let none = x.slice(2..2).unwrap();
    let (host, tile) = (device.host_buffer::<u32>(0).unwrap(), RectCopy::new([2, 0], rows(), rows()));
    let large = device.host_buffer::<u32>(4).unwrap();
    vec![
        (graph.launch(mix(9, x), Range::linear(0)).id(), CommandKind::Kernel),
        (graph.launch(raise(9, &none), Range::linear(0)).id(), CommandKind::Kernel),
        (graph.launch(axpy(9, &none, x), Range::new([0]).local([4])).id(), CommandKind::Kernel),
        (graph.fill(&none, 9).id(), CommandKind::BufferFill),
        (graph.fill_pattern(&none, &[1, 2, 3]).id(), CommandKind::BufferFill),
        (graph.copy(&none, x.slice(1..1).unwrap()).id(), CommandKind::BufferCopy),
        (graph.copy(&none, &host).id(), CommandKind::BufferRead),
        (graph.copy(&host, &none).id(), CommandKind::BufferWrite),
        (graph.write(&none, &[]).id(), CommandKind::BufferWrite),
        (graph.copy_rect(x, x, tile).id(), CommandKind::BufferCopyRect),
        (graph.copy_rect(x, &large, tile).id(), CommandKind::BufferReadRect),
        (graph.copy_rect(&large, x, tile).id(), CommandKind::BufferWriteRect),
        (graph.prefetch(&none).id(), CommandKind::UsmPrefetch),
    ]
}

/// Far beyond four elements.
fn rows() -> Layout {
    Layout::rows(2).origin([0, 7])
}

fn nodes_keep_their_kind_and_edges(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[1u32; 4]).unwrap();
    let mut graph = Graph::new(device);
    let first = graph.launch(mix(1, &x), Range::linear(4)).id();
    let launch = graph.launch(mix(2, &x), Range::linear(0)).name("ragged").id();
    let fill = graph.fill(&x.slice(4..).unwrap(), 1).after([first]).id();
    assert_eq!(graph.find("ragged"), Some(launch));
    assert_eq!(graph.edges().collect::<Vec<_>>(), [(first, launch), (first, fill)]);
    for (node, kind) in idle_nodes(&mut graph, device, &x) {
        assert_eq!(graph.kind(node).unwrap(), kind);
    }
    graph.finalize().unwrap();
    graph.finalize_with(FinalizeOptions::new().updatable(can_update(setup))).unwrap();
}

fn mistakes_are_refused_all_the_same(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(0).unwrap());
    let host = device.host_buffer::<u32>(0).unwrap();
    let refused = |kind: ErrorKind, build: &dyn Fn(&mut Graph)| {
        let mut graph = Graph::new(device);
        build(&mut graph);
        assert_eq!(graph.finalize().unwrap_err().kind(), kind);
    };
    let (size, argument) = (ErrorKind::InvalidSize, ErrorKind::InvalidArgument);
    refused(size, &|graph| _ = graph.launch(add(1, &y), Range::linear(1)));
    refused(size, &|graph| _ = graph.launch(raise(1, &x), Range::linear(0)));
    refused(size, &|graph| _ = graph.copy(&x, &y));
    refused(size, &|graph| _ = graph.fill_pattern(&y, &[]));
    refused(argument, &|graph| _ = graph.copy(&host, &host));
    refused(argument, &|graph| _ = graph.launch(axpy(1, &x, &x), Range::linear(0)));
    for range in [5..5, 4..5] {
        assert_eq!(x.slice(range).unwrap_err().kind(), size);
    }
    assert_eq!(device.buffer::<()>(0).unwrap_err().kind(), size);
}

fn idle_nodes_keep_the_order(setup: &Setup) {
    let device = setup.device();
    let x = words(device, [1; 4]);
    for updatable in [false, can_update(setup)] {
        x_is_written(setup, &x, 1);
        let mut graph = Graph::new(device);
        graph.launch(mix(1, &x), Range::linear(4));
        let mut last = graph.leaves().next().unwrap();
        for (node, _) in idle_nodes(&mut graph, device, &x) {
            graph.make_edge(last, node).unwrap();
            last = node;
        }
        graph.launch(mix(2, &x), Range::linear(4)).after([last]);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(updatable)).unwrap();
        setup.block_on(async {
            let mut model = 1;
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = mixed(model, &[1, 2]);
                assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
            }
        });
    }
}

fn x_is_written(setup: &Setup, x: &Buffer<u32>, value: u32) {
    setup.block_on(async { x.write(&[value; 4]).await.unwrap() });
}

fn idle_commands_of_queues(setup: &Setup) {
    let device = setup.device();
    let x = words(device, [1; 4]);
    let (none, host) = (x.slice(2..2).unwrap(), device.host_buffer::<u32>(0).unwrap());
    let tile = RectCopy::new([0, 2], rows(), rows());
    for queue in [device.queue().unwrap(), device.out_of_order_queue().unwrap()] {
        setup.block_on(async {
            x.write(&[1; 4]).await.unwrap();
            queue.launch(mix(1, &x), Range::linear(4));
            let events = [
                queue.launch(mix(9, &x), Range::linear(0)),
                queue.fill(&none, 9),
                queue.copy(&none, &host),
                queue.copy(&host, &none),
                queue.write(&none, &[]),
                queue.copy_rect(&x, &x, tile),
                queue.host_task((read(&host),), async |(host,)| assert!(host.is_empty())),
            ];
            queue.after(&events).launch(mix(2, &x), Range::linear(4));
            queue.wait().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 2]); 4]);
        });
    }
}

fn recorded_commands(setup: &Setup) {
    let device = setup.device();
    let x = words(device, [1; 4]);
    let (none, queue) = (x.slice(..0).unwrap(), device.queue().unwrap());
    let mut graph = Graph::new(device);
    let recording = graph.record([&queue]).unwrap();
    queue.launch(mix(1, &x), Range::linear(4));
    queue.launch(mix(9, &x), Range::linear(0));
    queue.copy(&none, x.slice(4..).unwrap());
    queue.fill(&none, 9);
    queue.launch(mix(2, &x), Range::linear(4));
    drop(recording);
    assert_eq!((graph.len(), graph.errors().len()), (5, 0));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        let mut model = 1;
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[1, 2]);
            assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
        }
    });
}

// A kernel that runs, with empty buffers among its arguments.
fn kernels_see_no_elements(setup: &Setup) {
    let device = setup.device();
    let (bytes, numbers) = (device.buffer::<u8>(0).unwrap(), device.buffer::<u64>(2).unwrap());
    let out = device.buffer::<u64>(4).unwrap();
    let mut graph = Graph::new(device);
    let call = lengths(&bytes, 0, numbers.slice(1..1).unwrap(), Local::new(4), &out);
    graph.launch(call, Range::linear(1).local([1]));
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(out.to_vec().await.unwrap(), [0, 0, 4, 4]);
        }
    });
}

fn a_range_is_updated_to_nothing_and_back(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = words(setup.device(), [1; 4]);
    let mut graph = Graph::new(setup.device());
    graph.launch(mix(1, &x), Range::linear(4));
    let node = graph.launch(mix(2, &x), Range::linear(4)).id();
    graph.launch(mix(3, &x), Range::linear(4));
    let exec = finalize(&graph);
    let mut model = [1; 4];
    setup.block_on(async {
        let mut n = 2;
        for (step, len) in [4, 0, 2, 0, 0, 3, 4].into_iter().enumerate() {
            let range = match len % 2 {
                0 => Range::linear(len).local([2]),
                _ => Range::linear(len),
            };
            let mut update = exec.update().range(node, range);
            if step % 2 == 1 {
                n += 5;
                update = update.launch(node, mix(n, &x));
            }
            update.apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                for (index, model) in model.iter_mut().enumerate() {
                    *model = if index < len { mixed(*model, &[1, n, 3]) } else { mixed(*model, &[1, 3]) };
                }
                assert_eq!(x.to_vec().await.unwrap(), model, "{len} in step {step}");
            }
        }
    });
}

fn nodes_begin_idle(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (x, y, none) = (words(device, [1; 4]), words(device, [1; 4]), device.buffer::<u32>(0).unwrap());
    let mut graph = Graph::new(device);
    let launch = graph.launch(axpy(2, &none, &none), Range::linear(0)).id();
    let owned = graph.launch(raise(3, &none), Range::linear(0)).after([launch]).id();
    let p = graph.param(&none);
    let param = graph.launch(mix(4, &none), Range::linear(0)).param("x", &p).after([owned]).id();
    graph.launch(add(100, &x), Range::linear(4)).after([param]);
    let exec = finalize(&graph);
    setup.block_on(async {
        let run = async |expected: [u32; 4]| {
            x.write(&[1; 4]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), expected);
        };
        run([101; 4]).await;
        let four = Range::linear(4);
        exec.update().launch(launch, axpy(2, &y, &x)).range(launch, four).apply().await.unwrap();
        run([103; 4]).await;
        let two = x.slice(..2).unwrap();
        exec.update().launch(owned, raise(3, &two)).range(owned, Range::linear(2)).apply().await.unwrap();
        run([106, 106, 103, 103]).await;
        exec.update()
            .launch(launch, axpy(2, &none, &x))
            .range(launch, Range::linear(0))
            .apply()
            .await
            .unwrap();
        exec.update().param(&p, &x).range(param, Range::linear(1)).apply().await.unwrap();
        run([mixed(4, &[4]) + 100, 104, 101, 101]).await;
        // The kernel's own bound is none that an empty buffer allows.
        let error = exec.update().param(&p, &none).apply().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSize, "{error}");
    });
}

/// Zeros on the host and in two buffers.
struct Places {
    x: Buffer<u32>,
    y: Buffer<u32>,
    host: HostBuffer<u32>,
}

impl Places {
    fn new(device: &Device) -> Self {
        let host = device.host_buffer::<u32>(4).unwrap();
        Self { x: words(device, [0; 4]), y: words(device, [0; 4]), host }
    }
}

// fill x -> copy to y -> copy to the host -> copy to x, each with so many elements. No edges follow from
// memory that has none.
fn operands_come_and_go(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let Places { x, y, host } = Places::new(setup.device());
    for start in [0, 3] {
        let parts =
            |len: usize| (x.slice(..len).unwrap(), y.slice(..len).unwrap(), host.slice(..len).unwrap());
        let mut graph = Graph::new(setup.device());
        let (from, over, to) = parts(start);
        let fill = graph.fill(&from, 1).id();
        let copy = graph.copy(&from, &over).after([fill]).id();
        let out = graph.copy(&over, &to).after([copy]).id();
        let back = graph.copy(&to, &from).after([out]).id();
        let exec = finalize(&graph);
        setup.block_on(async {
            for (value, len) in [(2, start), (3, 0), (4, 2), (5, 4), (6, 0)] {
                let (from, over, to) = parts(len);
                let update = exec.update().fill(fill, &from, value).copy(copy, &from, &over);
                update.copy(out, &over, &to).copy(back, &to, &from).apply().await.unwrap();
                x.write(&[0; 4]).await.unwrap();
                y.write(&[0; 4]).await.unwrap();
                host.write().await.fill(0);
                for _ in 0..2 {
                    exec.submit().await.unwrap();
                    let expected: Vec<u32> = (0..4).map(|at| if at < len { value } else { 0 }).collect();
                    assert_eq!(x.to_vec().await.unwrap(), expected, "{len} from {start}");
                    assert_eq!(y.to_vec().await.unwrap(), expected, "{len} from {start}");
                    assert_eq!(*host.read().await, expected, "{len} from {start}");
                }
            }
        });
    }
}

// Rows of an image of 2 x 2.
fn rectangles_come_and_go(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let Places { x, y, host } = Places::new(setup.device());
    let rows = |count| RectCopy::new([2, count], Layout::rows(2), Layout::rows(2));
    for start in [0, 2] {
        let mut graph = Graph::new(setup.device());
        graph.fill(&x, 7);
        let over = graph.copy_rect(&x, &y, rows(start)).id();
        let out = graph.copy_rect(&y, &host, rows(start)).id();
        let exec = finalize(&graph);
        setup.block_on(async {
            for count in [start, 1, 0, 2, 0] {
                let update = exec.update().copy_rect(over, &x, &y, rows(count));
                update.copy_rect(out, &y, &host, rows(count)).apply().await.unwrap();
                y.write(&[0; 4]).await.unwrap();
                host.write().await.fill(0);
                exec.submit().await.unwrap();
                let expected: Vec<u32> = (0..4).map(|at| if at < 2 * count { 7 } else { 0 }).collect();
                assert_eq!(y.to_vec().await.unwrap(), expected, "{count} from {start}");
                assert_eq!(*host.read().await, expected, "{count} from {start}");
            }
        });
    }
}

// A node runs if it is enabled and has something to do, in whichever order the two are said.
fn switches_stay_with_the_user(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = words(setup.device(), [0; 4]);
    let mut graph = Graph::new(setup.device());
    let node = graph.launch(add(1, &x), Range::linear(0)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let run = async |expected: u32| {
            x.write(&[0; 4]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [expected; 4]);
        };
        let update = || exec.update();
        run(0).await;
        update().enabled(node, true).apply().await.unwrap();
        run(0).await;
        update().enabled(node, false).range(node, Range::linear(4)).apply().await.unwrap();
        run(0).await;
        update().enabled(node, true).apply().await.unwrap();
        run(1).await;
        update().range(node, Range::linear(0)).apply().await.unwrap();
        run(0).await;
        update().enabled(node, false).apply().await.unwrap();
        update().enabled(node, true).apply().await.unwrap();
        run(0).await;
        update().enabled(node, false).apply().await.unwrap();
        update().range(node, Range::linear(4)).apply().await.unwrap();
        run(0).await;
        update().enabled(node, true).apply().await.unwrap();
        run(1).await;
    });
}

fn from_a_graph_with_other_sizes(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let Places { x, y, .. } = Places::new(setup.device());
    let build = |value: u32, len: usize| {
        let (from, to) = (x.slice(..len).unwrap(), y.slice(..len).unwrap());
        let mut graph = Graph::new(setup.device());
        let fill = graph.fill(&from, value).id();
        let launch = graph.launch(add(1, &from), Range::linear(len)).after([fill]).id();
        graph.copy(&from, &to).after([launch]);
        (graph, fill)
    };
    let (graph, fill) = build(1, 0);
    let exec = finalize(&graph);
    setup.block_on(async {
        for (value, len) in [(10, 3), (20, 0), (30, 0), (40, 4), (50, 0)] {
            exec.update_from(&build(value, len).0).await.unwrap();
            x.write(&[0; 4]).await.unwrap();
            y.write(&[0; 4]).await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                let expected: Vec<u32> = (0..4).map(|at| if at < len { value + 1 } else { 0 }).collect();
                assert_eq!(x.to_vec().await.unwrap(), expected);
                assert_eq!(y.to_vec().await.unwrap(), expected);
            }
        }
        exec.update().fill(fill, &x, 5).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [5; 4]);
    });
}

fn in_bodies(setup: &Setup) {
    let device = setup.device();
    let (flag, x) = (words(device, [1]), words(device, [1; 4]));
    let mut body = Graph::new(device);
    body.launch(mix(1, &x), Range::linear(4));
    let node = body.launch(mix(2, &x), Range::linear(0)).id();
    let fill = body.fill(&x.slice(..0).unwrap(), 9).after([node]).id();
    body.launch(mix(3, &x), Range::linear(4)).after([fill]);
    let mut graph = Graph::new(device);
    let around = graph.if_nonzero(&flag, &body).id();
    let updatable = can_update(setup);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(updatable)).unwrap();
    setup.block_on(async {
        let run = async |numbers: &[u32]| {
            x.write(&[1; 4]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [mixed(1, numbers); 4]);
        };
        run(&[1, 3]).await;
        run(&[1, 3]).await;
        if updatable {
            exec.update().range(node.within(around), Range::linear(4)).apply().await.unwrap();
            run(&[1, 2, 3]).await;
            exec.update().fill(fill.within(around), &x, 7).apply().await.unwrap();
            x.write(&[1; 4]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [mixed(7, &[3]); 4]);
            let update = exec.update().range(node.within(around), Range::linear(0));
            update.fill(fill.within(around), &x.slice(4..).unwrap(), 7).apply().await.unwrap();
            run(&[1, 3]).await;
        }
    });
}

fn copies_between_devices(setup: &Setup) {
    let [a, b] = [&setup.devices[0], &setup.devices[1]];
    let (x, y) = (words(a, [5; 4]), words(b, [0; 4]));
    let mut graph = Graph::new(a);
    let copy = graph.copy(x.slice(..0).unwrap(), y.slice(4..).unwrap()).id();
    let updatable = can_update(setup);
    let exec = graph.finalize_with(FinalizeOptions::new().updatable(updatable)).unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [0; 4]);
        if updatable {
            exec.update().copy(copy, &x, &y).apply().await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [5; 4]);
            let none = (x.slice(1..1).unwrap(), y.slice(..0).unwrap());
            exec.update().copy(copy, &none.0, &none.1).apply().await.unwrap();
            y.write(&[0; 4]).await.unwrap();
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [0; 4]);
        }
    });
}
