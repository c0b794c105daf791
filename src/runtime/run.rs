//! One run of an executable: from `submit` until the last partition is final.

use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::clock;
use super::device::Device;
use super::drive::{Driver, Ready};
use super::executable::Shared;
use super::latch::Latch;
use super::outline::Outline;
use super::profile::Profile;
use super::reactor::Seen;
use super::reaper::Elsewhere;
use crate::hal::{self, EventStatus};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use crate::types::{Error, ErrorKind, Result};

/// One run. While in flight it owns the executable, and with it all that a device may touch; whoever will report a
/// completion (a device, the reactor, a task) holds a reference to it.
pub(crate) struct Run {
    /// Set when every partition is final.
    pub(crate) done: Latch,
    /// Set by `cancel`: partitions that have not started never will.
    cancelled: AtomicBool,
    /// Whether there is a failure: without one, the result is read without a lock.
    failed: AtomicBool,
    /// Whether every partition has been enqueued on a device, so that other devices can wait for `tails` themselves.
    enqueued: AtomicBool,
    /// The task that waits to start the run, if there is one.
    starter: AtomicWaker,
    unfinished: AtomicU32,
    /// Tasks of this run that the host runs or has been handed: while there are any, spinning would keep them waiting.
    host_tasks: AtomicU32,
    /// Nanoseconds that the partition enqueued last is expected to take, 0 if that is not known.
    soonest: AtomicU64,
    /// How a submission's spin went: one of the `SPIN` constants.
    spin: AtomicU8,
    /// Whether partitions are timed, for predictions.
    timed: bool,
    /// Whether a device does not notify, so that whoever wants to know has to look.
    polled: bool,
    /// Whether a submission is going to look for the end by itself, at first.
    looked_after: AtomicBool,
    /// Before when it cannot be over, by what it takes among as many others: not worth a look.
    first_look: AtomicU64,
    /// Until when the end is near enough to be looked for without a pause, 0 if it is not.
    near_until: AtomicU64,
    /// Runs in flight on the device, this one included, where that has to be polled.
    in_flight: Option<Arc<AtomicU32>>,
    slots: Box<[Slot]>,
    inner: Mutex<Inner>,
}

const SPIN_NONE: u8 = 0;
const SPIN_FOUND: u8 = 1;
const SPIN_IN_VAIN: u8 = 2;

#[derive(Default)]
struct Inner {
    owner: Option<Arc<Shared>>,
    /// How partitions that need the host get started. Refers back to the run, so it goes when the run is over.
    driver: Option<Driver>,
    /// When it was submitted, for the profile.
    submitted: Option<u64>,
    /// Runs whose results the devices wait for, until this one is over.
    depends_on: SmallVec<[Arc<Run>; 1]>,
    failure: Option<Error>,
    profile: Option<Profile>,
    host_times: Vec<(usize, u64, u64)>,
}

/// One partition of the run.
struct Slot {
    state: AtomicU8,
    /// Predecessors that have to be waited for on the host, and one more until everything that devices can wait for
    /// themselves has been enqueued.
    waiting_for: AtomicU32,
    event: Option<Arc<dyn hal::Event>>,
    /// When it was enqueued, 0 if nobody wants to know how long it takes.
    enqueued: AtomicU64,
    /// How long it took, 0 if that is not known.
    took: AtomicU64,
    /// A first look found it over: the time until then says little about the time it took.
    overslept: AtomicBool,
    /// What the reactor has just seen of it: one of the `ASKED` constants.
    asked: AtomicU8,
}

const ASKED_NOT: u8 = 0;
const ASKED_PENDING: u8 = 1;
const ASKED_FINAL: u8 = 2;

/// Not handed to a device or task yet. The event, reused from an earlier run, may still read complete.
const WAITING: u8 = 0;
/// On a device: the event's status is this run's.
const ENQUEUED: u8 = 1;
const SUCCEEDED: u8 = 2;
const FAILED: u8 = 3;

/// What to do with a partition whose predecessors are final.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Go {
    /// Start.
    Start,
    /// A predecessor failed: do not start.
    Skip,
    /// The run was cancelled: do not start.
    Cancel,
}

