//! Partitions that need the host: each starts when its predecessors are over, a host task as a task
//! of its own.
//!
//! Nothing is spawned before it can run. The thread that ends a partition learns which others that made
//! ready, and starts them: at once where it may, else in one task for all of them, so that a
//! device's thread wakes the runtime only once.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tracing::Instrument;

use crate::runtime::completion::clock;
use crate::runtime::completion::spawn::spawn_at;
use crate::runtime::execution::host_task::{HostTaskKind, HostTaskOwner, TaskLease, runtime_shut_down};
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::execution::polls::LoggedPolls;
use crate::runtime::execution::run::enqueue::enqueue;
use crate::runtime::execution::run::timing::HostWork;
use crate::runtime::execution::run::{Go, Run};
use crate::runtime::execution::template::RunOwner;

/// Partitions whose predecessors are over, in plan order.
pub(crate) type Ready = SmallVec<[u32; 8]>;

/// What it takes to start partitions of a run. The run holds one while it is in flight and needs the host.
#[derive(Clone)]
pub(crate) struct HostScheduler {
    pub(crate) handle: Handle,
    pub(crate) owner: Arc<dyn RunOwner>,
    pub(crate) run: Arc<Run>,
}

impl HostScheduler {
    /// Starts partitions, or ends those that must not start, and goes on with what that makes ready.
    pub(crate) fn start(&self, ready: Ready) {
        for host_task in self.start_devices(ready) {
            self.clone().start_later(smallvec![host_task]);
        }
    }

    /// As [`start`](Self::start), but in a task: for threads that must not be kept, such as those of devices.
    pub(crate) fn start_later(self, ready: Ready) {
        // The task runs the first of the host tasks itself.
        let is_host_task =
            |&&index: &&u32| matches!(self.owner.partitions[index as usize].work, PartitionWork::HostTask(_));
        let Some(&named) = ready.iter().find(is_host_task).or(ready.first()) else { return };
        let (handle, labels) = (self.handle.clone(), self.owner.labels.clone());
        let _on_host = self.run.host_task();
        let pending = ReadyPartitions { scheduler: self, ready, _on_host };
        let name = || labels.partition_name(named as usize);
        spawn_at(&handle, name, labels.location_of(named as usize), pending.start());
    }

    /// Enqueues the devices' partitions and gives back the host tasks.
    fn start_devices(&self, mut ready: Ready) -> Ready {
        let Self { handle, owner, run } = self;
        // Deadlines are times of the runtime's clock, which a test may have paused.
        let _in_runtime = run.deadline().map(|_| handle.enter());
        let mut host_tasks = Ready::new();
        let mut next = 0;
        while let Some(&partition) = ready.get(next) {
            next += 1;
            let index = partition as usize;
            let exec = &owner.partitions[index];
            match (run.go(&exec.predecessors), &exec.work) {
                (Go::Start, PartitionWork::HostTask(_)) => host_tasks.push(partition),
                (Go::Start, _) => {
                    // If it fails, the partition has ended.
                    enqueue(&**owner, run, index, &[], &[]);
                }
                // A list instead of nested calls: there may be thousands.
                (why, _) => ready.extend(run.skip(index, why)),
            }
        }
        host_tasks
    }

    async fn run_host_task(&self, partition: usize) {
        let Self { owner, run, .. } = self;
        let PartitionWork::HostTask(task) = &owner.partitions[partition].work else { return };
        let start = run.is_profiled().then(clock::now);
        let lease = TaskLease::new(run.clone(), partition);
        let span = run.trace_host_task(&**owner, partition);
        let timer = |kind| if kind == HostTaskKind::Internal { None } else { owner.metrics.host_task() };
        let (timer, kind, future) = task.with(|task| (timer(task.kind()), task.kind(), task.call(&lease)));
        // A blocking task notes by itself when it runs.
        let polls = if kind == HostTaskKind::Blocking { None } else { run.polls(partition) };
        let future = LoggedPolls::new(future, polls);
        let result = match kind {
            HostTaskKind::Async => run.unless_cancelled(partition, future).instrument(span).await,
            HostTaskKind::Blocking | HostTaskKind::Internal => future.instrument(span).await,
        };
        drop(timer);
        if let Some(start) = start {
            run.record_host_times(partition, start, clock::now());
        }
        // The partition is over when the last view that the task was given is gone, which may be later.
        lease.finish(result);
    }
}

/// Partitions that a task is to start. If its runtime shuts down before, they end.
struct ReadyPartitions {
    scheduler: HostScheduler,
    ready: Ready,
    /// Dropped last, after what the task has enqueued.
    _on_host: HostWork,
}

impl ReadyPartitions {
    async fn start(mut self) {
        let mut host_tasks = self.scheduler.start_devices(std::mem::take(&mut self.ready));
        // The first one needs no task of its own.
        let own = (!host_tasks.is_empty()).then(|| host_tasks.remove(0));
        for host_task in host_tasks {
            self.scheduler.clone().start_later(smallvec![host_task]);
        }
        if let Some(own) = own {
            self.scheduler.run_host_task(own as usize).await;
        }
    }
}

impl Drop for ReadyPartitions {
    fn drop(&mut self) {
        for partition in std::mem::take(&mut self.ready) {
            let ready = self.scheduler.run.end(partition as usize, Err(runtime_shut_down()));
            // None of them starts: they follow a failure.
            self.scheduler.start_devices(ready);
        }
    }
}
