//! Submitting: ordering a new run behind what it conflicts with, and starting it.

mod builder;
mod start;
mod start_after;

use std::sync::Arc;
use std::thread;

pub use builder::SubmitBuilder;
pub(crate) use builder::Waits;
use start::start;
pub(crate) use start_after::{Started, start_after, start_now};
use wakegraph_hal::{Error, Result};

use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tasks::wake_after_locks;
use crate::runtime::execution::conflicts;
use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::run::{
    Predecessor, Predecessors, Run, SpinPlan, StreamTaskCall, Timing, record_run, spin_time, without_failed,
};
use crate::runtime::execution::run_data::RunDataType;
use crate::runtime::execution::submission::Submission;
use crate::runtime::execution::submission_queue::SubmissionQueue;
use crate::util::deferred_drop::Failure;

/// Submits behind `waits`.
pub(crate) fn submit_after(executable: &Arc<ExecutableInner>, mut waits: Waits) -> Submission {
    loop {
        match wake_after_locks(|| submit_locked(executable, &mut waits)) {
            Ok((submission, started)) => {
                started.into_iter().for_each(Started::without_locks);
                return submission;
            }
            Err(awaited) => awaited.wait(),
        }
    }
}

/// Submits without a wait list. In the common case nothing else uses the executable's memory in a
/// conflicting way, no update waits, and either nothing is in flight or only what a device orders
/// by itself: one lock, no allocation.
pub(crate) fn submit(executable: &Arc<ExecutableInner>) -> Submission {
    let submission = wake_after_locks(|| submit_without_waits(executable));
    submission.unwrap_or_else(|| submit_after(executable, Waits::default()))
}

/// `None` where the case is not the common one.
fn submit_without_waits(executable: &Arc<ExecutableInner>) -> Option<Submission> {
    if !executable.has_stream_tasks && executable.run_data.is_none() {
        let mut state = executable.state.lock();
        let alone = state.last.as_ref().is_none_or(|last| last.has_freed_memory());
        let in_queue_order = || {
            let last = state.last.as_ref();
            let enqueued = || {
                last.is_none_or(|last| !last.keeps_order() && last.is_all_enqueued() && !last.is_in_batch())
            };
            executable.partitions.len() <= 1 && executable.all_eager && enqueued()
        };
        if state.fence.is_none() && state.contested.is_empty() && (alone || in_queue_order()) {
            let submitter = if alone { submitter_for(executable, &mut state) } else { None };
            // Of a run behind another one, only polls tell how long it takes.
            let is_timed = (alone || executable.polled) && submitter.is_none();
            let run = match new_run(executable, &mut state, is_timed) {
                Ok(run) => run,
                Err(error) => return Some(refused(executable, error)),
            };
            let queue = match submitter {
                Some((reactor, queue)) => {
                    leave_to(reactor, queue, executable, &run);
                    Some(queue.clone())
                }
                None => {
                    // Also behind an earlier run. Otherwise the reactor's thread would take a core from those
                    // that submit and run, or, where the device notifies, the thread that runs kernels would
                    // make a system call to wake the task.
                    plan_spin(executable, &mut state, &run);
                    state.last.iter().for_each(|before| run.tell_trace(|trace| trace.comes_after(before)));
                    start(executable, &run, &[], &[]);
                    None
                }
            };
            state.submitted(&run);
            return Some(Submission::new(run, queue));
        }
    }
    None
}

/// A submission, and what is left to do for it without locks. Nothing is left if it was refused.
type SubmittedRun = (Submission, Option<Started<ExecutableInner>>);

/// Nothing has been submitted: it would come after a run that another thread is about to launch.
#[must_use = "the caller waits, without locks, and tries again"]
pub(crate) struct LaunchAwaited(Arc<Run>);

impl LaunchAwaited {
    /// Waits until the run has been launched. For callers without locks: the launch calls code of the user's.
    pub(crate) fn wait(self) {
        while self.0.is_launched_without_locks() {
            thread::yield_now();
        }
    }
}

/// # Errors
/// If another thread is launching one of these runs, and the caller can wait for that.
pub(crate) fn check_launched<'a>(
    earlier: impl IntoIterator<Item = &'a Predecessor>,
) -> Result<(), LaunchAwaited> {
    let is_awaited = |run: &&Arc<Run>| run.is_launched_without_locks();
    let run = earlier.into_iter().find_map(|earlier| match earlier {
        Predecessor::Run(run) => Some(run).filter(is_awaited),
        Predecessor::Fence(_) | Predecessor::Guard(_) => None,
    });
    match run.filter(|_| !StreamTaskCall::is_inside()) {
        Some(run) => Err(LaunchAwaited(run.clone())),
        None => Ok(()),
    }
}

