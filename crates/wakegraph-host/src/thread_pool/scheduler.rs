//! The schedule and its lock: enqueues add to it, workers take from it.

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use smallvec::SmallVec;
use wakegraph_hal::support::errors::idle_wait;
use wakegraph_hal::util::Mutex;
use wakegraph_hal::util::deferred_drop::Failure;
use wakegraph_hal::{Error, EventStatus, Notification, Result};

use super::parker::Parker;
use super::schedule::{ChainId, Chains, HostJob, HostSchedule, QueueTag};
use super::schedule::{Dependent, PoolWork, ReleaseRuns, RunId, WorkOutcome, notify};
use super::sharing::{Help, Helpers, Offer};
use crate::events::HostEvent;
use crate::events::Watched;
use crate::events::now;

/// The schedule of one device, shared by the pool, its threads, and events of other devices that
/// the device's work waits for.
#[derive(Debug)]
pub(crate) struct Scheduler {
    schedule: Mutex<HostSchedule>,
    /// Whether a worker without a job spins: one at a time, as more would only take cores from each
    /// other.
    is_spinning: AtomicBool,
    workers: usize,
    /// The device's selector, for error messages.
    device: String,
}

/// Next step of a worker.
#[derive(Debug)]
pub(super) enum WorkerStep {
    Job(HostJob),
    /// Park until woken, then ask again.
    Park,
    /// The device is gone and its work done.
    End,
}

/// An event of a wait list.
#[derive(Clone, Copy)]
pub(crate) struct HostWait<'a> {
    pub(crate) event: &'a HostEvent<Dependent>,
    /// Whether it is a dependency; otherwise only the order counts.
    pub(crate) needs_result: bool,
}

impl Scheduler {
    pub(super) fn new(workers: usize, device: String) -> Self {
        Self { schedule: Mutex::default(), is_spinning: AtomicBool::new(false), workers, device }
    }

