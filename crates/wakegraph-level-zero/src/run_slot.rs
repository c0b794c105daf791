//! Run slots: the driver's events of one run at a time, with the short lists that go with them.
//!
//! The runs of a slot follow each other and are numbered. The next one may start when the one
//! before is over and nothing [waits](EventWait) for the event. So a wait for an event means the
//! signal before the wait, although the driver's event is read later; and an earlier run is known to
//! be over, whatever the event has come to mean since.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use wakegraph_hal::{Memory as _, MemoryDesc, MemoryKind, Result};

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::event_pool::DriverEventKind;
use super::list::DriverList;
use super::memory::LevelZeroMemory;
use super::sys::{self, DriverResult};

/// The driver's events of one run at a time, and the lists that are made for them.
#[derive(Debug)]
pub(super) struct RunSlot {
    kind: DriverEventKind,
    /// Signalled when the run is over.
    pub(super) event: PooledEvent,
    /// With times: signalled when what the run waits for is over.
    pub(super) begin: Option<PooledEvent>,
    /// In the lowering by execution, has the run wait; recorded for each run that needs it. In the
    /// other one it is empty.
    pub(super) prefix: Mutex<Option<DriverList>>,
    /// Runs behind the lists of the run, and signals the event.
    pub(super) suffix: Option<DriverList>,
    /// Where the suffix leaves the times of the commands.
    pub(super) stamps: Option<StampBuffer>,
    /// The number of the last run. Changed only under the lock of the command-buffer or queue.
    started: AtomicU64,
    /// The number of the last run that has been seen to be over.
    ended: AtomicU64,
    /// The number of [waits](EventWait).
    waits: AtomicUsize,
}

/// One run of a slot.
#[derive(Clone, Debug)]
pub(super) struct SlotRun {
    pub(super) slot: Arc<RunSlot>,
    number: u64,
}

/// A wait for the driver's event of a run, on the device or of a thread. While there is one, the
/// slot has no other run, and the event keeps its meaning.
#[derive(Debug)]
pub(super) struct EventWait(Arc<RunSlot>);

/// The times of the commands of a run, as the device writes them.
#[derive(Debug)]
pub(super) struct StampBuffer {
    memory: LevelZeroMemory,
    /// The command that each is of.
    pub(super) commands: Arc<[u32]>,
}

impl StampBuffer {
    pub(super) fn new(context: &Arc<LevelZeroContext>, commands: &Arc<[u32]>) -> Result<Self> {
        let len = commands.len() * size_of::<sys::ze_kernel_timestamp_result_t>();
        let desc = MemoryDesc { len: len.max(1), kind: MemoryKind::Host };
        Ok(Self { memory: LevelZeroMemory::allocate(context, &desc)?, commands: Arc::clone(commands) })
    }

    pub(super) fn address(&self) -> usize {
        self.memory.address()
    }

    /// The begin and end of each, in cycles of the clock.
    #[expect(unsafe_code, reason = "reads what the device has written")]
    pub(super) fn read(&self) -> Result<Vec<[u64; 2]>> {
        let mut words = vec![0_u64; 4 * self.commands.len()];
        // SAFETY: the run is over, so nothing writes the memory.
        unsafe { self.memory.read(0, bytemuck::cast_slice_mut(&mut words)) }?;
        // Begin and end on the device's clock, and then on that of the context.
        Ok(words.chunks_exact(4).map(|stamp| [stamp[0], stamp[1]]).collect())
    }
}

