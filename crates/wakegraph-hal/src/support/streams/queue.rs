//! Queues: one stream each, and the one way in which anything is enqueued on it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::clock::SignalTimes;
use super::context::DriverContext as _;
use super::device::{Started, StreamDevice};
use super::event::StreamEvent;
use super::signal::{EventRecords, Kept, SignalEnd, SignalNeeds, StreamSignal};
use super::stream::DriverStream;
use crate::support::refusal::{foreign, foreign_wait, idle_wait};
use crate::support::signals::EnqueueSignal;
use crate::{Error, Event, Queue, QueueDesc, Result, Signal, WaitList};

/// A queue. When it is dropped, its stream goes on with the work in flight.
#[derive(Debug)]
pub struct StreamQueue<D: StreamDevice> {
    /// The device.
    pub device: Arc<D>,
    /// How the queue was created.
    pub desc: QueueDesc,
    /// The driver's stream.
    pub stream: Arc<DriverStream<D::Context>>,
}

impl<D: StreamDevice> StreamQueue<D> {
    /// Creates a queue with a stream of its own.
    pub fn create(device: &Arc<D>, desc: QueueDesc) -> Result<Self> {
        let stream = Arc::new(DriverStream::create_with(device.context(), desc.priority)?);
        Ok(Self { device: Arc::clone(device), desc, stream })
    }

    /// The queue behind `queue`, if it is one of `device`.
    pub fn of<'a>(queue: &'a dyn Queue, device: &Arc<D>) -> Result<&'a Self> {
        let queue = queue.as_any().downcast_ref::<Self>();
        queue.filter(|queue| Arc::ptr_eq(&queue.device, device)).ok_or_else(|| foreign("queue"))
    }

    /// Enqueues what `start` puts on the stream. With `timed_commands`, each of so many commands
    /// gets times.
    pub fn submit(
        &self,
        timed_commands: Option<usize>,
        kept: Option<Kept>,
        wait: WaitList<'_>,
        signal: Signal<'_>,
        start: impl FnOnce(&Arc<DriverStream<D::Context>>, &Arc<EventRecords<D::Context>>) -> Result<Started<D>>,
    ) -> Result<()> {
        let (device, stream, context) = (&self.device, &self.stream, self.device.context());
        let event = StreamEvent::of(&**signal.event, device)?;
        context.health().status()?;
        // Not later: the event may wait for its own last signal.
        let awaited = AwaitedSignals::of(wait)?;
        let enqueue = |records: &Arc<EventRecords<D::Context>>| -> Result<StreamSignal<D>> {
            let WaitedSignals { needs, failure } = self.wait_for(awaited)?;
            if let Some(commands) = timed_commands {
                // Also for an event without times: what is enqueued records them.
                records.reserve(context, commands)?;
            }
            let mut times = None;
            if (timed_commands.is_some() || self.desc.profiling || signal.timed)
                && let Some(first) = &records.start
            {
                let commands = timed_commands.unwrap_or(0);
                times = Some(SignalTimes::begin(device.clock().base()?, commands));
                first.record(stream)?;
            }
            // What does not run keeps its place in the order.
            let started = if failure.is_some() { Started::default() } else { start(stream, records)? };
            let failure = failure.or(started.failure.map(|failure| context.error(failure)));
            let end = match started.counted {
                // Times need the record of the event.
                Some(run) if times.is_none() => SignalEnd::Counted(run),
                // The work is on the stream: a failure from here on fails the event.
                _ => match stream.record(&records.end) {
                    Ok(sequence) => SignalEnd::Recorded(sequence),
                    Err(failure) => SignalEnd::Broken(context.error(failure)),
                },
            };
            let signal = StreamSignal::new(device, records, stream, end, times, needs, kept);
            Ok(signal.failing(failure).with_loops(started.loops))
        };
        context.run(|| event.signal_by(enqueue))
    }

    /// Has the stream wait. The caller has bound the context.
    pub fn wait_for(
        &self,
        AwaitedSignals { order, dependencies }: AwaitedSignals<D>,
    ) -> Result<WaitedSignals<D>> {
        for signal in order {
            signal.order_before(&self.stream)?;
        }
        let mut waited = WaitedSignals { needs: SignalNeeds::<D>::default(), failure: None };
        for signal in dependencies {
            let failed = signal.order_before(&self.stream)?;
            if let Some(failure) = failed.as_ref().or(signal.known_failure()) {
                waited.failure.get_or_insert_with(|| failure.clone());
            }
            if failed.is_none() {
                waited.needs.push(signal);
            }
        }
        Ok(waited)
    }
}

/// The last signals of the events of a wait list.
#[derive(Debug)]
pub struct AwaitedSignals<D: StreamDevice> {
    order: Signals<D>,
    dependencies: Signals<D>,
}

type Signals<D> = SmallVec<[Arc<StreamSignal<D>>; 4]>;

impl<D: StreamDevice> AwaitedSignals<D> {
    pub fn of(wait: WaitList<'_>) -> Result<Self> {
        Ok(Self { order: signals(wait.order)?, dependencies: signals(wait.dependencies)? })
    }
}

/// What a wait list says about the enqueue behind it.
#[derive(Debug)]
pub struct WaitedSignals<D: StreamDevice> {
    pub needs: SignalNeeds<D>,
    /// The failure that a dependency has, or will have when its work is over: nothing runs, and this is the
    /// outcome once everything before it is over.
    pub failure: Option<Error>,
}

/// The last signals of these events.
pub(super) fn signals<D: StreamDevice>(events: &[&dyn Event]) -> Result<Signals<D>> {
    let last = |event: &&dyn Event| {
        let event = event.as_any().downcast_ref::<StreamEvent<D>>().ok_or_else(foreign_wait)?;
        event.last_signal().ok_or_else(idle_wait)
    };
    events.iter().map(last).collect()
}
