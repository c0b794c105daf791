//! Both forms of a command-buffer on the device, and updates of either.
//!
//! - A replay enqueues the list operation by operation. An update sets the arguments that change: a launch
//!   keeps the driver's kernel where possible.
//! - A recording is a `cl_khr_command_buffer`, for in-order queues. An update changes it in place by mutable
//!   dispatch where that is possible.
#![expect(unsafe_code, reason = "enqueues on the driver's queues, and calls its extension")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use smallvec::SmallVec;
use wakegraph_hal::support::command_list::{CommandList, LoweredCommand, PlannedOperation};
use wakegraph_hal::support::command_list::{ReplacedOperation, ReplacedParts, UpdateBackend};
use wakegraph_hal::{
    Command, CommandUpdate, KernelArg, KernelLaunch, LaunchBefore, QueueOrder, Range, Result,
};

use super::context::{DriverQueue, OpenclContext};
use super::events::{EnqueueTimes, StartedWork, TimesWanted};
use super::kernel::{OpenclArgument, OpenclKernel, is_plain, is_pointer};
use super::lower::{OpenclOperation, lower};
use super::sys::{self, DriverResult, Event, OpenclFailure, Owned, adopt_event, call, get};

/// Enqueue of a list: the queue, the events before it, and the times that it keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayTarget<'a> {
    pub(super) context: &'a OpenclContext,
    pub(super) queue: &'a DriverQueue,
    pub(super) wait: &'a [sys::cl_event],
    /// The events among them that every command has to wait for, not only the first.
    pub(super) foreign: &'a [sys::cl_event],
    pub(super) wanted: TimesWanted,
}

impl ReplayTarget<'_> {
    /// Enqueues everything.
    ///
    /// # Errors
    /// That of the first call; nothing was enqueued then. A later one's is in
    /// [`StartedWork::failure`].
    ///
    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue); the events are alive.
    pub(super) unsafe fn enqueue(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        match self.queue.order {
            // SAFETY: passed on to the caller.
            QueueOrder::InOrder => unsafe { self.enqueue_in_order(list) },
            // SAFETY: passed on to the caller.
            QueueOrder::OutOfOrder => unsafe { self.enqueue_graph(list) },
        }
    }

    /// On an in-order queue the first operation waits and the last has the event.
    unsafe fn enqueue_in_order(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, foreign, wanted } = self;
        let all = wanted == TimesWanted::Commands;
        let operations = (0..)
            .zip(&list.commands)
            .flat_map(|(number, command)| command.operations().map(move |operation| (number, operation)));
        // In order, a marker does nothing but for its event.
        let mut rest = operations
            .filter(|(_, operation)| all || !matches!(operation, OpenclOperation::Marker))
            .peekable();
        let mut times = EnqueueTimes::new(wanted, list.commands.len());
        let mut started = false;
        while let Some((command, operation)) = rest.next() {
            let last = rest.peek().is_none();
            let wants_event = last || all || (wanted == TimesWanted::Whole && !started);
            let wait = if started { foreign } else { wait };
            // SAFETY: passed on to the caller.
            match unsafe { operation.enqueue(context, queue, wait, wants_event) } {
                Ok(event) if last => {
                    times.last = Some(command);
                    return Ok(StartedWork { event, times, ..StartedWork::default() });
                }
                Ok(event) => event.into_iter().for_each(|event| times.add(command, event)),
                Err(failure) if !started => return Err(failure),
                Err(failure) => {
                    let failure = Some(context.error(failure).at_command(command));
                    return Ok(StartedWork { event: queue.marker(&[])?, failure, ..StartedWork::default() });
                }
            }
            started = true;
        }
        Ok(StartedWork { event: queue.marker(wait)?, ..StartedWork::default() })
    }

    /// On an out-of-order queue every operation has an event, and waits for those that it follows.
    unsafe fn enqueue_graph(self, list: &CommandList<OpenclOperation>) -> DriverResult<StartedWork> {
        let ReplayTarget { context, queue, wait, wanted, .. } = self;
        let mut started: Vec<StartedOperation> = Vec::with_capacity(list.commands.len());
        let mut failure = None;
        for PlannedOperation { operation, after, command } in list.plan() {
            let events: SmallVec<[sys::cl_event; 8]> =
                after.iter().map(|&earlier| started[earlier as usize].event.raw()).collect();
            let wait = if events.is_empty() { wait } else { &events };
            let is_timed = !(matches!(operation, OpenclOperation::Marker) && wait.is_empty());
            let enqueued = if !is_timed {
                // Without a wait list it would wait for everything in the queue.
                context.completed_event()
            } else {
                // SAFETY: passed on to the caller.
                let enqueued = unsafe { operation.enqueue(context, queue, wait, true) };
                enqueued.and_then(|event| event.ok_or(sys::missing("clEnqueue*")))
            };
            match enqueued {
                Ok(event) => started.push(StartedOperation { event, command, is_followed: false, is_timed }),
                Err(error) if started.is_empty() => return Err(error),
                Err(error) => {
                    failure = Some(context.error(error).at_command(command));
                    break;
                }
            }
            after.iter().for_each(|&earlier| started[earlier as usize].is_followed = true);
        }
        let ends = started.iter().filter(|operation| !operation.is_followed);
        let ends: SmallVec<[sys::cl_event; 8]> = ends.map(|operation| operation.event.raw()).collect();
        let event = match if ends.is_empty() { wait } else { &ends } {
            [] => Some(context.completed_event()?),
            ends => queue.marker(ends)?,
        };
        let mut times = EnqueueTimes::new(wanted, list.commands.len());
        let timed = started.into_iter().filter(|operation| operation.is_timed);
        timed.for_each(|operation| times.add(operation.command, operation.event));
        Ok(StartedWork { event, failure, times, ..StartedWork::default() })
    }
}

