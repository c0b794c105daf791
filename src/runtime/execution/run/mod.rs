//! One run of an executable: from `submit` until the last partition has ended.

mod ending;
mod launch;
#[cfg(all(test, wakegraph_loom))]
mod model;
mod order;
mod parts;
mod predecessor;
mod report;
mod waiting;

use std::fmt::{self, Debug};
use std::sync::Arc;

pub(crate) use ending::{Ended, may_still_run};
pub(crate) use launch::{HostScheduler, Ready, StreamTaskCall, cancelled, enqueue, enqueue_batch, watch_all};
#[cfg(test)]
pub(crate) use order::runs_visited;
pub(crate) use order::{with_other_devices, without_failed};
use parts::{ENQUEUED, FAILED, PartitionSlot, RunExtras, SUCCEEDED, UntilEnd, WAITING};
pub(crate) use predecessor::{
    Awaited, Fence, FenceGuard, FenceHolder, GuardAhead, Predecessor, Predecessors,
};
pub(crate) use report::{PartitionMoments, RUN_LOGS, RecordedRun, RunReport, RunTrace, record_run};
use smallvec::SmallVec;
use tokio::time::Instant;
use waiting::Waiting;
pub(crate) use waiting::{SpinPlan, Timing, spin_time};
use wakegraph_hal as hal;
use wakegraph_hal::{DeviceId, Error, Result};

use crate::runtime::completion::clock;
use crate::runtime::completion::latch::Latch;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::deadline;
use crate::runtime::execution::host_task::{HostTaskOwner, NestedRun, PollLog};
use crate::runtime::execution::profile::Profile;
use crate::runtime::execution::progress::SubmissionProgress;
use crate::runtime::execution::run_data::RunValue;
use crate::runtime::execution::template::{PartitionExec, RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::runtime::resource::profiling::is_any_profiled;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, Mutex, Ordering};
use crate::util::OnDemand;
use crate::util::deferred_drop::Failure;
use crate::util::metrics::RunMetrics;
use crate::util::panics::{catch, catch_and_log};

/// One run. While in flight it owns the executable, and with it all that a device may touch;
/// the device, the reactor or the task that will report a completion holds a reference to it.
///
/// There may be many: what only some runs have is in [`RunExtras`], which the others do without.
pub(crate) struct Run {
    /// Set when every partition has ended, and everything that the run comes after has ended.
    pub(crate) ended: Latch,
    /// Sequence number within the executable, starting at 1.
    number: u64,
    /// The reactors of the devices that do not notify. They poll for the ends of partitions.
    reactors: Arc<[Reactor]>,
    progress: RunProgress,
    pub(crate) waiting: Waiting,
    metrics: RunMetrics,
    /// Whether it has a trace.
    is_traced: bool,
    /// Whether anything of it is timed for a profile.
    is_profiled: bool,
    slots: SmallVec<[PartitionSlot; 1]>,
    /// The devices of its partitions.
    devices: Arc<[DeviceId]>,
    inner: Mutex<RunInner>,
}

/// Progress of the run.
#[derive(Default)]
struct RunProgress {
    /// Set by `cancel`: partitions that have not started never will.
    cancelled: AtomicBool,
    /// Set by `cancel` and when the deadline passes: devices end what they can stop.
    stops_devices: AtomicBool,
    /// Whether there is a failure: without one, the result is read without a lock.
    failed: AtomicBool,
    /// Whether there is a deadline: without one, what starts asks without a lock.
    has_deadline: AtomicBool,
    /// Whether every partition has been enqueued on a device, so that other devices can wait for
    /// the run's tails themselves.
    enqueued: AtomicBool,
    /// Whether it may fail before its turn, and so keeps what it comes after.
    keeps_order: AtomicBool,
    /// Whether it has failed before its turn, and what it comes after will end it.
    awaits_turn: AtomicBool,
    /// Whether it has ended although a device may still run it, or something that it comes after.
    given_up: AtomicBool,
    /// The launcher: one of the constants of `launch`.
    launch: AtomicU8,
    not_ended: AtomicU32,
    /// All partitions before this one have ended.
    oldest: AtomicU32,
    /// Tasks of this run that the host runs or has been handed: while there are any, spinning would
    /// keep them waiting.
    host_tasks: AtomicU32,
}

