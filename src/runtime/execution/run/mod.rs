//! One run of an executable: from `submit` until the last partition is final.

mod cancel;
mod chain;
mod ending;
mod enqueue;
mod host_scheduler;
mod launch;
mod loss;
mod pending;
mod polling;
mod progress;
mod record;
mod timing;
mod trace;

use std::any::Any;
use std::fmt::{self, Debug};
use std::sync::{Arc, OnceLock};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::completion::latch::Latch;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::deadline;
use crate::runtime::execution::host_task::{HostTaskOwner, NestedRun};
use crate::runtime::execution::labels::Labels;
use crate::runtime::execution::polls::PollLog;
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::profiling::is_any_profiled;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::types::{Error, Result};
use crate::util::deferred_drop::Failure;
use crate::util::metrics::{PartitionMetrics, RunMetrics};

pub(crate) use cancel::cancelled;
pub(crate) use enqueue::{enqueue, enqueue_batch, watch_all};
pub(crate) use host_scheduler::{HostScheduler, Ready};
pub(crate) use record::RunRecorder;
pub(crate) use timing::{SpinPlan, Timing};
pub(crate) use trace::{PartitionMoments, RunTrace};

/// One run. While in flight it owns the executable, and with it all that a device may touch;
/// the device, the reactor or the task that will report a completion holds a reference to it.
pub(crate) struct Run {
    /// Set when every partition is final.
    pub(crate) done: Latch,
    /// The task that waits to start the run, if there is one.
    starter: AtomicWaker,
    /// From when on nothing of it starts any more.
    deadline: OnceLock<Instant>,
    /// Sequence number within the executable, starting at 1.
    number: u64,
    /// Those of the devices that do not notify. They poll for the ends of partitions.
    reactors: SmallVec<[Reactor; 1]>,
    progress: RunProgress,
    waiting: Waiting,
    metrics: RunMetrics,
    /// Whether it has a trace.
    is_traced: bool,
    /// The names of nodes, where times are recorded.
    profiled: Option<Arc<Labels>>,
    slots: Box<[PartitionSlot]>,
    inner: Mutex<RunInner>,
}

/// How far the run is.
#[derive(Default)]
struct RunProgress {
    /// Set by `cancel`: partitions that have not started never will.
    cancelled: AtomicBool,
    /// Whether there is a failure: without one, the result is read without a lock.
    failed: AtomicBool,
    /// Whether every partition has been enqueued on a device, so that other devices can wait for
    /// the run's tails themselves.
    enqueued: AtomicBool,
    /// Who launches it: one of the constants of `launch`.
    launch: AtomicU8,
    unfinished: AtomicU32,
    /// All partitions before this one are over.
    oldest: AtomicU32,
    /// Tasks of this run that the host runs or has been handed: while there are any, spinning would
    /// keep them waiting.
    host_tasks: AtomicU32,
}

/// How its submission waits for the run.
#[derive(Default)]
struct Waiting {
    /// Whether partitions of devices that notify are timed, for estimates.
    is_timed: bool,
    /// Nanoseconds that the partition enqueued last is expected to take, 0 if that is not known.
    soonest: AtomicU64,
    /// Whether a submission polls for the end by itself, at first.
    has_poller: AtomicBool,
    /// Until when the end is near enough to be polled for without a pause, 0 if it is not.
    near_until: AtomicU64,
    /// How the first wait spins, see [`SpinPlan`]: nanoseconds, of which one or both are 0.
    spin_time: AtomicU64,
    between_host_tasks: AtomicU64,
    /// What drives the devices' work.
    driven_by: hal::Progress,
    /// How a submission's spin went: one of the `SPIN` constants.
    spin: AtomicU8,
    /// Whether the run keeps the queue that it shares for too long.
    too_long: AtomicBool,
}

#[derive(Default)]
struct RunInner {
    owner: Option<Arc<dyn RunOwner>>,
    /// How partitions that need the host get started. Refers back to the run, so it goes when the
    /// run is over.
    scheduler: Option<HostScheduler>,
    /// When it was submitted, for the profile.
    submitted: Option<u64>,
    /// What tells of its end in the place of its own event, if it was launched in a batch.
    batch_event: Option<Arc<dyn hal::Event>>,
    /// Runs whose results the devices wait for, until this one is over.
    depends_on: SmallVec<[Arc<Run>; 1]>,
    /// Runs of other executables that the devices have this one come after, until it is over.
    comes_after: SmallVec<[Arc<Run>; 1]>,
    /// What updates have taken out of the executable, and this run or one before it still uses.
    retired: Vec<Replaced>,
    failure: Option<Failure>,
    profile: Option<Profile>,
    trace: Option<Arc<RunTrace>>,
    host_times: Vec<(usize, u64, u64)>,
    /// Runs that host tasks have submitted and wait for, by partition.
    nested: SmallVec<[(usize, Arc<dyn NestedRun>); 1]>,
}

