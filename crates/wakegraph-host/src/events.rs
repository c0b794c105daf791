//! Events: each is the completion of one enqueue, the state shared by the event, the worker that ends the
//! enqueue and the threads and runs that wait for it.
//!
//! All synchronisation of events is in [`HostCompletion`], which knows nothing of devices: `D` is a dependent
//! that has to be released.

use std::any::Any;
use std::fmt::{self, Debug};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, MappedMutexGuard, Mutex, MutexGuard};
use smallvec::SmallVec;
use wakegraph_hal::support::errors;
use wakegraph_hal::util::OnDemand;
use wakegraph_hal::util::deferred_drop::Failure;
use wakegraph_hal::{DeviceId, Event, EventProfile, EventStatus, Result};

/// The completion of host work on a device. What is in flight holds the event, so its handle may be dropped.
/// `D` is what its completion releases.
#[derive(Debug)]
pub(super) struct HostEvent<D> {
    device: DeviceId,
    completion: HostCompletion<D>,
}

impl<D: Send + 'static> HostEvent<D> {
    pub(super) fn new(device: DeviceId) -> Self {
        Self { device, completion: HostCompletion::new() }
    }

    /// The event behind a handle, if it is of this backend.
    pub(super) fn of(handle: &Arc<dyn Event>) -> Option<Arc<Self>> {
        let event: Arc<dyn Any + Send + Sync> = handle.clone();
        event.downcast().ok()
    }
}

impl<D> Deref for HostEvent<D> {
    type Target = HostCompletion<D>;

    fn deref(&self) -> &HostCompletion<D> {
        &self.completion
    }
}

impl<D: Debug + Send + 'static> Event for HostEvent<D> {
    fn device(&self) -> DeviceId {
        self.device
    }

    fn status(&self) -> EventStatus {
        self.completion.status()
    }

    /// Returns at once when the event is idle: nothing has been enqueued that could make it final.
    fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        self.completion.wait(timeout)
    }

    fn stop(&self) {
        self.completion.stop();
    }

    fn percent(&self) -> Option<u8> {
        Some(self.completion.percent.load(Ordering::Relaxed)).filter(|&percent| percent != UNKNOWN)
    }

    fn profile(&self) -> Result<EventProfile> {
        self.completion.profile()
    }
}

/// Nothing that signals the event has been enqueued.
const IDLE: u8 = 0;
/// Enqueued, without dependents and blocked threads: only polls read it.
const PENDING: u8 = 1;
/// Enqueued, with dependents or blocked threads: completing it has to take the lock.
const WATCHED: u8 = 2;
/// Done, without times.
const COMPLETE: u8 = 3;
/// Done, with times.
const TIMED: u8 = 4;
/// Failed; the error is behind the lock.
const FAILED: u8 = 5;

/// In the place of a percentage: no kernel with several blocks runs.
const UNKNOWN: u8 = u8::MAX;

/// Idle, pending, complete or failed; reusable.
///
/// The usual life, from pending to complete with only a notification at the end, is one atomic
/// operation at each end. The first dependent or blocked thread marks it watched, under the lock,
/// and from then on completing takes the lock too.
pub(super) struct HostCompletion<D> {
    phase: AtomicU8,
    /// Whether loops are to stop.
    stopped: AtomicBool,
    /// Part that has run of a kernel that runs in blocks.
    percent: AtomicU8,
    /// Made when the lock is first taken, which most events never do, and kept.
    inner: Mutex<OnDemand<HostCompletionInner<D>>>,
    changed: Condvar,
}

struct HostCompletionInner<D> {
    /// How often it was completed while watched, so that a later use of the event does not hold a
    /// blocked thread.
    generation: u64,
    /// Threads inside `wait`: without any, completing makes no system call.
    blocked: usize,
    failure: Option<Failure>,
    dependents: SmallVec<[D; 2]>,
    profile: EventProfile,
}

/// Result of [`HostCompletion::watch`].
#[derive(Debug)]
pub(super) enum Watched {
    /// The dependent will be released by the completion.
    Pending,
    /// Nothing is left to wait for, or nothing yet. With the failure, if there was one.
    Final(Option<Failure>),
}

