//! A worker thread: takes jobs, runs them with no lock held, makes events final, tells who waits.
#![expect(unsafe_code, reason = "runs commands whose safety the caller of the enqueue vouched for")]

use std::sync::Arc;

use smallvec::SmallVec;

use super::device;
use super::doze::{Doze, Sleeper};
use super::execute::execute;
use super::pool::{Dependent, Next, Scheduler};
use super::program::{Program, Readiness};
use super::schedule::{Job, RunId, Work};
use crate::hal::Notification;
use crate::types::Result;
use crate::util::deferred_drop::Failure;
use crate::util::panics::catch_and_log;

/// How many jobs in a row a worker takes from one line before it lets the rest of the ready queue
/// have its turn.
const LINE_BUDGET: u32 = 64;

/// The life of a worker.
pub(super) fn run(scheduler: &Scheduler) {
    let mut worker = Worker { scheduler, sleeper: Arc::new(Sleeper::current()), streak: 0 };
    let mut doze = Doze::default();
    let mut next = scheduler.next_job(&worker.sleeper);
    loop {
        next = match next {
            Next::Job(job) => worker.run(job),
            Next::Sleep => {
                doze.until_woken(&worker.sleeper, scheduler.spinning());
                scheduler.next_job(&worker.sleeper)
            }
            Next::End => return,
        };
    }
}

/// Makes the event of finished work final, after letting go of what the program keeps alive. Gives
/// back whom to tell. Calls nobody, so it may be used with the schedule locked.
pub(super) fn complete(work: Work) -> Outcome {
    let Work { program, event, notification, profiled, submitted, started, failure } = work;
    if profiled {
        let end = device::now();
        event.set_profile(|profile| {
            (profile.submitted, profile.start, profile.end) = (submitted, started, end);
            profile.commands.clear();
            profile.commands.extend(program.times());
        });
    }
    let_go(program);
    let dependents = event.complete(failure.as_ref().map_or(Ok(()), Err), profiled);
    Outcome { dependents, failure, notification }
}

/// Calls the notification, if any. No lock may be held.
pub(super) fn notify(notification: Option<Notification>) {
    if let Some(notification) = notification {
        catch_and_log("a notification of the host backend", || {
            notification.target.notify(notification.token);
            drop(notification);
        });
    }
}

/// How work ended and who wants to know.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) dependents: SmallVec<[Dependent; 2]>,
    pub(super) failure: Option<Failure>,
    pub(super) notification: Option<Notification>,
}

struct Worker<'a> {
    scheduler: &'a Scheduler,
    /// How others wake this thread.
    sleeper: Arc<Sleeper>,
    /// Jobs taken in a row from one line.
    streak: u32,
}

impl Worker<'_> {
    /// Runs a job, and gives back what to do next.
    fn run(&mut self, job: Job) -> Next {
        match job {
            Job::Whole(run, mut work) => {
                if work.failure.is_none()
                    && let Err(error) = run_in_order(&work.program)
                {
                    work.failure = Some(Failure::new(error.on_device(self.scheduler.device())));
                }
                self.finish(run, work)
            }
            Job::Graph(run, program) => match self.start_graph(run, &program) {
                Some(first) => self.run_commands(run, program, first),
                None => self.scheduler.next_job(&self.sleeper),
            },
            Job::Command(run, program, command) => self.run_commands(run, program, command),
        }
    }

    /// Gives the roots of a graph to the pool, all but one.
    fn start_graph(&self, run: RunId, program: &Program) -> Option<u32> {
        let graph = program.graph()?;
        graph.reset();
        let (&first, others) = graph.roots().split_first()?;
        if !others.is_empty() {
            self.scheduler.push_commands(run, others.iter().copied());
        }
        Some(first)
    }

    /// Runs a command of a graph, then one that it made ready, and so on; others that it made ready
    /// go to the pool.
    fn run_commands(&mut self, run: RunId, program: Arc<Program>, mut command: u32) -> Next {
        let Some(graph) = program.graph() else { return self.scheduler.next_job(&self.sleeper) };
        let last = loop {
            let mut failed = graph.is_poisoned(command);
            if !failed && let Err(error) = run_command(&program, command as usize) {
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
        let_go(program);
        match if last { self.scheduler.take_work(run) } else { None } {
            Some(work) => self.finish(run, work),
            None => self.scheduler.next_job(&self.sleeper),
        }
    }

    /// Ends a run. Its event is final first, so that those behind it complete after it; then they
    /// may start; then who asked to be told is told.
    fn finish(&mut self, run: RunId, work: Work) -> Next {
        let outcome = complete(work);
        self.streak = (self.streak + 1) % LINE_BUDGET;
        let (next, notification) = self.scheduler.retire(run, outcome, self.streak != 0, &self.sleeper);
        notify(notification);
        next
    }
}

/// Drops a program, whose kernels may hold values of the user's.
fn let_go(program: Arc<Program>) {
    catch_and_log("the drop of a kernel's values", || drop(program));
}

fn run_in_order(program: &Program) -> Result<()> {
    (0..program.commands().len()).try_for_each(|index| run_command(program, index))
}

fn run_command(program: &Program, index: usize) -> Result<()> {
    let result = program.timed(index, |command| {
        if !program.is_enabled(index) {
            return Ok(());
        }
        // SAFETY: `checked` has checked the operands, and the caller of the enqueue vouched for the
        // pointers and that only what is ordered before and after touches the same bytes, an order
        // that the schedule keeps.
        unsafe { execute(command) }
    });
    result.map_err(|error| error.at_command(index as u32))
}
