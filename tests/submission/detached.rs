//! Submissions dropped right before their tokio runtime is, with work in flight on devices and in host tasks.
//!
//! Nothing leaks, nothing hangs, and another runtime submits the same executable. What is in flight
//! is known by holding it back, never by a clock.
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::kernel::RawKernel;
use wakegraph::{Buffer, Device, ExecutableGraph, Graph, HostBuffer, Range, write};

use crate::support::{Hold, Tracker, block_on};

wakegraph::kernel! {
    fn add_one(x: &mut [u32]) { host: |_, x| x.iter_mut().for_each(|x| *x += 1) }
}

fn devices() -> [Device; 2] {
    [false, true]
        .map(|polled| Device::from_hal(host::open(HostOptions::new().threads(2).polled(polled)).unwrap()))
}

const RUNTIMES: [fn() -> Runtime; 2] = [
    || Builder::new_current_thread().build().unwrap(),
    || Builder::new_multi_thread().worker_threads(2).build().unwrap(),
];

/// held kernel -> host task, which waits for a permit -> kernel; beside them a blocking host task,
/// which is held, and a held kernel on another device.
struct Pipeline {
    exec: ExecutableGraph,
    x: Buffer<u32>,
    host: HostBuffer<u32>,
    /// Holds back the first kernel, the one beside, and the blocking host task.
    first: Hold,
    beside: Hold,
    blocking: Hold,
    permits: Arc<Semaphore>,
    started: Arc<AtomicUsize>,
    tracker: Tracker,
}

impl Pipeline {
    fn new(device: &Device) -> Self {
        let (first, beside, blocking) = (Hold::new(), Hold::new(), Hold::new());
        let tracker = Tracker::new();
        let permits = Arc::new(Semaphore::new(0));
        let started = Arc::new(AtomicUsize::new(0));
        let (x, host) = (device.buffer::<u32>(4).unwrap(), device.host_buffer::<u32>(4).unwrap());
        let held = |hold: &Hold| {
            let (held, token) = (hold.held(), tracker.token());
            RawKernel::new("held").host(move |_, _| {
                let _ = &token;
                held.pass();
                Ok(())
            })
        };
        let [other, _] = devices();
        let mut graph = Graph::new(device);
        let before = graph.launch(held(&first).call(), Range::linear(1)).id();
        let (waiting, count, token) = (permits.clone(), started.clone(), tracker.token());
        let task = graph.host_task((write(&host),), async move |(mut host,)| {
            let _token = token;
            count.fetch_add(1, Ordering::SeqCst);
            waiting.acquire().await.unwrap().forget();
            host[0] += 1;
        });
        let task = task.after([before]).id();
        graph.launch(add_one(&x), Range::linear(4)).after([task]);
        graph.launch(held(&beside).call(), Range::linear(1)).on(&other);
        let (held, token) = (blocking.held(), tracker.token());
        graph.host_task_blocking((), move |()| {
            let _token = token;
            held.pass();
        });
        let exec = graph.finalize().unwrap();
        Self { exec, x, host, first, beside, blocking, permits, started, tracker }
    }

    fn open(&self) {
        [&self.first, &self.beside, &self.blocking].into_iter().for_each(Hold::open);
    }

    /// A new runtime runs the same executable from start to end, after whatever is still in flight.
    fn goes_on(&self, runtime: fn() -> Runtime) {
        self.open();
        self.permits.add_permits(1);
        let before = block_on(self.host.read())[0];
        let x = block_on(self.x.to_vec()).unwrap()[0];
        runtime().block_on(async { self.exec.submit().await }).unwrap();
        assert_eq!(block_on(self.host.read())[0], before + 1);
        assert_eq!(block_on(self.x.to_vec()).unwrap(), [x + 1; 4]);
    }

    /// Drops everything; ends when nothing is alive any more.
    fn wait_until_freed(self) {
        let Self { exec, x, host, tracker, .. } = self;
        drop((exec, x, host));
        tracker.wait_until_freed();
    }
}

/// Runs the tasks of the runtime until a condition holds.
fn drive(runtime: &Runtime, until: impl Fn() -> bool) {
    runtime.block_on(async {
        while !until() {
            tokio::task::yield_now().await;
        }
    });
}

fn with_each(test: impl Fn(Pipeline, Runtime, fn() -> Runtime)) {
    for (doomed, next) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        for device in devices() {
            test(Pipeline::new(&device), RUNTIMES[doomed](), RUNTIMES[next]);
        }
    }
}

/// Lets the blocking task go while the runtime is dropped, which waits for it.
fn shut_down(pipeline: &Pipeline, doomed: Runtime) {
    pipeline.blocking.open();
    drop(doomed);
}

#[test]
fn while_the_device_works() {
    with_each(|pipeline, doomed, next| {
        doomed.block_on(async {
            for _ in 0..5 {
                drop(pipeline.exec.submit());
            }
        });
        pipeline.first.wait_for(1);
        pipeline.beside.wait_for(1);
        shut_down(&pipeline, doomed);
        pipeline.goes_on(next);
        assert_eq!(pipeline.started.load(Ordering::SeqCst), 1, "no host task of the dropped ones started");
        pipeline.wait_until_freed();
    });
}

#[test]
fn while_host_tasks_run() {
    with_each(|pipeline, doomed, next| {
        doomed.block_on(async {
            for _ in 0..5 {
                drop(pipeline.exec.submit());
            }
        });
        pipeline.first.open();
        let both = || pipeline.started.load(Ordering::SeqCst) == 1 && pipeline.blocking.arrived() == 1;
        drive(&doomed, both);
        pipeline.beside.wait_for(1);
        shut_down(&pipeline, doomed);
        pipeline.goes_on(next);
        pipeline.wait_until_freed();
    });
}

#[test]
fn shut_down_in_the_background() {
    with_each(|pipeline, doomed, next| {
        doomed.block_on(async { drop(pipeline.exec.submit()) });
        drive(&doomed, || pipeline.blocking.arrived() == 1);
        // The blocking task is still running, and ends after the runtime.
        doomed.shutdown_background();
        pipeline.goes_on(next);
        pipeline.wait_until_freed();
    });
}

#[test]
fn executables_dropped_with_the_runtime() {
    with_each(|pipeline, doomed, _| {
        doomed.block_on(async { drop(pipeline.exec.submit()) });
        pipeline.first.wait_for(1);
        shut_down(&pipeline, doomed);
        let Pipeline { exec, x, host, first, beside, tracker, .. } = pipeline;
        drop((exec, x, host));
        assert!(tracker.alive() > 0, "the device still works on it");
        first.open();
        beside.open();
        tracker.wait_until_freed();
    });
}

#[test]
fn at_every_moment_of_a_run() {
    for device in devices() {
        for runtime in RUNTIMES {
            let pipeline = Pipeline::new(&device);
            pipeline.open();
            for yields in 0..40 {
                let doomed = runtime();
                pipeline.permits.add_permits(1);
                doomed.block_on(async {
                    drop(pipeline.exec.submit());
                    for _ in 0..yields {
                        tokio::task::yield_now().await;
                    }
                });
                drop(doomed);
            }
            pipeline.goes_on(runtime);
            pipeline.wait_until_freed();
        }
    }
}
