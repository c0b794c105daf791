//! Signals, the enqueues that events tell of: the last one of an event, the signals of a wait list, and
//! events that have the signal of the last enqueue which named them.
//!
//! For drivers that do not, it spreads the failure of one enqueue to those that depend on it. Each enqueue
//! has an [`EnqueueOutcome`] and the [`Dependencies`] whose results it needs. Chains of them have any
//! length, so they are settled and dropped without recursion.

use std::fmt::Debug;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use smallvec::{SmallVec, smallvec};

use super::errors::DeviceContext;
use super::errors::{self, idle_wait, pending_signal};
use crate::{CommandTimes, DeviceId, Error, Event, EventProfile, EventStatus, Result, WaitList};

/// One enqueue.
pub trait EnqueueSignal: Sized {
    /// Outcome, once that is known.
    fn outcome(&self) -> &EnqueueOutcome;

    /// Sets the outcome, if the enqueue has ended and the outcomes of all dependencies are known. Settled as
    /// soon as the outcome is known.
    fn attempt(&self) -> SettleStep<Arc<Self>>;

    /// The reason why it will fail, as far as that was known when it was enqueued.
    fn known_failure(&self) -> Option<&Error>;

    /// Status, if that can be had while a lock is held: what is known, or a poll of the driver
    /// that drops nothing that others have given.
    fn status_alone(&self) -> Option<EventStatus> {
        self.outcome().is_known().then(|| self.outcome().status())
    }

    /// Whether it is known to have ended, as [`status_alone`](Self::status_alone) finds out.
    #[inline]
    fn is_final_alone(&self) -> bool {
        self.status_alone().is_some_and(|status| status.is_final())
    }

    /// Status at this moment: asks the driver until the outcome is known.
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
    /// The errors of `enqueue` and of [`check_not_pending`](Self::check_not_pending). The event stays as it
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
    /// The errors of [`check_not_pending`](Self::check_not_pending).
    #[inline]
    pub fn open_place(&self) -> Result<MutexGuard<'_, Option<Arc<S>>>> {
        let mut last = self.0.lock();
        if is_open(&last) {
            self.settle(&mut last)?;
        }
        Ok(last)
    }

    /// Finds out whether the last signal has ended, without the lock.
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

/// A wait list as the enqueue behind it sees it.
#[derive(Debug)]
pub struct ResolvedWaitList<S> {
    /// Signals that are pending, each with whether its result is needed.
    pub pending: SmallVec<[(Arc<S>, bool); 4]>,
    /// Signals that have failed and only set the order. Work that they come after may still run.
    pub failed: SmallVec<[Arc<S>; 1]>,
    /// The failure of a dependency: nothing may run, and the enqueue fails likewise.
    pub failure: Option<Error>,
}

impl<S: EnqueueSignal> ResolvedWaitList<S> {
    /// `last` gives the last signal of an event, if the queue can wait for the event.
    ///
    /// # Errors
    /// The errors of `last`; [`InvalidWaitList`](crate::ErrorKind::InvalidWaitList) for an event without a
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

/// Outcome of one enqueue, once that is known. It is set once.
#[derive(Debug, Default)]
pub struct EnqueueOutcome(OnceLock<Option<Error>>);

impl EnqueueOutcome {
    /// Sets how the enqueue ended, unless that is known already.
    pub fn set(&self, failure: Option<Error>) {
        let _ = self.0.set(failure);
    }

    /// Returns true once the enqueue has succeeded or failed.
    pub fn is_known(&self) -> bool {
        self.0.get().is_some()
    }

    /// The reason why the enqueue failed, if that is known and it did.
    pub fn failure(&self) -> Option<&Error> {
        self.0.get()?.as_ref()
    }

