//! The examples of the guide, of the pages on services, and of the tables for users of other graph
//! APIs. `cargo test --doc` compiles and runs them.

/// Makes a page's examples tests of a module of its own.
macro_rules! pages {
    ($($(#[$attribute:meta])* $module:ident: $page:literal)*) => {
        $($(#[$attribute])* #[doc = include_str!(concat!("../docs/", $page))] mod $module {})*
    };
}

pages! {
    graphs: "guide/graphs.md"
    dependencies: "guide/dependencies.md"
    recording: "guide/recording.md"
    updating: "guide/updating.md"
    control_flow: "guide/control-flow.md"
    memory: "guide/memory.md"
    host_tasks: "guide/host-tasks.md"
    cpu_kernels: "guide/cpu-kernels.md"
    several_devices: "guide/several-devices.md"
    #[cfg(feature = "test-util")]
    errors: "guide/errors.md"
    cancellation: "guide/cancellation.md"
    #[cfg(feature = "test-util")]
    deadlines: "guide/deadlines.md"
    service: "service.md"
    timeline: "timeline.md"
    from_a_gpu_thread: "from-a-gpu-thread-and-a-channel.md"
    from_cuda_graphs: "from-cuda-graphs.md"
    from_sycl_graph: "from-sycl-graph.md"
    from_unified_runtime: "from-unified-runtime.md"
}
