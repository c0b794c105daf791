//! The threads of a device and what they run: a worker takes jobs and runs them with no lock held.
//!
//! | file | what it holds |
//! |---|---|
//! | `parker` | how a worker without a job waits |
//! | `sharing` | work that several workers do together |
//! | `schedule` | one enqueue, and all that are in flight and may start: plain data |
//! | `scheduler` | the schedule's lock; enqueues add to it, workers take from it |
//! | `mod` | the pool, and the life of a thread |
#![expect(unsafe_code, reason = "runs commands whose safety the caller of the enqueue vouched for")]

mod parker;
mod schedule;
mod scheduler;
mod sharing;

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use wakegraph_hal::{Error, ErrorKind, Result};

use crate::events::HostEvent;
use crate::interpreter::execute;
use crate::launch::{SharedWork, WorkerControl};
use crate::program::{EnqueuedCommands, HostProgram, Readiness};

use parker::{IdleStrategy, Parker};
pub(crate) use schedule::{ChainId, Dependent, PoolWork, QueueTag};
use schedule::{HostJob, RunId, drop_commands, notify};
use scheduler::WorkerStep;
pub(crate) use scheduler::{HostWait, Scheduler};
use sharing::{Help, Helpers, Offer};

/// Keeps the threads of a device working. Held by the device, its queues and its command-buffers;
/// after the last of them is gone, the threads finish what is in flight and end. They are never
/// joined, because a worker may drop the last of these objects.
#[derive(Debug)]
pub(crate) struct ThreadPool {
    scheduler: Arc<Scheduler>,
}

impl ThreadPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) when the system starts no more threads.
    pub(crate) fn start(threads: NonZeroUsize, device: &str) -> Result<Self> {
        // Built first: on an error below its drop ends the threads started so far.
        let pool = Self { scheduler: Arc::new(Scheduler::new(threads.get(), device.into())) };
        for index in 0..threads.get() {
            let scheduler = Arc::clone(&pool.scheduler);
            let name = format!("wakegraph-host-{index}");
            let started = thread::Builder::new().name(name).spawn(move || run_worker(&scheduler));
            started.map_err(|error| {
                Error::new(ErrorKind::Unavailable, format!("worker thread {index} cannot be started"))
                    .caused_by(error)
                    .on_device(device)
                    .help("open the device with fewer threads, or raise the limit on threads")
            })?;
        }
        Ok(pool)
    }
}

impl Deref for ThreadPool {
    type Target = Arc<Scheduler>;

    fn deref(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.scheduler.close();
    }
}

/// Number of jobs in a row that a worker takes from one chain before the rest of the ready queue has its
/// turn.
const CHAIN_BUDGET: u32 = 64;

/// The life of a worker.
fn run_worker(scheduler: &Scheduler) {
    let mut worker = Worker {
        scheduler,
        parker: Arc::new(Parker::current()),
        helpers: Arc::new(Helpers::of_current()),
        streak: 0,
    };
    let mut idle = IdleStrategy::default();
    let mut step = scheduler.next_step(&worker.parker);
    loop {
        step = match step {
            WorkerStep::Job(job) => worker.run(job),
            WorkerStep::Park => {
                let gave_way = idle.wait(&worker.parker, scheduler.is_spinning());
                let step = scheduler.next_step(&worker.parker);
                if gave_way {
                    idle.record_giving_way(scheduler.has_several_runs());
                }
                step
            }
            WorkerStep::End => return,
        };
    }
}

struct Worker<'a> {
    scheduler: &'a Scheduler,
    /// Wakes this thread.
    parker: Arc<Parker>,
    /// Helpers with what this thread shares.
    helpers: Arc<Helpers>,
    /// Jobs taken in a row from one chain.
    streak: u32,
}

