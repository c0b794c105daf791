//! Dynamic command groups: alternatives that updates choose from, on every device.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use wakegraph::update::CommandGroup;
use wakegraph::{Buffer, ErrorKind, Graph, Range, read, write};

use super::updates::{can_update, finalize, mixed, refused};
use crate::kernels::{add, axpy, fold, mix};
use crate::suite::{Need, Setup, tests};

tests!("graph/command_groups":
    &[Need::Results] => [the_graph_sees_a_choice_at_once, an_executable_sees_it_after_an_update,
        nodes_share_a_group, ranges_stay_with_their_alternative, kernels_with_other_arguments,
        parameters_reach_all_alternatives, host_tasks, inside_sub_graphs, between_submissions_that_wait,
        from_a_graph_with_another_choice, from_a_graph_with_a_group_of_its_own],
    &[] => [misuse_is_refused, wrong_choices_are_refused]);

fn buffer(setup: &Setup, numbers: &[u32]) -> Buffer<u32> {
    setup.device().buffer_from(numbers).unwrap()
}

/// x = 31 * x + 1, or x + 10.
fn mix_or_add(graph: &mut Graph, x: &Buffer<u32>) -> CommandGroup {
    let range = Range::linear(x.len());
    graph.command_group().launch(mix(1, x), range).launch(add(10, x), range).build()
}

fn the_graph_sees_a_choice_at_once(setup: &Setup) {
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    graph.add_group(&group);
    let mixes = graph.finalize().unwrap();
    group.choose(1).unwrap();
    assert_eq!((group.chosen(), group.len()), (1, 2));
    let adds = graph.finalize().unwrap();
    graph.add_group(&group);
    let twice = graph.finalize().unwrap();
    setup.block_on(async {
        for exec in [&mixes, &adds, &twice, &mixes, &adds] {
            exec.submit().await.unwrap();
        }
        let model = mixed(mixed(1, &[1]) + 30, &[1]) + 10;
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

fn an_executable_sees_it_after_an_update(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    graph.add_group(&group);
    let (exec, other) = (finalize(&graph), finalize(&graph));
    setup.block_on(async {
        let mut model = 1;
        for choice in [1, 0, 0, 1, 1] {
            exec.update().choose(&group, choice).apply().await.unwrap();
            assert_eq!(group.chosen(), 0, "the graph's choice stays");
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = if choice == 0 { mixed(model, &[1]) } else { model + 10 };
            }
            assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
        }
        other.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(model, &[1]); 4]);
    });
}

// Two nodes with the group, one of their own kernel between them.
fn nodes_share_a_group(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    graph.add_group(&group);
    graph.launch(mix(5, &x), Range::linear(4));
    let last = graph.add_group(&group).name("last").id();
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let mut model = mixed(1, &[1, 5, 1]);
        exec.update().choose(&group, 1).enabled(last, false).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model + 10, &[5]);
        }
        exec.update().enabled(last, true).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model + 10, &[5]) + 10;
        }
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

fn ranges_stay_with_their_alternative(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[0; 4]);
    let mut graph = Graph::new(setup.device());
    let group = graph
        .command_group()
        .launch(add(1, &x), Range::linear(4))
        .launch(add(100, &x), Range::linear(3))
        .build();
    let node = graph.add_group(&group).id();
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = [0; 4];
        let mut run = async |n: u32, len: usize| {
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model[..len].iter_mut().for_each(|x| *x += n);
            }
            assert_eq!(x.to_vec().await.unwrap(), model);
        };
        exec.update().range(node, Range::linear(2)).apply().await.unwrap();
        run(1, 2).await;
        exec.update().choose(&group, 1).apply().await.unwrap();
        run(100, 3).await;
        exec.update().choose(&group, 0).apply().await.unwrap();
        run(1, 2).await;
        // Chosen and changed by one update; arguments stay as well.
        exec.update()
            .choose(&group, 1)
            .launch(node, add(7, &x))
            .range(node, Range::linear(1))
            .choose(&group, 0)
            .range(node, Range::linear(4))
            .apply()
            .await
            .unwrap();
        run(1, 4).await;
        exec.update().choose(&group, 1).apply().await.unwrap();
        run(7, 1).await;
    });
}

// As many accesses, in another order, and more arguments.
fn kernels_with_other_arguments(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[2; 4]), buffer(setup, &[1; 4]));
    let mut graph = Graph::new(setup.device());
    let group = graph
        .command_group()
        .launch(axpy(3, &x, &y), Range::linear(4))
        .launch(fold(&x, &y), Range::linear(1))
        .build();
    graph.add_group(&group);
    graph.launch(add(1, &y), Range::linear(4));
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = 1;
        for choice in [0, 1, 0] {
            exec.update().choose(&group, choice).apply().await.unwrap();
            for _ in 0..2 {
                exec.submit().await.unwrap();
                model = if choice == 0 { model + 6 } else { mixed(model, &[8]) } + 1;
            }
            assert_eq!(y.to_vec().await.unwrap(), [model; 4]);
        }
    });
}

