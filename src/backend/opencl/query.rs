//! Reads values from the driver: information about platforms, devices, kernels and events.
#![expect(unsafe_code, reason = "calls the driver with places for its answers")]

use std::ffi::c_void;
use std::ptr;

use bytemuck::{AnyBitPattern, NoUninit};

use super::sys::{self, Core, DriverResult, call};

/// An info function of OpenCL. Each takes the size and address of a place, and returns the size needed.
type Info<'a> = &'a dyn Fn(usize, *mut c_void, *mut usize) -> DriverResult;

/// A value of known size.
fn value<T: AnyBitPattern + NoUninit>(info: Info<'_>) -> DriverResult<T> {
    let mut value = T::zeroed();
    info(size_of::<T>(), (&raw mut value).cast(), ptr::null_mut())?;
    Ok(value)
}

/// As many values as there are.
fn values<T: AnyBitPattern + NoUninit>(info: Info<'_>) -> DriverResult<Vec<T>> {
    let mut bytes = 0;
    info(0, ptr::null_mut(), &raw mut bytes)?;
    let mut values = vec![T::zeroed(); bytes / size_of::<T>()];
    if !values.is_empty() {
        info(values.len() * size_of::<T>(), values.as_mut_ptr().cast(), ptr::null_mut())?;
    }
    Ok(values)
}

/// A text, without its terminator and the spaces around it.
fn text(info: Info<'_>) -> DriverResult<String> {
    let bytes = values::<u8>(info)?;
    Ok(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n']).to_owned())
}

/// An info function, with its arguments before those for the answer: live objects, and the question.
macro_rules! info {
    ($core:expr, $function:ident($($argument:expr),*)) => {
        &|size, place, needed| {
            // SAFETY: the objects are alive, and `place` has room for `size` bytes.
            unsafe { call!($core, $function($($argument,)* size, place, needed)) }
        }
    };
}

pub(super) fn platform_text(
    core: &Core,
    platform: sys::cl_platform_id,
    what: sys::cl_platform_info,
) -> DriverResult<String> {
    text(info!(core, clGetPlatformInfo(platform, what)))
}

/// Questions to a device.
#[derive(Clone, Copy)]
pub(super) struct DeviceQuery<'a> {
    pub(super) core: &'a Core,
    pub(super) device: sys::cl_device_id,
}

impl DeviceQuery<'_> {
    pub(super) fn text(self, what: sys::cl_device_info) -> DriverResult<String> {
        text(info!(self.core, clGetDeviceInfo(self.device, what)))
    }

    pub(super) fn value<T: AnyBitPattern + NoUninit>(self, what: sys::cl_device_info) -> DriverResult<T> {
        value(info!(self.core, clGetDeviceInfo(self.device, what)))
    }

    pub(super) fn values<T: AnyBitPattern + NoUninit>(
        self,
        what: sys::cl_device_info,
    ) -> DriverResult<Vec<T>> {
        values(info!(self.core, clGetDeviceInfo(self.device, what)))
    }

    /// The version of an extension, as OpenCL packs it; `None` without the extension, and 0 from a
    /// driver that does not report versions.
    pub(super) fn extension(self, name: &str) -> Option<sys::cl_version> {
        /// A version in four bytes, then a name in 64.
        const ENTRY: usize = 4 + sys::CL_NAME_VERSION_MAX_NAME_SIZE;
        let versions = self.values::<u8>(sys::CL_DEVICE_EXTENSIONS_WITH_VERSION).unwrap_or_default();
        let versioned = versions.chunks_exact(ENTRY).find_map(|entry| {
            let (version, entry_name) = entry.split_first_chunk::<4>()?;
            let entry_name = entry_name.split(|&byte| byte == 0).next()?;
            (entry_name == name.as_bytes()).then(|| sys::cl_version::from_ne_bytes(*version))
        });
        versioned.or_else(|| {
            let names = self.text(sys::CL_DEVICE_EXTENSIONS).ok()?;
            names.split_whitespace().any(|other| other == name).then_some(0)
        })
    }
}

/// The build log of a program on a device.
pub(super) fn build_log(core: &Core, program: sys::cl_program, device: sys::cl_device_id) -> String {
    text(info!(core, clGetProgramBuildInfo(program, device, sys::CL_PROGRAM_BUILD_LOG))).unwrap_or_default()
}

/// Questions to a kernel.
#[derive(Clone, Copy)]
pub(super) struct KernelQuery<'a> {
    pub(super) core: &'a Core,
    pub(super) kernel: sys::cl_kernel,
}

impl KernelQuery<'_> {
    pub(super) fn arguments(self) -> DriverResult<u32> {
        value(info!(self.core, clGetKernelInfo(self.kernel, sys::CL_KERNEL_NUM_ARGS)))
    }

    /// The address space of an argument, if the program keeps such information.
    pub(super) fn argument_address(self, index: u32) -> DriverResult<u32> {
        let what = sys::CL_KERNEL_ARG_ADDRESS_QUALIFIER;
        value(info!(self.core, clGetKernelArgInfo(self.kernel, index, what)))
    }

    /// The argument's type as the source names it.
    pub(super) fn argument_type(self, index: u32) -> DriverResult<String> {
        text(info!(self.core, clGetKernelArgInfo(self.kernel, index, sys::CL_KERNEL_ARG_TYPE_NAME)))
    }

    pub(super) fn work_group<T: AnyBitPattern + NoUninit>(
        self,
        device: sys::cl_device_id,
        what: sys::cl_kernel_work_group_info,
    ) -> DriverResult<T> {
        value(info!(self.core, clGetKernelWorkGroupInfo(self.kernel, device, what)))
    }
}

/// The devices of a context.
pub(super) fn context_devices(core: &Core, context: sys::cl_context) -> DriverResult<Vec<usize>> {
    values(info!(core, clGetContextInfo(context, sys::CL_CONTEXT_DEVICES)))
}

/// The address of a queue's context.
pub(super) fn queue_context(core: &Core, queue: sys::cl_command_queue) -> DriverResult<usize> {
    value(info!(core, clGetCommandQueueInfo(queue, sys::CL_QUEUE_CONTEXT)))
}

/// A property of a memory object.
pub(super) fn memory_info<T: AnyBitPattern + NoUninit>(
    core: &Core,
    memory: sys::cl_mem,
    what: sys::cl_mem_info,
) -> DriverResult<T> {
    value(info!(core, clGetMemObjectInfo(memory, what)))
}

/// The address of an object that an event belongs to: its context, or its queue.
pub(super) fn event_owner(
    core: &Core,
    event: sys::cl_event,
    what: sys::cl_event_info,
) -> DriverResult<usize> {
    value(info!(core, clGetEventInfo(event, what)))
}

/// The status of an event: positive while it is pending, 0 when complete, negative when failed.
pub(super) fn event_status(core: &Core, event: sys::cl_event) -> DriverResult<sys::cl_int> {
    value(info!(core, clGetEventInfo(event, sys::CL_EVENT_COMMAND_EXECUTION_STATUS)))
}

/// One of an event's times, in nanoseconds of the device's clock.
pub(super) fn event_time(
    core: &Core,
    event: sys::cl_event,
    what: sys::cl_profiling_info,
) -> DriverResult<u64> {
    value(info!(core, clGetEventProfilingInfo(event, what)))
}