impl<D> HostCompletion<D> {
    pub(super) fn new() -> Self {
        Self {
            phase: AtomicU8::new(IDLE),
            stopped: AtomicBool::new(false),
            percent: AtomicU8::new(UNKNOWN),
            inner: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Becomes pending.
    ///
    /// # Errors
    /// [`InvalidOperation`](wakegraph_hal::ErrorKind::InvalidOperation) when it is already.
    pub(super) fn begin(&self) -> Result<()> {
        let is_final = |phase| (phase != PENDING && phase != WATCHED).then_some(PENDING);
        let previous = self.phase.fetch_update(Ordering::AcqRel, Ordering::Relaxed, is_final);
        if previous.is_ok() && self.is_stopped() {
            self.stopped.store(false, Ordering::Relaxed);
        }
        if previous.is_ok() && self.percent.load(Ordering::Relaxed) != UNKNOWN {
            self.percent.store(UNKNOWN, Ordering::Relaxed);
        }
        match previous {
            Ok(FAILED) => {
                let mut inner = self.lock();
                // A thread that is still on its way out of `wait` reads it.
                if inner.blocked == 0 {
                    inner.failure = None;
                }
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) => Err(errors::pending_signal()),
        }
    }

    /// The loops of what is enqueued are to stop.
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn set_percent(&self, percent: u8) {
        self.percent.store(percent, Ordering::Relaxed);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Writes the times, while pending. The vector for the commands' times is the one used last time.
    pub(super) fn set_profile(&self, write: impl FnOnce(&mut EventProfile)) {
        write(&mut self.lock().profile);
    }

    /// Becomes final; `timed` if its times were written. Returns the dependents, which the caller
    /// releases with no lock held.
    pub(super) fn complete(&self, outcome: Result<(), &Failure>, timed: bool) -> SmallVec<[D; 2]> {
        let phase = match outcome {
            Ok(()) if timed => TIMED,
            Ok(()) => COMPLETE,
            Err(_) => FAILED,
        };
        // Release, here and below: a thread that reads the phase without the lock sees the commands' writes.
        let publish = || self.phase.compare_exchange(PENDING, phase, Ordering::Release, Ordering::Relaxed);
        // A failure needs the lock in any case: its error has to be there before the phase shows it.
        if outcome.is_ok() && publish().is_ok() {
            return SmallVec::new();
        }
        let mut inner = self.lock();
        inner.failure = outcome.err().cloned();
        inner.generation += 1;
        self.phase.store(phase, Ordering::Release);
        let dependents = std::mem::take(&mut inner.dependents);
        let blocked = inner.blocked > 0;
        drop(inner);
        if blocked {
            self.changed.notify_all();
        }
        dependents
    }

    /// Adds a dependent while pending.
    pub(super) fn watch(&self, dependent: impl FnOnce() -> D) -> Watched {
        let mut inner = self.lock();
        match self.mark_watched() {
            Ok(()) => {
                inner.dependents.push(dependent());
                Watched::Pending
            }
            Err(phase) => Watched::Final(inner.failure.clone().filter(|_| phase == FAILED)),
        }
    }

    pub(super) fn status(&self) -> EventStatus {
        match self.phase.load(Ordering::Acquire) {
            IDLE => EventStatus::Idle,
            PENDING | WATCHED => EventStatus::Pending,
            FAILED => {
                let inner = self.lock();
                inner.status(self.phase.load(Ordering::Acquire))
            }
            _ => EventStatus::Complete,
        }
    }

    /// Blocks while this use of the event is pending, at most for `timeout`. Where the event has
    /// been signalled again meanwhile, the status is how this use ended, or the last watched use since.
    pub(super) fn wait(&self, timeout: Option<Duration>) -> EventStatus {
        // A time too far away to be represented is no limit.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut guard = self.inner.lock();
        let inner = guard.get_or_make();
        let generation = inner.generation;
        inner.blocked += 1;
        let status = loop {
            let inner = guard.get_or_make();
            // The phase may be of a later use by now.
            if inner.generation != generation {
                break inner.outcome();
            }
            if let Err(phase) = self.mark_watched() {
                break inner.status(phase);
            }
            match deadline {
                None => self.changed.wait(&mut guard),
                Some(deadline) => {
                    let timed_out = self.changed.wait_until(&mut guard, deadline).timed_out();
                    if timed_out && guard.get_or_make().generation == generation {
                        break EventStatus::Pending;
                    }
                }
            }
        };
        guard.get_or_make().blocked -= 1;
        status
    }

    /// # Errors
    /// [`InvalidOperation`](wakegraph_hal::ErrorKind::InvalidOperation) when it is not complete or has no
    /// times.
    pub(super) fn profile(&self) -> Result<EventProfile> {
        let inner = self.lock();
        match self.phase.load(Ordering::Acquire) {
            TIMED => Ok(inner.profile.clone()),
            COMPLETE => Err(errors::no_times()),
            _ => Err(errors::times_before_completion()),
        }
    }

    fn lock(&self) -> MappedMutexGuard<'_, HostCompletionInner<D>> {
        MutexGuard::map(self.inner.lock(), OnDemand::get_or_make)
    }

    /// With the lock held: makes sure, if it is pending, that it cannot become final without the lock.
    ///
    /// # Errors
    /// The phase, when it is not pending.
    fn mark_watched(&self) -> Result<(), u8> {
        match self.phase.compare_exchange(PENDING, WATCHED, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) | Err(WATCHED) => Ok(()),
            Err(phase) => Err(phase),
        }
    }
}

impl<D> Default for HostCompletionInner<D> {
    fn default() -> Self {
        Self {
            generation: 0,
            blocked: 0,
            failure: None,
            dependents: SmallVec::new(),
            profile: EventProfile::default(),
        }
    }
}

impl<D> HostCompletionInner<D> {
    /// Status that this phase, read with the lock held, stands for.
    fn status(&self, phase: u8) -> EventStatus {
        match (phase, &self.failure) {
            (IDLE, _) => EventStatus::Idle,
            (COMPLETE | TIMED, _) => EventStatus::Complete,
            (FAILED, Some(failure)) => EventStatus::Failed(failure.error()),
            _ => EventStatus::Pending,
        }
    }

