//! One partition of a run.

use std::sync::Arc;

use futures::task::AtomicWaker;

use crate::hal;
use crate::runtime::execution::partitions::PartitionExec;
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::types::Result;

/// Not handed to a device or task yet. The event, reused from an earlier run, may still read complete.
pub(super) const WAITING: u8 = 0;
/// On a device: the event's status is this run's.
pub(super) const ENQUEUED: u8 = 1;
pub(super) const SUCCEEDED: u8 = 2;
pub(super) const FAILED: u8 = 3;

/// Set in [`PartitionSlot::time`] when it is how long the partition took.
const TOOK: u64 = 1 << 63;

/// One partition of a run.
pub(super) struct PartitionSlot {
    /// [`WAITING`], [`ENQUEUED`], [`SUCCEEDED`] or [`FAILED`].
    pub(super) state: AtomicU8,
    /// Whether the event keeps times.
    pub(super) keeps_times: bool,
    /// Predecessors that have to be waited for on the host, and one more until everything that
    /// devices can wait for themselves has been enqueued.
    pub(super) waiting_for: AtomicU32,
    /// When it was enqueued on a device that notifies, and then how long it took, in nanoseconds. 0 if that
    /// is not measured.
    time: AtomicU64,
    handle: PartitionHandle,
}

/// What a run has of a partition in flight.
enum PartitionHandle {
    /// The event that its device signals.
    Device(Arc<dyn hal::Event>),
    /// The task of a host task that runs.
    HostTask(Box<AtomicWaker>),
}

impl PartitionSlot {
    pub(super) fn new(partition: &PartitionExec, profiling: bool) -> Result<Self> {
        let device = partition.device();
        let handle = match device {
            Some(device) => PartitionHandle::Device(new_event(device, profiling)?),
            None => PartitionHandle::HostTask(Box::default()),
        };
        Ok(Self {
            state: AtomicU8::new(WAITING),
            keeps_times: profiling && device.is_some(),
            waiting_for: AtomicU32::new(0),
            time: AtomicU64::new(0),
            handle,
        })
    }

    /// Makes it ready for the next run.
    pub(super) fn reset(&mut self, partition: &PartitionExec) {
        self.state = AtomicU8::new(WAITING);
        self.waiting_for = AtomicU32::new(partition.host_predecessors + 1);
        self.time = AtomicU64::new(0);
        if let PartitionHandle::HostTask(task) = &mut self.handle {
            **task = AtomicWaker::new();
        }
    }

    /// Has the event keep times, or no longer. Where the device has no event to give, the old one goes on.
    pub(super) fn keep_times(&mut self, device: &Device, keeps_times: bool) {
        if self.keeps_times != keeps_times
            && let Ok(event) = new_event(device, keeps_times)
        {
            (self.handle, self.keeps_times) = (PartitionHandle::Device(event), keeps_times);
        }
    }

    /// The event of a partition on a device.
    pub(super) fn event(&self) -> Option<&Arc<dyn hal::Event>> {
        match &self.handle {
            PartitionHandle::Device(event) => Some(event),
            PartitionHandle::HostTask(_) => None,
        }
    }

    /// The task of a host task, to be woken when the run is cancelled.
    pub(super) fn task(&self) -> Option<&AtomicWaker> {
        match &self.handle {
            PartitionHandle::Device(_) => None,
            PartitionHandle::HostTask(task) => Some(task),
        }
    }

    /// It is being enqueued at this time, in nanoseconds.
    pub(super) fn measure_from(&self, now: u64) {
        self.time.store(now, Ordering::Relaxed);
    }

    /// It has ended, if its time is measured. Called once.
    pub(super) fn measure_until(&self, now: impl FnOnce() -> u64) {
        let enqueued = self.time.load(Ordering::Relaxed);
        if enqueued > 0 {
            self.time.store(TOOK | now().saturating_sub(enqueued).max(1), Ordering::Relaxed);
        }
    }

    /// How many nanoseconds it took, if that was measured.
    pub(super) fn took(&self) -> Option<u64> {
        let time = self.time.load(Ordering::Relaxed);
        (time & TOOK != 0).then_some(time & !TOOK)
    }
}

fn new_event(device: &Device, profiling: bool) -> Result<Arc<dyn hal::Event>> {
    device.observe(device.hal().create_event(&hal::EventDesc { profiling }))
}
