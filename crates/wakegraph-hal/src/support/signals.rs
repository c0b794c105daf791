//! Signals, the enqueues that events tell of: the last one of an event, and those of a wait list.

use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;

use super::dependency::{Dependency, EnqueueOutcome, SettleStep, settle};
use super::refusal::{idle_wait, pending_signal};
use crate::{Error, Event, EventStatus, Result, WaitList};

/// One enqueue.
pub trait EnqueueSignal: Sized {
    /// How it ended, once that is known.
    fn outcome(&self) -> &EnqueueOutcome;

    /// Sets the outcome, if the enqueue is over and the outcomes of all dependencies are known. Settled as
    /// soon as the outcome is known.
    fn attempt(&self) -> SettleStep<Arc<Self>>;

    /// Why it will fail, as far as that was known when it was enqueued.
    fn known_failure(&self) -> Option<&Error>;

    /// Its status, if that can be had while a lock is held: what is known, or a poll of the driver
    /// that drops nothing that others have given.
    fn status_alone(&self) -> Option<EventStatus> {
        self.outcome().is_known().then(|| self.outcome().status())
    }

    /// Whether it is known to be over, as [`status_alone`](Self::status_alone) finds out.
    #[inline]
    fn is_final_alone(&self) -> bool {
        self.status_alone().is_some_and(|status| status.is_final())
    }

    /// Its status at this moment: asks the driver until the outcome is known.
    fn status(&self) -> EventStatus {
        loop {
            // This signal is not part of the list that `settle` keeps, so that a poll counts no
            // references.
            match self.attempt() {
                SettleStep::Settled => return self.outcome().status(),
                SettleStep::Pending => return EventStatus::Pending,
                SettleStep::Needs(needed) => {
                    if !settle(needed, |signal| signal.attempt()) {
                        return EventStatus::Pending;
                    }
                }
            }
        }
    }

    /// Returns true once the status cannot change any more.
    fn is_final(&self) -> bool {
        self.status().is_final()
    }
}

impl<S: EnqueueSignal> Dependency for Arc<S> {
    fn outcome(&self) -> &EnqueueOutcome {
        EnqueueSignal::outcome(&**self)
    }
}

/// The last signal of an event.
#[derive(Debug)]
pub struct LastSignal<S>(Mutex<Option<Arc<S>>>);

impl<S> Default for LastSignal<S> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<S: EnqueueSignal> LastSignal<S> {
    /// The one of an event that has been signalled already.
    pub fn new(signal: S) -> Self {
        Self(Mutex::new(Some(Arc::new(signal))))
    }

    /// The signal that a wait for the event means now.
    pub fn get(&self) -> Option<Arc<S>> {
        self.0.lock().clone()
    }

    /// Returns true if no enqueue is in flight.
    pub fn is_idle(&self) -> bool {
        self.0.lock().is_none()
    }

    /// The status of the last enqueue.
    #[inline]
    pub fn status(&self) -> EventStatus {
        let last = self.0.lock();
        let Some(signal) = &*last else { return EventStatus::Idle };
        if let Some(status) = signal.status_alone() {
            return status;
        }
        let signal = Arc::clone(signal);
        drop(last);
        // Without the lock: the poll may drop what users have given.
        signal.status()
    }

    /// The signal, if it is complete.
    pub fn complete(&self) -> Option<Arc<S>> {
        self.get().filter(|signal| matches!(signal.status(), EventStatus::Complete))
    }

    /// Checks that the event can be signalled again.
    ///
    /// # Errors
    /// [`InvalidOperation`](crate::ErrorKind::InvalidOperation) while the last signal is pending.
    pub fn check_not_pending(&self) -> Result<()> {
        match self.status() {
            EventStatus::Pending => Err(pending_signal()),
            _ => Ok(()),
        }
    }

    /// Gives the event the signal of what `enqueue` enqueues.
    ///
    /// # Errors
    /// Those of `enqueue` and of [`check_not_pending`](Self::check_not_pending). The event stays as it
    /// was then.
    pub fn signal_by(&self, enqueue: impl FnOnce() -> Result<S>) -> Result<Arc<S>> {
        let mut last = self.open_place()?;
        let new = enqueue()?;
        // The last signal is used again, unless something still refers to it.
        if let Some(last) = last.as_mut()
            && let Some(place) = Arc::get_mut(last)
        {
            *place = new;
            return Ok(Arc::clone(last));
        }
        Ok(Arc::clone(last.insert(Arc::new(new))))
    }

    /// The last signal, which is not pending. The event stays locked meanwhile.
    ///
    /// # Errors
    /// Those of [`check_not_pending`](Self::check_not_pending).
    #[inline]
    pub fn open_place(&self) -> Result<MutexGuard<'_, Option<Arc<S>>>> {
        let mut last = self.0.lock();
        if is_open(&last) {
            self.settle(&mut last)?;
        }
        Ok(last)
    }

    /// Finds out whether the last signal is over, without the lock.
    #[cold]
    fn settle(&self, last: &mut MutexGuard<'_, Option<Arc<S>>>) -> Result<()> {
        MutexGuard::unlocked(last, || self.check_not_pending())?;
        // Another thread may have signalled it since.
        if is_open(last) { Err(pending_signal()) } else { Ok(()) }
    }
}

/// Whether the last signal of an event may be pending.
fn is_open<S: EnqueueSignal>(last: &Option<Arc<S>>) -> bool {
    last.as_ref().is_some_and(|last| !last.is_final_alone())
}

