//! Handing partitions to their devices.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::completion::reactor::Reactor;
use crate::runtime::execution::partitions::{PartitionExec, PartitionWork};
use crate::runtime::execution::run::Run;
use crate::runtime::execution::spin_time::spin_time;
use crate::runtime::execution::stream_tasks::StreamTaskCall;
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::resource::device::Device;
use crate::types::{Error, ErrorKind};
use crate::util::nvtx::NvtxThreadRange;

/// Enqueues a device partition behind its device-side predecessors. One that has predecessors waits for those
/// of `order_events` that are of its own device. False if that failed: the partition is over then.
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
    let (
        PartitionWork::Device { device, queue, .. }
        | PartitionWork::Command { device, queue, .. }
        | PartitionWork::StreamTask { device, queue, .. },
        Some(event),
    ) = (&partition.work, run.event(index))
    else {
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
    let polled_for = expected.filter(|_| run.is_polled_by_submission()).and_then(|expected| {
        let limit = template.spin_limit();
        (expected <= limit).then(|| spin_time(expected, limit))
    });
    let is_watched = !template.polls_tails || template.tails.contains(&(index as u32));
    // Where a device can notify, the reactor polls only for many runs, each of which would need a
    // call for its notification, and in the place of submissions.
    let is_single = || is_watched && polled_for.is_none() && run.is_alone_in_flight();
    let notifies = device.notifies() && (!device.is_polled() || is_single());
    let notification = notifies
        .then(|| hal::Notification { target: run.clone() as Arc<dyn hal::Notify>, token: index as u64 });
    let signal = hal::Signal { event, notification, timed: run.keeps_times(index) };
    let reactor = device.reactor().filter(|_| is_watched && !notifies);
    let now = reactor.map(|_| clock::now());
    run.will_enqueue(index, expected, notifies);
    let range = run.trace_begin(index);
    let enqueued = match (&partition.work, owner.command()) {
        (PartitionWork::Device { command_buffer, .. }, _) => {
            // SAFETY: conflicting accesses are ordered: inside the run by the plan's dependencies, which
            // follow from the declared accesses; between runs of this executable by its queues and
            // `order`; against other executables, commands of queues and host guards by `conflicts`. The
            // run owns the executable, and with it all memory, until the event is final.
            command_buffer.with(|buffer| unsafe { buffer.enqueue(queue, wait, signal) })
        }
        (PartitionWork::StreamTask { task, .. }, _) => {
            // Without the lock of the cell: the closure may ask for an update.
            let task = task.with(Arc::clone);
            let _inside = StreamTaskCall::enter();
            // SAFETY: as above; the run owns the executable, which keeps the task or, after an update, gives
            // it to the run to keep.
            unsafe { queue.enqueue(&task, wait, signal) }
        }
        // SAFETY: as above; the run owns the command, and with it all memory, until the event is final.
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
            run.finish(index, Err(error));
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

/// Has the reactors poll for the ends of all partitions that have been enqueued, because a tail is over
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
        .filter_map(|partition| match &partition.work {
            PartitionWork::Device { command_buffer, .. } => Some(command_buffer.read()),
            _ => None,
        })
        .collect();
    let buffers: SmallVec<[&hal::ValidatedCommandBuffer; 16]> =
        buffers.iter().map(|buffer| &**buffer).collect();
    let signal = hal::Signal::new(event);
    // SAFETY: as for `enqueue`; nothing else of the executables is in flight, and the runs' owner
    // keeps them until the event is final.
    unsafe { queue.enqueue_batch(&buffers, signal) }
}
