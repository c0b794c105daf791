//! Starting the partitions of a run, or not: handing them to their devices, spawning host tasks, and
//! cancelling what has not started.
//!
//! A run is launched by `submit`, or by the reactor's thread, which it was left to. Partitions that need the
//! host start when their predecessors have ended. Nothing is spawned before it can run. The thread that ends
//! a partition learns which others that made ready, and starts them: at once where it may, else in one task
//! for all of them, so that a device's thread wakes the runtime only once.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures::task::AtomicWaker;
use smallvec::{SmallVec, smallvec};
use tokio::runtime::Handle;
use tracing::{Instrument, Span};
use wakegraph_hal::{self as hal, Error, ErrorKind, EventStatus, Result};

use crate::runtime::completion::clock;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::completion::tasks::{spawn_at, wake};
use crate::runtime::execution::host_task::{
    HostTaskKind, HostTaskOwner, LoggedPolls, NestedRun, TaskLease, runtime_shut_down,
};
use crate::runtime::execution::run::waiting::{HostWork, spin_time};
use crate::runtime::execution::run::{ENQUEUED, Run};
use crate::runtime::execution::template::{DeviceQueue, PartitionExec, PartitionWork, RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::sync::Ordering;
use crate::util::nvtx::NvtxThreadRange;
use crate::util::panics::{catch, catch_and_log};

/// `submit` launches it.
pub(super) const AT_SUBMIT: u8 = 0;
/// It waits in the submission queue.
const HANDED_OVER: u8 = 1;
/// A thread is launching it.
const LAUNCHING: u8 = 2;
/// Launched in a batch, on a queue that executables share.
const IN_BATCH: u8 = 3;
/// Launched on its executable's queue after all.
const ALONE: u8 = 4;
/// `submit` launches it as soon as it holds no lock.
const AFTER_LOCKS: u8 = 5;

impl Run {
    /// Whether the reactor launches it and polls for its end.
    pub(crate) fn is_left_to_reactor(&self) -> bool {
        !matches!(self.progress.launch.load(Ordering::Acquire), AT_SUBMIT | ALONE | AFTER_LOCKS)
    }

    /// A thread launches it, which has let go of its locks: those that find the run may wait for that.
    pub(crate) fn set_launching_without_locks(&self, launching: bool) {
        let state = if launching { AFTER_LOCKS } else { AT_SUBMIT };
        self.progress.launch.store(state, Ordering::Release);
    }

    /// Whether a thread is launching it without locks.
    pub(crate) fn is_launched_without_locks(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == AFTER_LOCKS
    }

    /// The reactor's thread is going to launch it.
    pub(crate) fn set_handed_over(&self) {
        self.progress.launch.store(HANDED_OVER, Ordering::Release);
    }

    /// Whether the caller is to launch it: no other thread has or does.
    #[must_use]
    pub(crate) fn take_launch(&self) -> bool {
        let launch = &self.progress.launch;
        launch.compare_exchange(HANDED_OVER, LAUNCHING, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Whether a thread is launching it.
    pub(crate) fn is_being_launched(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == LAUNCHING
    }

    /// The caller does not launch it after all.
    pub(crate) fn give_launch_back(&self) {
        self.inner.lock().extras.if_made(|extras| extras.batch_event = None);
        self.metrics.partition_given_back(0);
        self.progress.launch.store(HANDED_OVER, Ordering::Release);
    }

    /// Takes note of the event that is signalled behind the batch that the run is launched in.
    pub(crate) fn set_batch_event(&self, event: &Arc<dyn hal::Event>) {
        self.inner.lock().extras.get_or_make().batch_event = Some(event.clone());
        self.metrics.partition_started(0);
    }

    /// The real status of the batch that it was launched in; `None` once the run has ended.
    pub(super) fn batch_status(&self) -> Option<EventStatus> {
        let event = self.extra(|extras| extras.batch_event.clone());
        event.map(|event| event.status())
    }

    /// It has been launched in a batch, or else refused.
    pub(crate) fn set_launched(&self, launched: bool) {
        if launched {
            self.set_all_enqueued();
            self.tell_trace(|trace| trace.enqueued(0));
        }
        self.progress.launch.store(IN_BATCH, Ordering::Release);
    }

    /// Launches it on the queue of its executable.
    pub(crate) fn launch_alone(self: &Arc<Self>, owner: &dyn RunOwner) {
        match catch(|| enqueue(owner, self, 0, &[], &[])) {
            Ok(true) => self.set_all_enqueued(),
            Ok(false) => {}
            Err(panic) => self.end_after_panic(owner.partitions[0].queue(), &panic),
        }
        self.progress.launch.store(ALONE, Ordering::Release);
    }

    /// Ends the run whose launch on a queue has panicked, as what listens to the log of a backend may. The
    /// device may have been given the run, so it ends, with an error, once nothing is left on the queue.
    pub(crate) fn end_after_panic(&self, queue: Option<&hal::ValidatedQueue>, panic: &str) {
        let has_ended = match catch(|| queue.map_or(Ok(()), hal::ValidatedQueue::finish)) {
            Ok(finished) => finished.map_or_else(|error| error.kind() == ErrorKind::DeviceLost, |()| true),
            Err(_) => false,
        };
        if !has_ended {
            self.owner().into_iter().for_each(RunOwner::keep_for_ever);
        }
        let error = Error::new(ErrorKind::Bug, format!("the launch of the run panicked: {panic}"));
        self.end_then_start(0, Err(error));
    }

    /// A partition is about to be enqueued, and expected to take so long.
    fn will_enqueue(&self, partition: usize, expected: Option<Duration>, notifies: bool) {
        self.metrics.partition_started(partition);
        if self.waiting.is_timed {
            self.waiting.will_enqueue(expected);
            if notifies {
                self.slots[partition].measure_from(clock::now());
            }
        }
    }

    /// Whether everything of it is on devices, so that they can wait for it. Sees to it, if it was
    /// handed over.
    pub(crate) fn is_all_enqueued(self: &Arc<Self>) -> bool {
        match self.progress.launch.load(Ordering::Acquire) {
            HANDED_OVER => {
                // The owner is there until the run has ended, which it cannot be yet.
                if self.take_launch()
                    && let Some(owner) = self.owner()
                {
                    self.launch_alone(&*owner);
                }
            }
            // A call of the driver's.
            LAUNCHING => {}
            _ => return self.progress.enqueued.load(Ordering::Acquire),
        }
        while self.progress.launch.load(Ordering::Acquire) == LAUNCHING {
            thread::yield_now();
        }
        self.progress.enqueued.load(Ordering::Acquire)
    }

    /// Whether the queue of its executable's later runs does not order them after this one.
    pub(crate) fn is_in_batch(&self) -> bool {
        self.progress.launch.load(Ordering::Acquire) == IN_BATCH
    }

    /// It keeps a shared queue for too long.
    pub(crate) fn set_too_long(&self) {
        self.waiting.too_long.store(true, Ordering::Relaxed);
    }

    /// Whether it kept the queue that it shared for no longer than it should, if it was on one.
    pub(crate) fn shared_well(&self) -> Option<bool> {
        self.is_in_batch().then(|| !self.waiting.too_long.load(Ordering::Relaxed))
    }
}

/// Enqueues a device partition behind its device-side predecessors. One that has predecessors waits for those
/// of `order_events` that are of its own device. False if that failed: the partition has ended then.
#[expect(unsafe_code, reason = "with `enqueue_batch` the one place where work is handed to a device")]
pub(crate) fn enqueue<O: RunOwner + ?Sized>(
    owner: &O,
    run: &Arc<Run>,
    index: usize,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) -> bool {
    let template = owner.template();
    let partition = &template.partitions[index];
    let (Some(DeviceQueue { device, queue, .. }), Some(event)) = (&partition.on, run.event(index)) else {
        return false;
    };
    let mut needed: SmallVec<[&dyn hal::Event; 4]> = SmallVec::new();
    for &predecessor in &partition.device_predecessors {
        needed.extend(run.event(predecessor as usize).map(|event| &**event));
    }
    dependencies.iter().for_each(|event| needed.push(&**event));
    let mut order: SmallVec<[&dyn hal::Event; 4]> = SmallVec::new();
    let is_root = partition.predecessors.is_empty();
    let own = order_events.iter().filter(|event| is_root || event.device() == device.id());
    own.for_each(|event| order.push(&**event));
    let wait = hal::WaitList { dependencies: &needed, order: &order };
    let expected = partition.estimator.expected();
    // The submission polls for the end only where that should be near.
    let polled_for = expected.filter(|_| run.waiting.is_polled_by_submission()).and_then(|expected| {
        let limit = template.spin_limit();
        (expected <= limit).then(|| spin_time(expected, limit))
    });
    let is_watched = !template.polls_tails || template.tails.contains(&(index as u32));
    let notifies = !device.is_polled();
    let notification = notifies
        .then(|| hal::Notification { target: run.clone() as Arc<dyn hal::Notify>, token: index as u64 });
    let signal = hal::Signal { event, notification, timed: run.keeps_times(index) };
    let reactor = device.reactor().filter(|_| is_watched);
    let now = reactor.map(|_| clock::now());
    run.will_enqueue(index, expected, notifies);
    let range = run.trace().and_then(|trace| trace.begin_enqueue(index));
    let enqueued = match (&partition.work, owner.command()) {
        (PartitionWork::CommandBuffer(buffer), _) => {
            // SAFETY: conflicting accesses are ordered: inside the run by the plan's dependencies, which
            // follow from the declared accesses; between runs of this executable by its queues and
            // `order`; against other executables, commands of queues and host guards by `conflicts`. The
            // run owns the executable, and with it all memory, until the event has ended.
            buffer.with(|buffer| unsafe { buffer.enqueue(queue, wait, signal) })
        }
        (PartitionWork::StreamTask(task), _) => {
            // Without the lock of the cell: the closure may ask for an update.
            let task = task.with(Arc::clone);
            let _inside = StreamTaskCall::enter();
            // SAFETY: as above; the run owns the executable, which keeps the task or, after an update, gives
            // it to the run to keep.
            unsafe { queue.enqueue(&task, wait, signal) }
        }
        // SAFETY: as above; the run owns the command, and with it all memory, until the event has ended.
        (_, Some(command)) => unsafe { queue.enqueue(command, wait, signal) },
        (_, None) => Err(Error::new(ErrorKind::Bug, "a partition without a command")),
    };
    drop(range);
    match enqueued {
        Ok(()) => {
            run.set_enqueued(index);
            if let Some((reactor, now)) = reactor.zip(now) {
                watch(reactor, now, partition, run, index, polled_for);
            }
            true
        }
        Err(error) => {
            run.end_then_start(index, Err(error));
            false
        }
    }
}

/// Has the reactor poll for the end of a partition that has been enqueued `at` this time.
fn watch(
    reactor: &Reactor,
    at: u64,
    partition: &PartitionExec,
    run: &Arc<Run>,
    index: usize,
    polled_for: Option<Duration>,
) {
    if let Some(queue_number) = partition.queue_number() {
        let estimate = partition.estimator.estimate();
        reactor.watch(at, queue_number, run.clone(), index, estimate, polled_for);
    }
}

/// Has the reactors poll for the ends of all partitions that have been enqueued, because a tail has ended
/// that never started.
pub(crate) fn watch_all(template: &RunTemplate, run: &Arc<Run>) {
    for (index, partition) in template.partitions.iter().enumerate() {
        if let Some(reactor) = partition.device().and_then(Device::reactor).filter(|_| run.is_enqueued(index))
        {
            watch(reactor, clock::now(), partition, run, index, None);
        }
    }
}

/// Enqueues the only partitions of these executables' runs, which come after nothing, on one queue
/// of their device.
#[expect(unsafe_code, reason = "with `enqueue` the one place where work is handed to a device")]
pub(crate) fn enqueue_batch<'a>(
    owners: impl ExactSizeIterator<Item = &'a dyn RunOwner>,
    queue: &hal::ValidatedQueue,
    event: &Arc<dyn hal::Event>,
) -> hal::Enqueued {
    let _range = NvtxThreadRange::start(0, || format!("enqueue {} runs", owners.len()));
    let buffers: SmallVec<[_; 16]> = owners
        .flat_map(|owner| owner.template().partitions.first())
        .filter_map(|partition| Some(partition.command_buffer()?.read()))
        .collect();
    let buffers: SmallVec<[&hal::ValidatedCommandBuffer; 16]> =
        buffers.iter().map(|buffer| &**buffer).collect();
    let signal = hal::Signal::new(event);
    // SAFETY: as for `enqueue`; nothing else of the executables is in flight, and the runs' owner
    // keeps them until the event has ended.
    unsafe { queue.enqueue_batch(&buffers, signal) }
}

/// Partitions whose predecessors have ended, in plan order.
pub(crate) type Ready = SmallVec<[u32; 8]>;

/// The means to start partitions of a run. The run holds one while it is in flight and needs the host.
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
        let is_host_task = |&&index: &&u32| self.owner.partitions[index as usize].host_task().is_some();
        let Some(&named) = ready.iter().find(is_host_task).or(ready.first()) else { return };
        let (handle, labels) = (self.handle.clone(), self.owner.labels.clone());
        let _on_host = HostWork::begin(&self.run);
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
            match (run.ended_early(&exec.predecessors), &exec.on) {
                (None, None) => host_tasks.push(partition),
                (None, Some(_)) => {
                    // If it fails, the partition has ended.
                    enqueue(&**owner, run, index, &[], &[]);
                }
                // A list instead of nested calls: there may be thousands.
                (Some(ended), _) => ready.extend(run.end(index, ended)),
            }
        }
        host_tasks
    }

    async fn run_host_task(&self, partition: usize) {
        let Self { owner, run, .. } = self;
        let Some(task) = owner.partitions[partition].host_task() else { return };
        let start = run.is_profiled().then(clock::now);
        let lease = TaskLease::new(run.clone(), partition);
        let span = run.trace().map_or_else(Span::none, |trace| trace.begin_host_task(&**owner, partition));
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
        // The partition has ended when the last view that the task was given is gone, which may be later.
        lease.end(result);
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

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

/// While this lives, the thread calls the closure of a stream task, which is code of the user's and may
/// submit.
///
/// A submission that comes after a run which another thread is just enqueueing waits for that thread, so that
/// its devices can do the rest of the waiting. Inside a closure it must not: the run may be the closure's
/// own, or its thread may wait for this one. It then waits as for a run that needs the host.
#[must_use = "the thread calls only as long as this lives"]
pub(crate) struct StreamTaskCall {
    outer: bool,
}

impl StreamTaskCall {
    pub(crate) fn enter() -> Self {
        Self { outer: IS_CALLING.replace(true) }
    }

    /// Whether this thread is inside such a call.
    pub(crate) fn is_inside() -> bool {
        IS_CALLING.get()
    }
}

impl Drop for StreamTaskCall {
    fn drop(&mut self) {
        IS_CALLING.set(self.outer);
    }
}

impl Run {
    /// Partitions that have not started never will. Async host tasks that run are dropped at their next
    /// await, and devices end what they can stop: loops before their next iteration, kernels that run in
    /// blocks before their next block.
    pub(crate) fn cancel(&self) {
        self.progress.cancelled.store(true, Ordering::SeqCst);
        let starter = self.inner.lock().extras.if_made(|extras| extras.starter.take());
        starter.into_iter().for_each(wake);
        for slot in &self.slots {
            slot.task().into_iter().for_each(AtomicWaker::wake);
        }
        self.stop_devices();
        let nested = self.extra(|extras| extras.nested.clone());
        nested.iter().for_each(|(_, run)| run.cancel());
    }

    /// [Cancels](Self::cancel) the run because its submission was answered at its deadline, with this error.
    pub(crate) fn cancel_late(&self, error: &Error) {
        if !self.is_cancelled() {
            self.inner.lock().extras.get_or_make().answered_late = Some(error.clone());
        }
        self.cancel();
    }

    /// The error with which the submission was answered, if that is why this one says that the run was
    /// cancelled.
    pub(super) fn answered_late(&self, error: &Error) -> Option<Error> {
        let is_cancelled = error.kind() == ErrorKind::Cancelled;
        is_cancelled.then(|| self.extra(|extras| extras.answered_late.clone())).flatten()
    }

    /// Devices end what they can stop. For a run whose deadline passes, too, of which nothing else starts
    /// anyway.
    pub(crate) fn stop_devices(&self) {
        self.progress.stops_devices.store(true, Ordering::SeqCst);
        for slot in &self.slots {
            let event = slot.event().filter(|_| slot.state.load(Ordering::SeqCst) == ENQUEUED);
            event.into_iter().for_each(|event| event.stop());
        }
    }

    /// Percentage of the kernel that a partition runs now that has begun, where its device tells.
    pub(super) fn percent(&self, partition: usize) -> Option<u8> {
        self.slots[partition].event()?.percent()
    }

    /// The error of what was stopped says by what: a device does not know.
    pub(super) fn of_deadline(&self, error: Error) -> Error {
        let is_late = self.progress.stops_devices.load(Ordering::SeqCst) && !self.is_cancelled();
        if !is_late || error.kind() != ErrorKind::Cancelled {
            return error;
        }
        let why = "the deadline passed while the device was at work";
        let late = Error::new(ErrorKind::DeadlineExceeded, why);
        match error.command() {
            Some(command) => late.at_command(command),
            None => late,
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.cancelled.load(Ordering::Acquire)
    }

    /// Resolves when the run is cancelled; for the task that waits to start it.
    pub(crate) fn cancellation(&self) -> impl Future<Output = ()> + Unpin + '_ {
        poll_fn(|cx| {
            let new = cx.waker().clone();
            let old = self.inner.lock().extras.get_or_make().starter.replace(new);
            // Wakers are an executor's code: they are dropped outside the lock.
            drop(old);
            if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// The outcome of an async host task, which is dropped if the run is cancelled.
    pub(super) async fn unless_cancelled(
        &self,
        partition: usize,
        mut task: impl Future<Output = Result<()>> + Unpin,
    ) -> Result<()> {
        let waker = self.slots[partition].task();
        let outcome = poll_fn(|cx| {
            waker.into_iter().for_each(|waker| waker.register(cx.waker()));
            match self.is_cancelled() {
                true => Poll::Ready(None),
                false => Pin::new(&mut task).poll(cx).map(Some),
            }
        });
        let outcome = outcome.await;
        drop(waker.and_then(AtomicWaker::take));
        outcome.unwrap_or_else(|| {
            catch_and_log("the drop of a cancelled host task", || drop(task));
            Err(Error::new(ErrorKind::Cancelled, "the submission was cancelled while this host task ran"))
        })
    }
}

impl NestedRun for Run {
    fn cancel(&self) {
        self.cancel();
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled before this partition started")
}
