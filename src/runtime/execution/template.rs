//! What runs need to know of their executable.

use std::borrow::Cow;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use crate::hal;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tuning::SpinKind;
use crate::runtime::execution::deadline;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::partitions::{PartitionExec, Partitions};
use crate::sync::{AtomicBool, AtomicU64};
use crate::types::{Error, ResourceId};
use crate::util::console;
use crate::util::metrics::DeviceMetrics;

/// The part of an executable that is the same for all of its runs.
pub(crate) struct RunTemplate {
    pub(crate) labels: Arc<Labels>,
    pub(crate) console: console::Resource,
    pub(crate) partitions: Partitions,
    /// Of the device that the first of its partitions is on that has one.
    pub(crate) metrics: DeviceMetrics,
    pub(crate) profiling: bool,
    /// Partitions without a predecessor, and without a successor.
    pub(crate) roots: Box<[u32]>,
    pub(crate) tails: Box<[u32]>,
    /// The last partitions on each device, with the tails among them. Devices that come after a run wait for
    /// all of these: if a device is lost, its events fail at once, also where they come after events of others.
    pub(crate) ends_of_devices: Box<[u32]>,
    /// Whether no partition needs the host: then a run is enqueued at once and devices can wait for
    /// its tails.
    pub(crate) all_eager: bool,
    /// Whether there is a stream task: runs are then enqueued without locks, because that calls closures of
    /// the user's.
    pub(crate) has_stream_tasks: bool,
    /// Whether a device decides about a loop by itself, now or after an update that was refused.
    pub(crate) has_loops: AtomicBool,
    /// Whether a device is polled.
    pub(crate) polled: bool,
    /// Whether only the ends of the tails are polled for. Their devices have waited for all other
    /// partitions, so one poll tells of them, too.
    pub(crate) polls_tails: bool,
    pub(crate) spin_kind: SpinKind,
    /// Those of the devices that are polled.
    pub(crate) reactors: Arc<[Reactor]>,
    /// The number of the last run that is over, other than by the loss of a device.
    pub(crate) ended: AtomicU64,
}

/// An executable, or a command of a queue, which its runs keep alive while they are in flight.
pub(crate) trait RunOwner: Send + Sync {
    /// What the runs need to know of it.
    fn template(&self) -> &RunTemplate;

    /// The command of a partition that is a single one.
    fn command(&self) -> Option<&Arc<hal::Command>> {
        None
    }

    /// What the command of a queue is called, and where the user enqueued it.
    fn command_label(&self) -> Option<(Cow<'static, str>, &'static Location<'static>)> {
        None
    }

    /// The device memory that its runs use: each allocation, with its bytes.
    fn device_memory(&self) -> &[(ResourceId, u64)] {
        &[]
    }

    /// Why it must not run any more.
    fn broken(&self) -> Option<&Error> {
        None
    }

    /// Keeps for ever what devices use of it, because they may go on with that.
    fn keep_for_ever(self: Arc<Self>) {
        std::mem::forget(self);
    }

    /// Adds to an error of a run where it happened, beyond what the template tells.
    fn locate(&self, error: Error) -> Error {
        error
    }

    /// A run of it has failed, and is about to be done.
    fn failed(&self, _error: Error) {}
}

impl Deref for dyn RunOwner + '_ {
    type Target = RunTemplate;

    fn deref(&self) -> &RunTemplate {
        self.template()
    }
}

impl RunTemplate {
    /// How long a run takes whose partitions are all enqueued at once; `None` while that is not known.
    pub(crate) fn expected(&self) -> Option<Duration> {
        let mut longest = None;
        for (index, partition) in self.partitions.iter().enumerate() {
            if !self.polls_tails || self.tails.contains(&(index as u32)) {
                longest = longest.max(Some(partition.estimator.expected()?));
            }
        }
        longest
    }

    /// The error of a run that did not start before its deadline. It names the first partition.
    pub(crate) fn too_late(&self) -> Error {
        match self.partitions.is_empty() {
            true => deadline::exceeded(),
            false => self.labels.locate(0, deadline::exceeded()),
        }
    }

    /// How long a poll of a submission may spin. The most careful device decides.
    pub(crate) fn spin_limit(&self) -> Duration {
        let devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.map(|device| device.wake_policy().spin_limit(self.spin_kind)).min().unwrap_or_default()
    }
}
