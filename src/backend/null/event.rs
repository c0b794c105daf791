//! Events. **Fill in:** the driver's event; `status` queries it every time.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::control::NullControl;
use crate::hal::{Event, EventProfile, EventStatus};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// An event that the control completes.
#[derive(Debug)]
pub(super) struct NullEvent {
    device: DeviceId,
    completion: Arc<Completion>,
    control: NullControl,
}

/// What the event shares with the enqueue that signals it.
#[derive(Debug)]
pub(super) struct Completion {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug)]
struct Inner {
    /// How often it became pending.
    generation: u64,
    status: EventStatus,
    /// When it is over by the clock.
    due: Option<Instant>,
    /// How the last use ended, also when it is pending again.
    ended: EventStatus,
    profile: Option<EventProfile>,
}

impl NullEvent {
    pub(super) fn new(device: DeviceId, control: NullControl) -> Self {
        let inner = Inner {
            generation: 0,
            status: EventStatus::Idle,
            due: None,
            ended: EventStatus::Idle,
            profile: None,
        };
        Self {
            device,
            completion: Arc::new(Completion { inner: Mutex::new(inner), changed: Condvar::new() }),
            control,
        }
    }

    pub(super) fn completion(&self) -> &Arc<Completion> {
        &self.completion
    }
}

impl Completion {
    /// Becomes pending, by the clock until `due`; gives the generation that it is now.
    pub(super) fn begin(&self, due: Option<Instant>) -> Result<u64> {
        let mut inner = self.inner.lock();
        if matches!(inner.status, EventStatus::Pending) {
            return Err(Error::new(ErrorKind::InvalidOperation, "the event to signal is still pending")
                .help("wait for the event, or signal another one"));
        }
        inner.status = EventStatus::Pending;
        inner.due = due;
        inner.profile = None;
        inner.generation += 1;
        Ok(inner.generation)
    }

    pub(super) fn complete(&self, outcome: Result<()>, profile: Option<EventProfile>) {
        let mut inner = self.inner.lock();
        inner.profile = profile;
        inner.status = match outcome {
            Ok(()) => EventStatus::Complete,
            Err(error) => EventStatus::Failed(error),
        };
        inner.ended = inner.status.clone();
        self.changed.notify_all();
    }

    /// The status and the generation that it is of.
    pub(super) fn status(&self) -> (EventStatus, u64) {
        let inner = self.inner.lock();
        (inner.status.clone(), inner.generation)
    }

    /// When it is over by the clock, while it is pending.
    pub(super) fn due(&self) -> Option<Instant> {
        let inner = self.inner.lock();
        inner.due.filter(|_| matches!(inner.status, EventStatus::Pending))
    }

    /// Whether nobody has yet been told that it is over, as it has been by the clock since then.
    pub(super) fn tell_end(&self, now: Instant) -> bool {
        self.inner.lock().due.take_if(|due| *due <= now).is_some()
    }

    /// Blocks while this use, or the one of this generation, is pending, at most for `timeout`.
    pub(super) fn wait(&self, generation: Option<u64>, timeout: Option<Duration>) -> EventStatus {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut inner = self.inner.lock();
        let generation = generation.unwrap_or(inner.generation);
        while matches!(inner.status, EventStatus::Pending) && inner.generation == generation {
            match deadline {
                None => self.changed.wait(&mut inner),
                Some(deadline) if self.changed.wait_until(&mut inner, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        // Signalled anew meanwhile: then this use, or one after it, has ended so.
        if inner.generation == generation { inner.status.clone() } else { inner.ended.clone() }
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
        self.control.ask(&self.completion);
        self.completion.status().0
    }

    /// Returns at once when the event is idle: nothing has been enqueued that could make it final.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        self.control.wait(&self.completion, None, timeout)
    }

    fn profile(&self) -> Result<EventProfile> {
        let inner = self.completion.inner.lock();
        let invalid = |why: &str| Err(Error::new(ErrorKind::InvalidOperation, why));
        match (&inner.status, &inner.profile) {
            (EventStatus::Complete, Some(profile)) => Ok(profile.clone()),
            (EventStatus::Complete, None) => {
                invalid("neither the queue nor the command-buffer was created with profiling")
            }
            _ => invalid("an event has times only once it is complete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::NullOptions;
    use super::*;

    #[test]
    fn a_wait_for_a_use_is_not_held_by_the_next() {
        let completion = NullEvent::new(DeviceId::unique(), NullControl::new(&NullOptions::new())).completion;
        let broken = || Err(Error::new(ErrorKind::Driver, "broken"));
        for fails in [false, true] {
            let generation = completion.begin(None).unwrap();
            completion.complete(if fails { broken() } else { Ok(()) }, None);
            completion.begin(None).unwrap();
            match completion.wait(Some(generation), None) {
                EventStatus::Complete => assert!(!fails),
                EventStatus::Failed(error) => assert!(fails && error.message() == "broken"),
                other => panic!("{other:?}"),
            }
            completion.complete(Ok(()), None);
        }
    }
}
