//! The parts of a run: a slot for each partition, and extras, which only some runs have.

use std::sync::Arc;
use std::task::Waker;

use futures::task::AtomicWaker;
use smallvec::SmallVec;
use tokio::time::Instant;
use wakegraph_hal as hal;
use wakegraph_hal::{Error, Result};

use crate::runtime::completion::clock;
use crate::runtime::execution::host_task::NestedRun;
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::run::{EndGuard, Fence, HostScheduler, Predecessors, Replaced, Run, RunTrace};
use crate::runtime::execution::run_data::RunValue;
use crate::runtime::execution::template::PartitionExec;
use crate::runtime::resource::device::Device;
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::util::deferred_drop::Failure;

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
    /// Time of the enqueue on a device that notifies, and then the time that it took, in nanoseconds. 0 if
    /// that is not measured.
    time: AtomicU64,
    handle: PartitionHandle,
}

/// A run's handle of a partition in flight.
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

    /// Nanoseconds that it took, if that was measured.
    pub(super) fn took(&self) -> Option<u64> {
        let time = self.time.load(Ordering::Relaxed);
        (time & TOOK != 0).then_some(time & !TOOK)
    }
}

fn new_event(device: &Device, profiling: bool) -> Result<Arc<dyn hal::Event>> {
    device.observe(device.hal().create_event(&hal::EventDesc { profiling }))
}

/// The parts that only some runs have.
#[derive(Default)]
pub(super) struct RunExtras {
    /// From when on nothing of the run starts any more.
    pub(super) deadline: Option<Instant>,
    /// The error with which the submission was answered at its deadline, before the run had ended.
    pub(super) answered_late: Option<Error>,
    /// The task that waits to start the run.
    pub(super) starter: Option<Waker>,
    /// The event that tells of its end in place of its own, if it was launched in a batch.
    pub(super) batch_event: Option<Arc<dyn hal::Event>>,
    pub(super) failure: Option<Failure>,
    pub(super) profile: ProfileParts,
    /// Runs that host tasks have submitted and wait for, by partition.
    pub(super) nested: SmallVec<[(usize, Arc<dyn NestedRun>); 1]>,
    /// The host tasks that have ended while views of their buffers are kept, by partition.
    pub(super) views_kept: SmallVec<[usize; 1]>,
    pub(super) until_end: UntilEnd,
}

/// The parts that a run gives up when it has ended.
#[derive(Default)]
pub(super) struct UntilEnd {
    /// How partitions that need the host get started. Refers back to the run.
    pub(super) scheduler: Option<HostScheduler>,
    /// Runs whose results the devices wait for.
    pub(super) depends_on: SmallVec<[Arc<Run>; 1]>,
    /// The predecessors of a run that may fail before its turn. It ends after all of them.
    pub(super) comes_after: Predecessors,
    /// A guard among them, or among what they come after.
    pub(super) guard: Option<Arc<Fence>>,
    /// The run itself, if it comes after something: who ends it then needs it.
    pub(super) this: Option<Arc<Run>>,
    /// Parts that updates have taken out of the executable, and that this run or one before it still uses.
    pub(super) retired: Vec<Replaced>,
    /// The guards to drop when the run has ended.
    pub(super) guards: Vec<EndGuard>,
    pub(super) trace: Option<Arc<RunTrace>>,
    /// The value that the submission has brought.
    pub(super) run_data: Option<RunValue>,
}

/// The parts of a run's profile.
#[derive(Clone, Default)]
pub(super) struct ProfileParts {
    /// The names of nodes.
    pub(super) labels: Option<Arc<Labels>>,
    /// Time at which the run was submitted.
    pub(super) submitted: u64,
    /// Begin and end of host tasks, by partition.
    pub(super) host_times: Vec<(usize, u64, u64)>,
    /// The profile, once it was asked for.
    pub(super) collected: Option<Profile>,
}

impl RunExtras {
    /// Makes them ready for the next run.
    pub(super) fn reset(&mut self) {
        self.deadline = None;
        self.answered_late = None;
        self.starter = None;
        self.batch_event = None;
        self.failure = None;
        self.views_kept.clear();
        self.profile.reset();
    }

    /// The run has ended.
    pub(super) fn end(&mut self) -> UntilEnd {
        // Once all runs of the batch have let it go it serves another.
        self.batch_event = None;
        std::mem::take(&mut self.until_end)
    }
}

impl ProfileParts {
    fn reset(&mut self) {
        self.labels = None;
        self.host_times.clear();
        self.collected = None;
    }

    /// A run is submitted that has a profile.
    pub(super) fn begin(&mut self, labels: &Arc<Labels>) {
        self.labels = Some(labels.clone());
        self.submitted = clock::now();
    }
}
