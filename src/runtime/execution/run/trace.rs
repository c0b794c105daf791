//! What `tracing`, tokio-console and NVTX's tools see of a run. A run has a trace only if one of them
//! listens when it is submitted.
//!
//! While a recording is on, every run that is submitted has a trace, and is kept until the recording reads its
//! times.
//!
//! The page `docs/tracing.md` lists every span and event; a test compares the two.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, debug, debug_span, span_enabled, trace, trace_span};

use crate::runtime::completion::clock;
use crate::runtime::execution::labels::{Labels, list_names};
use crate::runtime::execution::polls::PollLog;
use crate::runtime::execution::progress::list_causes;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::sync::{AtomicU64, Ordering};
use crate::types::{ResourceId, Result};
use crate::util::console::{self, AsyncOperation};
use crate::util::nvtx::{self, NvtxRange, NvtxThreadRange};
use crate::util::panics::catch_and_log;

const RUN: &str = "wakegraph::run";
const PARTITION: &str = "wakegraph::partition";
const HOST_TASK: &str = "wakegraph::host_task";

/// The spans of one run, and its partitions as operations of their queues.
#[derive(Debug)]
pub(crate) struct RunTrace {
    /// Ties together all that is traced of the run, in the whole process.
    pub(crate) id: u64,
    /// The number of the run within its executable.
    pub(crate) submission: u64,
    pub(crate) labels: Arc<Labels>,
    /// What a command of a queue is called.
    pub(crate) command: Option<String>,
    /// The device memory that it uses: each allocation, with its bytes.
    pub(crate) memory: Box<[(ResourceId, u64)]>,
    /// When it was submitted, in nanoseconds of the runtime's clock.
    pub(crate) submitted: u64,
    /// When it was over; 0 until then.
    ended: AtomicU64,
    /// The runs that it was ordered after.
    follows: Mutex<Vec<u64>>,
    span: Span,
    /// Until it is over.
    range: Mutex<Option<NvtxRange>>,
    partitions: Mutex<Box<[PartitionTrace]>>,
}

/// When something of a partition happened, in nanoseconds of the runtime's clock; 0 for what has not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartitionMoments {
    /// The number of its queue in the reactor.
    pub(crate) queue: Option<u64>,
    /// A device was handed it, or the closure of a host task was called.
    pub(crate) began: u64,
    /// Its end was noticed.
    pub(crate) ended: u64,
}

#[derive(Debug)]
struct PartitionTrace {
    /// Disabled once the partition is over.
    span: Span,
    /// There until a task has found it ready.
    operation: Option<AsyncOperation>,
    /// The predecessors that are not over.
    waits_for: SmallVec<[u32; 4]>,
    is_over: bool,
    moments: PartitionMoments,
    /// Of a host task, while a timeline is recorded.
    polls: Option<Arc<PollLog>>,
    /// While a host task runs.
    range: Option<NvtxRange>,
}

impl PartitionMoments {
    /// Only the first call counts.
    fn begin(&mut self) {
        if self.began == 0 {
            self.began = clock::now();
        }
    }
}

impl RunTrace {
    /// Whether a subscriber listens to runs, or they are recorded.
    pub(super) fn is_wanted() -> bool {
        // One load where no subscriber listens at any of these levels.
        (LevelFilter::current() >= Level::DEBUG
            && (span_enabled!(target: RUN, Level::DEBUG, run)
                || span_enabled!(target: PARTITION, Level::TRACE, run)
                || span_enabled!(target: HOST_TASK, Level::DEBUG, run)
                || console::has_listener()))
            || is_recording()
            || nvtx::has_listener()
    }

