//! The driver's codes as errors.

use super::sys::{self, Failure};
use crate::types::{Error, ErrorKind};

/// What fails in these ways is the device itself, whatever was asked of it.
pub(super) fn is_fatal(code: sys::cl_int) -> bool {
    /// NVIDIA's code for a fault of a kernel.
    const NVIDIA_FAULT: sys::cl_int = -9999;
    matches!(code, sys::CL_DEVICE_NOT_AVAILABLE | sys::CL_INVALID_COMMAND_QUEUE | NVIDIA_FAULT)
}

impl From<Failure> for Error {
    fn from(Failure { call, code }: Failure) -> Self {
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

/// A code's name and number.
pub(super) fn describe(code: sys::cl_int) -> String {
    let name = match code {
        sys::CL_DEVICE_NOT_FOUND => "CL_DEVICE_NOT_FOUND",
        sys::CL_DEVICE_NOT_AVAILABLE => "CL_DEVICE_NOT_AVAILABLE",
        sys::CL_COMPILER_NOT_AVAILABLE => "CL_COMPILER_NOT_AVAILABLE",
        sys::CL_MEM_OBJECT_ALLOCATION_FAILURE => "CL_MEM_OBJECT_ALLOCATION_FAILURE",
        sys::CL_OUT_OF_RESOURCES => "CL_OUT_OF_RESOURCES",
        sys::CL_OUT_OF_HOST_MEMORY => "CL_OUT_OF_HOST_MEMORY",
        sys::CL_PROFILING_INFO_NOT_AVAILABLE => "CL_PROFILING_INFO_NOT_AVAILABLE",
        sys::CL_MEM_COPY_OVERLAP => "CL_MEM_COPY_OVERLAP",
        sys::CL_BUILD_PROGRAM_FAILURE => "CL_BUILD_PROGRAM_FAILURE",
        sys::CL_MISALIGNED_SUB_BUFFER_OFFSET => "CL_MISALIGNED_SUB_BUFFER_OFFSET",
        sys::CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST => "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
        sys::CL_DEVICE_PARTITION_FAILED => "CL_DEVICE_PARTITION_FAILED",
        sys::CL_KERNEL_ARG_INFO_NOT_AVAILABLE => "CL_KERNEL_ARG_INFO_NOT_AVAILABLE",
        sys::CL_INVALID_VALUE => "CL_INVALID_VALUE",
        sys::CL_INVALID_PLATFORM => "CL_INVALID_PLATFORM",
        sys::CL_INVALID_DEVICE => "CL_INVALID_DEVICE",
        sys::CL_INVALID_CONTEXT => "CL_INVALID_CONTEXT",
        sys::CL_INVALID_QUEUE_PROPERTIES => "CL_INVALID_QUEUE_PROPERTIES",
        sys::CL_INVALID_COMMAND_QUEUE => "CL_INVALID_COMMAND_QUEUE",
        sys::CL_INVALID_HOST_PTR => "CL_INVALID_HOST_PTR",
        sys::CL_INVALID_MEM_OBJECT => "CL_INVALID_MEM_OBJECT",
        sys::CL_INVALID_BINARY => "CL_INVALID_BINARY",
        sys::CL_INVALID_BUILD_OPTIONS => "CL_INVALID_BUILD_OPTIONS",
        sys::CL_INVALID_PROGRAM => "CL_INVALID_PROGRAM",
        sys::CL_INVALID_PROGRAM_EXECUTABLE => "CL_INVALID_PROGRAM_EXECUTABLE",
        sys::CL_INVALID_KERNEL_NAME => "CL_INVALID_KERNEL_NAME",
        sys::CL_INVALID_KERNEL_DEFINITION => "CL_INVALID_KERNEL_DEFINITION",
        sys::CL_INVALID_KERNEL => "CL_INVALID_KERNEL",
        sys::CL_INVALID_ARG_INDEX => "CL_INVALID_ARG_INDEX",
        sys::CL_INVALID_ARG_VALUE => "CL_INVALID_ARG_VALUE",
        sys::CL_INVALID_ARG_SIZE => "CL_INVALID_ARG_SIZE",
        sys::CL_INVALID_KERNEL_ARGS => "CL_INVALID_KERNEL_ARGS",
        sys::CL_INVALID_WORK_DIMENSION => "CL_INVALID_WORK_DIMENSION",
        sys::CL_INVALID_WORK_GROUP_SIZE => "CL_INVALID_WORK_GROUP_SIZE",
        sys::CL_INVALID_WORK_ITEM_SIZE => "CL_INVALID_WORK_ITEM_SIZE",
        sys::CL_INVALID_GLOBAL_OFFSET => "CL_INVALID_GLOBAL_OFFSET",
        sys::CL_INVALID_EVENT_WAIT_LIST => "CL_INVALID_EVENT_WAIT_LIST",
        sys::CL_INVALID_EVENT => "CL_INVALID_EVENT",
        sys::CL_INVALID_OPERATION => "CL_INVALID_OPERATION",
        sys::CL_INVALID_BUFFER_SIZE => "CL_INVALID_BUFFER_SIZE",
        sys::CL_INVALID_GLOBAL_WORK_SIZE => "CL_INVALID_GLOBAL_WORK_SIZE",
        sys::CL_INVALID_PROPERTY => "CL_INVALID_PROPERTY",
        sys::CL_INVALID_DEVICE_PARTITION_COUNT => "CL_INVALID_DEVICE_PARTITION_COUNT",
        sys::CL_PLATFORM_NOT_FOUND_KHR => "CL_PLATFORM_NOT_FOUND_KHR",
        sys::CL_INVALID_COMMAND_BUFFER_KHR => "CL_INVALID_COMMAND_BUFFER_KHR",
        sys::CL_INVALID_SYNC_POINT_WAIT_LIST_KHR => "CL_INVALID_SYNC_POINT_WAIT_LIST_KHR",
        sys::CL_INCOMPATIBLE_COMMAND_QUEUE_KHR => "CL_INCOMPATIBLE_COMMAND_QUEUE_KHR",
        sys::CL_INVALID_MUTABLE_COMMAND_KHR => "CL_INVALID_MUTABLE_COMMAND_KHR",
        code => return format!("{code}, a code of the driver's own"),
    };
    format!("{name} ({code})")
}
