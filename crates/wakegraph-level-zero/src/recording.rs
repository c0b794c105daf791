//! Recordings: the commands of a command-buffer as closed lists of the driver.
//!
//! A recording runs once at a time, and is not handed over again before that run has ended, because
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
//! - When everything has ended, the run resets all these events, but for the start event of the
//!   lowering by execution. Then the main list signals the event of the first slot, where it has to:
//!   with that lowering, and for the suffix ([`RunSlot::suffix`]). The host resets that event before
//!   the next run.
//! - In a list in order the first command itself waits for the start event, and the last one signals.
//!
//! Where the driver has mutable lists, an update changes launches in place.
#![expect(unsafe_code, reason = "records commands on the caller's memory, and changes them")]

use std::ffi::c_void;
use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal::support::command_list::{After, CommandList, PlannedOperation};
use wakegraph_hal::support::command_list::{ReplacedOperation, ReplacedParts};
use wakegraph_hal::{Command, CommandBufferDesc, Kernel, KernelLaunch, Result};

use super::context::{DriverEventKind, LevelZeroContext, Lowering};
use super::driver::EngineGroup;
use super::events::{PooledEvent, RunSlot, RunSlots, StampBuffer, StartEvent};
use super::kernel::{LaunchShape, LevelZeroArgument, LevelZeroKernel, LevelZeroKernelInstance};
use super::lower::{CommandEvents, DriverList, LevelZeroOperation, lower};
use super::sys::{self, DriverResult, LevelZeroFailure, call, get};

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
    /// Events of the operations, by number.
    events: Vec<Option<PooledEvent>>,
    /// With profiling: the command of each operation that has times.
    timed: Option<Arc<[u32]>>,
    /// The commands of the main list that can be changed in place, by number.
    mutable: Vec<Option<MutableCommand>>,
    context: Arc<LevelZeroContext>,
}

