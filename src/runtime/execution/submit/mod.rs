//! Submitting: ordering a new run behind what it conflicts with, and starting it.

mod deferred;
mod start;

use std::future::Future;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::hal;
use crate::runtime::completion::latch::wake_after_locks;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::conflicts::{self, Predecessor, Predecessors};
use crate::runtime::execution::event::Event;
use crate::runtime::execution::executable::{ExecutableInner, ExecutableState};
use crate::runtime::execution::host_task::TaskOutput;
use crate::runtime::execution::run::{Run, SpinPlan, Timing};
use crate::runtime::execution::spin_time::spin_time;
use crate::runtime::execution::stream_tasks::StreamTaskCall;
use crate::runtime::execution::submission::Submission;
use crate::runtime::execution::submission_queue::SubmissionQueue;
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::execution::watchdog::Watchdog;
use crate::runtime::resource::native_event::NativeEvent;
use crate::types::{DeviceId, Error, ErrorKind, Result};
use crate::util::deferred_drop::Failure;
use deferred::{Deferred, Starter, WaitFuture};
use start::start;

/// A submission in preparation: its wait list.
///
/// Nothing happens before [`submit`](Self::submit).
#[must_use = "nothing happens before `submit`"]
pub struct SubmitBuilder<'a> {
    executable: &'a Arc<ExecutableInner>,
    waits: Waits,
    watchdog: Option<Duration>,
}

/// What the caller wants to wait for.
#[derive(Default)]
pub(crate) struct Waits {
    events: Vec<Event>,
    futures: Vec<WaitFuture>,
    native: Vec<NativeEvent>,
    /// What only has to be over, successful or not.
    pub(crate) order: Predecessors,
    /// When it is too late to start anything.
    pub(crate) deadline: Option<Instant>,
}

impl Waits {
    /// Nothing to wait for, and maybe a deadline.
    pub(crate) fn until(deadline: Option<Instant>) -> Self {
        Self { deadline, ..Self::default() }
    }

    /// For what comes after events.
    pub(crate) fn after(events: &[Event]) -> Self {
        Self { events: events.to_vec(), ..Self::default() }
    }

    /// For what comes after an event of another library.
    pub(crate) fn after_native(event: &NativeEvent) -> Self {
        Self { native: vec![event.clone()], ..Self::default() }
    }

    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.futures.is_empty() && self.native.is_empty()
    }

    /// Takes out events that are over. Gives the first failure among them.
    pub(crate) fn take_finished(&mut self) -> Option<Failure> {
        let mut failure = None;
        self.events.retain(|event| {
            let finished = event.run().is_done();
            if finished && failure.is_none() {
                failure = event.run().result().err().map(Failure::new);
            }
            !finished
        });
        failure
    }
}

impl std::fmt::Debug for SubmitBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Waits { events, futures, deadline, .. } = &self.waits;
        f.debug_struct("SubmitBuilder")
            .field("events", &events.len())
            .field("futures", &futures.len())
            .field("deadline", deadline)
            .field("watchdog", &self.watchdog)
            .finish()
    }
}

impl<'a> SubmitBuilder<'a> {
    pub(crate) fn new(executable: &'a Arc<ExecutableInner>) -> Self {
        Self { executable, waits: Waits::default(), watchdog: None }
    }

    /// Starts after `submission` has completed. If it fails, this one fails with the same error and
    /// does not start.
    pub fn after(self, submission: &Submission) -> Self {
        self.after_event(&submission.event())
    }

    /// Starts after `event` has completed. If it fails, this submission fails with the same error
    /// and does not start.
    pub fn after_event(mut self, event: &Event) -> Self {
        self.waits.events.push(event.clone());
        self
    }

    /// Starts after `future` has resolved, be it network, a timer or a channel. If it resolves to
    /// an `Err`, the submission fails with it and does not start. A future that panics fails it
    /// likewise.
    pub fn after_future<F>(mut self, future: F) -> Self
    where
        F: Future + Send + 'static,
        F::Output: TaskOutput,
    {
        self.waits.futures.push(deferred::wait_future(future));
        self
    }

