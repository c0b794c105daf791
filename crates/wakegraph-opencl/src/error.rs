//! The meaning of the driver's error codes.

use wakegraph_hal::{Error, ErrorKind};

use super::sys::{self, OpenclFailure};

/// Whether the code says that the device itself has failed, whatever was asked of it.
fn is_fatal(code: sys::cl_int) -> bool {
    /// NVIDIA's code for a fault of a kernel.
    const NVIDIA_FAULT: sys::cl_int = -9999;
    matches!(code, sys::CL_DEVICE_NOT_AVAILABLE | sys::CL_INVALID_COMMAND_QUEUE | NVIDIA_FAULT)
}

/// Whether the code, of a command or of a query about one, says that the device has failed.
pub(super) fn is_lost(code: sys::cl_int) -> bool {
    is_fatal(code) || code == sys::CL_OUT_OF_RESOURCES
}

impl From<OpenclFailure> for Error {
    fn from(OpenclFailure { call, code }: OpenclFailure) -> Self {
        if code == sys::MISSING_FUNCTION {
            return Error::new(ErrorKind::FeatureNotSupported, format!("this OpenCL library has no {call}"))
                .help("install an OpenCL loader for 1.2 or newer");
        }
        let kind = match code {
            sys::CL_MEM_OBJECT_ALLOCATION_FAILURE | sys::CL_OUT_OF_HOST_MEMORY => ErrorKind::OutOfMemory,
            sys::CL_INVALID_ARG_INDEX
            | sys::CL_INVALID_ARG_SIZE
            | sys::CL_INVALID_ARG_VALUE
            | sys::CL_INVALID_KERNEL_ARGS
            | sys::CL_INVALID_KERNEL_NAME => ErrorKind::InvalidArgument,
            sys::CL_INVALID_WORK_GROUP_SIZE
            | sys::CL_INVALID_WORK_ITEM_SIZE
            | sys::CL_INVALID_GLOBAL_WORK_SIZE
            | sys::CL_INVALID_GLOBAL_OFFSET
            | sys::CL_INVALID_WORK_DIMENSION => ErrorKind::InvalidSize,
            code if is_fatal(code) => ErrorKind::DeviceLost,
            _ => ErrorKind::Driver,
        };
        Error::new(kind, format!("{call} returned {}", describe(code)))
    }
}

macro_rules! names {
    ($($name:ident)+) => {
        fn name(code: sys::cl_int) -> Option<&'static str> {
            match code {
                $(sys::$name => Some(stringify!($name)),)+
                _ => None,
            }
        }
    };
}

names! {
    CL_DEVICE_NOT_FOUND CL_DEVICE_NOT_AVAILABLE CL_COMPILER_NOT_AVAILABLE
    CL_MEM_OBJECT_ALLOCATION_FAILURE CL_OUT_OF_RESOURCES CL_OUT_OF_HOST_MEMORY
    CL_PROFILING_INFO_NOT_AVAILABLE CL_MEM_COPY_OVERLAP CL_BUILD_PROGRAM_FAILURE
    CL_MISALIGNED_SUB_BUFFER_OFFSET CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
    CL_DEVICE_PARTITION_FAILED CL_KERNEL_ARG_INFO_NOT_AVAILABLE CL_INVALID_VALUE CL_INVALID_PLATFORM
    CL_INVALID_DEVICE CL_INVALID_CONTEXT CL_INVALID_QUEUE_PROPERTIES CL_INVALID_COMMAND_QUEUE
    CL_INVALID_HOST_PTR CL_INVALID_MEM_OBJECT CL_INVALID_BINARY CL_INVALID_BUILD_OPTIONS
    CL_INVALID_PROGRAM CL_INVALID_PROGRAM_EXECUTABLE CL_INVALID_KERNEL_NAME
    CL_INVALID_KERNEL_DEFINITION CL_INVALID_KERNEL CL_INVALID_ARG_INDEX CL_INVALID_ARG_VALUE
    CL_INVALID_ARG_SIZE CL_INVALID_KERNEL_ARGS CL_INVALID_WORK_DIMENSION CL_INVALID_WORK_GROUP_SIZE
    CL_INVALID_WORK_ITEM_SIZE CL_INVALID_GLOBAL_OFFSET CL_INVALID_EVENT_WAIT_LIST CL_INVALID_EVENT
    CL_INVALID_OPERATION CL_INVALID_BUFFER_SIZE CL_INVALID_GLOBAL_WORK_SIZE CL_INVALID_PROPERTY
    CL_INVALID_DEVICE_PARTITION_COUNT CL_PLATFORM_NOT_FOUND_KHR CL_INVALID_COMMAND_BUFFER_KHR
    CL_INVALID_SYNC_POINT_WAIT_LIST_KHR CL_INCOMPATIBLE_COMMAND_QUEUE_KHR
    CL_INVALID_MUTABLE_COMMAND_KHR
}

/// The code's name and number.
pub(super) fn describe(code: sys::cl_int) -> String {
    match name(code) {
        Some(name) => format!("{name} ({code})"),
        None => format!("{code}, a code of the driver's own"),
    }
}
