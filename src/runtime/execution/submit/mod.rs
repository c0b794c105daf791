//! Submitting: ordering a new run behind what it conflicts with, and starting it.

mod deferred;
mod start;

use std::future::Future;
use std::sync::Arc;

use tokio::runtime::Handle;

use crate::hal;
use crate::runtime::completion::latch::wake_after_locks;
use crate::runtime::completion::spawn::spawn;
use crate::runtime::execution::batching::reactor_for;
use crate::runtime::execution::conflicts::{self, Predecessor, Predecessors};
use crate::runtime::execution::event::Event;
use crate::runtime::execution::executable::{Shared, State};
use crate::runtime::execution::host_task::TaskOutput;
use crate::runtime::execution::run::{Run, Timing};
use crate::runtime::execution::submission::{Spin, Submission, spin_time_among};
use crate::types::{Error, ErrorKind, Result};
use crate::util::deferred_drop::Failure;
use deferred::{Starter, WaitFuture};
use start::start;
pub(crate) use start::{enqueue, enqueue_batch};

/// A submission in preparation: its wait list.
///
/// Nothing happens before [`submit`](Self::submit).
#[must_use = "nothing happens before `submit`"]
pub struct SubmitBuilder<'a> {
    shared: &'a Arc<Shared>,
    waits: Waits,
}

/// What the caller wants to wait for.
#[derive(Default)]
struct Waits {
    events: Vec<Event>,
    futures: Vec<WaitFuture>,
}

impl std::fmt::Debug for SubmitBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Waits { events, futures } = &self.waits;
        f.debug_struct("SubmitBuilder")
            .field("events", &events.len())
            .field("futures", &futures.len())
            .finish()
    }
}

impl<'a> SubmitBuilder<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared, waits: Waits::default() }
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

    /// Submits. See [`ExecutableGraph::submit`](crate::ExecutableGraph::submit).
    pub fn submit(self) -> Submission {
        wake_after_locks(|| submit_ordered(self.shared, self.waits))
    }
}

/// Submits without a wait list. In the common case nothing else uses the executable's memory in a
/// conflicting way, no update waits, and either nothing is in flight or only what a device orders
/// by itself: one lock, no allocation.
pub(crate) fn submit(shared: &Arc<Shared>) -> Submission {
    wake_after_locks(|| submit_without_waits(shared))
}

fn submit_without_waits(shared: &Arc<Shared>) -> Submission {
    {
        let mut state = shared.state.lock();
        let alone = state.last.as_ref().is_none_or(|last| last.is_done());
        let in_queue_order = || {
            let last = state.last.as_ref();
            let enqueued = || last.is_none_or(|last| last.is_all_enqueued() && !last.is_in_batch());
            shared.partitions.len() <= 1 && shared.all_eager && enqueued()
        };
        if state.gates.is_empty() && state.contested.is_empty() && (alone || in_queue_order()) {
            let reactor = if alone { reactor_for(shared, &mut state) } else { None };
            let run = match new_run(shared, &mut state, alone && reactor.is_none()) {
                Ok(run) => run,
                Err(error) => return failed(error),
            };
            let spin = match reactor {
                Some(reactor) => {
                    reactor.hand_over(&run);
                    Spin::Never
                }
                None => {
                    let spin = plan_spin(shared, &mut state, &run, alone);
                    start(shared, &run, &[], &[]);
                    spin
                }
            };
            state.submitted(&run);
            return submission(shared, run, spin);
        }
    }
    submit_ordered(shared, Waits::default())
}

/// The general case: collects what the run has to come after, and leaves the waiting to devices as
/// far as they can.
fn submit_ordered(shared: &Arc<Shared>, waits: Waits) -> Submission {
    // Dropped after the locks: errors in runs and futures are the user's code.
    let mut over = Predecessors::new();
    let Waits { mut events, futures } = waits;
    let mut starter = None;
    let mut contested;
    let (mut order, mut state) = loop {
        contested = shared.state.lock().contested.clone();
        if let Some(locked) = conflicts::lock(shared, &contested) {
            break locked;
        }
    };

    let mut order_after = Predecessors::new();
    state.gates.retain(|gate| !gate.is_open());
    order_after.extend(state.gates.iter().cloned().map(Predecessor::Gate));
    order_after.extend(state.last_unfinished().map(Predecessor::Run));
    let own = order_after.len();
    order_after.extend(order.predecessors(&mut over));
    // Let go at once, so that it can be used again.
    over.retain(|one| !state.is_last(one));

    let mut failure = None;
    events.retain(|event| {
        let finished = event.run().is_done();
        if finished && failure.is_none() {
            failure = event.run().result().err().map(Failure::new);
        }
        !finished
    });
    let alone = order_after.is_empty() && events.is_empty() && futures.is_empty();
    let run = match new_run(shared, &mut state, alone) {
        Ok(run) => run,
        Err(error) => return failed(error),
    };
    let on_device = futures.is_empty()
        && order_after.iter().all(|predecessor| match predecessor {
            Predecessor::Run(earlier) => devices_can_wait(shared, earlier) || earlier.is_done(),
            Predecessor::Gate(_) => false,
        })
        && events.iter().all(|event| devices_can_wait(shared, event.run()) || event.run().is_done());

    let spin = plan_spin(shared, &mut state, &run, alone);
    if let Some(failure) = failure {
        run.abandon(&failure);
    } else if on_device && (shared.all_eager || Handle::try_current().is_ok()) {
        let order_events: Vec<_> = order_after.iter().flat_map(tail_events).collect();
        match dependencies(&events) {
            Ok(dependencies) => {
                run.set_comes_after(order_after[own..].iter().filter_map(Predecessor::run));
                run.set_depends_on(events.iter().map(|event| event.run().clone()));
                start(shared, &run, &order_events, &dependencies);
            }
            Err(error) => run.abandon(&error),
        }
    } else {
        match Handle::try_current() {
            Ok(handle) => {
                let order_after = order_after.into_vec();
                let waiting =
                    Starter { shared: shared.clone(), run: run.clone(), order_after, started: false };
                starter = Some((handle, waiting));
            }
            Err(_) => run.abandon(&needs_tokio(why_host(shared, &futures, &order_after, &events))),
        }
    }
    state.submitted(&run);
    // On its devices, a run fails with what it depends on, at once. One that is over has failed
    // before it started.
    let may_end_early = run.is_done() || starter.is_none() && !events.is_empty();
    order.record(&mut state, &run, may_end_early, &mut over);
    let submission = submission(shared, run, spin);
    drop(state);
    if let Some((handle, starter)) = starter {
        // A runtime that is shutting down drops the task, and the user's futures with it, right here.
        spawn(&handle, || "wakegraph deferred submission".into(), starter.run_after(events, futures));
    }
    submission
}