    /// The trace of the owner's run with this number.
    pub(super) fn new(owner: &dyn RunOwner, number: u64) -> Arc<Self> {
        // One of the standard library, as loom has none for statics.
        static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let partitions = &owner.partitions;
        let span =
            debug_span!(target: RUN, "run", run = id, submission = number, partitions = partitions.len());
        let (operations, is_recording) = (console::has_listener(), is_recording());
        let mut traces: Vec<PartitionTrace> = Vec::with_capacity(partitions.len());
        for (index, partition) in partitions.iter().enumerate() {
            let device = partition.device().map_or("host", |device| device.selector());
            let nodes = nodes(owner, index);
            let span = trace_span!(
                target: PARTITION,
                parent: span.id(),
                "partition",
                run = id,
                partition = index,
                device,
                nodes = &*nodes
            );
            let waits_for = SmallVec::from(&*partition.predecessors);
            waits_for.iter().for_each(|&p: &u32| _ = span.follows_from(&traces[p as usize].span));
            let operation = operations.then(|| {
                let resource = partition.console_resource().unwrap_or(&owner.console);
                let source = if owner.command().is_some() { "Queue" } else { "ExecutableGraph::submit" };
                let operation = AsyncOperation::new(resource, source);
                operation.describe(index, device, &nodes);
                operation.set_state("waiting", &list(&waits_for));
                operation
            });
            let moments = PartitionMoments { queue: partition.queue_number(), ..PartitionMoments::default() };
            let polls = (is_recording && partition.device().is_none()).then(Arc::default);
            traces.push(PartitionTrace {
                span,
                operation,
                waits_for,
                is_over: false,
                moments,
                polls,
                range: None,
            });
        }
        let command = owner.command_label().map(|(label, _)| label.into_owned());
        let range = NvtxRange::start(id, || match &command {
            Some(command) => format!("run {id}: {command}"),
            None => format!("run {id}: submission {number}"),
        });
        Arc::new(Self {
            id,
            submission: number,
            labels: owner.labels.clone(),
            command,
            memory: owner.device_memory().into(),
            submitted: clock::now(),
            ended: AtomicU64::new(0),
            follows: Mutex::default(),
            span,
            range: Mutex::new(range),
            partitions: Mutex::new(traces.into()),
        })
    }

    /// The run starts, after what it had to wait for on the host.
    fn started(&self) {
        self.span.in_scope(|| trace!(target: RUN, run = self.id, "started"));
    }

    /// A device has been handed a partition.
    fn enqueued(&self, partition: usize) {
        let mut partitions = self.partitions.lock();
        let trace = &mut partitions[partition];
        trace.moments.begin();
        trace.span.in_scope(|| trace!(target: PARTITION, run = self.id, partition, "enqueued"));
        trace.set_state("on its device");
    }

    /// A partition is over. Only the first call for a partition counts.
    fn partition_ended(&self, partition: usize, succeeded: bool) {
        let Some(span) = self.take_span(partition, succeeded) else { return };
        span.in_scope(|| trace!(target: PARTITION, run = self.id, partition, succeeded, "finished"));
    }

    /// The span of a partition that is over, the first time.
    fn take_span(&self, partition: usize, succeeded: bool) -> Option<Span> {
        let mut partitions = self.partitions.lock();
        let trace = &mut partitions[partition];
        if std::mem::replace(&mut trace.is_over, true) {
            return None;
        }
        trace.moments.ended = clock::now();
        trace.range = None;
        trace.waits_for.clear();
        let span = std::mem::replace(&mut trace.span, Span::none());
        trace.set_state(if succeeded { "finished" } else { "failed or not started" });
        for &later in self.labels.plan.successors(partition) {
            #[cfg(test)]
            tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
            let later = &mut partitions[later as usize];
            later.waits_for.retain(|waits_for| *waits_for as usize != partition);
            if !later.is_over {
                later.set_state("waiting");
            }
        }
        Some(span)
    }

    /// When it was over; `None` until then.
    pub(crate) fn ended(&self) -> Option<u64> {
        Some(self.ended.load(Ordering::Acquire)).filter(|&ended| ended > 0)
    }

    /// The numbers of the runs that it was ordered after.
    pub(crate) fn follows(&self) -> Vec<u64> {
        self.follows.lock().clone()
    }