    /// Pending until the outcome is known.
    pub fn status(&self) -> EventStatus {
        match self.0.get() {
            None => EventStatus::Pending,
            Some(None) => EventStatus::Complete,
            Some(Some(error)) => EventStatus::Failed(error.clone()),
        }
    }
}

/// A reference to an enqueue whose result another one needs.
pub trait Dependency: Clone {
    /// The outcome of the enqueue that it stands for.
    fn outcome(&self) -> &EnqueueOutcome;
}

/// The enqueues whose results one needs.
#[derive(Debug)]
pub struct Dependencies<D>(SmallVec<[D; 2]>);

impl<D> Default for Dependencies<D> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<D: Dependency> Dependencies<D> {
    /// Adds a dependency.
    pub fn push(&mut self, dependency: D) {
        self.0.push(dependency);
    }

    /// Returns true if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first one whose outcome is not known yet.
    pub fn first_open(&self) -> Option<D> {
        self.0.iter().find(|dependency| !dependency.outcome().is_known()).cloned()
    }

    /// The first failure that is known.
    pub fn failure(&self) -> Option<&Error> {
        self.0.iter().find_map(|dependency| dependency.outcome().failure())
    }
}

impl<D> IntoIterator for Dependencies<D> {
    type Item = D;
    type IntoIter = smallvec::IntoIter<[D; 2]>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The result of an attempt to settle an enqueue.
#[derive(Debug)]
pub enum SettleStep<D> {
    /// The outcome is known now.
    Settled,
    /// The enqueue still runs.
    Pending,
    /// The enqueue has ended. Its outcome depends on this one, which has to be settled first.
    Needs(D),
}

/// Settles an enqueue, and before it those whose results it needs. `attempt` tries to settle one of
/// them, and is called again after the one that it [needed](SettleStep::Needs). Returns whether the
/// first one is settled.
pub fn settle<D>(first: D, mut attempt: impl FnMut(&D) -> SettleStep<D>) -> bool {
    let mut open: SmallVec<[D; 4]> = smallvec![first];
    while let Some(last) = open.last() {
        match attempt(last) {
            SettleStep::Settled => drop(open.pop()),
            SettleStep::Pending => return false,
            SettleStep::Needs(other) => open.push(other),
        }
    }
    true
}

/// Drops references, and all that only they keep alive. `take` takes out the references that a
/// value holds.
pub fn release<T, I: IntoIterator<Item = Arc<T>>>(
    references: impl IntoIterator<Item = Arc<T>>,
    mut take: impl FnMut(&mut T) -> I,
) {
    let mut open: SmallVec<[Arc<T>; 4]> = references.into_iter().collect();
    while let Some(reference) = open.pop() {
        if let Some(mut value) = Arc::into_inner(reference) {
            open.extend(take(&mut value));
        }
    }
}

/// A signal whose driver can wait for it, and that may keep times.
pub trait DriverSignal: EnqueueSignal + Debug + Send + Sync + 'static {
    /// The context that its device shares.
    type Context: DeviceContext;

    /// Has the driver wait for the end of the enqueue, as far as it can. Returns how long to poll then.
    fn wait(&self, timeout: Option<Duration>) -> Option<Duration>;

    /// The times, once it is complete, if it keeps them.
    fn profile(&self) -> Result<EventProfile>;
}

/// An event. Enqueued commands do not need it, so it may be dropped before they end.
#[derive(Debug)]
pub struct SignalEvent<S: DriverSignal> {
    context: Arc<S::Context>,
    /// The signal of the last enqueue that named the event.
    pub signal: LastSignal<S>,
}

impl<S: DriverSignal> SignalEvent<S> {
    /// An event that no enqueue has named.
    pub fn new(context: &Arc<S::Context>) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::default() }
    }

    /// An event that has been signalled already.
    pub fn signalled(context: &Arc<S::Context>, signal: S) -> Self {
        Self { context: Arc::clone(context), signal: LastSignal::new(signal) }
    }

    /// The event behind `event`, if it is one of this device.
    pub fn of<'a>(event: &'a Arc<dyn Event>, device: &S::Context) -> Result<&'a Self> {
        let event = event.downcast_ref::<Self>();
        event.filter(|event| event.device() == device.id()).ok_or_else(|| errors::foreign("event"))
    }

    /// The last signal of an event in a wait list, if it is one of a device that `can_wait` allows.
    pub fn awaited(event: &dyn Event, can_wait: impl FnOnce(&S::Context) -> bool) -> Result<&LastSignal<S>> {
        let event = event.downcast_ref::<Self>().filter(|event| can_wait(&event.context));
        Ok(&event.ok_or_else(errors::foreign_wait)?.signal)
    }
}

