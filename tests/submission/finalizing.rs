//! Graphs that are finalized inside tasks: nobody's worker waits for a compiler.

use futures::FutureExt as _;
use wakegraph::backend::host::{self, HostOptions};
use wakegraph::memory::ScratchArena;
use wakegraph::{FinalizeOptions, Graph, Range};

use crate::common::{current_thread, device, raw};
use crate::faulty::slow_to_load;
use crate::support::{Hold, block_on, must_end};

wakegraph::kernel! {
    fn add(n: u32, x: &mut [u32]) { each: |_, n, x| *x += n }
}

#[test]
fn a_task_goes_on_while_kernels_are_compiled() {
    must_end(|| {
        let hold = Hold::new();
        let device = slow_to_load(host::open(HostOptions::new().threads(1)).unwrap(), "slow", &hold);
        let mut graph = Graph::new(&device);
        let slow = raw("slow", || Ok(()));
        graph.launch(slow.call(), Range::linear(1));
        current_thread().block_on(async {
            let mut given_up = graph.finalize_async().boxed();
            assert!((&mut given_up).now_or_never().is_none());
            // A compiler is at work, and the only thread of the runtime is here.
            hold.wait_for(1);
            drop(given_up);
            let mut finalized = graph.finalize_async().boxed();
            assert!((&mut finalized).now_or_never().is_none());
            hold.open();
            finalized.await.unwrap().submit().await.unwrap();
        });
        assert_eq!(hold.arrived(), 1, "what was given up has loaded the kernel");
    });
}

#[test]
fn it_is_the_executable_that_finalize_makes() {
    let (device, arena) = (device(), ScratchArena::new());
    let x = device.buffer_from(&[1u32; 4]).unwrap();
    let mut graph = Graph::new(&device);
    graph.share_scratch(&arena);
    let scratch = graph.scratch::<u32>(4).unwrap();
    graph.fill(&scratch, 0);
    let n = graph.param::<u32>(1u32);
    let node = graph.launch(add(0, &x), Range::linear(4)).param("n", &n).id();
    n.set(5u32);
    let finalized = graph.finalize_async_with(FinalizeOptions::new().updatable(true));
    n.set(7u32);
    let exec = block_on(finalized).unwrap();
    block_on(exec.submit()).unwrap();
    assert_eq!(block_on(x.to_vec()).unwrap(), [6; 4], "the values are those at the call");
    block_on(exec.update().launch(node, add(10, &x)).apply()).unwrap();
    block_on(exec.submit()).unwrap();
    assert_eq!(block_on(x.to_vec()).unwrap(), [16; 4]);
    assert_eq!(arena.bytes(&device), exec.graph_memory()[0].bytes);
}

#[test]
fn its_errors_are_those_of_finalize() {
    let device = device();
    let x = device.buffer::<u32>(4).unwrap();
    let mut refused = Graph::new(&device);
    refused.launch(add(1, &x), Range::linear(5));
    let mut unloadable = Graph::new(&device);
    let kernel = wakegraph::kernel::RawKernel::new("none").writes::<u32>("x").build();
    unloadable.launch(kernel.call().memory::<u32>(&x), Range::linear(4));
    for graph in [refused, unloadable] {
        let options = FinalizeOptions::new().name("model");
        let error = graph.finalize_with(options.clone()).unwrap_err();
        let of_async = block_on(graph.finalize_async_with(options)).unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (of_async.kind(), of_async.to_string()));
    }
}
