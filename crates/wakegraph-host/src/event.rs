//! Events.

use std::any::Any;
use std::fmt::Debug;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use wakegraph_hal::{DeviceId, Event, EventProfile, EventStatus, Result};

use super::completion::HostCompletion;

/// The completion of host work on a device. What is in flight holds the event, so its handle may be dropped.
/// `D` is what its completion releases.
#[derive(Debug)]
pub(super) struct HostEvent<D> {
    device: DeviceId,
    completion: HostCompletion<D>,
}

impl<D: Send + 'static> HostEvent<D> {
    pub(super) fn new(device: DeviceId) -> Self {
        Self { device, completion: HostCompletion::new() }
    }

    /// The event behind a handle, if it is of this backend.
    pub(super) fn of(handle: &Arc<dyn Event>) -> Option<Arc<Self>> {
        let event: Arc<dyn Any + Send + Sync> = handle.clone();
        event.downcast().ok()
    }
}

impl<D> Deref for HostEvent<D> {
    type Target = HostCompletion<D>;

    fn deref(&self) -> &HostCompletion<D> {
        &self.completion
    }
}

impl<D: Debug + Send + 'static> Event for HostEvent<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.completion.status()
    }

    /// Returns at once when the event is idle: nothing has been enqueued that could make it final.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        self.completion.wait(timeout)
    }

    fn stop(&self) {
        self.completion.stop();
    }

    fn profile(&self) -> Result<EventProfile> {
        self.completion.profile()
    }
}
