//! One timeline of host and devices: the runs of a while, on one clock, for Perfetto and as a picture.
//!
//! A [profile](crate::profile) tells where the time of one run goes. A [`Timeline`] shows what many runs
//! do to each other: where a device waits for the host, or a host task for a thread. [`Timeline::record`]
//! begins one at any moment, in a service too.
//!
//! ```
//! use wakegraph::timeline::Timeline;
//! use wakegraph::{Device, Graph};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> wakegraph::Result<()> {
//! let device = Device::open("host:9")?;
//! let mut graph = Graph::new(&device);
//! graph.fill(&device.buffer::<u32>(4)?, 1);
//! let exec = graph.finalize()?;
//!
//! let recording = Timeline::record();
//! exec.submit().await?; // whatever the process submits
//! let timeline = recording.finish();
//! assert!(!timeline.runs.is_empty());
//! println!("{}", timeline.to_svg().len()); // or `write_svg`, `write_perfetto`
//! # Ok(())
//! # }
//! ```
//!
//! [A page of the guide](crate::guide::timeline) has a picture.

// A timeline is made when the recording ends: from the traces of the runs (`run/report.rs`), and from the
// times that devices keep. Nothing is measured for it alone.

mod chrome;
mod svg;
mod tracks;

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::ThreadId;
use std::time::Duration;

use wakegraph_hal::ResourceId;

use crate::runtime::completion::clock;
use crate::runtime::execution::host_task::PollMoments;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::profile::{Clocks, DeviceClock};
use crate::runtime::execution::run::{PartitionMoments, RUN_LOGS, RecordedRun, Run, RunTrace};
use crate::runtime::resource::preparation::{PREPARATION_LOGS, Preparation};
use crate::util::event_log::EventLog;
pub use crate::util::preparation_step::PreparationStep;

/// A record of what ran when, on the host and on all devices, on one clock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> wakegraph::Result<()> {
/// use wakegraph::timeline::Timeline;
/// # let device = wakegraph::Device::open("host")?;
/// # let mut graph = wakegraph::Graph::new(&device);
/// # graph.fill(&device.buffer::<u32>(4)?, 1);
/// # let exec = graph.finalize()?;
///
/// let recording = Timeline::record();
/// exec.submit().await?;
/// let timeline = recording.finish();
/// assert_eq!(timeline.runs.len(), 1);
/// # let path = std::env::temp_dir().join(format!("timeline-{}.json", std::process::id()));
/// timeline.write_perfetto(&path).expect("a place to write to"); // open it in https://ui.perfetto.dev
/// # std::fs::remove_file(path).expect("it was written");
/// # Ok(())
/// # }
/// ```
///
/// All times are since the beginning of the recording. Those of host tasks are the host's. Those of
/// a device's partitions are the device's where it has been asked for them, by
/// [`Device::profile`](crate::Device::profile) or at [finalize](crate::FinalizeOptions::profiling).
/// Else they are what the host knows: the partition was enqueued, what it waits for has ended, and
/// its end was noticed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Timeline {
    /// The runs that were submitted while it was recorded.
    pub runs: Vec<TimelineRun>,
    /// The devices whose own times are in it.
    pub clocks: Vec<DeviceClock>,
    /// The threads that ran host tasks: their names, numbered where several have the same.
    pub threads: Vec<String>,
    /// Number of runs in flight, from each of these times on.
    pub in_flight: Vec<(Duration, u64)>,
    /// Bytes of device memory of the executables in flight, from each of these times on.
    pub memory: Vec<(Duration, u64)>,
    /// The steps before first runs, in the order in which they ended.
    pub preparations: Vec<TimelinePreparation>,
    /// Length of the recording.
    pub length: Duration,
    /// Number of runs left out, as a recording keeps 10,000.
    pub omitted: u64,
    /// Number of preparations left out, as a recording keeps 10,000.
    pub omitted_preparations: u64,
    /// Number of polls left out, as a recording keeps 1,000 of each host task.
    pub omitted_polls: u64,
}

