//! Events: each has the signal of the last enqueue that named it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::context::LevelZeroContext;
use super::signal::LevelZeroSignal;
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// An event. It moves to another event of the driver with each signal.
#[derive(Debug)]
pub(super) struct LevelZeroEvent {
    pub(super) context: Arc<LevelZeroContext>,
    pub(super) signal: Mutex<Option<Arc<LevelZeroSignal>>>,
}

impl LevelZeroEvent {
    pub(super) fn new(context: &Arc<LevelZeroContext>) -> Self {
        Self { context: Arc::clone(context), signal: Mutex::new(None) }
    }

    /// The signal that a wait for this event means now.
    pub(super) fn last_signal(&self) -> Option<Arc<LevelZeroSignal>> {
        self.signal.lock().clone()
    }
}

impl Event for LevelZeroEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.context.info.id
    }

    fn status(&self) -> EventStatus {
        // Without the lock: what a signal drops when it is over may be the user's.
        self.last_signal().map_or(EventStatus::Idle, |signal| signal.status())
    }

    fn is_idle(&self) -> bool {
        self.signal.lock().is_none()
    }

    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.last_signal() else { return EventStatus::Idle };
        let limit = timeout.map_or(u64::MAX, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        signal.wait(limit);
        polling::wait(timeout.map(|_| Duration::ZERO), || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        match self.last_signal().filter(|signal| matches!(signal.status(), EventStatus::Complete)) {
            Some(signal) => signal.profile(),
            None => Err(refusal::times_before_completion()),
        }
    }
}
