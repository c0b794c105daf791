//! Reports of a run: what `tracing`, tokio-console and NVTX's tools see of it, and how far it is.
//!
//! A run has a trace only if one of these listens when it is submitted. While a recording is on, every run
//! that is submitted has a trace, and is kept until the recording reads its times.
//!
//! The page `docs/tracing.md` lists every span and event; a test compares the two.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;
use tracing::level_filters::LevelFilter;
use tracing::{Level, Span, debug, debug_span, span_enabled, trace, trace_span};
use wakegraph_hal::{Error, EventStatus, ResourceId, Result};

use crate::runtime::completion::clock;
use crate::runtime::execution::host_task::PollLog;
use crate::runtime::execution::labels::{Labels, NodeLabel, list_names};
use crate::runtime::execution::progress::{
    PartitionProgress, PartitionState, SubmissionProgress, list_causes,
};
use crate::runtime::execution::run::{ENQUEUED, FAILED, Predecessor, Run, SUCCEEDED};
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicU64, Ordering};
use crate::util::console::{self, AsyncOperation};
use crate::util::event_log::EventLogs;
use crate::util::nvtx::{self, NvtxRange, NvtxThreadRange};

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
    /// The name of a queue's command.
    pub(crate) command: Option<String>,
    /// The device memory that it uses: each allocation, with its bytes.
    pub(crate) memory: Box<[(ResourceId, u64)]>,
    /// Time at which it was submitted, in nanoseconds of the runtime's clock.
    pub(crate) submitted: u64,
    /// Time at which it ended; 0 until then.
    ended: AtomicU64,
    /// The runs that it was ordered after.
    follows: Mutex<Vec<u64>>,
    span: Span,
    /// Until it has ended.
    range: Mutex<Option<NvtxRange>>,
    partitions: Mutex<Box<[PartitionTrace]>>,
}

/// Times of what happened to a partition, in nanoseconds of the runtime's clock; 0 for what has not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartitionMoments {
    /// The number of its queue in the reactor.
    pub(crate) queue: Option<u64>,
    /// A device was handed it, or the closure of a host task was called.
    pub(crate) began: u64,
    /// The end was noticed.
    pub(crate) ended: u64,
}

