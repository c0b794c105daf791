//! Devices whose reactor is a task of a tokio runtime, see `Device::run_reactor_on`. Completions are
//! noticed whatever happens to that runtime.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use proptest::prelude::RngExt;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::testing::{FakeControl, FakeDevice, FakeOptions, FakeTiming};
use wakegraph::{Buffer, Device, ErrorKind, ExecutableGraph, Graph, Range, WakePolicy};

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) { host: |_, x| x.iter_mut().for_each(|x| *x += 1) }
}

fn runtimes() -> [Runtime; 2] {
    [Builder::new_current_thread(), Builder::new_multi_thread()]
        .map(|mut builder| builder.worker_threads(2).enable_time().build().unwrap())
}

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_time().build().unwrap()
}

fn polled() -> Device {
    Device::from_hal(host::open(HostOptions::new().threads(2).polled(true)).unwrap())
}

fn manual() -> (Device, FakeControl) {
    let (device, control) = FakeDevice::open(FakeOptions::new().manual(true).notifies(false));
    let device = Device::from_hal(device);
    device.set_wake_policy(WakePolicy::Efficient);
    (device, control)
}

fn adding(device: &Device) -> (ExecutableGraph, Buffer<u32>) {
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(add_one(&x), Range::linear(4));
    (graph.finalize().unwrap(), x)
}

fn filling(device: &Device) -> ExecutableGraph {
    let x = device.buffer::<u32>(4).unwrap();
    let mut graph = Graph::new(device);
    graph.fill(&x, 1);
    graph.finalize().unwrap()
}

/// Submits, lets the device complete that, and waits until the end is noticed: with this policy
/// not the submission itself.
async fn one(exec: &ExecutableGraph, control: &FakeControl) {
    let submission = exec.submit();
    while control.complete_all() == 0 {
        yield_now().await;
    }
    submission.await.unwrap();
}

/// Waits until all tasks of a runtime have ended.
async fn no_task(runtime: &Runtime) {
    while runtime.metrics().num_alive_tasks() > 0 {
        yield_now().await;
    }
}

#[test]
fn everything_awaited_there_is_seen_finished() {
    for runtime in runtimes() {
        let device = polled();
        device.run_reactor_on(runtime.handle()).unwrap();
        let all: Vec<_> = (0..20).map(|_| adding(&device)).collect();
        runtime.block_on(async {
            let run = |exec: ExecutableGraph| async move {
                for _ in 0..50 {
                    exec.submit().await.unwrap();
                }
            };
            let tasks: Vec<_> = all.iter().map(|(exec, _)| tokio::spawn(run(exec.clone()))).collect();
            for task in tasks {
                task.await.unwrap();
            }
            for (_, x) in &all {
                assert_eq!(x.to_vec().await.unwrap(), [50; 4]);
            }
        });
    }
}

#[test]
fn submissions_awaited_on_other_runtimes_finish_too() {
    let (home, away) =
        (Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap(), current_thread());
    let device = polled();
    device.run_reactor_on(home.handle()).unwrap();
    let (exec, x) = adding(&device);
    away.block_on(async {
        for _ in 0..50 {
            exec.submit().await.unwrap();
        }
        assert_eq!(x.to_vec().await.unwrap(), [50; 4]);
    });
}

#[test]
fn the_thread_polls_while_the_runtime_is_idle() {
    let (home, away) = (current_thread(), current_thread());
    let (device, control) = manual();
    device.run_reactor_on(home.handle()).unwrap();
    let exec = filling(&device);
    home.block_on(one(&exec, &control));
    // The task is not polled from here on.
    away.block_on(one(&exec, &control));
    away.block_on(one(&exec, &control));
    home.block_on(one(&exec, &control));
    away.block_on(one(&exec, &control));
}

#[test]
fn the_thread_polls_after_the_runtime_shut_down() {
    for home in runtimes() {
        let (away, (device, control)) = (current_thread(), manual());
        device.run_reactor_on(home.handle()).unwrap();
        let exec = filling(&device);
        home.block_on(one(&exec, &control));
        let detached = exec.submit();
        drop(home);
        away.block_on(one(&exec, &control));
        away.block_on(detached).unwrap();
        // Nothing comes of a runtime that is gone already.
        let gone = current_thread();
        let handle = gone.handle().clone();
        drop(gone);
        let _ = device.run_reactor_on(&handle);
        away.block_on(one(&exec, &control));
    }
}