/// The general case: collects what the run has to come after, and leaves the waiting to devices as
/// far as they can. The caller may hold the lock of a queue; when it has let go of that, it does
/// what is left.
///
/// # Errors
/// If there is a launch to wait for first. `waits` is as it was then.
pub(crate) fn submit_locked(
    executable: &Arc<ExecutableInner>,
    waits: &mut Waits,
) -> Result<SubmittedRun, LaunchAwaited> {
    if let Err(error) = RunDataType::check(executable.run_data, waits.run_data.as_ref()) {
        return Ok((refused(executable, error), None));
    }
    // Dropped after the locks: errors in runs and futures are the user's code.
    let mut ended = Predecessors::new();
    let mut contested;
    let (mut order, mut state) = loop {
        contested = executable.state.lock().contested.clone();
        if let Some(locked) = conflicts::lock(executable, &contested) {
            break locked;
        }
    };

    let mut order_after = Predecessors::new();
    state.fence.take_if(|fence| fence.is_lifted());
    let update = state.fence.clone().map(Predecessor::Fence);
    let last = state.last_in_flight().map(Predecessor::Run);
    update.into_iter().chain(last).for_each(|one| order_after.push(one));
    order.add_predecessors(&mut order_after, &mut ended);
    check_launched(order_after.iter().chain(&waits.order))?;
    order_after.append(&mut waits.order);
    let order_after = without_failed(order_after);
    // Let go at once, so that it can be used again.
    ended.retain(|one| !state.is_last(one));

    let failure = waits.take_ended().or_else(|| given_up(&order_after));
    let alone = order_after.is_empty() && waits.is_empty();
    let run = match new_run(executable, &mut state, alone) {
        Ok(run) => run,
        Err(error) => return Ok((refused(executable, error), None)),
    };
    if let Some(run_data) = waits.run_data.take() {
        run.set_run_data(run_data);
    }
    if alone {
        plan_spin(executable, &mut state, &run);
    }
    let started = match failure {
        Some(failure) => Started::abandoned(&run, &failure),
        None => start_after(executable, &run, order_after, std::mem::take(waits)),
    };
    state.submitted(&run);
    order.record(&mut state, &run, &mut ended);
    Ok((Submission::new(run, None), Some(started)))
}

/// Why nothing can come after these, if a device may still run one of them.
pub(crate) fn given_up(earlier: &[Predecessor]) -> Option<Failure> {
    let loss = earlier.iter().find_map(Predecessor::given_up)?;
    Some(Failure::new(loss.with_note("a lost device may still use memory that this comes to use")))
}

/// The reactor and the submission queue to leave the next run of an executable to, if that should pay.
/// Nothing of the executable is in flight.
fn submitter_for<'a>(
    executable: &'a ExecutableInner,
    state: &mut ExecutableState,
) -> Option<(&'a Reactor, &'a Arc<SubmissionQueue>)> {
    let queue = executable.submission_queue.as_ref()?;
    let partition = executable.partitions.first()?;
    let device = partition.device().filter(|device| !device.is_profiled())?;
    let expected = partition.estimator.expected()?;
    let pays = queue.pays(device, expected) && state.sharing.try_spin();
    Some((device.reactor().filter(|_| pays)?, queue))
}

/// Leaves a run to the reactor's thread: to submit it, to poll for its end, and to wake the tasks that wait
/// for it.
fn leave_to(reactor: &Reactor, queue: &SubmissionQueue, executable: &Arc<ExecutableInner>, run: &Arc<Run>) {
    run.set_handed_over();
    if queue.push(run.clone(), executable.clone()) {
        reactor.wake_thread();
    }
}

/// A submission that does not become a run.
fn refused(executable: &ExecutableInner, error: Error) -> Submission {
    executable.metrics.refused(error.kind());
    failed(executable.labels.name(error))
}

pub(crate) fn failed(error: Error) -> Submission {
    Submission::new(Arc::new(Run::failed(error)), None)
}

/// `alone`: nothing is in flight that the run has to come after.
pub(super) fn new_run(
    executable: &Arc<ExecutableInner>,
    state: &mut ExecutableState,
    alone: bool,
) -> Result<Arc<Run>> {
    executable.accepts_submissions()?;
    // The clock is read only where the time is used: for an estimate of the reactor or of a spin.
    let timing = match alone && (executable.polled || !state.spinning.is_backing_off()) {
        true => Timing::On,
        false => Timing::Off,
    };
    let number = state.runs + 1;
    let run = match state.take_reusable(|run| run.reset(executable, timing, number)) {
        Some(run) => run,
        None => {
            let mut run = Run::new(executable)?;
            run.reset(executable, timing, number);
            Arc::new(run)
        }
    };
    state.runs = number;
    record_run(&run);
    Ok(run)
}

/// Decides, before a run starts, how its submission will wait: the reactor leaves runs alone that their
/// submissions poll.
pub(super) fn plan_spin(executable: &ExecutableInner, state: &mut ExecutableState, run: &Run) {
    let Some(plan) = spin(executable, state) else { return };
    run.waiting.plan_spin(plan);
    if executable.polled {
        run.waiting.set_polled_by_submission();
    }
}

/// Whether it is worth to spin for a run that starts now.
fn spin(executable: &ExecutableInner, state: &mut ExecutableState) -> Option<SpinPlan> {
    if executable.all_eager {
        let (expected, limit) = (executable.expected()?, executable.spin_limit());
        let pays = expected <= limit && state.spinning.try_spin();
        return pays.then(|| SpinPlan::Once(spin_time(expected, limit)));
    }
    let limit = executable.spin_limit();
    let pays = !limit.is_zero() && state.spinning.try_spin();
    pays.then_some(SpinPlan::BetweenHostTasks(limit))
}
