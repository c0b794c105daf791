//! Public modules beside the root, each named for what one does there.

pub use crate::runtime::{dlpack, kernel, timeline};

pub mod capabilities {
    //! The capabilities of a device, and its description.
    //!
    //! Drivers differ: one updates kernels but not copies, one keeps no times, one allows work-groups of 256
    //! work-items. [`finalize`](crate::Graph::finalize) refuses by name what a device lacks, so most programs
    //! need not ask. One that has a choice asks [`Device::capabilities`](crate::Device::capabilities) first,
    //! and [`Device::info`](crate::Device::info) names the device in a log.
    //!
    //! ```
    //! use wakegraph::Device;
    //! use wakegraph::capabilities::{CommandKinds, UpdateCapabilities};
    //!
    //! # fn main() -> wakegraph::Result<()> {
    //! let device = Device::open("host")?;
    //! let can = device.capabilities();
    //! assert!(can.commands.contains(CommandKinds::WHILE)); // the device decides about loops itself
    //! assert!(can.update.contains(UpdateCapabilities::GLOBAL_WORK_SIZE)); // ranges can be updated
    //! println!("{}: work-groups of {} work-items", device.info().name, can.max_work_group_size);
    //! # Ok(())
    //! # }
    //! ```

    pub use wakegraph_hal::{
        Capabilities, CommandKinds, DeviceId, DeviceInfo, GraphSupport, Progress, UpdateCapabilities,
    };
}