/// An operation on an out-of-order queue.
struct StartedOperation {
    event: Owned<Event>,
    command: u32,
    is_followed: bool,
    /// Whether its event is that of a command of the driver's.
    is_timed: bool,
}

/// A command-buffer of the driver.
#[derive(Debug)]
pub(super) struct OpenclRecording {
    raw: NonNull<c_void>,
    pub(super) context: Arc<OpenclContext>,
    /// It can be enqueued again, behind its last run, while that is pending.
    pub(super) repeats: bool,
    /// The handle by which each command can be changed; null for one that cannot be.
    pub(super) handles: Vec<sys::cl_mutable_command_khr>,
    /// The fields that can be changed; 0 in a recording that is not for updates.
    pub(super) mutable: sys::cl_bitfield,
}

// SAFETY: the driver's command-buffers may be used on any thread. Enqueues and updates of one are
// behind its owner's lock or exclusive reference (`queue.rs`).
unsafe impl Send for OpenclRecording {}
// SAFETY: as for `Send`.
unsafe impl Sync for OpenclRecording {}

impl OpenclRecording {
    /// Whether the device can record every operation of the list.
    pub(super) fn can_hold(context: &OpenclContext, list: &CommandList<OpenclOperation>) -> bool {
        let mut operations = list.commands.iter().flat_map(|command| &command.lowered.operations);
        context.features.recording.is_some() && operations.all(OpenclOperation::can_be_recorded)
    }

    /// Records the list.
    pub(super) fn new(
        context: &Arc<OpenclContext>,
        list: &CommandList<OpenclOperation>,
        updatable: bool,
    ) -> DriverResult<Self> {
        let features = context.features.recording.ok_or(sys::missing("clCreateCommandBufferKHR"))?;
        let mutable = if updatable { features.mutable } else { 0 };
        let flag = |set: bool, flag| if set { flag } else { 0 };
        let flags = flag(mutable != 0, sys::CL_COMMAND_BUFFER_MUTABLE_KHR)
            | flag(features.simultaneous, sys::CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR);
        let properties = [sys::CL_COMMAND_BUFFER_FLAGS_KHR, flags, 0];
        let properties = if flags == 0 { ptr::null() } else { properties.as_ptr() };
        let (extensions, queue) = (&context.platform.extensions, context.service()?.raw());
        // SAFETY: one queue, which is alive; the list of properties ends in 0.
        let raw = unsafe { get!(extensions, clCreateCommandBufferKHR(1, &raw const queue, properties)) }?;
        let (repeats, handles) = (features.repeats, Vec::with_capacity(list.commands.len()));
        let mut recording = Self { raw, context: Arc::clone(context), repeats, handles, mutable };
        for command in &list.commands {
            let (mut handle, mut count) = (ptr::null_mut(), 0);
            // On an in-order queue the operations follow each other as they are recorded.
            for operation in command.operations() {
                // SAFETY: the recording is alive and not finalized; enqueues of it are the caller's.
                handle = unsafe { operation.record(context, raw.as_ptr(), mutable) }?;
                count += 1;
            }
            recording.handles.push(if count == 1 { handle } else { ptr::null_mut() });
        }
        // SAFETY: the recording is alive and not finalized.
        unsafe { call!(extensions, clFinalizeCommandBufferKHR(raw.as_ptr())) }?;
        Ok(recording)
    }

