//! The pool: worker threads around the [`schedule`](super::schedule), and the only place that locks it.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::completion::{Completion, Watch};
use super::device;
use super::doze::Sleeper;
use super::schedule::{Job, LineId, Lines, QueueTag, RunId, Schedule, Work};
use super::worker::{self, Outcome};
use crate::hal::{EventStatus, Notification};
use crate::types::{Error, ErrorKind, Result};
use crate::util::deferred_drop::Failure;

/// Keeps the threads of a device working. Held by the device, its queues and its command-buffers;
/// when the last is gone, the threads finish what is in flight and end. Nobody joins them: the last
/// may go inside a worker.
#[derive(Debug)]
pub(super) struct Pool {
    scheduler: Arc<Scheduler>,
}

/// The schedule and its lock, shared by the pool, its threads, and events of other devices that
/// wait for this one.
#[derive(Debug)]
pub(super) struct Scheduler {
    schedule: Mutex<Schedule>,
    /// Whether a worker without a job spins: one at a time, as more would only take cores from each other.
    spinning: AtomicBool,
    /// The device's name for error messages.
    device: String,
}

/// What a worker should do next.
#[derive(Debug)]
pub(super) enum Next {
    Job(Job),
    /// Sleep until woken, then ask again.
    Sleep,
    /// The device is gone and its work done.
    End,
}

/// A run that waits for an event.
#[derive(Debug)]
pub(super) struct Dependent {
    scheduler: Arc<Scheduler>,
    run: RunId,
    /// Whether the run needs the event's result, so that its failure is the run's, too.
    needed: bool,
}

/// An event of a wait list.
#[derive(Clone, Copy)]
pub(super) struct Wait<'a> {
    pub(super) event: &'a Completion<Dependent>,
    /// A dependency; otherwise only the order counts.
    pub(super) needed: bool,
}

impl Dependent {
    /// What the failure of the event means for the run.
    fn inherit(&self, failure: &Option<Failure>) -> Option<Failure> {
        failure.as_ref().filter(|_| self.needed).cloned()
    }
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system has no more threads.
    pub(super) fn start(threads: NonZeroUsize, device: String) -> Result<Self> {
        let scheduler =
            Arc::new(Scheduler { schedule: Mutex::default(), spinning: AtomicBool::new(false), device });
        // Built first: on an error below its drop ends the threads started so far.
        let pool = Self { scheduler };
        for index in 0..threads.get() {
            let scheduler = Arc::clone(&pool.scheduler);
            let name = format!("wakegraph-host-{index}");
            let started = thread::Builder::new().name(name).spawn(move || worker::run(&scheduler));
            started.map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("worker thread {index} cannot be started"))
                    .caused_by(error)
                    .on_device(&pool.scheduler.device)
                    .help("open the device with fewer threads, or raise the limit on threads")
            })?;
        }
        Ok(pool)
    }

    pub(super) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    pub(super) fn add_queue(&self) -> QueueTag {
        self.scheduler.schedule.lock().add_queue()
    }

    pub(super) fn add_line(&self) -> LineId {
        self.scheduler.schedule.lock().add_line()
    }

    pub(super) fn disown_line(&self, line: LineId) {
        self.scheduler.schedule.lock().disown_line(line);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut schedule = self.scheduler.schedule.lock();
        schedule.closed = true;
        Scheduler::unlock_and_wake(schedule);
    }
}

