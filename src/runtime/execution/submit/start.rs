//! Starting a run: the devices get what needs no host; the rest starts when its predecessors end. A run whose
//! devices cannot wait for all that it comes after is started by a task.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures::future::{Either, select, try_join, try_join_all};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;
use wakegraph_hal::{self as hal, Error, ErrorKind, EventStatus, Result};

use crate::runtime::completion::tasks::{on_thread, spawn};
use crate::runtime::execution::deadline;
use crate::runtime::execution::host_guard::TaskOutput;
use crate::runtime::execution::host_task::{CatchPanics, catch_panic, runtime_shut_down};
use crate::runtime::execution::progress::list_causes;
use crate::runtime::execution::run::{
    self, Ended, HostScheduler, Ready, Run, RunReport, RunTrace, enqueue, watch_all,
};
use crate::runtime::execution::submission::Event;
use crate::runtime::execution::template::{RunOwner, RunTemplate, Stoppable};
use crate::runtime::resource::raw_memory::NativeEvent;
use crate::sync::Ordering;

/// Starts a run whose host-side predecessors have ended: enqueues what needs no host, starts what
/// waits for nothing. The rest starts when its predecessors end. `order_events` come
/// before it whether they fail or not, `dependencies` only if they succeed.
pub(super) fn start<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) {
    let template = owner.template();
    run.tell_trace(RunTrace::started);
    if template.partitions.is_empty() {
        return run.ended.set();
    }
    // In ascending order.
    let mut missing: SmallVec<[u32; 4]> = SmallVec::new();
    let runtime = (!template.all_eager).then(Handle::try_current);
    let scheduler = match runtime.transpose() {
        Ok(runtime) => runtime.map(|handle| HostScheduler { handle, owner: owner.clone(), run: run.clone() }),
        // `submit` has made sure that there is a runtime.
        Err(_) => return run.abandon(&template.labels.name(needs_tokio(&host_work(template)))),
    };
    let stoppable = template.stoppable.load(Ordering::Relaxed);
    if stoppable > Stoppable::Nothing as u8
        && let Some(at) = run.deadline()
        && let Err(error) = stop_devices_at(at, run)
        // Kernels end by themselves, so they need no tokio.
        && (stoppable == Stoppable::Loops as u8 || error.kind() == ErrorKind::Unavailable)
    {
        return run.abandon(&template.labels.name(error));
    }
    if let Some(scheduler) = &scheduler {
        run.set_scheduler(scheduler.clone());
    }
    for (index, partition) in template.partitions.iter().enumerate() {
        if partition.eager {
            if partition.predecessors.iter().any(|predecessor| missing.binary_search(predecessor).is_ok()) {
                // The event of what could not be enqueued still tells of an earlier run.
                missing.push(index as u32);
                // Nothing is ready before the end of this loop.
                let _ = run.end(index, Ended::Abandoned);
                continue;
            }
            let order = if partition.begins_device { order_events } else { &[] };
            let dependencies = if partition.predecessors.is_empty() { dependencies } else { &[] };
            if !enqueue(&**owner, run, index, order, dependencies) {
                missing.push(index as u32);
            }
        }
    }
    if let Some(scheduler) = scheduler {
        // Only now, so that whatever starts finds the events of the others pending, and not as an
        // earlier run left them.
        let mut ready = Ready::new();
        for (index, partition) in template.partitions.iter().enumerate() {
            if !partition.eager && run.release(index) {
                ready.push(index as u32);
            }
        }
        scheduler.start(ready);
    }
    if template.all_eager && missing.is_empty() {
        run.set_all_enqueued();
    } else if template.polls_tails {
        watch_all(template, run);
    }
}

/// Says what a run needs the host for.
pub(super) fn host_work(template: &RunTemplate) -> String {
    let task = template.partitions.iter().position(|partition| partition.device().is_none());
    match task.and_then(|task| template.labels.names(task).next()) {
        Some(node) => format!("has work for the host, {node}"),
        None => "has work on devices that cannot wait for each other without the host".into(),
    }
}

/// Has a task stop loops and kernels of a run at its deadline.
///
/// # Errors
/// [`InvalidOperation`](ErrorKind::InvalidOperation) outside a tokio runtime;
/// [`Unavailable`](ErrorKind::Unavailable) in one without a timer.
fn stop_devices_at(deadline: Instant, run: &Arc<Run>) -> Result<()> {
    let handle = Handle::try_current().map_err(|_| needs_tokio("has a loop that its deadline ends"))?;
    let (run, timer) = (run.clone(), deadline::timer(deadline)?);
    let stop = async move {
        if let Either::Right(_) = select(pin!(run.ended.wait()), timer).await {
            run.stop_devices();
        }
    };
    spawn(&handle, || "wakegraph deadline of a device".into(), stop);
    Ok(())
}

pub(super) fn needs_tokio(why: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!("this submission {why}, and was submitted outside a tokio runtime"),
    )
    .help(
        "submit inside `#[tokio::main]`, a spawned task or `runtime.block_on(async { exec.submit().await \
         })`, or while `runtime.enter()` is held",
    )
}