fn parameters_reach_all_alternatives(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let range = Range::linear(4);
    let mut graph = Graph::new(setup.device());
    let (n, to) = (graph.param(1u32), graph.param(&x));
    let group = graph
        .command_group()
        .launch(mix(0, &x), range)
        .param("n", &n)
        .param("x", &to)
        .launch(add(0, &x), range)
        .param("x", &to)
        .param("n", &n)
        .build();
    graph.add_group(&group);
    let exec = finalize(&graph);
    n.set(50);
    let of_graph = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.update().param(&n, 2).param(&to, &y).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.update().choose(&group, 1).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.update().param(&n, 3).apply().await.unwrap();
        exec.submit().await.unwrap();
        exec.update().choose(&group, 0).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1]); 4]);
        assert_eq!(y.to_vec().await.unwrap(), [mixed(mixed(1, &[2]) + 5, &[3]); 4]);
        of_graph.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 50]); 4]);
    });
}

fn host_tasks(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let device = setup.device();
    let (x, host) = (buffer(setup, &[3; 2]), device.host_buffer::<u32>(2).unwrap());
    let seen = Arc::new(AtomicU32::new(0));
    let tell = |factor: u32| {
        let seen = seen.clone();
        async move |(host,): (wakegraph::HostRef<u32>,)| {
            tokio::task::yield_now().await;
            seen.store(factor * host[0], Ordering::SeqCst);
        }
    };
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(2));
    graph.copy(&x, &host);
    let group =
        graph.command_group().host_task((read(&host),), tell(1)).host_task((read(&host),), tell(100)).build();
    graph.add_group(&group).name("tell");
    let exec = finalize(&graph);
    group.choose(1).unwrap();
    let other = graph.finalize().unwrap();
    setup.block_on(async {
        for (n, choice) in [0, 1, 0].into_iter().enumerate() {
            exec.update().choose(&group, choice).apply().await.unwrap();
            for round in 1..=2 {
                exec.submit().await.unwrap();
                let value = 3 + 2 * n as u32 + round;
                assert_eq!(seen.load(Ordering::SeqCst), [1, 100][choice] * value);
            }
        }
        other.submit().await.unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 1000);
    });
}

fn inside_sub_graphs(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut child = Graph::new(setup.device());
    let group = mix_or_add(&mut child, &x);
    child.add_group(&group);
    let mut graph = Graph::new(setup.device());
    graph.sub_graph(&child);
    group.choose(1).unwrap();
    graph.sub_graph(&child);
    let exec = finalize(&graph);
    setup.block_on(async {
        exec.submit().await.unwrap();
        let mut model = mixed(1, &[1]) + 10;
        exec.update().choose(&group, 0).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
            model = mixed(model, &[1, 1]);
        }
        exec.update().choose(&group, 1).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [model + 20; 4]);
    });
}

// Choices that wait for their turn behind host tasks.
fn between_submissions_that_wait(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    let first = graph.add_group(&group).id();
    let task = graph.host_task((), async |()| tokio::task::yield_now().await).after([first]).id();
    graph.add_group(&group).after([task]);
    let exec = finalize(&graph);
    setup.block_on(async {
        let (mut updates, mut submissions, mut model) = (Vec::new(), Vec::new(), 1u32);
        for round in 0..20 {
            let choice = round % 3 % 2;
            updates.push(exec.update().choose(&group, choice).apply());
            submissions.push(exec.submit());
            model = if choice == 0 { mixed(model, &[1, 1]) } else { model.wrapping_add(20) };
        }
        for update in updates {
            update.await.unwrap();
        }
        for submission in submissions {
            submission.await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [model; 4]);
    });
}

fn from_a_graph_with_another_choice(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    graph.add_group(&group);
    let exec = finalize(&graph);
    group.choose(1).unwrap();
    setup.block_on(async {
        exec.update_from(&graph).await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        exec.update().choose(&group, 0).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [mixed(21, &[1, 1]); 4]);
    });
}

// The executable runs what the other graph has chosen, and its own group chooses among the other's
// alternatives.
fn from_a_graph_with_a_group_of_its_own(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let [x, y] = [(); 2].map(|()| buffer(setup, &[1; 4]));
    let build = |x: &Buffer<u32>, choice| {
        let mut graph = Graph::new(setup.device());
        let n = graph.param(10u32);
        let range = Range::linear(4);
        let group = graph.command_group().launch(mix(1, x), range).launch(add(0, x), range);
        let group = group.param("n", &n).build();
        group.choose(choice).unwrap();
        graph.add_group(&group);
        (graph, group, n)
    };
    let (graph, group, n) = build(&x, 0);
    let exec = finalize(&graph);
    setup.block_on(async {
        let mut model = 1;
        for (of_other, chosen) in [(1, 0), (1, 1), (0, 1), (0, 0)] {
            exec.update_from(&build(&y, of_other).0).await.unwrap();
            for choice in [of_other, chosen] {
                exec.submit().await.unwrap();
                model = if choice == 0 { mixed(model, &[1]) } else { model + 10 };
                exec.update().choose(&group, chosen).apply().await.unwrap();
            }
        }
        // The parameter is still the one of the graph that was finalized.
        exec.update().choose(&group, 1).param(&n, 500).apply().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(y.to_vec().await.unwrap(), [model + 500; 4]);
        assert_eq!(x.to_vec().await.unwrap(), [1; 4]);
    });
}