impl Scheduler {
    /// Takes up work behind its lines and the events in `wait`.
    ///
    /// # Errors
    /// [`InvalidWaitList`](ErrorKind::InvalidWaitList) for an event that was never enqueued,
    /// [`InvalidOperation`](ErrorKind::InvalidOperation) when the event to signal is pending.
    pub(super) fn enqueue(
        self: &Arc<Self>,
        mut work: Work,
        queue: QueueTag,
        lines: Lines,
        wait: &[Wait<'_>],
    ) -> Result<()> {
        let mut pending = SmallVec::<[Wait<'_>; 8]>::new();
        for &Wait { event, needed } in wait {
            match event.status() {
                EventStatus::Complete => {}
                EventStatus::Pending => pending.push(Wait { event, needed }),
                EventStatus::Failed(_) if !needed => {}
                EventStatus::Failed(error) => _ = work.failure.get_or_insert(Failure::new(error)),
                EventStatus::Idle => {
                    return Err(Error::new(
                        ErrorKind::InvalidWaitList,
                        "an event in the wait list was never enqueued",
                    )
                    .help("enqueue what signals the event first"));
                }
            }
        }
        if work.profiled {
            work.submitted = device::now();
        }
        let mut schedule = self.schedule.lock();
        // The event becomes pending inside the lock: whoever sees it pending finds its run in the
        // lines already, so that two enqueues can never wait for each other.
        work.event.begin()?;
        let nothing_to_run = work.failure.is_some() || work.program.is_effectless();
        if nothing_to_run && pending.is_empty() && schedule.are_clear(lines) {
            if work.profiled {
                work.started = work.submitted;
            }
            let Outcome { dependents, failure, notification } = worker::complete(work);
            drop(schedule);
            for dependent in dependents {
                dependent.scheduler.release(dependent.run, 1, dependent.inherit(&failure));
            }
            worker::notify(notification);
            return Ok(());
        }
        let run = schedule.admit(work, queue, lines, pending.len());
        Self::unlock_and_wake(schedule);
        self.watch(run, &pending);
        Ok(())
    }

    /// Blocks until all runs of the queue that are in flight now are done.
    pub(super) fn join(&self, marker: Work, queue: QueueTag) {
        let event = Arc::clone(&marker.event);
        let mut schedule = self.schedule.lock();
        if event.begin().is_ok() {
            schedule.join(marker, queue);
            Self::unlock_and_wake(schedule);
            event.wait(None);
        }
    }

    /// What the worker that sleeps in `me` should do next.
    pub(super) fn next_job(&self, me: &Arc<Sleeper>) -> Next {
        let mut schedule = self.schedule.lock();
        let job = schedule.pop();
        Self::unlock_and_go_on(schedule, job, me)
    }

    /// Who may spin before it sleeps; held while spinning.
    pub(super) fn spinning(&self) -> &AtomicBool {
        &self.spinning
    }

    /// The work of a run whose last command is done.
    pub(super) fn take_work(&self, run: RunId) -> Option<Work> {
        self.schedule.lock().take_work(run)
    }

    /// Remembers what went wrong first in a run.
    pub(super) fn fail(&self, run: RunId, error: Error) {
        let failure = Failure::new(error.on_device(&self.device));
        self.schedule.lock().fail(run, failure);
    }

    /// Puts commands of a started graph into the ready queue.
    pub(super) fn push_commands(&self, run: RunId, commands: impl Iterator<Item = u32>) {
        let mut schedule = self.schedule.lock();
        commands.for_each(|command| schedule.push_command(run, command));
        Self::unlock_and_wake(schedule);
    }

    /// Forgets a run whose event is final and releases who waited for it. Gives back what the
    /// worker that sleeps in `me` should do next, see [`Schedule::retire`], and what is left to
    /// notify.
    pub(super) fn retire(
        &self,
        run: RunId,
        outcome: Outcome,
        prefer_follower: bool,
        me: &Arc<Sleeper>,
    ) -> (Next, Option<Notification>) {
        let Outcome { dependents, failure, notification } = outcome;
        let is_own = |dependent: &Dependent| std::ptr::eq(&*dependent.scheduler, self);
        for dependent in dependents.iter().filter(|dependent| !is_own(dependent)) {
            dependent.scheduler.release(dependent.run, 1, dependent.inherit(&failure));
        }
        let mut schedule = self.schedule.lock();
        for dependent in dependents.iter().filter(|dependent| is_own(dependent)) {
            schedule.release(dependent.run, 1, dependent.inherit(&failure));
        }
        let job = schedule.retire(run, prefer_follower);
        (Self::unlock_and_go_on(schedule, job, me), notification)
    }

    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// Registers the run with the events it waits for. Those that have become final meanwhile are
    /// counted off here.
    fn watch(self: &Arc<Self>, run: RunId, events: &[Wait<'_>]) {
        let mut done = 0;
        let mut failure = None;
        for &Wait { event, needed } in events {
            match event.watch(|| Dependent { scheduler: Arc::clone(self), run, needed }) {
                Watch::Pending => {}
                Watch::Final(error) => {
                    done += 1;
                    failure = failure.or(error.filter(|_| needed));
                }
            }
        }
        if done > 0 {
            self.release(run, done, failure);
        }
    }

    fn release(&self, run: RunId, count: usize, failure: Option<Failure>) {
        let mut schedule = self.schedule.lock();
        schedule.release(run, count, failure);
        Self::unlock_and_wake(schedule);
    }

    /// Puts a worker without a job on the list of sleepers: it will be woken from now on, even
    /// before it sleeps.
    fn unlock_and_go_on(mut schedule: MutexGuard<'_, Schedule>, job: Option<Job>, me: &Arc<Sleeper>) -> Next {
        let next = match job {
            Some(job) => Next::Job(job),
            None if schedule.is_over() => Next::End,
            None => {
                schedule.idle.push(Arc::clone(me));
                return Next::Sleep;
            }
        };
        Self::unlock_and_wake(schedule);
        next
    }

    /// Wakes a sleeping worker, the last one that went to sleep, if there is something for it. Each
    /// worker that takes a job (or ends) does the same, so one wake at a time is enough.
    fn unlock_and_wake(mut schedule: MutexGuard<'_, Schedule>) {
        let sleeper = if schedule.ready() > 0 || schedule.is_over() { schedule.idle.pop() } else { None };
        drop(schedule);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
    }
}
