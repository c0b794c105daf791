//! Recordings: the commands of a command-buffer as closed lists of the driver.
//!
//! A recording runs once at a time, and is not handed over again before that run is over, because
//! the driver may change its lists for a run. A command-buffer that is enqueued while it runs has
//! several.
//!
//! # Order inside
//!
//! - A recording in order has one list. It is in order itself if the driver knows such lists, else there is a
//!   barrier behind each command.
//! - In any other, an operation signals an event if others follow it, and they wait for it. With a
//!   copy engine there are two lists, and copies and fills are in the second.
//! - The `start` event lets the lists begin, where the call that hands them over cannot: with the lowering by
//!   execution, and for the list of the copy engine.
//! - When everything is over, the run resets all these events. Where a suffix ends the run (see
//!   [`RunSlot::suffix`]), the lists signal `done` to it.
#![expect(unsafe_code, reason = "records commands on the caller's memory")]

use std::ptr;
use std::slice;
use std::sync::Arc;

use smallvec::SmallVec;

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::event_pool::DriverEventKind;
use super::features::EngineGroup;
use super::list::{CommandEvents, DriverList};
use super::mutable::{self, MutableCommands};
use super::operation::LevelZeroOperation;
use super::options::Lowering;
use super::run_slot::{RunSlot, RunSlots, StampBuffer};
use super::sys::{self, DriverResult};
use crate::hal::support::command_list::{CommandList, PlannedOperation};
use crate::hal::support::staged_update::ChangedLaunch;
use crate::hal::{Command, CommandBufferDesc};
use crate::types::Result;

/// Closed lists, and the events with which they are ordered.
#[derive(Debug)]
pub(super) struct ListRecording {
    /// Before the lists and events that the suffixes name.
    slots: RunSlots,
    /// The run that may still be going on.
    last: Option<Arc<RunSlot>>,
    pub(super) main: DriverList,
    pub(super) copies: Option<CopyList>,
    /// Lets the lists begin.
    pub(super) start: Option<PooledEvent>,
    /// Signalled behind everything, for the suffix.
    done: Option<PooledEvent>,
    /// Those of the operations, by number.
    events: Vec<Option<PooledEvent>>,
    /// With profiling: the command of each operation that has times.
    timed: Option<Arc<[u32]>>,
    mutable: MutableCommands,
    context: Arc<LevelZeroContext>,
}

/// The list of the copy engine.
#[derive(Debug)]
pub(super) struct CopyList {
    pub(super) list: DriverList,
    /// Signalled behind everything in the list.
    done: PooledEvent,
    /// The operations in it.
    operations: Vec<u32>,
}