#[derive(Default)]
struct RunInner {
    /// Present until the run has ended.
    owner: Option<Arc<dyn RunOwner>>,
    extras: OnDemand<RunExtras>,
}

impl RunInner {
    fn failure(&self) -> Option<&Failure> {
        self.extras.get().and_then(|extras| extras.failure.as_ref())
    }
}

/// A part that an update has taken out of an executable.
pub(crate) type Replaced = Box<dyn Send>;

/// A value whose drop tells others that a run has ended.
pub(crate) type EndGuard = Box<dyn Send>;

impl Run {
    pub(crate) fn new(template: &RunTemplate) -> Result<Self> {
        let slots =
            template.partitions.iter().map(|partition| PartitionSlot::new(partition, template.profiling));
        let mut run = Self::with(slots.collect::<Result<_>>()?, template.reactors.clone());
        let devices = template.partitions.iter().map(PartitionExec::device);
        run.devices = template.devices.clone();
        run.metrics = RunMetrics::new(&template.metrics, devices.map(|device| device.map(Device::metrics)));
        Ok(run)
    }

    fn with(slots: SmallVec<[PartitionSlot; 1]>, reactors: Arc<[Reactor]>) -> Self {
        Self {
            ended: Latch::new(),
            number: 0,
            reactors,
            progress: RunProgress::default(),
            waiting: Waiting::default(),
            metrics: RunMetrics::default(),
            is_traced: false,
            is_profiled: false,
            slots,
            devices: Arc::default(),
            inner: Mutex::default(),
        }
    }

    /// A run that failed before it began.
    pub(crate) fn failed(error: Error) -> Self {
        let mut run = Self::with(SmallVec::new(), Arc::default());
        run.progress.failed = AtomicBool::new(true);
        run.inner.get_mut().extras.get_or_make().failure = Some(Failure::new(error));
        run.ended.set();
        run
    }

