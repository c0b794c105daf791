//! Reads values from the driver: information about platforms, devices, kernels, events and others.
#![expect(unsafe_code, reason = "calls the driver with places for its answers")]

use std::ffi::c_void;
use std::ptr;

use bytemuck::{AnyBitPattern, NoUninit};

use super::error::is_lost;
use super::sys::{self, Core, DriverResult, call};

/// Answers questions about an object.
pub(super) trait Query {
    /// Calls the driver's function, which writes the answer to a place of this size, and the size that the
    /// answer needs to `needed`. Both places may be null.
    fn ask(&self, what: sys::cl_uint, size: usize, place: *mut c_void, needed: *mut usize) -> DriverResult;

    /// A value of known size.
    fn value<T: AnyBitPattern + NoUninit>(&self, what: sys::cl_uint) -> DriverResult<T> {
        let mut value = T::zeroed();
        self.ask(what, size_of::<T>(), (&raw mut value).cast(), ptr::null_mut())?;
        Ok(value)
    }

    /// As many values as there are.
    fn values<T: AnyBitPattern + NoUninit>(&self, what: sys::cl_uint) -> DriverResult<Vec<T>> {
        let mut bytes = 0;
        self.ask(what, 0, ptr::null_mut(), &raw mut bytes)?;
        let mut values = vec![T::zeroed(); bytes / size_of::<T>()];
        if !values.is_empty() {
            let size = values.len() * size_of::<T>();
            self.ask(what, size, values.as_mut_ptr().cast(), ptr::null_mut())?;
        }
        Ok(values)
    }

    /// A text, without its terminator and the spaces around it.
    fn text(&self, what: sys::cl_uint) -> DriverResult<String> {
        let bytes = self.values::<u8>(what)?;
        Ok(String::from_utf8_lossy(&bytes).trim_matches(['\0', ' ', '\n']).to_owned())
    }
}

impl<F> Query for F
where
    F: Fn(sys::cl_uint, usize, *mut c_void, *mut usize) -> DriverResult,
{
    fn ask(&self, what: sys::cl_uint, size: usize, place: *mut c_void, needed: *mut usize) -> DriverResult {
        self(what, size, place, needed)
    }
}

/// Declares queries: each with the driver's function, and the objects that are asked, which are alive.
macro_rules! queries {
    ($($name:ident: $function:ident($($object:ident: $type:ident),+);)+) => {
        $(
            pub(super) fn $name(core: &Core, $($object: sys::$type),+) -> impl Query {
                move |what, size, place, needed| {
                    // SAFETY: the objects are alive, and `place` has room for `size` bytes.
                    unsafe { call!(core, $function($($object,)+ what, size, place, needed)) }
                }
            }
        )+
    };
}

queries! {
    platform: clGetPlatformInfo(platform: cl_platform_id);
    device: clGetDeviceInfo(device: cl_device_id);
    context: clGetContextInfo(context: cl_context);
    queue: clGetCommandQueueInfo(queue: cl_command_queue);
    memory: clGetMemObjectInfo(memory: cl_mem);
    program_on_device: clGetProgramBuildInfo(program: cl_program, device: cl_device_id);
    kernel: clGetKernelInfo(kernel: cl_kernel);
    kernel_on_device: clGetKernelWorkGroupInfo(kernel: cl_kernel, device: cl_device_id);
    kernel_argument: clGetKernelArgInfo(kernel: cl_kernel, index: cl_uint);
    event: clGetEventInfo(event: cl_event);
    event_times: clGetEventProfilingInfo(event: cl_event);
}

/// How an event ended, once it is over: 0, or an error code.
///
/// # Errors
/// Of the query. It says nothing about the work, which may still run.
pub(super) fn event_outcome(core: &Core, raw: sys::cl_event) -> DriverResult<Option<sys::cl_int>> {
    match event(core, raw).value(sys::CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(status) => Ok(Some(status).filter(|&status| status <= sys::CL_SUCCESS)),
        Err(failure) if is_lost(failure.code) => Ok(Some(failure.code)),
        Err(failure) => Err(failure),
    }
}

/// The version of an extension of a device, as OpenCL packs it; `None` without the extension, and 0 from a
/// driver that does not report versions.
pub(super) fn extension(device: &impl Query, name: &str) -> Option<sys::cl_version> {
    /// A version in four bytes, then a name in 64.
    const ENTRY: usize = 4 + sys::CL_NAME_VERSION_MAX_NAME_SIZE;
    let versions = device.values::<u8>(sys::CL_DEVICE_EXTENSIONS_WITH_VERSION).unwrap_or_default();
    let versioned = versions.chunks_exact(ENTRY).find_map(|entry| {
        let (version, entry_name) = entry.split_first_chunk::<4>()?;
        let entry_name = entry_name.split(|&byte| byte == 0).next()?;
        (entry_name == name.as_bytes()).then(|| sys::cl_version::from_ne_bytes(*version))
    });
    versioned.or_else(|| {
        let names = device.text(sys::CL_DEVICE_EXTENSIONS).ok()?;
        names.split_whitespace().any(|other| other == name).then_some(0)
    })
}