    /// Threads of the device.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    pub(crate) fn add_queue(&self) -> QueueTag {
        self.schedule.lock().add_queue()
    }

    pub(crate) fn add_chain(&self) -> ChainId {
        self.schedule.lock().add_chain()
    }

    pub(crate) fn release_chain(&self, chain: ChainId) {
        self.schedule.lock().release_chain(chain);
    }

    /// Lets the workers end once everything in flight has ended.
    pub(super) fn close(&self) {
        let mut schedule = self.schedule.lock();
        schedule.closed = true;
        Self::unlock_and_wake(schedule);
    }

    /// Enqueues work behind its chains and the events in `wait`.
    ///
    /// # Errors
    /// [`InvalidWaitList`](wakegraph_hal::ErrorKind::InvalidWaitList) for an event that was never enqueued,
    /// [`InvalidOperation`](wakegraph_hal::ErrorKind::InvalidOperation) when the event to signal is pending.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        mut work: PoolWork,
        queue: QueueTag,
        chains: Chains,
        wait: &[HostWait<'_>],
    ) -> Result<()> {
        let mut pending = SmallVec::<[HostWait<'_>; 8]>::new();
        for &wait in wait {
            match wait.event.status() {
                EventStatus::Complete => {}
                EventStatus::Pending => pending.push(wait),
                EventStatus::Failed(_) if !wait.needs_result => {}
                EventStatus::Failed(error) => _ = work.failure.get_or_insert(Failure::new(error)),
                EventStatus::Idle => return Err(idle_wait()),
            }
        }
        let submitted = work.profiled.then(now);
        let mut schedule = self.schedule.lock();
        // The event becomes pending inside the lock: a thread that sees it pending finds its run in
        // the chains already, so two enqueues can never wait for each other.
        work.event.begin()?;
        if let Some(submitted) = submitted {
            work.event.set_profile(|profile| (profile.submitted, profile.start) = (submitted, submitted));
        }
        let nothing_to_run = work.failure.is_some() || work.commands.has_no_effect();
        if nothing_to_run && pending.is_empty() && schedule.are_empty(chains) {
            let WorkOutcome { dependents, failure, notification } = work.complete();
            drop(schedule);
            for dependent in dependents {
                dependent.release(&failure);
            }
            notify(notification);
            return Ok(());
        }
        let run = schedule.admit(work, queue, chains, pending.len() as u32);
        Self::unlock_and_wake(schedule);
        self.watch(run, &pending);
        Ok(())
    }

    /// Blocks until all runs of the queue that are in flight now have ended. `event` is `marker`'s.
    pub(crate) fn join(&self, marker: PoolWork, queue: QueueTag) {
        let event = Arc::clone(&marker.event);
        let mut schedule = self.schedule.lock();
        if event.begin().is_ok() {
            schedule.join(marker, queue);
            Self::unlock_and_wake(schedule);
            event.wait(None);
        }
    }

    /// The next step of the worker with this parker.
    pub(super) fn next_step(&self, parker: &Arc<Parker>) -> WorkerStep {
        let mut schedule = self.schedule.lock();
        let job = schedule.pop();
        Self::unlock_with_step(schedule, job, parker)
    }

    /// Whether more than one run is in flight.
    pub(super) fn has_several_runs(&self) -> bool {
        self.schedule.lock().in_flight() > 1
    }

    /// Set while a worker spins before it parks.
    pub(super) fn is_spinning(&self) -> &AtomicBool {
        &self.is_spinning
    }

    /// Takes the work of a run whose last command has ended.
    pub(super) fn take_work(&self, run: RunId) -> Option<PoolWork> {
        self.schedule.lock().take_work(run)
    }

    /// The event that a run signals.
    pub(super) fn event(&self, run: RunId) -> Option<Arc<HostEvent<Dependent>>> {
        self.schedule.lock().event(run)
    }

    /// A failure of this device's work.
    pub(super) fn failure(&self, error: Error) -> Failure {
        Failure::new(error.on_device(&self.device))
    }

    /// Records the failure of a command, unless the run has failed before.
    pub(super) fn fail(&self, run: RunId, error: Error) {
        let failure = self.failure(error);
        self.schedule.lock().fail(run, failure);
    }

    /// Offers what a worker runs to the others.
    pub(super) fn offer(&self, offer: Offer) {
        let mut schedule = self.schedule.lock();
        schedule.offer(offer);
        Self::unlock_and_wake(schedule);
    }

    /// Takes back what the worker with these helpers offers, if it still does.
    pub(super) fn withdraw(&self, helpers: &Arc<Helpers>) {
        self.schedule.lock().withdraw(helpers);
    }

    /// Whether a helper had better leave, see [`HostSchedule::has_better`].
    pub(super) fn has_better(&self, help: &Help) -> bool {
        self.schedule.lock().has_better(help)
    }

    /// Work of one thread that is worth a second one.
    pub(super) fn worth_sharing(&self) -> Duration {
        self.schedule.lock().worth_sharing()
    }

    /// Puts commands of a started graph into the ready queue.
    pub(super) fn push_commands(&self, run: RunId, commands: impl Iterator<Item = u32>) {
        let mut schedule = self.schedule.lock();
        commands.for_each(|command| schedule.push_command(run, command));
        Self::unlock_and_wake(schedule);
    }

    /// Removes a run whose event is final and releases its dependents. Returns what the worker with
    /// this parker should do next, see [`HostSchedule::retire`], and the notification to call.
    pub(super) fn retire(
        &self,
        run: RunId,
        outcome: WorkOutcome,
        prefer_follower: bool,
        parker: &Arc<Parker>,
    ) -> (WorkerStep, Option<Notification>) {
        let WorkOutcome { dependents, failure, notification } = outcome;
        let is_own =
            |dependent: &&Dependent| ptr::addr_eq(Arc::as_ptr(&dependent.schedule), ptr::from_ref(self));
        for dependent in dependents.iter().filter(|dependent| !is_own(dependent)) {
            dependent.release(&failure);
        }
        let mut schedule = self.schedule.lock();
        for dependent in dependents.iter().filter(is_own) {
            schedule.release(dependent.run, 1, dependent.inherit(&failure));
        }
        let job = schedule.retire(run, prefer_follower);
        (Self::unlock_with_step(schedule, job, parker), notification)
    }

    /// Registers the run with the events it waits for. Those that have become final meanwhile are
    /// counted off here.
    fn watch(self: &Arc<Self>, run: RunId, events: &[HostWait<'_>]) {
        let mut done = 0;
        let mut failure = None;
        for &HostWait { event, needs_result } in events {
            match event.watch(|| Dependent { schedule: self.clone(), run, needs_result }) {
                Watched::Pending => {}
                Watched::Final(error) => {
                    done += 1;
                    failure = failure.or(error.filter(|_| needs_result));
                }
            }
        }
        if done > 0 {
            self.release(run, done, failure);
        }
    }

    /// Puts the parker of a worker without a job on the list of idle ones: it will be woken from now
    /// on, even before it parks.
    fn unlock_with_step(
        mut schedule: MutexGuard<'_, HostSchedule>,
        job: Option<HostJob>,
        parker: &Arc<Parker>,
    ) -> WorkerStep {
        let step = match job {
            Some(job) => WorkerStep::Job(job),
            None if schedule.has_ended() => WorkerStep::End,
            None => {
                schedule.idle.push(Arc::clone(parker));
                return WorkerStep::Park;
            }
        };
        Self::unlock_and_wake(schedule);
        step
    }

    /// Wakes the workers that parked last, if there is something for them. Each worker that takes a job (or
    /// ends) does the same, so one wake at a time is enough for jobs, and two bring many helpers in time.
    fn unlock_and_wake(mut schedule: MutexGuard<'_, HostSchedule>) {
        let mut wakes = schedule.wakes();
        let woken = [(); 2].map(|()| {
            wakes = wakes.checked_sub(1)?;
            schedule.idle.pop()
        });
        drop(schedule);
        woken.into_iter().flatten().for_each(|parker| parker.wake());
    }
}

impl ReleaseRuns for Scheduler {
    fn release(&self, run: RunId, count: u32, failure: Option<Failure>) {
        let mut schedule = self.schedule.lock();
        schedule.release(run, count, failure);
        Self::unlock_and_wake(schedule);
    }
}