impl RunSlot {
    pub(super) fn new(context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<Self> {
        let begin = (kind == DriverEventKind::Timed).then(|| PooledEvent::acquire(context, kind));
        Ok(Self {
            kind,
            event: PooledEvent::acquire(context, kind)?,
            begin: begin.transpose()?,
            prefix: Mutex::default(),
            suffix: None,
            stamps: None,
            started: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            waits: AtomicUsize::new(0),
        })
    }

    /// Whether the run with this number is over.
    #[inline]
    fn is_over(&self, number: u64) -> DriverResult<bool> {
        let ended = self.ended.load(Ordering::SeqCst);
        if ended >= number { Ok(true) } else { self.ask(ended, number) }
    }

    /// Asks the driver whether the run with this number is over. The one with the number `ended` is.
    fn ask(&self, ended: u64, number: u64) -> DriverResult<bool> {
        let is_over = self.event.is_signalled()?;
        if is_over {
            // Unless another thread has been faster. `started` is not behind `number`.
            let _ = self.ended.compare_exchange(ended, number, Ordering::SeqCst, Ordering::SeqCst);
        }
        Ok(is_over)
    }

    /// Whether no run is going on.
    pub(super) fn is_idle(&self) -> DriverResult<bool> {
        self.is_over(self.started.load(Ordering::Relaxed))
    }

    /// Whether nothing waits for the event, which nothing will any more once the slot is idle.
    pub(super) fn has_no_waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst) == 0
    }

    /// Says that a run has been handed over, and gives its number.
    pub(super) fn start(&self) -> u64 {
        let number = self.started.load(Ordering::Relaxed) + 1;
        self.started.store(number, Ordering::Relaxed);
        number
    }

    /// Prepares an idle slot without waits for another run.
    #[inline]
    pub(super) fn renew(&self) -> DriverResult {
        self.event.reset()?;
        self.begin.as_ref().map_or(Ok(()), PooledEvent::reset)
    }
}

impl SlotRun {
    pub(super) fn new(slot: Arc<RunSlot>, number: u64) -> Self {
        Self { slot, number }
    }

    /// Becomes another run: mostly one of the same slot, to which it has a reference already.
    #[inline]
    pub(super) fn set(&mut self, slot: &Arc<RunSlot>, number: u64) {
        if !Arc::ptr_eq(&self.slot, slot) {
            self.change_slot(slot);
        }
        self.number = number;
    }

    #[cold]
    fn change_slot(&mut self, slot: &Arc<RunSlot>) {
        self.slot = Arc::clone(slot);
    }

    /// Becomes the same run as another one.
    pub(super) fn set_to(&mut self, other: &Self) {
        self.set(&other.slot, other.number);
    }

    #[inline]
    pub(super) fn is_over(&self) -> DriverResult<bool> {
        self.slot.is_over(self.number)
    }

    /// A wait for the run, unless it has been seen to be over.
    pub(super) fn wait(&self) -> Option<EventWait> {
        let wait = EventWait::new(&self.slot);
        // In this order: a slot is used again only after its run has been seen to be over, and then
        // no wait has been seen.
        (self.slot.ended.load(Ordering::SeqCst) < self.number).then_some(wait)
    }
}

impl EventWait {
    fn new(slot: &Arc<RunSlot>) -> Self {
        slot.waits.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(slot))
    }

    /// Gives up a slot whose events may still be signalled, by what is left of an enqueue that has failed.
    pub(super) fn forever(slot: &Arc<RunSlot>) {
        std::mem::forget(Self::new(slot));
    }

    pub(super) fn event(&self) -> &PooledEvent {
        &self.0.event
    }
}

impl Drop for EventWait {
    fn drop(&mut self) {
        self.0.waits.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Slots that are used in turn.
#[derive(Debug, Default)]
pub(super) struct RunSlots(Vec<Arc<RunSlot>>);

impl RunSlots {
    /// The place of a slot for a run, if one is free.
    #[inline]
    pub(super) fn free(&mut self, kind: DriverEventKind) -> DriverResult<Option<usize>> {
        for (place, shared) in self.0.iter_mut().enumerate() {
            if shared.kind != kind || !shared.is_idle()? || !shared.has_no_waits() {
                continue;
            }
            // The times of a run stay where they are for as long as something refers to them.
            if kind == DriverEventKind::Timed && Arc::get_mut(shared).is_none() {
                continue;
            }
            shared.renew()?;
            return Ok(Some(place));
        }
        Ok(None)
    }

    /// Adds a slot, and gives its place.
    pub(super) fn add(&mut self, slot: RunSlot) -> usize {
        self.0.push(Arc::new(slot));
        self.0.len() - 1
    }

    pub(super) fn at(&self, place: usize) -> &Arc<RunSlot> {
        &self.0[place]
    }

    /// Whether no run is going on.
    #[inline]
    pub(super) fn are_idle(&self) -> DriverResult<bool> {
        for slot in &self.0 {
            if !slot.is_idle()? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