/// A future of a wait list. Neither its panic nor that of its drop goes any further.
pub(super) type WaitFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

pub(super) fn wait_future<F>(future: F) -> WaitFuture
where
    F: Future + Send + 'static,
    F::Output: TaskOutput,
{
    let future = CatchPanics::new(future);
    Box::pin(async move {
        let output = future.await?;
        catch_panic(|| output.into_result())?.map_err(|error| {
            Error::new(ErrorKind::HostTaskFailed, "a future in the wait list resolved to an error")
                .caused_by(error)
        })
    })
}

/// Waits on a thread for an event of another library.
pub(super) fn native_wait(event: &NativeEvent) -> WaitFuture {
    let event = event.hal().clone();
    let waiting = on_thread(move || event.wait(None));
    Box::pin(async move {
        match waiting?.await {
            Ok(EventStatus::Failed(error)) => Err(error),
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::Bug, "the thread that waits for an event has panicked")),
        }
    })
}

/// A submission that waits on the host before it starts.
pub(super) struct Starter<O: RunOwner + 'static> {
    pub(super) owner: Arc<O>,
    pub(super) run: Arc<Run>,
    pub(super) started: bool,
}

impl<O: RunOwner + 'static> Starter<O> {
    pub(super) async fn run_after(mut self, events: Vec<Event>, futures: Vec<WaitFuture>) {
        let outcome = self.unless_stopped(wait_for(events, futures)).await;
        let outcome = match outcome {
            Ok(()) => self.turn().await,
            Err(error) => Err(error),
        };
        self.started = true;
        // An update that this submission has waited for may have failed half-way.
        let outcome = outcome.and_then(|()| match self.owner.broken() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        });
        match outcome {
            Ok(()) if self.run.is_cancelled() => self.give_up(&run::cancelled()),
            Ok(()) if self.run.is_late() => self.give_up(&self.owner.template().too_late()),
            Ok(()) => {
                self.run.set_in_turn();
                start(&self.owner, &self.run, &[], &[]);
            }
            Err(error) => self.give_up(&error),
        }
    }

    /// Waits for everything that the run comes after. For a guard it does so until the run is cancelled or
    /// late: the task that awaits the run may be the one that holds the guard.
    async fn turn(&self) -> Result<()> {
        let turn = async {
            for earlier in self.run.comes_after() {
                earlier.ended().await?;
            }
            Ok(())
        };
        if !self.run.is_behind_guard() {
            return turn.await;
        }
        self.run.tell_trace(|trace| trace.waits_for_guard(&self.waits_for()));
        self.unless_stopped(turn).await.map_err(|error| self.behind_guard(error))
    }

    /// Waits for `waits`, unless the run is cancelled or late before.
    async fn unless_stopped(&self, waits: impl Future<Output = Result<()>>) -> Result<()> {
        let deadline = pin!(deadline::passed(self.run.deadline()));
        let stopped = select(self.run.cancellation(), deadline);
        match select(pin!(waits), stopped).await {
            Either::Left((outcome, _)) => outcome,
            Either::Right((Either::Left(_), _)) => Err(run::cancelled()),
            Either::Right((Either::Right((timer, _)), _)) => {
                timer.and_then(|()| Err(self.owner.template().too_late()))
            }
        }
    }

    /// Describes in words what the run waits for.
    fn waits_for(&self) -> Vec<String> {
        RunReport { run: &self.run, owner: &*self.owner }.waits_for()
    }

    /// The error of a run that was stopped while it waited for a guard, with what it waited for.
    fn behind_guard(&self, error: Error) -> Error {
        match &*self.waits_for() {
            [] => error,
            causes => error.with_note(&format!("while it waited for {}", list_causes(causes))),
        }
    }

    /// Ends the run in its turn. Has the submission see that at once, which may not wait for a guard.
    fn give_up(&self, error: &Error) {
        self.run.abandon(error);
        if self.run.awaits_turn() {
            self.run.ended.wake_all();
        }
    }
}

/// The task of a submission that waits on the host, to be spawned.
pub(super) struct Deferred<O: RunOwner + 'static> {
    pub(super) handle: Handle,
    pub(super) starter: Starter<O>,
    pub(super) events: Vec<Event>,
    pub(super) futures: Vec<WaitFuture>,
}

impl<O: RunOwner + 'static> Deferred<O> {
    pub(super) fn spawn(self) {
        let Self { handle, starter, events, futures } = self;
        spawn(&handle, || "wakegraph deferred submission".into(), starter.run_after(events, futures));
    }
}

impl<O: RunOwner + 'static> Drop for Starter<O> {
    fn drop(&mut self) {
        if !self.started {
            // The tokio runtime shuts down. The run ends, so that no task waits for ever, but in its turn.
            self.give_up(&runtime_shut_down());
        }
    }
}

/// Waits for everything the caller asked for, all at once; the first failure ends it.
async fn wait_for(events: Vec<Event>, futures: Vec<WaitFuture>) -> Result<()> {
    let events = try_join_all(events.iter().map(Event::wait));
    try_join(try_join_all(futures), events).await.map(drop)
}
