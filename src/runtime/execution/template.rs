//! The part of an executable that is the same for all of its runs: its partitions, ready to run, and what
//! they wait for.

use std::borrow::Cow;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use wakegraph_hal as hal;
use wakegraph_hal::{DeviceId, Error, Priority, Progress, ResourceId};

use crate::runtime::completion::estimate::Estimator;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::deadline;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::labels::Labels;
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicU8, AtomicU64};
use crate::util::console;
use crate::util::metrics::{DeviceMetrics, RunSourceMetrics};

/// The work of a run that stops on request, before it is done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Stoppable {
    Nothing,
    /// Kernels that run in blocks.
    Kernels,
    /// Loops about which a device decides by itself. They may have no end of their own.
    Loops,
}

/// The part of an executable that is the same for all of its runs.
pub(crate) struct RunTemplate {
    pub(crate) labels: Arc<Labels>,
    pub(crate) console: console::Resource,
    pub(crate) partitions: Partitions,
    /// Of its runs, on the device that the first of its partitions is on that has one.
    pub(crate) metrics: RunSourceMetrics,
    pub(crate) profiling: bool,
    /// Partitions without a predecessor, and without a successor.
    pub(crate) roots: Box<[u32]>,
    pub(crate) tails: Box<[u32]>,
    /// The last partitions on each device, with the tails among them. Devices that come after a run wait for
    /// all of these: if a device is lost, its events fail at once, also where they come after events of
    /// others.
    pub(crate) ends_of_devices: Box<[u32]>,
    /// The devices of the partitions, each once.
    pub(crate) devices: Arc<[DeviceId]>,
    /// Whether no partition needs the host: then a run is enqueued at once and devices can wait for
    /// its tails.
    pub(crate) all_eager: bool,
    /// Whether there is a stream task: runs are then enqueued without locks, because that calls closures of
    /// the user's.
    pub(crate) has_stream_tasks: bool,
    /// The work that a deadline can stop on devices, now or after a refused update: a [`Stoppable`].
    pub(crate) stoppable: AtomicU8,
    /// Whether a device is polled.
    pub(crate) polled: bool,
    /// Whether only the ends of the tails are polled for. Their devices have waited for all other
    /// partitions, so one poll tells of them, too.
    pub(crate) polls_tails: bool,
    /// The party that drives the work on the polled devices.
    pub(crate) progress: Progress,
    /// The reactors of the devices that are polled.
    pub(crate) reactors: Arc<[Reactor]>,
    /// The number of the last run that has ended, other than by the loss of a device.
    pub(crate) ended: AtomicU64,
}

/// An executable, or a command of a queue, which its runs keep alive while they are in flight.
pub(crate) trait RunOwner: Send + Sync {
    /// The template of its runs.
    fn template(&self) -> &RunTemplate;

    /// The command of a partition that is a single one.
    fn command(&self) -> Option<&Arc<hal::Command>> {
        None
    }

    /// The name of a queue's command, and the place where the user enqueued it.
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

    /// A run of it has failed, and is about to end.
    fn failed(&self, _error: Error) {}
}

impl Deref for dyn RunOwner + '_ {
    type Target = RunTemplate;

    fn deref(&self) -> &RunTemplate {
        self.template()
    }
}

impl RunTemplate {
    /// Time of a run whose partitions are all enqueued at once; `None` while that is not known.
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

