//! Starting a run: the devices get what needs no host; the rest starts when its predecessors end.

use std::pin::pin;
use std::sync::Arc;

use futures::future::{Either, select};
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::hal;
use crate::runtime::completion::spawn::spawn;
use crate::runtime::execution::deadline;
use crate::runtime::execution::run::{Go, HostScheduler, Ready, Run, enqueue, watch_all};
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::sync::Ordering;
use crate::types::{Error, ErrorKind, Result};

/// Starts a run whose host-side predecessors are over: enqueues what needs no host, starts what
/// waits for nothing. The rest starts when its predecessors end. `order_events` come
/// before it whether they fail or not, `dependencies` only if they succeed.
pub(super) fn start<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) {
    let template = owner.template();
    run.trace_start();
    if template.partitions.is_empty() {
        return run.done.set();
    }
    // In ascending order.
    let mut missing: SmallVec<[u32; 4]> = SmallVec::new();
    let runtime = (!template.all_eager).then(Handle::try_current);
    let scheduler = match runtime.transpose() {
        Ok(runtime) => runtime.map(|handle| HostScheduler { handle, owner: owner.clone(), run: run.clone() }),
        // `submit` has made sure that there is a runtime.
        Err(_) => return run.abandon(&needs_tokio(&host_work(template))),
    };
    if template.has_loops.load(Ordering::Relaxed)
        && let Some(at) = run.deadline()
        && let Err(error) = stop_loops_at(at, run)
    {
        return run.abandon(&error);
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
                let _ = run.skip(index, Go::Skip);
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

/// What a run needs the host for.
pub(super) fn host_work(template: &RunTemplate) -> String {
    let task = template.partitions.iter().position(|partition| partition.device().is_none());
    match task.and_then(|task| template.labels.names(task).next()) {
        Some(node) => format!("has work for the host, {node}"),
        None => "has work on devices that cannot wait for each other without the host".into(),
    }
}

/// Has a task stop the loops of a run at its deadline.
///
/// # Errors
/// [`InvalidOperation`](ErrorKind::InvalidOperation) outside a tokio runtime;
/// [`Unavailable`](ErrorKind::Unavailable) in one without a timer.
fn stop_loops_at(deadline: Instant, run: &Arc<Run>) -> Result<()> {
    let handle = Handle::try_current().map_err(|_| needs_tokio("has a loop that its deadline ends"))?;
    let (run, timer) = (run.clone(), deadline::timer(deadline)?);
    let stop = async move {
        if let Either::Right(_) = select(pin!(run.done.wait()), timer).await {
            run.stop_loops();
        }
    };
    spawn(&handle, || "wakegraph deadline of a loop".into(), stop);
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
