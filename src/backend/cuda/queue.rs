//! Queues: one stream each, and the one way in which anything is enqueued on it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::event::CudaEvent;
use super::profiling::SignalTimes;
use super::signal::{CudaSignal, EventRecords, Kept, SignalEnd, SignalNeeds};
use super::stream::CudaStream;
use crate::hal::support::refusal::{foreign, foreign_wait, idle_wait};
use crate::hal::support::signals::EnqueueSignal;
use crate::hal::{Event, Queue, QueueDesc, Signal, WaitList};
use crate::types::{Error, Result};

/// A queue. When it is dropped, its stream goes on with the work in flight.
#[derive(Debug)]
pub(super) struct CudaQueue {
    pub(super) device: Arc<CudaDeviceInner>,
    pub(super) desc: QueueDesc,
    pub(super) stream: Arc<CudaStream>,
}

impl CudaQueue {
    pub(super) fn create(device: &Arc<CudaDeviceInner>, desc: QueueDesc) -> Result<Self> {
        let stream = Arc::new(CudaStream::create_with(&device.context, desc.priority)?);
        Ok(Self { device: Arc::clone(device), desc, stream })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub(super) fn of<'a>(queue: &'a dyn Queue, device: &Arc<CudaDeviceInner>) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| Arc::ptr_eq(&queue.device, device)).ok_or_else(|| foreign("queue"))
    }

    /// Enqueues what `start` puts on the stream. With `timed_commands`, each of so many commands
    /// gets times.
    pub(super) fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<Kept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&Arc<CudaStream>, &Arc<EventRecords>) -> Result<Option<CountedRun>>,
    ) -> Result<()> {
        let (device, stream) = (&self.device, &self.stream);
        let event = CudaEvent::of(&**signal.event, device)?;
        device.context.health.status()?;
        // Not later: the event may wait for its own last signal.
        let awaited = AwaitedSignals::of(wait)?;
        let enqueue = |records: &Arc<EventRecords>| -> Result<CudaSignal> {
            let WaitedSignals { needs, failed, failing } = self.wait_for(awaited)?;
            if let Some(error) = failed {
                let nothing = SignalEnd::Recorded(0);
                let signal = CudaSignal::new(device, records, stream, nothing, None, needs, None);
                return Ok(signal.failed(error));
            }
            let mut times = None;
            if (timed_commands.is_some() || self.desc.profiling || signal.timed)
                && let Some(first) = &records.start
            {
                let commands = timed_commands.unwrap_or(0);
                times = Some(SignalTimes::begin(device.clock.base()?, commands));
                records.reserve(device, commands)?;
                first.record(stream)?;
            }
            let started = if failing.is_some() { None } else { start(stream, records)? };
            let end = match started {
                // Times need the record of the event.
                Some(run) if times.is_none() => SignalEnd::Counted(run),
                // The work is on the stream: a failure from here on fails the event.
                _ => match stream.record(&records.end) {
                    Ok(sequence) => SignalEnd::Recorded(sequence),
                    Err(failure) => SignalEnd::Broken(device.context.error(failure)),
                },
            };
            Ok(CudaSignal::new(device, records, stream, end, times, needs, kept).failing(failing))
        };
        device.context.run(|| event.signal_by(enqueue))
    }

    /// Has the stream wait. The caller has bound the context.
    pub(super) fn wait_for(
        &self,
        AwaitedSignals { order, dependencies }: AwaitedSignals,
    ) -> Result<WaitedSignals> {
        for signal in order {
            signal.order_before(&self.stream)?;
        }
        let mut waited = WaitedSignals::default();
        for signal in dependencies {
            waited.failed = signal.order_before(&self.stream)?;
            if waited.failed.is_some() {
                waited.needs = SignalNeeds::default();
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
pub(super) struct AwaitedSignals {
    order: Signals,
    dependencies: Signals,
}

type Signals = SmallVec<[Arc<CudaSignal>; 4]>;

impl AwaitedSignals {
    pub(super) fn of(wait: WaitList<'_>) -> Result<Self> {
        Ok(Self { order: signals(wait.order)?, dependencies: signals(wait.dependencies)? })
    }
}

/// What a wait list says about the enqueue behind it.
#[derive(Default)]
pub(super) struct WaitedSignals {
    pub(super) needs: SignalNeeds,
    /// The failure of a dependency: nothing runs, and this is the outcome.
    pub(super) failed: Option<Error>,
    /// The failure that a dependency will have when its work is over: nothing runs, and this is the outcome
    /// then.
    pub(super) failing: Option<Error>,
}

/// The last signals of these events.
pub(super) fn signals(events: &[&dyn Event]) -> Result<Signals> {
    let last = |event: &&dyn Event| {
        let event = event.as_any().downcast_ref::<CudaEvent>().ok_or_else(foreign_wait)?;
        event.last_signal().ok_or_else(idle_wait)
    };
    events.iter().map(last).collect()
}