/// A run: one submission of an executable, or one command of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimelineRun {
    /// The number that the spans of `tracing` have as `run`; unique in the process.
    pub run: u64,
    /// The [name](crate::FinalizeOptions::name) of its executable, if that has one.
    pub executable: Option<String>,
    /// Number among the submissions of its executable, from 1 on.
    pub submission: u64,
    /// Time of its submission.
    pub submitted: Duration,
    /// Time of its end; `None` if it was in flight when the recording ended.
    pub ended: Option<Duration>,
    /// The runs that it was ordered after.
    pub follows: Vec<u64>,
    /// Partitions, in the order of the plan.
    pub partitions: Vec<TimelinePartition>,
}

/// A partition of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimelinePartition {
    /// Number in the [plan](crate::plan::Plan).
    pub partition: u32,
    /// The nodes of the partition, as the graph names them.
    pub nodes: Vec<String>,
    /// The name that opens its device; `None` for a host task.
    pub device: Option<String>,
    /// The number of its queue, unique in the process; `None` for a host task.
    pub queue: Option<u64>,
    /// The partitions of the same run that it waited for.
    pub waits_for: Vec<u32>,
    /// Times of its begin and its end. `None` if it did not begin, or has not ended when the recording ended.
    pub span: Option<TimelineSpan>,
    /// Whether it succeeded.
    pub succeeded: bool,
    /// The times of its nodes, if the executable was finalized with profiling.
    pub node_spans: Vec<TimelineSpan>,
    /// Times at which threads ran the host task: the polls of its future, or the call of its closure if it is
    /// a [blocking](crate::Graph::host_task_blocking) one.
    pub polls: Vec<TimelinePoll>,
}

/// A step of preparation: a kernel was compiled or loaded, a driver allocated memory, a command-buffer was
/// instantiated.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimelinePreparation {
    /// The step.
    pub step: PreparationStep,
    /// The name that opens its device.
    pub device: String,
    /// The kernel, the bytes, or the partition.
    pub of: String,
    /// Begin of the step.
    pub start: Duration,
    /// End of the step.
    pub end: Duration,
}

/// A while in which a thread ran a host task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimelinePoll {
    /// The thread, as an index of [`Timeline::threads`].
    pub thread: usize,
    /// Begin of the poll.
    pub start: Duration,
    /// End of the poll.
    pub end: Duration,
}

/// Begin and end of something that ran.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TimelineSpan {
    /// Begin.
    pub start: Duration,
    /// End.
    pub end: Duration,
    /// Whether the device, or for a host task the host, measured it. If not, it is what the host knows.
    pub measured: bool,
}

/// Records the runs that are submitted while it lives: [`Timeline::record`].
#[derive(Debug)]
#[must_use = "it records until it is finished or dropped"]
pub struct TimelineRecording {
    runs: Arc<EventLog<RecordedRun>>,
    preparations: Arc<EventLog<Preparation>>,
    /// In nanoseconds of the runtime's clock.
    start: u64,
}

impl Timeline {
    /// Begins to record the runs of the whole process, of executables and of queues, until the recording is
    /// [finished](TimelineRecording::finish). Several recordings may be on at the same time.
    ///
    /// While one is on, runs are not reused, so each submission allocates. Otherwise this costs nothing.
    pub fn record() -> TimelineRecording {
        let (runs, preparations) = (RUN_LOGS.start(), PREPARATION_LOGS.start());
        TimelineRecording { start: clock::now(), runs, preparations }
    }

    /// Writes it for [Perfetto](https://ui.perfetto.dev) and Chrome's `about:tracing`, as trace
    /// events in JSON.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn write_perfetto(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.to_trace_events())
    }

    /// The text of [`write_perfetto`](Self::write_perfetto).
    pub fn to_trace_events(&self) -> String {
        chrome::trace_events(self)
    }

    /// Draws it, for people without a viewer.
    ///
    /// # Errors
    /// Those of writing the file.
    pub fn write_svg(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.to_svg())
    }

    /// The text of [`write_svg`](Self::write_svg).
    pub fn to_svg(&self) -> String {
        svg::draw(self)
    }
}

