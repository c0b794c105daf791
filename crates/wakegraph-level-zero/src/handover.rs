//! The handover of runs from a queue to the driver, in either lowering.
//!
//! - *Append*: closed lists are handed to an immediate list, in one call with the events to wait for and the
//!   one to signal.
//! - *Execute*: a queue executes closed lists. It knows no events, so a prefix waits for some, and the list
//!   itself or a suffix signals one. Nothing orders the lists of a call but events: the prefix signals the
//!   start event of the recording, and its main list signals the suffix. Where there is nothing to wait for
//!   there is no prefix, and without times there is no suffix: the main list itself signals the event of the
//!   run.
#![expect(unsafe_code, reason = "hands lists to the driver")]

use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal::{Error, QueueDesc, QueueOrder, Result};

use super::context::{DriverEventKind, ImmediateKind, LevelZeroContext, queue_desc};
use super::driver::EngineGroup;
use super::events::{EventWait, PooledEvent, RunSlot, RunSlots, SignalUses, SlotRun, StartEvent};
use super::lower::{CommandEvents, DriverList};
use super::recording::ListRecording;
use super::sys::{self, Api, CommandList, CommandQueue, DriverResult, LevelZeroFailure, Owned, call, get};

/// How a queue hands over.
#[derive(Debug)]
pub(super) struct QueueDriver {
    pub(super) lowering: LoweringQueue,
    /// For enqueues without a recording.
    marks: RunSlots,
}

/// The driver's objects of a queue in each lowering.
#[derive(Debug)]
pub(super) enum LoweringQueue {
    Append(AppendQueue),
    Execute(ExecuteQueue),
}

/// A run that has been handed over.
pub(super) struct Started<'a> {
    pub(super) slot: &'a Arc<RunSlot>,
    pub(super) number: u64,
    /// Why it fails, if it does.
    pub(super) failure: Option<Error>,
}

impl<'a> Started<'a> {
    fn new(slot: &'a Arc<RunSlot>) -> Self {
        Self { slot, number: slot.start(), failure: None }
    }

    pub(super) fn failing(self, failure: Option<Error>) -> Self {
        Self { failure, ..self }
    }
}

impl QueueDriver {
    pub(super) fn new(lowering: LoweringQueue) -> Self {
        Self { lowering, marks: RunSlots::default() }
    }

    /// The kind of event that an enqueue signals.
    pub(super) fn event_kind(
        &self,
        context: &LevelZeroContext,
        desc: &QueueDesc,
        is_timed: bool,
    ) -> DriverEventKind {
        let counts = desc.order == QueueOrder::InOrder && context.features.counter_based_events;
        match &self.lowering {
            _ if is_timed => DriverEventKind::Timed,
            LoweringQueue::Append(_) if counts => DriverEventKind::Counting,
            _ => DriverEventKind::Plain,
        }
    }

    /// Hands over a run. Says why it fails, if it does.
    ///
    /// # Safety
    /// As for [`LevelZeroQueue::submit`].
    #[inline]
    pub(super) unsafe fn run<'a>(
        &mut self,
        context: &LevelZeroContext,
        recording: &'a mut ListRecording,
        kind: DriverEventKind,
        waits: &mut LevelZeroWaitList,
    ) -> Result<Started<'a>> {
        let place = recording.take_slot(kind).map_err(|error| context.error(error))?;
        let recording = &*recording;
        let slot = recording.slot(place);
        let handed = match &mut self.lowering {
            // SAFETY: passed on to the caller.
            LoweringQueue::Append(queue) => unsafe { queue.run(recording, slot, waits.events()) },
            // SAFETY: passed on to the caller.
            LoweringQueue::Execute(queue) => unsafe { queue.run(recording, slot, waits.events()) },
        };
        match handed {
            Ok(Handover::Whole) => Ok(Started::new(slot)),
            Ok(Handover::WithoutCopies(failure)) => {
                recording.skip_copies();
                Ok(Started::new(slot).failing(Some(context.error(failure))))
            }
            Err(HandoverFailure { failure, is_partial }) => {
                if is_partial {
                    EventWait::forever(slot);
                    // What is on the device still waits for these events.
                    std::mem::forget(waits.pending.take());
                }
                Err(context.error(failure))
            }
        }
    }

    /// Signals a slot behind these events, and in its place in the queue's order.
    pub(super) fn mark(
        &mut self,
        context: &Arc<LevelZeroContext>,
        kind: DriverEventKind,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Started<'_>> {
        let place = self.mark_place(context, kind).map_err(|failure| context.error(failure))?;
        let slot = self.marks.at(place);
        let marked = match &mut self.lowering {
            LoweringQueue::Append(queue) => queue.mark(slot, waits),
            LoweringQueue::Execute(queue) => queue.mark(slot, waits),
        };
        if let Err(failure) = marked {
            // A part of it may be on the list.
            EventWait::forever(slot);
            return Err(context.error(failure));
        }
        Ok(Started::new(slot))
    }

    fn mark_place(&mut self, context: &Arc<LevelZeroContext>, kind: DriverEventKind) -> DriverResult<usize> {
        match self.marks.free(kind)? {
            Some(place) => Ok(place),
            None => Ok(self.marks.add(RunSlot::new(context, kind)?)),
        }
    }
}

