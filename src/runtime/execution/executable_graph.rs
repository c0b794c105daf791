//! Executable graphs, as users hold them: what `finalize` makes, to be submitted many times.

use std::fmt::{self, Debug};
use std::sync::Arc;

use wakegraph_hal::ResourceId;

use crate::plan::Plan;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::ExecutableHandle;
use crate::runtime::execution::explain::Explanation;
use crate::runtime::execution::run::Predecessor;
use crate::runtime::execution::submission::Submission;
use crate::runtime::execution::submit::{self, SubmitBuilder};
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::scratch::GraphMemory;

/// A finalized graph: planned, recorded into command-buffers, submitted as often as you like. Its
/// topology never changes; what its nodes work on can be [updated](Self::update).
///
/// Clones are handles to the same executable. Its runs never overlap: a second
/// [`submit`](Self::submit) is ordered after the first, without anybody waiting in between.
/// Different executables overlap freely, except where they use the same memory in conflicting ways:
/// then they run in the order of their submissions.
///
/// [Updating](crate::guide::updating) is a page of the guide.
///
/// ```
/// use wakegraph::{Device, Graph};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let (x, out) = (device.buffer_from(&[7u32; 3])?, device.host_buffer::<u32>(3)?);
/// let mut graph = Graph::new(&device);
/// graph.copy(&x, &out);
///
/// let exec = graph.finalize()?;
/// let first = exec.submit();
/// let second = exec.submit(); // runs after the first, which nobody has awaited yet
/// second.await?;
/// assert!(first.is_finished());
/// println!("{}", exec.explain()); // why it runs as it does
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ExecutableGraph {
    pub(crate) inner: ExecutableHandle,
}

impl ExecutableGraph {
    /// Submits the graph: enqueues at once all that can be enqueued, and returns a future of its
    /// completion. Among many short runs in flight on a GPU, one thread of the device's enqueues
    /// them a few microseconds later, several at a time.
    ///
    /// Never waits for work to end. A driver whose own queue is full may hold the call back until
    /// there is room: CUDA's does at about a thousand launches in flight. Where that matters keep
    /// fewer in flight, by awaiting earlier submissions or with a semaphore.
    ///
    /// A graph with host tasks, with partitions that only the host can order, or one that has to
    /// wait for a host guard, a future or another submission's host side, needs a tokio runtime:
    /// call it inside one. Everything else runs under any executor.
    ///
    /// Arguments are evaluated before the call, so `runtime.block_on(exec.submit())` submits
    /// outside the runtime. An `async` block submits inside:
    ///
    /// ```
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// graph.host_task((), async |()| tokio::task::yield_now().await);
    /// let exec = graph.finalize()?;
    /// let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    /// runtime.block_on(async { exec.submit().await })?;
    /// # Ok::<(), wakegraph::Error>(())
    /// ```
    ///
    /// # Deadlock
    /// Runs of one executable, and of executables that share buffers in conflicting ways, start one
    /// after the other. A host task that awaits a later submission of its own executable, or of one
    /// that shares what its executable uses, waits for ever: that submission starts when the run of
    /// the host task has ended, as a whole. The runtime cannot see such a cycle. Submit from the
    /// host task without awaiting, or await it in another task. The same holds for a
    /// [`HostBuffer`](crate::HostBuffer)'s guard: await no submission that uses the buffer while
    /// holding it.
    ///
    /// # Errors
    /// All errors come out of the [`Submission`].
    ///
    /// # Cancel safety
    /// Not async: when it returns, the run is on its way whether or not the future is polled.
    pub fn submit(&self) -> Submission {
        submit::submit(&self.inner)
    }

    /// Prepares a submission with a wait list.
    ///
    /// ```no_run
    /// # use wakegraph::{ExecutableGraph, Result};
    /// # async fn example(decode: ExecutableGraph, infer: ExecutableGraph) -> Result<()> {
    /// let decoded = decode.submit();
    /// infer.prepare().after(&decoded).submit().await
    /// # }
    /// ```
    pub fn prepare(&self) -> SubmitBuilder<'_> {
        SubmitBuilder::new(&self.inner)
    }

    /// Its [name](crate::FinalizeOptions::name), if it has one.
    pub fn name(&self) -> Option<&str> {
        self.inner.labels.executable.as_deref()
    }

    /// The memory that the executable has for [scratch buffers](crate::Graph::scratch), by device.
    pub fn graph_memory(&self) -> &[GraphMemory] {
        &self.inner.scratch.memory
    }

    /// Whether its [arena](crate::memory::ScratchArena) has grown since, so that it keeps other memory for
    /// itself.
    pub(crate) fn has_outgrown_scratch(&self) -> bool {
        self.inner.scratch.are_outgrown()
    }

    /// The devices of its partitions.
    pub(crate) fn devices(&self) -> impl Iterator<Item = &Device> {
        self.inner.labels.devices.iter().flatten()
    }

    /// The device memory that it was finalized with, each allocation once, with its bytes.
    pub(crate) fn device_memory(&self) -> impl Iterator<Item = (ResourceId, u64)> {
        self.inner.device_memory.iter().copied()
    }

    /// A guard, held or waiting for its turn, of memory that the executable was finalized with and that is
    /// newer than `since`.
    pub(crate) fn guard_of_memory_since(&self, since: ResourceId) -> Option<Predecessor> {
        let mut allocations = self.inner.allocations.iter();
        let guard = |allocation: &Arc<Allocation>| match allocation.memory().resource() > since {
            true => conflicts::guard_of(allocation),
            false => None,
        };
        allocations.find_map(guard)
    }

    /// The plan: partitions, their dependencies, sync-points. Prints as a list of instructions with
    /// the nodes' names.
    pub fn plan(&self) -> &Plan {
        &self.inner.labels.plan
    }

    /// The plan as it prints, with the nodes' names.
    pub fn plan_text(&self) -> String {
        self.inner.plan_text()
    }

    /// Explains why the executable runs as it does: for each partition what makes it one of its own, what it
    /// waits for and how, what its device made of it, and how long it takes.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = wakegraph::Device::open("host")?;
    /// # let (x, out) = (device.buffer::<u32>(4)?, device.host_buffer::<u32>(4)?);
    /// let mut graph = wakegraph::Graph::new(&device);
    /// graph.copy(&x, &out);
    /// graph.host_task((wakegraph::read(&out),), async |(_out,)| {});
    /// graph.copy(&x, &out);
    /// let exec = graph.finalize()?;
    /// let explanation = exec.explain();
    /// println!("{explanation}");
    /// assert_eq!(explanation.partitions[2].waits_for[0].partition, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(&self) -> Explanation {
        Explanation::of(&self.inner)
    }

    /// The plan in Graphviz' language, partitions as clusters.
    pub fn plan_dot(&self) -> String {
        self.inner.labels.dot()
    }
}

impl Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableGraph")
            .field("name", &self.name())
            .field("nodes", &self.inner.labels.plan.node_count())
            .field("partitions", &self.inner.partitions.len())
            .finish_non_exhaustive()
    }
}
