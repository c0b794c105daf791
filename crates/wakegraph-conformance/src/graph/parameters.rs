//! Dynamic parameters: what graphs and executables see of their values, on every device.

use wakegraph::capabilities::CommandKinds;
use wakegraph::{Buffer, ErrorKind, Graph, Local, Range};

use super::updates::{can_update, finalize, mixed, refused};
use crate::kernels::{add, axpy, lengths, mix};
use crate::random::Random;
use crate::suite::{Need, Setup, lacks, tests};

tests!("graph/parameters":
    &[Need::Results] => [the_graph_sees_a_new_value_at_once, an_executable_sees_it_after_an_update,
        one_parameter_in_many_places, memory, local_memory, edges_follow_memory, inside_sub_graphs,
        with_alternatives, pipelined_submissions_see_their_values, around_host_tasks,
        from_a_graph_with_other_values, in_a_recorded_graph, raw_addresses, null_buffers, random_updates],
    &[] => [addresses_that_do_not_fit_are_refused, misuse_is_refused, values_that_do_not_fit_are_refused, updates_that_do_not_fit_are_refused]);

fn buffer(setup: &Setup, numbers: &[u32]) -> Buffer<u32> {
    setup.device().buffer_from(numbers).unwrap()
}

fn the_graph_sees_a_new_value_at_once(setup: &Setup) {
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let n = graph.param(2u32);
    graph.launch(mix(0, &x), Range::linear(4)).param("n", &n);
    let first = graph.finalize().unwrap();
    n.set(3);
    assert_eq!(n.get(), Some(3));
    let second = graph.finalize().unwrap();
    graph.launch(mix(4, &x), Range::linear(4));
    let third = graph.finalize().unwrap();
    setup.block_on(async {
        let mut model = 1;
        for (exec, numbers) in [(&first, &[2][..]), (&second, &[3]), (&third, &[3, 4]), (&first, &[2])] {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = mixed(model, numbers);
                assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
            }
        }
    });
}

fn an_executable_sees_it_after_an_update(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let (n, m) = (graph.param(1u32), graph.param(2u32));
    graph.launch(mix(0, &x), Range::linear(4)).param("n", &n);
    graph.launch(mix(0, &x), Range::linear(4)).param("n", &m);
    let (exec, other) = (finalize(&graph), finalize(&graph));
    setup.block_on(async {
        let mut model = 1;
        n.set(10);
        exec.submit().await.unwrap();
        model = mixed(model, &[1, 2]);
        exec.update().param(&n, 20).apply().await.unwrap();
        assert_eq!(n.get(), Some(10), "the graph's value stays");
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[20, 2]);
        }
        m.set(30);
        exec.update().from_params([&n, &m]).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[10, 30]);
        }
        // What is said last counts.
        exec.update().param(&n, 1).param(&m, 2).param(&n, 3).apply().await.unwrap();
        exec.submit().await.unwrap();
        model = mixed(model, &[3, 2]);
        other.submit().await.unwrap();
        model = mixed(model, &[1, 2]);
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

// The first argument of one kernel, the second of another, and twice in a third.
fn one_parameter_in_many_places(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (bytes, numbers) = (device.buffer::<u8>(3).unwrap(), device.buffer::<u64>(2).unwrap());
    let out = device.buffer::<u64>(4).unwrap();
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[0; 4]));
    let mut graph = Graph::new(device);
    let n = graph.param(7u32);
    let memory = graph.param(&x);
    let range = Range::linear(4);
    graph.launch(add(0, &x), range).param("n", &n).param("x", &memory);
    graph.launch(axpy(0, &x, &y), range).param("x", &memory).param("a", &n);
    graph
        .launch(lengths(&bytes, 0, &numbers, Local::new(5), &out), Range::linear(1).local([1]))
        .param("before", &n);
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut on_x, mut on_y) = (1u32, 0u32);
        for value in [7, 9, 2] {
            exec.update().param(&n, value).apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                on_x += value;
                on_y += value * on_x;
            }
            assert_eq!(x.to_vec().await.unwrap(), [on_x; 4]);
            assert_eq!(y.to_vec().await.unwrap(), [on_y; 4]);
            assert_eq!(out.to_vec().await.unwrap(), [3, 2, 5, 4 + u64::from(value)]);
        }
    });
}