    /// Starts after an event of another library has completed. The device waits for it where the submission
    /// begins on the device that has [imported](crate::Device::import_event) it; otherwise a thread of the
    /// runtime's waits. If the event fails, so does the submission.
    ///
    /// ```no_run
    /// # #![allow(unsafe_code)]
    /// # use wakegraph::{Device, ExecutableGraph, Result, Submission};
    /// # use std::ffi::c_void;
    /// # fn example(exec: &ExecutableGraph, device: &Device, written: *mut c_void) -> Result<Submission> {
    /// // SAFETY: the application has the event, which is of the device's context.
    /// let written = unsafe { device.import_event(written)? };
    /// let submission = exec.prepare().after_native(&written).submit();
    /// # Ok(submission)
    /// # }
    /// ```
    pub fn after_native(mut self, event: &NativeEvent) -> Self {
        self.waits.native.push(event.clone());
        self
    }

    /// Starts nothing any more from `at` on, which is a time of [`std::time`] or of [`tokio::time`].
    ///
    /// What would start too late does not start: the submission as a whole where it still waits for
    /// its turn, else the partitions that no device has been given yet, the host tasks that have not
    /// been called, and the next iteration of a loop that the runtime drives. What has started runs
    /// to its end. The submission resolves to
    /// [`DeadlineExceeded`](crate::ErrorKind::DeadlineExceeded) if anything did not start and nothing
    /// else failed. The error names the first node or partition that did not.
    ///
    /// A submission that waits for a future or an event stops waiting at the deadline. One that
    /// comes after others on the same memory resolves when these are over. Wrap the submission in
    /// [`tokio::time::timeout_at`] to stop waiting for it as well.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// use std::time::{Duration, Instant};
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// # graph.fill(&device.buffer::<u32>(4)?, 1);
    /// # let exec = graph.finalize()?;
    /// let in_time = Instant::now() + Duration::from_secs(5);
    /// exec.prepare().deadline(in_time).submit().await?;
    ///
    /// let late = exec.prepare().deadline(Instant::now()).submit().await;
    /// assert_eq!(late.unwrap_err().kind(), wakegraph::ErrorKind::DeadlineExceeded);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The submission fails with [`Unavailable`](crate::ErrorKind::Unavailable) if it has to wait on
    /// a tokio runtime that was built without its timer.
    pub fn deadline(mut self, at: impl Into<Instant>) -> Self {
        self.waits.deadline = Some(at.into());
        self
    }