impl Worker<'_> {
    /// Runs a job. Returns what to do next.
    fn run(&mut self, job: HostJob) -> WorkerStep {
        match job {
            HostJob::Whole(run, mut work) => {
                let mut control = RunControl { worker: self, event: RunEvent::Known(&work.event) };
                if work.failure.is_none()
                    && let Err(error) = run_in_order(&work.commands, &mut control)
                {
                    work.failure = Some(self.scheduler.failure(error));
                }
                self.finish(run, work)
            }
            HostJob::Graph(run, program) => match self.start_graph(run, &program) {
                Some(first) => self.run_commands(run, program, first),
                None => self.scheduler.next_step(&self.parker),
            },
            HostJob::Command(run, program, command) => self.run_commands(run, program, command),
            HostJob::Help(help) => self.help(help),
        }
    }

    /// Helps another worker until nothing is left to do, or something better is.
    fn help(&self, help: Help) -> WorkerStep {
        while help.step() {
            if self.scheduler.has_better(&help) {
                drop(help);
                return self.scheduler.next_step(&self.parker);
            }
        }
        self.scheduler.withdraw(help.helpers());
        drop(help);
        self.scheduler.next_step(&self.parker)
    }

    /// Gives the roots of a graph to the pool, all but the first, which it returns.
    fn start_graph(&self, run: RunId, program: &HostProgram) -> Option<u32> {
        let graph = program.graph()?;
        graph.reset();
        let (&first, others) = graph.roots().split_first()?;
        if !others.is_empty() {
            self.scheduler.push_commands(run, others.iter().copied());
        }
        Some(first)
    }

    /// Runs a command of a graph, then one that it made ready, and so on. The others that it made
    /// ready go to the pool.
    fn run_commands(&mut self, run: RunId, program: Arc<HostProgram>, mut command: u32) -> WorkerStep {
        let Some(graph) = program.graph() else { return self.scheduler.next_step(&self.parker) };
        let mut control = RunControl { worker: self, event: RunEvent::Of(run) };
        let is_last = loop {
            let mut failed = graph.is_poisoned(command);
            if !failed && let Err(error) = run_command(&program, command as usize, &mut control) {
                self.scheduler.fail(run, error);
                failed = true;
            }
            let mut ready = graph
                .successors(command)
                .iter()
                .copied()
                .filter(|&next| graph.count_down(next, failed) == Readiness::Ready);
            let own = ready.next();
            if let Some(second) = ready.next() {
                self.scheduler.push_commands(run, std::iter::once(second).chain(ready));
            }
            if graph.finish_command() {
                break true;
            }
            match own {
                Some(next) => command = next,
                None => break false,
            }
        };
        drop_commands(EnqueuedCommands::Program(program));
        match if is_last { self.scheduler.take_work(run) } else { None } {
            Some(work) => self.finish(run, work),
            None => self.scheduler.next_step(&self.parker),
        }
    }

    /// Ends a run: makes its event final, so that its followers complete after it; then releases
    /// them; then calls the notification.
    fn finish(&mut self, run: RunId, work: PoolWork) -> WorkerStep {
        let outcome = work.complete();
        self.streak = (self.streak + 1) % CHAIN_BUDGET;
        let (step, notification) = self.scheduler.retire(run, outcome, self.streak != 0, &self.parker);
        notify(notification);
        step
    }
}

/// Services of a worker for the commands of a run.
struct RunControl<'a> {
    worker: &'a Worker<'a>,
    event: RunEvent<'a>,
}

/// The event of a run. A command of a graph asks the schedule for it when it needs it.
enum RunEvent<'a> {
    Known(&'a HostEvent<Dependent>),
    Of(RunId),
    Found(Option<Arc<HostEvent<Dependent>>>),
}

impl RunControl<'_> {
    fn event(&mut self) -> Option<&HostEvent<Dependent>> {
        if let RunEvent::Of(run) = self.event {
            self.event = RunEvent::Found(self.worker.scheduler.event(run));
        }
        match &self.event {
            RunEvent::Known(event) => Some(event),
            RunEvent::Found(event) => event.as_deref(),
            RunEvent::Of(_) => None,
        }
    }
}

impl WorkerControl for RunControl<'_> {
    fn is_stopped(&mut self) -> bool {
        self.event().is_some_and(|event| event.is_stopped())
    }

    fn step_through(&mut self, work: &dyn SharedWork) {
        while !self.is_stopped() && work.step() {
            let percent = work.percent();
            if percent < 100
                && let Some(event) = self.event()
            {
                event.set_percent(percent);
            }
        }
        work.stop();
    }

    fn workers(&self) -> usize {
        self.worker.scheduler.workers()
    }

    fn worth_sharing(&self) -> Duration {
        self.worker.scheduler.worth_sharing()
    }

    fn share(&mut self, work: &dyn SharedWork, most: usize) {
        let Worker { scheduler, helpers, .. } = self.worker;
        // SAFETY: this function withdraws the offer and waits for the helpers before it returns, and what it
        // calls meanwhile does not panic.
        let offer = unsafe { Offer::new(work, helpers, most) };
        scheduler.offer(offer);
        self.step_through(work);
        scheduler.withdraw(helpers);
        helpers.wait_for_none();
    }
}

fn run_in_order(commands: &EnqueuedCommands, control: &mut dyn WorkerControl) -> Result<()> {
    match commands {
        EnqueuedCommands::Program(program) => {
            (0..program.commands().len()).try_for_each(|index| run_command(program, index, control))
        }
        EnqueuedCommands::One(command) => {
            // SAFETY: as in `run_command`.
            unsafe { execute(command, control) }.map_err(|error| error.at_command(0))
        }
    }
}

fn run_command(program: &HostProgram, index: usize, control: &mut dyn WorkerControl) -> Result<()> {
    let result = program.timed(index, |command| {
        if !program.is_enabled(index) {
            return Ok(());
        }
        // SAFETY: validation has checked the operands. The caller of the enqueue vouched for the
        // pointers, and that only what is ordered before and after touches the same bytes, an order
        // that the schedule keeps.
        unsafe { execute(command, control) }
    });
    result.map_err(|error| error.at_command(index as u32))
}
