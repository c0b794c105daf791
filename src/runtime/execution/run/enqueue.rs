//! Handing partitions to their devices.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::execution::partitions::PartitionWork;
use crate::runtime::execution::run::Run;
use crate::runtime::execution::spin_time::spin_time_among;
use crate::runtime::execution::template::{RunOwner, RunTemplate};

/// Enqueues a device partition behind its device-side predecessors. False if that failed: the
/// partition is over then.
#[expect(unsafe_code, reason = "with `enqueue_batch` the one place where work is handed to a device")]
pub(crate) fn enqueue(
    template: &RunTemplate,
    run: &Arc<Run>,
    index: usize,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) -> bool {
    let partition = &template.partitions[index];
    let (PartitionWork::Device { device, queue, lane, command_buffer }, Some(event)) =
        (&partition.work, run.event(index))
    else {
        return false;
    };
    let mut needed: SmallVec<[&dyn hal::Event; 4]> = SmallVec::new();
    for &predecessor in &partition.device_predecessors {
        needed.extend(run.event(predecessor as usize).map(|event| &**event));
    }
    needed.extend(dependencies.iter().map(|event| &**event));
    let order: SmallVec<[&dyn hal::Event; 4]> = order_events.iter().map(|event| &**event).collect();
    let wait = hal::WaitList { dependencies: &needed, order: &order };
    let notification = device
        .notifies()
        .then(|| hal::Notification { target: run.clone() as Arc<dyn hal::Notify>, token: index as u64 });
    let expected = partition.prediction.expected();
    // Who looks after the run does so only where the end should be near.
    let looked_after = expected.filter(|_| run.is_looked_after()).and_then(|expected| {
        let limit = template.spin_limit();
        (expected <= limit).then(|| spin_time_among(run.crowd(), expected, limit))
    });
    let signal = hal::Signal { event, notification };
    // Read once: the clock is a good part of what a submission costs.
    let reactor = device.reactor();
    let now = reactor.map(|_| clock::now());
    run.will_enqueue(index, expected, || now.unwrap_or_else(clock::now));
    // SAFETY: conflicting accesses are ordered: inside the run by the plan's dependencies, which
    // follow from the declared accesses; between runs of this executable by its queues and `order`;
    // against other executables and host guards by `conflicts`. The run owns the executable, and
    // with it all memory, until the event is final.
    let enqueued = command_buffer.with(|buffer| unsafe { buffer.enqueue(queue, wait, signal) });
    match enqueued {
        Ok(()) => {
            run.set_enqueued(index);
            if let Some((reactor, now)) = reactor.zip(now) {
                reactor.watch(now, *lane, run.clone(), index, template.expected_of(index), looked_after);
            }
            true
        }
        Err(error) => {
            run.finish(index, Err(error));
            false
        }
    }
}

/// Enqueues the only partitions of these executables' runs, which come after nothing, on one queue
/// of their device.
#[expect(unsafe_code, reason = "with `enqueue` the one place where work is handed to a device")]
pub(crate) fn enqueue_batch(
    owners: &[Arc<dyn RunOwner>],
    queue: &hal::ValidatedQueue,
    event: &Arc<dyn hal::Event>,
) -> hal::Enqueued {
    let buffers: SmallVec<[_; 8]> = owners
        .iter()
        .flat_map(|owner| owner.partitions.first())
        .filter_map(|partition| match &partition.work {
            PartitionWork::Device { command_buffer, .. } => Some(command_buffer.read()),
            PartitionWork::HostTask(_) => None,
        })
        .collect();
    let buffers: SmallVec<[&hal::ValidatedCommandBuffer; 8]> =
        buffers.iter().map(|buffer| &**buffer).collect();
    let signal = hal::Signal { event, notification: None };
    // SAFETY: as for `enqueue`; nothing else of the executables is in flight, and the runs' owner
    // keeps them until the event is final.
    unsafe { queue.enqueue_batch(&buffers, signal) }
}