fn memory(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y, z] = [1, 2, 3].map(|start| buffer(setup, &[start; 4]));
    let sum = buffer(setup, &[0; 4]);
    let mut graph = Graph::new(setup.device());
    let p = graph.param(&x);
    graph.launch(mix(1, &x), Range::linear(4)).param("x", &p);
    // The call's own argument is replaced by the parameter's.
    graph.launch(axpy(1, &z, &sum), Range::linear(4)).param("x", &p);
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let before = exec.submit();
        exec.update().param(&p, &y).apply().await.unwrap();
        exec.submit().await.unwrap();
        before.await.unwrap();
        p.set(z.slice(..).unwrap());
        exec.update().from_params([&p]).apply().await.unwrap();
        exec.submit().await.unwrap();
        graph.finalize().unwrap().submit().await.unwrap();
        let [x1, x2] = [mixed(1, &[1]), mixed(1, &[1, 1])];
        let [z1, z2] = [mixed(3, &[1]), mixed(3, &[1, 1])];
        assert_eq!(x.to_vec().await.unwrap(), [x2; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(2, &[1]); 4]);
        assert_eq!(z.to_vec().await.unwrap(), [z2; 4]);
        let total = x1.wrapping_add(x2).wrapping_add(mixed(2, &[1])).wrapping_add(z1).wrapping_add(z2);
        assert_eq!(sum.to_vec().await.unwrap(), [total; 4]);
    });
}

fn local_memory(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (bytes, numbers) = (device.buffer::<u8>(3).unwrap(), device.buffer::<u64>(2).unwrap());
    let out = device.buffer::<u64>(4).unwrap();
    let mut graph = Graph::new(device);
    let tile = graph.param(Local::<u16>::new(6));
    graph
        .launch(lengths(&bytes, 0, &numbers, Local::new(1), &out), Range::linear(1).local([1]))
        .param("tile", &tile);
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(out.to_vec().await.unwrap(), [3, 2, 6, 4]);
        exec.update().param(&tile, Local::new(64)).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(out.to_vec().await.unwrap(), [3, 2, 64, 4]);
        }
        tile.set(Local::new(12));
        graph.finalize().unwrap().submit().await.unwrap();
        assert_eq!(out.to_vec().await.unwrap(), [3, 2, 12, 4]);
        // More than any device has.
        let huge = exec.update().param(&tile, Local::new(1 << 40)).apply().await;
        assert!(huge.is_err() == (device.capabilities().local_memory < 1 << 41));
        exec.update().param(&tile, Local::new(8)).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(out.to_vec().await.unwrap(), [3, 2, 8, 4]);
    });
}

// Two nodes without an edge, until both use the same memory.
fn edges_follow_memory(setup: &Setup) {
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let mut graph = Graph::new(setup.device());
    let p = graph.param(&x);
    let first = graph.launch(mix(1, &x), Range::linear(4)).param("x", &p).id();
    let second = graph.launch(mix(2, &y), Range::linear(4)).id();
    assert_eq!(graph.edges().count(), 0);
    p.set(&y);
    let exec = graph.finalize().unwrap();
    let third = graph.launch(mix(3, &y), Range::linear(4)).id();
    assert_eq!(graph.edges().collect::<Vec<_>>(), [(first, second), (second, third)]);
    // Bound to other memory than the call's, a node comes after what uses the parameter's.
    let fourth = graph.launch(mix(4, &x), Range::linear(4)).param("x", &p).id();
    assert!(graph.predecessors(fourth).unwrap().contains(&third));
    // An edge that leads backwards stays, and the two are in order already.
    let mut backwards = Graph::new(setup.device());
    let p = backwards.param(&x);
    let late = backwards.launch(mix(1, &x), Range::linear(4)).param("x", &p).id();
    let early = backwards.launch(mix(2, &y), Range::linear(4)).id();
    backwards.make_edge(early, late).unwrap();
    p.set(&y);
    let all = graph.finalize().unwrap();
    let backwards = backwards.finalize().unwrap();
    setup.block_on(async {
        let mut model = 1;
        for (exec, numbers) in [(&exec, &[1, 2][..]), (&all, &[1, 2, 3, 4]), (&backwards, &[2, 1])] {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = mixed(model, numbers);
                assert_eq!(y.to_vec().await.unwrap(), [model; 4]);
            }
        }
        assert_eq!(x.to_vec().await.unwrap(), [1; 4]);
    });
}