/// Events and signals that an enqueue has to wait for. Most have none.
#[derive(Default)]
pub(super) struct LevelZeroWaitList {
    pub(super) pending: Option<PendingWaits>,
    /// The failure of a dependency that has failed already.
    pub(super) failure: Option<Error>,
}

/// Waits that were pending when the wait list was read.
#[derive(Default)]
pub(super) struct PendingWaits {
    /// As the driver takes them.
    events: SmallVec<[sys::ze_event_handle_t; 8]>,
    /// Objects that the enqueue keeps until it has ended. Failures of its dependencies are inherited.
    pub(super) uses: SignalUses,
}

impl LevelZeroWaitList {
    /// Waits for a run, unless that has ended.
    pub(super) fn push(&mut self, run: &SlotRun) {
        if let Some(wait) = run.wait() {
            let pending = self.pending.get_or_insert_default();
            pending.events.push(wait.event().raw());
            pending.uses.waits.push(wait);
        }
    }

    pub(super) fn events(&self) -> &[sys::ze_event_handle_t] {
        self.pending.as_ref().map_or(&[], |pending| &pending.events)
    }

    pub(super) fn uses(&mut self) -> &mut SignalUses {
        &mut self.pending.get_or_insert_default().uses
    }
}

/// Extent to which a run was handed to the driver.
#[derive(Debug)]
pub(super) enum Handover {
    Whole,
    /// The list of the copy engine was refused.
    WithoutCopies(LevelZeroFailure),
}

/// A run was refused.
#[derive(Debug)]
pub(super) struct HandoverFailure {
    pub(super) failure: LevelZeroFailure,
    /// Whether the driver may still use the events of the run.
    is_partial: bool,
}

impl HandoverFailure {
    /// A failure before anything was handed over.
    pub(super) fn nothing(failure: LevelZeroFailure) -> Self {
        Self { failure, is_partial: false }
    }
}

/// The immediate lists of a queue.
#[derive(Debug)]
pub(super) struct AppendQueue {
    main: ImmediateList,
    /// Of the copy engine; created when it is needed.
    copies: Option<ImmediateList>,
    desc: QueueDesc,
}

impl AppendQueue {
    pub(super) fn new(context: &Arc<LevelZeroContext>, desc: QueueDesc) -> DriverResult<Self> {
        Ok(Self {
            main: ImmediateList::acquire(context, &context.features.compute, desc)?,
            copies: None,
            desc,
        })
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
        if let (None, None, None) = (&recording.copies, &slot.begin, &slot.suffix) {
            let order = CommandEvents { after: waits, signal: slot.event.raw() };
            // SAFETY: passed on to the caller; the slot is of this recording.
            let handed = unsafe { self.main.append_lists(&[recording.main.raw()], order) };
            return handed.map(|()| Handover::Whole).map_err(HandoverFailure::nothing);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.run_in_parts(recording, slot, waits) }
    }

    /// Hands over a run with copies, with times, or with both.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    #[inline(never)]
    unsafe fn run_in_parts(
        &mut self,
        recording: &ListRecording,
        slot: &RunSlot,
        waits: &[sys::ze_event_handle_t],
    ) -> Result<Handover, HandoverFailure> {
        let copies = match &recording.copies {
            Some(copies) => Some((self.copy_engine().map_err(HandoverFailure::nothing)?, copies)),
            None => None,
        };
        let begin = slot.begin.as_ref().map(PooledEvent::raw);
        if let Some(begin) = begin {
            let order = CommandEvents { after: waits, signal: begin };
            self.nothing(slot, order).map_err(HandoverFailure::nothing)?;
        }
        let after = begin.as_ref().map_or(waits, slice::from_ref);
        let suffix = slot.suffix.as_ref();
        // The suffix signals the event by itself.
        let signal = if suffix.is_some() { ptr::null_mut() } else { slot.event.raw() };
        let both = suffix.map(|suffix| [recording.main.raw(), suffix.raw()]);
        let only = [recording.main.raw()];
        let lists = both.as_ref().map_or(&only[..], |both| &both[..]);
        // SAFETY: as above.
        let handed = unsafe { self.main.append_lists(lists, CommandEvents { after, signal }) };
        handed.map_err(|failure| HandoverFailure { failure, is_partial: begin.is_some() })?;
        let Some((_, copies)) = copies else { return Ok(Handover::Whole) };
        let Some(engine) = &mut self.copies else { return Ok(Handover::Whole) };
        // SAFETY: as above. The list waits for the start event, which the main list signals.
        match unsafe { engine.append_lists(&[copies.list.raw()], CommandEvents::NONE) } {
            Ok(()) => Ok(Handover::Whole),
            Err(failure) => Ok(Handover::WithoutCopies(failure)),
        }
    }

