//! Graph, executable, buffers and submissions may be dropped before, while and after the work runs.

use wakegraph::kernel::RawKernel;
use wakegraph::{Graph, Range, write};

use crate::registry::{Need, Setup, tests};
use crate::support::{Hold, Tracker, forget};

tests!("graph/lifetime":
    &[Need::Results, Need::Closures] => [graph_and_buffers_go_before_running, everything_goes_while_running],
    &[Need::Results] => [host_tasks_are_freed, several_finalizes]);

fn graph_and_buffers_go_before_running(setup: &Setup) {
    let device = setup.device();
    let (tracker, output) = (Tracker::new(), device.host_buffer::<u32>(4).unwrap());
    let exec = {
        let x = device.buffer_from(&[1u32, 2, 3, 4]).unwrap();
        let token = tracker.token();
        let kernel = RawKernel::new("negate").writes::<u32>("x").host(move |_, args| {
            let _token = &token;
            args.write::<u32>()?.iter_mut().for_each(|x| *x = !*x);
            Ok(())
        });
        let mut graph = Graph::new(device);
        graph.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
        graph.copy(&x, &output);
        graph.finalize().unwrap()
    };
    setup.block_on(async {
        exec.submit().await.unwrap();
        assert_eq!(*output.read().await, [!1, !2, !3, !4]);
        exec.submit().await.unwrap();
        assert_eq!(*output.read().await, [1, 2, 3, 4]);
        assert_eq!(tracker.alive(), 1);
        drop(exec);
    });
    tracker.wait_until_freed();
}

fn everything_goes_while_running(setup: &Setup) {
    let device = setup.device();
    let (hold, tracker) = (Hold::new(), Tracker::new());
    let output = {
        let (held, token) = (hold.held(), tracker.token());
        let (x, output) = (device.buffer::<u32>(1000).unwrap(), device.host_buffer::<u32>(1000).unwrap());
        let kernel = RawKernel::new("held").writes::<u32>("x").host(move |_, args| {
            let _token = &token;
            held.pass();
            args.write::<u32>()?.iter_mut().for_each(|x| *x += 1);
            Ok(())
        });
        let mut graph = Graph::new(device);
        graph.launch(kernel.call().memory::<u32>(&x), Range::linear(1000));
        graph.copy(&x, &output);
        let exec = graph.finalize().unwrap();
        drop(exec.submit());
        forget(exec.submit());
        drop(exec.submit());
        output
    };
    hold.wait_for(1);
    hold.open();
    setup.block_on(async { assert_eq!(*output.read().await, [3; 1000]) });
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
    let second = graph.finalize().unwrap();
    drop(graph);
    setup.block_on(async {
        first.submit().await.unwrap();
        second.submit().await.unwrap();
        first.submit().await.unwrap();
        assert_eq!(x.to_vec().await.unwrap(), [13]);
    });
}
