//! Events: each has the signal of the last enqueue that named it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::context::ContextFailure;
use super::device::StreamDevice;
use super::signal::{EventRecords, StreamSignal};
use crate::support::signals::{EnqueueSignal, LastSignal};
use crate::support::{polling, refusal};
use crate::{DeviceId, Event, EventProfile, EventStatus, Result};

/// An event. Enqueued work does not need it, so it may be dropped before that ends.
#[derive(Debug)]
pub(super) struct StreamEvent<D: StreamDevice> {
    device: Arc<D>,
    records: Arc<EventRecords<D::Context>>,
    signal: LastSignal<StreamSignal<D>>,
}

impl<D: StreamDevice> StreamEvent<D> {
    pub(super) fn create(device: &Arc<D>, profiling: bool) -> Result<Self, ContextFailure<D::Context>> {
        let records = Arc::new(EventRecords::create(device.context(), profiling)?);
        Ok(Self { device: Arc::clone(device), records, signal: LastSignal::default() })
    }

    /// An event with a signal.
    pub(super) fn signalled(
        device: &Arc<D>,
        records: &Arc<EventRecords<D::Context>>,
        signal: StreamSignal<D>,
    ) -> Self {
        let (device, records) = (Arc::clone(device), Arc::clone(records));
        Self { device, records, signal: LastSignal::new(signal) }
    }

    /// The event behind `event`, if it is one of `device`.
    pub(super) fn of<'a>(event: &'a dyn Event, device: &Arc<D>) -> Result<&'a Self> {
        let event = event.as_any().downcast_ref::<Self>();
        event.filter(|event| Arc::ptr_eq(&event.device, device)).ok_or_else(|| refusal::foreign("event"))
    }

    /// The signal that a wait for this event means now.
    pub(super) fn last_signal(&self) -> Option<Arc<StreamSignal<D>>> {
        self.signal.get()
    }

    /// The driver's events.
    pub(super) fn records(&self) -> &Arc<EventRecords<D::Context>> {
        &self.records
    }

    /// # Errors
    /// As [`LastSignal::check_not_pending`].
    pub(super) fn check_not_pending(&self) -> Result<()> {
        self.signal.check_not_pending()
    }

    /// Gives the event the signal of what `enqueue` enqueues.
    ///
    /// # Errors
    /// As [`LastSignal::signal_by`].
    pub(super) fn signal_by(
        &self,
        enqueue: impl FnOnce(&Arc<EventRecords<D::Context>>) -> Result<StreamSignal<D>>,
    ) -> Result<()> {
        self.signal.signal_by(|| enqueue(&self.records)).map(drop)
    }
}

impl<D: StreamDevice> Event for StreamEvent<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device.id()
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    /// The driver's own wait has no time limit, so this polls.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.last_signal() else { return EventStatus::Idle };
        polling::wait(timeout, || signal.status())
    }

    fn stop(&self) {
        if let Some(signal) = self.last_signal() {
            signal.stop();
        }
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(refusal::times_before_completion)?.profile()
    }
}