#[derive(Debug)]
struct PartitionTrace {
    /// Disabled once the partition has ended.
    span: Span,
    /// Present until a task has found it ready.
    operation: Option<AsyncOperation>,
    /// The predecessors that have not ended.
    waits_for: SmallVec<[u32; 4]>,
    has_ended: bool,
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
            || RUN_LOGS.is_recording()
            || nvtx::has_listener()
    }

    /// The trace of the owner's run with this number.
    pub(super) fn new(owner: &dyn RunOwner, number: u64) -> Arc<Self> {
        // One of the standard library, as loom has none for statics.
        static LAST: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let partitions = &owner.partitions;
        let executable = owner.labels.executable.as_deref();
        let span = debug_span!(
            target: RUN,
            "run",
            run = id,
            submission = number,
            partitions = partitions.len(),
            executable
        );
        let (operations, is_recording) = (console::has_listener(), RUN_LOGS.is_recording());
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
                let resource = partition.queue().map_or(&owner.console, |queue| queue.console());
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
                has_ended: false,
                moments,
                polls,
                range: None,
            });
        }
        let command = owner.command_label().map(|(label, _)| label.into_owned());
        let range = NvtxRange::start(id, || match (&command, executable) {
            (Some(command), _) => format!("run {id}: {command}"),
            (None, Some(executable)) => format!("run {id}: submission {number} of '{executable}'"),
            (None, None) => format!("run {id}: submission {number}"),
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
    pub(crate) fn started(&self) {
        self.span.in_scope(|| trace!(target: RUN, run = self.id, "started"));
    }

    /// A device has been handed a partition.
    pub(super) fn enqueued(&self, partition: usize) {
        let mut partitions = self.partitions.lock();
        let trace = &mut partitions[partition];
        trace.moments.begin();
        trace.span.in_scope(|| trace!(target: PARTITION, run = self.id, partition, "enqueued"));
        trace.set_state("on its device");
    }

    /// A partition has ended. Only the first call for a partition counts.
    pub(super) fn partition_ended(&self, partition: usize, succeeded: bool) {
        let Some(span) = self.take_span(partition, succeeded) else { return };
        span.in_scope(|| trace!(target: PARTITION, run = self.id, partition, succeeded, "finished"));
    }

    /// The span of a partition that has ended, the first time.
    fn take_span(&self, partition: usize, succeeded: bool) -> Option<Span> {
        let mut partitions = self.partitions.lock();
        let trace = &mut partitions[partition];
        if std::mem::replace(&mut trace.has_ended, true) {
            return None;
        }
        trace.moments.ended = clock::now();
        trace.range = None;
        trace.waits_for.clear();
        let span = std::mem::replace(&mut trace.span, Span::none());
        trace.set_state(if succeeded { "finished" } else { "failed or not started" });
        for &later in self.labels.plan.successors(partition) {
            #[cfg(test)]
            tests::VISITED.set(tests::VISITED.get() + 1);
            let later = &mut partitions[later as usize];
            later.waits_for.retain(|waits_for| *waits_for as usize != partition);
            if !later.has_ended {
                later.set_state("waiting");
            }
        }
        Some(span)
    }

    /// Time at which it ended; `None` until then.
    pub(crate) fn ended(&self) -> Option<u64> {
        Some(self.ended.load(Ordering::Acquire)).filter(|&ended| ended > 0)
    }

    /// The numbers of the runs that it was ordered after.
    pub(crate) fn follows(&self) -> Vec<u64> {
        self.follows.lock().clone()
    }

    /// Begin and end of its partitions.
    pub(crate) fn moments(&self) -> Vec<PartitionMoments> {
        self.partitions.lock().iter().map(|partition| partition.moments).collect()
    }

    /// Record of when threads run a host task, if a timeline was recorded when the run was submitted.
    pub(crate) fn polls(&self, partition: usize) -> Option<Arc<PollLog>> {
        self.partitions.lock()[partition].polls.clone()
    }

    /// The run has ended.
    fn run_ended(&self, result: &Result<()>) {
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
            let operation = trace.operation.take_if(|_| trace.has_ended);
            operation.iter().chain(&trace.operation).for_each(|operation| operation.poll(trace.has_ended));
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

impl RunTrace {
    /// A task waits to start the run, for a guard among others.
    pub(crate) fn waits_for_guard(&self, waits_for: &[String]) {
        let waits_for = list_causes(waits_for);
        self.span.in_scope(|| debug!(target: RUN, run = self.id, waits_for, "waits for a guard"));
    }

    /// The run was ordered after another.
    pub(crate) fn comes_after(&self, earlier: &Run) {
        if let Some(earlier) = earlier.trace() {
            self.span.follows_from(&earlier.span);
            self.follows.lock().push(earlier.id);
        }
    }

    /// A partition is about to be enqueued. The device may have run it before the enqueue returns, until when
    /// the range is kept.
    pub(super) fn begin_enqueue(&self, partition: usize) -> Option<NvtxThreadRange> {
        self.partitions.lock()[partition].moments.begin();
        NvtxThreadRange::start(self.id, || match &self.command {
            Some(command) => format!("enqueue {command}"),
            None => format!("enqueue {}", list_names(self.labels.names(partition))),
        })
    }

    /// The run has ended. A thread that has ended a partition may not have come to say so yet.
    pub(super) fn end(&self, run: &Run) {
        for partition in 0..run.slots.len() {
            self.partition_ended(partition, run.has_succeeded(partition));
        }
        self.run_ended(&run.result());
    }

    /// The span around the closure of a host task.
    pub(super) fn begin_host_task(&self, owner: &dyn RunOwner, partition: usize) -> Span {
        let mut partitions = self.partitions.lock();
        let own = &mut partitions[partition];
        own.moments.begin();
        own.set_state("running on the host");
        own.range = NvtxRange::start(self.id, || nodes(owner, partition).into_owned());
        let enqueued_at = owner.command_label().map(|(_, location)| location);
        let location = enqueued_at.or(owner.labels.location_of(partition));
        debug_span!(
            target: HOST_TASK,
            parent: own.span.id().or(self.span.id()),
            "host_task",
            run = self.id,
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

/// A run, and its trace, which has its times.
pub(crate) type RecordedRun = (Arc<Run>, Arc<RunTrace>);

/// The recordings of runs.
pub(crate) static RUN_LOGS: EventLogs<RecordedRun> = EventLogs::new();

/// Has the recordings that are on keep a run, which is about to start. It is not reused meanwhile.
pub(crate) fn record_run(run: &Arc<Run>) {
    if run.is_traced()
        && RUN_LOGS.is_recording()
        && let Some(trace) = run.trace()
    {
        RUN_LOGS.record(&(run.clone(), trace.clone()));
    }
}

/// A run and its executable, to be reported on. Reads the states and the events of partitions, and changes
/// nothing.
pub(crate) struct RunReport<'a> {
    pub(crate) run: &'a Run,
    pub(crate) owner: &'a dyn RunOwner,
}

impl RunReport<'_> {
    /// Progress of the run.
    pub(super) fn progress(&self) -> SubmissionProgress {
        let template = self.owner.template();
        let is_behind_others = self.waits_for_others();
        let partition = |index: usize| {
            let labels = &template.labels;
            let nodes = labels.names(index).map(str::to_owned);
            let state = self.partition_state(index, is_behind_others);
            let percent = (state == PartitionState::Running).then(|| self.run.percent(index));
            PartitionProgress {
                partition: index as u32,
                nodes: self
                    .owner
                    .command_label()
                    .map_or_else(|| nodes.collect(), |(name, _)| vec![name.into_owned()]),
                device: labels.devices[index].as_ref().map(Device::selector).map(str::to_owned),
                state,
                percent_of_kernel: percent.flatten(),
            }
        };
        SubmissionProgress {
            executable: template.labels.executable.as_deref().map(str::to_owned),
            partitions: (0..template.partitions.len()).map(partition).collect(),
            waits_for: self.waits_for(),
        }
    }

    /// Lists what the run comes after or depends on and that has not ended, in words.
    pub(crate) fn waits_for(&self) -> Vec<String> {
        let template = self.owner.template();
        let (depends_on, comes_after) = self
            .run
            .extra(|extras| (extras.until_end.depends_on.clone(), extras.until_end.comes_after.clone()));
        let mut all: Vec<String> = Vec::new();
        for earlier in comes_after.iter().flat_map(Predecessor::unended) {
            match &earlier {
                Predecessor::Run(run) => {
                    let guard = run.noted_guard().filter(|guard| !guard.is_lifted());
                    let behind = guard.map_or_else(String::new, |guard| format!(", behind {guard}"));
                    all.extend(title(run, template).map(|title| title + &behind));
                }
                Predecessor::Fence(fence) => all.push(fence.to_string()),
                // It is one of these two by now.
                Predecessor::Guard(_) => {}
            }
        }
        for run in depends_on.iter().filter(|run| !run.has_ended()) {
            all.extend(title(run, template).filter(|title| !all.contains(title)));
        }
        // One that its device's queue orders by itself.
        if all.is_empty() && template.ended.load(Ordering::Acquire) + 1 < self.run.number {
            all.push("the submissions before it".into());
        }
        all
    }

    fn partition_state(&self, index: usize, is_behind_others: bool) -> PartitionState {
        let (run, partition) = (self.run, &self.owner.template().partitions[index]);
        let status = match run.state(index) {
            SUCCEEDED => return PartitionState::Completed,
            FAILED => return PartitionState::Failed,
            ENQUEUED => run.event(index).map(|event| event.status()),
            _ if run.is_in_batch() => run.batch_status(),
            _ => None,
        };
        let is_running = match status {
            Some(EventStatus::Complete) => return PartitionState::Completed,
            Some(EventStatus::Failed(_)) => return PartitionState::Failed,
            Some(EventStatus::Pending | EventStatus::Idle) => true,
            // A host task is called as soon as there is nothing left to wait for.
            None => partition.device().is_none() && run.slots[index].waiting_for.load(Ordering::Acquire) == 0,
        };
        if partition.device().is_none() && run.extra(|extras| extras.views_kept.contains(&index)) {
            return PartitionState::ViewsKept;
        }
        let mut on = partition.predecessors.to_vec();
        on.retain(|&earlier| !run.is_known_to_have_succeeded(earlier as usize));
        match is_running && on.is_empty() && !is_behind_others {
            true => PartitionState::Running,
            false => PartitionState::Waiting { on },
        }
    }

    /// Whether devices may have it wait for other runs.
    fn waits_for_others(&self) -> bool {
        self.owner.template().ended.load(Ordering::Acquire) + 1 < self.run.number
            || self.run.predecessors().iter().any(|earlier| !earlier.has_ended())
    }

    /// The run hangs. Until it has ended, the devices that run a partition of it are not healthy; if none
    /// does, those that have been given one.
    pub(super) fn set_stalled(&self, error: &Error) {
        let template = self.owner.template();
        let is_behind_others = self.waits_for_others();
        let partitions = 0..template.partitions.len();
        let is_running =
            |index: &usize| self.partition_state(*index, is_behind_others) == PartitionState::Running;
        let mut hanging: Vec<usize> = partitions.clone().filter(is_running).collect();
        if hanging.is_empty() {
            hanging = partitions.filter(|&index| self.run.is_enqueued(index)).collect();
        }
        let mut devices: Vec<&Device> = Vec::new();
        for device in hanging.iter().filter_map(|&index| template.partitions[index].device()) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let stalls: Vec<_> = devices.into_iter().map(|device| device.stall(error.clone())).collect();
        // If the run has ended by now, they end here.
        drop(self.run.drop_at_end(Box::new(stalls)));
    }
}

/// The name of the run beside one of `other`; `None` when it has ended.
fn title(run: &Run, other: &RunTemplate) -> Option<String> {
    let owner = run.owner()?;
    if let Some((name, location)) = owner.command_label() {
        return Some(format!("{name} of a queue, enqueued at {location}"));
    }
    let (number, labels) = (run.number, &owner.template().labels);
    Some(match &labels.executable {
        _ if Arc::ptr_eq(labels, &other.labels) => format!("submission {number} of the same executable"),
        Some(executable) => format!("submission {number} of '{executable}'"),
        None => {
            let names = list_names(labels.nodes.iter().map(NodeLabel::as_str));
            format!("submission {number} of the executable of ({names})")
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use crate::runtime::{Device, Graph};
    use crate::timeline::Timeline;

    thread_local! {
        /// Number of partitions that this thread has visited because another had ended.
        pub(super) static VISITED: Cell<usize> = const { Cell::new(0) };
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
        let before = VISITED.get();
        exec.submit().await.unwrap();
        let visited = VISITED.get() - before;
        drop(recording);
        assert_eq!(visited, PARTITIONS - 1);
    }
}
