//! The partitions of an executable, ready to run.

use std::ops::Deref;
use std::sync::Arc;

use crate::hal;
use crate::runtime::completion::estimate::Estimator;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tuning::SpinKind;
use crate::runtime::execution::host_task::HostTask;
use crate::runtime::execution::updatable_cell::UpdatableCell;
use crate::runtime::resource::device::Device;
use crate::types::Priority;
use crate::util::console;
use crate::util::metrics::DeviceMetrics;

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

    /// How a thread may spin for all of them.
    pub(crate) fn spin_kind(&self) -> SpinKind {
        let polled = self.0.iter().filter_map(PartitionExec::device).filter(|device| device.is_polled());
        polled.map(|device| SpinKind::of(device.capabilities())).max().unwrap_or_default()
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
    pub(crate) work: PartitionWork,
    /// Enqueued by `submit` itself: every predecessor is, too, and its device can wait for them.
    pub(crate) eager: bool,
    /// Whether none of its predecessors is on its device: then it waits itself for what its run comes after on
    /// that device.
    pub(crate) begins_device: bool,
    /// How many predecessors its task waits for on the host.
    pub(crate) host_predecessors: u32,
    /// All predecessors.
    pub(crate) predecessors: Box<[u32]>,
    /// Those that its queue waits for itself.
    pub(crate) device_predecessors: Box<[u32]>,
    /// Successors whose tasks wait for this partition.
    pub(crate) wakes: Box<[u32]>,
    /// How long it takes as the oldest of its queue.
    pub(crate) estimator: Estimator,
}

/// What a partition runs.
pub(crate) enum PartitionWork {
    Device {
        device: Device,
        queue: Arc<hal::ValidatedQueue>,
        /// The queue's number in the reactor.
        queue_number: u64,
        command_buffer: UpdatableCell<hal::ValidatedCommandBuffer>,
    },
    /// A command outside command-buffers. The owner of the run has it.
    Command {
        device: Device,
        queue: Arc<hal::ValidatedQueue>,
        /// The queue's number in the reactor.
        queue_number: u64,
    },
    /// A stream task: a command whose closure is the user's, and is called while it is enqueued.
    StreamTask {
        device: Device,
        queue: Arc<hal::ValidatedQueue>,
        /// The queue's number in the reactor.
        queue_number: u64,
        task: UpdatableCell<Arc<hal::Command>>,
    },
    HostTask(UpdatableCell<Arc<HostTask>>),
}

impl PartitionExec {
    /// What the device made of the commands.
    pub(crate) fn command_buffer(&self) -> Option<hal::CommandBufferInfo> {
        match &self.work {
            PartitionWork::Device { command_buffer, .. } => Some(command_buffer.with(|buffer| buffer.info())),
            PartitionWork::Command { .. } | PartitionWork::StreamTask { .. } | PartitionWork::HostTask(_) => {
                None
            }
        }
    }

    /// Whether it is a stream task.
    pub(crate) fn is_stream_task(&self) -> bool {
        matches!(self.work, PartitionWork::StreamTask { .. })
    }

    /// The plans of what a host task submits by itself.
    pub(crate) fn bodies_text(&self) -> Option<String> {
        match &self.work {
            PartitionWork::HostTask(task) => task.with(|task| task.plan_text()),
            _ => None,
        }
    }

    /// The queue as tokio-console knows it.
    pub(crate) fn console_resource(&self) -> Option<&console::Resource> {
        self.work.queue().map(|queue| queue.console())
    }

    /// The queue that it is enqueued on.
    pub(crate) fn queue(&self) -> Option<&hal::ValidatedQueue> {
        self.work.queue().map(|queue| &**queue)
    }

    /// The queue's number in the reactor.
    pub(crate) fn queue_number(&self) -> Option<u64> {
        match self.work {
            PartitionWork::Device { queue_number, .. }
            | PartitionWork::Command { queue_number, .. }
            | PartitionWork::StreamTask { queue_number, .. } => Some(queue_number),
            PartitionWork::HostTask(_) => None,
        }
    }

    /// How urgent its work is on its device.
    pub(crate) fn priority(&self) -> Priority {
        self.work.queue().map_or(Priority::Normal, |queue| queue.desc().priority)
    }

    pub(crate) fn device(&self) -> Option<&Device> {
        self.work.device()
    }
}

impl PartitionWork {
    fn queue(&self) -> Option<&Arc<hal::ValidatedQueue>> {
        match self {
            Self::Device { queue, .. } | Self::Command { queue, .. } | Self::StreamTask { queue, .. } => {
                Some(queue)
            }
            Self::HostTask(_) => None,
        }
    }

    pub(crate) fn device(&self) -> Option<&Device> {
        match self {
            Self::Device { device, .. } | Self::Command { device, .. } | Self::StreamTask { device, .. } => {
                Some(device)
            }
            Self::HostTask(_) => None,
        }
    }
}