/// Whether this executable's first partitions can wait on their devices for all of `earlier`.
fn devices_can_wait(shared: &Shared, earlier: &Arc<Run>) -> bool {
    earlier.is_all_enqueued()
        // Without partitions there is no device to do the waiting.
        && !shared.roots.is_empty()
        && shared.roots.iter().all(|&root| {
            let partition = &shared.partitions[root as usize];
            partition.eager
                && partition.device().is_some_and(|device| {
                    earlier.tail_devices().iter().all(|other| device.can_wait_for(other))
                })
        })
}

fn tail_events(predecessor: &Predecessor) -> Vec<Arc<dyn hal::Event>> {
    match predecessor {
        Predecessor::Run(run) => run.tail_events().unwrap_or_default(),
        Predecessor::Gate(_) => Vec::new(),
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
fn new_run(shared: &Arc<Shared>, state: &mut State, alone: bool) -> Result<Arc<Run>> {
    if let Some(error) = shared.broken() {
        return Err(error.clone());
    }
    // The clock is read only where somebody uses what it says: a prediction for the reactor or for a spin.
    let timing = match alone && (shared.polled || !state.patience.is_backing_off()) {
        true => Timing::On,
        false => Timing::Off,
    };
    let number = state.runs + 1;
    let run = match state.take_reusable(|run| run.reset(shared, timing, number)) {
        Some(run) => run,
        None => {
            let mut run = Run::new(shared)?;
            run.reset(shared, timing, number);
            Arc::new(run)
        }
    };
    state.runs = number;
    Ok(run)
}

fn failed(error: Error) -> Submission {
    Submission::new(Arc::new(Run::failed(error)), Spin::Never, hal::Progress::Device, None)
}

fn submission(shared: &Arc<Shared>, run: Arc<Run>, spin: Spin) -> Submission {
    let spin = if run.is_done() { Spin::Never } else { spin };
    Submission::new(run, spin, shared.progress, shared.profiling.then(|| shared.outline.clone()))
}

/// Decides, before a run starts, how its submission will wait: the reactor keeps out of the way of
/// one that looks itself.
fn plan_spin(shared: &Shared, state: &mut State, run: &Run, alone: bool) -> Spin {
    // One that queues behind others is not worth a spin.
    let spin = if alone { spin(shared, state, run.crowd()) } else { Spin::Never };
    if shared.polled && !matches!(spin, Spin::Never) {
        run.set_looked_after();
        if run.crowd() > 1
            && let [partition] = &*shared.partitions
            && let Some(expected) = partition.queue_time.expected()
        {
            run.put_off_first_look(expected);
        }
    }
    spin
}

/// Whether it is worth to spin for a run that starts now.
fn spin(shared: &Shared, state: &mut State, crowd: u32) -> Spin {
    let limit = shared.spin_limit();
    if shared.all_eager {
        let Some(expected) = shared.expected() else { return Spin::Never };
        return match expected <= limit && state.patience.try_spin() {
            true => Spin::Once { time: spin_time_among(crowd, expected, limit) },
            false => Spin::Never,
        };
    }
    match !limit.is_zero() && state.patience.try_spin() {
        true => Spin::BetweenHostTasks { limit },
        false => Spin::Never,
    }
}

/// What a submission needs the host for.
fn why_host(
    shared: &Shared,
    futures: &[WaitFuture],
    order_after: &[Predecessor],
    events: &[Event],
) -> &'static str {
    let waits_for = |run: &Arc<Run>| !devices_can_wait(shared, run);
    if !shared.all_eager {
        "has work for the host"
    } else if !futures.is_empty() {
        "waits for a future"
    } else if order_after.iter().any(|earlier| matches!(earlier, Predecessor::Gate(_))) {
        "waits for a guard of a host buffer that it uses"
    } else if events.iter().any(|event| waits_for(event.run())) {
        "waits for another submission that its devices cannot wait for themselves"
    } else {
        "comes after a submission, of the same executable or on the same memory, that its devices cannot wait for \
         themselves"
    }
}

fn needs_tokio(why: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("this submission {why}, and was submitted outside a tokio runtime"),
    )
    .help(
        "submit inside `#[tokio::main]`, a spawned task or `runtime.block_on(async { exec.submit().await })`, or while \
         `runtime.enter()` is held",
    )
}
