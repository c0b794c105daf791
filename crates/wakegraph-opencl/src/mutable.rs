//! Changes of a recording in place, by mutable dispatch.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;

use wakegraph_hal::support::list_update::{ReplacedOperation, ReplacedParts};
use wakegraph_hal::{Command, KernelLaunch, LaunchBefore, Range};

use super::kernel::{OpenclArgument, OpenclKernel, is_pointer};
use super::operation::OpenclOperation;
use super::recording::OpenclRecording;
use super::sys::{self, DriverResult, OpenclFailure, call};

/// Changes the recording of these commands in place, of which an update has replaced parts. False if that is
/// not possible, or if the driver refuses it: then the recording may have been changed in part, and has to
/// be replaced.
pub(super) fn change_in_place(
    recording: &OpenclRecording,
    commands: &[Command],
    replaced: &ReplacedParts<OpenclOperation>,
) -> bool {
    let Some(launches) = changed_launches(commands, replaced) else { return false };
    let changes = launches
        .into_iter()
        .map(|(index, (before, launch))| DispatchValues::new(recording, index, &before, launch));
    let Some(changes) = changes.collect::<Option<Vec<_>>>() else { return false };
    match change(recording, &changes) {
        Ok(()) => true,
        Err(OpenclFailure { call, code }) => {
            tracing::debug!(target: "wakegraph::opencl", call, code, "an update in place was refused");
            false
        }
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
            offset: now.global_offset(),
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
        mutable: sys::cl_mutable_dispatch_fields_khr,
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

fn changed_fields(before: &Range, now: &Range) -> sys::cl_mutable_dispatch_fields_khr {
    let field = |changed: bool, bit| if changed { bit } else { 0 };
    field(before.global_size() != now.global_size(), sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR)
        | field(before.local_size() != now.local_size(), sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR)
        | field(before.global_offset() != now.global_offset(), sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR)
}

fn change(recording: &OpenclRecording, changes: &[DispatchValues<'_>]) -> DriverResult {
    let args: Vec<_> = changes.iter().map(DispatchValues::arguments).collect();
    let configs = changes.iter().zip(&args).map(|(values, args)| values.config(recording.mutable, args));
    let configs: Vec<_> = configs.collect();
    let types = vec![sys::CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR; configs.len()];
    let mut list: Vec<*const c_void> = configs.iter().map(|config| ptr::from_ref(config).cast()).collect();
    let (count, types, list) = (configs.len() as sys::cl_uint, types.as_ptr(), list.as_mut_ptr());
    let extensions = &recording.context.platform.extensions;
    // SAFETY: the recording is finalized and not pending; the configurations and what they point to
    // live until the end of the call.
    unsafe { call!(extensions, clUpdateMutableCommandsKHR(recording.raw(), count, types, list)) }
}