impl TimelineRecording {
    /// Ends the recording. Asks the devices for the times that they have kept. Runs that are still in flight
    /// have no end.
    pub fn finish(self) -> Timeline {
        self.stop();
        let (runs, omitted) = self.runs.take();
        let (preparations, omitted_preparations) = self.preparations.take();
        let mut builder = Builder { start: self.start, ..Builder::default() };
        let mut preparations: Vec<_> = preparations.into_iter().map(|one| builder.preparation(one)).collect();
        preparations.sort_by_key(|one| one.end);
        runs.iter().for_each(|(run, trace)| builder.add(run, trace));
        Timeline { preparations, omitted, omitted_preparations, ..builder.finish() }
    }

    fn stop(&self) {
        RUN_LOGS.stop(&self.runs);
        PREPARATION_LOGS.stop(&self.preparations);
    }
}

impl Drop for TimelineRecording {
    fn drop(&mut self) {
        self.stop();
    }
}

#[derive(Default)]
struct Builder {
    start: u64,
    clocks: Clocks,
    runs: Vec<TimelineRun>,
    /// Times at which the partitions of each queue were seen to have ended.
    queue_ends: HashMap<u64, u64>,
    /// The names of the threads that ran host tasks, and their indices.
    threads: Vec<String>,
    thread_indices: HashMap<ThreadId, usize>,
    omitted_polls: u64,
    uses: Vec<RunUse>,
}

/// The amounts that a run adds to the counters.
struct RunUse {
    submitted: u64,
    ended: Option<u64>,
    memory: Box<[(ResourceId, u64)]>,
}

/// A counter's values, from each of these times on.
type Points = Vec<(Duration, u64)>;