// A parameter of the child, which is in the graph twice; the copies have the value of their time.
fn inside_sub_graphs(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut child = Graph::new(setup.device());
    let n = child.param(5u32);
    let inner = child.launch(mix(0, &x), Range::linear(4)).param("n", &n).id();
    let mut graph = Graph::new(setup.device());
    let first = graph.sub_graph(&child).id();
    n.set(6);
    graph.sub_graph(&child);
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = 1;
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[5, 6]);
        }
        exec.update().param(&n, 7).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[7, 7]);
        }
        exec.update().launch(inner.within(first), mix(8, &x)).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[8, 7]);
        }
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

fn with_alternatives(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let n = graph.param(1u32);
    let node = graph.launch(mix(0, &x), Range::linear(4)).param("n", &n).alternative(add(0, &x)).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        // The parameter stands for the argument of that name of the new kernel.
        exec.update().launch(node, add(10, &x)).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.update().param(&n, 20).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [31; 4]);
        exec.update().launch(node, mix(3, &x)).param(&n, 4).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(31, &[4, 4]); 4]);
    });
}

fn pipelined_submissions_see_their_values(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let buffers = [buffer(setup, &[1; 64]), buffer(setup, &[1; 64])];
    let mut graph = Graph::new(setup.device());
    let (n, to) = (graph.param(0u32), graph.param(&buffers[0]));
    for _ in 0..3 {
        graph.launch(mix(0, &buffers[0]), Range::linear(64)).param("n", &n).param("x", &to);
    }
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut submissions, mut model) = (Vec::new(), [1u32; 2]);
        for value in 0..60u32 {
            let target = value as usize % 3 % 2;
            exec.update().param(&n, value).param(&to, &buffers[target]).apply().await.unwrap();
            submissions.push(exec.submit());
            model[target] = mixed(model[target], &[value; 3]);
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        for (buffer, model) in buffers.iter().zip(model) {
            assert_eq!(buffer.to_vec().await.unwrap(), [model; 64]);
        }
    });
}

// Updates that wait for their turn, of numbers and of memory.
fn around_host_tasks(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let buffers = [buffer(setup, &[1; 4]), buffer(setup, &[1; 4])];
    let mut graph = Graph::new(setup.device());
    let (n, to) = (graph.param(0u32), graph.param(&buffers[0]));
    let range = Range::linear(4);
    let before = graph.launch(mix(0, &buffers[0]), range).param("n", &n).param("x", &to).id();
    let task = graph.host_task((), async |()| tokio::task::yield_now().await).after([before]).id();
    graph.launch(mix(0, &buffers[0]), range).param("n", &n).param("x", &to).after([task]);
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut pending, mut updates, mut model) = (Vec::new(), Vec::new(), [1u32; 2]);
        for value in 0..20u32 {
            let target = value as usize % 2;
            updates.push(exec.update().param(&n, value).param(&to, &buffers[target]).apply());
            pending.push(exec.submit());
            model[target] = mixed(model[target], &[value; 2]);
        }
        for update in updates {
            update.await.unwrap();
        }
        for submission in pending {
            submission.await.unwrap();
        }
        for (buffer, model) in buffers.iter().zip(model) {
            assert_eq!(buffer.to_vec().await.unwrap(), [model; 4]);
        }
    });
}

fn from_a_graph_with_other_values(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let mut graph = Graph::new(setup.device());
    let (n, to) = (graph.param(1u32), graph.param(&x));
    graph.launch(mix(0, &x), Range::linear(4)).param("n", &n).param("x", &to);
    let exec = finalize(&graph);
    n.set(2);
    to.set(&y);
    setup.block_on(async {
        exec.update_from(&graph).await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [1; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[2, 2]); 4]);
        exec.update().param(&n, 3).param(&to, &x).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[3]); 4]);
    });
}

