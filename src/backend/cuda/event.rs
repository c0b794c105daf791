//! Events.

use std::any::Any;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::device::Shared;
use super::signal::{Outcome, Signal};
use super::sys::Failure;
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// An event. What waits for it holds its signal.
#[derive(Debug)]
pub(super) struct CudaEvent {
    signal: Arc<Signal>,
}

/// How often a wait looks before it sleeps between looks, and how long it sleeps at most.
const EAGER_LOOKS: u32 = 256;
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

impl CudaEvent {
    pub(super) fn create(shared: &Arc<Shared>, profiling: bool) -> Result<Self, Failure> {
        Ok(Self { signal: Arc::new(Signal::create(shared, profiling)?) })
    }

    pub(super) fn signal(&self) -> &Arc<Signal> {
        &self.signal
    }
}

impl Event for CudaEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn device(&self) -> DeviceId {
        self.signal.shared.info.id
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    /// The driver's own wait has no limit, so this looks with growing pauses.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(outcome) = self.signal.outcome() else { return EventStatus::Idle };
        // A time too far away to be represented is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut looks = 0u32;
        loop {
            if let Some(status) = ended(&outcome) {
                return status;
            }
            self.signal.status();
            if let Some(status) = ended(&outcome) {
                return status;
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return EventStatus::Pending;
            }
            match looks.checked_sub(EAGER_LOOKS) {
                None => thread::yield_now(),
                Some(late) => {
                    let pause = Duration::from_micros(10 << late.min(10)).min(LONGEST_PAUSE);
                    thread::sleep(left.map_or(pause, |left| pause.min(left)));
                }
            }
            looks = looks.saturating_add(1);
        }
    }

    fn profile(&self) -> Result<EventProfile> {
        // It may be complete, and nobody has looked.
        self.signal.status();
        let invalid = |why: &str| Err(Error::new(ErrorKind::InvalidOperation, why));
        match self.signal.with_times(|signal, times| times.read(signal)) {
            Some(Ok(Some(profile))) => Ok(profile),
            Some(Ok(None)) => invalid("neither the queue nor the command-buffer was created with profiling"),
            Some(Err(failure)) => Err(self.signal.shared.context.error(failure)),
            None => invalid("an event has times only once it is complete"),
        }
    }
}

/// How the use of the event ended that has this outcome.
fn ended(outcome: &Outcome) -> Option<EventStatus> {
    outcome.get().map(|failure| failure.clone().map_or(EventStatus::Complete, EventStatus::Failed))
}