/// Commands of a list in order that take the events at its ends, in place of barriers.
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
                let id = next_command(context, &mut recording.main, commands, planned)?;
                recording.mutable.resize_with(planned.command as usize, || None);
                recording.mutable.push(id);
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

    /// Records the commands that `append` appends to a list, which is in order if the driver has such lists.
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
            mutable: Vec::new(),
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

    /// The events that a run signals, and resets when everything has ended.
    fn inner_events(&self, executes: bool) -> SmallVec<[sys::ze_event_handle_t; 8]> {
        let copies = self.copies.as_ref().map(|copies| &copies.done);
        let events = self.events.iter().flatten().chain(copies).map(PooledEvent::raw);
        let start = self.start.as_ref().filter(|_| !executes);
        events.chain(start.map(StartEvent::raw)).collect()
    }

    /// Changes these commands in place, of which an update has replaced parts. No run is going on.
    /// False if that is not possible, or if the driver refuses it: then the lists may have been changed in
    /// part, and the recording has to be replaced.
    pub(super) fn change_in_place(
        &mut self,
        commands: &[Command],
        replaced: &ReplacedParts<LevelZeroOperation>,
    ) -> bool {
        let Some(launches) = changed_launches(commands, replaced) else { return false };
        let (context, mutable) = (&self.context, &self.mutable);
        let changes = launches.into_iter().map(|launch| LaunchMutation::new(context, mutable, launch));
        let Some(changes) = changes.collect::<Option<SmallVec<[_; 1]>>>() else { return false };
        match change(context, &mut self.main, &changes) {
            Ok(()) => true,
            Err(LevelZeroFailure { call, code }) => {
                tracing::debug!(target: "wakegraph::level_zero", call, code, "an update in place was refused");
                false
            }
        }
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

/// A recording that runs once, outside command-buffers.
#[derive(Debug)]
pub(super) struct SingleRun {
    /// Before what it uses.
    pub(super) recording: ListRecording,
    _list: CommandList<LevelZeroOperation>,
    _command: Option<Arc<Command>>,
}

impl SingleRun {
    pub(super) fn new(recording: ListRecording) -> Box<Self> {
        Box::new(Self { recording, _list: CommandList::default(), _command: None })
    }

    pub(super) fn of_command(context: &Arc<LevelZeroContext>, command: &Arc<Command>) -> Result<Box<Self>> {
        let mut list = CommandList::default();
        list.push(lower(context, command)?, After::new());
        let (commands, desc) = (std::slice::from_ref(&**command), CommandBufferDesc::new().in_order(true));
        let recording = ListRecording::new(context, commands, &list, desc)?;
        Ok(Box::new(Self { recording, _list: list, _command: Some(Arc::clone(command)) }))
    }
}

const ARGUMENTS: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS;
const COUNT: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT;
const SIZE: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE;
const OFFSET: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET;
const KERNEL: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION;

/// A launch in a list.
#[derive(Debug)]
struct MutableCommand {
    id: u64,
    /// Flags of the values that can be changed.
    flags: sys::ze_mutable_command_exp_flags_t,
    /// The kernel that was recorded, and where the kernel can be changed the others, each as the
    /// driver knows it.
    kernels: SmallVec<[(Arc<dyn Kernel>, DriverKernel); 1]>,
}

/// A kernel's handle. It is alive for as long as the kernel beside it and the instance.
#[derive(Debug)]
struct DriverKernel {
    raw: sys::ze_kernel_handle_t,
    _instance: Option<Arc<LevelZeroKernelInstance>>,
}

// SAFETY: a handle is a name. Calls with it are made by the owner of the list.
unsafe impl Send for DriverKernel {}
// SAFETY: as for `Send`.
unsafe impl Sync for DriverKernel {}

/// Prepares the next command of the list for changes, if it is a launch.
fn next_command(
    context: &LevelZeroContext,
    list: &mut DriverList,
    commands: &[Command],
    planned: &PlannedOperation<'_, LevelZeroOperation>,
) -> Result<Option<MutableCommand>> {
    let command = commands.get(planned.command as usize);
    let (Some(Command::Kernel(launch)), LevelZeroOperation::Kernel(instance)) = (command, planned.operation)
    else {
        return Ok(None);
    };
    let Some(instance) = instance.get() else { return Ok(None) };
    let mut flags = context.features.mutable & (ARGUMENTS | COUNT | SIZE | OFFSET);
    let own = DriverKernel { raw: instance.raw(), _instance: Some(Arc::clone(instance)) };
    let mut kernels: SmallVec<[_; 1]> = SmallVec::new();
    kernels.push((Arc::clone(&launch.kernel), own));
    if !launch.alternatives.is_empty() && context.features.mutable & KERNEL != 0 {
        flags |= KERNEL;
        for other in &launch.alternatives {
            if kernels.iter().all(|(known, _)| !is_same(known, other)) {
                let raw = LevelZeroKernel::of(&**other, context)?.raw();
                kernels.push((Arc::clone(other), DriverKernel { raw, _instance: None }));
            }
        }
    }
    let desc =
        sys::ze_mutable_command_id_exp_desc_t { flags, ..sys::ze_mutable_command_id_exp_desc_t::new() };
    let (api, raw, desc) = (context.api, list.raw(), &raw const desc);
    let id = if flags & KERNEL == 0 {
        // SAFETY: the list is alive and not closed.
        unsafe { get!(api, zeCommandListGetNextCommandIdExp(raw, desc)) }
    } else {
        let mut handles: SmallVec<[_; 4]> = kernels.iter().map(|(_, kernel)| kernel.raw).collect();
        let (count, handles) = (handles.len() as u32, handles.as_mut_ptr());
        // SAFETY: as above, and the kernels are alive.
        unsafe { get!(api, zeCommandListGetNextCommandIdWithKernelsExp(raw, desc, count, handles)) }
    };
    Ok(Some(MutableCommand { id: id?, flags, kernels }))
}

fn is_same(a: &Arc<dyn Kernel>, b: &Arc<dyn Kernel>) -> bool {
    ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// The change of one launch.
#[derive(Clone, Copy, Debug)]
struct ChangedLaunch<'a> {
    /// The number of the command.
    index: usize,
    old: &'a KernelLaunch,
    new: &'a KernelLaunch,
}

/// The changes of an update, if they are only of launches, each of which a list may hold once.
fn changed_launches<'a>(
    commands: &'a [Command],
    replaced: &'a ReplacedParts<LevelZeroOperation>,
) -> Option<SmallVec<[ChangedLaunch<'a>; 1]>> {
    let launches = replaced.0.iter().map(|(index, part)| match (part, &commands[*index]) {
        (ReplacedOperation::Command(old), Command::Kernel(new)) => match &old.0 {
            Command::Kernel(old) => Some(ChangedLaunch { index: *index, old, new }),
            _ => None,
        },
        // A recording leaves out disabled commands.
        _ => None,
    });
    let mut launches: SmallVec<[_; 1]> = launches.collect::<Option<_>>()?;
    // Of several changes of one launch the first has replaced what is recorded.
    launches.sort_by_key(|launch| launch.index);
    launches.dedup_by_key(|launch| launch.index);
    Some(launches)
}

