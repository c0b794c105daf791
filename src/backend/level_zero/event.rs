//! Events: each has the signal of the last enqueue that named it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::context::LevelZeroContext;
use super::signal::LevelZeroSignal;
use crate::hal::support::signals::{EnqueueSignal, LastSignal};
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// An event. It moves to another event of the driver with each signal.
#[derive(Debug)]
pub(super) struct LevelZeroEvent {
    pub(super) context: Arc<LevelZeroContext>,
    pub(super) signal: LastSignal<LevelZeroSignal>,
}

impl LevelZeroEvent {
    pub(super) fn new(context: &Arc<LevelZeroContext>) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::default() }
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
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.signal.get() else { return EventStatus::Idle };
        let limit = timeout.map_or(u64::MAX, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        signal.wait(limit);
        polling::wait(timeout.map(|_| Duration::ZERO), || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(refusal::times_before_completion)?.profile()
    }
}