fn in_a_recorded_graph(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let queue = setup.device().queue().unwrap();
    let mut graph = Graph::new(setup.device());
    let recording = graph.record([&queue]).unwrap();
    let first = queue.launch(mix(0, &x), Range::linear(4)).node().unwrap();
    let second = queue.launch(mix(0, &x), Range::linear(4)).node().unwrap();
    drop(recording);
    let (n, to) = (graph.param(1u32), graph.param(&y));
    for node in [first, second] {
        graph.node_mut(node).unwrap().param("n", &n).param("x", &to);
    }
    graph.node_mut(first).unwrap().param("m", &n);
    assert_eq!(graph.take_errors()[0].kind(), ErrorKind::InvalidArgument);
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = [1; 2];
        for (value, target) in [(1, 1), (7, 0), (9, 1)] {
            let update = exec.update().param(&n, value).param(&to, [&x, &y][target]);
            update.apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model[target] = mixed(model[target], &[value, value]);
            }
        }
        assert_eq!(x.to_vec().await.unwrap(), [model[0]; 4]);
        assert_eq!(y.to_vec().await.unwrap(), [model[1]; 4]);
    });
}

// Parameters, a group, a fill and a copy, changed at random, against a model; nothing is waited for
// in between.
fn random_updates(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let range = Range::linear(16);
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let buffers: Vec<_> = (0..3).map(|_| buffer(setup, &[1; 16])).collect();
        let mut graph = Graph::new(setup.device());
        let (n, to) = (graph.param(1u32), graph.param(&buffers[0]));
        let group = graph
            .command_group()
            .launch(mix(1, &buffers[0]), range)
            .param("x", &to)
            .launch(add(0, &buffers[0]), range)
            .param("x", &to)
            .param("n", &n)
            .build();
        // Each after the one before, so that any memory is in order.
        let first = graph.launch(mix(0, &buffers[0]), range).param("n", &n).param("x", &to).id();
        let second = graph.add_group(&group).after([first]).id();
        let fill = graph.fill(&buffers[1], 0).after([second]).id();
        let copy = graph.copy(&buffers[1], &buffers[2]).after([fill]).id();
        let last = graph.launch(add(0, &buffers[0]), range).param("n", &n).after([copy]).id();
        graph.add_group(&group).after([last]);
        let exec = finalize(&graph);
        let (mut number, mut target, mut choice, mut filled, mut copied) = (1, 0, 0, (1, 0), (1, 2));
        let mut model = [1u32; 3];
        setup.block_on(async {
            let (mut updates, mut submissions) = (Vec::new(), Vec::new());
            for _ in 0..40 {
                let mut update = exec.update();
                for _ in 0..random.within(1..=4) {
                    update = match random.below(5) {
                        0 => {
                            number = random.below(1000) as u32;
                            update.param(&n, number)
                        }
                        1 => {
                            target = random.below(3);
                            update.param(&to, &buffers[target])
                        }
                        2 => {
                            choice = random.below(2);
                            update.choose(&group, choice)
                        }
                        3 => {
                            filled = (random.below(3), random.below(100) as u32);
                            update.fill(fill, &buffers[filled.0], filled.1)
                        }
                        _ => {
                            let from = random.below(3);
                            copied = (from, (from + random.within(1..=2)) % 3);
                            update.copy(copy, &buffers[copied.0], &buffers[copied.1])
                        }
                    };
                }
                updates.push(update.apply());
                for _ in 0..random.within(1..=2) {
                    submissions.push(exec.submit());
                    let chosen = |x: u32| if choice == 0 { mixed(x, &[1]) } else { x.wrapping_add(number) };
                    model[target] = chosen(mixed(model[target], &[number]));
                    model[filled.0] = filled.1;
                    model[copied.1] = model[copied.0];
                    model[0] = model[0].wrapping_add(number);
                    model[target] = chosen(model[target]);
                }
            }
            for update in updates {
                update.await.unwrap();
            }
            for submission in submissions {
                submission.await.unwrap();
            }
            for (buffer, value) in buffers.iter().zip(model) {
                assert_eq!(buffer.to_vec().await.unwrap(), [value; 16], "seed {seed}");
            }
        });
    }
}

/// A buffer of the memory of another one, where that has an address.
#[expect(unsafe_code, reason = "vouches for memory of a buffer")]
fn raw(setup: &Setup, of: &Buffer<u32>) -> Option<Buffer<u32>> {
    // SAFETY: the tests keep the buffer and use it only when no submission is in flight.
    Some(unsafe { setup.device().import(of.address()?, of.len(), ()) }.unwrap())
}

