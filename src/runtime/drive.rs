//! Partition tasks: each partition that needs the host is an async task that awaits its predecessors and then starts.

use std::any::Any;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use tokio::runtime::Handle;

use super::executable::{Shared, Work};
use super::host_task::{self, HostTask};
use super::run::{Go, Run};
use super::spawn::spawn;
use super::submit::enqueue;
use crate::types::{Error, ErrorKind};

pub(crate) fn spawn_partition(handle: &Handle, shared: &Arc<Shared>, run: &Arc<Run>, partition: usize) {
    let guard = PartitionGuard { run: run.clone(), partition, over: false };
    let name = shared.partition_name(partition);
    spawn(handle, &name, drive(guard, shared.clone()));
}

async fn drive(mut guard: PartitionGuard, shared: Arc<Shared>) {
    let (run, partition) = (guard.run.clone(), guard.partition);
    let exec = &shared.partitions[partition];
    let go = poll_fn(|cx| {
        run.poll_start(partition, &exec.predecessors, cx.waker()).map_or(Poll::Pending, Poll::Ready)
    })
    .await;
    guard.over = true;
    match (go, &exec.work) {
        (Go::Start, Work::Device { .. }) => enqueue(&shared, &run, partition, &[], &[]),
        (Go::Start, Work::HostTask(task)) => {
            run_host_task(task.clone(), shared.clone(), run, partition).await
        }
        (why, _) => run.skip(partition, why),
    }
}

async fn run_host_task(task: Arc<HostTask>, shared: Arc<Shared>, run: Arc<Run>, partition: usize) {
    tracing::trace!(target: "wakegraph::host_task", partition, "start");
    let clock = shared.profiling.then(super::clock::now);
    let lease = host_task::TaskLease::new(run.clone(), partition);
    let result = task.call(&lease).await;
    if let Some(start) = clock {
        run.record_host_times(partition, start, super::clock::now());
    }
    // The partition is over when the last view that the task was given is gone, which may be later.
    lease.finish(result);
}

/// Ends a partition whose task is dropped before it started, because its runtime shuts down.
struct PartitionGuard {
    run: Arc<Run>,
    partition: usize,
    over: bool,
}

impl Drop for PartitionGuard {
    fn drop(&mut self) {
        if !self.over {
            self.run.finish(self.partition, Err(shut_down()));
        }
    }
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::Cancelled, "the tokio runtime that drives this submission shut down")
}

/// What a panic said.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a panic without a message").to_owned()
}
