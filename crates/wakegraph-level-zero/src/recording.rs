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
//! - The `start` event lets the lists begin, where the call that hands them over cannot: with the
//!   lowering by execution ([`StartEvent`]), and for the list of the copy engine.
//! - When everything is over, the run resets all these events, but for the start event of the
//!   lowering by execution. Then the main list signals the event of the first slot, where it has to:
//!   with that lowering, and for the suffix ([`RunSlot::suffix`]). The host resets that event before
//!   the next run.
//! - In a list in order the first command itself waits for the start event, and the last one signals.
#![expect(unsafe_code, reason = "records commands on the caller's memory")]

use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal::support::command_list::{CommandList, PlannedOperation};
use wakegraph_hal::support::list_update::ReplacedParts;
use wakegraph_hal::{Command, CommandBufferDesc, Result};

use super::context::LevelZeroContext;
use super::driver_event::PooledEvent;
use super::event_pool::DriverEventKind;
use super::features::EngineGroup;
use super::list::{CommandEvents, DriverList};
use super::mutable::{self, MutableCommands};
use super::operation::LevelZeroOperation;
use super::options::Lowering;
use super::run_slot::{RunSlot, RunSlots, StampBuffer};
use super::start_event::StartEvent;
use super::sys::{self, DriverResult};

/// Closed lists, and the events with which they are ordered.
#[derive(Debug)]
pub(super) struct ListRecording {
    /// Of its runs. With `signals_done`, the lists signal the event of the first behind everything.
    /// Before the lists and events that the suffixes name.
    slots: RunSlots,
    signals_done: bool,
    pub(super) main: DriverList,
    pub(super) copies: Option<CopyList>,
    /// Lets the lists begin.
    pub(super) start: Option<StartEvent>,
    /// Those of the operations, by number.
    events: Vec<Option<PooledEvent>>,
    /// With profiling: the command of each operation that has times.
    timed: Option<Arc<[u32]>>,
    mutable: MutableCommands,
    context: Arc<LevelZeroContext>,
}

/// Which commands of a list in order take the events at its ends, in place of barriers.
#[derive(Clone, Copy, Default, Debug)]
struct ListEnds {
    /// The first one waits for the start event.
    first_waits: bool,
    /// The last one signals the event of the run.
    last_signals: bool,
}

