//! Explanations of why an executable runs as it does, as data and as text.

use std::fmt::{self, Display};
use std::time::Duration;

use wakegraph_hal::{CodeOrigin, CommandKind, Priority};

use crate::plan::Separation;
use crate::runtime::execution::executable::ExecutableInner;
use crate::runtime::execution::progress::write_title;
use crate::runtime::execution::template::PartitionExec;
use crate::runtime::resource::kernel_explanation::KernelExplanation;

/// Explanation of why an executable runs as it does:
/// [`ExecutableGraph::explain`](crate::ExecutableGraph::explain). Its text calls the partitions by the names
/// of [`Submission::progress`](crate::Submission::progress).
///
/// ```text
/// partition 0 (kernel 'blur') on cuda:0
///   apart:    it is the first of its device
///   starts:   at once; `submit` enqueues it
///   runs as:  CUDA graph, as its last node counts the runs in pinned memory, for low latency
///   takes:    125.0µs, give or take 2.1µs
/// partition 1 (host task 'send')
///   apart:    each host task is a partition of its own
///   starts:   after partition 0, which the host waits for; a task runs it
/// kernel 'blur' on cuda:0: from disk in 102.5µs, loaded in 81.3µs
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Partitions, in the order of the plan.
    pub partitions: Vec<PartitionExplanation>,
    /// The kernels that [`finalize`](crate::Graph::finalize) has loaded or found loaded: those of nodes,
    /// bodies and, if the executable can be updated, alternatives.
    pub kernels: Vec<KernelExplanation>,
}

/// Explanation of why a partition runs as it does.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionExplanation {
    /// Number in the [plan](crate::plan::Plan).
    pub partition: u32,
    /// The nodes of the partition, as the graph names them.
    pub nodes: Vec<String>,
    /// The name that opens its device; `None` where the host runs it.
    pub device: Option<String>,
    /// Reason why it is a partition of its own.
    pub separation: Separation,
    /// The partitions that it waits for, without those that others imply.
    pub waits_for: Vec<PartitionWait>,
    /// Whether [`submit`](crate::ExecutableGraph::submit) itself hands it to its device. Otherwise
    /// a task does, when the host has seen the ends of what it waits for.
    pub starts_in_submit: bool,
    /// The native commands among its nodes: the device has captured what their closures enqueued, and runs
    /// that in every submission.
    pub captured: Vec<String>,
    /// Whether it is a stream task: its closure is called in every submission.
    pub is_live: bool,
    /// Form in which its device runs it, such as "CUDA graph"; `None` where the host runs it.
    pub lowering: Option<&'static str>,
    /// Reason for that form; empty where it has no choice.
    pub lowering_reason: &'static str,
    /// Urgency of its work, as the executable was [finalized](crate::FinalizeOptions::priority).
    pub priority: Priority,
    /// Whether its device has priorities. The priority is ignored where it has none.
    pub has_priorities: bool,
    /// Time that it takes, as far as that is known. The runtime measures where it can use the result to
    /// decide when to poll or how to wait.
    pub learned: Option<LearnedDuration>,
    /// Plans inside a conditional or loop that the host drives, as text.
    pub bodies: Option<String>,
    /// The kind of its first node, which is the only one of a partition for a reason of its kind.
    kind: CommandKind,
}

/// A partition that another one waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionWait {
    /// The number of the partition that is waited for.
    pub partition: u32,
    /// Side that waits: the device, its queue, or the host.
    pub mode: WaitMode,
}

/// Way in which a partition waits for another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitMode {
    /// Both are on one queue of the device, which runs them in this order.
    Queue,
    /// The device waits for an event of the other one.
    Device,
    /// The host waits for the end of the other one, and then starts it.
    Host,
}

/// Time that a partition takes, from earlier runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LearnedDuration {
    /// The mean, in which late runs count most.
    pub mean: Duration,
    /// The mean deviation from it.
    pub deviation: Duration,
}

impl Explanation {
    pub(crate) fn of(executable: &ExecutableInner) -> Self {
        let explain = |(index, partition)| explain(executable, index, partition);
        let partitions = executable.partitions.iter().enumerate().map(explain).collect();
        Self { partitions, kernels: executable.kernels.iter().map(|kernel| (**kernel).clone()).collect() }
    }
}