fn raw_addresses(setup: &Setup) {
    let commands = setup.device().capabilities().commands;
    if !commands.contains(CommandKinds::USM_COPY | CommandKinds::USM_FILL) || !can_update(setup) {
        return lacks("commands on addresses");
    }
    let [x, y, z] = [(); 3].map(|()| buffer(setup, &[1; 4]));
    let (Some(raw_x), Some(raw_z)) = (raw(setup, &x), raw(setup, &z)) else {
        return lacks("memory with addresses");
    };
    let mut graph = Graph::new(setup.device());
    let p = graph.param(&raw_x);
    let fill = graph.fill(&raw_x, 5).id();
    graph.launch(mix(2, &raw_x), Range::linear(4)).param("x", &p);
    let copy = graph.copy(&raw_x, &y).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [mixed(5, &[2]); 4]);
            assert_eq!(x.to_vec().await.unwrap(), [mixed(5, &[2]); 4]);
        }
        exec.update().fill(fill, &raw_z, 6).param(&p, &raw_z).copy(copy, &raw_z, &y).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            assert_eq!(y.to_vec().await.unwrap(), [mixed(6, &[2]); 4]);
        }
        assert_eq!(x.to_vec().await.unwrap(), [mixed(5, &[2]); 4]);
        // To the host and back.
        assert_eq!(raw_z.slice(1..3).unwrap().to_vec().await.unwrap(), [mixed(6, &[2]); 2]);
        raw_z.write(&[1, 2, 3, 4]).await.unwrap();
        assert_eq!(z.to_vec().await.unwrap(), [1, 2, 3, 4]);
    });
}

fn null_buffers(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (bytes, numbers) = (device.buffer::<u8>(3).unwrap(), device.buffer::<u64>(2).unwrap());
    let (no_bytes, no_numbers) = (device.null_buffer::<u8>(), device.null_buffer::<u64>());
    let out = device.buffer::<u64>(4).unwrap();
    let mut graph = Graph::new(device);
    let p = graph.param(&no_bytes);
    let call = lengths(&no_bytes, 0, &no_numbers, Local::new(4), &out);
    let node = graph.launch(call, Range::linear(1).local([1])).param("bytes", &p).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let runs = async |expected: [u64; 4]| {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                assert_eq!(out.to_vec().await.unwrap(), expected);
            }
        };
        runs([0, 0, 4, 4]).await;
        exec.update().param(&p, &bytes).apply().await.unwrap();
        runs([3, 0, 4, 4]).await;
        let call = lengths(&no_bytes, 0, &numbers, Local::new(4), &out);
        exec.update().launch(node, call).apply().await.unwrap();
        runs([0, 2, 4, 4]).await;
    });
}

#[expect(unsafe_code, reason = "addresses that are refused before they are used")]
fn addresses_that_do_not_fit_are_refused(setup: &Setup) {
    let device = setup.device();
    let (x, invalid, size) = (buffer(setup, &[1; 4]), ErrorKind::InvalidArgument, ErrorKind::InvalidSize);
    for (address, len, kind) in
        [(0, 4, invalid), (2, 4, invalid), (usize::MAX - 3, 4, size), (64, usize::MAX, size)]
    {
        // SAFETY: it is refused.
        let raw = unsafe { device.import::<u32>(address, len, ()) };
        assert_eq!(raw.unwrap_err().kind(), kind, "{address:#x} {len}");
    }
    // SAFETY: there are no elements.
    assert!(unsafe { device.import::<u32>(64, 0, ()) }.unwrap().is_empty());
    let null = device.null_buffer::<u32>();
    assert_eq!((null.len(), null.address()), (0, Some(0)));
    let mut graph = Graph::new(device);
    // The kernel's bound is the length of its shortest slice, and both sides of a copy have one length.
    graph.launch(mix(1, &null), Range::linear(1));
    graph.copy(&null, &x);
    let kinds: Vec<_> = graph.take_errors().iter().map(wakegraph::Error::kind).collect();
    assert_eq!(kinds, [size, size]);
    graph.copy(&null, &null);
    graph.fill(&null, 1);
    graph.finalize().unwrap();
}