fn misuse_is_refused(setup: &Setup) {
    let device = setup.device();
    let (x, y) = (buffer(setup, &[1; 4]), buffer(setup, &[1; 4]));
    let host = device.host_buffer::<u32>(4).unwrap();
    let (range, invalid) = (Range::linear(4), ErrorKind::InvalidArgument);
    let mut graph = Graph::new(device);
    let refused = |graph: &mut Graph, kind, words: &[&str]| {
        let error = graph.finalize().unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.to_string();
        assert!(words.iter().chain(&["command_groups.rs"]).all(|word| text.contains(word)), "{text}");
        assert!(!graph.take_errors().is_empty());
        graph.finalize().unwrap();
    };
    let none = graph.command_group().build();
    assert!(none.is_empty());
    refused(&mut graph, invalid, &["no alternatives"]);
    graph.add_group(&none);
    refused(&mut graph, invalid, &["the command group was refused"]);
    assert_eq!(none.choose(0).unwrap_err().kind(), invalid);
    graph.command_group().launch(mix(1, &x), range).host_task((), async |()| {}).build();
    refused(&mut graph, invalid, &["differ in kind", "kernel first", "host task as number 1"]);
    graph.command_group().launch(mix(1, &x), range).launch(mix(1, &y), range).build();
    refused(&mut graph, invalid, &["differ in their dependencies", "number 1", "dynamic parameter"]);
    graph.command_group().launch(axpy(1, &x, &y), range).launch(axpy(1, &y, &x), range).build();
    refused(&mut graph, invalid, &["differ in their dependencies", "in another way"]);
    let tasks = graph.command_group().host_task((read(&host),), async |_| {});
    tasks.host_task((write(&host),), async |_| {}).build();
    refused(&mut graph, invalid, &["differ in their dependencies"]);
    graph.command_group().launch(mix(1, &x), range).launch(mix(1, &x), Range::new([2, 1])).build();
    refused(&mut graph, invalid, &["differ in dimensions"]);
    // What a launch is refused for.
    graph.command_group().launch(mix(1, &x), range).launch(mix(1, &x), Range::linear(5)).build();
    refused(&mut graph, ErrorKind::InvalidSize, &["bound on its range is [4]"]);
    graph.command_group().launch(mix(1, &x), Range::linear(4).local([3])).build();
    refused(&mut graph, ErrorKind::InvalidSize, &[]);
    let mut other = Graph::new(device);
    let (foreign, foreign_n) = (mix_or_add(&mut other, &x), other.param(1u32));
    graph.add_group(&foreign);
    refused(&mut graph, invalid, &["the command group belongs to another graph"]);
    graph.command_group().launch(mix(1, &x), range).param("n", &foreign_n).build();
    refused(&mut graph, invalid, &["the dynamic parameter belongs to another graph"]);
    graph.command_group().host_task((), async |()| {}).param("n", &foreign_n).build();
    refused(&mut graph, invalid, &["only kernels have parameters"]);
    let (group, n) = (mix_or_add(&mut graph, &x), graph.param(1u32));
    graph.add_group(&group).param("n", &n);
    refused(&mut graph, invalid, &["bind the parameter to its alternatives"]);
    assert_eq!(group.choose(2).unwrap_err().kind(), invalid);
    assert_eq!(group.chosen(), 0);
    if !setup.can(Need::Results) {
        return;
    }
    let exec = graph.finalize().unwrap();
    setup.block_on(async {
        exec.submit().await.unwrap();
        exec.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
    });
}

fn wrong_choices_are_refused(setup: &Setup) {
    if !can_update(setup) {
        return;
    }
    let x = buffer(setup, &[1; 4]);
    let mut graph = Graph::new(setup.device());
    let group = mix_or_add(&mut graph, &x);
    let node = graph.add_group(&group).name("target").id();
    let unused = mix_or_add(&mut graph, &x);
    let exec = finalize(&graph);
    let mut other = Graph::new(setup.device());
    let foreign = mix_or_add(&mut other, &x);
    let invalid = ErrorKind::InvalidArgument;
    setup.block_on(async {
        let update = || exec.update().enabled(node, false);
        refused(update().choose(&group, 2).apply().await, invalid, &["alternative 2", "has 2"]);
        refused(update().choose(&foreign, 1).apply().await, invalid, &["another graph"]);
        let two = Range::new([2, 2]);
        refused(update().choose(&group, 1).range(node, two).apply().await, invalid, &["'target'"]);
        let long = Range::linear(5);
        let refusal = update().choose(&group, 1).range(node, long).apply().await;
        refused(refusal, ErrorKind::InvalidSize, &["'target'", "'add'"]);
        exec.update().choose(&unused, 1).apply().await.unwrap();
        for _ in 0..2 {
            exec.submit().await.unwrap();
        }
        if setup.can(Need::Results) {
            assert_eq!(x.to_vec().await.unwrap(), [mixed(1, &[1, 1]); 4]);
        }
    });
}