    /// Makes a run that has ended, or a new one, ready to run. The exclusive reference proves that no other
    /// thread uses it.
    pub(crate) fn reset(&mut self, owner: &Arc<impl RunOwner + 'static>, timing: Timing, number: u64) {
        let template = owner.template();
        self.number = number;
        self.ended.reset();
        self.progress = RunProgress::default();
        self.progress.not_ended = AtomicU32::new(self.slots.len() as u32);
        self.waiting = Waiting::new(timing, template.progress);
        for (slot, partition) in self.slots.iter_mut().zip(&template.partitions) {
            slot.reset(partition);
        }
        self.choose_times(template);
        self.is_traced = !self.slots.is_empty() && RunTrace::is_wanted();
        let inner = self.inner.get_mut();
        inner.extras.if_made(RunExtras::reset);
        if self.is_profiled {
            inner.extras.get_or_make().profile.begin(&template.labels);
        }
        if self.is_traced {
            // What listens may panic. Then it hears nothing of this run.
            let trace = catch(|| RunTrace::new(&**owner, number)).ok();
            self.is_traced = trace.is_some();
            inner.extras.get_or_make().until_end.trace = trace;
        }
        // Without a partition there is nothing to own it for, and nothing gives it back.
        if !self.slots.is_empty() {
            inner.owner = Some(Arc::clone(owner) as Arc<dyn RunOwner>);
            self.metrics.submitted();
            self.in_flight().into_iter().for_each(|runs| _ = runs.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Has the devices keep the times of the run that are profiled now, and no others.
    fn choose_times(&mut self, template: &RunTemplate) {
        if !is_any_profiled() && self.is_profiled == template.profiling {
            return;
        }
        self.is_profiled = template.profiling;
        for (slot, partition) in self.slots.iter_mut().zip(&template.partitions) {
            let Some(device) = partition.device() else { continue };
            slot.keep_times(device, template.profiling || device.is_profiled());
            self.is_profiled |= slot.keeps_times;
        }
    }

    /// Whether the event of a partition keeps times.
    fn keeps_times(&self, partition: usize) -> bool {
        self.slots[partition].keeps_times
    }

    /// Whether anything of the run is timed.
    fn is_profiled(&self) -> bool {
        self.is_profiled
    }

    /// The event of a partition that has succeeded, if it has the times of this run.
    pub(crate) fn timed_event(&self, partition: usize) -> Option<&dyn hal::Event> {
        // Of a batch, no event of the run is signalled.
        let has_times = self.keeps_times(partition) && self.has_succeeded(partition) && !self.is_in_batch();
        self.event(partition).filter(|_| has_times).map(|event| &**event)
    }

    /// Counter of the runs in flight, on the first device that has to be polled.
    fn in_flight(&self) -> Option<&AtomicU32> {
        self.reactors.first().map(Reactor::in_flight)
    }

    /// Takes a turn as the poller of each device that has to be polled.
    pub(crate) fn poll_devices(&self, now: std::time::Instant) {
        let now = clock::at(now);
        self.reactors.iter().for_each(|reactor| reactor.turn(now));
    }

    /// The submission is gone or has spun in vain: has the reactors' hosts poll for the end at once.
    #[inline]
    pub(crate) fn stop_polling(&self) {
        if self.is_polled() && !self.has_ended() && self.waiting.stop_polling() {
            self.reactors.iter().for_each(Reactor::poll_instead);
        }
    }

    /// Whether no other run is in flight on the device, so that a spin keeps no other submission
    /// from polling.
    pub(crate) fn is_alone_in_flight(&self) -> bool {
        self.in_flight().is_none_or(|in_flight| in_flight.load(Ordering::Relaxed) <= 1)
    }

    /// Whether the host has something to do for this run, so that a spin would keep it waiting.
    pub(crate) fn is_on_host(&self) -> bool {
        self.progress.host_tasks.load(Ordering::Acquire) > 0
    }

    /// The trace, while the run is in flight, if a subscriber listens.
    pub(crate) fn trace(&self) -> Option<Arc<RunTrace>> {
        if self.is_traced { self.extra(|extras| extras.until_end.trace.clone()) } else { None }
    }

    pub(crate) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// Tells the trace, if there is one. What listens to it is the user's: its panic must neither keep a run
    /// that devices have been given out of the order, nor keep one from ending.
    pub(crate) fn tell_trace(&self, tell: impl FnOnce(&RunTrace)) {
        if let Some(trace) = self.trace() {
            catch_and_log("what traces a run", || tell(&trace));
        }
    }

    /// Progress of the run; `None` when it has ended.
    pub(crate) fn progress(&self) -> Option<SubmissionProgress> {
        let owner = self.owner()?;
        Some(RunReport { run: self, owner: &*owner }.progress())
    }

    /// The run hangs. Until it has ended, the devices that run a partition of it are not healthy.
    pub(crate) fn set_stalled(&self, error: &Error) {
        if let Some(owner) = self.owner() {
            RunReport { run: self, owner: &*owner }.set_stalled(error);
        }
    }

    /// Number of partitions.
    #[cfg(test)]
    pub(crate) fn partitions(&self) -> usize {
        self.slots.len()
    }

    /// Whether a device does not notify.
    pub(crate) fn is_polled(&self) -> bool {
        !self.reactors.is_empty()
    }

    /// Sequence number within the executable, starting at 1.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the submission was refused before it became a run of its executable.
    pub(crate) fn is_refused(&self) -> bool {
        self.number == 0
    }

    /// A task that was waiting for the run finds that it has ended.
    pub(crate) fn has_woken(&self) {
        self.metrics.woken();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_set()
    }

    /// Whether it has ended, and no device uses its memory any more.
    pub(crate) fn has_freed_memory(&self) -> bool {
        self.has_ended() && !self.progress.given_up.load(Ordering::Acquire)
    }

    /// Why its memory is never free again, if it has ended although a device may still run it.
    pub(crate) fn given_up(&self) -> Option<Error> {
        if self.progress.given_up.load(Ordering::Acquire) { self.result().err() } else { None }
    }

    /// Whether there is a failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.progress.failed.load(Ordering::Acquire)
    }

    /// The run's result; meaningful when it has ended.
    #[inline]
    pub(crate) fn result(&self) -> Result<()> {
        if self.has_failed() { self.failure() } else { Ok(()) }
    }

    fn failure(&self) -> Result<()> {
        self.extra(|extras| extras.failure.as_ref().map(Failure::error)).map_or(Ok(()), Err)
    }

    /// Profile of a run that has ended and whose times are recorded. Asks the devices, so it is
    /// not for a notification.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let parts = self.extra(|extras| extras.profile.clone());
        if parts.collected.is_some() {
            return parts.collected;
        }
        let profile = Profile::collect(
            parts.labels.as_ref()?,
            |partition| self.timed_event(partition),
            &parts.host_times,
            parts.submitted,
        );
        Some(self.inner.lock().extras.get_or_make().profile.collected.get_or_insert(profile).clone())
    }

    /// Whether a partition ran to its end, in this run. The event of one that did not may still
    /// tell of an earlier run.
    pub(crate) fn has_succeeded(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) == SUCCEEDED
    }

