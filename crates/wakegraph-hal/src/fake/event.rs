//! Events of a fake device.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::completion::FakeCompletion;
use super::schedule::FakeSchedule;
use crate::{DeviceId, Event, EventProfile, EventStatus, Result};

/// An event that the schedule completes.
#[derive(Debug)]
pub(super) struct FakeEvent {
    device: DeviceId,
    completion: Arc<FakeCompletion>,
    schedule: Arc<FakeSchedule>,
}

impl FakeEvent {
    pub(super) fn new(device: DeviceId, schedule: &Arc<FakeSchedule>) -> Self {
        Self { device, completion: Arc::new(FakeCompletion::new()), schedule: Arc::clone(schedule) }
    }

    pub(super) fn completion(&self) -> &Arc<FakeCompletion> {
        &self.completion
    }
}

impl Event for FakeEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.schedule.poll(&self.completion)
    }

    /// Returns at once when the event is idle: nothing has been enqueued that could make it final.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        self.schedule.wait(&self.completion, None, timeout)
    }

    fn profile(&self) -> Result<EventProfile> {
        self.completion.profile()
    }
}
