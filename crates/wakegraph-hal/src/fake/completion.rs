//! What an event shares with the enqueue that signals it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::support::refusal;
use crate::{EventProfile, EventStatus, Result};

/// The state of an event, over all its uses.
#[derive(Debug)]
pub(super) struct FakeCompletion {
    state: Mutex<FakeCompletionState>,
    changed: Condvar,
}

#[derive(Debug)]
struct FakeCompletionState {
    /// How often the event became pending.
    generation: u64,
    status: EventStatus,
    /// When the current use ends by the clock.
    due: Option<Instant>,
    /// How the last use ended; kept while the event is pending again.
    last_outcome: EventStatus,
    profile: Option<EventProfile>,
    /// Uses of events that the last use waited for when it failed before its turn.
    still_awaited: Vec<(Arc<FakeCompletion>, u64)>,
}

impl FakeCompletion {
    pub(super) fn new() -> Self {
        let state = FakeCompletionState {
            generation: 0,
            status: EventStatus::Idle,
            due: None,
            last_outcome: EventStatus::Idle,
            profile: None,
            still_awaited: Vec::new(),
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Makes the event pending, until `due` if it completes by the clock. Returns the generation of
    /// this use.
    pub(super) fn begin(&self, due: Option<Instant>) -> Result<u64> {
        let mut state = self.state.lock();
        if matches!(state.status, EventStatus::Pending) {
            return Err(refusal::pending_signal());
        }
        state.status = EventStatus::Pending;
        state.due = due;
        state.profile = None;
        state.still_awaited.clear();
        state.generation += 1;
        Ok(state.generation)
    }

    /// Makes the event final and wakes the threads that block on it.
    pub(super) fn complete(&self, outcome: Result<()>, profile: Option<EventProfile>) {
        let mut state = self.state.lock();
        state.profile = profile;
        state.status = match outcome {
            Ok(()) => EventStatus::Complete,
            Err(error) => EventStatus::Failed(error),
        };
        state.last_outcome = state.status.clone();
        self.changed.notify_all();
    }

    /// The last use has failed before these.
    pub(super) fn set_still_awaited(&self, uses: Vec<(Arc<Self>, u64)>) {
        self.state.lock().still_awaited = uses;
    }

    /// Whether the use of this generation is over, and all that it came after.
    pub(super) fn is_over(&self, generation: u64) -> bool {
        let state = self.state.lock();
        if state.generation != generation {
            return true;
        }
        let awaited = state.still_awaited.clone();
        let is_final = state.status.is_final();
        drop(state);
        is_final && awaited.iter().all(|(event, generation)| event.is_over(*generation))
    }

    /// The status, and the generation of the use that it belongs to.
    pub(super) fn status(&self) -> (EventStatus, u64) {
        let state = self.state.lock();
        (state.status.clone(), state.generation)
    }

    /// When the pending use ends by the clock.
    pub(super) fn due(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.due.filter(|_| matches!(state.status, EventStatus::Pending))
    }

    /// True once per use: for the first poll after the end by the clock.
    pub(super) fn take_first_final_poll(&self, now: Instant) -> bool {
        self.state.lock().due.take_if(|due| *due <= now).is_some()
    }

    /// Blocks while the use of this generation (the current one if `None`) is pending, at most for
    /// `timeout`.
    pub(super) fn wait(&self, generation: Option<u64>, timeout: Option<Duration>) -> EventStatus {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state.lock();
        let generation = generation.unwrap_or(state.generation);
        while matches!(state.status, EventStatus::Pending) && state.generation == generation {
            match deadline {
                None => self.changed.wait(&mut state),
                Some(deadline) if self.changed.wait_until(&mut state, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        // If the event was signalled again, this use, or a later one, ended with the last outcome.
        if state.generation == generation { state.status.clone() } else { state.last_outcome.clone() }
    }

    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) when the event is not complete or
    /// has no times.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let state = self.state.lock();
        match (&state.status, &state.profile) {
            (EventStatus::Complete, Some(profile)) => Ok(profile.clone()),
            (EventStatus::Complete, None) => Err(refusal::no_times()),
            _ => Err(refusal::times_before_completion()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    #[test]
    fn a_wait_for_one_use_is_not_held_by_the_next() {
        let completion = FakeCompletion::new();
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