    pub(super) fn raw(&self) -> sys::cl_command_buffer_khr {
        self.raw.as_ptr()
    }

    /// Whether it can be enqueued on `queue`: one like that for which it was recorded.
    pub(super) fn fits(&self, queue: &DriverQueue) -> bool {
        queue.order == QueueOrder::InOrder && !queue.profiling
    }

    /// Changes these commands in place, of which an update has replaced parts. False if that is not possible,
    /// or if the driver refuses it: then the recording may have been changed in part, and has to be replaced.
    pub(super) fn change_in_place(
        &self,
        commands: &[Command],
        replaced: &ReplacedParts<OpenclOperation>,
    ) -> bool {
        let Some(launches) = changed_launches(commands, replaced) else { return false };
        let changes = launches
            .into_iter()
            .map(|(index, (before, launch))| DispatchValues::new(self, index, &before, launch));
        let Some(changes) = changes.collect::<Option<Vec<_>>>() else { return false };
        match self.change(&changes) {
            Ok(()) => true,
            Err(OpenclFailure { call, code }) => {
                tracing::debug!(target: "wakegraph::opencl", call, code, "an update in place was refused");
                false
            }
        }
    }

    fn change(&self, changes: &[DispatchValues<'_>]) -> DriverResult {
        let args: Vec<_> = changes.iter().map(DispatchValues::arguments).collect();
        let configs = changes.iter().zip(&args).map(|(values, args)| values.config(self.mutable, args));
        let configs: Vec<_> = configs.collect();
        let types = vec![sys::CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR; configs.len()];
        let mut list: Vec<*const c_void> =
            configs.iter().map(|config| ptr::from_ref(config).cast()).collect();
        let (count, types, list) = (configs.len() as sys::cl_uint, types.as_ptr(), list.as_mut_ptr());
        let extensions = &self.context.platform.extensions;
        // SAFETY: the recording is finalized and not pending; the configurations and what they point to
        // live until the end of the call.
        unsafe { call!(extensions, clUpdateMutableCommandsKHR(self.raw(), count, types, list)) }
    }

    /// # Safety
    /// As for [`CommandBuffer::enqueue`](wakegraph_hal::CommandBuffer::enqueue); the events in `wait` are
    /// alive, and it [fits](Self::fits) the queue.
    pub(super) unsafe fn enqueue(
        &self,
        queue: &DriverQueue,
        wait: &[sys::cl_event],
    ) -> DriverResult<Owned<Event>> {
        let (extensions, (waits, wait)) = (&self.context.platform.extensions, sys::list(wait));
        let (mut queue, mut event) = (queue.raw(), ptr::null_mut());
        let (queues, place) = (&raw mut queue, &raw mut event);
        // SAFETY: the recording is finalized; else as the caller vouched.
        unsafe { call!(extensions, clEnqueueCommandBufferKHR(1, queues, self.raw(), waits, wait, place)) }?;
        adopt_event(self.context.core, event)
    }
}

impl Drop for OpenclRecording {
    fn drop(&mut self) {
        let extensions = &self.context.platform.extensions;
        // SAFETY: the reference is this object's own, and given up once.
        let released = unsafe { call!(extensions, clReleaseCommandBufferKHR(self.raw())) };
        sys::report(released, "a recording could not be released");
    }
}

/// The launches that have kept their kernel, each with the range that it had before. `None` if anything else
/// has changed.
fn changed_launches<'a>(
    commands: &'a [Command],
    replaced: &ReplacedParts<OpenclOperation>,
) -> Option<BTreeMap<usize, (Range, &'a KernelLaunch)>> {
    let mut launches = BTreeMap::new();
    for (index, part) in replaced.0.iter().rev() {
        let (ReplacedOperation::Launch(before), Command::Kernel(launch)) = (part, &commands[*index]) else {
            return None;
        };
        let (range, _) = launches.entry(*index).or_insert((launch.range, &**launch));
        match before {
            LaunchBefore::Argument(..) => {}
            LaunchBefore::Range(before) => *range = **before,
            LaunchBefore::Launch(before) => *range = before.range,
        }
    }
    Some(launches)
}

/// The new values of a recorded launch, in places to which the driver can be pointed.
struct DispatchValues<'a> {
    handle: sys::cl_mutable_command_khr,
    dimensions: u32,
    args: Vec<OpenclArgument<'a>>,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

