//! Queues: one stream each, and the one way in which anything is enqueued on it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::device_inner::HipDeviceInner;
use super::event::HipEvent;
use super::profiling::HipSignalTimes;
use super::signal::{HipEventRecords, HipKept, HipSignal, HipSignalEnd, HipSignalNeeds};
use super::stream::HipStream;
use crate::hal::support::refusal::{foreign, foreign_wait, idle_wait};
use crate::hal::support::signals::EnqueueSignal;
use crate::hal::{Event, Queue, QueueDesc, Signal, WaitList};
use crate::types::{Error, Result};

/// A queue. When it is dropped, its stream goes on with the work in flight.
#[derive(Debug)]
pub(super) struct HipQueue {
    pub(super) device: Arc<HipDeviceInner>,
    pub(super) desc: QueueDesc,
    pub(super) stream: Arc<HipStream>,
}

impl HipQueue {
    pub(super) fn create(device: &Arc<HipDeviceInner>, desc: QueueDesc) -> Result<Self> {
        let stream = Arc::new(HipStream::create_with(&device.context, desc.priority)?);
        Ok(Self { device: Arc::clone(device), desc, stream })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &Arc<HipDeviceInner>) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| Arc::ptr_eq(&queue.device, device)).ok_or_else(|| foreign("queue"))
    }

    /// Enqueues what `start` puts on the stream. With `timed_commands`, each of so many commands
    /// gets times.
    pub(super) fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<HipKept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&Arc<HipStream>, &Arc<HipEventRecords>) -> Result<()>,
    ) -> Result<()> {
        let (device, stream) = (&self.device, &self.stream);
        let event = HipEvent::of(&**signal.event, device)?;
        device.context.health.status()?;
        // Not later: the event may wait for its own last signal.
        let awaited = HipAwaitedSignals::of(wait)?;
        let enqueue = |records: &Arc<HipEventRecords>| -> Result<HipSignal> {
            let HipWaitedSignals { needs, failed, failing } = self.wait_for(awaited)?;
            if let Some(error) = failed {
                let nothing = HipSignalEnd::Recorded(0);
                let signal = HipSignal::new(device, records, stream, nothing, None, needs, None);
                return Ok(signal.failed(error));
            }
            let mut times = None;
            if (timed_commands.is_some() || self.desc.profiling || signal.timed)
                && let Some(first) = &records.start
            {
                let commands = timed_commands.unwrap_or(0);
                times = Some(HipSignalTimes::begin(device.clock.base()?, commands));
                records.reserve(device, commands)?;
                first.record(stream)?;
            }
            if failing.is_none() {
                start(stream, records)?;
            }
            // The work is on the stream: a failure from here on fails the event.
            let end = match stream.record(&records.end) {
                Ok(sequence) => HipSignalEnd::Recorded(sequence),
                Err(failure) => HipSignalEnd::Broken(device.context.error(failure)),
            };
            Ok(HipSignal::new(device, records, stream, end, times, needs, kept).failing(failing))
        };
        device.context.run(|| event.signal_by(enqueue))
    }

    /// Has the stream wait. The caller has bound the context.
    pub(super) fn wait_for(
        &self,
        HipAwaitedSignals { order, dependencies }: HipAwaitedSignals,
    ) -> Result<HipWaitedSignals> {
        for signal in order {
            signal.order_before(&self.stream)?;
        }
        let mut waited = HipWaitedSignals::default();
        for signal in dependencies {
            waited.failed = signal.order_before(&self.stream)?;
            if waited.failed.is_some() {
                waited.needs = HipSignalNeeds::default();
                break;
            }
            if let Some(failure) = signal.known_failure() {
                waited.failing.get_or_insert_with(|| failure.clone());
            }
            waited.needs.push(signal);
        }
        Ok(waited)
    }
}

/// The last signals of the events of a wait list.
pub(super) struct HipAwaitedSignals {
    order: HipSignals,
    dependencies: HipSignals,
}

type HipSignals = SmallVec<[Arc<HipSignal>; 4]>;

impl HipAwaitedSignals {
    pub(super) fn of(wait: WaitList<'_>) -> Result<Self> {
        Ok(Self { order: signals(wait.order)?, dependencies: signals(wait.dependencies)? })
    }
}

/// What a wait list says about the enqueue behind it.
#[derive(Default)]
pub(super) struct HipWaitedSignals {
    pub(super) needs: HipSignalNeeds,
    /// The failure of a dependency: nothing runs, and this is the outcome.
    pub(super) failed: Option<Error>,
    /// The failure that a dependency will have when its work is over: nothing runs, and this is the outcome
    /// then.
    pub(super) failing: Option<Error>,
}

/// The last signals of these events.
pub(super) fn signals(events: &[&dyn Event]) -> Result<HipSignals> {
    let last = |event: &&dyn Event| {
        let event = event.as_any().downcast_ref::<HipEvent>().ok_or_else(foreign_wait)?;
        event.last_signal().ok_or_else(idle_wait)
    };
    events.iter().map(last).collect()
}
