//! Graphs of GPU commands and async host tasks, awaited inside tokio.
//!
//! A [`Graph`] describes work: kernels, copies and fills on devices, and *host tasks*, which are async
//! closures that run between them. [`finalize`](Graph::finalize) plans it once and records it into an
//! [`ExecutableGraph`], in the form that the device's driver runs fastest.
//! [`submit`](ExecutableGraph::submit) starts it, as often as you like, and gives a future.
//!
//! # Twenty lines
//!
//! ```
//! use wakegraph::{Device, Graph, Range, read};
//!
//! wakegraph::kernel! {
//!     /// y = a * x + y
//!     pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
//!         each: |i, a, x, y| *y += a * x[i],
//!         // SAFETY: a work-item uses the elements with its index, and a launch is bounded by the
//!         // shortest slice.
//!         c: unsafe { "KERNEL(saxpy, (float a, SLICE(const float, x), SLICE(float, y))) {
//!                          y[GLOBAL_ID(0)] += a * x[GLOBAL_ID(0)];
//!                      }" },
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> wakegraph::Result<()> {
//!     let device = Device::best()?; // a GPU if there is one, else the CPU
//!     let x = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
//!     let y = device.buffer::<f32>(3)?;
//!     let out = device.host_buffer::<f32>(3)?;
//!
//!     let mut graph = Graph::new(&device);
//!     graph.fill(&y, 1.0);
//!     graph.launch(saxpy(2.0, &x, &y), Range::linear(3)); // edges follow from & and &mut
//!     graph.copy(&y, &out);
//!     // A host task may await anything.
//!     graph.host_task((read(&out),), async |(out,)| assert_eq!(*out, [3.0, 5.0, 7.0]));
//!
//!     let exec = graph.finalize()?;
//!     exec.submit().await?;
//!     exec.submit().await
//! }
//! ```
//!
//! # The model
//!
//! ```text
//!   Device ---> Buffer, HostBuffer          memory of the device, and of the host
//!     |
//!   Graph       fill --> launch --> copy --> host task       nodes; edges follow from memory
//!     |
//!     |  finalize         planned, compiled and recorded once
//!     v
//!   ExecutableGraph   .-- partition 0 ------------.     .-- partition 1 --.
//!     |               | fill --> launch --> copy  | --> |    host task    |
//!     |  submit       '--- one command-buffer ----'     '-- a tokio task -'
//!     v
//!   Submission        the future of the whole run
//! ```
//!
//! - A node declares the memory that it uses: a [kernel](kernel!) by `&` and `&mut` in its signature, a host
//!   task by [`read`] and [`write`](write()). Edges follow from that, down to byte ranges; more can be
//!   [added](NodeBuilder::after).
//! - Nodes of a device that wait for the same host tasks form a *partition*: one command-buffer of the
//!   driver, such as a CUDA graph. [`explain`](ExecutableGraph::explain) says why each partition exists, and
//!   what it waits for.
//! - Runs of one executable never overlap. Executables that use the same memory in conflicting ways run in
//!   the order of their submissions, and all others overlap. Nobody waits in between.
//! - The host uses a [`HostBuffer`] through guards, which take part in the same order.
//! - A [`Queue`] runs single commands at once, and records them into a graph.
//!
//! # Cancellation
//!
//! A [`Submission`] runs whether or not it is polled. Dropping it detaches it. [`cancel`](Submission::cancel)
//! stops what has not started, and [`cancel_on_drop`](Submission::cancel_on_drop) does so when a timeout or
//! `select!` drops it. Buffers, graphs and executables can be dropped at any moment, since a run keeps what
//! it needs. Each future documents its cancel safety. [A page of the guide](guide::cancellation) has the
//! rest.
//!
//! # Executors
//!
//! tokio runs host tasks, and it runs the tasks that wait where no device can: for a guard, a future, a
//! deadline, or for another submission's host task. Submit such graphs inside a runtime:
//! `block_on(exec.submit())` submits outside of it, `block_on(async { exec.submit().await })` inside. Graphs
//! of devices alone run under any executor. No future blocks its thread; one that expects the end of its run
//! within microseconds spins for a bounded time.
//!
//! # Features
//!
//! | feature | adds | default |
//! |---|---|---|
//! | `cuda` | NVIDIA GPUs | yes |
//! | `opencl` | devices of OpenCL | yes |
//! | `cpu-levels` | versions of CPU kernels for newer x86-64 processors | yes |
//! | `hip` | AMD GPUs; tested on a simulated GPU, never on hardware | |
//! | `level-zero` | Intel GPUs; tested on a simulated GPU, never on hardware | |
//! | `half` | numbers of 16 bits, `f16` and `bf16`: [kernels](guide::kernels#the-portable-c-dialect) | |
//! | `metrics` | counters, gauges and histograms: [a page](guide::metrics) | |
//! | `tower` | `tower::Service` for pools and batchers | |
//! | `tokio-console` | names of tasks in [tokio-console](guide::console) | |
//! | `test-util` | `wakegraph::testing`, a fake device for your tests | |
//!
//! Libraries of vendors are loaded when a device is opened, so no feature needs an SDK to build. The CPU is
//! always there as the device `host`. [Devices](guide::devices) says what to install for the others.
//!
//! # Where to go on
//!
//! - The [`guide`]: a short page per topic, and tables for users of [CUDA graphs](guide::from_cuda_graphs),
//!   [SYCL-Graph](guide::from_sycl_graph) and [Unified Runtime](guide::from_unified_runtime).
//! - [Kernels](guide::kernels), and [their form for the CPU](guide::cpu_kernels).
//! - [Services](guide::service): pools, batches and caches of executables.
//! - [Existing code](guide::interop) that calls CUDA or OpenCL already.
//! - [Timelines](guide::timeline), [tracing](guide::tracing) and [profiles](profile): see what a program
//!   does.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod guide;
mod rooms;
mod runtime;
mod sync;
mod util;

// Names that every program uses. All others are in the modules below, by what one does there.
#[doc(inline)]
pub use graph::NodeId;
pub use runtime::{
    Buffer, Device, Event, ExecutableGraph, FinalizeOptions, Graph, Health, HostBuffer, HostMut, HostRef,
    Local, NodeBuilder, Queue, Submission, SubmitBuilder, WakePolicy, read, write,
};
pub use wakegraph_hal::{BoxError, Error, ErrorKind, Fault, Range, Result};

// The modules.
pub mod backend;
pub mod graph;
pub mod plan;
pub use rooms::{
    capabilities, dlpack, host_task, interop, kernel, memory, profile, recording, timeline, update,
};
pub mod service;
pub use wakegraph_hal as hal;
#[cfg(any(test, feature = "test-util"))]
pub use wakegraph_hal::fake as testing;

/// The README, whose example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
