//! Starting a run behind others: its devices do the waiting as far as they can, else a task does.

use std::borrow::Cow;
use std::sync::Arc;

use tokio::runtime::Handle;
use wakegraph_hal as hal;
use wakegraph_hal::{DeviceId, Error, Result};

use crate::runtime::execution::long_waits;
use crate::runtime::execution::run::{Predecessor, Predecessors, Run, with_other_devices};
use crate::runtime::execution::submission::Event;
use crate::runtime::execution::submit::builder::Waits;
use crate::runtime::execution::submit::start::{
    Deferred, Starter, WaitFuture, host_work, native_wait, needs_tokio, start,
};
use crate::runtime::execution::template::{RunOwner, RunTemplate};
use crate::runtime::resource::raw_memory::NativeEvent;

/// A run that has started, or is to be started as soon as the caller holds no lock, or by a task.
pub(crate) struct Started<O: RunOwner + 'static> {
    launch: Option<Launch<O>>,
    deferred: Option<Deferred<O>>,
}

/// The launch of a run with stream tasks: it calls code of the user's, so it needs a caller without locks.
struct Launch<O: RunOwner + 'static> {
    owner: Arc<O>,
    run: Arc<Run>,
    order_events: Vec<Arc<dyn hal::Event>>,
    dependencies: Vec<Arc<dyn hal::Event>>,
    /// The runs of these events, which are not used again meanwhile.
    _earlier: Predecessors,
}

impl<O: RunOwner + 'static> Launch<O> {
    fn go(self) {
        start(&self.owner, &self.run, &self.order_events, &self.dependencies);
    }
}

impl<O: RunOwner + 'static> Drop for Launch<O> {
    /// Whatever became of it, others must not wait for it for ever.
    fn drop(&mut self) {
        self.run.set_launching_without_locks(false);
    }
}

impl<O: RunOwner + 'static> Started<O> {
    /// Ends a run that cannot start, at once: it has no place among the others.
    pub(crate) fn abandoned(run: &Run, error: &Error) -> Self {
        run.abandon(error);
        Self { launch: None, deferred: None }
    }

    /// Does what has to be done without locks: launches a run with stream tasks, or spawns the task that
    /// starts the run.
    pub(crate) fn without_locks(self) {
        self.launch.into_iter().for_each(Launch::go);
        // A runtime that is shutting down drops the task, and the user's futures with it, right here.
        self.deferred.into_iter().for_each(Deferred::spawn);
    }
}

/// Starts a run of device partitions that comes after nothing, or after what its devices' queues order.
pub(crate) fn start_now<O: RunOwner + 'static>(owner: &Arc<O>, run: &Arc<Run>) -> Started<O> {
    start(owner, run, &[], &[]);
    Started { launch: None, deferred: None }
}

/// Starts a run that waits on its devices, or has that done without locks.
fn start_or_launch<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_events: Vec<Arc<dyn hal::Event>>,
    dependencies: Vec<Arc<dyn hal::Event>>,
    earlier: Predecessors,
) -> Option<Launch<O>> {
    if !owner.template().has_stream_tasks {
        start(owner, run, &order_events, &dependencies);
        return None;
    }
    run.set_launching_without_locks(true);
    let (owner, run) = (owner.clone(), run.clone());
    Some(Launch { owner, run, order_events, dependencies, _earlier: earlier })
}

