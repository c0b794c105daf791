//! Events.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::device::Shared;
use super::signal::Signal;
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// The signal of the last enqueue. What is in flight does not need the event, so it may be dropped.
#[derive(Debug)]
pub(super) struct OpenclEvent {
    shared: Arc<Shared>,
    signal: Mutex<Option<Arc<Signal>>>,
}

/// How often a wait with a limit looks before it sleeps between looks, and how long it sleeps at most.
const EAGER_LOOKS: u32 = 64;
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl OpenclEvent {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        Self { shared: Arc::clone(shared), signal: Mutex::new(None) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The signal that a wait for this event means now.
    pub(super) fn signal(&self) -> Option<Arc<Signal>> {
        self.signal.lock().clone()
    }

    /// The place of the signal, for an enqueue.
    pub(super) fn slot(&self) -> MutexGuard<'_, Option<Arc<Signal>>> {
        self.signal.lock()
    }
}

impl Event for OpenclEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.shared.info.id
    }

    fn status(&self) -> EventStatus {
        self.signal.lock().as_ref().map_or(EventStatus::Idle, Signal::status)
    }

    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.signal() else { return EventStatus::Idle };
        // A time too far away to be represented is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut looks = 0u32;
        if deadline.is_none() {
            // Before the first look: on some drivers who blocks here does the work, and a look has
            // it done by others.
            signal.wait();
        }
        loop {
            let status = signal.status();
            if status.is_final() {
                return status;
            }
            let Some(deadline) = deadline else {
                signal.wait();
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return status;
            }
            match looks.checked_sub(EAGER_LOOKS) {
                None => thread::yield_now(),
                Some(late) => {
                    thread::sleep(Duration::from_micros(1 << late.min(10)).min(LONGEST_PAUSE).min(left))
                }
            }
            looks = looks.saturating_add(1);
        }
    }

    fn profile(&self) -> Result<EventProfile> {
        let signal = self.signal();
        match signal.filter(|signal| matches!(signal.status(), EventStatus::Complete)) {
            Some(signal) => signal.profile(),
            None => {
                Err(Error::new(ErrorKind::InvalidOperation, "an event has times only once it is complete"))
            }
        }
    }
}
