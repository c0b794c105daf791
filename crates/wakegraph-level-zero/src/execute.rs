//! The lowering *execute*: a queue executes closed lists. It knows no events, so a prefix waits for
//! some, and the list itself or a suffix signals one.
//!
//! Nothing orders the lists of a call but events: the prefix signals the start event of the
//! recording, and its main list signals the suffix. Where there is nothing to wait for there is no
//! prefix, and without times there is no suffix: the main list itself signals the event of the run.
#![expect(unsafe_code, reason = "hands lists to the driver")]

use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal::QueueDesc;

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::features::EngineGroup;
use super::handover::{Handover, HandoverFailure};
use super::list::{CommandEvents, DriverList, queue_desc};
use super::recording::ListRecording;
use super::run_slot::RunSlot;
use super::start_event::StartEvent;
use super::sys::{self, Api, CommandQueue, DriverResult, Owned, call, get};

/// The driver's queues of a queue.
#[derive(Debug)]
pub(super) struct ExecuteQueue {
    main: Owned<CommandQueue>,
    /// Of the copy engine; created when it is needed.
    copies: Option<Owned<CommandQueue>>,
    desc: QueueDesc,
    context: Arc<LevelZeroContext>,
}

impl ExecuteQueue {
    pub(super) fn new(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> DriverResult<Self> {
        let main = create(context, &context.features.compute, desc)?;
        Ok(Self { main, copies: None, desc, context: Arc::clone(context) })
    }

    /// Hands over a run of a recording.
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue), behind these events.
    /// The recording is idle.
    #[inline]
    pub(super) unsafe fn run(
        &mut self,
        recording: &ListRecording,
        slot: &RunSlot,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Handover, HandoverFailure> {
        if let (Some(_), None, Some(group)) = (&recording.copies, &self.copies, &self.context.features.copy) {
            let queue = create(&self.context, group, self.desc).map_err(HandoverFailure::nothing)?;
            self.copies = Some(queue);
        }
        let start = recording.start.as_ref();
        let has_prefix = !waits.is_empty() || slot.begin.is_some();
        let mut lists: SmallVec<[_; 3]> = SmallVec::new();
        if has_prefix {
            start.map_or(Ok(()), StartEvent::close).map_err(HandoverFailure::nothing)?;
            let signals = slot.begin.iter().map(PooledEvent::raw).chain(start.map(StartEvent::raw));
            let prefix = self.prefix(slot, waits, signals.collect());
            lists.push(prefix.map_err(HandoverFailure::nothing)?);
        } else {
            start.map_or(Ok(()), StartEvent::open).map_err(HandoverFailure::nothing)?;
        }
        lists.push(recording.main.raw());
        if let Some(suffix) = &slot.suffix {
            lists.push(suffix.raw());
        }
        // SAFETY: the lists are closed and idle; passed on to the caller.
        let executed = unsafe { execute(self.context.api, &self.main, &lists) };
        executed.map_err(HandoverFailure::nothing)?;
        if let Some(start) = start.filter(|_| has_prefix) {
            start.opens_by_itself();
        }
        let (Some(copies), Some(queue)) = (&recording.copies, &self.copies) else {
            return Ok(Handover::Whole);
        };
        // SAFETY: as above. The list waits for the start event.
        match unsafe { execute(self.context.api, queue, &[copies.list.raw()]) } {
            Ok(()) => Ok(Handover::Whole),
            Err(failure) => Ok(Handover::WithoutCopies(failure)),
        }
    }

    /// Signals an event behind these.
    pub(super) fn mark(&mut self, slot: &RunSlot, waits: &[sys::ze_event_handle_t]) -> DriverResult {
        if waits.is_empty() {
            return slot.event.signal();
        }
        let signals = [slot.event.raw()].into_iter().collect();
        let prefix = self.prefix(slot, waits, signals)?;
        // SAFETY: the list is closed and idle, and accesses nothing.
        unsafe { execute(self.context.api, &self.main, &[prefix]) }
    }

    /// What to wait for until everything is done. The handles are valid while the queue lives.
    pub(super) fn queues(&self) -> SmallVec<[sys::ze_command_queue_handle_t; 2]> {
        [&self.main].into_iter().chain(&self.copies).map(Owned::raw).collect()
    }

    /// Records the list of a slot that waits for events and signals others, one behind the other.
    fn prefix(
        &self,
        slot: &RunSlot,
        waits: &[sys::ze_event_handle_t],
        signals: SmallVec<[sys::ze_event_handle_t; 2]>,
    ) -> DriverResult<sys::ze_command_list_handle_t> {
        let mut prefix = slot.prefix.lock();
        // A list whose recording failed is not used again.
        let mut list = match prefix.take() {
            Some(mut list) => {
                list.reset()?;
                list
            }
            None => DriverList::new(&self.context, &self.context.features.compute, false, false)?,
        };
        let mut after = waits;
        for signal in &signals {
            list.barrier(CommandEvents { after, signal: *signal })?;
            after = slice::from_ref(signal);
        }
        list.close()?;
        Ok(prefix.insert(list).raw())
    }
}

/// # Safety
/// The lists are closed and not in use. What they access is valid, and nothing else uses it in a conflicting
/// way, until they are done.
unsafe fn execute(
    api: &Api,
    queue: &Owned<CommandQueue>,
    lists: &[sys::ze_command_list_handle_t],
) -> DriverResult {
    let (count, lists, fence) = (lists.len() as u32, lists.as_ptr().cast_mut(), ptr::null_mut());
    // SAFETY: the queue is alive; passed on to the caller.
    unsafe { call!(api, zeCommandQueueExecuteCommandLists(queue.raw(), count, lists, fence)) }
}

fn create(
    context: &LevelZeroContext,
    group: &EngineGroup,
    desc: QueueDesc,
) -> DriverResult<Owned<CommandQueue>> {
    let (api, raw, device) = (context.api, context.raw(), context.device);
    let desc = queue_desc(group, false, desc.priority);
    // SAFETY: context and device are alive, and the structure says what it is.
    let queue = unsafe { get!(api, zeCommandQueueCreate(raw, device, &raw const desc)) }?;
    // SAFETY: the driver has just created the queue for this object.
    Ok(unsafe { Owned::new(api, queue) })
}
