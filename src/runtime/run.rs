//! One run of an executable: from `submit` until the last partition is final.

use std::fmt::{self, Debug};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::{Poll, Waker};

use futures::task::AtomicWaker;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::clock;
use super::device::Device;
use super::executable::Shared;
use super::latch::Latch;
use super::profile::Profile;
use crate::hal::{self, EventStatus};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use crate::types::{Error, ErrorKind, Result};

/// One run. While in flight it owns the executable, and with it all that a device may touch; whoever will report a
/// completion (a device, the reactor, a task) holds a reference to it.
pub(crate) struct Run {
    /// Set when every partition is final.
    pub(crate) done: Latch,
    /// Set by `cancel`: partitions that have not started never will.
    cancelled: AtomicBool,
    /// Whether every partition has been enqueued on a device, so that other devices can wait for `tails` themselves.
    enqueued: AtomicBool,
    /// The task that waits to start the run, if there is one.
    starter: AtomicWaker,
    unfinished: AtomicU32,
    slots: Box<[Slot]>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    owner: Option<Arc<Shared>>,
    /// On the runtime's clock, 0 where nobody will ask.
    submitted: u64,
    /// When it had waited for what the host waits for; devices may still hold it back.
    started: u64,
    failure: Option<Error>,
    profile: Option<Profile>,
    host_times: Vec<(usize, u64, u64)>,
}

/// One partition of the run.
struct Slot {
    state: AtomicU8,
    /// Predecessors that the partition's task has to wait for on the host.
    waiting_for: AtomicU32,
    task: AtomicWaker,
    event: Option<Arc<dyn hal::Event>>,
}

/// Not handed to a device or task yet. The event, reused from an earlier run, may still read complete.
const WAITING: u8 = 0;
/// On a device: the event's status is this run's.
const ENQUEUED: u8 = 1;
const SUCCEEDED: u8 = 2;
const FAILED: u8 = 3;

