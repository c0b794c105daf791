//! Starting a run: handing to devices what needs no host, leaving the rest to whoever ends what it waits for.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::hal;
use crate::runtime::completion::clock;
use crate::runtime::completion::wake_policy::WakePolicy;
use crate::runtime::execution::executable::{Shared, Work};
use crate::runtime::execution::host_scheduler::{Driver, Ready};
use crate::runtime::execution::run::{Go, Run};
use crate::runtime::execution::submission::spin_time_among;
use crate::runtime::execution::submit::needs_tokio;

/// Starts a run whose host-side predecessors are over: enqueues what needs no host, starts what
/// waits for nothing, and leaves the rest to whoever ends what it waits for. `order_events` come
/// before it whether they fail or not, `dependencies` only if they succeed.
pub(super) fn start(
    shared: &Arc<Shared>,
    run: &Arc<Run>,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) {
    tracing::trace!(target: "wakegraph::submit", partitions = shared.partitions.len(), "start");
    if shared.partitions.is_empty() {
        return run.complete_empty();
    }
    // In ascending order.
    let mut missing: SmallVec<[u32; 4]> = SmallVec::new();
    let driver = (!shared.all_eager).then(Handle::try_current);
    let driver = match driver.transpose() {
        Ok(handle) => handle.map(|handle| Driver { handle, shared: shared.clone(), run: run.clone() }),
        // `submit` has made sure that there is a runtime.
        Err(_) => return run.abandon(&needs_tokio("has work for the host")),
    };
    if let Some(driver) = &driver {
        run.set_driver(driver.clone());
    }
    for (index, partition) in shared.partitions.iter().enumerate() {
        if partition.eager {
            if partition.predecessors.iter().any(|predecessor| missing.binary_search(predecessor).is_ok()) {
                // The event of what could not be enqueued still tells of an earlier run.
                missing.push(index as u32);
                // Nothing is ready before the end of this loop.
                let _ = run.skip(index, Go::Skip);
                continue;
            }
            let (order, dependencies) = if partition.predecessors.is_empty() {
                (order_events, dependencies)
            } else {
                (&[][..], &[][..])
            };
            if !enqueue(shared, run, index, order, dependencies) {
                missing.push(index as u32);
            }
        }
    }
    if let Some(driver) = driver {
        // Only now, so that whatever starts finds the events of the others pending, and not as an
        // earlier run left them.
        let mut ready = Ready::new();
        for (index, partition) in shared.partitions.iter().enumerate() {
            if !partition.eager && run.release(index) {
                ready.push(index as u32);
            }
        }
        driver.start(ready);
    }
    if shared.all_eager && missing.is_empty() {
        run.set_all_enqueued();
    }
}

/// Enqueues a device partition behind its device-side predecessors. False if that failed: the
/// partition is over then.
#[expect(unsafe_code, reason = "with `enqueue_batch` the one place where work is handed to a device")]
pub(crate) fn enqueue(
    shared: &Shared,
    run: &Arc<Run>,
    index: usize,
    order_events: &[Arc<dyn hal::Event>],
    dependencies: &[Arc<dyn hal::Event>],
) -> bool {
    let partition = &shared.partitions[index];
    let (Work::Device { device, queue, lane, command_buffer }, Some(event)) =
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
        let limit = shared.spin_limit();
        (expected <= limit).then(|| spin_time_among(run.crowd(), expected, limit))
    });
    // What other queues wait for is told by an event in any case.
    let prompt =
        looked_after.is_some() && !partition.feeds_devices && device.wake_policy() == WakePolicy::Latency;
    let signal = hal::Signal { event, notification, prompt };
    // Read once: the clock is a good part of what a submission costs.
    let reactor = device.reactor();
    let now = reactor.map(|_| clock::now());
    run.will_enqueue(index, expected, || now.unwrap_or_else(clock::now));
    // SAFETY: conflicting accesses are ordered: inside the run by the plan's dependencies, which
    // follow from the declared accesses; between runs of this executable by its queues and `order`;
    // against other executables and host guards by `ordering`. The run owns the executable, and
    // with it all memory, until the event is final.
    let enqueued = command_buffer.with(|buffer| unsafe { buffer.enqueue(&**queue, wait, signal) });
    match enqueued {
        Ok(()) => {
            run.set_enqueued(index);
            if let Some((reactor, now)) = reactor.zip(now) {
                reactor.watch(now, *lane, run.clone(), index, shared.expected_of(index), looked_after);
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
    executables: &[Arc<Shared>],
    queue: &dyn hal::Queue,
    event: &Arc<dyn hal::Event>,
) -> hal::Enqueued {
    let buffers: SmallVec<[_; 8]> = executables
        .iter()
        .flat_map(|shared| shared.partitions.first())
        .filter_map(|partition| match &partition.work {
            Work::Device { command_buffer, .. } => Some(command_buffer.read()),
            Work::HostTask(_) => None,
        })
        .collect();
    let buffers: SmallVec<[&dyn hal::CommandBuffer; 8]> = buffers.iter().map(|buffer| &***buffer).collect();
    let signal = hal::Signal { event, notification: None, prompt: false };
    // SAFETY: as for `enqueue`; nothing else of the executables is in flight, and the runs' owner
    // keeps them until the event is final.
    unsafe { queue.enqueue_batch(&buffers, signal) }
}
