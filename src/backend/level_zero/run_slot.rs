//! Run slots: the driver's events of one run, with the short lists that go with them.
//!
//! Each run has a slot of its own until nothing refers to the run any more. So a wait for an event means the
//! signal before the wait, although the driver's event is read later.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::event_pool::DriverEventKind;
use super::list::DriverList;
use super::memory::LevelZeroMemory;
use super::sys::{self, DriverResult};
use crate::hal::{Memory as _, MemoryDesc, MemoryKind};
use crate::types::Result;

/// The driver's events of one run, and the lists that are made for them.
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
    /// Whether the run has been seen to be over, or there was none yet.
    is_over: AtomicBool,
}

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
            is_over: AtomicBool::new(true),
        })
    }

    /// Whether the run is over.
    pub(super) fn is_over(&self) -> DriverResult<bool> {
        if self.is_over.load(Ordering::Acquire) {
            return Ok(true);
        }
        let is_over = self.event.is_signalled()?;
        self.is_over.store(is_over, Ordering::Release);
        Ok(is_over)
    }

    /// Says that a run has been enqueued.
    pub(super) fn started(&self) {
        self.is_over.store(false, Ordering::Release);
    }

    /// Prepares it for another run.
    fn renew(&mut self) -> DriverResult {
        self.event.reset()?;
        self.begin.as_ref().map_or(Ok(()), PooledEvent::reset)
    }
}

/// Slots that are used in turn.
#[derive(Debug, Default)]
pub(super) struct RunSlots(Vec<Arc<RunSlot>>);

impl RunSlots {
    /// A slot to which nothing else refers, made by `make` if there is none.
    pub(super) fn take<E: From<sys::LevelZeroFailure>>(
        &mut self,
        kind: DriverEventKind,
        make: impl FnOnce() -> Result<RunSlot, E>,
    ) -> Result<Arc<RunSlot>, E> {
        for shared in &mut self.0 {
            if let Some(slot) = Arc::get_mut(shared)
                && slot.kind == kind
                && slot.is_over()?
            {
                slot.renew()?;
                return Ok(Arc::clone(shared));
            }
        }
        let slot = Arc::new(make()?);
        self.0.push(Arc::clone(&slot));
        Ok(slot)
    }

    /// Gives up a slot whose events may still be signalled, by what is left of an enqueue that has failed.
    pub(super) fn discard(&mut self, slot: Arc<RunSlot>) {
        self.0.retain(|known| !Arc::ptr_eq(known, &slot));
        std::mem::forget(slot);
    }
}
