//! Events: each has the signal of the last enqueue that named it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::device_inner::HipDeviceInner;
use super::signal::{HipEventRecords, HipSignal};
use super::sys::HipFailure;
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// An event. Enqueued work does not need it, so it may be dropped before that ends.
#[derive(Debug)]
pub(super) struct HipEvent {
    device: Arc<HipDeviceInner>,
    records: Arc<HipEventRecords>,
    signal: Mutex<Option<Arc<HipSignal>>>,
}

impl HipEvent {
    pub(super) fn create(device: &Arc<HipDeviceInner>, profiling: bool) -> Result<Self, HipFailure> {
        let records = Arc::new(HipEventRecords::create(device, profiling)?);
        Ok(Self { device: Arc::clone(device), records, signal: Mutex::new(None) })
    }

    /// An event with a signal.
    pub(super) fn signalled(
        device: &Arc<HipDeviceInner>,
        records: &Arc<HipEventRecords>,
        signal: HipSignal,
    ) -> Self {
        let (device, records) = (Arc::clone(device), Arc::clone(records));
        Self { device, records, signal: Mutex::new(Some(Arc::new(signal))) }
    }

    /// The event behind `event`, if it is one of `device`.
    pub(super) fn of<'a>(event: &'a dyn Event, device: &Arc<HipDeviceInner>) -> Result<&'a Self> {
        let event = event.as_any().downcast_ref::<Self>();
        event.filter(|event| Arc::ptr_eq(&event.device, device)).ok_or_else(|| refusal::foreign("event"))
    }

    /// The signal that a wait for this event means now.
    pub(super) fn last_signal(&self) -> Option<Arc<HipSignal>> {
        self.signal.lock().clone()
    }

    /// The driver's events.
    pub(super) fn records(&self) -> &Arc<HipEventRecords> {
        &self.records
    }

    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while the last signal is pending.
    pub(super) fn check_not_pending(&self) -> Result<()> {
        match self.status() {
            EventStatus::Pending => Err(refusal::pending_signal()),
            _ => Ok(()),
        }
    }

    /// Gives the event the signal of what `enqueue` enqueues.
    ///
    /// # Errors
    /// Those of `enqueue`; [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while the last
    /// signal is pending. The event stays as it was then.
    pub(super) fn signal_by(
        &self,
        enqueue: impl FnOnce(&Arc<HipEventRecords>) -> Result<HipSignal>,
    ) -> Result<()> {
        // Nothing may have polled the last signal since its end. Without the lock, as a poll may
        // drop what users have given.
        self.status();
        let mut signal = self.signal.lock();
        if signal.as_ref().is_some_and(|last| !last.is_final()) {
            return Err(refusal::pending_signal());
        }
        let new = enqueue(&self.records)?;
        // The last signal is used again, unless something still refers to it.
        match signal.as_mut().and_then(Arc::get_mut) {
            Some(last) => *last = new,
            None => *signal = Some(Arc::new(new)),
        }
        Ok(())
    }
}

impl Event for HipEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device.info.id
    }

    fn status(&self) -> EventStatus {
        self.last_signal().map_or(EventStatus::Idle, |signal| signal.status())
    }

    fn is_idle(&self) -> bool {
        self.signal.lock().is_none()
    }

    /// The driver's own wait has no time limit, so this polls.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.last_signal() else { return EventStatus::Idle };
        polling::wait(timeout, || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        self.last_signal().ok_or_else(refusal::times_before_completion)?.profile()
    }
}
