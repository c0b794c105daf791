//! Uses of events that never end: a stream waits for an event of another device, and that device is lost.
//!
//! The driver tells neither whether such a wait will ever be over nor whether it has been: an event of a lost context
//! cannot be asked any more. So the use fails, as does what is behind it on its stream, which takes nothing more; and what
//! it might still touch, were the wait over after all, is never freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use super::{Outcome, Signal, Waited};
use crate::hal::EventStatus;
use crate::types::{Error, Result};

/// Uses on a device that never end.
#[derive(Debug, Default)]
pub(in crate::backend::cuda) struct Stuck {
    any: AtomicBool,
    uses: Mutex<Vec<Arc<Outcome>>>,
}

/// How far a stream gets.
#[derive(Debug, Default)]
pub(in crate::backend::cuda) struct Reach {
    uses: AtomicU64,
    /// The first use that does not end, and why.
    end: Mutex<Option<(u64, Error)>>,
}

impl Stuck {
    pub(in crate::backend::cuda) fn is_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn add(&self, outcome: Arc<Outcome>) {
        self.uses.lock().push(outcome);
        self.any.store(true, Ordering::Release);
    }

    fn has(&self, outcome: &Arc<Outcome>) -> bool {
        self.is_any() && self.uses.lock().iter().any(|stuck| Arc::ptr_eq(stuck, outcome))
    }
}

impl Reach {
    /// The place of the use that is enqueued now.
    pub(super) fn next(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::Relaxed)
    }

    fn end_at(&self, place: u64, error: &Error) {
        let mut end = self.end.lock();
        if end.as_ref().is_none_or(|(before, _)| place < *before) {
            *end = Some((place, error.clone()));
        }
    }

    fn ends_before(&self, place: u64) -> Option<Error> {
        self.end.lock().as_ref().filter(|(end, _)| *end <= place).map(|(_, error)| error.clone())
    }

    /// Why the stream takes nothing more.
    pub(in crate::backend::cuda) fn check(&self) -> Result<()> {
        self.end.lock().as_ref().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }
}

impl Signal {
    /// The use of this state is not over: fails it if it never will be.
    pub(super) fn not_over(&self, state: u64) -> EventStatus {
        let stuck = &self.shared.stuck;
        if !self.abroad.load(Ordering::Relaxed) && !stuck.is_any() {
            return EventStatus::Pending;
        }
        let Some(error) = self.held_up() else { return EventStatus::Pending };
        // The failure may be older than the look: a use that did end has ended well.
        match self.is_over(state) {
            Ok(false) => {}
            Ok(true) => return self.settle(state, None),
            Err(failure) => return self.settle(state, Some(self.shared.context.error(failure))),
        }
        {
            let mut inner = self.inner.lock();
            if self.state.load(Ordering::Acquire) != state {
                return EventStatus::Pending;
            }
            if let Some((_, stream)) = &inner.queue {
                stream.reach.end_at(inner.place, &error);
            }
            stuck.add(Arc::clone(&inner.outcome));
            std::mem::forget(inner.kept.take());
        }
        tracing::error!(target: "wakegraph", %error, "work waits for ever for a device that is lost");
        self.settle(state, Some(error))
    }

    /// Why this use never ends, if that is so.
    fn held_up(&self) -> Option<Error> {
        let (behind, waits) = {
            let inner = self.inner.lock();
            let behind = inner.queue.as_ref().and_then(|(_, stream)| stream.reach.ends_before(inner.place));
            (behind, inner.waited.iter().chain(&inner.after).cloned().collect::<Waited>())
        };
        behind.or_else(|| waits.iter().find_map(|(signal, outcome)| self.is_held_up_by(signal, outcome)))
    }

    fn is_held_up_by(&self, signal: &Self, outcome: &Arc<Outcome>) -> Option<Error> {
        if outcome.get().is_none() {
            self.ask_abroad(signal);
        }
        let lost = signal.shared.context.lost().filter(|_| !Arc::ptr_eq(&signal.shared, &self.shared));
        if outcome.get().is_none() && (lost.is_some() || signal.shared.stuck.is_any()) {
            // Nobody has looked since.
            signal.status();
        }
        let failure = outcome.get().cloned().flatten();
        failure.filter(|_| lost.is_some() || signal.shared.stuck.has(outcome))
    }

    /// Once in a while, finds out whether another device is lost, in case nobody else looks at what is on it.
    fn ask_abroad(&self, signal: &Self) {
        const SELDOM: u64 = 16;
        let context = &signal.shared.context;
        if context.lost().is_none()
            && !Arc::ptr_eq(&signal.shared, &self.shared)
            && self.looks.fetch_add(1, Ordering::Relaxed).is_multiple_of(SELDOM)
            && let Err(failure) = signal.end.is_complete()
        {
            context.error(failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ErrorKind;

    #[test]
    fn a_stream_ends_with_the_first_use_that_does() {
        let reach = Reach::default();
        let places = [(); 4].map(|()| reach.next());
        assert!(reach.check().is_ok() && reach.ends_before(places[3]).is_none());
        reach.end_at(places[2], &Error::new(ErrorKind::DeviceLost, "second"));
        reach.end_at(places[1], &Error::new(ErrorKind::DeviceLost, "first"));
        reach.end_at(places[3], &Error::new(ErrorKind::DeviceLost, "third"));
        assert!(reach.ends_before(places[0]).is_none());
        for place in &places[1..] {
            assert_eq!(reach.ends_before(*place).unwrap().message(), "first");
        }
        assert_eq!(reach.check().unwrap_err().message(), "first");
    }

    #[test]
    fn a_use_is_known_by_its_outcome() {
        let (stuck, outcome) = (Stuck::default(), Arc::<Outcome>::default());
        assert!(!stuck.is_any() && !stuck.has(&outcome));
        stuck.add(outcome.clone());
        assert!(stuck.is_any() && stuck.has(&outcome) && !stuck.has(&Arc::default()));
    }
}