fn explain(executable: &ExecutableInner, index: usize, partition: &PartitionExec) -> PartitionExplanation {
    let labels = &executable.labels;
    let wait = |&earlier: &u32| PartitionWait {
        partition: earlier,
        mode: wait_mode(executable, partition, earlier),
    };
    let command_buffer = partition.command_buffer().map(|buffer| buffer.with(|buffer| buffer.info()));
    let learned = partition.estimator.estimate().map(|estimate| LearnedDuration {
        mean: Duration::from_nanos(estimate.mean),
        deviation: Duration::from_nanos(estimate.deviation),
    });
    PartitionExplanation {
        partition: index as u32,
        nodes: labels.names(index).map(str::to_owned).collect(),
        device: partition.device().map(|device| device.selector().to_owned()),
        separation: labels.plan.separation(index),
        waits_for: partition.predecessors.iter().map(wait).collect(),
        starts_in_submit: partition.eager,
        captured: labels.captured(index).map(str::to_owned).collect(),
        is_live: partition.stream_task().is_some(),
        lowering: command_buffer.as_ref().map(|buffer| buffer.lowering),
        lowering_reason: command_buffer.map_or("", |buffer| buffer.reason),
        priority: partition.priority(),
        has_priorities: partition.device().is_some_and(|device| device.capabilities().queue_priorities),
        learned,
        bodies: partition.bodies_text(),
        kind: labels.nodes[labels.plan.nodes(index)[0] as usize].kind,
    }
}

fn wait_mode(executable: &ExecutableInner, partition: &PartitionExec, earlier: u32) -> WaitMode {
    match partition.device_predecessors.contains(&earlier) {
        false => WaitMode::Host,
        true if partition.queue_number() == executable.partitions[earlier as usize].queue_number() => {
            WaitMode::Queue
        }
        true => WaitMode::Device,
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.partitions.iter().try_for_each(|partition| writeln!(f, "{partition}"))?;
        let mut got = self.kernels.iter().filter(|kernel| kernel.origin != CodeOrigin::Given);
        got.try_for_each(|kernel| writeln!(f, "{kernel}"))
    }
}

impl Display for PartitionExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_title(f, self.partition, &self.nodes, self.device.as_deref())?;
        write!(f, "\n  apart:    {}", self.why_apart())?;
        write!(f, "\n  starts:   {}", self.start())?;
        if let Some(lowering) = self.lowering {
            write!(f, "\n  runs as:  {lowering}")?;
            if !self.lowering_reason.is_empty() {
                write!(f, ", as {}", self.lowering_reason)?;
            }
        }
        if self.is_live {
            write!(f, "\n  runs as:  live calls, on a queue that its device lends it in every submission")?;
        }
        if !self.captured.is_empty() {
            write!(f, "\n  captured: {}", self.captured.join(", "))?;
        }
        match (self.priority, self.has_priorities) {
            (Priority::Normal, _) => {}
            (priority, true) => write!(f, "\n  priority: {priority}")?,
            (priority, false) => write!(f, "\n  priority: {priority}, which its device does not know")?,
        }
        if let Some(LearnedDuration { mean, deviation }) = self.learned {
            write!(f, "\n  takes:    {mean:.1?}, give or take {deviation:.1?}")?;
        }
        match &self.bodies {
            Some(bodies) => write!(f, "\n{}", bodies.trim_end()),
            None => Ok(()),
        }
    }
}

impl PartitionExplanation {
    fn why_apart(&self) -> String {
        match &self.separation {
            Separation::Host if self.bodies.is_some() => {
                format!("the host drives this {}, as its device cannot", self.kind)
            }
            Separation::Host | Separation::StreamTask => {
                format!("each {} is a partition of its own", self.kind)
            }
            Separation::FirstOnDevice => "it is the first of its device".into(),
            Separation::WaitsFor { partitions, other } => {
                format!("it waits for {}, and partition {other} does not", list(partitions))
            }
            Separation::StartsBefore { partitions, other } => {
                format!("partition {other} waits for {}, and it does not", list(partitions))
            }
            Separation::OtherResults { partitions, other } => {
                format!("it needs other results of {} than partition {other} does", list(partitions))
            }
            Separation::HostTasksAfter { host_tasks, other } => {
                format!("{} come after only one of it and partition {other}", list(host_tasks))
            }
        }
    }

    fn start(&self) -> String {
        let of = |mode| {
            let waits = self.waits_for.iter().filter(move |wait| wait.mode == mode);
            waits.map(|wait| wait.partition).collect::<Vec<_>>()
        };
        let mut parts = Vec::new();
        if self.waits_for.is_empty() {
            parts.push("at once".to_owned());
        }
        for (mode, what) in [
            (WaitMode::Queue, "on the same queue"),
            (WaitMode::Device, "which its device waits for"),
            (WaitMode::Host, "which the host waits for"),
        ] {
            let partitions = of(mode);
            if !partitions.is_empty() {
                parts.push(format!("after {}, {what}", list(&partitions)));
            }
        }
        let by = match (self.starts_in_submit, &self.device) {
            (true, _) => "`submit` enqueues it",
            (false, Some(_)) => "a task enqueues it",
            (false, None) => "a task runs it",
        };
        format!("{}; {by}", parts.join("; "))
    }
}