    /// When its partitions began and ended.
    pub(crate) fn moments(&self) -> Vec<PartitionMoments> {
        self.partitions.lock().iter().map(|partition| partition.moments).collect()
    }

    /// Where it is noted when threads run a host task, if a timeline was recorded when the run was submitted.
    pub(crate) fn polls(&self, partition: usize) -> Option<Arc<PollLog>> {
        self.partitions.lock()[partition].polls.clone()
    }

    /// The run is over.
    fn finished(&self, result: &Result<()>) {
        self.ended.store(clock::now(), Ordering::Release);
        *self.range.lock() = None;
        self.span.in_scope(|| match result {
            Ok(()) => debug!(target: RUN, run = self.id, succeeded = true, "finished"),
            Err(error) => debug!(target: RUN, run = self.id, succeeded = false, %error, "finished"),
        });
    }

    /// The task that awaits the run polls.
    pub(crate) fn poll(&self) {
        for trace in self.partitions.lock().iter_mut() {
            let operation = trace.operation.take_if(|_| trace.is_over);
            operation.iter().chain(&trace.operation).for_each(|operation| operation.poll(trace.is_over));
        }
    }
}

impl PartitionTrace {
    fn set_state(&self, state: &str) {
        if let Some(operation) = &self.operation {
            operation.set_state(state, &list(&self.waits_for));
        }
    }
}

impl Run {
    /// The trace, while the run is in flight, if a subscriber listens.
    pub(crate) fn trace(&self) -> Option<Arc<RunTrace>> {
        if self.is_traced { self.extra(|extras| extras.until_end.trace.clone()) } else { None }
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Tells the trace, if there is one. What listens to it is the user's: its panic must neither keep a run
    /// that devices have been given out of the order, nor keep one from ending.
    fn tell_trace(&self, tell: impl FnOnce(&RunTrace)) {
        if let Some(trace) = self.trace() {
            catch_and_log("what traces a run", || tell(&trace));
        }
    }

    /// The run starts, after what it had to wait for on the host.
    pub(crate) fn trace_start(&self) {
        self.tell_trace(RunTrace::started);
    }

    /// A task waits to start the run, for a guard among others.
    pub(crate) fn trace_guard(&self, template: &RunTemplate) {
        self.tell_trace(|trace| {
            let waits_for = list_causes(&self.waits_for(template));
            trace.span.in_scope(|| debug!(target: RUN, run = trace.id, waits_for, "waits for a guard"));
        });
    }

    /// The run was ordered after another.
    pub(crate) fn trace_follows(&self, earlier: &Self) {
        self.tell_trace(|trace| {
            if let Some(earlier) = earlier.trace() {
                trace.span.follows_from(&earlier.span);
                trace.follows.lock().push(earlier.id);
            }
        });
    }

    /// A partition is about to be enqueued. The device may have run it before the enqueue returns, until when
    /// the range is kept.
    pub(super) fn trace_begin(&self, partition: usize) -> Option<NvtxThreadRange> {
        let trace = self.trace()?;
        trace.partitions.lock()[partition].moments.begin();
        NvtxThreadRange::start(trace.id, || match &trace.command {
            Some(command) => format!("enqueue {command}"),
            None => format!("enqueue {}", list_names(trace.labels.names(partition))),
        })
    }

    pub(super) fn trace_enqueued(&self, partition: usize) {
        self.tell_trace(|trace| trace.enqueued(partition));
    }

    pub(super) fn trace_end(&self, partition: usize, succeeded: bool) {
        self.tell_trace(|trace| trace.partition_ended(partition, succeeded));
    }

    /// The run is over. A thread that has ended a partition may not have come to say so yet.
    pub(super) fn finish_trace(&self, trace: &RunTrace) {
        for partition in 0..self.slots.len() {
            trace.partition_ended(partition, self.has_succeeded(partition));
        }
        trace.finished(&self.result());
    }

    /// The span around the closure of a host task.
    pub(super) fn trace_host_task(&self, owner: &dyn RunOwner, partition: usize) -> Span {
        let Some(trace) = self.trace() else { return Span::none() };
        let mut partitions = trace.partitions.lock();
        let own = &mut partitions[partition];
        own.moments.begin();
        own.set_state("running on the host");
        own.range = NvtxRange::start(trace.id, || nodes(owner, partition).into_owned());
        let enqueued_at = owner.command_label().map(|(_, location)| location);
        let location = enqueued_at.or(owner.labels.location_of(partition));
        debug_span!(
            target: HOST_TASK,
            parent: own.span.id().or(trace.span.id()),
            "host_task",
            run = trace.id,
            partition,
            node = &*nodes(owner, partition),
            location = location.map(tracing::field::display),
        )
    }
}

/// The names of a partition's nodes, or of the first of them.
fn nodes(owner: &dyn RunOwner, partition: usize) -> Cow<'_, str> {
    owner.command_label().map_or_else(|| list_names(owner.labels.names(partition)).into(), |(label, _)| label)
}

