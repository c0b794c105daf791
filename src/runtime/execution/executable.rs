//! Executable graphs: what `finalize` makes, to be submitted many times.

use std::fmt::{self, Debug};
use std::mem;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::hal::{self, Progress};
use crate::plan::{ExecutionOrder, PartitionPolicy, Plan};
use crate::runtime::builder::Graph;
use crate::runtime::completion::estimate::{Guess, Prediction};
use crate::runtime::execution::batching::Batcher;
use crate::runtime::execution::conflicts::{Contested, ExecutableId, Predecessor};
use crate::runtime::execution::fence::Gate;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::labels::Outline;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::submission::Submission;
use crate::runtime::execution::submit::{self, SubmitBuilder};
use crate::runtime::execution::updatable_cell::Versioned;
use crate::runtime::resource::allocation::Allocation;
use crate::runtime::resource::device::Device;
use crate::runtime::resource::scratch::{GraphMemory, Places};
use crate::runtime::update::{self, Applied, Updatable, Update};
use crate::sync::{AtomicU32, AtomicU64};
use crate::types::Error;
use crate::util::adaptive_spin::AdaptiveSpin;
use crate::util::deferred_drop::{drop_later, drop_unless_nested};

/// How to finalize a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FinalizeOptions {
    /// How nodes are grouped into partitions.
    pub partition: PartitionPolicy,
    /// In which order a partition's commands are appended.
    pub order: ExecutionOrder,
    /// Run every partition's commands one after the other, without sync-points: a hint for graphs
    /// with little to run side by side.
    pub in_order: bool,
    /// Record times of nodes and partitions. Off, it costs nothing.
    pub profiling: bool,
    /// Let the executable be [updated](ExecutableGraph::update). Off, it costs nothing.
    pub updatable: bool,
}

impl FinalizeOptions {
    /// The defaults: signatures, depth-first, sync-points, no profiling, no updates.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how nodes are grouped into partitions.
    #[must_use]
    pub fn partition(self, partition: PartitionPolicy) -> Self {
        Self { partition, ..self }
    }

    /// Sets the order of a partition's commands.
    #[must_use]
    pub fn order(self, order: ExecutionOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the in-order hint.
    #[must_use]
    pub fn in_order(self, in_order: bool) -> Self {
        Self { in_order, ..self }
    }

    /// Sets profiling.
    #[must_use]
    pub fn profiling(self, profiling: bool) -> Self {
        Self { profiling, ..self }
    }

    /// Sets whether the executable can be updated.
    #[must_use]
    pub fn updatable(self, updatable: bool) -> Self {
        Self { updatable, ..self }
    }
}

/// A finalized graph: planned, recorded into command-buffers, submitted as often as you like. Its
/// topology never changes; what its nodes work on can be [updated](Self::update).
///
/// Clones are handles to the same executable. Its runs never overlap: a second
/// [`submit`](Self::submit) is ordered after the first, without anybody waiting in between.
/// Different executables overlap freely, except where they use the same memory in conflicting ways:
/// then they run in the order of their submissions.
#[derive(Clone)]
pub struct ExecutableGraph {
    pub(crate) shared: Handle,
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
    /// the host task is over, as a whole. Nobody can see such a cycle from outside. Submit from the
    /// host task without awaiting, or await elsewhere. The same holds for a
    /// [`HostBuffer`](crate::HostBuffer)'s guard: await no submission that uses the buffer while
    /// holding it.
    ///
    /// # Errors
    /// All errors come out of the [`Submission`].
    ///
    /// # Cancel safety
    /// Not async: when it returns, the run is on its way whether or not the future is polled.
    pub fn submit(&self) -> Submission {
        submit::submit(&self.shared)
    }

    /// Prepares a submission with a wait list.
    ///
    /// ```no_run
    /// # async fn example(decode: wakegraph::ExecutableGraph, infer: wakegraph::ExecutableGraph) -> wakegraph::Result<()> {
    /// let decoded = decode.submit();
    /// infer.prepare().after(&decoded).submit().await
    /// # }
    /// ```
    pub fn prepare(&self) -> SubmitBuilder<'_> {
        SubmitBuilder::new(&self.shared)
    }

    /// The memory of its own that the executable has for [scratch buffers](crate::Graph::scratch), by device.
    pub fn graph_memory(&self) -> &[GraphMemory] {
        &self.shared.scratch.memory
    }

