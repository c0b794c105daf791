//! Reads values from the driver: information about platforms, devices, kernels and events.
#![expect(unsafe_code, reason = "calls the driver with places for its answers")]

use std::ffi::c_void;
use std::ptr;

use bytemuck::{AnyBitPattern, NoUninit};

use super::sys::{self, Core, OpenclFailure, call};

/// One of OpenCL's info functions, which all take the size and address of a place, and return the size needed.
type Ask<'a> = &'a dyn Fn(usize, *mut c_void, *mut usize) -> Result<(), OpenclFailure>;

/// A value of known size.
fn value<T: AnyBitPattern + NoUninit>(ask: Ask<'_>) -> Result<T, OpenclFailure> {
    let mut value = T::zeroed();
    ask(size_of::<T>(), (&raw mut value).cast(), ptr::null_mut())?;
    Ok(value)
}

/// As many values as there are.
fn values<T: AnyBitPattern + NoUninit>(ask: Ask<'_>) -> Result<Vec<T>, OpenclFailure> {
    let mut bytes = 0;
    ask(0, ptr::null_mut(), &raw mut bytes)?;
    let mut values = vec![T::zeroed(); bytes / size_of::<T>()];
    if !values.is_empty() {
        ask(values.len() * size_of::<T>(), values.as_mut_ptr().cast(), ptr::null_mut())?;
    }
    Ok(values)
}

/// A text, without its terminator and the spaces around it.
fn text(ask: Ask<'_>) -> Result<String, OpenclFailure> {
    let bytes = values::<u8>(ask)?;
    Ok(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n']).to_owned())
}

pub(super) fn platform_text(
    core: &Core,
    platform: sys::cl_platform_id,
    what: sys::cl_platform_info,
) -> Result<String, OpenclFailure> {
    text(&|size, place, needed| {
        // SAFETY: the platform is the library's own; `place` has room for `size` bytes.
        unsafe { call!(core, clGetPlatformInfo(platform, what, size, place, needed)) }
    })
}

/// Questions to a device.
#[derive(Clone, Copy)]
pub(super) struct DeviceQuery<'a> {
    pub(super) core: &'a Core,
    pub(super) device: sys::cl_device_id,
}

impl DeviceQuery<'_> {
    pub(super) fn text(self, what: sys::cl_device_info) -> Result<String, OpenclFailure> {
        text(&|size, place, needed| self.ask(what, size, place, needed))
    }

    pub(super) fn value<T: AnyBitPattern + NoUninit>(
        self,
        what: sys::cl_device_info,
    ) -> Result<T, OpenclFailure> {
        value(&|size, place, needed| self.ask(what, size, place, needed))
    }

    pub(super) fn values<T: AnyBitPattern + NoUninit>(
        self,
        what: sys::cl_device_info,
    ) -> Result<Vec<T>, OpenclFailure> {
        values(&|size, place, needed| self.ask(what, size, place, needed))
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

    fn ask(
        self,
        what: sys::cl_device_info,
        size: usize,
        place: *mut c_void,
        needed: *mut usize,
    ) -> Result<(), OpenclFailure> {
        // SAFETY: the device is the library's own; `place` has room for `size` bytes.
        unsafe { call!(self.core, clGetDeviceInfo(self.device, what, size, place, needed)) }
    }
}

/// The build log of a program on a device.
pub(super) fn build_log(core: &Core, program: sys::cl_program, device: sys::cl_device_id) -> String {
    let log = text(&|size, place, needed| {
        let what = sys::CL_PROGRAM_BUILD_LOG;
        // SAFETY: both objects are alive; `place` has room for `size` bytes.
        unsafe { call!(core, clGetProgramBuildInfo(program, device, what, size, place, needed)) }
    });
    log.unwrap_or_default()
}

/// Questions to a kernel.
#[derive(Clone, Copy)]
pub(super) struct KernelQuery<'a> {
    pub(super) core: &'a Core,
    pub(super) kernel: sys::cl_kernel,
}

impl KernelQuery<'_> {
    pub(super) fn arguments(self) -> Result<u32, OpenclFailure> {
        value(&|size, place, needed| {
            let what = sys::CL_KERNEL_NUM_ARGS;
            // SAFETY: the kernel is alive; `place` has room for `size` bytes.
            unsafe { call!(self.core, clGetKernelInfo(self.kernel, what, size, place, needed)) }
        })
    }

    /// The address space of an argument, if the program keeps such information.
    pub(super) fn argument_address(self, index: u32) -> Result<u32, OpenclFailure> {
        value(&|size, place, needed| {
            self.ask(index, sys::CL_KERNEL_ARG_ADDRESS_QUALIFIER, size, place, needed)
        })
    }

    /// The argument's type as the source names it.
    pub(super) fn argument_type(self, index: u32) -> Result<String, OpenclFailure> {
        text(&|size, place, needed| self.ask(index, sys::CL_KERNEL_ARG_TYPE_NAME, size, place, needed))
    }

    fn ask(
        self,
        index: u32,
        what: sys::cl_kernel_arg_info,
        size: usize,
        place: *mut c_void,
        needed: *mut usize,
    ) -> Result<(), OpenclFailure> {
        // SAFETY: the kernel is alive; `place` has room for `size` bytes.
        unsafe { call!(self.core, clGetKernelArgInfo(self.kernel, index, what, size, place, needed)) }
    }

    pub(super) fn work_group<T: AnyBitPattern + NoUninit>(
        self,
        device: sys::cl_device_id,
        what: sys::cl_kernel_work_group_info,
    ) -> Result<T, OpenclFailure> {
        value(&|size, place, needed| {
            // SAFETY: both objects are alive; `place` has room for `size` bytes.
            unsafe {
                call!(self.core, clGetKernelWorkGroupInfo(self.kernel, device, what, size, place, needed))
            }
        })
    }
}

/// The status of an event: positive while it is pending, 0 when complete, negative when failed.
pub(super) fn event_status(core: &Core, event: sys::cl_event) -> Result<sys::cl_int, OpenclFailure> {
    value(&|size, place, needed| {
        let what = sys::CL_EVENT_COMMAND_EXECUTION_STATUS;
        // SAFETY: the event is alive; `place` has room for `size` bytes.
        unsafe { call!(core, clGetEventInfo(event, what, size, place, needed)) }
    })
}

/// One of an event's times, in nanoseconds of the device's clock.
pub(super) fn event_time(
    core: &Core,
    event: sys::cl_event,
    what: sys::cl_profiling_info,
) -> Result<u64, OpenclFailure> {
    value(&|size, place, needed| {
        // SAFETY: the event is alive; `place` has room for `size` bytes.
        unsafe { call!(core, clGetEventProfilingInfo(event, what, size, place, needed)) }
    })
}
