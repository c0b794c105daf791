//! Queues: one stream each, and the one way in which anything is enqueued on it.

use std::sync::Arc;

use super::completion_counter::CountedRun;
use super::device_inner::CudaDeviceInner;
use super::event::CudaEvent;
use super::signal::{CudaSignal, Kept, StartingUse, UseEnd};
use super::stream::CudaStream;
use crate::hal::support::refusal::{foreign, foreign_wait};
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
        let stream = Arc::new(CudaStream::create(&device.context)?);
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
        start: impl FnOnce(&Arc<CudaStream>, &StartingUse<'_>) -> Result<Option<CountedRun>>,
    ) -> Result<()> {
        let context = &self.device.context;
        let event = signal.event.as_any().downcast_ref::<CudaEvent>();
        let event = event.filter(|event| Arc::ptr_eq(event.signal().device(), &self.device));
        let signal = event.ok_or_else(|| foreign("event"))?.signal();
        context.status()?;
        context.run(|| -> Result<()> {
            let mut starting = CudaSignal::begin(signal)?;
            if let Some(error) = self.wait_for(wait, &mut starting)? {
                starting.fail(error);
                return Ok(());
            }
            let timed = timed_commands.is_some() || self.desc.profiling;
            if timed && let Some(first) = signal.start() {
                starting.prepare_times(timed_commands.unwrap_or(0), self.device.clock.base()?)?;
                first.record(&self.stream)?;
            }
            let end = match start(&self.stream, &starting)? {
                Some(run) => UseEnd::Counted { run, next_query: None },
                // The work is on the stream: a failure from here on fails the event.
                None => match self.stream.record(signal.end()) {
                    Ok(sequence) => UseEnd::Recorded(sequence),
                    Err(failure) => UseEnd::Broken(context.error(failure)),
                },
            };
            starting.enqueued(&self.stream, timed, kept, end);
            Ok(())
        })
    }

    /// Makes later work on the stream wait for the events. Returns the failure of a dependency that
    /// has failed.
    fn wait_for(&self, wait: WaitList<'_>, starting: &mut StartingUse<'_>) -> Result<Option<Error>> {
        fn signal_of(event: &dyn Event) -> Result<&Arc<CudaSignal>> {
            event.as_any().downcast_ref().map(CudaEvent::signal).ok_or_else(foreign_wait)
        }
        for &event in wait.order {
            signal_of(event)?.order_before(&self.stream)?;
        }
        for &event in wait.dependencies {
            let signal = signal_of(event)?;
            // Before the wait is enqueued, so that both mean the same use.
            starting.depend_on(signal);
            if let Some(error) = signal.order_before(&self.stream)? {
                return Ok(Some(error));
            }
        }
        Ok(None)
    }
}