pub mod host_task {
    //! The declarations and results of host tasks.
    //!
    //! [`read`](crate::read) and [`write`](crate::write()) declare which host buffers the closure of a
    //! [host task](crate::Graph::host_task) uses, and the closure gets a view of each; [`run_data`] declares
    //! that it uses what its submission [brings](crate::SubmitBuilder::run_data). The traits say what
    //! counts as such a declaration, as a closure and as a result. They are needed in the bounds of functions
    //! that are generic over host tasks:
    //!
    //! ```
    //! use wakegraph::host_task::{HostAccesses, TaskOutput};
    //! use wakegraph::{Device, Graph, NodeId, read};
    //!
    //! /// Adds a host task that logs its beginning.
    //! fn logged<A, R>(graph: &mut Graph, name: &'static str, accesses: A, task: fn(A::Views) -> R) -> NodeId
    //! where
    //!     A: HostAccesses,
    //!     R: TaskOutput + Send + 'static,
    //! {
    //!     let task = move |views| {
    //!         println!("{name} begins");
    //!         task(views)
    //!     };
    //!     graph.host_task_blocking(accesses, task).name(name).id()
    //! }
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> wakegraph::Result<()> {
    //! let device = Device::open("host")?;
    //! let out = device.host_buffer::<u32>(3)?;
    //! let mut graph = Graph::new(&device);
    //! logged(&mut graph, "check", (read(&out),), |(out,)| assert_eq!(*out, [0; 3]));
    //! graph.finalize()?.submit().await
    //! # }
    //! ```

    pub use crate::runtime::{
        HostAccess, HostAccesses, ReadAccess, RunData, RunDataAccess, TaskClosure, TaskOutput, WriteAccess,
        run_data,
    };
}

pub mod interop {
    //! Graphs beside code that uses the GPU already.
    //!
    //! An application that calls `cudarc`, `opencl3`, cuBLAS or a tensor library keeps its memory and its
    //! streams. The memory comes [in by its address](crate::Device::import), and goes out as a [`Loan`]
    //! for as long as the other library uses it. Its calls become nodes: [recorded
    //! once](crate::Graph::native), or [called in every submission](crate::Graph::stream_task) with a
    //! [`NativeStream`]. Submissions come [after its events](crate::SubmitBuilder::after_native), and its
    //! queues [after submissions](crate::Submission::join). Handles are raw pointers, so most of this is
    //! `unsafe`; tensors with an owner are in [`dlpack`](super::dlpack).
    //!
    //! ```
    //! use wakegraph::memory::AccessMode;
    //! use wakegraph::{Device, Graph};
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> wakegraph::Result<()> {
    //! # fn their_call(_: Option<usize>, _: usize) {}
    //! let device = Device::open("host")?;
    //! let x = device.buffer::<f32>(100)?;
    //! let mut graph = Graph::new(&device);
    //! graph.fill(&x, 1.0);
    //! let exec = graph.finalize()?;
    //!
    //! let first = exec.submit();
    //! let loan = x.lend(AccessMode::Read).await?; // after the first submission
    //! let second = exec.submit(); // waits for the loan
    //! their_call(x.address(), x.len());
    //! drop(loan);
    //! first.await?;
    //! second.await
    //! # }
    //! ```

    pub use wakegraph_hal::{NativeMemory, NativeStream, UsmPointer};

    pub use crate::runtime::{HostSource, Loan, NativeAccess, NativeAccesses, NativeEvent};
}

pub mod memory {
    //! Memory as commands take it, and how they use it.
    //!
    //! [`Buffer`](crate::Buffer) and [`HostBuffer`](crate::HostBuffer) are at the root. Here is what else is
    //! about memory: boxes of an image ([`RectCopy`]), intermediate results of several executables in one
    //! place ([`ScratchArena`]), hints for memory that host and device share ([`Advice`]), and what a node of
    //! a graph does to which bytes ([`Access`]). [`MemoryArg`] and [`CopySource`] are bounds for functions
    //! that take any memory.
    //!
    //! ```
    //! use wakegraph::memory::{Layout, MemoryArg, RectCopy};
    //! use wakegraph::{Device, Graph};
    //!
    //! /// Adds a copy of the middle of an image of 4 x 4 pixels.
    //! fn crop(graph: &mut Graph, image: impl MemoryArg<u8>, middle: impl MemoryArg<u8>) {
    //!     let cut = RectCopy::new([2, 2], Layout::rows(4).origin([1, 1]), Layout::rows(2));
    //!     graph.copy_rect(image, middle, cut);
    //! }
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> wakegraph::Result<()> {
    //! let device = Device::open("host")?;
    //! let image = device.buffer_from(&(0..16u8).collect::<Vec<_>>())?;
    //! let middle = device.host_buffer::<u8>(4)?;
    //! let mut graph = Graph::new(&device);
    //! crop(&mut graph, &image, &middle);
    //! graph.finalize()?.submit().await?;
    //! assert_eq!(*middle.read().await, [5, 6, 9, 10]);
    //! # Ok(())
    //! # }
    //! ```
    //!
    //! With the feature `half`, numbers of 16 bits are elements of buffers and values for kernels: `f16` and
    //! `bf16`, of the crate of that name.

    #[cfg(feature = "half")]
    pub use half::{bf16, f16};
    pub use wakegraph_hal::{Access, AccessMode, Advice, ResourceId};

    pub use crate::runtime::{
        CopySource, GraphMemory, HostPoolStats, Layout, MemoryArg, RectCopy, ScratchArena,
    };
}

pub mod profile {
    //! Explanations, progress and times: where the time goes, and why.
    //!
    //! | question | answer |
    //! |---|---|
    //! | Why is the graph split so, and what does each part wait for? | [`ExecutableGraph::explain`](crate::ExecutableGraph::explain) gives an [`Explanation`] |
    //! | Was a kernel compiled, or did it come from disk? | [`Explanation::kernels`] |
    //! | What does a submission do now, and what does it wait for? | [`Submission::progress`](crate::Submission::progress) gives a [`SubmissionProgress`] |
    //! | How long did each node take? | [`Submission::profile`](crate::Submission::profile) gives a [`Profile`], if the executable was finalized with [`profiling`](crate::FinalizeOptions::profiling) |
    //! | How long do partitions take in a service that runs? | [`Device::profile`](crate::Device::profile) switches their times on while executables are in use |
    //! | How do many runs share host and devices? | a [`Timeline`](crate::timeline::Timeline) puts all of them on one clock |
    //!
    //! All of these call partitions and nodes by the same names.
    //!
    //! ```
    //! use wakegraph::profile::NodeTimes;
    //! use wakegraph::{Device, FinalizeOptions, Graph};
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> wakegraph::Result<()> {
    //! let device = Device::open("host")?;
    //! let x = device.buffer::<u32>(1000)?;
    //! let mut graph = Graph::new(&device);
    //! graph.fill(&x, 1).name("clear");
    //! let exec = graph.finalize_with(FinalizeOptions::new().profiling(true))?;
    //! println!("{}", exec.explain()); // why it runs as it does
    //!
    //! let mut submission = exec.submit();
    //! if let Some(progress) = submission.progress() {
    //!     println!("{progress}"); // how far it is
    //! }
    //! (&mut submission).await?;
    //! let profile = submission.profile().expect("it was finalized with profiling");
    //! let slowest = profile.nodes.iter().max_by_key(|node| node.duration());
    //! assert!(matches!(slowest, Some(NodeTimes { label, .. }) if label.contains("clear")));
    //! # Ok(())
    //! # }
    //! ```

    pub use wakegraph_hal::CodeOrigin;

    pub use crate::runtime::{
        DeviceClock, DeviceProfiling, Explanation, KernelExplanation, LearnedDuration, NodeTimes,
        PartitionExplanation, PartitionProgress, PartitionState, PartitionTimes, PartitionWait, Profile,
        ProfileTimeline, SubmissionProgress, WaitMode,
    };
}

pub mod recording {
    //! Commands of a queue: run at once, or recorded into a graph.
    //!
    //! A [`Queue`](crate::Queue) runs its commands at once. While a graph records the queue, the same
    //! calls make nodes, until the [`Recording`] is dropped. So code that takes a `&Queue` can be tried
    //! out step by step, and later be submitted as a whole. [`Queue::after`](crate::Queue::after) gives a
    //! [`CommandBuilder`]: the same commands, with a wait list.
    //!
    //! ```
    //! use wakegraph::{Device, Graph, Result};
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> Result<()> {
    //! let device = Device::open("host")?;
    //! let (x, y) = (device.buffer::<u32>(3)?, device.buffer::<u32>(3)?);
    //! let queue = device.queue()?;
    //!
    //! let mut graph = Graph::new(&device);
    //! let recording = graph.record([&queue])?;
    //! queue.fill(&x, 7); // a node
    //! queue.copy(&x, &y); // another one
    //! drop(recording);
    //! queue.fill(&x, 1).await?; // runs
    //!
    //! graph.finalize()?.submit().await?;
    //! assert_eq!(y.to_vec().await?, [7; 3]);
    //! # Ok(())
    //! # }
    //! ```

    pub use crate::runtime::{CommandBuilder, Recording};
}

pub mod update {
    //! Changes of an executable, between its submissions.
    //!
    //! Planning and compiling a graph takes milliseconds, an update takes microseconds. Where only arguments,
    //! ranges or closures change from one submission to the next, finalize the graph as
    //! [`updatable`](crate::FinalizeOptions::updatable), and change the executable with
    //! [`update`](crate::ExecutableGraph::update). A [`DynamicParam`] is one value in many nodes, a
    //! [`CommandGroup`] a node with alternatives, and [`update_from`](crate::ExecutableGraph::update_from)
    //! takes over all that is different in another graph of the same form. Submissions in flight keep their
    //! values.
    //!
    //! ```
    //! use wakegraph::update::{Applied, DynamicParam};
    //! use wakegraph::{Device, ExecutableGraph, FinalizeOptions, Graph, Range};
    //!
    //! wakegraph::kernel! {
    //!     fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
    //! }
    //!
    //! fn set_step(exec: &ExecutableGraph, step: &DynamicParam<u32>, value: u32) -> Applied {
    //!     exec.update().param(step, value).apply()
    //! }
    //!
    //! # #[tokio::main(flavor = "current_thread")]
    //! # async fn main() -> wakegraph::Result<()> {
    //! let device = Device::open("host")?;
    //! let x = device.buffer::<u32>(2)?;
    //! let mut graph = Graph::new(&device);
    //! let step = graph.param(1u32);
    //! graph.launch(add(0, &x), Range::linear(2)).param("n", &step);
    //! let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
    //!
    //! exec.submit().await?;
    //! set_step(&exec, &step, 10).await?;
    //! exec.submit().await?;
    //! assert_eq!(x.to_vec().await?, [11; 2]);
    //! # Ok(())
    //! # }
    //! ```

    pub use crate::runtime::{
        AnyParam, Applied, CommandGroup, CommandGroupBuilder, DynamicParam, ParamValue, Update,
    };
}