/// Starts a run after all of `order_after`, and after `waits`. Leaves the waiting to devices as far as they
/// can.
pub(crate) fn start_after<O: RunOwner + 'static>(
    owner: &Arc<O>,
    run: &Arc<Run>,
    order_after: Predecessors,
    Waits { events, mut futures, native, queue_order, deadline, .. }: Waits,
) -> Started<O> {
    let template = owner.template();
    let order_after = with_other_devices(order_after);
    if run.is_traced() {
        let earlier = order_after.iter().filter_map(Predecessor::run);
        let events = events.iter().map(|event| event.run().clone());
        earlier.chain(events).for_each(|earlier| run.tell_trace(|trace| trace.comes_after(&earlier)));
    }
    if let Some(at) = deadline {
        run.set_deadline(at);
        if run.is_late() {
            return Started::abandoned(run, &template.too_late());
        }
    }
    let waits = !events.is_empty() || !futures.is_empty() || !native.is_empty();
    if template.all_eager && order_after.is_empty() && !waits && !template.has_stream_tasks {
        return start_now(owner, run);
    }
    let depends = !events.is_empty() || !native.is_empty();
    let is_next = || {
        let has_ended = |earlier: &Predecessor| matches!(earlier, Predecessor::Run(run) if run.has_ended());
        order_after.iter().all(has_ended)
            && events.iter().all(|event| event.run().has_ended())
            && native.is_empty()
    };
    // Devices start what they have been given, whenever its turn comes.
    let starts_late = deadline.is_some() && !is_next();
    let on_device = !starts_late
        && futures.is_empty()
        && order_after.iter().all(|predecessor| match predecessor {
            Predecessor::Run(earlier) => devices_can_wait(template, earlier) || earlier.has_ended(),
            Predecessor::Fence(_) | Predecessor::Guard(_) => false,
        })
        && events.iter().all(|event| devices_can_wait(template, event.run()) || event.run().has_ended())
        && native.iter().all(|event| begins_on(template, event.hal().device()));
    let (mut launch, mut deferred) = (None, None);
    if on_device && (template.all_eager || Handle::try_current().is_ok()) {
        let order_events: Vec<_> = order_after.iter().flat_map(last_events).collect();
        match dependencies(&events) {
            Ok(mut dependencies) => {
                dependencies.extend(native.iter().map(|event| event.hal().clone()));
                // On its devices, it fails with what it depends on, at once. One without partitions comes
                // after nothing that has not ended.
                if !template.partitions.is_empty() {
                    run.set_comes_after(order_after.iter().cloned().chain(queue_order).collect());
                    if depends {
                        run.set_depends_on(events.iter().map(|event| event.run().clone()));
                    }
                }
                launch = start_or_launch(owner, run, order_events, dependencies, order_after);
            }
            Err(error) => run.abandon(&error),
        }
    } else {
        match Handle::try_current() {
            Ok(handle) => {
                futures.extend(native.iter().map(native_wait));
                // It may fail without ever being on the queue.
                run.set_comes_after(order_after.into_iter().chain(queue_order).collect());
                if run.note_guard() {
                    long_waits::expect();
                }
                let starter = Starter { owner: owner.clone(), run: run.clone(), started: false };
                deferred = Some(Deferred { handle, starter, events, futures });
            }
            Err(_) => {
                let why = why_host(template, &futures, starts_late, &native, &order_after, &events);
                run.abandon(&template.labels.name(needs_tokio(&why)));
            }
        }
    }
    Started { launch, deferred }
}

/// Whether the first partitions of a run can wait on their devices for all of `earlier`.
fn devices_can_wait(template: &RunTemplate, earlier: &Arc<Run>) -> bool {
    earlier.is_all_enqueued()
        // Without partitions there is no device to do the waiting.
        && !template.roots.is_empty()
        && template.roots.iter().all(|&root| {
            let partition = &template.partitions[root as usize];
            partition.eager
                && partition.device().is_some_and(|device| {
                    earlier.devices().iter().all(|other| device.can_wait_for(other))
                })
        })
}

/// Whether all first partitions of a run are of this device.
fn begins_on(template: &RunTemplate, device: DeviceId) -> bool {
    !template.roots.is_empty()
        && template.roots.iter().all(|&root| {
            let partition = &template.partitions[root as usize];
            partition.eager && partition.device().is_some_and(|own| own.id() == device)
        })
}

fn last_events(predecessor: &Predecessor) -> Vec<Arc<dyn hal::Event>> {
    match predecessor {
        Predecessor::Run(run) => run.last_events().unwrap_or_default(),
        Predecessor::Fence(_) | Predecessor::Guard(_) => Vec::new(),
    }
}

/// The entries of the caller's wait list that devices wait for.
///
/// # Errors
/// That of a run which has ended meanwhile.
fn dependencies(events: &[Event]) -> Result<Vec<Arc<dyn hal::Event>>> {
    let mut all = Vec::new();
    for event in events {
        match event.run().last_events() {
            Some(events) => all.extend(events),
            None => event.run().result()?,
        }
    }
    Ok(all)
}

/// Says what a submission needs the host for.
fn why_host(
    template: &RunTemplate,
    futures: &[WaitFuture],
    starts_late: bool,
    native: &[NativeEvent],
    order_after: &[Predecessor],
    events: &[Event],
) -> Cow<'static, str> {
    let waits_for = |run: &Arc<Run>| !devices_can_wait(template, run);
    if !template.all_eager {
        return host_work(template).into();
    }
    let why = if !futures.is_empty() {
        "waits for a future"
    } else if starts_late {
        "has a deadline and comes after other work"
    } else if !native.is_empty() {
        "waits for an event of another library on a device that it does not begin on"
    } else if order_after
        .iter()
        .any(|earlier| matches!(earlier, Predecessor::Fence(_) | Predecessor::Guard(_)))
    {
        "waits for a guard of a host buffer that it uses"
    } else if events.iter().any(|event| waits_for(event.run())) {
        "waits for another submission that its devices cannot wait for themselves"
    } else {
        "comes after a submission, of the same executable or on the same memory, that its devices cannot \
         wait for themselves"
    };
    why.into()
}
