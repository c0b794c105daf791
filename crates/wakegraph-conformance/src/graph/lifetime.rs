//! Graph, executable, buffers and submissions may be dropped before, while and after the work runs.
#![expect(unsafe_code, reason = "declares device code")]

use std::sync::Arc;

use wakegraph::kernel::RawKernel;
use wakegraph::{Graph, Range, write};

use crate::kernels::{SOURCE, hold};
use crate::suite::{Need, Setup, tests};
use crate::support::{Token, Tracker, forget};
use crate::watch::Turnstile;

tests!("graph/lifetime":
    &[Need::Results] => [graph_and_buffers_go_before_running, host_tasks_are_freed, several_finalizes],
    &[Need::Results, Need::SharedMemory] => [everything_goes_while_running]);

/// x = x + n, by a kernel that holds the token.
fn add_holding(token: Token) -> Arc<RawKernel> {
    let kernel = RawKernel::new("add").value::<u32>("n").writes::<u32>("x");
    // SAFETY: a work-item uses the element with its index, and a launch is bounded by the slice's length.
    let kernel = unsafe { kernel.with_c(SOURCE) };
    kernel.host(move |_, args| {
        let _token = &token;
        let n: u32 = args.value()?;
        args.write::<u32>()?.iter_mut().for_each(|x| *x += n);
        Ok(())
    })
}

fn graph_and_buffers_go_before_running(setup: &Setup) {
    let device = setup.device();
    let (tracker, output) = (Tracker::new(), device.host_buffer::<u32>(4).unwrap());
    let exec = {
        let x = device.buffer_from(&[1u32, 2, 3, 4]).unwrap();
        let kernel = add_holding(tracker.token());
        let mut graph = Graph::new(device);
        graph.launch(kernel.call().value(10u32).memory::<u32>(&x), Range::linear(4));
        graph.copy(&x, &output);
        graph.finalize().unwrap()
    };
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(*output.read().await, [11, 12, 13, 14]);
        exec.submit().await.unwrap();
        assert_eq!(*output.read().await, [21, 22, 23, 24]);
        drop(exec);
    });
    tracker.wait_until_freed();
}

fn everything_goes_while_running(setup: &Setup) {
    let device = setup.device();
    let (turnstile, tracker) = (Turnstile::new(), Tracker::new());
    let output = {
        let (x, output) = (device.buffer::<u32>(1000).unwrap(), device.host_buffer::<u32>(1000).unwrap());
        let kernel = add_holding(tracker.token());
        let mut graph = Graph::new(device);
        let held = graph.launch(hold(&turnstile), Range::linear(1)).id();
        graph.launch(kernel.call().value(1u32).memory::<u32>(&x), Range::linear(1000)).after([held]);
        graph.copy(&x, &output);
        let exec = graph.finalize().unwrap();
        drop(exec.submit());
        forget(exec.submit());
        drop(exec.submit());
        output
    };
    turnstile.wait_for(1);
    turnstile.open();
    setup.block_on(async { assert_eq!(*output.read().await, [3; 1000]) });
    assert_eq!(turnstile.arrived(), 3);
    tracker.wait_until_freed();
}

fn host_tasks_are_freed(setup: &Setup) {
    let device = setup.device();
    let tracker = Tracker::new();
    let host = device.host_buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    for _ in 0..3 {
        let token = tracker.token();
        graph.host_task((write(&host),), async move |(mut host,)| {
            host[0] += 1;
            drop(token);
        });
    }
    let exec = graph.finalize().unwrap();
    drop(graph);
    setup.block_on(async {
        for _ in 0..5 {
            exec.submit().await.unwrap();
        }
        assert_eq!(host.read().await[0], 15);
    });
    assert_eq!(tracker.alive(), 3);
    drop(exec);
    tracker.wait_until_freed();
}

fn several_finalizes(setup: &Setup) {
    let device = setup.device();
    let x = device.buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    graph.launch(crate::kernels::add(1, &x), Range::linear(1));
    let first = graph.finalize().unwrap();
    graph.launch(crate::kernels::add(10, &x), Range::linear(1));
    let second = graph.finalize_async();
    drop(graph);
    setup.block_on(async {
        let second = second.await.unwrap();
        first.submit().await.unwrap();
        second.submit().await.unwrap();
        first.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [13]);
    });
}