/// What a partition's task finds when its predecessors are final.
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
                task: AtomicWaker::new(),
                event: partition.device().map(|device| device.hal().create_event(&event)).transpose()?,
            })
        });
        Ok(Self {
            done: Latch::new(),
            cancelled: AtomicBool::new(false),
            enqueued: AtomicBool::new(false),
            starter: AtomicWaker::new(),
            unfinished: AtomicU32::new(0),
            slots: slots.collect::<Result<_>>()?,
            inner: Mutex::default(),
        })
    }

    /// A run that failed before it began.
    pub(crate) fn failed(error: Error) -> Self {
        let run = Self {
            done: Latch::new(),
            cancelled: AtomicBool::new(false),
            enqueued: AtomicBool::new(false),
            starter: AtomicWaker::new(),
            unfinished: AtomicU32::new(0),
            slots: Box::default(),
            inner: Mutex::new(Inner { failure: Some(error), ..Inner::default() }),
        };
        run.done.set();
        run
    }

    /// Makes a finished run, or a new one, ready to run. The exclusive reference proves that nobody looks at it.
    pub(crate) fn reset(&mut self, shared: &Arc<Shared>, submitted: u64) {
        self.done.reset();
        self.cancelled = AtomicBool::new(false);
        self.enqueued = AtomicBool::new(false);
        self.starter.take();
        self.unfinished = AtomicU32::new(self.slots.len() as u32);
        for (slot, partition) in self.slots.iter_mut().zip(&shared.partitions) {
            slot.state = AtomicU8::new(WAITING);
            slot.waiting_for = AtomicU32::new(partition.host_predecessors);
            slot.task.take();
        }
        let inner = self.inner.get_mut();
        inner.failure = None;
        inner.profile = None;
        inner.host_times.clear();
        inner.submitted = submitted;
        inner.started = submitted;
        // Without a partition there is nothing to own it for, and nobody to give it back.
        inner.owner = (!self.slots.is_empty()).then(|| shared.clone());
    }

    pub(crate) fn is_done(&self) -> bool {
        self.done.is_set()
    }

    /// The run's result; meaningful when it is done.
    pub(crate) fn result(&self) -> Result<()> {
        self.inner.lock().failure.clone().map_or(Ok(()), Err)
    }

    pub(crate) fn profile(&self) -> Option<Profile> {
        self.inner.lock().profile.clone()
    }

    pub(crate) fn event(&self, partition: usize) -> Option<&Arc<dyn hal::Event>> {
        self.slots[partition].event.as_ref()
    }

    /// A partition's enqueue has succeeded. It may be final already: the device may have notified from inside.
    pub(crate) fn set_enqueued(&self, partition: usize) {
        let state = &self.slots[partition].state;
        let _ = state.compare_exchange(WAITING, ENQUEUED, Ordering::AcqRel, Ordering::Acquire);
    }

    /// The run starts now, later than it was submitted.
    pub(crate) fn set_started(&self) {
        self.inner.lock().started = clock::now();
    }

    /// Whether a partition that was enqueued is over; reads the event without acting on it.
    pub(crate) fn is_final(&self, partition: usize) -> bool {
        match self.slots[partition].state.load(Ordering::Acquire) {
            WAITING => false,
            ENQUEUED => self.event(partition).is_none_or(|event| event.status().is_final()),
            _ => true,
        }
    }

    /// Events of the partitions without successors; none when the run is over.
    pub(crate) fn tail_events(&self) -> Vec<Arc<dyn hal::Event>> {
        let owner = self.inner.lock().owner.clone();
        let tails = owner.iter().flat_map(|shared| shared.tails.iter());
        tails.filter_map(|&tail| self.event(tail as usize).cloned()).collect()
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
        self.slots.iter().for_each(|slot| slot.task.wake());
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

    /// Whether a partition may start; `None` while it has to wait, with `waker` registered.
    pub(crate) fn poll_start(&self, partition: usize, predecessors: &[u32], waker: &Waker) -> Option<Go> {
        let slot = &self.slots[partition];
        slot.task.register(waker);
        if self.is_cancelled() {
            return Some(Go::Cancel);
        }
        if slot.waiting_for.load(Ordering::Acquire) > 0 {
            return None;
        }
        let failed = |&p: &u32| self.slots[p as usize].state.load(Ordering::Acquire) == FAILED;
        Some(if predecessors.iter().any(failed) { Go::Skip } else { Go::Start })
    }

    /// Looks at the real status of all partitions enqueued on devices that do not notify.
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
        match self.event(partition).map(|event| event.status()) {
            Some(EventStatus::Complete) => self.finish(partition, Ok(())),
            Some(EventStatus::Failed(error)) => self.finish(partition, Err(error)),
            _ => return false,
        }
        true
    }

    pub(crate) fn record_host_times(&self, partition: usize, start: u64, end: u64) {
        self.inner.lock().host_times.push((partition, start, end));
    }

    /// A partition did not start because of the others.
    pub(crate) fn skip(&self, partition: usize, why: Go) {
        if why == Go::Cancel {
            self.finish(partition, Err(cancelled()));
        } else {
            self.finish_with(partition, None, FAILED);
        }
    }

    /// Nothing of the run has started, and nothing will.
    pub(crate) fn abandon(&self, error: &Error) {
        if self.slots.is_empty() {
            self.inner.lock().failure = Some(error.clone());
            return self.done.set();
        }
        (0..self.slots.len()).for_each(|partition| self.finish(partition, Err(error.clone())));
    }

    /// A partition is final. Only the first call for a partition counts: a device, the reactor and a task may all see it.
    pub(crate) fn finish(&self, partition: usize, result: Result<()>) {
        match result {
            Ok(()) => self.finish_with(partition, None, SUCCEEDED),
            Err(error) => self.finish_with(partition, Some(error), FAILED),
        }
    }

    fn finish_with(&self, partition: usize, failure: Option<Error>, state: u8) {
        // Taken by the thread that finishes the last partition; cloned because until then others may still need it.
        let Some(shared) = self.inner.lock().owner.clone() else { return };
        if let Some(error) = failure {
            self.record_failure(&shared, partition, error);
        }
        let slot = &self.slots[partition];
        if slot.state.swap(state, Ordering::AcqRel) > ENQUEUED {
            return;
        }
        shared.trace_finished(partition, state == SUCCEEDED);
        for &successor in &shared.partitions[partition].wakes {
            let successor = &self.slots[successor as usize];
            if successor.waiting_for.fetch_sub(1, Ordering::AcqRel) == 1 {
                successor.task.wake();
            }
        }
        if self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete(shared);
        }
    }

    fn record_failure(&self, shared: &Shared, partition: usize, error: Error) {
        // The failure of something it waited for is reported there, with the right place.
        let inherited = |&p: &u32| {
            self.event(p as usize).is_some_and(|event| matches!(event.status(), EventStatus::Failed(_)))
        };
        if shared.partitions[partition].device_predecessors.iter().any(inherited) {
            return;
        }
        let error = shared.locate(partition, error);
        let mut inner = self.inner.lock();
        match &inner.failure {
            // A cause says more than the cancellation that followed or preceded it.
            Some(earlier)
                if earlier.kind() != ErrorKind::Cancelled || error.kind() == ErrorKind::Cancelled => {}
            _ => inner.failure = Some(error),
        }
    }

    fn complete(&self, shared: Arc<Shared>) {
        {
            let mut inner = self.inner.lock();
            shared.prediction.record(inner.started, clock::now());
            if shared.profiling {
                let host_times = std::mem::take(&mut inner.host_times);
                inner.profile = Some(Profile::collect(&shared, self, host_times, inner.submitted));
            }
            inner.owner = None;
        }
        self.done.set();
        // `shared` goes last: it may be the only reference left, and then the buffers go with it.
        drop(shared);
    }

    /// A run of nothing is done at once.
    pub(crate) fn complete_empty(&self) {
        self.done.set();
    }
}

impl hal::Notify for Run {
    fn notify(&self, token: u64) {
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