/// `partition 1`, or `partitions 1, 2 and 5`.
fn list(partitions: &[u32]) -> String {
    match partitions {
        [] => "none".into(),
        [one] => format!("partition {one}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(u32::to_string).collect();
            format!("partitions {} and {last}", first.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::fake::{FakeDevice, FakeOptions};

    use super::*;
    use crate::runtime::{Device, FinalizeOptions, Graph, read};

    #[test]
    fn the_text_gives_each_partition_its_reasons() {
        let device = Device::open("host:860").unwrap();
        let (x, y) = (device.buffer::<u32>(4).unwrap(), device.buffer::<u32>(4).unwrap());
        let out = device.host_buffer::<u32>(4).unwrap();
        let mut graph = Graph::new(&device);
        graph.copy(&x, &out).name("first");
        graph.fill(&y, 1).name("beside");
        graph.host_task((read(&out),), async |(_out,)| {}).name("send");
        graph.copy(&y, &out).name("last");
        let exec = graph.finalize().unwrap();
        let expected = "\
partition 0 (buffer read 'first', buffer fill 'beside') on host:860
  apart:    it is the first of its device
  starts:   at once; `submit` enqueues it
  runs as:  dependency-counted run, as some of its nodes may run at the same time
partition 1 (host task 'send')
  apart:    each host task is a partition of its own
  starts:   after partition 0, which the host waits for; a task runs it
partition 2 (buffer read 'last') on host:860
  apart:    it waits for partition 1, and partition 0 does not
  starts:   after partition 1, which the host waits for; a task enqueues it
  runs as:  in-order run, as its nodes run one after the other
";
        let numbers = without_numbers(&exec.explain().to_string());
        assert_eq!(numbers, expected);
    }

    /// Without the numbers of nodes behind their names.
    fn without_numbers(text: &str) -> String {
        let mut parts = text.split(" (#");
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
    }

    #[test]
    fn a_priority_is_there_unless_it_is_normal() {
        let text = |has_priorities, priority| {
            let options = FakeOptions::new().notifies(false);
            let options = options.capabilities(|can| can.queue_priorities = has_priorities);
            let device = Device::from_hal(FakeDevice::open(options).0);
            let mut graph = Graph::new(&device);
            graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
            let exec = graph.finalize_with(FinalizeOptions::new().priority(priority)).unwrap();
            // The queues of batches have none.
            assert_eq!(exec.inner.submission_queue.is_some(), priority == Priority::Normal);
            exec.explain().to_string()
        };
        assert!(
            text(true, Priority::High).contains("\n  priority: high\n"),
            "{}",
            text(true, Priority::High)
        );
        assert!(text(false, Priority::Low).contains("\n  priority: low, which its device does not know\n"));
        assert!(!text(true, Priority::Normal).contains("priority"));
    }

    #[test]
    fn devices_wait_by_queue_or_event() {
        let fakes = [FakeDevice::open(FakeOptions::new()).0, FakeDevice::open(FakeOptions::new()).0];
        let [a, b] = fakes.map(Device::from_hal);
        let (x, y) = (a.buffer::<u32>(4).unwrap(), b.buffer::<u32>(4).unwrap());
        let mut graph = Graph::new(&a);
        let first = graph.fill(&x, 1).id();
        let there = graph.fill(&y, 1).after([first]).id();
        graph.fill(&x, 2).after([there]);
        let exec = graph.finalize().unwrap();
        let explained = exec.explain().partitions;
        let waits: Vec<_> = explained.iter().map(|partition| partition.waits_for.clone()).collect();
        let mode = if a.can_wait_for(&b) { WaitMode::Device } else { WaitMode::Host };
        let wait = |partition| vec![PartitionWait { partition, mode }];
        assert_eq!(waits, [vec![], wait(0), wait(1)]);
        assert_eq!(explained[2].separation, Separation::WaitsFor { partitions: vec![1], other: 0 });
        assert_eq!(explained[1].device.as_deref(), Some(b.selector()));
    }

    #[test]
    fn what_was_learned_is_there_after_some_runs() {
        let device = Device::open("host:861").unwrap();
        let mut graph = Graph::new(&device);
        graph.fill(&device.buffer::<u32>(4).unwrap(), 1);
        let exec = graph.finalize().unwrap();
        let learned = || exec.explain().partitions[0].learned;
        assert_eq!(learned(), None);
        exec.inner.partitions[0].estimator.record_duration(Duration::from_micros(100));
        assert_eq!(learned().unwrap().mean, Duration::from_micros(100));
        let text = exec.explain().to_string();
        assert!(text.contains("takes:    100.0µs, give or take"), "{text}");
    }

    #[test]
    fn a_loop_of_the_host_shows_its_body() {
        let device = Device::open("host:862").unwrap();
        let flag = device.host_buffer_from(&[0u32]).unwrap();
        let mut body = Graph::new(&device);
        body.host_task((), async |()| {});
        let mut graph = Graph::new(&device);
        graph.while_nonzero(&flag, &body);
        let explained = graph.finalize().unwrap().explain();
        assert_eq!(explained.partitions[0].separation, Separation::Host);
        assert!(explained.to_string().contains("as its device cannot"), "{explained}");
        assert!(explained.partitions[0].bodies.as_ref().unwrap().contains("do:"), "{explained}");
    }
}