    /// Prepares a change of kernels' arguments and ranges, and of which nodes do anything: of an
    /// executable that was finalized as [`updatable`](FinalizeOptions::updatable).
    ///
    /// ```
    /// # use wakegraph::{Device, FinalizeOptions, Graph, Range};
    /// # wakegraph::kernel! {
    /// #     fn add(n: u32, x: &mut [u32]) { item: |i, n, x| x[i] += n }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # let device = Device::open("host")?;
    /// let x = device.buffer::<u32>(3)?;
    /// let mut graph = Graph::new(&device);
    /// let node = graph.launch(add(1, &x), Range::linear(3)).id();
    /// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true))?;
    ///
    /// let before = exec.submit();
    /// exec.update().launch(node, add(10, &x)).apply().await?;
    /// let after = exec.submit();
    /// before.await?;
    /// after.await?;
    /// assert_eq!(x.to_vec().await?, [11; 3]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn update(&self) -> Update<'_> {
        Update::new(&self.shared)
    }

    /// Makes the executable do what `graph` says, as if it had been finalized from it: new
    /// operands, ranges and host tasks in the same topology. All nodes are enabled then.
    ///
    /// Applies after the submissions already made and before later ones, as [`Update::apply`] does,
    /// with all that is said there. `graph` is read before this returns; its ids are not those of
    /// the executable's nodes, whose own stay good.
    ///
    /// Before the update takes its place, this records the graph on the calling thread, as
    /// [`finalize`](Graph::finalize) does: kernels that are new to the device are loaded, which may
    /// take long, and the closures of [native commands](Graph::native) are called. Meanwhile the
    /// executable can be submitted and updated by others, and by these closures: that comes before
    /// this update.
    ///
    /// # Errors
    /// They come out of the future, and the executable is as it was.
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when it is not updatable;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when the graph has other nodes, on
    /// other devices, or other edges, compared in the order in which they were added, or launches a
    /// kernel that is neither the node's own nor a [registered
    /// alternative](crate::NodeBuilder::alternative): each difference by its nodes' names, or has
    /// [scratch buffers](crate::Graph::scratch); the first of the graph's own
    /// [errors](crate::Graph::errors); those of the devices.
    pub fn update_from(&self, graph: &Graph) -> Applied {
        update::apply(&self.shared, update::whole(&self.shared, graph))
    }

    /// The plan: partitions, their dependencies, sync-points. Prints as a list of instructions with
    /// the nodes' names.
    pub fn plan(&self) -> &Plan {
        &self.shared.outline.plan
    }

    /// The plan as it prints, with the nodes' names.
    pub fn plan_text(&self) -> String {
        self.shared.outline.text(|partition| self.shared.partitions[partition].lowering())
    }

    /// The plan in Graphviz' language, partitions as clusters.
    pub fn plan_dot(&self) -> String {
        self.shared.outline.dot()
    }
}

impl Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableGraph")
            .field("nodes", &self.shared.outline.plan.node_count())
            .field("partitions", &self.shared.partitions.len())
            .finish_non_exhaustive()
    }
}

/// What all handles and runs of one executable share.
pub(crate) struct Shared {
    pub(crate) id: ExecutableId,
    pub(crate) outline: Arc<Outline>,
    pub(crate) partitions: Partitions,
    /// Keeps the memory alive that the commands use.
    pub(crate) allocations: Box<[Arc<Allocation>]>,
    /// Where the graph's scratch buffers lie.
    pub(crate) scratch: Places,
    /// What an update needs to know, if there can be one; then it keeps the memory alive.
    pub(crate) updatable: Option<Box<Updatable>>,
    pub(crate) profiling: bool,
    /// Partitions without a predecessor, and without a successor.
    pub(crate) roots: Box<[u32]>,
    pub(crate) tails: Box<[u32]>,
    /// Whether no partition needs the host: then a run is enqueued at once and devices can wait for
    /// its tails.
    pub(crate) all_eager: bool,
    /// Whether a device does not notify, so that whoever waits has to look.
    pub(crate) polled: bool,
    /// What a thread that waits for the devices does to their work.
    pub(crate) progress: Progress,
    /// Where runs can be left to while many are in flight.
    pub(crate) batcher: Option<Arc<Batcher>>,
    /// The number of the last run that is over, other than by the loss of a device.
    pub(crate) ended: AtomicU64,
    pub(crate) state: Mutex<State>,
}

/// A user's reference to an executable.
///
/// The last one drops the executable on the user's thread, so that its memory is free afterwards.
#[derive(Clone)]
pub(crate) struct Handle(Option<Arc<Shared>>);

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self(Some(shared))
    }
}

impl Deref for Handle {
    type Target = Arc<Shared>;