    /// Has a watchdog watch the submission. If it is not over `limit` after this call to submit it,
    ///
    /// - the submission resolves to [`Stalled`](crate::ErrorKind::Stalled). The error names the partition
    ///   that hangs, and the node if the partition has only one, and says what waits for what;
    /// - the [health](crate::Device::health) of the device that has the partition is
    ///   [`Stalled`](crate::Health::Stalled) until the work is over after all;
    /// - `tracing` gets an event with the target `wakegraph::watchdog`.
    ///
    /// The work goes on: nothing can take it back from a device, and its memory is kept. A submission that is
    /// awaited again waits for its end, and so does its [event](Submission::event).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> wakegraph::Result<()> {
    /// # use std::time::Duration;
    /// # let device = wakegraph::Device::open("host")?;
    /// # let mut graph = wakegraph::Graph::new(&device);
    /// # graph.fill(&device.buffer::<u32>(4)?, 1);
    /// # let exec = graph.finalize()?;
    /// exec.prepare().watchdog(Duration::from_secs(30)).submit().await
    /// # }
    /// ```
    ///
    /// The watchdog is a task of the tokio runtime, which needs its timer. The submission fails with
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) outside a runtime, and with
    /// [`Unavailable`](crate::ErrorKind::Unavailable) without a timer.
    pub fn watchdog(mut self, limit: Duration) -> Self {
        self.watchdog = Some(limit);
        self
    }

    /// Submits. See [`ExecutableGraph::submit`](crate::ExecutableGraph::submit).
    pub fn submit(self) -> Submission {
        let Some(limit) = self.watchdog else { return submit_after(self.executable, self.waits) };
        let handle = Handle::try_current().map_err(|_| needs_tokio("has a watchdog"));
        match handle.and_then(|handle| Watchdog::start(handle, limit)) {
            Ok(watchdog) => {
                let mut submission = submit_after(self.executable, self.waits);
                watchdog.into_iter().for_each(|watchdog| submission.set_alarm(watchdog));
                submission
            }
            Err(error) => refused(self.executable, error),
        }
    }
}

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
    if !executable.has_stream_tasks {
        let mut state = executable.state.lock();
        let alone = state.last.as_ref().is_none_or(|last| last.is_done());
        let in_queue_order = || {
            let last = state.last.as_ref();
            let enqueued = || last.is_none_or(|last| last.is_all_enqueued() && !last.is_in_batch());
            executable.partitions.len() <= 1 && executable.all_eager && enqueued()
        };
        if state.fences.is_empty() && state.contested.is_empty() && (alone || in_queue_order()) {
            let submitter = if alone { submitter_for(executable, &mut state) } else { None };
            // What waits behind an earlier run and is notified of tells nothing about how long it takes.
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
                    // Behind an earlier run, too: the reactor's thread would take a core from those that
                    // submit and run, and waking the task would take a system call, on devices that notify
                    // of the thread that runs kernels.
                    plan_spin(executable, &mut state, &run);
                    state.last.iter().for_each(|before| run.trace_follows(before));
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
        Predecessor::Fence(_) => None,
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
    // Dropped after the locks: errors in runs and futures are the user's code.
    let mut over = Predecessors::new();
    let mut contested;
    let (mut order, mut state) = loop {
        contested = executable.state.lock().contested.clone();
        if let Some(locked) = conflicts::lock(executable, &contested) {
            break locked;
        }
    };

    let mut order_after = Predecessors::new();
    state.fences.retain(|fence| !fence.is_lifted());
    order_after.extend(state.fences.iter().cloned().map(Predecessor::Fence));
    order_after.extend(state.last_unfinished().map(Predecessor::Run));
    let own = order_after.len();
    order.add_predecessors(&mut order_after, &mut over);
    check_launched(order_after.iter().chain(&waits.order))?;
    order_after.append(&mut waits.order);
    // Let go at once, so that it can be used again.
    over.retain(|one| !state.is_last(one));

    let failure = waits.take_finished();
    let alone = order_after.is_empty() && waits.is_empty();
    let run = match new_run(executable, &mut state, alone) {
        Ok(run) => run,
        Err(error) => return Ok((refused(executable, error), None)),
    };
    if alone {
        plan_spin(executable, &mut state, &run);
    }
    let started = match failure {
        Some(failure) => Started::abandoned(&run, &failure),
        None => start_after(executable, &run, order_after, own, std::mem::take(waits)),
    };
    state.submitted(&run);
    order.record(&mut state, &run, started.may_end_early, &mut over);
    Ok((Submission::new(run, None), Some(started)))
}

/// A run that has started, or is to be started as soon as the caller holds no lock, or by a task.
pub(crate) struct Started<O: RunOwner + 'static> {
    /// Whether it may be over, as failed, before what it comes after.
    pub(crate) may_end_early: bool,
    launch: Option<Launch<O>>,
    deferred: Option<Deferred<O>>,
}

/// The launch of a run with stream tasks: it calls code of the user's, so it needs a caller without locks.
struct Launch<O: RunOwner + 'static> {
    owner: Arc<O>,
    run: Arc<Run>,
    order_events: Vec<Arc<dyn hal::Event>>,
    dependencies: Vec<Arc<dyn hal::Event>>,
    /// The runs of these events, which are not used again meanwhile.
    _earlier: Predecessors,
}

impl<O: RunOwner + 'static> Launch<O> {
    fn go(self) {
        start(&self.owner, &self.run, &self.order_events, &self.dependencies);
    }
}

impl<O: RunOwner + 'static> Drop for Launch<O> {
    /// Whatever became of it, others must not wait for it for ever.
    fn drop(&mut self) {
        self.run.set_launching_without_locks(false);
    }
}