    /// Signals the event of a slot behind these and, on an in-order queue, behind everything.
    pub(super) fn mark(&mut self, slot: &RunSlot, waits: &[sys::ze_event_handle_t]) -> DriverResult {
        self.nothing(slot, CommandEvents { after: waits, signal: slot.event.raw() })
    }

    /// Hands over the empty list of a slot.
    fn nothing(&mut self, slot: &RunSlot, order: CommandEvents<'_>) -> DriverResult {
        let context = self.main.context();
        let mut empty = slot.prefix.lock();
        let empty = match &mut *empty {
            Some(list) => list,
            place => {
                let mut list = DriverList::new(context, &context.features.compute, false, false)?;
                list.close()?;
                place.insert(list)
            }
        };
        // SAFETY: the list is closed and idle, as the slot is, and accesses nothing.
        unsafe { self.main.append_lists(&[empty.raw()], order) }
    }

    /// The list to synchronize with. The handle is valid while the queue lives.
    pub(super) fn main(&self) -> sys::ze_command_list_handle_t {
        self.main.raw()
    }

    fn copy_engine(&mut self) -> DriverResult {
        let context = self.main.context();
        if let (None, Some(group)) = (&self.copies, &context.features.copy) {
            self.copies = Some(ImmediateList::acquire(context, group, self.desc)?);
        }
        Ok(())
    }
}

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
        let main = context.create_queue(&context.features.compute, desc.priority)?;
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
            let queue = self.context.create_queue(group, self.desc.priority);
            self.copies = Some(queue.map_err(HandoverFailure::nothing)?);
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

    /// The queues to synchronize with. The handles are valid while this queue lives.
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
/// way, until they have ended.
unsafe fn execute(
    api: &Api,
    queue: &Owned<CommandQueue>,
    lists: &[sys::ze_command_list_handle_t],
) -> DriverResult {
    let (count, lists, fence) = (lists.len() as u32, lists.as_ptr().cast_mut(), ptr::null_mut());
    // SAFETY: the queue is alive; passed on to the caller.
    unsafe { call!(api, zeCommandQueueExecuteCommandLists(queue.raw(), count, lists, fence)) }
}

/// An immediate list that one queue uses. The driver takes one call at a time for it. It goes back to
/// its pool when it is dropped.
#[derive(Debug)]
struct ImmediateList {
    raw: Option<Owned<CommandList>>,
    kind: ImmediateKind,
    context: Arc<LevelZeroContext>,
}

impl ImmediateList {
    pub(super) fn acquire(
        context: &Arc<LevelZeroContext>,
        group: &EngineGroup,
        desc: QueueDesc,
    ) -> DriverResult<Self> {
        let in_order = desc.order == QueueOrder::InOrder;
        let kind = ImmediateKind { ordinal: group.ordinal, in_order, priority: desc.priority };
        let list = match context.immediate_lists.take(kind) {
            Some(list) => list,
            None => {
                let (api, raw, device) = (context.api, context.raw(), context.device);
                let desc = queue_desc(group.ordinal, in_order, desc.priority);
                // SAFETY: context and device are alive, and the structure says what it is.
                let list = unsafe { get!(api, zeCommandListCreateImmediate(raw, device, &raw const desc)) }?;
                // SAFETY: the driver has just created the list for this object.
                unsafe { Owned::new(api, list) }
            }
        };
        Ok(Self { raw: Some(list), kind, context: Arc::clone(context) })
    }

    /// For calls; valid while `self` lives.
    pub(super) fn raw(&self) -> sys::ze_command_list_handle_t {
        self.raw.as_ref().map_or(ptr::null_mut(), Owned::raw)
    }

    pub(super) fn context(&self) -> &Arc<LevelZeroContext> {
        &self.context
    }

    /// Hands over closed lists.
    ///
    /// # Safety
    /// The lists are closed and not in use. What they access is valid, and nothing else uses it in
    /// a conflicting way, until they have ended.
    unsafe fn append_lists(
        &mut self,
        lists: &[sys::ze_command_list_handle_t],
        order: CommandEvents<'_>,
    ) -> DriverResult {
        let ((signal, waits, after), (api, list)) = (order.parts(), (self.context.api, self.raw()));
        let (count, lists, none) = (lists.len() as u32, lists.as_ptr().cast_mut(), ptr::null());
        if self.context.features.append_with_parameters {
            // SAFETY: lists and events are alive; passed on to the caller.
            return unsafe {
                call!(
                    api,
                    zeCommandListImmediateAppendCommandListsWithParameters(
                        list, count, lists, none, signal, waits, after
                    )
                )
            };
        }
        // SAFETY: as above.
        unsafe {
            call!(api, zeCommandListImmediateAppendCommandListsExp(list, count, lists, signal, waits, after))
        }
    }
}

impl Drop for ImmediateList {
    fn drop(&mut self) {
        if let Some(list) = self.raw.take() {
            self.context.immediate_lists.give_back(self.kind, list);
        }
    }
}
