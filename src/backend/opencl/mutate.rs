//! Updates of a recording in place, by mutable dispatch: for launches of the same kernel, with the
//! fields that the device can change.
#![expect(unsafe_code, reason = "calls the driver's extension")]

use std::ptr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::kernel::{Argument, OpenclKernel};
use super::record::{Handle, Recording};
use super::sys::{self, Failure, call};
use crate::hal::KernelLaunch;
use crate::types::Range;

/// A launch that an update has changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    /// The step that it is.
    pub(super) step: usize,
    pub(super) old: &'a KernelLaunch,
    pub(super) new: &'a KernelLaunch,
}

/// The values of one change, in places that the driver can be pointed to.
struct Values<'a> {
    handle: Handle,
    dimensions: u32,
    args: Vec<Argument<'a>>,
    offset: [usize; 3],
    global: [usize; 3],
    local: Option<[usize; 3]>,
}

/// Changes the recording in place, all of it or nothing. False where that cannot be done: then it
/// has to be made anew.
pub(super) fn change(recording: &Recording, changes: &[Change<'_>]) -> bool {
    let values: Option<Vec<_>> = changes.iter().map(|change| values(recording, change)).collect();
    values.is_some_and(|values| match apply(recording, &values) {
        Ok(()) => true,
        Err(Failure { call, code }) => {
            tracing::debug!(target: "wakegraph::opencl", call, code, "an update in place was refused");
            false
        }
    })
}

fn values<'a>(recording: &Recording, change: &Change<'a>) -> Option<Values<'a>> {
    let Change { step, old, new } = *change;
    let handle = recording.handles.get(step).copied().filter(|handle| !handle.is_null())?;
    let (before, now) = (&old.range, &new.range);
    // A work-group size that is left to the device now cannot be said.
    let local = match (before.local_size(), now.local_size()) {
        (None, None) => None,
        (_, Some(local)) => Some(local),
        (Some(_), None) => return None,
    };
    let same_kernel = ptr::addr_eq(Arc::as_ptr(&old.kernel), Arc::as_ptr(&new.kernel));
    let needed = sys::CL_MUTABLE_DISPATCH_ARGUMENTS_KHR | needed_fields(before, now);
    if !same_kernel || before.dimensions() != now.dimensions() || needed & !recording.mutable != 0 {
        return None;
    }
    let mut parts = SmallVec::new();
    let kernel = OpenclKernel::of(&*new.kernel, recording.shared()).ok()?;
    let args = kernel.arguments(recording.shared(), &new.args, &mut parts).ok()?;
    let args = args.into_iter().map(|(_, argument)| argument).collect();
    // Parts of buffers would have to outlive this call, and the recording.
    parts.is_empty().then_some(Values {
        handle,
        dimensions: now.dimensions() as u32,
        args,
        offset: now.global_offset(),
        global: now.global_size(),
        local,
    })
}

fn needed_fields(before: &Range, now: &Range) -> sys::cl_mutable_dispatch_fields_khr {
    let field = |changed: bool, bit| if changed { bit } else { 0 };
    field(before.global_size() != now.global_size(), sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR)
        | field(before.local_size() != now.local_size(), sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR)
        | field(before.global_offset() != now.global_offset(), sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR)
}

fn apply(recording: &Recording, values: &[Values<'_>]) -> Result<(), Failure> {
    let args: Vec<_> = values.iter().map(arguments).collect();
    let configs: Vec<_> =
        values.iter().zip(&args).map(|(values, args)| config(recording, values, args)).collect();
    let types = vec![sys::CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR; configs.len()];
    let mut list: Vec<_> = configs.iter().map(|config| ptr::from_ref(config).cast()).collect();
    let (count, types, list) = (configs.len() as sys::cl_uint, types.as_ptr(), list.as_mut_ptr());
    let extensions = &recording.shared().platform.extensions;
    // SAFETY: the recording is finalized and not pending; the configurations, and what they point
    // to, outlive the call.
    unsafe { call!(extensions, clUpdateMutableCommandsKHR(recording.raw(), count, types, list)) }
}

/// Arguments by value, and those by address.
type Arguments = [Vec<sys::cl_mutable_dispatch_arg_khr>; 2];

fn arguments(values: &Values<'_>) -> Arguments {
    let mut lists = Arguments::default();
    for (arg_index, argument) in (0..).zip(&values.args) {
        let (list, arg_size, arg_value) = match argument {
            Argument::Length(len) => (0, size_of::<u64>(), ptr::from_ref(len).cast()),
            Argument::Bytes(bytes) => (0, bytes.len(), bytes.as_ptr().cast()),
            Argument::Local(bytes) => (0, *bytes, ptr::null()),
            Argument::Pointer(address) => (1, 0, ptr::with_exposed_provenance(*address)),
        };
        lists[list].push(sys::cl_mutable_dispatch_arg_khr { arg_index, arg_size, arg_value });
    }
    lists
}

fn config(
    recording: &Recording,
    values: &Values<'_>,
    [by_value, by_address]: &Arguments,
) -> sys::cl_mutable_dispatch_config_khr {
    // A field that the device cannot change may not be given, and has not changed.
    let given = |bit, place: *const usize| if recording.mutable & bit == 0 { ptr::null() } else { place };
    sys::cl_mutable_dispatch_config_khr {
        command: values.handle,
        num_args: by_value.len() as sys::cl_uint,
        num_svm_args: by_address.len() as sys::cl_uint,
        num_exec_infos: 0,
        work_dim: values.dimensions,
        arg_list: super::op::list(by_value).1,
        arg_svm_list: super::op::list(by_address).1,
        exec_info_list: ptr::null(),
        global_work_offset: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR, values.offset.as_ptr()),
        global_work_size: given(sys::CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR, values.global.as_ptr()),
        local_work_size: given(
            sys::CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR,
            values.local.as_ref().map_or(ptr::null(), |local| local.as_ptr()),
        ),
    }
}