impl<S: DriverSignal> Event for SignalEvent<S> {
    fn device(&self) -> DeviceId {
        self.context.id()
    }

    fn status(&self) -> EventStatus {
        self.signal.status()
    }

    fn is_idle(&self) -> bool {
        self.signal.is_idle()
    }

    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        let Some(signal) = self.signal.get() else { return EventStatus::Idle };
        // Before the first poll: on some drivers a thread that blocks does the work itself, and a poll
        // hands it to other threads.
        let timeout = signal.wait(timeout);
        poll_until_final(timeout, || signal.status())
    }

    fn profile(&self) -> Result<EventProfile> {
        self.signal.complete().ok_or_else(errors::times_before_completion)?.profile()
    }
}

/// Polls before the first sleep.
const POLLS_BEFORE_SLEEP: u32 = 256;

/// The first sleep. Each later one is twice as long as the one before.
const SHORTEST_SLEEP: Duration = Duration::from_micros(10);

const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Calls `poll` until it gives a status that is not pending, and returns that, or until `timeout`
/// has passed, and returns [`Pending`](EventStatus::Pending).
pub fn poll_until_final(timeout: Option<Duration>, mut poll: impl FnMut() -> EventStatus) -> EventStatus {
    // A deadline too far away to be represented is no limit.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let (mut polls, mut sleep) = (0, SHORTEST_SLEEP);
    loop {
        let status = poll();
        if !matches!(status, EventStatus::Pending) {
            return status;
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return EventStatus::Pending;
        }
        if polls < POLLS_BEFORE_SLEEP {
            polls += 1;
            thread::yield_now();
        } else {
            thread::sleep(left.map_or(sleep, |left| sleep.min(left)));
            sleep = (2 * sleep).min(LONGEST_SLEEP);
        }
    }
}

/// The times of the commands of an enqueue, from those of their operations.
#[derive(Debug)]
pub struct JoinedTimes(Vec<Option<CommandTimes>>);

impl JoinedTimes {
    /// None are known yet, of so many commands.
    pub fn new(commands: usize) -> Self {
        Self(vec![None; commands])
    }

    /// Adds those of one operation of a command.
    pub fn add(&mut self, command: u32, times: CommandTimes) {
        if let Some(known) = self.0.get_mut(command as usize) {
            *known = Some(known.map_or(times, |known| join(known, times)));
        }
    }

    /// The times of each command. One without any times ends when the enqueue starts.
    pub fn finish(self, start: u64) -> Vec<CommandTimes> {
        let nothing = CommandTimes::new(start, start);
        self.0.into_iter().map(|times| times.unwrap_or(nothing)).collect()
    }
}

