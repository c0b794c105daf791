//! Events.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::completion::HostCompletion;
use super::thread_pool::Dependent;
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// The completion of host work. What is in flight holds the completion, so the event itself may be dropped.
#[derive(Debug)]
pub(super) struct HostEvent {
    device: DeviceId,
    completion: Arc<HostCompletion<Dependent>>,
}

impl HostEvent {
    pub(super) fn new(device: DeviceId) -> Self {
        Self { device, completion: Arc::new(HostCompletion::new()) }
    }

    pub(super) fn completion(&self) -> &Arc<HostCompletion<Dependent>> {
        &self.completion
    }
}

impl Event for HostEvent {
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
