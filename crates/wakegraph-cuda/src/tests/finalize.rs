//! What finalizing a graph of the runtime asks of the driver.

use wakegraph::Graph;
use wakegraph::kernel::RawKernel;

use super::*;

/// Calls of the driver in a finalize of so many kernels in a chain, and in the drop of the executable.
fn calls_of_finalize(device: &wakegraph::Device, kernel: &Arc<RawKernel>, kernels: usize) -> usize {
    let x = device.buffer::<u32>(1).unwrap();
    let mut graph = Graph::new(device);
    for _ in 0..kernels {
        graph.launch(kernel.call().memory::<u32>(&x), wakegraph::Range::linear(1));
    }
    let before = fake::all_calls();
    drop(graph.finalize().unwrap());
    fake::all_calls() - before
}

#[test]
fn each_kernel_of_a_graph_is_one_call_of_the_driver() {
    let device = wakegraph::Device::from_hal(Arc::new(open_device(fake::driver(), 0).unwrap()));
    let sources = KernelSources::new().ptx("the fake driver does not read this");
    // SAFETY: the fake driver runs nothing.
    let kernel = unsafe { RawKernel::new("add").writes::<u32>("x").with_sources(sources) }.build();
    // The first one loads it.
    calls_of_finalize(&device, &kernel, 1);
    let [few, many] = [10, 110].map(|kernels| calls_of_finalize(&device, &kernel, kernels));
    assert_eq!(many - few, 100);
    assert!(few < 40, "{few}");
}