/// Joins two times: from the earlier start to the later end.
pub fn join(a: CommandTimes, b: CommandTimes) -> CommandTimes {
    CommandTimes::new(a.start.min(b.start), a.end.max(b.end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

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
        ResolvedWaitList::of(wait, |event| Ok(&event.downcast_ref::<FakeEvent>().unwrap().0))
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

    #[derive(Default)]
    struct Enqueue {
        outcome: EnqueueOutcome,
        needs: Mutex<Dependencies<Arc<Enqueue>>>,
        fails: bool,
    }

    impl Dependency for Arc<Enqueue> {
        fn outcome(&self) -> &EnqueueOutcome {
            &self.outcome
        }
    }

    impl Drop for Enqueue {
        fn drop(&mut self) {
            release(std::mem::take(self.needs.get_mut()), |other| std::mem::take(other.needs.get_mut()));
        }
    }

    fn attempt(enqueue: &Arc<Enqueue>) -> SettleStep<Arc<Enqueue>> {
        let needs = enqueue.needs.lock();
        match needs.first_open() {
            Some(open) => SettleStep::Needs(open),
            None => {
                let own = || enqueue.fails.then(|| Error::new(ErrorKind::Driver, "broken"));
                enqueue.outcome.set(needs.failure().cloned().or_else(own));
                SettleStep::Settled
            }
        }
    }

    /// Each depends on the one before; the first may fail.
    fn chain(fails: bool) -> Vec<Arc<Enqueue>> {
        let mut first = Enqueue::default();
        first.fails = fails;
        let mut all = vec![Arc::new(first)];
        for index in 0..if cfg!(miri) { 300 } else { 100_000 } {
            let next = Enqueue::default();
            next.needs.lock().push(Arc::clone(&all[index]));
            all.push(Arc::new(next));
        }
        all
    }

    #[test]
    fn long_chains_settle_and_drop_without_recursion() {
        for fails in [false, true] {
            let mut all = chain(fails);
            let last = all.pop().unwrap();
            assert!(matches!(last.outcome.status(), EventStatus::Pending));
            assert!(settle(Arc::clone(&last), attempt));
            match last.outcome.status() {
                EventStatus::Failed(error) => assert!(fails && error.message() == "broken"),
                status => assert!(!fails && matches!(status, EventStatus::Complete)),
            }
            assert_eq!(all[0].outcome.failure().is_some(), fails);
            drop((all, last));
        }
    }

    #[test]
    fn a_pending_dependency_leaves_the_chain_pending() {
        let all = chain(false);
        let last = Arc::clone(&all[100]);
        let first = &all[0];
        let pending = |enqueue: &Arc<Enqueue>| match Arc::ptr_eq(enqueue, first) {
            true => SettleStep::Pending,
            false => attempt(enqueue),
        };
        assert!(!settle(last, pending));
        assert!(!all[100].outcome.is_known());
    }

    #[test]
    fn the_first_outcome_stays() {
        let outcome = EnqueueOutcome::default();
        outcome.set(None);
        outcome.set(Some(Error::new(ErrorKind::Driver, "late")));
        assert!(matches!(outcome.status(), EventStatus::Complete));
        assert!(outcome.is_known() && outcome.failure().is_none());
    }

    #[test]
    fn polls_until_the_status_is_final() {
        for needed in [1, 10, POLLS_BEFORE_SLEEP + 3] {
            let mut polls = 0;
            let status = poll_until_final(None, || {
                polls += 1;
                if polls < needed { EventStatus::Pending } else { EventStatus::Complete }
            });
            assert!(matches!(status, EventStatus::Complete));
            assert_eq!(polls, needed);
        }
    }

    #[test]
    fn gives_up_after_the_timeout_and_not_before() {
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            let start = Instant::now();
            let mut polls = 0;
            let status = poll_until_final(Some(timeout), || {
                polls += 1;
                EventStatus::Pending
            });
            assert!(matches!(status, EventStatus::Pending));
            assert!(start.elapsed() >= timeout && polls > 0);
        }
        assert!(matches!(
            poll_until_final(Some(Duration::MAX), || EventStatus::Complete),
            EventStatus::Complete
        ));
    }

    #[test]
    fn a_command_lasts_from_its_first_operation_to_its_last() {
        let mut times = JoinedTimes::new(2);
        times.add(1, CommandTimes::new(5, 7));
        times.add(1, CommandTimes::new(2, 6));
        times.add(9, CommandTimes::new(0, 9));
        assert_eq!(times.finish(1), [CommandTimes::new(1, 1), CommandTimes::new(2, 7)]);
    }
}