/// What an update has taken out of an executable.
pub(crate) type Replaced = Box<dyn Any + Send>;

/// One partition of the run.
struct PartitionSlot {
    state: AtomicU8,
    /// Predecessors that have to be waited for on the host, and one more until everything that
    /// devices can wait for themselves has been enqueued.
    waiting_for: AtomicU32,
    event: Option<Arc<dyn hal::Event>>,
    /// Whether the event keeps times.
    keeps_times: bool,
    /// The task of a host task that runs, to be woken when the run is cancelled.
    task: AtomicWaker,
    /// When it was enqueued on a device that notifies, 0 if its time is not measured.
    enqueued: AtomicU64,
    /// How many nanoseconds it took, 0 if that is not known.
    took: AtomicU64,
    metrics: PartitionMetrics,
}

/// Not handed to a device or task yet. The event, reused from an earlier run, may still read complete.
const WAITING: u8 = 0;
/// On a device: the event's status is this run's.
const ENQUEUED: u8 = 1;
const SUCCEEDED: u8 = 2;
const FAILED: u8 = 3;

/// What to do with a partition whose predecessors are final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Go {
    /// Start.
    Start,
    /// A predecessor failed: do not start.
    Skip,
    /// The run was cancelled: do not start.
    Cancel,
    /// The run's deadline has passed: do not start.
    Late,
}

impl Run {
    pub(crate) fn new(template: &RunTemplate) -> Result<Self> {
        let event = hal::EventDesc { profiling: template.profiling };
        let slots = template.partitions.iter().map(|partition| {
            Ok(PartitionSlot {
                state: AtomicU8::new(WAITING),
                waiting_for: AtomicU32::new(0),
                event: partition
                    .device()
                    .map(|device| device.observe(device.hal().create_event(&event)))
                    .transpose()?,
                keeps_times: template.profiling && partition.device().is_some(),
                task: AtomicWaker::new(),
                enqueued: AtomicU64::new(0),
                took: AtomicU64::new(0),
                metrics: PartitionMetrics::new(partition.device().map(Device::metrics)),
            })
        });
        let mut run = Self::with(slots.collect::<Result<_>>()?, template.reactors());
        run.profiled = template.profiling.then(|| template.labels.clone());
        Ok(run)
    }

    fn with(slots: Box<[PartitionSlot]>, reactors: SmallVec<[Reactor; 1]>) -> Self {
        Self {
            done: Latch::new(),
            starter: AtomicWaker::new(),
            deadline: OnceLock::new(),
            number: 0,
            reactors,
            progress: RunProgress::default(),
            waiting: Waiting::default(),
            metrics: RunMetrics::default(),
            is_traced: false,
            profiled: None,
            slots,
            inner: Mutex::default(),
        }
    }

    /// A run that failed before it began.
    pub(crate) fn failed(error: Error) -> Self {
        let mut run = Self::with(Box::default(), SmallVec::new());
        run.progress.failed = AtomicBool::new(true);
        run.inner.get_mut().failure = Some(Failure::new(error));
        run.done.set();
        run
    }