/// The change of a recorded launch to another one.
#[derive(Debug)]
struct LaunchMutation<'a> {
    id: u64,
    /// The handle of another kernel.
    kernel: Option<sys::ze_kernel_handle_t>,
    /// The arguments that change, by index.
    arguments: SmallVec<[(u32, LevelZeroArgument<'a>); 4]>,
    /// The new range, if it or the kernel changes.
    shape: Option<LaunchShape>,
    changes_size: bool,
    changes_count: bool,
    changes_offset: bool,
}

impl<'a> LaunchMutation<'a> {
    /// The change, if the driver can make it in place.
    fn new(
        context: &LevelZeroContext,
        mutable: &[Option<MutableCommand>],
        change: ChangedLaunch<'a>,
    ) -> Option<Self> {
        let ChangedLaunch { index, old, new } = change;
        let command = mutable.get(index)?.as_ref()?;
        let (before, now) = (
            LevelZeroKernel::of(&*old.kernel, context).ok()?,
            LevelZeroKernel::of(&*new.kernel, context).ok()?,
        );
        let is_other = !is_same(&old.kernel, &new.kernel);
        let known = command.kernels.iter().find(|(known, _)| is_same(known, &new.kernel));
        let raw = known.map(|(_, kernel)| kernel.raw);
        let kernel = if is_other { Some(raw?) } else { None };
        let arguments = now.arguments(&new.args).ok()?;
        let known = before.arguments(&old.args).ok()?;
        let differs = |index: usize, argument: &LevelZeroArgument<'_>| {
            is_other || known.get(index).is_none_or(|(_, known)| bytes(known) != bytes(argument))
        };
        let arguments = arguments.into_iter().enumerate();
        let arguments = arguments.filter(|(index, (_, argument))| differs(*index, argument));
        let arguments: SmallVec<_> =
            arguments.map(|(index, (_, argument))| (index as u32, argument)).collect();
        let mut change = Self {
            id: command.id,
            kernel,
            arguments,
            shape: None,
            changes_size: false,
            changes_count: false,
            changes_offset: false,
        };
        if is_other || old.range != new.range {
            let (shape, former) = (now.shape(&new.range).ok()?, before.shape(&old.range).ok()?);
            let counts = |shape: &LaunchShape| {
                let groups = shape.groups;
                [groups.groupCountX, groups.groupCountY, groups.groupCountZ]
            };
            change.changes_size = is_other || shape.group_size != former.group_size;
            change.changes_count = is_other || counts(&shape) != counts(&former);
            change.changes_offset = shape.offset != former.offset || (is_other && shape.offset != [0; 3]);
            change.shape = Some(shape);
        }
        (change.needed() & !command.flags == 0).then_some(change)
    }

    fn needed(&self) -> sys::ze_mutable_command_exp_flags_t {
        let flag = |is_needed: bool, flag| if is_needed { flag } else { 0 };
        flag(self.kernel.is_some(), KERNEL)
            | flag(!self.arguments.is_empty(), ARGUMENTS)
            | flag(self.changes_size, SIZE)
            | flag(self.changes_count, COUNT)
            | flag(self.changes_offset, OFFSET)
    }
}

/// The bytes that the driver copies; local memory has a size only.
fn bytes<'a>(argument: &'a LevelZeroArgument<'_>) -> (usize, Option<&'a [u8]>) {
    let (len, value) = argument.value();
    // SAFETY: a value is that long.
    (len, (!value.is_null()).then(|| unsafe { slice::from_raw_parts(value.cast(), len) }))
}

