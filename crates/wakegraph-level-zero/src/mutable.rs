//! Changes of a closed list in place, where the driver has mutable lists.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::ffi::c_void;
use std::sync::Arc;
use std::{ptr, slice};

use smallvec::SmallVec;
use wakegraph_hal::support::command_list::PlannedOperation;
use wakegraph_hal::support::list_update::{ReplacedOperation, ReplacedParts};
use wakegraph_hal::{Command, Kernel, KernelLaunch, Result};

use super::context::LevelZeroContext;
use super::kernel::{LaunchShape, LevelZeroArgument, LevelZeroKernel, LevelZeroKernelInstance};
use super::list::DriverList;
use super::operation::LevelZeroOperation;
use super::sys::{self, DriverResult, LevelZeroFailure, call, get};

const ARGUMENTS: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS;
const COUNT: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT;
const SIZE: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE;
const OFFSET: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET;
const KERNEL: sys::ze_mutable_command_exp_flags_t = sys::ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION;

/// The commands of a list that can be changed in place, by number.
#[derive(Debug, Default)]
pub(super) struct MutableCommands(Vec<Option<MutableCommand>>);

/// A launch in a list.
#[derive(Debug)]
pub(super) struct MutableCommand {
    id: u64,
    /// What can be changed.
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

impl MutableCommands {
    /// Takes note of an operation of this command.
    pub(super) fn push(&mut self, command: u32, mutable: Option<MutableCommand>) {
        self.0.resize_with(command as usize, || None);
        self.0.push(mutable);
    }

    fn get(&self, index: usize) -> Option<&MutableCommand> {
        self.0.get(index)?.as_ref()
    }
}

/// Prepares the next command of the list for changes, if it is a launch.
pub(super) fn next_command(
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
pub(super) struct ChangedLaunch<'a> {
    /// The number of the command.
    index: usize,
    old: &'a KernelLaunch,
    new: &'a KernelLaunch,
}

/// What an update has changed, if that is only launches, each of which a list may hold once.
pub(super) fn changed_launches<'a>(
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
    fn new(context: &LevelZeroContext, mutable: &MutableCommands, change: ChangedLaunch<'a>) -> Option<Self> {
        let ChangedLaunch { index, old, new } = change;
        let command = mutable.get(index)?;
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

/// Changes launches of a list in place, which is not in use. False if that is not possible, or if the
/// driver refuses it: then the list may have been changed in part, and has to be replaced.
pub(super) fn change_in_place(
    context: &LevelZeroContext,
    mutable: &MutableCommands,
    list: &mut DriverList,
    launches: SmallVec<[ChangedLaunch<'_>; 1]>,
) -> bool {
    let changes = launches.into_iter().map(|launch| LaunchMutation::new(context, mutable, launch));
    let Some(changes) = changes.collect::<Option<SmallVec<[_; 1]>>>() else { return false };
    match change(context, list, &changes) {
        Ok(()) => true,
        Err(LevelZeroFailure { call, code }) => {
            tracing::debug!(target: "wakegraph::level_zero", call, code, "an update in place was refused");
            false
        }
    }
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