impl Run {
    pub(crate) fn new(shared: &Shared) -> Result<Self> {
        let event = hal::EventDesc { profiling: shared.profiling };
        let slots = shared.partitions.iter().map(|partition| {
            Ok(Slot {
                state: AtomicU8::new(WAITING),
                waiting_for: AtomicU32::new(0),
                event: partition.device().map(|device| device.hal().create_event(&event)).transpose()?,
                enqueued: AtomicU64::new(0),
                took: AtomicU64::new(0),
                overslept: AtomicBool::new(false),
                asked: AtomicU8::new(ASKED_NOT),
            })
        });
        Ok(Self {
            done: Latch::new(),
            cancelled: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            enqueued: AtomicBool::new(false),
            starter: AtomicWaker::new(),
            unfinished: AtomicU32::new(0),
            host_tasks: AtomicU32::new(0),
            soonest: AtomicU64::new(0),
            spin: AtomicU8::new(SPIN_NONE),
            timed: false,
            polled: shared.polled,
            looked_after: AtomicBool::new(false),
            first_look: AtomicU64::new(0),
            near_until: AtomicU64::new(0),
            in_flight: shared.in_flight(),
            slots: slots.collect::<Result<_>>()?,
            inner: Mutex::default(),
        })
    }

    /// A run that failed before it began.
    pub(crate) fn failed(error: Error) -> Self {
        let run = Self {
            done: Latch::new(),
            cancelled: AtomicBool::new(false),
            failed: AtomicBool::new(true),
            enqueued: AtomicBool::new(false),
            starter: AtomicWaker::new(),
            unfinished: AtomicU32::new(0),
            host_tasks: AtomicU32::new(0),
            soonest: AtomicU64::new(0),
            spin: AtomicU8::new(SPIN_NONE),
            timed: false,
            polled: false,
            looked_after: AtomicBool::new(false),
            first_look: AtomicU64::new(0),
            near_until: AtomicU64::new(0),
            in_flight: None,
            slots: Box::default(),
            inner: Mutex::new(Inner { failure: Some(error), ..Inner::default() }),
        };
        run.done.set();
        run
    }