fn misuse_is_refused(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let mut other = Graph::new(device);
    let foreign = other.param(1u32);
    let mut graph = Graph::new(device);
    let (n, float, memory) = (graph.param(1u32), graph.param(1.0f32), graph.param(&x));
    let range = Range::linear(4);
    let invalid = ErrorKind::InvalidArgument;
    let refused = |graph: &mut Graph, words: &[&str]| {
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), invalid, "{error}");
        let text = error.to_string();
        assert!(words.iter().chain(&["parameters.rs"]).all(|word| text.contains(word)), "{text}");
        assert_eq!(graph.take_errors().len(), 1);
        graph.finalize().unwrap();
    };
    graph.launch(mix(1, &x), range).name("first").param("m", &n);
    refused(&mut graph, &["'first'", "'mix' has no argument 'm'", "n, x", "declared name"]);
    graph.launch(mix(1, &x), range).param("n", &float);
    refused(&mut graph, &["'n' of kernel 'mix' is of type u32", "holds f32"]);
    graph.launch(mix(1, &x), range).param("n", &memory);
    refused(&mut graph, &["is of type u32", "holds [u32]"]);
    graph.launch(mix(1, &x), range).param("n", &foreign);
    refused(&mut graph, &["belongs to another graph", "`param`"]);
    graph.fill(&x, 1).name("fill").param("n", &n);
    refused(&mut graph, &["only kernels have parameters", "buffer fill"]);
    graph.copy(&x, &y).param("x", &memory);
    refused(&mut graph, &["only kernels have parameters", "buffer copy"]);
    graph.empty().param("n", &n);
    refused(&mut graph, &["only kernels have parameters", "empty"]);
    if !setup.can(Need::Results) {
        return;
    }
    // The nodes are there, without their parameters.
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        assert_eq!(y.to_vec().await.unwrap(), [1; 4]);
    });
}

// Values that no launch can have: the graph is good again with others.
fn values_that_do_not_fit_are_refused(setup: &Setup) {
    let device = setup.device();
    let (x, y, short) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]), buffer(setup, &[1; 3]));
    let mut graph = Graph::new(device);
    let p = graph.param(&x);
    graph.launch(axpy(1, &y, &x), Range::linear(4)).name("first").param("y", &p);
    let refused = |graph: &Graph, kind, words: &[&str]| {
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(words.iter().chain(&["'first'", "parameters.rs"]).all(|word| text.contains(word)), "{text}");
    };
    p.set(&short);
    refused(&graph, ErrorKind::InvalidSize, &["the bound on its range is [3]"]);
    p.set(&y);
    refused(&graph, ErrorKind::InvalidArgument, &["overlapping memory for 'x' and 'y'"]);
    // Another node may be added meanwhile.
    graph.launch(mix(1, &y), Range::linear(4));
    refused(&graph, ErrorKind::InvalidArgument, &["overlapping"]);
    assert!(graph.errors().is_empty());
    p.set(&x);
    graph.finalize().unwrap();
    // A value that does not fit where the parameter is bound is kept as an error.
    p.set(&short);
    graph.launch(mix(1, &x), Range::linear(4)).name("first").param("x", &p);
    assert_eq!(graph.take_errors()[0].kind(), ErrorKind::InvalidSize);
    p.set(&x);
    graph.finalize().unwrap();
    // A scratch buffer of another graph.
    let scratch = Graph::new(device).scratch::<u32>(4).unwrap();
    p.set(&scratch);
    refused(&graph, ErrorKind::InvalidArgument, &["scratch buffer belongs to another graph"]);
    p.set(&x);
    graph.finalize().unwrap();
}

fn updates_that_do_not_fit_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y] = [(); 2].map(|()| buffer(setup, &[1; 4]));
    let short = buffer(setup, &[1; 3]);
    let mut graph = Graph::new(setup.device());
    let (p, unbound) = (graph.param(&x), graph.param(1u32));
    let n = graph.param(1u32);
    graph.launch(mix(0, &x), Range::linear(4)).name("first").param("x", &p).param("n", &n);
    graph.launch(mix(1, &y), Range::linear(4)).name("second");
    let exec = finalize(&graph);
    let foreign = Graph::new(setup.device()).param(1u32);
    let (invalid, size) = (ErrorKind::InvalidArgument, ErrorKind::InvalidSize);
    setup.block_on(async {
        let update = || exec.update().param(&n, 50);
        refused(update().param(&foreign, 2).apply().await, invalid, &["another graph", "parameters.rs"]);
        refused(update().from_params([&foreign]).apply().await, invalid, &["another graph"]);
        refused(update().param(&p, &short).apply().await, size, &["'first'", "bound on its range is [3]"]);
        refused(update().param(&p, &y).apply().await, invalid, &["'first'", "'second'", "no edge"]);
        exec.update().param(&unbound, 2).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        if setup.can(Need::Results) {
            assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
            assert_eq!(y.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
        }
    });
}