impl<O: RunOwner + 'static> Started<O> {
    /// Ends a run that cannot start.
    pub(crate) fn abandoned(run: &Run, error: &Error) -> Self {
        run.abandon(error);
        Self { may_end_early: true, launch: None, deferred: None }
    }

    /// Whether it is to be launched without locks.
    pub(crate) fn is_launch(&self) -> bool {
        self.launch.is_some()
    }

    /// Does what has to be done without locks: launches a run with stream tasks, or spawns the task that
    /// starts the run.
    pub(crate) fn without_locks(self) {
        self.launch.into_iter().for_each(Launch::go);
        // A runtime that is shutting down drops the task, and the user's futures with it, right here.
        self.deferred.into_iter().for_each(Deferred::spawn);
    }
}

/// Starts a run of device partitions that comes after nothing, or after what its devices' queues order.
pub(crate) fn start_now<O: RunOwner + 'static>(owner: &Arc<O>, run: &Arc<Run>) -> Started<O> {
    start(owner, run, &[], &[]);
    Started { may_end_early: run.is_done(), launch: None, deferred: None }
}

/// Starts a run that waits on its devices, or has that done without locks.
fn start_or_launch<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_events: Vec<Arc<dyn hal::Event>>,
    dependencies: Vec<Arc<dyn hal::Event>>,
    earlier: Predecessors,
) -> Option<Launch<O>> {
    if !owner.template().has_stream_tasks {
        start(owner, run, &order_events, &dependencies);
        return None;
    }
    run.set_launching_without_locks(true);
    let (owner, run) = (owner.clone(), run.clone());
    Some(Launch { owner, run, order_events, dependencies, _earlier: earlier })
}

/// Starts a run after all of `order_after`, the first `own` of which are of its owner, and after `waits`.
/// Leaves the waiting to devices as far as they can.
pub(crate) fn start_after<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_after: Predecessors,
    own: usize,
    Waits { events, mut futures, native, deadline, .. }: Waits,
) -> Started<O> {
    let template = owner.template();
    if run.is_traced() {
        let earlier = order_after.iter().filter_map(Predecessor::run);
        let events = events.iter().map(|event| event.run().clone());
        earlier.chain(events).for_each(|earlier| run.trace_follows(&earlier));
    }
    if let Some(at) = deadline {
        run.set_deadline(at);
        if run.is_late() {
            return Started::abandoned(run, &template.too_late());
        }
    }
    let waits = !events.is_empty() || !futures.is_empty() || !native.is_empty();
    if template.all_eager && order_after.is_empty() && !waits && !template.has_stream_tasks {
        return start_now(owner, run);
    }
    let depends = !events.is_empty() || !native.is_empty();
    let on_device = futures.is_empty()
        && order_after.iter().all(|predecessor| match predecessor {
            Predecessor::Run(earlier) => devices_can_wait(template, earlier) || earlier.is_done(),
            Predecessor::Fence(_) => false,
        })
        && events.iter().all(|event| devices_can_wait(template, event.run()) || event.run().is_done())
        && native.iter().all(|event| begins_on(template, event.hal().device()));
    let (mut launch, mut deferred) = (None, None);
    if on_device && (template.all_eager || Handle::try_current().is_ok()) {
        let order_events: Vec<_> = order_after.iter().flat_map(tail_events).collect();
        match dependencies(&events) {
            Ok(mut dependencies) => {
                dependencies.extend(native.iter().map(|event| event.hal().clone()));
                // A run that is reset has none. One without partitions comes after nothing that is not over.
                let has_work = !template.partitions.is_empty();
                if has_work && order_after.len() > own {
                    run.set_comes_after(order_after[own..].iter().filter_map(Predecessor::run));
                }
                if has_work && depends {
                    run.set_depends_on(events.iter().map(|event| event.run().clone()));
                }
                launch = start_or_launch(owner, run, order_events, dependencies, order_after);
            }
            Err(error) => run.abandon(&error),
        }
    } else {
        match Handle::try_current() {
            Ok(handle) => {
                futures.extend(native.iter().map(|event| deferred::native_wait(&handle, event)));
                let order_after = order_after.into_vec();
                let starter = Starter { owner: owner.clone(), run: run.clone(), order_after, started: false };
                deferred = Some(Deferred { handle, starter, events, futures });
            }
            Err(_) => run.abandon(&needs_tokio(why_host(template, &futures, &native, &order_after, &events))),
        }
    }
    // On its devices, a run fails with what it depends on, at once. One that is over has failed
    // before it started.
    let may_end_early = run.is_done() || deferred.is_none() && depends || launch.is_some();
    Started { may_end_early, launch, deferred }
}