/// What a wait list means for the enqueue behind it.
#[derive(Debug)]
pub struct ResolvedWaitList<S> {
    /// Those that are pending, each with whether its result is needed.
    pub pending: SmallVec<[(Arc<S>, bool); 4]>,
    /// Those that have failed and only set the order. What they come after may not be over.
    pub failed: SmallVec<[Arc<S>; 1]>,
    /// The failure of a dependency: nothing may run, and the enqueue fails likewise.
    pub failure: Option<Error>,
}

impl<S: EnqueueSignal> ResolvedWaitList<S> {
    /// `last` gives the last signal of an event, if the queue can wait for the event.
    ///
    /// # Errors
    /// Those of `last`; [`InvalidWaitList`](crate::ErrorKind::InvalidWaitList) for an event without a
    /// signal.
    pub fn of<'a>(
        wait: WaitList<'a>,
        last: impl Fn(&'a dyn Event) -> Result<&'a LastSignal<S>>,
    ) -> Result<Self>
    where
        S: 'a,
    {
        let mut resolved = Self { pending: SmallVec::new(), failed: SmallVec::new(), failure: None };
        for (index, event) in wait.events().enumerate() {
            let is_needed = index < wait.dependencies.len();
            let signal = last(event)?.get().ok_or_else(idle_wait)?;
            // A signal that is going to fail may still be pending because of earlier work on its queue.
            if let Some(error) = signal.known_failure().filter(|_| is_needed) {
                resolved.failure.get_or_insert_with(|| error.clone());
            }
            match signal.status() {
                EventStatus::Failed(error) if is_needed => drop(resolved.failure.get_or_insert(error)),
                EventStatus::Failed(_) => resolved.failed.push(signal),
                EventStatus::Pending => resolved.pending.push((signal, is_needed)),
                _ => {}
            }
        }
        Ok(resolved)
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::time::Duration;

    use super::*;
    use crate::{DeviceId, ErrorKind, EventProfile};

    #[derive(Debug, Default)]
    struct FakeSignal {
        outcome: EnqueueOutcome,
        known_failure: Option<Error>,
    }

    impl EnqueueSignal for FakeSignal {
        fn outcome(&self) -> &EnqueueOutcome {
            &self.outcome
        }

        fn attempt(&self) -> SettleStep<Arc<Self>> {
            if self.outcome.is_known() { SettleStep::Settled } else { SettleStep::Pending }
        }

        fn known_failure(&self) -> Option<&Error> {
            self.known_failure.as_ref()
        }
    }

    #[derive(Debug, Default)]
    struct FakeEvent(LastSignal<FakeSignal>);

    impl Event for FakeEvent {
        fn as_any(&self) -> &dyn Any {
            self
        }

        fn device(&self) -> DeviceId {
            DeviceId::from_raw(0)
        }

        fn status(&self) -> EventStatus {
            self.0.status()
        }

        fn wait(&self, _: Option<Duration>) -> EventStatus {
            self.0.status()
        }

        fn profile(&self) -> Result<EventProfile> {
            Err(broken())
        }
    }

    fn broken() -> Error {
        Error::new(ErrorKind::Driver, "broken")
    }

    fn resolved(wait: WaitList<'_>) -> Result<ResolvedWaitList<FakeSignal>> {
        ResolvedWaitList::of(wait, |event| Ok(&event.as_any().downcast_ref::<FakeEvent>().unwrap().0))
    }

    #[test]
    fn an_event_is_signalled_again_once_its_last_signal_is_over() {
        let event = LastSignal::default();
        assert!(event.is_idle() && matches!(event.status(), EventStatus::Idle));
        let first = event.signal_by(|| Ok(FakeSignal::default())).unwrap();
        let again = event.signal_by(|| panic!("the event is pending")).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::InvalidOperation);
        first.outcome.set(None);
        assert!(event.complete().is_some());
        assert_eq!(event.signal_by(|| Err(broken())).unwrap_err().message(), "broken");
        assert!(event.complete().is_some(), "a refused enqueue leaves the event as it was");
        drop(first);
        let address = Arc::as_ptr(&event.get().unwrap());
        let second = event.signal_by(|| Ok(FakeSignal::default())).unwrap();
        assert_eq!(Arc::as_ptr(&second), address, "nothing referred to the first signal");
    }

    #[test]
    fn an_enqueue_inherits_failures_of_what_it_needs() {
        let failed = FakeEvent::default();
        let signal = failed.0.signal_by(|| Ok(FakeSignal::default())).unwrap();
        signal.outcome.set(Some(broken()));
        assert!(resolved(WaitList::order(&[&failed])).unwrap().failure.is_none());
        let needed = resolved(WaitList::dependencies(&[&failed])).unwrap();
        assert_eq!(needed.failure.unwrap().message(), "broken");
        assert!(needed.pending.is_empty());
        let failing = FakeEvent::default();
        let known_failure = Some(broken());
        failing.0.signal_by(|| Ok(FakeSignal { known_failure, ..FakeSignal::default() })).unwrap();
        let needed = resolved(WaitList::dependencies(&[&failing])).unwrap();
        assert!(needed.failure.is_some() && needed.pending[0].1, "it is still pending");
        let idle = FakeEvent::default();
        assert_eq!(resolved(WaitList::order(&[&idle])).unwrap_err().kind(), ErrorKind::InvalidWaitList);
    }
}