    /// Makes a finished run, or a new one, ready to run. The exclusive reference proves that no other
    /// thread uses it.
    pub(crate) fn reset(&mut self, owner: &Arc<impl RunOwner + 'static>, timing: Timing, number: u64) {
        let template = owner.template();
        self.number = number;
        self.done.reset();
        self.starter = AtomicWaker::new();
        self.deadline = OnceLock::new();
        self.progress = RunProgress::default();
        self.progress.unfinished = AtomicU32::new(self.slots.len() as u32);
        let (is_timed, driven_by) = (timing == Timing::On, template.progress);
        self.waiting = Waiting { is_timed, driven_by, ..Waiting::default() };
        for (slot, partition) in self.slots.iter_mut().zip(&template.partitions) {
            slot.state = AtomicU8::new(WAITING);
            slot.waiting_for = AtomicU32::new(partition.host_predecessors + 1);
            slot.task = AtomicWaker::new();
            slot.enqueued = AtomicU64::new(0);
            slot.took = AtomicU64::new(0);
            slot.metrics.reset();
        }
        self.choose_times(template);
        // What runs keep for later, such as the memory of lists, stays.
        let inner = self.inner.get_mut();
        inner.failure = None;
        inner.batch_event = None;
        inner.profile = None;
        inner.host_times.clear();
        inner.submitted = self.profiled.is_some().then(clock::now);
        self.is_traced = !self.slots.is_empty() && RunTrace::is_wanted();
        inner.trace = self.is_traced.then(|| RunTrace::new(&**owner, number));
        // Without a partition there is nothing to own it for, and nothing gives it back.
        inner.owner = (!self.slots.is_empty()).then(|| Arc::clone(owner) as Arc<dyn RunOwner>);
        if !self.slots.is_empty() {
            self.metrics = template.metrics.run();
            self.in_flight().into_iter().for_each(|runs| _ = runs.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Has the devices keep the times of the run that are profiled now, and no others.
    fn choose_times(&mut self, template: &RunTemplate) {
        if !is_any_profiled() && self.profiled.is_some() == template.profiling {
            return;
        }
        let mut is_profiled = template.profiling;
        for (slot, partition) in self.slots.iter_mut().zip(&template.partitions) {
            let Some(device) = partition.device() else { continue };
            let profiling = template.profiling || device.is_profiled();
            if slot.keeps_times != profiling {
                // Where the device has no event to give, the old one goes on.
                let event = device.hal().create_event(&hal::EventDesc { profiling });
                if let Ok(event) = device.observe(event) {
                    (slot.event, slot.keeps_times) = (Some(event), profiling);
                }
            }
            is_profiled |= slot.keeps_times;
        }
        self.profiled = is_profiled.then(|| template.labels.clone());
    }

    /// Whether the event of a partition keeps times.
    fn keeps_times(&self, partition: usize) -> bool {
        self.slots[partition].keeps_times
    }

    /// Whether anything of the run is timed.
    fn is_profiled(&self) -> bool {
        self.profiled.is_some()
    }

    /// The event of a partition that has succeeded, if it has the times of this run.
    pub(crate) fn timed_event(&self, partition: usize) -> Option<&dyn hal::Event> {
        // Of a batch, no event of the run is signalled.
        let has_times = self.keeps_times(partition) && self.has_succeeded(partition) && !self.is_in_batch();
        self.event(partition).filter(|_| has_times).map(|event| &**event)
    }

    /// Where the runs in flight are counted on the first device that has to be polled.
    fn in_flight(&self) -> Option<&AtomicU32> {
        self.reactors.first().map(Reactor::in_flight)
    }

    /// Whether all other partitions are over.
    pub(crate) fn is_last(&self, partition: usize) -> bool {
        self.progress.unfinished.load(Ordering::Acquire) == 1 && !self.is_over(partition)
    }

    /// Whether a device does not notify.
    pub(crate) fn is_polled(&self) -> bool {
        !self.reactors.is_empty()
    }

    /// Sequence number within the executable, starting at 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// A task that was waiting for the run finds it done.
    pub(crate) fn has_woken(&self) {
        self.metrics.woken();
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// Whether there is a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.progress.failed.load(Ordering::Acquire)
    }

    /// The run's result; meaningful when it is done.
    #[inline]
    pub(crate) fn result(&self) -> Result<()> {
        if self.has_failed() { self.failure() } else { Ok(()) }
    }

    fn failure(&self) -> Result<()> {
        self.inner.lock().failure.as_ref().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// Where the time went, of a run that is over and whose times are recorded. Asks the devices, so it is
    /// not for a notification.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let labels = self.profiled.as_ref()?;
        let (host_times, origin) = {
            let inner = self.inner.lock();
            if let Some(profile) = &inner.profile {
                return Some(profile.clone());
            }
            (inner.host_times.clone(), inner.submitted.unwrap_or(0))
        };
        let event_of = |partition| self.timed_event(partition);
        let profile = Profile::collect(labels, event_of, &host_times, origin);
        Some(self.inner.lock().profile.get_or_insert(profile).clone())
    }

    /// Whether a partition ran to its end, in this run. The event of one that did not may still
    /// tell of an earlier run.
    pub(crate) fn has_succeeded(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) == SUCCEEDED
    }

    pub(crate) fn event(&self, partition: usize) -> Option<&Arc<dyn hal::Event>> {
        self.slots[partition].event.as_ref()
    }

    /// A partition's enqueue has succeeded. It may be final already: the device may have notified
    /// from inside.
    pub(crate) fn set_enqueued(&self, partition: usize) {
        let slot = &self.slots[partition];
        if slot.state.compare_exchange(WAITING, ENQUEUED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.trace_enqueued(partition);
        }
        // Either `cancel` finds the partition enqueued, or it is found here.
        if self.progress.cancelled.load(Ordering::SeqCst) {
            slot.event.iter().for_each(|event| event.stop());
        }
    }

    /// Whether a partition is on a device, and not known to be over.
    pub(crate) fn is_enqueued(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) == ENQUEUED
    }

    /// The executable, until the run is over.
    fn owner(&self) -> Option<Arc<dyn RunOwner>> {
        self.inner.lock().owner.clone()
    }

    /// Whether a partition is known to be over; asks no device.
    pub(crate) fn is_over(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) > ENQUEUED
    }