/// Whether the first partitions of a run can wait on their devices for all of `earlier`.
fn devices_can_wait(template: &RunTemplate, earlier: &Arc<Run>) -> bool {
    earlier.is_all_enqueued()
        // Without partitions there is no device to do the waiting.
        && !template.roots.is_empty()
        && template.roots.iter().all(|&root| {
            let partition = &template.partitions[root as usize];
            partition.eager
                && partition.device().is_some_and(|device| {
                    earlier.tail_devices().iter().all(|other| device.can_wait_for(other))
                })
        })
}

/// Whether all first partitions of a run are of this device.
fn begins_on(template: &RunTemplate, device: DeviceId) -> bool {
    !template.roots.is_empty()
        && template.roots.iter().all(|&root| {
            let partition = &template.partitions[root as usize];
            partition.eager && partition.device().is_some_and(|own| own.id() == device)
        })
}

fn tail_events(predecessor: &Predecessor) -> Vec<Arc<dyn hal::Event>> {
    match predecessor {
        Predecessor::Run(run) => run.tail_events().unwrap_or_default(),
        Predecessor::Fence(_) => Vec::new(),
    }
}

/// What devices wait for in the caller's wait list.
///
/// # Errors
/// That of a run which has ended meanwhile.
fn dependencies(events: &[Event]) -> Result<Vec<Arc<dyn hal::Event>>> {
    let mut all = Vec::new();
    for event in events {
        match event.run().tail_events() {
            Some(tails) => all.extend(tails),
            None => event.run().result()?,
        }
    }
    Ok(all)
}

/// `alone`: nothing is in flight that the run has to come after.
fn new_run(executable: &Arc<ExecutableInner>, state: &mut ExecutableState, alone: bool) -> Result<Arc<Run>> {
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
    run.record();
    Ok(run)
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
    failed(error)
}

pub(crate) fn failed(error: Error) -> Submission {
    Submission::new(Arc::new(Run::failed(error)), None)
}

/// Decides, before a run starts, how its submission will wait: the reactor leaves runs alone that their
/// submissions poll.
fn plan_spin(executable: &ExecutableInner, state: &mut ExecutableState, run: &Run) {
    let Some(plan) = spin(executable, state) else { return };
    run.plan_spin(plan);
    if executable.polled {
        run.set_polled_by_submission();
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

/// What a submission needs the host for.
fn why_host(
    template: &RunTemplate,
    futures: &[WaitFuture],
    native: &[NativeEvent],
    order_after: &[Predecessor],
    events: &[Event],
) -> &'static str {
    let waits_for = |run: &Arc<Run>| !devices_can_wait(template, run);
    if !template.all_eager {
        "has work for the host"
    } else if !futures.is_empty() {
        "waits for a future"
    } else if !native.is_empty() {
        "waits for an event of another library on a device that it does not begin on"
    } else if order_after.iter().any(|earlier| matches!(earlier, Predecessor::Fence(_))) {
        "waits for a guard of a host buffer that it uses"
    } else if events.iter().any(|event| waits_for(event.run())) {
        "waits for another submission that its devices cannot wait for themselves"
    } else {
        "comes after a submission, of the same executable or on the same memory, that its devices cannot \
         wait for themselves"
    }
}

fn needs_tokio(why: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("this submission {why}, and was submitted outside a tokio runtime"),
    )
    .help(
        "submit inside `#[tokio::main]`, a spawned task or `runtime.block_on(async { exec.submit().await \
         })`, or while `runtime.enter()` is held",
    )
}