    /// How the last use that was watched ended.
    fn outcome(&self) -> EventStatus {
        self.failure.as_ref().map_or(EventStatus::Complete, |failure| EventStatus::Failed(failure.error()))
    }
}

impl<D> Debug for HostCompletion<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostCompletion").field(&self.status()).finish()
    }
}

/// Nanoseconds since the first call, on one time line for all host devices.
pub(super) fn now() -> u64 {
    clock_at(Instant::now())
}

/// Reading of that clock at another moment.
pub(super) fn clock_at(moment: Instant) -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(moment.saturating_duration_since(*ORIGIN).as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use wakegraph_hal::{Error, ErrorKind};

    use super::*;

    #[test]
    fn lives_from_idle_to_final_and_again() {
        let completion = HostCompletion::<u32>::new();
        assert!(matches!(completion.status(), EventStatus::Idle));
        for _ in 0..2 {
            completion.begin().unwrap();
            assert_eq!(completion.begin().unwrap_err().kind(), ErrorKind::InvalidOperation);
            assert!(matches!(completion.watch(|| 7), Watched::Pending));
            assert!(completion.profile().is_err());
            assert_eq!(completion.complete(Ok(()), false).as_slice(), [7]);
            assert!(matches!(completion.status(), EventStatus::Complete));
            assert!(matches!(completion.watch(|| 8), Watched::Final(None)));

            completion.begin().unwrap();
            let failure = Failure::new(Error::new(ErrorKind::Driver, "broken"));
            assert!(completion.complete(Err(&failure), false).is_empty());
            assert!(matches!(completion.status(), EventStatus::Failed(e) if e.message() == "broken"));
            assert!(matches!(completion.watch(|| 9), Watched::Final(Some(_))));
        }
    }

    #[test]
    fn has_times_only_if_they_were_written_for_this_use() {
        let completion = HostCompletion::<()>::new();
        for timed in [true, false, true] {
            completion.begin().unwrap();
            if timed {
                completion.set_profile(|profile| profile.end = 5);
            }
            completion.complete(Ok(()), timed);
            assert_eq!(completion.profile().is_ok_and(|profile| profile.end == 5), timed);
        }
    }

    #[test]
    fn a_blocked_thread_is_not_held_by_the_next_use() {
        let completion = HostCompletion::<()>::new();
        assert!(matches!(completion.wait(None), EventStatus::Idle));
        completion.begin().unwrap();
        assert!(matches!(completion.wait(Some(Duration::ZERO)), EventStatus::Pending));
        for timeout in [None, Some(Duration::MAX), Some(Duration::from_secs(3600))] {
            for fails in [false, true] {
                std::thread::scope(|scope| {
                    let blocked = scope.spawn(|| completion.wait(timeout));
                    while completion.lock().blocked == 0 {
                        std::thread::yield_now();
                    }
                    let failure = Failure::new(Error::new(ErrorKind::Driver, "broken"));
                    completion.complete(if fails { Err(&failure) } else { Ok(()) }, false);
                    completion.begin().unwrap();
                    // Returns although the event is pending again, and tells how the use it waited for ended.
                    match blocked.join().unwrap() {
                        EventStatus::Complete => assert!(!fails),
                        EventStatus::Failed(error) => assert!(fails && error.message() == "broken"),
                        other => panic!("{other:?}"),
                    }
                });
            }
        }
        completion.complete(Ok(()), false);
    }

    #[test]
    fn a_wait_without_limit_never_finds_it_pending() {
        let completion = HostCompletion::<()>::new();
        completion.begin().unwrap();
        std::thread::scope(|scope| {
            let signalling = scope.spawn(|| {
                for _ in 0..if cfg!(miri) { 100 } else { 20_000 } {
                    completion.complete(Ok(()), false);
                    completion.begin().unwrap();
                }
                completion.complete(Ok(()), false);
            });
            while !signalling.is_finished() {
                assert!(matches!(completion.wait(None), EventStatus::Complete));
            }
        });
    }

    #[test]
    fn wakes_all_that_block() {
        let completion = HostCompletion::<()>::new();
        completion.begin().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert!(matches!(completion.wait(None), EventStatus::Complete)));
            }
            completion.complete(Ok(()), false);
        });
    }
}