    /// Events of the partitions without successors; `None` when the run is over, and its result known.
    pub(crate) fn tail_events(&self) -> Option<Vec<Arc<dyn hal::Event>>> {
        let (owner, batch_event) = {
            let inner = self.inner.lock();
            (inner.owner.clone()?, inner.batch_event.clone())
        };
        if let Some(event) = batch_event {
            return Some(vec![event]);
        }
        Some(owner.tails.iter().filter_map(|&tail| self.event(tail as usize).cloned()).collect())
    }

    /// The run needs the results of others, and its devices wait for them. It has partitions, whose end
    /// lets the others go.
    pub(crate) fn set_depends_on(&self, runs: impl Iterator<Item = Arc<Run>>) {
        self.inner.lock().depends_on = runs.collect();
    }

    /// Runs of other executables on the same memory, which the devices let end first. As above.
    pub(crate) fn set_comes_after(&self, runs: impl Iterator<Item = Arc<Run>>) {
        self.inner.lock().comes_after = runs.collect();
    }

    /// The runs that this one comes after, until it is over.
    fn predecessors(&self) -> SmallVec<[Arc<Run>; 2]> {
        let inner = self.inner.lock();
        inner.depends_on.iter().chain(&inner.comes_after).cloned().collect()
    }

    /// How many runs of other executables it waits for on its devices.
    #[cfg(test)]
    pub(crate) fn comes_after(&self) -> usize {
        self.inner.lock().comes_after.len()
    }

    /// Devices of the same partitions.
    pub(crate) fn tail_devices(&self) -> SmallVec<[Device; 2]> {
        let owner = self.inner.lock().owner.clone();
        let tails =
            owner.iter().flat_map(|owner| owner.tails.iter().map(|&tail| &owner.partitions[tail as usize]));
        tails.filter_map(|partition| partition.device().cloned()).collect()
    }

    /// Keeps what an update has taken out of the executable until this run is over, and with it all
    /// before it. Gives it back if it is over.
    pub(crate) fn keep(&self, retired: Replaced) -> Option<Replaced> {
        let mut inner = self.inner.lock();
        if inner.owner.is_none() {
            return Some(retired);
        }
        inner.retired.push(retired);
        None
    }

    pub(crate) fn set_all_enqueued(&self) {
        self.progress.enqueued.store(true, Ordering::Release);
    }

    /// The run needs the host, and this is how.
    pub(crate) fn set_scheduler(&self, scheduler: HostScheduler) {
        self.inner.lock().scheduler = Some(scheduler);
    }

    /// One of the things that a partition waits for on the host is over. Whether it was the last.
    pub(crate) fn release(&self, partition: usize) -> bool {
        self.slots[partition].waiting_for.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether a partition with these predecessors, which are over, may start.
    pub(crate) fn go(&self, predecessors: &[u32]) -> Go {
        let failed = |&p: &u32| self.slots[p as usize].state.load(Ordering::Acquire) == FAILED;
        match self.is_cancelled() {
            true => Go::Cancel,
            false if predecessors.iter().any(failed) => Go::Skip,
            false if self.is_late() => Go::Late,
            false => Go::Start,
        }
    }

    /// Nothing of the run is to start from then on. Called before it starts.
    pub(crate) fn set_deadline(&self, at: Instant) {
        // A run that is reset has none.
        let _ = self.deadline.set(at);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.deadline.get().copied()
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline.get().is_some_and(|at| Instant::now() >= *at)
    }

    pub(crate) fn record_host_times(&self, partition: usize, start: u64, end: u64) {
        self.inner.lock().host_times.push((partition, start, end));
    }
}

impl hal::Notify for Run {
    fn notify(&self, token: u64) {
        // Final by contract, and this run's even if the enqueue has not returned yet.
        self.poll_event(token as usize);
    }
}

impl HostTaskOwner for Run {
    fn finish_host_task(&self, partition: usize, result: Result<()>) {
        self.finish(partition, result);
    }

    fn stopped(&self) -> Option<Error> {
        match (self.is_cancelled(), self.is_late()) {
            (true, _) => Some(cancelled()),
            (false, true) => Some(deadline::exceeded()),
            (false, false) => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn polls(&self, partition: usize) -> Option<Arc<PollLog>> {
        self.trace()?.polls(partition)
    }

    fn set_nested(&self, partition: usize, nested: Option<Arc<dyn NestedRun>>) {
        let previous = {
            let mut inner = self.inner.lock();
            let at = inner.nested.iter().position(|(own, _)| *own == partition);
            let previous = at.map(|at| inner.nested.swap_remove(at));
            inner.nested.extend(nested.clone().map(|nested| (partition, nested)));
            previous
        };
        drop(previous);
        // Cancelled before it was there to be found.
        if let Some(nested) = nested.filter(|_| self.is_cancelled()) {
            nested.cancel();
        }
    }
}

impl Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("done", &self.is_done())
            .field("partitions", &self.slots.len())
            .finish_non_exhaustive()
    }
}
