//! Partitions that need the host: each starts when its predecessors are over, a host task as a task
//! of its own.
//!
//! Nothing is spawned before it can run. Whoever ends a partition learns which others that made
//! ready, and starts them: at once where it may, else in one task for all of them, so that a
//! device's thread wakes the runtime only once.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;

use crate::runtime::completion::spawn::spawn;
use crate::runtime::execution::executable::{Shared, Work};
use crate::runtime::execution::host_task::TaskLease;
use crate::runtime::execution::run::{Go, HostWork, Run};
use crate::runtime::execution::submit::enqueue;
use crate::types::{Error, ErrorKind};

/// Partitions whose predecessors are over, in plan order.
pub(crate) type Ready = SmallVec<[u32; 8]>;

/// What it takes to start partitions of a run. The run holds one while it is in flight and needs the host.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) handle: Handle,
    pub(crate) shared: Arc<Shared>,
    pub(crate) run: Arc<Run>,
}

impl Driver {
    /// Starts partitions, or ends those that must not start, and goes on with what that makes ready.
    pub(crate) fn start(&self, ready: Ready) {
        for host_task in self.start_devices(ready) {
            self.clone().start_later(smallvec![host_task]);
        }
    }

    /// As [`start`](Self::start), but in a task: for threads that must not be kept, such as those of devices.
    pub(crate) fn start_later(self, ready: Ready) {
        let Some(&first) = ready.first() else { return };
        let (handle, shared) = (self.handle.clone(), self.shared.clone());
        let _on_host = self.run.host_task();
        let pending = Pending { driver: self, ready, _on_host };
        spawn(&handle, || shared.outline.partition_name(first as usize), pending.start());
    }

    /// Enqueues the devices' partitions and gives back the host tasks.
    fn start_devices(&self, mut ready: Ready) -> Ready {
        let Self { shared, run, .. } = self;
        let mut host_tasks = Ready::new();
        let mut next = 0;
        while let Some(&partition) = ready.get(next) {
            next += 1;
            let index = partition as usize;
            let exec = &shared.partitions[index];
            match (run.go(&exec.predecessors), &exec.work) {
                (Go::Start, Work::Device { .. }) => {
                    // If it fails, the run has been told.
                    enqueue(shared, run, index, &[], &[]);
                }
                (Go::Start, Work::HostTask(_)) => host_tasks.push(partition),
                // A list instead of nested calls: there may be thousands.
                (why, _) => ready.extend(run.skip(index, why)),
            }
        }
        host_tasks
    }

    async fn run_host_task(&self, partition: usize) {
        let Self { shared, run, .. } = self;
        let Work::HostTask(task) = &shared.partitions[partition].work else { return };
        tracing::trace!(target: "wakegraph::host_task", partition, "start");
        let clock = shared.profiling.then(crate::runtime::completion::clock::now);
        let lease = TaskLease::new(run.clone(), partition);
        let result = task.with(|task| task.call(&lease)).await;
        if let Some(start) = clock {
            run.record_host_times(partition, start, crate::runtime::completion::clock::now());
        }
        // The partition is over when the last view that the task was given is gone, which may be later.
        lease.finish(result);
    }
}

/// Partitions that a task is to start. If its runtime shuts down before, they end.
struct Pending {
    driver: Driver,
    ready: Ready,
    /// Dropped last, after what the task has enqueued.
    _on_host: HostWork,
}

impl Pending {
    async fn start(mut self) {
        let mut host_tasks = self.driver.start_devices(std::mem::take(&mut self.ready));
        // The last one needs no task of its own.
        let own = host_tasks.pop();
        for host_task in host_tasks {
            self.driver.clone().start_later(smallvec![host_task]);
        }
        if let Some(own) = own {
            self.driver.run_host_task(own as usize).await;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        for partition in std::mem::take(&mut self.ready) {
            let ready = self.driver.run.end(partition as usize, Err(shut_down()));
            // None of them starts: they follow a failure.
            self.driver.start_devices(ready);
        }
    }
}

pub(crate) fn shut_down() -> Error {
    Error::new(ErrorKind::Cancelled, "the tokio runtime that drives this submission shut down")
}
