//! How far a run is. Reads the states and the events of its partitions, and changes nothing.

use std::sync::Arc;

use crate::hal::EventStatus;
use crate::runtime::execution::labels::list_names;
use crate::runtime::execution::progress::{PartitionProgress, PartitionState, SubmissionProgress};
use crate::runtime::execution::run::{ENQUEUED, FAILED, Predecessor, Run, SUCCEEDED};
use crate::runtime::execution::template::RunTemplate;
use crate::runtime::resource::device::Device;
use crate::sync::Ordering;
use crate::types::Error;

impl Run {
    /// How far the run is; `None` when it is over.
    pub(crate) fn progress(&self) -> Option<SubmissionProgress> {
        let owner = self.owner()?;
        let template = owner.template();
        let is_behind_others = self.waits_for_others(template);
        let partition = |index: usize| {
            let labels = &template.labels;
            let nodes = labels.names(index).map(str::to_owned);
            PartitionProgress {
                partition: index as u32,
                nodes: owner
                    .command_label()
                    .map_or_else(|| nodes.collect(), |(name, _)| vec![name.into_owned()]),
                device: labels.devices[index].as_ref().map(Device::selector).map(str::to_owned),
                state: self.partition_state(template, index, is_behind_others),
            }
        };
        Some(SubmissionProgress {
            partitions: (0..template.partitions.len()).map(partition).collect(),
            waits_for: self.waits_for(template),
        })
    }

    /// What the run comes after or depends on and that has not ended, in words.
    pub(crate) fn waits_for(&self, template: &RunTemplate) -> Vec<String> {
        let (depends_on, comes_after) =
            self.extra(|extras| (extras.until_end.depends_on.clone(), extras.until_end.comes_after.clone()));
        let mut all: Vec<String> = Vec::new();
        for earlier in comes_after.iter().flat_map(Predecessor::unended) {
            match &earlier {
                Predecessor::Run(run) => {
                    let guard = run.noted_guard().filter(|guard| !guard.is_lifted());
                    let behind = guard.map_or_else(String::new, |guard| format!(", behind {guard}"));
                    all.extend(run.title(template).map(|title| title + &behind));
                }
                Predecessor::Fence(fence) => all.push(fence.to_string()),
                // It is one of these two by now.
                Predecessor::Guard(_) => {}
            }
        }
        for run in depends_on.iter().filter(|run| !run.is_done()) {
            all.extend(run.title(template).filter(|title| !all.contains(title)));
        }
        // One that its device's queue orders by itself.
        if all.is_empty() && template.ended.load(Ordering::Acquire) + 1 < self.number {
            all.push("the submissions before it".into());
        }
        all
    }

    /// What the run is called beside one of `other`; `None` when it is over.
    fn title(&self, other: &RunTemplate) -> Option<String> {
        let owner = self.owner()?;
        if let Some((name, location)) = owner.command_label() {
            return Some(format!("{name} of a queue, enqueued at {location}"));
        }
        let (number, labels) = (self.number, &owner.template().labels);
        Some(match Arc::ptr_eq(labels, &other.labels) {
            true => format!("submission {number} of the same executable"),
            false => {
                let names = list_names(labels.nodes.iter().map(|node| &*node.label));
                format!("submission {number} of the executable of ({names})")
            }
        })
    }

    fn partition_state(
        &self,
        template: &RunTemplate,
        index: usize,
        is_behind_others: bool,
    ) -> PartitionState {
        let partition = &template.partitions[index];
        let status = match self.state(index) {
            SUCCEEDED => return PartitionState::Completed,
            FAILED => return PartitionState::Failed,
            ENQUEUED => self.event(index).map(|event| event.status()),
            _ if self.is_in_batch() => self.batch_status(),
            _ => None,
        };
        let is_running = match status {
            Some(EventStatus::Complete) => return PartitionState::Completed,
            Some(EventStatus::Failed(_)) => return PartitionState::Failed,
            Some(EventStatus::Pending | EventStatus::Idle) => true,
            // A host task is called as soon as there is nothing left to wait for.
            None => partition.device().is_none() && self.is_released(index),
        };
        if partition.device().is_none() && self.extra(|extras| extras.views_kept.contains(&index)) {
            return PartitionState::ViewsKept;
        }
        let mut on = partition.predecessors.to_vec();
        on.retain(|&earlier| !self.is_known_complete(earlier as usize));
        match is_running && on.is_empty() && !is_behind_others {
            true => PartitionState::Running,
            false => PartitionState::Waiting { on },
        }
    }

    /// Whether nothing that the host has to wait for is left.
    fn is_released(&self, partition: usize) -> bool {
        self.slots[partition].waiting_for.load(Ordering::Acquire) == 0
    }

    /// Whether devices may have it wait for other runs.
    fn waits_for_others(&self, template: &RunTemplate) -> bool {
        template.ended.load(Ordering::Acquire) + 1 < self.number
            || self.predecessors().iter().any(|earlier| !earlier.is_done())
    }
}

impl Run {
    /// The run hangs. Until it is over, the devices that run a partition of it are not healthy; if none does,
    /// those that have been given one.
    pub(crate) fn set_stalled(&self, error: &Error) {
        let Some(owner) = self.owner() else { return };
        let template = owner.template();
        let is_behind_others = self.waits_for_others(template);
        let partitions = 0..template.partitions.len();
        let is_running = |index: &usize| {
            self.partition_state(template, *index, is_behind_others) == PartitionState::Running
        };
        let mut hanging: Vec<usize> = partitions.clone().filter(is_running).collect();
        if hanging.is_empty() {
            hanging = partitions.filter(|&index| self.is_enqueued(index)).collect();
        }
        let mut devices: Vec<&Device> = Vec::new();
        for device in hanging.iter().filter_map(|&index| template.partitions[index].device()) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        let stalls: Vec<_> = devices.into_iter().map(|device| device.stall(error.clone())).collect();
        // If the run is over by now, they end here.
        drop(self.drop_at_end(Box::new(stalls)));
    }
}
