//! Events. **Fill in:** the driver's event; `status` queries it every time.

use std::any::Any;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::support::refusal;
use crate::{DeviceId, Error, Event, EventProfile, EventStatus, Result};

/// An event that is idle until its first enqueue and final from then on.
#[derive(Debug)]
pub(super) struct NullEvent {
    device: DeviceId,
    last: Mutex<(EventStatus, Option<EventProfile>)>,
}

impl NullEvent {
    pub(super) fn new(device: DeviceId) -> Self {
        Self { device, last: Mutex::new((EventStatus::Idle, None)) }
    }

    /// Makes the event final: failed if something that the enqueue needed has failed.
    pub(super) fn complete(&self, failure: Option<Error>, profile: Option<EventProfile>) {
        *self.last.lock() = (failure.map_or(EventStatus::Complete, EventStatus::Failed), profile);
    }
}

impl Event for NullEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.last.lock().0.clone()
    }

    fn wait(&self, _: Option<Duration>) -> EventStatus {
        self.status()
    }

    fn profile(&self) -> Result<EventProfile> {
        match &*self.last.lock() {
            (EventStatus::Complete, Some(profile)) => Ok(profile.clone()),
            (EventStatus::Complete, None) => Err(refusal::no_times()),
            _ => Err(refusal::times_before_completion()),
        }
    }
}

/// The device's clock, in nanoseconds. **Fill in:** the driver's, if `profile` reads times from it.
pub(super) fn now() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(ORIGIN.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
