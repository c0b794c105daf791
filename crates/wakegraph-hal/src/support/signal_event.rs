//! Events that have the signal of the last enqueue which named them.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use super::device_context::DeviceContext;
use super::signals::{EnqueueSignal, LastSignal};
use super::{polling, refusal};
use crate::{DeviceId, Event, EventProfile, EventStatus, Result};

/// A signal whose driver can wait for it, and that may keep times.
pub trait DriverSignal: EnqueueSignal + Debug + Send + Sync + 'static {
    /// What its device shares.
    type Context: DeviceContext;

    /// Has the driver wait for the end of the enqueue, as far as it can. Returns how long to poll then.
    fn wait(&self, timeout: Option<Duration>) -> Option<Duration>;

    /// The times, once it is complete, if it keeps them.
    fn profile(&self) -> Result<EventProfile>;
}

/// An event. Enqueued commands do not need it, so it may be dropped before they end.
#[derive(Debug)]
pub struct SignalEvent<S: DriverSignal> {
    context: Arc<S::Context>,
    /// The signal of the last enqueue that named the event.
    pub signal: LastSignal<S>,
}

impl<S: DriverSignal> SignalEvent<S> {
    /// An event that no enqueue has named.
    pub fn new(context: &Arc<S::Context>) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::default() }
    }

    /// An event that has been signalled already.
    pub fn signalled(context: &Arc<S::Context>, signal: S) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::new(signal) }
    }

    /// The event behind `event`, if it is one of this device.
    pub fn of<'a>(event: &'a Arc<dyn Event>, device: &S::Context) -> Result<&'a Self> {
        let event = event.as_any().downcast_ref::<Self>();
        event.filter(|event| event.device() == device.id()).ok_or_else(|| refusal::foreign("event"))
    }

    /// The last signal of an event in a wait list, if it is one of a device that `can_wait` allows.
    pub fn awaited(event: &dyn Event, can_wait: impl FnOnce(&S::Context) -> bool) -> Result<&LastSignal<S>> {
        let event = event.as_any().downcast_ref::<Self>().filter(|event| can_wait(&event.context));
        Ok(&event.ok_or_else(refusal::foreign_wait)?.signal)
    }
}

impl<S: DriverSignal> Event for SignalEvent<S> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.context.id()
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.signal.get() else { return EventStatus::Idle };
        // Before the first poll: on some drivers a thread that blocks does the work itself, and a poll
        // hands it to other threads.
        let timeout = signal.wait(timeout);
        polling::wait(timeout, || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(refusal::times_before_completion)?.profile()
    }
}