    pub(crate) fn event(&self, partition: usize) -> Option<&Arc<dyn hal::Event>> {
        self.slots[partition].event()
    }

    /// A partition's enqueue has succeeded. It may have ended already: the device may have notified
    /// from inside.
    pub(crate) fn set_enqueued(&self, partition: usize) {
        let slot = &self.slots[partition];
        if slot.state.compare_exchange(WAITING, ENQUEUED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            self.tell_trace(|trace| trace.enqueued(partition));
        }
        // Either `stop_devices` finds the partition enqueued, or it is found here.
        if self.progress.stops_devices.load(Ordering::SeqCst) {
            slot.event().into_iter().for_each(|event| event.stop());
        }
    }

    /// Whether a partition is on a device, and not known to have ended.
    pub(crate) fn is_enqueued(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) == ENQUEUED
    }

    /// The executable, until the run has ended.
    fn owner(&self) -> Option<Arc<dyn RunOwner>> {
        self.inner.lock().owner.clone()
    }

    /// Whether a partition is known to have ended; asks no device.
    pub(crate) fn has_partition_ended(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) > ENQUEUED
    }

    /// Events of the last partitions on each device; `None` when the run has ended, and its result is known.
    pub(crate) fn last_events(&self) -> Option<Vec<Arc<dyn hal::Event>>> {
        let (owner, batch_event) = {
            let inner = self.inner.lock();
            (inner.owner.clone()?, inner.extras.read(|extras| extras.batch_event.clone()))
        };
        if let Some(event) = batch_event {
            return Some(vec![event]);
        }
        Some(owner.ends_of_devices.iter().filter_map(|&last| self.event(last as usize).cloned()).collect())
    }

    /// The run needs the results of others, and its devices wait for them. It has partitions, whose end
    /// lets the others go.
    pub(crate) fn set_depends_on(&self, runs: impl Iterator<Item = Arc<Run>>) {
        let runs = runs.collect();
        self.inner.lock().extras.get_or_make().until_end.depends_on = runs;
    }

    /// The runs whose results this one needs, and those that it comes after, until it has ended.
    fn predecessors(&self) -> SmallVec<[Arc<Run>; 2]> {
        self.extra(|RunExtras { until_end: UntilEnd { depends_on, comes_after, .. }, .. }| {
            depends_on.iter().cloned().chain(comes_after.iter().filter_map(Predecessor::run)).collect()
        })
    }

    /// Devices of the same partitions.
    pub(crate) fn devices(&self) -> SmallVec<[Device; 2]> {
        let Some(owner) = self.owner() else { return SmallVec::new() };
        let last = owner.ends_of_devices.iter().map(|&last| &owner.partitions[last as usize]);
        last.filter_map(|partition| partition.device().cloned()).collect()
    }

    /// Keeps what an update has taken out of the executable until this run has ended, and with it all
    /// before it. Gives it back if it has ended.
    pub(crate) fn keep(&self, retired: Replaced) -> Option<Replaced> {
        let mut inner = self.inner.lock();
        if inner.owner.is_none() {
            return Some(retired);
        }
        inner.extras.get_or_make().until_end.retired.push(retired);
        None
    }

    /// Keeps the value that the submission has brought. Called before the run starts.
    pub(crate) fn set_run_data(&self, value: RunValue) {
        self.inner.lock().extras.get_or_make().until_end.run_data = Some(value);
    }

    /// Drops the guard when this run has ended. Gives it back if it has ended.
    pub(crate) fn drop_at_end(&self, guard: EndGuard) -> Option<EndGuard> {
        let mut inner = self.inner.lock();
        if inner.owner.is_none() {
            return Some(guard);
        }
        inner.extras.get_or_make().until_end.guards.push(guard);
        None
    }

    pub(crate) fn set_all_enqueued(&self) {
        self.progress.enqueued.store(true, Ordering::Release);
    }

    /// The run needs the host, and this is how.
    pub(crate) fn set_scheduler(&self, scheduler: HostScheduler) {
        self.inner.lock().extras.get_or_make().until_end.scheduler = Some(scheduler);
    }

    /// One of the things that a partition waits for on the host has ended. Whether it was the last.
    pub(crate) fn release(&self, partition: usize) -> bool {
        self.slots[partition].waiting_for.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How a partition with these predecessors, which have ended, ends before it starts, if it must not
    /// start.
    pub(crate) fn ended_early(&self, predecessors: &[u32]) -> Option<Ended> {
        let failed = |&p: &u32| self.slots[p as usize].state.load(Ordering::Acquire) == FAILED;
        match self.is_cancelled() {
            true => Some(Ended::Cancelled),
            false if predecessors.iter().any(failed) => Some(Ended::Abandoned),
            false => self.is_late().then(|| Ended::Failed(Failure::new(deadline::exceeded()))),
        }
    }

    /// Nothing of the run is to start from then on. Called before it starts.
    pub(crate) fn set_deadline(&self, at: Instant) {
        self.inner.lock().extras.get_or_make().deadline = Some(at);
        self.progress.has_deadline.store(true, Ordering::Release);
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.progress.has_deadline.load(Ordering::Acquire) {
            true => self.extra(|extras| extras.deadline),
            false => None,
        }
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_late(&self) -> bool {
        self.deadline().is_some_and(|at| Instant::now() >= at)
    }

    pub(crate) fn record_host_times(&self, partition: usize, start: u64, end: u64) {
        self.inner.lock().extras.get_or_make().profile.host_times.push((partition, start, end));
    }

    /// Reads from the parts that only some runs have.
    fn extra<R: Default>(&self, read: impl FnOnce(&RunExtras) -> R) -> R {
        self.inner.lock().extras.read(read)
    }
}

impl hal::Notify for Run {
    fn notify(&self, token: u64) {
        let owner = || self.owner().filter(|owner| owner.polls_tails);
        let owner = self.is_polled().then(owner).flatten();
        // Final by contract, and this run's even if the enqueue has not returned yet.
        self.poll_event(token as usize);
        owner.iter().for_each(|owner| self.end_before_tails(owner));
    }
}

impl HostTaskOwner for Run {
    fn end_host_task(&self, partition: usize, result: Result<()>) {
        self.end_then_start(partition, result);
    }

    fn keep_views(&self, partition: usize) {
        self.inner.lock().extras.get_or_make().views_kept.push(partition);
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

    fn run_data(&self) -> Option<RunValue> {
        self.extra(|extras| extras.until_end.run_data.as_ref().map(RunValue::lend))
    }

    fn set_nested(&self, partition: usize, nested: Option<Arc<dyn NestedRun>>) {
        let previous = {
            let mut inner = self.inner.lock();
            let all = &mut inner.extras.get_or_make().nested;
            let at = all.iter().position(|(own, _)| *own == partition);
            let previous = at.map(|at| all.swap_remove(at));
            all.extend(nested.clone().map(|nested| (partition, nested)));
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
            .field("has_ended", &self.has_ended())
            .field("partitions", &self.slots.len())
            .finish_non_exhaustive()
    }
}