/// Structures for the driver: one or two in most updates.
type Descriptions<T> = SmallVec<[T; 2]>;

/// Changes a list that is not in use. After a failure its commands are unknown.
fn change(context: &LevelZeroContext, list: &mut DriverList, changes: &[LaunchMutation<'_>]) -> DriverResult {
    let (api, raw) = (context.api, list.raw());
    let kernels = changes.iter().filter_map(|change| Some((change.id, change.kernel?)));
    let (mut ids, mut kernels): (Vec<_>, Vec<_>) = kernels.unzip();
    if !ids.is_empty() {
        let (count, ids, kernels) = (ids.len() as u32, ids.as_mut_ptr(), kernels.as_mut_ptr());
        // SAFETY: the list is idle, and the kernels are alive.
        unsafe { call!(api, zeCommandListUpdateMutableCommandKernelsExp(raw, count, ids, kernels)) }?;
    }
    let changes_kernels = !ids.is_empty();
    let mut chain = Chain { next: ptr::null() };
    let mut arguments: Descriptions<_> = SmallVec::new();
    for change in changes {
        arguments.extend(change.arguments.iter().map(|(argument_index, argument)| {
            let (size, value) = argument.value();
            sys::ze_mutable_kernel_argument_exp_desc_t {
                commandId: change.id,
                argIndex: *argument_index,
                argSize: size,
                pArgValue: value,
                ..sys::ze_mutable_kernel_argument_exp_desc_t::new()
            }
        }));
    }
    let shapes = || changes.iter().filter_map(|change| Some((change, change.shape.as_ref()?)));
    let sizes = shapes().filter(|(change, _)| change.changes_size).map(|(change, shape)| {
        let [x, y, z] = shape.group_size;
        sys::ze_mutable_group_size_exp_desc_t {
            commandId: change.id,
            groupSizeX: x,
            groupSizeY: y,
            groupSizeZ: z,
            ..sys::ze_mutable_group_size_exp_desc_t::new()
        }
    });
    let counts = shapes().filter(|(change, _)| change.changes_count).map(|(change, shape)| {
        sys::ze_mutable_group_count_exp_desc_t {
            commandId: change.id,
            pGroupCount: &raw const shape.groups,
            ..sys::ze_mutable_group_count_exp_desc_t::new()
        }
    });
    let offsets = shapes().filter(|(change, _)| change.changes_offset).map(|(change, shape)| {
        let [x, y, z] = shape.offset;
        sys::ze_mutable_global_offset_exp_desc_t {
            commandId: change.id,
            offsetX: x,
            offsetY: y,
            offsetZ: z,
            ..sys::ze_mutable_global_offset_exp_desc_t::new()
        }
    });
    let (mut sizes, mut counts, mut offsets): (Descriptions<_>, Descriptions<_>, Descriptions<_>) =
        (sizes.collect(), counts.collect(), offsets.collect());
    arguments.iter_mut().for_each(|desc| chain.add(&raw const *desc, &mut desc.pNext));
    sizes.iter_mut().for_each(|desc| chain.add(&raw const *desc, &mut desc.pNext));
    counts.iter_mut().for_each(|desc| chain.add(&raw const *desc, &mut desc.pNext));
    offsets.iter_mut().for_each(|desc| chain.add(&raw const *desc, &mut desc.pNext));
    if !chain.next.is_null() {
        let desc = sys::ze_mutable_commands_exp_desc_t {
            pNext: chain.next,
            ..sys::ze_mutable_commands_exp_desc_t::new()
        };
        // SAFETY: the list is idle; the structures and what they point to live until the end of the call.
        unsafe { call!(api, zeCommandListUpdateMutableCommandsExp(raw, &raw const desc)) }?;
    } else if !changes_kernels {
        // The list stays closed.
        return Ok(());
    }
    list.close()
}

/// Structures, each of which names the one before.
struct Chain {
    next: *const c_void,
}

impl Chain {
    fn add<T>(&mut self, desc: *const T, next: &mut *const c_void) {
        *next = self.next;
        self.next = desc.cast();
    }
}