impl Builder {
    fn since_start(&self, at: u64) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.start))
    }

    fn preparation(&self, Preparation { step, device, of, start, end }: Preparation) -> TimelinePreparation {
        TimelinePreparation { step, device, of, start: self.since_start(start), end: self.since_start(end) }
    }

    fn add(&mut self, run: &Run, trace: &RunTrace) {
        let ended = trace.ended().filter(|_| run.has_ended());
        let mut partitions = Vec::new();
        let moments = trace.moments();
        let mut ends = vec![0; moments.len()];
        for (index, moments) in moments.into_iter().enumerate() {
            let has_ended = ended.is_some() && moments.ended > 0;
            let succeeded = has_ended && run.has_succeeded(index);
            partitions.push(self.partition(run, &trace.labels, index, moments, succeeded, &mut ends));
            if let Some(log) = trace.polls(index) {
                let polls = log.polls();
                partitions[index].polls = polls.kept.iter().map(|poll| self.poll(poll)).collect();
                self.omitted_polls += polls.omitted;
            }
            if let Some(command) = &trace.command {
                partitions[index].nodes = vec![command.clone()];
            }
        }
        let (submitted, memory) = (trace.submitted, trace.memory.clone());
        self.uses.push(RunUse { submitted, ended, memory });
        self.runs.push(TimelineRun {
            run: trace.id,
            executable: trace.labels.executable.as_deref().map(str::to_owned),
            submission: trace.submission,
            submitted: self.since_start(trace.submitted),
            ended: ended.map(|ended| self.since_start(ended)),
            follows: trace.follows(),
            partitions,
        });
    }

    fn partition(
        &mut self,
        run: &Run,
        labels: &Labels,
        index: usize,
        PartitionMoments { queue, began, ended }: PartitionMoments,
        succeeded: bool,
        ends: &mut [u64],
    ) -> TimelinePartition {
        let waits_for = labels.plan.predecessors(index);
        let device = labels.devices[index].as_ref();
        let times = device.zip(run.timed_event(index)).filter(|_| succeeded);
        let times = times.and_then(|(device, event)| self.clocks.times(device, event));
        let span = |start: u64, end: u64, measured| TimelineSpan {
            start: self.since_start(start),
            end: self.since_start(end.max(start)),
            measured,
        };
        let node_spans =
            times.iter().flat_map(|times| &times.commands).map(|node| span(node.start, node.end, true));
        let node_spans = node_spans.collect();
        let own = match &times {
            Some(times) => Some(span(times.start, times.end, true)),
            None if began == 0 || ended == 0 => None,
            None if device.is_none() => Some(span(began, ended, true)),
            None => {
                let after = waits_for.iter().map(|&earlier| ends[earlier as usize]);
                let on_queue = queue.and_then(|queue| self.queue_ends.get(&queue).copied());
                let start = after.chain(on_queue).fold(began, u64::max).min(ended);
                Some(span(start, ended, false))
            }
        };
        ends[index] = times.as_ref().map_or(ended, |times| times.end);
        if let Some(queue) = queue {
            let end = self.queue_ends.entry(queue).or_default();
            *end = (*end).max(ends[index]);
        }
        TimelinePartition {
            partition: index as u32,
            nodes: labels.names(index).map(str::to_owned).collect(),
            device: device.map(|device| device.selector().to_owned()),
            queue,
            waits_for: waits_for.to_vec(),
            span: own,
            succeeded,
            node_spans,
            polls: Vec::new(),
        }
    }

    fn poll(&mut self, PollMoments { thread, start, end }: &PollMoments) -> TimelinePoll {
        let threads = &mut self.threads;
        let index = *self.thread_indices.entry(thread.id()).or_insert_with(|| {
            threads.push(thread.name().unwrap_or("thread").to_owned());
            threads.len() - 1
        });
        TimelinePoll { thread: index, start: self.since_start(*start), end: self.since_start(*end) }
    }

    fn finish(self) -> Timeline {
        let (in_flight, memory) = self.counters();
        Timeline {
            clocks: self.clocks.known(),
            threads: numbered(&self.threads),
            in_flight,
            memory,
            length: self.since_start(clock::now()),
            omitted_polls: self.omitted_polls,
            runs: self.runs,
            ..Timeline::default()
        }
    }

    fn counters(&self) -> (Points, Points) {
        let begins = self.uses.iter().map(|run| (run.submitted, true, run));
        let ends = self.uses.iter().filter_map(|run| Some((run.ended?, false, run)));
        let mut changes: Vec<_> = begins.chain(ends).collect();
        changes.sort_by_key(|&(at, ..)| at);
        // How many runs use each allocation.
        let mut users: HashMap<ResourceId, u64> = HashMap::new();
        let (mut runs, mut bytes) = (0u64, 0u64);
        let (mut in_flight, mut in_use) = (Vec::new(), Vec::new());
        for (at, begins, run) in changes {
            runs = if begins { runs + 1 } else { runs.saturating_sub(1) };
            for &(resource, len) in &run.memory {
                let users = users.entry(resource).or_default();
                *users = if begins { *users + 1 } else { users.saturating_sub(1) };
                match (begins, *users) {
                    (true, 1) => bytes += len,
                    (false, 0) => bytes = bytes.saturating_sub(len),
                    _ => {}
                }
            }
            in_flight.push((self.since_start(at), runs));
            in_use.push((self.since_start(at), bytes));
        }
        (in_flight, in_use)
    }
}

/// The names, those that several have with numbers.
fn numbered(names: &[String]) -> Vec<String> {
    let mut counts: HashMap<&str, (usize, usize)> = HashMap::new();
    names.iter().for_each(|name| counts.entry(name).or_default().0 += 1);
    let number = |name: &String| match counts.get_mut(&**name) {
        Some((2.., number)) => {
            *number += 1;
            format!("{name} {number}")
        }
        _ => name.clone(),
    };
    names.iter().map(number).collect()
}