    /// Makes a finished run, or a new one, ready to run. The exclusive reference proves that nobody looks at it.
    pub(crate) fn reset(&mut self, shared: &Arc<Shared>, timing: Timing) {
        self.done.reset();
        self.cancelled = AtomicBool::new(false);
        self.failed = AtomicBool::new(false);
        self.enqueued = AtomicBool::new(false);
        self.starter = AtomicWaker::new();
        self.unfinished = AtomicU32::new(self.slots.len() as u32);
        self.host_tasks = AtomicU32::new(0);
        self.soonest = AtomicU64::new(0);
        self.spin = AtomicU8::new(SPIN_NONE);
        for (slot, partition) in self.slots.iter_mut().zip(&shared.partitions) {
            slot.state = AtomicU8::new(WAITING);
            slot.waiting_for = AtomicU32::new(partition.host_predecessors + 1);
            slot.enqueued = AtomicU64::new(0);
            slot.took = AtomicU64::new(0);
            slot.overslept = AtomicBool::new(false);
            slot.asked = AtomicU8::new(ASKED_NOT);
        }
        let inner = self.inner.get_mut();
        inner.failure = None;
        inner.profile = None;
        inner.host_times.clear();
        inner.submitted = shared.profiling.then(clock::now);
        self.timed = timing == Timing::On;
        inner.depends_on.clear();
        // Without a partition there is nothing to own it for, and nobody to give it back.
        inner.owner = (!self.slots.is_empty()).then(|| shared.clone());
        self.looked_after = AtomicBool::new(false);
        self.first_look = AtomicU64::new(0);
        self.near_until = AtomicU64::new(0);
        if let Some(in_flight) = self.in_flight.as_ref().filter(|_| !self.slots.is_empty()) {
            in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A submission spins for this run, so that nobody else has to look soon.
    pub(crate) fn set_looked_after(&self) {
        self.looked_after.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_looked_after(&self) -> bool {
        self.looked_after.load(Ordering::Relaxed)
    }

    /// The end is near: has the submissions look for it themselves until then, on threads that are awake by it.
    pub(crate) fn set_near(&self, until: u64) {
        self.near_until.store(until, Ordering::Release);
        self.done.nudge();
    }

    /// Whether all other partitions are over.
    pub(crate) fn is_last(&self, partition: usize) -> bool {
        self.unfinished.load(Ordering::Acquire) == 1 && !self.is_over(partition)
    }

    /// How long from now on the end may be looked for without a pause.
    pub(crate) fn near_for(&self) -> Option<Duration> {
        match self.near_until.load(Ordering::Acquire) {
            0 => None,
            until => until.checked_sub(clock::now()).filter(|&left| left > 0).map(Duration::from_nanos),
        }
    }

    /// Whether a device does not notify.
    pub(crate) fn is_polled(&self) -> bool {
        self.polled
    }

    /// Among others it takes about so long: there is no use in a look much earlier.
    pub(crate) fn put_off_first_look(&self, expected: Duration) {
        self.first_look.store(clock::now() + clock::nanoseconds(expected) / 2, Ordering::Relaxed);
    }

    /// Whether a look would come too early.
    pub(crate) fn is_too_early(&self) -> bool {
        let first_look = self.first_look.load(Ordering::Relaxed);
        first_look > 0 && clock::now() < first_look
    }

    /// How many runs are in flight on the device, this one included.
    pub(crate) fn crowd(&self) -> u32 {
        self.in_flight.as_ref().map_or(1, |in_flight| in_flight.load(Ordering::Relaxed)).max(1)
    }

    /// Whether no other run is in flight on the device: a spin keeps nobody waiting who would look as well.
    pub(crate) fn is_alone_in_flight(&self) -> bool {
        self.crowd() == 1
    }

    /// Whether a spin on this run saw it end, if there was one.
    pub(crate) fn spin(&self) -> Option<bool> {
        match self.spin.load(Ordering::Relaxed) {
            SPIN_NONE => None,
            outcome => Some(outcome == SPIN_FOUND),
        }
    }

    /// One spin in vain outweighs all that paid.
    pub(crate) fn record_spin(&self, found: bool) {
        self.spin.fetch_max(if found { SPIN_FOUND } else { SPIN_IN_VAIN }, Ordering::Relaxed);
    }

    /// The host has been handed a task of this run, until the guard is dropped.
    pub(crate) fn host_task(self: &Arc<Self>) -> HostWork {
        self.host_tasks.fetch_add(1, Ordering::AcqRel);
        HostWork(self.clone())
    }

    /// Whether the host has something to do for this run, so that nobody should spin.
    pub(crate) fn is_on_host(&self) -> bool {
        self.host_tasks.load(Ordering::Acquire) > 0
    }

    /// How long the partition enqueued last is expected to take.
    pub(crate) fn expected(&self) -> Option<Duration> {
        match self.soonest.load(Ordering::Relaxed) {
            0 => None,
            expected => Some(Duration::from_nanos(expected)),
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// The run's result; meaningful when it is done.
    pub(crate) fn result(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        self.inner.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Where the time went, of a run that is over. Asks the devices, so it is not for a notification.
    pub(crate) fn profile(&self, outline: &Outline) -> Profile {
        let (host_times, origin) = {
            let inner = self.inner.lock();
            if let Some(profile) = &inner.profile {
                return profile.clone();
            }
            (inner.host_times.clone(), inner.submitted.unwrap_or(0))
        };
        let profile = Profile::collect(outline, self, &host_times, origin);
        self.inner.lock().profile.get_or_insert(profile).clone()
    }

    /// Whether a partition ran to its end, in this run. The event of one that did not may still tell of an earlier run.
    pub(crate) fn has_succeeded(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) == SUCCEEDED
    }

    pub(crate) fn event(&self, partition: usize) -> Option<&Arc<dyn hal::Event>> {
        self.slots[partition].event.as_ref()
    }

    /// A partition's enqueue has succeeded. It may be final already: the device may have notified from inside.
    pub(crate) fn set_enqueued(&self, partition: usize) {
        let state = &self.slots[partition].state;
        let _ = state.compare_exchange(WAITING, ENQUEUED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Whether a partition that was enqueued is over; reads the event without acting on it.
    pub(crate) fn is_final(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => false,
            ENQUEUED => self.event(partition).is_none_or(|event| event.status().is_final()),
            _ => true,
        }
    }

    /// Blocks until what has been enqueued is over, or the host has something to do.
    pub(crate) fn wait_for_devices(&self) {
        for (partition, slot) in self.slots.iter().enumerate() {
            if self.is_on_host() {
                return;
            }
            if slot.state.load(Ordering::Acquire) == ENQUEUED {
                if let Some(event) = &slot.event {
                    event.wait(None);
                }
                self.look_at(partition);
            }
        }
    }

    /// For the reactor: reads the event, and keeps the answer for [`answer`](Self::answer).
    pub(crate) fn ask(&self, partition: usize) {
        let answer = if self.is_final(partition) { ASKED_FINAL } else { ASKED_PENDING };
        self.slots[partition].asked.store(answer, Ordering::Release);
    }

    /// What [`ask`](Self::ask) has found, once; without, as [`is_final`](Self::is_final).
    pub(crate) fn answer(&self, partition: usize) -> bool {
        match self.slots[partition].asked.swap(ASKED_NOT, Ordering::AcqRel) {
            ASKED_NOT => self.is_final(partition),
            answer => answer == ASKED_FINAL,
        }
    }

    /// Whether somebody has seen that a partition is over; asks no device.
    pub(crate) fn is_over(&self, partition: usize) -> bool {
        self.slots[partition].state.load(Ordering::Acquire) > ENQUEUED
    }

    /// Events of the partitions without successors; `None` when the run is over, and its result known.
    pub(crate) fn tail_events(&self) -> Option<Vec<Arc<dyn hal::Event>>> {
        let shared = self.inner.lock().owner.clone()?;
        Some(shared.tails.iter().filter_map(|&tail| self.event(tail as usize).cloned()).collect())
    }

    /// The run needs the results of others, and its devices wait for them.
    pub(crate) fn set_depends_on(&self, runs: impl Iterator<Item = Arc<Run>>) {
        self.inner.lock().depends_on = runs.collect();
    }

    /// A partition is about to be enqueued, and expected to take so long.
    pub(crate) fn will_enqueue(&self, partition: usize, expected: Option<Duration>) {
        if self.timed {
            self.soonest.store(expected.map_or(0, clock::nanoseconds), Ordering::Relaxed);
            self.slots[partition].enqueued.store(clock::now(), Ordering::Relaxed);
        }
    }

    /// How long a partition took that has just ended, for the predictions.
    fn measure(&self, partition: usize) {
        let slot = &self.slots[partition];
        let enqueued = slot.enqueued.load(Ordering::Relaxed);
        let overslept = slot.overslept.load(Ordering::Relaxed);
        if enqueued > 0 {
            let took = clock::now().saturating_sub(enqueued);
            let took = if overslept { took / 2 } else { took };
            slot.took.store(took.max(1), Ordering::Relaxed);
        }
    }

    /// Lets the next runs know how long this one's partitions took.
    fn learn(&self, shared: &Shared) {
        for (slot, partition) in self.slots.iter().zip(&shared.partitions) {
            match slot.took.load(Ordering::Relaxed) {
                0 => {}
                took => {
                    let took_so_long = Duration::from_nanos(took);
                    // Among others it takes longer than it needs.
                    let needs = partition.prediction.expected();
                    if self.crowd() == 1 || needs.is_none_or(|needs| took_so_long < needs) {
                        partition.prediction.record(took_so_long);
                    }
                    if self.slots.len() == 1 {
                        // Alone in its queue, which the reactor has not seen, or less exactly.
                        partition.queue_time.record(took_so_long);
                    }
                }
            }
        }
    }

    /// The reactor has found a partition over, after this time as its queue's oldest.
    pub(crate) fn observe(&self, partition: usize, took: Option<Duration>, seen: Seen) {
        let slot = &self.slots[partition];
        match seen {
            Seen::InTime => {}
            Seen::Overslept => slot.overslept.store(true, Ordering::Relaxed),
            Seen::Late => slot.enqueued.store(0, Ordering::Relaxed),
        }
        let succeeded =
            self.event(partition).is_some_and(|event| matches!(event.status(), EventStatus::Complete));
        if let (Some(shared), Some(took), true) = (&self.inner.lock().owner, took, succeeded) {
            let prediction = &shared.partitions[partition].queue_time;
            prediction.record(match seen {
                Seen::InTime => took,
                Seen::Overslept => took / 4 * 3,
                // Never more than is known, or each late look would make the next one later.
                Seen::Late => prediction.expected().map_or(took, |expected| expected.min(took)),
            });
        }
    }

    /// Devices of the same partitions.
    pub(crate) fn tail_devices(&self) -> SmallVec<[Device; 2]> {
        let owner = self.inner.lock().owner.clone();
        let tails = owner
            .iter()
            .flat_map(|shared| shared.tails.iter().map(|&tail| &shared.partitions[tail as usize]));
        tails.filter_map(|partition| partition.device().cloned()).collect()
    }

    pub(crate) fn set_all_enqueued(&self) {
        self.enqueued.store(true, Ordering::Release);
    }

    pub(crate) fn is_all_enqueued(&self) -> bool {
        self.enqueued.load(Ordering::Acquire)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Release);
        self.starter.wake();
    }

    /// Resolves when the run is cancelled; for the task that waits to start it.
    pub(crate) fn cancellation(&self) -> impl Future<Output = ()> + Unpin + '_ {
        poll_fn(|cx| {
            self.starter.register(cx.waker());
            if self.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// The run needs the host, and this is how.
    pub(crate) fn set_driver(&self, driver: Driver) {
        self.inner.lock().driver = Some(driver);
    }

    /// One of the things that a partition waits for on the host is over. Whether it was the last.
    pub(crate) fn release(&self, partition: usize) -> bool {
        self.slots[partition].waiting_for.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether a partition with these predecessors, which are over, may start.
    pub(crate) fn go(&self, predecessors: &[u32]) -> Go {
        let failed = |&p: &u32| self.slots[p as usize].state.load(Ordering::Acquire) == FAILED;
        match self.is_cancelled() {
            true => Go::Cancel,
            false if predecessors.iter().any(failed) => Go::Skip,
            false => Go::Start,
        }
    }

    /// Whether the run is over; asks devices that do not notify. Ends it if so, which may wake tasks and drop buffers: not
    /// for callers that hold a lock.
    pub(crate) fn is_finished(&self) -> bool {
        if self.polled && !self.is_done() {
            self.look();
        }
        self.is_done()
    }

    /// Looks at the real status of all partitions that have been enqueued.
    pub(crate) fn look(&self) {
        for partition in 0..self.slots.len() {
            self.look_at(partition);
        }
    }

    /// Looks at one partition that was enqueued; whether it is final.
    pub(crate) fn look_at(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => false,
            ENQUEUED => self.read_event(partition),
            _ => true,
        }
    }

    fn read_event(&self, partition: usize) -> bool {
        let ready = match self.event(partition).map(|event| event.status()) {
            Some(EventStatus::Complete) => self.end(partition, Ok(())),
            Some(EventStatus::Failed(error)) => self.end(partition, Err(error)),
            _ => return false,
        };
        if let Some(driver) = self.driver_for(&ready) {
            driver.start_later(ready);
        }
        true
    }

    pub(crate) fn record_host_times(&self, partition: usize, start: u64, end: u64) {
        self.inner.lock().host_times.push((partition, start, end));
    }

    /// A partition does not start because of the others. Gives back what that makes ready.
    pub(crate) fn skip(&self, partition: usize, why: Go) -> Ready {
        match why {
            Go::Cancel => self.end(partition, Err(cancelled())),
            Go::Start | Go::Skip => self.end_with(partition, None, FAILED),
        }
    }

    /// Nothing of the run has started, and nothing will. The error is somebody else's: it keeps the place it names.
    pub(crate) fn abandon(&self, error: &Error) {
        self.set_failure(&mut self.inner.lock(), error.clone());
        if self.slots.is_empty() {
            return self.done.set();
        }
        for partition in 0..self.slots.len() {
            // What that makes ready ends here as well.
            let _ = self.end_with(partition, None, FAILED);
        }
    }

    /// A partition is final; starts what that makes ready.
    pub(crate) fn finish(&self, partition: usize, result: Result<()>) {
        let ready = self.end(partition, result);
        if let Some(driver) = self.driver_for(&ready) {
            driver.start(ready);
        }
    }

    fn driver_for(&self, ready: &Ready) -> Option<Driver> {
        if ready.is_empty() { None } else { self.inner.lock().driver.clone() }
    }

    /// A partition is final. Only the first call for a partition counts: a device, the reactor and a task may all see it.
    /// Gives back the partitions that the caller has to start, as they waited for this one last.
    #[must_use]
    pub(crate) fn end(&self, partition: usize, result: Result<()>) -> Ready {
        match result {
            Ok(()) => self.end_with(partition, None, SUCCEEDED),
            Err(error) => self.end_with(partition, Some(error), FAILED),
        }
    }

    fn end_with(&self, partition: usize, failure: Option<Error>, state: u8) -> Ready {
        let mut ready = Ready::new();
        let failed = failure.is_some();
        if let Some(error) = failure {
            // Before the state says so: whoever sees the partition failed finds the failure. The first one counts.
            let Some(shared) = self.inner.lock().owner.clone() else { return ready };
            self.record_failure(&shared, partition, error);
        }
        if self.slots[partition].state.swap(state, Ordering::AcqRel) > ENQUEUED {
            return ready;
        }
        if state == SUCCEEDED {
            self.measure(partition);
        }
        tracing::trace!(target: "wakegraph::partition", partition, succeeded = state == SUCCEEDED, "finished");
        // Each partition counts once, and this one has not been counted yet: at 1 all others are over, and none waits.
        let last = self.unfinished.load(Ordering::Acquire) == 1;
        if failed || !last {
            // Cloned: the others may still need it.
            let Some(shared) = self.inner.lock().owner.clone() else { return ready };
            for &successor in &shared.partitions[partition].wakes {
                if self.release(successor as usize) {
                    ready.push(successor);
                }
            }
        }
        if last || self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete();
        }
        ready
    }

    fn record_failure(&self, shared: &Shared, partition: usize, error: Error) {
        // The failure of something it waited for is reported there, with the right place.
        let inherited = |&p: &u32| {
            self.event(p as usize).is_some_and(|event| matches!(event.status(), EventStatus::Failed(_)))
        };
        if shared.partitions[partition].device_predecessors.iter().any(inherited) {
            return;
        }
        let error = self.failed_dependency().unwrap_or_else(|| shared.outline.locate(partition, error));
        let mut inner = self.inner.lock();
        match &inner.failure {
            // A cause says more than the cancellation that followed or preceded it.
            Some(earlier)
                if earlier.kind() != ErrorKind::Cancelled || error.kind() == ErrorKind::Cancelled => {}
            _ => self.set_failure(&mut inner, error),
        }
    }

    fn set_failure(&self, inner: &mut Inner, error: Error) {
        inner.failure = Some(error);
        self.failed.store(true, Ordering::Release);
    }

    /// The failure of a run that this one depends on, with the place where it happened there.
    fn failed_dependency(&self) -> Option<Error> {
        // An enqueue that fails gets here with the executable's state locked.
        let _elsewhere = Elsewhere::enter();
        let depends_on = self.inner.lock().depends_on.clone();
        depends_on.iter().find_map(|run| {
            // Its device may have told this run first.
            run.look();
            run.result().err()
        })
    }

    fn complete(&self) {
        let (shared, driver, depends_on) = {
            let mut inner = self.inner.lock();
            let Some(shared) = inner.owner.take() else { return };
            (shared, inner.driver.take(), std::mem::take(&mut inner.depends_on))
        };
        if self.timed {
            self.learn(&shared);
        }
        if let Some(in_flight) = &self.in_flight {
            in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        // Over on their devices, whose notifications may lag: whoever sees this run finished finds them finished, too.
        depends_on.iter().for_each(|run| run.look());
        self.done.set();
        // These go last: they may be the only ones left, and then buffers and closures go with them.
        drop((shared, driver, depends_on));
    }

    /// A run of nothing is done at once.
    pub(crate) fn complete_empty(&self) {
        self.done.set();
    }
}

/// Whether a run's partitions are timed, for predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Timing {
    Off,
    On,
}

/// A task that the host has been handed for a run, see [`Run::host_task`].
pub(crate) struct HostWork(Arc<Run>);

impl Drop for HostWork {
    fn drop(&mut self) {
        let Self(run) = self;
        // Who waits for the run may spin again, for what the task has just enqueued.
        if run.host_tasks.fetch_sub(1, Ordering::AcqRel) == 1 && run.expected().is_some() && !run.is_done() {
            run.done.nudge();
        }
    }
}

impl hal::Notify for Run {
    fn notify(&self, token: u64) {
        let _elsewhere = Elsewhere::enter();
        // Final by contract, and this run's even if the enqueue has not returned yet.
        self.read_event(token as usize);
    }
}

impl Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("done", &self.is_done())
            .field("partitions", &self.slots.len())
            .finish_non_exhaustive()
    }
}

pub(crate) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the submission was cancelled before this partition started")
}
