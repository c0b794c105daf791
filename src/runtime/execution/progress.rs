//! Progress of submissions: what to read when one takes long.

use std::fmt::{self, Display};
use std::sync::Arc;

use wakegraph_hal::Error;

use crate::runtime::execution::labels::list_names;

/// Progress of a submission: [`Submission::progress`](crate::Submission::progress).
///
/// ```text
/// 'photos': partition 0 (kernel 'blur') on cuda:0 is running, partition 1 (host task 'send') waits for
/// partition 0
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SubmissionProgress {
    /// The [name](crate::FinalizeOptions::name) of its executable, if that has one.
    pub executable: Option<String>,
    /// Partitions, in the order of the plan.
    pub partitions: Vec<PartitionProgress>,
    /// Descriptions of what the submission itself waits for: guards of host buffers, each with the place in
    /// the source where it was requested, and earlier submissions, commands and updates.
    pub waits_for: Vec<String>,
}

/// Progress of one partition of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct PartitionProgress {
    /// Number in the [plan](crate::plan::Plan).
    pub partition: u32,
    /// The nodes of the partition, as the graph names them.
    pub nodes: Vec<String>,
    /// The name that opens its device; `None` for a host task.
    pub device: Option<String>,
    /// State of the partition.
    pub state: PartitionState,
    /// Percentage of the running kernel that has begun, if it runs in several blocks
    /// (`each:`, `group:` on the host device).
    pub percent_of_kernel: Option<u8>,
}

/// State of a partition of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PartitionState {
    /// The partition has not begun.
    Waiting {
        /// The partitions that it waits for. If there are none, the submission itself
        /// [waits](SubmissionProgress::waits_for): for what it comes after, or for its wait list.
        on: Vec<u32>,
    },
    /// The device, or the task that runs it, has all that it needs.
    Running,
    /// The future of its host task has ended, and so it has ended when the views are dropped that the task
    /// was given of host buffers, and that something keeps.
    ViewsKept,
    /// The partition has ended.
    Completed,
    /// The partition has failed, or will not start because another has.
    Failed,
}

impl SubmissionProgress {
    /// The partitions that run.
    pub fn running(&self) -> impl Iterator<Item = &PartitionProgress> {
        self.partitions.iter().filter(|partition| partition.state == PartitionState::Running)
    }

    /// The partition that the submission hangs on, if it does: one that runs, or whose views are kept, else
    /// one that waits.
    fn suspect(&self) -> Option<&PartitionProgress> {
        let waits =
            |partition: &&PartitionProgress| matches!(partition.state, PartitionState::Waiting { .. });
        let is_kept = |partition: &&PartitionProgress| partition.state == PartitionState::ViewsKept;
        let find_kept = || self.partitions.iter().find(is_kept);
        self.running().next().or_else(find_kept).or_else(|| self.partitions.iter().find(waits))
    }

    /// Adds to the error of a submission that takes too long its executable, and where it hangs.
    pub(crate) fn locate(&self, error: Error) -> Error {
        let error = match &self.executable {
            Some(name) => error.in_executable(&Arc::from(name.as_str())),
            None => error,
        };
        let Some(suspect) = self.suspect() else { return error };
        let error = error.in_partition(suspect.partition);
        let error = match &suspect.device {
            Some(device) => error.on_device(device),
            None => error,
        };
        match &*suspect.nodes {
            [node] => error.in_node(node),
            _ => error,
        }
    }
}

impl Display for SubmissionProgress {
    /// Lists the partitions that have not ended.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let over =
            |state: &PartitionState| matches!(state, PartitionState::Completed | PartitionState::Failed);
        let mut pending = self.partitions.iter().filter(|partition| !over(&partition.state));
        let done = self.partitions.len() - pending.clone().count();
        if let Some(executable) = &self.executable {
            write!(f, "'{executable}': ")?;
        }
        if done > 0 && done == self.partitions.len() {
            f.write_str("all partitions have ended")?;
            return match &*self.waits_for {
                [] => Ok(()),
                behind => write!(f, ", and it waits for {}", list_causes(behind)),
            };
        }
        for (index, partition) in pending.by_ref().take(SHOWN).enumerate() {
            f.write_str(if index > 0 { ", " } else { "" })?;
            partition.write(f, &self.waits_for)?;
        }
        match pending.count() {
            0 => {}
            more => write!(f, ", and {more} more partitions")?,
        }
        if done > 0 {
            write!(f, " ({done} of {} partitions have ended)", self.partitions.len())
        } else {
            Ok(())
        }
    }
}

/// Writes the name of a partition in reports: `partition 2 (copy, kernel 'blur') on cuda:0`.
pub(crate) fn write_title(
    f: &mut fmt::Formatter<'_>,
    partition: u32,
    nodes: &[String],
    device: Option<&str>,
) -> fmt::Result {
    write!(f, "partition {partition} ({})", list_names(nodes.iter().map(String::as_str)))?;
    device.map_or(Ok(()), |device| write!(f, " on {device}"))
}

impl PartitionProgress {
    /// Writes it. If it waits for no other partition, it waits as its submission does: for all of `behind`.
    fn write(&self, f: &mut fmt::Formatter<'_>, behind: &[String]) -> fmt::Result {
        write_title(f, self.partition, &self.nodes, self.device.as_deref())?;
        match &self.state {
            PartitionState::Waiting { on } if on.is_empty() => {
                write!(f, " waits for {}", list_causes(behind))
            }
            PartitionState::Waiting { on } => {
                let on: Vec<_> = on.iter().map(|partition| format!("partition {partition}")).collect();
                write!(f, " waits for {}", on.join(" and "))
            }
            PartitionState::Running => {
                f.write_str(" is running")?;
                self.percent_of_kernel.map_or(Ok(()), |percent| write!(f, ", {percent} % of a kernel"))
            }
            PartitionState::ViewsKept => f.write_str(" has ended, but views of its buffers are kept"),
            PartitionState::Completed => f.write_str(" has ended"),
            PartitionState::Failed => f.write_str(" has failed"),
        }
    }
}

impl Display for PartitionProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, &[])
    }
}

/// The first of what a submission waits for, as long as one can read.
pub(crate) fn list_causes(causes: &[String]) -> String {
    const SHOWN: usize = 3;
    let (shown, more) = causes.split_at(causes.len().min(SHOWN));
    match (shown, more.len()) {
        ([], _) => "its turn".into(),
        (_, 0) => shown.join(" and "),
        (_, more) => format!("{} and {more} more", shown.join(", ")),
    }
}
