//! Many short executables in flight, each submitted again by its task as soon as it is over:
//! devices may launch them together.

use std::sync::Arc;

use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use wakegraph::{Buffer, Device, ExecutableGraph, FinalizeOptions, Graph, Range, WakePolicy};

use crate::kernels::add;
use crate::suite::{Need, Setup, tests};

tests!("graph/many_in_flight": &[Need::Results] => [each_runs_as_often_as_submitted, some_are_submitted_twice_at_a_time,
    others_come_after_them, updates_come_in_between, what_shares_no_memory_passes_a_held_run]);

const TASKS: u32 = 48;
const ROUNDS: u32 = 60;

fn counter(device: &Device, options: FinalizeOptions) -> (ExecutableGraph, Buffer<u32>) {
    let x = device.buffer_from(&[0u32; 4]).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add(1, &x), Range::linear(4));
    (graph.finalize_with(options).unwrap(), x)
}

/// In a task for each, on one thread and on several, by each policy; and how often each ran.
fn many<F>(setup: &Setup, options: FinalizeOptions, runs: u32, work: impl Fn(u32, ExecutableGraph) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let device = setup.device();
    let before = device.wake_policy();
    for policy in [WakePolicy::Balanced, WakePolicy::Latency, WakePolicy::Efficient] {
        device.set_wake_policy(policy);
        for mut builder in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let counters: Vec<_> = (0..TASKS).map(|_| counter(device, options.clone())).collect();
            builder.worker_threads(2).enable_all().build().unwrap().block_on(async {
                let tasks =
                    (0..).zip(&counters).map(|(task, (exec, _))| tokio::spawn(work(task, exec.clone())));
                for task in tasks.collect::<Vec<_>>() {
                    task.await.unwrap();
                }
                for (_, x) in &counters {
                    assert_eq!(x.to_vec().await.unwrap(), [runs; 4], "{policy:?}");
                }
            });
        }
    }
    device.set_wake_policy(before);
}

fn each_runs_as_often_as_submitted(setup: &Setup) {
    many(setup, FinalizeOptions::new(), ROUNDS, |_, exec| async move {
        for _ in 0..ROUNDS {
            exec.submit().await.unwrap();
        }
    });
}

fn some_are_submitted_twice_at_a_time(setup: &Setup) {
    many(setup, FinalizeOptions::new(), 2 * ROUNDS, |task, exec| async move {
        for round in 0..ROUNDS {
            let first = exec.submit();
            match (task + round) % 3 {
                0 => drop(first),
                _ => first.await.unwrap(),
            }
            exec.submit().await.unwrap();
        }
    });
}

fn others_come_after_them(setup: &Setup) {
    let device = setup.device();
    // One of the runs has another executable count, and a third copy the count, each after the one before.
    let (exec, x) = counter(device, FinalizeOptions::new());
    let y = device.buffer_from(&[0u32; 4]).unwrap();
    let mut graph = Graph::new(device);
    graph.copy(&x, &y);
    let copied = Arc::new((graph.finalize().unwrap(), y, exec));
    many(setup, FinalizeOptions::new(), ROUNDS, |task, exec| {
        let copied = copied.clone();
        async move {
            let (copy, y, counted) = &*copied;
            for _ in 0..ROUNDS {
                let submission = exec.submit();
                if task == 0 {
                    let before = y.to_vec().await.unwrap()[0];
                    let count = counted.prepare().after(&submission).submit();
                    copy.prepare().after(&count).submit().await.unwrap();
                    assert_eq!(y.to_vec().await.unwrap(), [before + 1; 4]);
                }
                submission.await.unwrap();
            }
        }
    });
}

fn updates_come_in_between(setup: &Setup) {
    if setup.hal().capabilities().update.is_empty() {
        return crate::suite::lacks("updates");
    }
    let device = setup.device();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let options = FinalizeOptions::new().updatable(true);
    runtime.block_on(async {
        let tasks = (0..TASKS).map(|task| {
            let x = device.buffer_from(&[0u32; 4]).unwrap();
            let mut graph = Graph::new(device);
            let node = graph.launch(add(1, &x), Range::linear(4)).id();
            let exec = graph.finalize_with(options.clone()).unwrap();
            tokio::spawn(async move {
                let mut sum = 0;
                for round in 0..ROUNDS {
                    let first = exec.submit();
                    let n = round + task;
                    let applied = exec.update().launch(node, add(n, &x)).apply();
                    let second = exec.submit();
                    exec.update().launch(node, add(1, &x)).apply().await.unwrap();
                    applied.await.unwrap();
                    first.await.unwrap();
                    second.await.unwrap();
                    sum += 1 + n;
                }
                assert_eq!(x.to_vec().await.unwrap(), [sum; 4]);
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
}

fn what_shares_no_memory_passes_a_held_run(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer_from(&[0u32; 4]).unwrap();
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let mut graph = Graph::new(device);
    let before = graph.launch(add(1, &x), Range::linear(4)).id();
    let hold =
        graph.host_task((), async move |()| held.acquire().await.map(|one| one.forget())).after([before]);
    let hold = hold.id();
    graph.launch(add(1, &x), Range::linear(4)).after([hold]);
    let first = graph.finalize().unwrap();
    let (second, y) = counter(device, FinalizeOptions::new());
    setup.block_on(async {
        for round in 1..=5 {
            let run = first.submit();
            second.submit().await.unwrap();
            assert!(!run.is_finished());
            release.add_permits(1);
            run.await.unwrap();
            assert_eq!(x.to_vec().await.unwrap(), [2 * round; 4]);
            assert_eq!(y.to_vec().await.unwrap(), [round; 4]);
        }
    });
}
