//! Calls of the driver that finalizing and updating graphs of the runtime make.

use wakegraph::kernel::RawKernel;
use wakegraph::{FinalizeOptions, Graph};

use super::*;

fn opened() -> (wakegraph::Device, Arc<RawKernel>) {
    let device = wakegraph::Device::from_hal(Arc::new(open_device(fake::driver(), 0).unwrap()));
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    // SAFETY: the fake driver runs nothing.
    let kernel = unsafe { RawKernel::new("add").writes::<u32>("x").with_sources(sources) };
    (device, kernel.build())
}

/// A graph of kernels in a chain.
fn chain(device: &wakegraph::Device, kernel: &Arc<RawKernel>, kernels: usize) -> Graph {
    let x = device.buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    for _ in 0..kernels {
        graph.launch(kernel.call().memory::<u32>(&x), wakegraph::Range::linear(1));
    }
    graph
}

/// Calls of the driver on this thread.
fn calls(work: impl FnOnce()) -> usize {
    let before = fake::all_calls();
    work();
    fake::all_calls() - before
}

#[test]
fn each_kernel_of_a_graph_is_one_call_of_the_driver() {
    let (device, kernel) = opened();
    // The first one loads it.
    drop(chain(&device, &kernel, 1).finalize().unwrap());
    let [few, many] = [10, 110].map(|kernels| {
        let graph = chain(&device, &kernel, kernels);
        calls(|| drop(graph.finalize().unwrap()))
    });
    assert_eq!(many - few, 100);
    assert!(few < 40, "{few}");
}

#[test]
fn each_kernel_of_an_update_from_a_graph_is_one_call_of_the_driver() {
    let (device, kernel) = opened();
    // Longer ones than those whose runs a kernel counts, which are recorded once more.
    let [few, many] = [200, 300].map(|kernels| {
        let graph = chain(&device, &kernel, kernels);
        let exec = graph.finalize_with(FinalizeOptions::new().updatable(true)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        calls(|| runtime.block_on(exec.update_from(&graph)).unwrap())
    });
    assert_eq!(many - few, 100);
    assert!(few < 260, "{few}");
}