fn list(partitions: &[u32]) -> String {
    partitions.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The recordings that are on.
static RECORDERS: Mutex<Vec<Arc<RunRecorder>>> = Mutex::new(Vec::new());

/// How many those are: submissions read this, and no more where there is none.
static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// So many runs are kept, which bounds the memory of a recording that is left on.
const MOST_RUNS: usize = 10_000;

/// Whether a recording is on.
fn is_recording() -> bool {
    COUNT.load(Ordering::Relaxed) > 0
}

/// A run, and its trace, which has its times.
type RecordedRun = (Arc<Run>, Arc<RunTrace>);

/// The runs of one recording.
#[derive(Debug, Default)]
pub(crate) struct RunRecorder {
    runs: Mutex<Vec<RecordedRun>>,
    /// How many more there were.
    omitted: AtomicU64,
}

impl RunRecorder {
    /// Records the runs that are submitted from now on.
    pub(crate) fn start() -> Arc<Self> {
        let recorder = Arc::new(Self::default());
        RECORDERS.lock().push(recorder.clone());
        COUNT.fetch_add(1, Ordering::Relaxed);
        recorder
    }

    /// Records no more runs.
    pub(crate) fn stop(self: &Arc<Self>) {
        let mut all = RECORDERS.lock();
        if let Some(at) = all.iter().position(|other| Arc::ptr_eq(other, self)) {
            all.swap_remove(at);
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The runs, in the order of their submissions, and how many there were beyond those.
    pub(crate) fn take(&self) -> (Vec<RecordedRun>, u64) {
        (std::mem::take(&mut *self.runs.lock()), self.omitted.load(Ordering::Relaxed))
    }
}

impl Run {
    /// Has the recordings that are on keep the run, which is about to start. It is not reused meanwhile.
    pub(crate) fn record(self: &Arc<Self>) {
        if !self.is_traced() || !is_recording() {
            return;
        }
        let Some(trace) = self.trace() else { return };
        for recorder in &*RECORDERS.lock() {
            let mut runs = recorder.runs.lock();
            if runs.len() < MOST_RUNS {
                runs.push((self.clone(), trace.clone()));
            } else {
                recorder.omitted.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::Timeline;
    use crate::runtime::{Device, Graph};

    thread_local! {
        /// How many partitions this thread has looked at because another was over.
        pub(super) static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
    }

    #[tokio::test]
    async fn the_end_of_a_partition_concerns_those_that_wait_for_it() {
        const PARTITIONS: usize = 200;
        let device = Device::open("host:942").unwrap();
        let mut graph = Graph::new(&device);
        let mut last = None;
        for _ in 0..PARTITIONS {
            let task = graph.host_task((), async |()| ());
            last = Some(task.after(last).id());
        }
        let exec = graph.finalize().unwrap();
        let recording = Timeline::record();
        let before = LOOKED_AT.get();
        exec.submit().await.unwrap();
        let looked_at = LOOKED_AT.get() - before;
        drop(recording);
        assert_eq!(looked_at, PARTITIONS - 1);
    }
}