    /// Time for which a poll of a submission may spin. The most careful device decides.
    pub(crate) fn spin_limit(&self) -> Duration {
        let devices = self.partitions.iter().filter_map(PartitionExec::device);
        devices.map(|device| device.wake_policy().spin_limit(self.progress)).min().unwrap_or_default()
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

impl Partitions {
    /// Where runs are counted: with the first device that there is.
    pub(crate) fn metrics(&self) -> DeviceMetrics {
        let device = self.0.iter().find_map(PartitionExec::device);
        device.map_or_else(DeviceMetrics::without_device, |device| device.metrics().clone())
    }

    /// The party that drives the work on the polled devices: the host's cores, if it is theirs on any.
    pub(crate) fn progress(&self) -> Progress {
        let mut polled = self.0.iter().filter_map(PartitionExec::device).filter(|device| device.is_polled());
        let host_cores = polled.any(|device| device.capabilities().progress == Progress::HostCores);
        if host_cores { Progress::HostCores } else { Progress::Device }
    }

    /// The devices, each once.
    pub(crate) fn devices(&self) -> Arc<[DeviceId]> {
        let mut devices: Vec<_> = self.0.iter().filter_map(PartitionExec::device).map(Device::id).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.into()
    }

    /// The reactors of the devices that are polled, each once.
    pub(crate) fn reactors(&self) -> Arc<[Reactor]> {
        let mut devices: Vec<&Device> = Vec::new();
        for device in self.0.iter().filter_map(PartitionExec::device) {
            if !devices.contains(&device) {
                devices.push(device);
            }
        }
        devices.into_iter().filter_map(|device| device.reactor().cloned()).collect()
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// One partition, ready to run.
pub(crate) struct PartitionExec {
    /// The queue that it is enqueued on; `None` where the host runs it.
    pub(crate) on: Option<DeviceQueue>,
    pub(crate) work: PartitionWork,
    /// Enqueued by `submit` itself: every predecessor is, too, and its device can wait for them.
    pub(crate) eager: bool,
    /// Whether none of its predecessors is on its device: then it waits itself for what its run comes after
    /// on that device.
    pub(crate) begins_device: bool,
    /// Number of predecessors that its task waits for on the host.
    pub(crate) host_predecessors: u32,
    /// All predecessors.
    pub(crate) predecessors: Box<[u32]>,
    /// The predecessors that its queue waits for itself.
    pub(crate) device_predecessors: Box<[u32]>,
    /// Successors whose tasks wait for this partition.
    pub(crate) wakes: Box<[u32]>,
    /// Time that it takes as the oldest of its queue.
    pub(crate) estimator: Estimator,
}

/// A queue of a device.
#[derive(Clone)]
pub(crate) struct DeviceQueue {
    pub(crate) device: Device,
    pub(crate) queue: Arc<hal::ValidatedQueue>,
    /// Number in the reactor.
    pub(crate) number: u64,
}

/// The work of a partition.
pub(crate) enum PartitionWork {
    CommandBuffer(UpdatableCell<hal::ValidatedCommandBuffer>),
    /// A command outside command-buffers. The owner of the run has it.
    Command,
    /// A stream task: a command whose closure is the user's, and is called while it is enqueued.
    StreamTask(UpdatableCell<Arc<hal::Command>>),
    HostTask(UpdatableCell<Arc<HostTask>>),
}

impl PartitionExec {
    pub(crate) fn command_buffer(&self) -> Option<&UpdatableCell<hal::ValidatedCommandBuffer>> {
        match &self.work {
            PartitionWork::CommandBuffer(buffer) => Some(buffer),
            _ => None,
        }
    }

    pub(crate) fn stream_task(&self) -> Option<&UpdatableCell<Arc<hal::Command>>> {
        match &self.work {
            PartitionWork::StreamTask(task) => Some(task),
            _ => None,
        }
    }

    pub(crate) fn host_task(&self) -> Option<&UpdatableCell<Arc<HostTask>>> {
        match &self.work {
            PartitionWork::HostTask(task) => Some(task),
            _ => None,
        }
    }

    /// The plans of what a host task submits by itself.
    pub(crate) fn bodies_text(&self) -> Option<String> {
        self.host_task()?.with(|task| task.plan_text())
    }

    /// The queue that it is enqueued on.
    pub(crate) fn queue(&self) -> Option<&hal::ValidatedQueue> {
        self.on.as_ref().map(|on| &*on.queue)
    }

    /// The queue's number in the reactor.
    pub(crate) fn queue_number(&self) -> Option<u64> {
        self.on.as_ref().map(|on| on.number)
    }

    /// How urgent its work is on its device.
    pub(crate) fn priority(&self) -> Priority {
        self.queue().map_or(Priority::Normal, |queue| queue.desc().priority)
    }

    pub(crate) fn device(&self) -> Option<&Device> {
        self.on.as_ref().map(|on| &on.device)
    }
}

/// A value that costs no lock where it cannot be updated. Updates change it only while nothing
/// reads it, so no thread waits.
pub(crate) enum UpdatableCell<T> {
    Fixed(T),
    Updatable(RwLock<T>),
}

impl<T> UpdatableCell<T> {
    pub(crate) fn new(value: T, updatable: bool) -> Self {
        if updatable { Self::Updatable(RwLock::new(value)) } else { Self::Fixed(value) }
    }

    pub(crate) fn read(&self) -> CellRef<'_, T> {
        match self {
            Self::Fixed(value) => CellRef::Fixed(value),
            Self::Updatable(value) => CellRef::Updatable(value.read()),
        }
    }

    pub(crate) fn with<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.read())
    }

    /// Changes it; `None` where it is fixed.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> Option<R> {
        match self {
            Self::Fixed(_) => None,
            Self::Updatable(value) => Some(change(&mut value.write())),
        }
    }
}

/// The value as long as this lives.
pub(crate) enum CellRef<'a, T> {
    Fixed(&'a T),
    Updatable(RwLockReadGuard<'a, T>),
}

impl<T> Deref for CellRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Fixed(value) => value,
            Self::Updatable(value) => value,
        }
    }
}