impl ListEnds {
    /// `events` says whether the lists begin and end with events, and are in order.
    fn of(plan: &[PlannedOperation<'_, LevelZeroOperation>], events: bool, profiling: bool) -> Self {
        let takes_events = |planned: Option<&PlannedOperation<'_, LevelZeroOperation>>| {
            events && planned.is_some_and(|planned| planned.operation.takes_events())
        };
        // With profiling, a command signals an event of its own.
        Self {
            first_waits: takes_events(plan.first()),
            last_signals: takes_events(plan.last()) && !profiling,
        }
    }
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
        for planned in &plan {
            // Updates in place have left these to the next recording.
            if let LevelZeroOperation::Kernel(instance) = planned.operation
                && let Some(Command::Kernel(launch)) = commands.get(planned.command as usize)
            {
                instance.create(context, launch)?;
            }
        }
        let features = &context.features;
        let executes = context.lowering == Lowering::Execute;
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
            recording.start = Some(StartEvent::new(context)?);
        }
        recording.create_events(&plan, desc)?;
        let ends = ListEnds::of(&plan, in_order && executes, desc.profiling);
        if !ends.first_waits {
            recording.begin(executes)?;
        }
        for (index, planned) in plan.iter().enumerate() {
            let group = copy_group.filter(|group| goes_to_copies(planned, group));
            if let Some(copies) = recording.copies.as_mut().filter(|_| group.is_some()) {
                copies.operations.push(index as u32);
            } else if mutable {
                let id = mutable::next_command(context, &mut recording.main, commands, planned)?;
                recording.mutable.push(planned.command, id);
            }
            recording.append(&plan, index, group.is_some(), desc.in_order, ends)?;
            // The driver orders the commands of its own in-order lists.
            let is_barrier = matches!(planned.operation, LevelZeroOperation::Barrier);
            if desc.in_order && !in_order && !is_barrier {
                recording.main.barrier(CommandEvents::NONE)?;
            }
        }
        recording.end(executes, ends)?;
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
        let executes = context.lowering == Lowering::Execute;
        recording.begin(executes)?;
        append(&recording.main);
        recording.end(executes, ListEnds::default())?;
        Ok(recording)
    }

    fn of(context: &Arc<LevelZeroContext>, main: DriverList, profiling: bool) -> DriverResult<Self> {
        let executes = context.lowering == Lowering::Execute;
        let (mut slots, signals_done) = (RunSlots::default(), executes || profiling);
        if signals_done {
            slots.add(RunSlot::new(context, DriverEventKind::Plain)?);
        }
        Ok(Self {
            slots,
            signals_done,
            main,
            copies: None,
            start: executes.then(|| StartEvent::new(context)).transpose()?,
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
        let Some(start) = self.start.as_ref().map(StartEvent::raw) else { return Ok(()) };
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
        ends: ListEnds,
    ) -> Result<()> {
        let PlannedOperation { operation, after, .. } = &plan[index];
        let event_of = |index: usize| self.events[index].as_ref().map(PooledEvent::raw);
        let mut waits: SmallVec<[sys::ze_event_handle_t; 8]> = SmallVec::new();
        // A barrier behind an operation without an event waits for everything before it.
        let all_have_events = after.iter().all(|&earlier| event_of(earlier as usize).is_some());
        if !in_order && all_have_events {
            waits.extend(after.iter().filter_map(|&earlier| event_of(earlier as usize)));
        }
        if ends.first_waits && index == 0 {
            waits.extend(self.start.as_ref().map(StartEvent::raw));
        }
        let done = self.done().filter(|_| ends.last_signals && index + 1 == plan.len());
        let signal = event_of(index).or(done).unwrap_or(ptr::null_mut());
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
    fn end(&mut self, executes: bool, ends: ListEnds) -> DriverResult {
        if let Some(CopyList { list, done, .. }) = &mut self.copies {
            list.barrier(CommandEvents { after: &[], signal: done.raw() })?;
            list.close()?;
            let done = done.raw();
            self.main.barrier(CommandEvents { after: slice::from_ref(&done), signal: ptr::null_mut() })?;
        }
        let resets = if self.timed.is_none() { self.inner_events(executes) } else { SmallVec::new() };
        if !resets.is_empty() {
            self.main.barrier(CommandEvents::NONE)?;
            resets.iter().try_for_each(|event| self.main.reset_event(*event))?;
        }
        if let Some(done) = self.done().filter(|_| !ends.last_signals) {
            self.main.barrier(CommandEvents { after: &[], signal: done })?;
        }
        self.main.close()
    }

    /// The event that is signalled behind everything, if there is one.
    fn done(&self) -> Option<sys::ze_event_handle_t> {
        self.signals_done.then(|| self.slots.at(0).event.raw())
    }

    /// The events that a run signals, and resets when everything is over.
    fn inner_events(&self, executes: bool) -> SmallVec<[sys::ze_event_handle_t; 8]> {
        let copies = self.copies.as_ref().map(|copies| &copies.done);
        let events = self.events.iter().flatten().chain(copies).map(PooledEvent::raw);
        let start = self.start.as_ref().filter(|_| !executes);
        events.chain(start.map(StartEvent::raw)).collect()
    }

    /// Changes these commands in place, of which an update has replaced parts. No run is going on.
    /// False if that is not possible: then the recording has to be replaced.
    pub(super) fn change_in_place(
        &mut self,
        commands: &[Command],
        replaced: &ReplacedParts<LevelZeroOperation>,
    ) -> bool {
        let Some(launches) = mutable::changed_launches(commands, replaced) else { return false };
        mutable::change_in_place(&self.context, &self.mutable, &mut self.main, launches)
    }

    /// Whether no run is going on.
    #[inline]
    pub(super) fn is_idle(&self) -> DriverResult<bool> {
        self.slots.are_idle()
    }

    /// Whether nothing waits for the event that its lists signal. One that is idle as well is free.
    pub(super) fn has_no_waits(&self) -> bool {
        !self.signals_done || self.slots.at(0).has_no_waits()
    }

    /// The place of a slot for a run. The recording is free.
    #[inline]
    pub(super) fn take_slot(&mut self, kind: DriverEventKind) -> Result<usize> {
        if self.signals_done {
            self.slots.at(0).renew()?;
            if kind != DriverEventKind::Timed {
                return Ok(0);
            }
        }
        if let Some(place) = self.slots.free(kind)? {
            return Ok(place);
        }
        let new = self.new_slot(kind)?;
        Ok(self.slots.add(new))
    }

    pub(super) fn slot(&self, place: usize) -> &Arc<RunSlot> {
        self.slots.at(place)
    }

    fn new_slot(&self, kind: DriverEventKind) -> Result<RunSlot> {
        let context = &self.context;
        let mut slot = RunSlot::new(context, kind)?;
        let Some(done) = self.done() else { return Ok(slot) };
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
            let executes = context.lowering == Lowering::Execute;
            self.inner_events(executes).iter().try_for_each(|event| suffix.reset_event(*event))?;
        }
        suffix.barrier(CommandEvents { after: &[], signal: slot.event.raw() })?;
        suffix.close()?;
        slot.suffix = Some(suffix);
        Ok(slot)
    }

    /// Has everything go on that waits for the list of the copy engine, which could not be handed over.
    #[cold]
    pub(super) fn skip_copies(&self) {
        let Some(CopyList { done, operations, .. }) = &self.copies else { return };
        let events = operations.iter().filter_map(|&index| self.events[index as usize].as_ref());
        if let Err(failure) = events.chain([done]).try_for_each(PooledEvent::signal) {
            let error = self.context.error(failure);
            tracing::warn!(target: "wakegraph::level_zero", %error, "a run will not end");
        }
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