    fn deref(&self) -> &Arc<Shared> {
        self.0.as_ref().expect("a handle has its executable until it is dropped")
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(mut shared) = self.0.take().and_then(Arc::into_inner) {
            drop_unless_nested(shared.take_resources());
        }
    }
}

/// What an executable holds of users and devices.
struct Resources {
    _partitions: Partitions,
    _allocations: Box<[Arc<Allocation>]>,
    _scratch: Places,
    _updatable: Option<Box<Updatable>>,
    _state: State,
}

impl Shared {
    fn take_resources(&mut self) -> Resources {
        Resources {
            _partitions: mem::take(&mut self.partitions),
            _allocations: mem::take(&mut self.allocations),
            _scratch: mem::take(&mut self.scratch),
            _updatable: self.updatable.take(),
            _state: mem::take(self.state.get_mut()),
        }
    }
}

impl Drop for Shared {
    /// Where the last reference is not a [`Handle`], the runtime holds it: in a run that has just
    /// ended, say. Nobody knows then what locks are held, or who needs the thread.
    fn drop(&mut self) {
        let has_handle_dropped_it = self.partitions.is_empty();
        if !has_handle_dropped_it {
            drop_later(self.take_resources());
        }
    }
}

/// The partitions of an executable.
///
/// They are dropped from the last to the first, and so are the driver's objects, which were made
/// from the first to the last: PoCL searches for an object to be released among all that it has
/// made since.
#[derive(Default)]
pub(crate) struct Partitions(Vec<PartitionExec>);

impl From<Vec<PartitionExec>> for Partitions {
    fn from(partitions: Vec<PartitionExec>) -> Self {
        Self(partitions)
    }
}

impl Deref for Partitions {
    type Target = [PartitionExec];

    fn deref(&self) -> &[PartitionExec] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a Partitions {
    type Item = &'a PartitionExec;
    type IntoIter = std::slice::Iter<'a, PartitionExec>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// One partition, ready to run.
pub(crate) struct PartitionExec {
    pub(crate) work: Work,
    /// Enqueued by `submit` itself: every predecessor is, too, and its device can wait for them.
    pub(crate) eager: bool,
    /// How many predecessors its task waits for on the host.
    pub(crate) host_predecessors: u32,
    /// All predecessors.
    pub(crate) predecessors: Box<[u32]>,
    /// Those that its queue waits for itself.
    pub(crate) device_predecessors: Box<[u32]>,
    /// Whether the queues of other partitions wait for this one.
    pub(crate) feeds_devices: bool,
    /// Successors whose tasks wait for this partition.
    pub(crate) wakes: Box<[u32]>,
    /// How long it takes from its enqueue to its end, where nothing else is in flight.
    pub(crate) prediction: Prediction,
    /// How long its queue takes for it, as the reactor has seen it.
    pub(crate) queue_time: Prediction,
}

pub(crate) enum Work {
    Device {
        device: Device,
        queue: Arc<dyn hal::Queue>,
        lane: u64,
        command_buffer: Versioned<Box<dyn hal::CommandBuffer>>,
    },
    HostTask(Versioned<Arc<HostTask>>),
}

impl PartitionExec {
    /// What the device made of the commands.
    pub(crate) fn lowering(&self) -> Option<&'static str> {
        match &self.work {
            Work::Device { command_buffer, .. } => Some(command_buffer.with(|buffer| buffer.info().lowering)),
            Work::HostTask(_) => None,
        }
    }

    pub(crate) fn device(&self) -> Option<&Device> {
        match &self.work {
            Work::Device { device, .. } => Some(device),
            Work::HostTask(_) => None,
        }
    }
}

impl Shared {
    /// Why the executable must not run any more, after an update that could not be taken back.
    pub(crate) fn broken(&self) -> Option<&Error> {
        self.updatable.as_ref()?.broken()
    }

    /// How long a run takes whose partitions are all enqueued at once; `None` while that is not known.
    pub(crate) fn expected(&self) -> Option<Duration> {
        let mut longest = None;
        for partition in &self.partitions {
            longest = longest.max(Some(partition.prediction.expected()?));
        }
        longest
    }

    /// How long a partition takes from when its queue has come to it: as seen so far, or, where it
    /// is the only one and submissions have seen its ends themselves, as long as a run.
    pub(crate) fn expected_of(&self, partition: usize) -> Option<Guess> {
        let seen = self.partitions[partition].queue_time.guess();
        seen.or_else(|| if let [only] = &*self.partitions { only.prediction.guess() } else { None })
    }

