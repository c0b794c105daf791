//! Executors of others inside a tokio runtime: each blocks the worker of tokio's that it runs on
//! until its future is done.

use std::future::poll_fn;
use std::pin::pin;
use std::thread;

use futures::future::{join_all, select};
use tokio::runtime::Runtime;
use wakegraph::testing::{FakeDevice, FakeOptions};
use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range};

use crate::common::{Count, current_thread, device, manual, multi_thread, polled_device};
use crate::support::{block_on, must_end};

/// More than the operations that tokio grants a task before it has to give way: the blocked worker
/// grants no new ones.
const MANY: usize = 300;

/// Runs a test as the root future of each kind of runtime, and in a task of it.
fn on_every_worker(test: fn()) {
    must_end(move || {
        for runtime in [current_thread as fn() -> Runtime, multi_thread] {
            runtime().block_on(async { test() });
            runtime().block_on(async { tokio::spawn(async move { test() }).await.unwrap() });
        }
    });
}

fn filling(device: &Device) -> ExecutableGraph {
    let mut graph = Graph::new(device);
    graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
    graph.finalize().unwrap()
}

#[test]
fn many_submissions_that_are_done_at_once_resolve() {
    on_every_worker(|| {
        let exec = filling(&Device::from_hal(FakeDevice::open(FakeOptions::new()).0));
        for _ in 0..MANY {
            block_on(exec.submit()).unwrap();
        }
    });
}

#[test]
fn many_submissions_of_every_kind_of_device_resolve() {
    on_every_worker(|| {
        for device in [device(), polled_device()] {
            let count = Count::default();
            let exec = count.graph(&device);
            for _ in 0..MANY {
                block_on(exec.submit()).unwrap();
            }
            assert_eq!(count.get(), MANY);
        }
    });
}

#[test]
fn a_submission_that_lets_other_tasks_run_resolves() {
    on_every_worker(|| {
        let (device, control) = manual(false);
        let exec = filling(&device);
        // Known to be short, so that the submission polls for the end itself.
        for _ in 0..3 {
            let submission = exec.submit();
            control.complete_all();
            block_on(submission).unwrap();
        }
        for _ in 0..20 {
            let mut submission = pin!(exec.submit());
            let mut completing = None;
            let resolved = block_on(poll_fn(|cx| {
                let polled = submission.as_mut().poll(cx);
                let control = control.clone();
                completing.get_or_insert_with(|| thread::spawn(move || control.complete_all()));
                polled
            }));
            resolved.unwrap();
            completing.unwrap().join().unwrap();
        }
    });
}

#[test]
fn submissions_resolve_inside_combinators() {
    on_every_worker(|| {
        for device in [device(), polled_device()] {
            let count = Count::default();
            let execs = [(); 40].map(|()| count.graph(&device));
            for _ in 0..10 {
                let all = block_on(join_all(execs.iter().map(ExecutableGraph::submit)));
                assert!(all.into_iter().all(|result| result.is_ok()));
                let (first, rest) = block_on(select(execs[0].submit(), execs[1].submit())).factor_first();
                first.unwrap();
                block_on(rest).unwrap();
            }
        }
    });
}

#[test]
fn everything_else_that_can_be_awaited_resolves() {
    on_every_worker(|| {
        for device in [device(), polled_device()] {
            let count = Count::default();
            let mut graph = Graph::new(&device);
            let node = graph.launch(count.kernel().call(), Range::linear(1)).id();
            let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
            let x = device.host_buffer_from(&[0_u32; 4]).unwrap();
            let y = device.buffer_from(&[7_u32; 4]).unwrap();
            let mut graph = Graph::new(&device);
            graph.copy(&y, &x);
            let copy = graph.finalize().unwrap();
            for _ in 0..MANY {
                let submission = exec.submit();
                block_on(submission.event().wait()).unwrap();
                block_on(exec.update().range(node, Range::linear(1)).apply()).unwrap();
                drop(copy.submit());
                assert_eq!(*block_on(x.read()), [7; 4]);
                assert_eq!(block_on(y.to_vec()).unwrap(), [7; 4]);
            }
            assert_eq!(count.get(), MANY);
        }
    });
}
