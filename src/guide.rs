#![doc = include_str!("guide/links.md")]
#![doc = include_str!("../docs/guide/README.md")]

// A page is a file of `docs` and reads well there. Its links have names, which its end defines as files.
// The definitions of `links.md` come before the page, so they win, and the same links lead to modules.

#[cfg(doc)]
use crate::*;

/// Makes a page of `docs` a module: its summary, its text, and the items that it is about.
macro_rules! page {
    ($(#[$summary:meta])* $module:ident: $page:expr; $items:literal $(, $picture:expr)?) => {
        $(#[$summary])*
        #[doc = "\n"]
        #[doc = include_str!("guide/links.md")]
        #[doc = $page]
        #[doc = concat!("\n\nIn the reference: ", $items)]
        $(#[doc = $picture])?
        pub mod $module {}
    };
}

page! {
    /// Build, finalize, submit; kernels, sub-graphs, drawings, profiles.
    graphs: include_str!("../docs/guide/graphs.md");
    "[`Graph`], [`NodeBuilder`], [`ExecutableGraph`], [`FinalizeOptions`], [`Submission`]."
}
page! {
    /// Edges that follow from memory, edges by hand, order between submissions.
    dependencies: include_str!("../docs/guide/dependencies.md");
    "[`NodeBuilder::after`], [`SubmitBuilder`], [`plan::PartitionPolicy`]."
}
page! {
    /// Queues: the same code run at once, or recorded into a graph.
    recording: include_str!("../docs/guide/recording.md");
    "[`Queue`], [`Event`], [`Graph::record`], [`recording`](crate::recording)."
}
page! {
    /// New arguments, dynamic parameters, command groups, whole graphs.
    updating: include_str!("../docs/guide/updating.md");
    "[`ExecutableGraph::update`], [`ExecutableGraph::update_from`], [`update`]."
}
page! {
    /// Conditionals, switches and loops, run by the device or by the runtime.
    control_flow: include_str!("../docs/guide/control-flow.md");
    "[`Graph::if_nonzero`], [`Graph::if_nonzero_else`], [`Graph::switch`], [`Graph::while_nonzero`]."
}
page! {
    /// Buffers, host buffers and guards, slices, scratch memory, rectangles.
    memory: include_str!("../docs/guide/memory.md");
    "[`Buffer`], [`HostBuffer`], [`HostRef`], [`HostMut`], [`Graph::scratch`], [`memory`](crate::memory)."
}
page! {
    /// Async code of yours inside a graph.
    host_tasks: include_str!("../docs/guide/host-tasks.md");
    "[`Graph::host_task`], [`Graph::host_task_blocking`], [`read`], [`write`](crate::write()), [`host_task`]."
}
page! {
    /// Kernels for the CPU: which form for what; workers, blocks, processors.
    cpu_kernels: include_str!("../docs/guide/cpu-kernels.md");
    "[`kernel!`], [`Range`], [`Local`], [`backend::host`]."
}
page! {
    /// One graph over several devices.
    several_devices: include_str!("../docs/guide/several-devices.md");
    "[`Device`], [`NodeBuilder::on`], [`capabilities`]."
}
page! {
    /// Kinds of errors, refused nodes, panics, lost devices.
    errors: include_str!("../docs/guide/errors.md");
    "[`Error`], [`ErrorKind`], [`Fault`], [`Graph::take_errors`]."
}
page! {
    /// Cancel, timeouts, drop, shutdown.
    cancellation: include_str!("../docs/guide/cancellation.md");
    "[`Submission::cancel`], [`Submission::cancel_on_drop`], [`Device::shutdown`]."
}
page! {
    /// Start nothing too late; notice devices that hang or are lost.
    deadlines: include_str!("../docs/guide/deadlines.md");
    "[`SubmitBuilder::deadline`], [`SubmitBuilder::watchdog`], [`Health`], [`Device::drain`]."
}
page! {
    /// Kernels, their bounds, and the C dialect for all devices.
    kernels: include_str!("../docs/kernels.md");
    "[`kernel!`], [`Range`], [`Local`], [`kernel`](mod@crate::kernel)."
}
page! {
    /// Drivers to install, and what each device can do.
    devices: include_str!("../docs/devices.md");
    "[`Device::open`], [`Device::best`], [`Device::all`], [`capabilities`]."
}
page! {
    /// Pools, batches, caches of shapes, streams, tower.
    service: include_str!("../docs/service.md");
    "[`ExecutablePool`](crate::service::ExecutablePool), [`Batcher`](crate::service::Batcher), \
    [`ExecutableCache`](crate::service::ExecutableCache), [`SubmitEach`](crate::service::SubmitEach)."
}
page! {
    /// A GPU thread behind a channel, and the same service with a pool.
    from_a_gpu_thread_and_a_channel: include_str!("../docs/from-a-gpu-thread-and-a-channel.md");
    "[`ExecutablePool`](crate::service::ExecutablePool), [`Batcher`](crate::service::Batcher)."
}
// `benches/lib.rs` tests this page, with the packages of others that its examples use.
#[cfg(not(doctest))]
page! {
    /// Graphs in code that uses the GPU already; network bytes, tensors of DLPack.
    interop: include_str!("../docs/interop.md");
    "[`interop`](crate::interop), [`dlpack`], [`Device::import`], [`Graph::native`], [`Graph::stream_task`]."
}
page! {
    /// Runs of the host and of all devices on one clock, for a viewer or as a picture.
    timeline: include_str!("../docs/timeline.md");
    "[`Timeline`](crate::timeline::Timeline), [`Device::profile`].",
    concat!(
        "\n\n## The picture\n\n<div style=\"overflow-x: auto\">\n",
        include_str!("../docs/images/photo-timeline.svg"),
        "\n</div>\n"
    )
}
page! {
    /// Spans and events of a submission.
    tracing: include_str!("../docs/tracing.md");
    "[`Submission`], [`ExecutableGraph`]."
}
page! {
    /// Counters, gauges and histograms, with the feature `metrics`.
    metrics: include_str!("../docs/metrics.md");
    "[`Device::host_pool_stats`], [`PoolStatus`](crate::service::PoolStatus)."
}
page! {
    /// Devices, queues and partitions in tokio-console.
    console: include_str!("../docs/console.md");
    "[`Submission::progress`], [`ExecutableGraph::explain`]."
}
page! {
    /// CUDA graphs: their calls beside ours.
    from_cuda_graphs: include_str!("../docs/from-cuda-graphs.md");
    "[`Graph`], [`ExecutableGraph`], [`Graph::record`], [`Graph::native`]."
}
page! {
    /// SYCL-Graph: its calls beside ours.
    from_sycl_graph: include_str!("../docs/from-sycl-graph.md");
    "[`Graph`], [`ExecutableGraph`], [`Queue`], [`update`]."
}
page! {
    /// Unified Runtime's command-buffers: their calls beside ours.
    from_unified_runtime: include_str!("../docs/from-unified-runtime.md");
    "[`hal`], [`ExecutableGraph::update`]."
}