impl ListRecording {
    pub(super) fn new(
        context: &Arc<LevelZeroContext>,
        commands: &[Command],
        list: &CommandList<LevelZeroOperation>,
        desc: CommandBufferDesc,
    ) -> Result<Self> {
        let plan: Vec<_> = list.plan().collect();
        let features = &context.features;
        let executes = context.lowering() == Lowering::Execute;
        let in_order = desc.in_order && features.in_order_lists;
        let mutable = desc.updatable && features.mutable != 0;
        let goes_to_copies = |planned: &PlannedOperation<'_, LevelZeroOperation>, group| {
            planned.operation.can_be_copied_by(group)
        };
        let copy_group = features.copy.as_ref().filter(|_| !desc.in_order);
        let copy_group = copy_group.filter(|group| plan.iter().any(|planned| goes_to_copies(planned, group)));
        let main = DriverList::new(context, &features.compute, in_order, mutable)?;
        let mut recording = Self::of(context, main, desc.profiling)?;
        recording.copies = copy_group.map(|group| CopyList::new(context, group)).transpose()?;
        if recording.copies.is_some() && recording.start.is_none() {
            recording.start = Some(PooledEvent::acquire(context, DriverEventKind::Plain)?);
        }
        recording.create_events(&plan, desc)?;
        recording.begin(executes)?;
        for (index, planned) in plan.iter().enumerate() {
            let group = copy_group.filter(|group| goes_to_copies(planned, group));
            if let Some(copies) = recording.copies.as_mut().filter(|_| group.is_some()) {
                copies.operations.push(index as u32);
            } else if mutable {
                let id = mutable::next_command(context, &mut recording.main, commands, planned)?;
                recording.mutable.push(planned.command, id);
            }
            recording.append(&plan, index, group.is_some(), desc.in_order)?;
            // The driver orders the commands of its own in-order lists.
            let is_barrier = matches!(planned.operation, LevelZeroOperation::Barrier);
            if desc.in_order && !in_order && !is_barrier {
                recording.main.barrier(CommandEvents::NONE)?;
            }
        }
        recording.end()?;
        Ok(recording)
    }

    /// What `append` appends to a list, which is in order if the driver has such lists.
    pub(super) fn around(
        context: &Arc<LevelZeroContext>,
        append: impl FnOnce(&DriverList),
    ) -> DriverResult<Self> {
        let features = &context.features;
        let main = DriverList::new(context, &features.compute, features.in_order_lists, false)?;
        let mut recording = Self::of(context, main, false)?;
        recording.begin(context.lowering() == Lowering::Execute)?;
        append(&recording.main);
        recording.end()?;
        Ok(recording)
    }

    fn of(context: &Arc<LevelZeroContext>, main: DriverList, profiling: bool) -> DriverResult<Self> {
        let executes = context.lowering() == Lowering::Execute;
        let event = |wanted: bool, kind| wanted.then(|| PooledEvent::acquire(context, kind)).transpose();
        Ok(Self {
            slots: RunSlots::default(),
            last: None,
            main,
            copies: None,
            start: event(executes, DriverEventKind::Plain)?,
            done: event(executes || profiling, DriverEventKind::Inner)?,
            events: Vec::new(),
            timed: None,
            mutable: MutableCommands::default(),
            context: Arc::clone(context),
        })
    }

    /// Creates the events of the operations that need some.
    fn create_events(
        &mut self,
        plan: &[PlannedOperation<'_, LevelZeroOperation>],
        desc: CommandBufferDesc,
    ) -> DriverResult {
        let mut is_followed = vec![false; plan.len()];
        if !desc.in_order {
            let earlier = plan.iter().flat_map(|planned| &planned.after);
            earlier.for_each(|&earlier| is_followed[earlier as usize] = true);
        }
        let kind = if desc.profiling { DriverEventKind::Timed } else { DriverEventKind::Inner };
        for (planned, is_followed) in plan.iter().zip(is_followed) {
            let wanted = (is_followed || desc.profiling) && planned.operation.takes_events();
            let event = wanted.then(|| PooledEvent::acquire(&self.context, kind));
            self.events.push(event.transpose()?);
        }
        if desc.profiling {
            let timed = plan.iter().zip(&self.events).filter(|(_, event)| event.is_some());
            self.timed = Some(timed.map(|(planned, _)| planned.command).collect());
        }
        Ok(())
    }

    /// Has the lists begin with the start event.
    fn begin(&mut self, executes: bool) -> DriverResult {
        let Some(start) = self.start.as_ref().map(PooledEvent::raw) else { return Ok(()) };
        let waits = CommandEvents { after: slice::from_ref(&start), signal: ptr::null_mut() };
        // In the other lowering the call that hands over the main list makes that wait.
        self.main.barrier(if executes { waits } else { CommandEvents { after: &[], signal: start } })?;
        self.copies.as_mut().map_or(Ok(()), |copies| copies.list.barrier(waits))
    }

    /// Appends an operation to one of the lists.
    fn append(
        &mut self,
        plan: &[PlannedOperation<'_, LevelZeroOperation>],
        index: usize,
        is_copy: bool,
        in_order: bool,
    ) -> Result<()> {
        let PlannedOperation { operation, after, .. } = &plan[index];
        let event_of = |index: usize| self.events[index].as_ref().map(PooledEvent::raw);
        let mut waits: SmallVec<[sys::ze_event_handle_t; 8]> = SmallVec::new();
        // A barrier behind an operation without an event waits for everything before it.
        let all_have_events = after.iter().all(|&earlier| event_of(earlier as usize).is_some());
        if !in_order && all_have_events {
            waits.extend(after.iter().filter_map(|&earlier| event_of(earlier as usize)));
        }
        let signal = event_of(index).unwrap_or(ptr::null_mut());
        let order = CommandEvents { after: &waits, signal };
        let order = if operation.takes_events() { order } else { CommandEvents::NONE };
        let list = match &mut self.copies {
            Some(copies) if is_copy => &mut copies.list,
            _ => &mut self.main,
        };
        // SAFETY: runs of the recording are enqueued as the callers of enqueues promise.
        unsafe { operation.append(&self.context, list, order) }
    }

    /// Ends the lists.
    fn end(&mut self) -> DriverResult {
        if let Some(CopyList { list, done, .. }) = &mut self.copies {
            list.barrier(CommandEvents { after: &[], signal: done.raw() })?;
            list.close()?;
            let done = done.raw();
            self.main.barrier(CommandEvents { after: slice::from_ref(&done), signal: ptr::null_mut() })?;
        }
        let resets = if self.timed.is_none() { self.inner_events() } else { SmallVec::new() };
        if !resets.is_empty() {
            self.main.barrier(CommandEvents::NONE)?;
            resets.iter().try_for_each(|event| self.main.reset_event(*event))?;
        }
        if let Some(done) = &self.done {
            self.main.barrier(CommandEvents { after: &[], signal: done.raw() })?;
        }
        self.main.close()
    }

    /// The events that a run signals, and resets when everything is over, but for `done`.
    fn inner_events(&self) -> SmallVec<[sys::ze_event_handle_t; 8]> {
        let copies = self.copies.as_ref().map(|copies| &copies.done);
        let events = self.events.iter().flatten().chain(&self.start).chain(copies);
        events.map(PooledEvent::raw).collect()
    }

    /// Changes launches in place. No run is going on. False if that is not possible: then the recording
    /// has to be replaced.
    pub(super) fn change_in_place<'a>(
        &mut self,
        changes: impl Iterator<Item = Option<ChangedLaunch<'a>>>,
    ) -> bool {
        mutable::change_in_place(&self.context, &self.mutable, &mut self.main, changes)
    }

    /// Whether no run is going on.
    pub(super) fn is_idle(&mut self) -> DriverResult<bool> {
        if let Some(last) = &self.last {
            if !last.is_over()? {
                return Ok(false);
            }
            self.last = None;
        }
        Ok(true)
    }

    /// A slot for a run.
    pub(super) fn slot(&mut self, kind: DriverEventKind) -> Result<Arc<RunSlot>> {
        let kind = match kind {
            // A closed list does not count.
            DriverEventKind::Counting if self.done.is_some() => DriverEventKind::Plain,
            kind => kind,
        };
        let mut slots = std::mem::take(&mut self.slots);
        let slot = slots.take(kind, || self.new_slot(kind));
        self.slots = slots;
        slot
    }

    fn new_slot(&self, kind: DriverEventKind) -> Result<RunSlot> {
        let context = &self.context;
        let mut slot = RunSlot::new(context, kind)?;
        let Some(done) = self.done.as_ref().map(PooledEvent::raw) else { return Ok(slot) };
        let mut suffix = DriverList::new(context, &context.features.compute, false, false)?;
        suffix.barrier(CommandEvents { after: slice::from_ref(&done), signal: ptr::null_mut() })?;
        if let Some(commands) = &self.timed {
            let events: SmallVec<[_; 8]> = self.events.iter().flatten().map(PooledEvent::raw).collect();
            let stamps = StampBuffer::new(context, commands)?;
            if !events.is_empty() {
                // SAFETY: there is room for as many, until the slot is dropped.
                unsafe { suffix.query_times(&events, stamps.address()) }?;
                suffix.barrier(CommandEvents::NONE)?;
            }
            slot.stamps = Some(stamps);
            self.inner_events().iter().try_for_each(|event| suffix.reset_event(*event))?;
        }
        suffix.reset_event(done)?;
        suffix.barrier(CommandEvents { after: &[], signal: slot.event.raw() })?;
        suffix.close()?;
        slot.suffix = Some(suffix);
        Ok(slot)
    }

    /// Says that a run has been handed over.
    pub(super) fn started(&mut self, slot: &Arc<RunSlot>) {
        slot.started();
        self.last = Some(Arc::clone(slot));
    }

    /// Gives up the slot of an enqueue that failed after a part of it was handed over.
    pub(super) fn discard(&mut self, slot: Arc<RunSlot>) {
        self.slots.discard(slot);
    }

    /// Has everything go on that waits for the list of the copy engine, which could not be handed over.
    pub(super) fn skip_copies(&self) -> DriverResult {
        let Some(CopyList { done, operations, .. }) = &self.copies else { return Ok(()) };
        let events = operations.iter().filter_map(|&index| self.events[index as usize].as_ref());
        events.chain([done]).try_for_each(PooledEvent::signal)
    }
}

impl CopyList {
    fn new(context: &Arc<LevelZeroContext>, group: &EngineGroup) -> DriverResult<Self> {
        Ok(Self {
            list: DriverList::new(context, group, false, false)?,
            done: PooledEvent::acquire(context, DriverEventKind::Plain)?,
            operations: Vec::new(),
        })
    }
}
