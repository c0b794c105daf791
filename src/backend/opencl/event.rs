//! Events: each has the signal of the last enqueue that named it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use super::context::OpenclContext;
use super::signal::OpenclSignal;
use crate::hal::support::signals::{EnqueueSignal, LastSignal};
use crate::hal::support::{polling, refusal};
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Result};

/// An event. Enqueued commands do not need it, so it may be dropped before they end.
#[derive(Debug)]
pub(super) struct OpenclEvent {
    pub(super) context: Arc<OpenclContext>,
    pub(super) signal: LastSignal<OpenclSignal>,
}

impl OpenclEvent {
    pub(super) fn new(context: &Arc<OpenclContext>) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::default() }
    }

    /// An event that has been signalled already.
    pub(super) fn signalled(signal: OpenclSignal) -> Self {
        let context = Arc::clone(signal.context());
        Self { context, signal: LastSignal::new(signal) }
    }
}

impl Event for OpenclEvent {
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
        if timeout.is_none() {
            // Before the first poll: on some drivers a thread that blocks here does the work itself, and
            // a poll hands it to other threads.
            signal.wait();
        }
        polling::wait(timeout, || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(refusal::times_before_completion)?.profile()
    }
}