    /// Where the runs in flight are counted on the first device that has to be polled.
    pub(crate) fn in_flight(&self) -> Option<Arc<AtomicU32>> {
        let mut devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.find(|device| !device.capabilities().notifies).map(|device| device.in_flight().clone())
    }

    /// How long a poll of a submission may spin. The most careful device decides.
    pub(crate) fn spin_limit(&self) -> Duration {
        let devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.map(|device| device.wake_policy().spin_limit_for(self.progress)).min().unwrap_or_default()
    }
}

/// What changes from submission to submission.
#[derive(Default)]
pub(crate) struct State {
    /// How many runs there have been.
    pub(crate) runs: u64,
    /// The run submitted last. When it is over, all earlier ones are.
    pub(crate) last: Option<Arc<Run>>,
    /// Earlier runs, oldest first, kept for reuse.
    spare: std::collections::VecDeque<Arc<Run>>,
    /// Whether submissions should spin, learned from the runs that are reused.
    pub(crate) patience: AdaptiveSpin,
    /// Whether runs should share queues, learned likewise.
    pub(crate) sharing: AdaptiveSpin,
    /// Updates of this executable that later runs have to wait for.
    pub(crate) gates: Vec<Arc<Gate>>,
    /// The memory whose registers a submission has to consult.
    pub(crate) contested: Contested,
}

/// More runs than this are not kept for reuse: it bounds the memory that a burst leaves behind.
const MOST_SPARE: usize = 16_384;

/// As many are kept for good. What a burst left beyond them is given back while no two runs are in flight.
const FEW_SPARE: usize = 64;

/// Of what a burst left, each submission gives back this part, a divisor: some hundred of them all,
/// and few enough where the next burst follows soon.
const GIVEN_BACK: usize = 64;

impl State {
    pub(crate) fn last_unfinished(&self) -> Option<Arc<Run>> {
        self.last.as_ref().filter(|run| !run.is_done()).cloned()
    }

    pub(crate) fn is_last(&self, predecessor: &Predecessor) -> bool {
        let Predecessor::Run(run) = predecessor else { return false };
        self.last.as_ref().is_some_and(|last| Arc::ptr_eq(last, run))
    }

    /// A run that is over and that nobody holds any more, made ready by `reset`.
    pub(crate) fn take_reusable(&mut self, reset: impl Fn(&mut Run)) -> Option<Arc<Run>> {
        let (patience, sharing) = (&mut self.patience, &mut self.sharing);
        let mut reuse = |run: &mut Arc<Run>| {
            let Some(run) = run.is_done().then(|| Arc::get_mut(run)).flatten() else { return false };
            if let Some(found) = run.spin() {
                patience.record(found);
            }
            if let Some(well) = run.shared_well() {
                sharing.record(well);
            }
            reset(run);
            true
        };
        if self.last.as_mut().is_some_and(&mut reuse) {
            let surplus = self.spare.len().saturating_sub(FEW_SPARE);
            if surplus > 0 {
                self.spare.drain(..surplus.div_ceil(GIVEN_BACK));
            }
            return self.last.take();
        }
        // Runs finish in order, so the oldest is the likeliest; one that somebody still holds goes
        // to the back.
        for _ in 0..self.spare.len().min(8) {
            let mut oldest = self.spare.pop_front()?;
            if reuse(&mut oldest) {
                return Some(oldest);
            }
            self.spare.push_back(oldest);
        }
        None
    }

    /// Makes `run` the last one.
    pub(crate) fn submitted(&mut self, run: &Arc<Run>) {
        // One that failed before it began says nothing about the runs before it, which may still be
        // in flight.
        if run.is_done() && run.result().is_err() {
            return;
        }
        if let Some(previous) = self.last.replace(run.clone())
            && self.spare.len() < MOST_SPARE
        {
            self.spare.push_back(previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{FakeDevice, FakeOptions};

    #[test]
    fn a_burst_leaves_few_runs_behind() {
        const BURST: usize = 5_000;
        let (device, control) = FakeDevice::open(FakeOptions::new().manual(true));
        let device = Device::from_hal(device);
        let x = device.buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&x, 1);
        let exec = graph.finalize().unwrap();
        (0..BURST).for_each(|_| drop(exec.submit()));
        control.complete_all();
        assert!(exec.shared.state.lock().spare.len() >= BURST - 1);
        for _ in 0..500 {
            drop(exec.submit());
            control.complete_all();
        }
        assert_eq!(exec.shared.state.lock().spare.len(), FEW_SPARE);
    }
}