#[test]
fn the_last_runtime_counts_and_the_task_of_the_one_before_ends() {
    let [first, second] = runtimes();
    let (device, control) = manual();
    let exec = filling(&device);
    for _ in 0..3 {
        for (now, before) in [(&first, &second), (&second, &first)] {
            device.run_reactor_on(now.handle()).unwrap();
            before.block_on(no_task(before));
            now.block_on(one(&exec, &control));
            before.block_on(one(&exec, &control));
        }
    }
}

#[test]
fn its_task_ends_with_the_device() {
    for runtime in runtimes() {
        let (device, control) = manual();
        device.run_reactor_on(runtime.handle()).unwrap();
        let exec = filling(&device);
        runtime.block_on(one(&exec, &control));
        assert_eq!(runtime.metrics().num_alive_tasks(), 1);
        let last = exec.submit();
        drop((exec, device));
        // What is in flight keeps the device.
        runtime.block_on(async {
            control.complete_all();
            last.await.unwrap();
            no_task(&runtime).await;
        });
    }
}

#[test]
fn a_lost_device_and_a_failure_are_seen_there() {
    let runtime = current_thread();
    let (device, control) = manual();
    device.run_reactor_on(runtime.handle()).unwrap();
    let execs = [filling(&device), filling(&device)];
    runtime.block_on(async {
        let submissions = execs.each_ref().map(ExecutableGraph::submit);
        control.lose_device();
        for submission in submissions {
            assert_eq!(submission.await.unwrap_err().kind(), ErrorKind::DeviceLost);
        }
    });
}

#[test]
fn a_runtime_without_timers_is_refused() {
    let without = Builder::new_current_thread().build().unwrap();
    let (device, control) = manual();
    let error = device.run_reactor_on(without.handle()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("timers"), "{error}");
    without.block_on(one(&filling(&device), &control));
}

#[test]
fn a_device_that_notifies_needs_no_reactor() {
    let runtime = current_thread();
    let device = Device::open("host").unwrap();
    device.run_reactor_on(runtime.handle()).unwrap();
    assert_eq!(runtime.metrics().num_alive_tasks(), 0);
}

/// Threads submit while the reactor moves from runtime to runtime, and runtimes come and go. Returns how
/// often each executable has run.
fn submit_while_it_moves(device: &Device, execs: &[ExecutableGraph], moves: usize) -> Vec<u32> {
    const SEED: [u8; 32] = *b"while the reactor moves about ..";
    println!("seed: {SEED:?}");
    let mut random = TestRng::from_seed(RngAlgorithm::ChaCha, &SEED);
    let over = &AtomicBool::new(false);
    let submit = |exec: &ExecutableGraph| {
        let (runtime, mut count) = (current_thread(), 0);
        while !over.load(Ordering::Relaxed) {
            runtime.block_on(exec.submit()).unwrap();
            count += 1;
        }
        count
    };
    thread::scope(|scope| {
        let submitting: Vec<_> = execs.iter().map(|exec| scope.spawn(move || submit(exec))).collect();
        let mut homes = runtimes();
        for _ in 0..moves {
            let which = random.random_range(0..2);
            match random.random_range(0..4) {
                0 => homes[which] = runtimes().into_iter().nth(which).unwrap(),
                1 => homes[which].block_on(yield_now()),
                2 => homes[which].block_on(execs[0].submit()).unwrap(),
                _ => device.run_reactor_on(homes[which].handle()).unwrap(),
            }
        }
        over.store(true, Ordering::Relaxed);
        submitting.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn nothing_is_missed_while_it_moves() {
    let device = polled();
    let (execs, buffers): (Vec<_>, Vec<_>) = (0..3).map(|_| adding(&device)).unzip();
    let counts = submit_while_it_moves(&device, &execs, 300);
    for (count, x) in counts.into_iter().zip(&buffers) {
        let x = current_thread().block_on(x.to_vec()).unwrap();
        assert!(x[0] >= count && x.iter().all(|value| *value == x[0]), "{x:?} {count}");
    }
}

/// The task takes turns for work that takes so long, and the thread where it does not.
#[test]
fn no_end_of_long_work_is_missed_while_it_moves() {
    let (nothing, work) = (Duration::ZERO, Duration::from_millis(12));
    let timing = FakeTiming { work, enqueue: nothing, pending_status: nothing, final_status: nothing };
    let device = Device::from_hal(FakeDevice::open(FakeOptions::new().timing(timing)).0);
    let execs: Vec<_> = (0..3).map(|_| filling(&device)).collect();
    submit_while_it_moves(&device, &execs, 40);
}