impl<'a> DispatchValues<'a> {
    /// The values, if the device can change the launch so.
    fn new(recording: &OpenclRecording, index: usize, before: &Range, new: &'a KernelLaunch) -> Option<Self> {
        let handle = recording.handles.get(index).copied().filter(|handle| !handle.is_null())?;
        let now = &new.range;
        if before.local_size().is_some() && now.local_size().is_none() {
            // The extension cannot leave the work-group size to the device again.
            return None;
        }
        let needed = sys::CL_MUTABLE_DISPATCH_ARGUMENTS_KHR | changed_fields(before, now);
        if before.dimensions() != now.dimensions() || needed & !recording.mutable != 0 {
            return None;
        }
        let kernel = OpenclKernel::of(&*new.kernel, &recording.context).ok()?;
        // Parts of buffers would have to live longer than this call and the recording.
        let args = kernel.plain_arguments(&new.args)?;
        Some(Self {
            handle,
            dimensions: now.dimensions() as u32,
            args: args.into_iter().map(|(_, argument)| argument).collect(),
            offset: now.offset(),
            global: now.global_size(),
            local: now.local_size(),
        })
    }

    /// The arguments by value, and those by address.
    fn arguments(&self) -> [Vec<sys::cl_mutable_dispatch_arg_khr>; 2] {
        let mut lists = [Vec::new(), Vec::new()];
        for (arg_index, argument) in (0..).zip(&self.args) {
            let (arg_size, arg_value) = argument.value();
            lists[usize::from(is_pointer(argument))].push(sys::cl_mutable_dispatch_arg_khr {
                arg_index,
                arg_size,
                arg_value,
            });
        }
        lists
    }

    fn config(
        &self,
        mutable: sys::cl_bitfield,
        [by_value, by_address]: &[Vec<sys::cl_mutable_dispatch_arg_khr>; 2],
    ) -> sys::cl_mutable_dispatch_config_khr {
        // A field that the device cannot change may not be given, and has not changed.
        let given = |bit, place: *const usize| if mutable & bit == 0 { ptr::null() } else { place };
        let local = self.local.as_ref().map_or(ptr::null(), |local| local.as_ptr());
        let ((num_args, arg_list), (num_svm_args, arg_svm_list)) =
            (sys::list(by_value), sys::list(by_address));
        sys::cl_mutable_dispatch_config_khr {
            command: self.handle,
            num_args,
            num_svm_args,
            num_exec_infos: 0,
            work_dim: self.dimensions,
            arg_list,
            arg_svm_list,
            exec_info_list: ptr::null(),
            global_work_offset: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR, self.offset.as_ptr()),
            global_work_size: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR, self.global.as_ptr()),
            local_work_size: given(sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR, local),
        }
    }
}

fn changed_fields(before: &Range, now: &Range) -> sys::cl_bitfield {
    let field = |changed: bool, bit| if changed { bit } else { 0 };
    field(before.global_size() != now.global_size(), sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR)
        | field(before.local_size() != now.local_size(), sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR)
        | field(before.offset() != now.offset(), sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR)
}

impl UpdateBackend for OpenclContext {
    type Operation = OpenclOperation;

    fn lower(self: &Arc<Self>, command: &Command) -> Result<LoweredCommand<OpenclOperation>> {
        lower(self, command)
    }

    /// Parts of buffers would have to live as long as the driver's kernel.
    fn takes_arguments<'a>(
        self: &Arc<Self>,
        operation: &OpenclOperation,
        mut args: impl Iterator<Item = &'a KernelArg>,
    ) -> bool {
        matches!(operation, OpenclOperation::Kernel(launch) if launch.instance.is_plain())
            && args.all(|arg| is_plain(self, arg))
    }

    fn set_launch(
        self: &Arc<Self>,
        operation: &mut OpenclOperation,
        launch: &KernelLaunch,
        update: Option<&CommandUpdate>,
    ) -> Result<()> {
        let OpenclOperation::Kernel(operation) = operation else { return Ok(()) };
        let kernel = OpenclKernel::of(&*launch.kernel, self)?;
        if update.is_none_or(CommandUpdate::changes_range) {
            (operation.local, operation.range) = (kernel.local_size(&launch.range)?, launch.range);
        }
        let set = |index| kernel.set_argument(&operation.instance, index, &launch.args[index]);
        match update {
            Some(update) => update.args.iter().try_for_each(|(index, _)| set(*index)),
            None => (0..launch.args.len()).try_for_each(set),
        }
    }
}
