//! OpenCL's types and numbers, as far as this backend uses them, under the vendor's names.
//!
//! The specification and its public headers define them. A test compares them with `opencl-sys`.
#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    reason = "the vendor's names, documented in its specification; tests use more of them than the backend"
)]

use std::ffi::{c_char, c_void};

pub(crate) type cl_int = i32;
pub(crate) type cl_uint = u32;
pub(crate) type cl_ulong = u64;
pub(crate) type cl_bool = cl_uint;
pub(crate) type cl_bitfield = cl_ulong;
/// The elements of lists of properties, which a zero ends.
pub(crate) type cl_properties = cl_ulong;
pub(crate) type cl_context_properties = isize;
pub(crate) type cl_device_partition_property = isize;

/// Handles: pointers to what only the driver knows.
macro_rules! handles {
    ($($handle:ident)+) => { $(pub(crate) type $handle = *mut c_void;)+ };
}

handles! {
    cl_command_buffer_khr
    cl_command_queue
    cl_context
    cl_device_id
    cl_event
    cl_kernel
    cl_mem
    cl_mutable_command_khr
    cl_platform_id
    cl_program
}

pub(crate) type cl_sync_point_khr = cl_uint;

/// Tells the application about errors of a context.
pub(crate) type ContextCallback = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);
/// Tells the application that a program has been built.
pub(crate) type ProgramCallback = unsafe extern "C" fn(cl_program, *mut c_void);
/// Tells the application that an event has reached a state.
pub(crate) type EventCallback = unsafe extern "C" fn(cl_event, cl_int, *mut c_void);

/// Characters of a name in a list of names with versions.
pub(crate) const CL_NAME_VERSION_MAX_NAME_SIZE: usize = 64;

/// Declares numbers by their types.
macro_rules! numbers {
    ($($(#[$attribute:meta])* $type:ident { $($name:ident = $value:expr,)+ })+) => {
        $($(pub(crate) const $name: $type = $value;)+)+

        #[cfg(test)]
        pub(super) const NUMBERS: &[(&str, i64, i64)] = &[
            $($((stringify!($name), $name as i64, opencl_sys::$name as i64),)+)+
        ];
    };
}

numbers! {
    /// Results of calls, and states of commands.
    cl_int {
        CL_QUEUED = 3,
        CL_COMPLETE = 0,
        CL_SUCCESS = 0,
        CL_DEVICE_NOT_FOUND = -1,
        CL_DEVICE_NOT_AVAILABLE = -2,
        CL_COMPILER_NOT_AVAILABLE = -3,
        CL_MEM_OBJECT_ALLOCATION_FAILURE = -4,
        CL_OUT_OF_RESOURCES = -5,
        CL_OUT_OF_HOST_MEMORY = -6,
        CL_PROFILING_INFO_NOT_AVAILABLE = -7,
        CL_MEM_COPY_OVERLAP = -8,
        CL_BUILD_PROGRAM_FAILURE = -11,
        CL_MISALIGNED_SUB_BUFFER_OFFSET = -13,
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST = -14,
        CL_DEVICE_PARTITION_FAILED = -18,
        CL_KERNEL_ARG_INFO_NOT_AVAILABLE = -19,
        CL_INVALID_VALUE = -30,
        CL_INVALID_PLATFORM = -32,
        CL_INVALID_DEVICE = -33,
        CL_INVALID_CONTEXT = -34,
        CL_INVALID_QUEUE_PROPERTIES = -35,
        CL_INVALID_COMMAND_QUEUE = -36,
        CL_INVALID_HOST_PTR = -37,
        CL_INVALID_MEM_OBJECT = -38,
        CL_INVALID_BINARY = -42,
        CL_INVALID_BUILD_OPTIONS = -43,
        CL_INVALID_PROGRAM = -44,
        CL_INVALID_PROGRAM_EXECUTABLE = -45,
        CL_INVALID_KERNEL_NAME = -46,
        CL_INVALID_KERNEL_DEFINITION = -47,
        CL_INVALID_KERNEL = -48,
        CL_INVALID_ARG_INDEX = -49,
        CL_INVALID_ARG_VALUE = -50,
        CL_INVALID_ARG_SIZE = -51,
        CL_INVALID_KERNEL_ARGS = -52,
        CL_INVALID_WORK_DIMENSION = -53,
        CL_INVALID_WORK_GROUP_SIZE = -54,
        CL_INVALID_WORK_ITEM_SIZE = -55,
        CL_INVALID_GLOBAL_OFFSET = -56,
        CL_INVALID_EVENT_WAIT_LIST = -57,
        CL_INVALID_EVENT = -58,
        CL_INVALID_OPERATION = -59,
        CL_INVALID_BUFFER_SIZE = -61,
        CL_INVALID_GLOBAL_WORK_SIZE = -63,
        CL_INVALID_PROPERTY = -64,
        CL_INVALID_DEVICE_PARTITION_COUNT = -68,
        CL_PLATFORM_NOT_FOUND_KHR = -1001,
        CL_INVALID_COMMAND_BUFFER_KHR = -1138,
        CL_INVALID_SYNC_POINT_WAIT_LIST_KHR = -1139,
        CL_INCOMPATIBLE_COMMAND_QUEUE_KHR = -1140,
        CL_INVALID_MUTABLE_COMMAND_KHR = -1141,
    }
    /// Names of what is asked for, kinds and booleans.
    cl_uint {
        CL_FALSE = 0,
        CL_TRUE = 1,
        CL_BUFFER_CREATE_TYPE_REGION = 0x1220,
        CL_STRUCTURE_TYPE_MUTABLE_DISPATCH_CONFIG_KHR = 0,
        CL_QUEUE_CONTEXT = 0x1090,
        CL_QUEUE_PROPERTIES = 0x1093,
        CL_COMMAND_MARKER = 0x11fe,
        CL_COMMAND_SVM_MIGRATE_MEM = 0x120e,
        CL_COMMAND_MIGRATEMEM_INTEL = 0x4206,
        CL_CONTEXT_DEVICES = 0x1081,
        CL_DEVICE_TYPE = 0x1000,
        CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
        CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
        CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
        CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010,
        CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019,
        CL_DEVICE_GLOBAL_MEM_SIZE = 0x101f,
        CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
        CL_DEVICE_AVAILABLE = 0x1027,
        CL_DEVICE_QUEUE_ON_HOST_PROPERTIES = 0x102a,
        CL_DEVICE_NAME = 0x102b,
        CL_DEVICE_VENDOR = 0x102c,
        CL_DRIVER_VERSION = 0x102d,
        CL_DEVICE_VERSION = 0x102f,
        CL_DEVICE_EXTENSIONS = 0x1030,
        CL_DEVICE_SVM_CAPABILITIES = 0x1053,
        CL_DEVICE_IL_VERSION = 0x105b,
        CL_DEVICE_EXTENSIONS_WITH_VERSION = 0x1060,
        CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR = 0x12a9,
        CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR = 0x12aa,
        CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR = 0x12b0,
        CL_EVENT_COMMAND_QUEUE = 0x11d0,
        CL_EVENT_COMMAND_TYPE = 0x11d1,
        CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11d3,
        CL_EVENT_CONTEXT = 0x11d4,
        CL_KERNEL_ARG_ADDRESS_GLOBAL = 0x119b,
        CL_KERNEL_ARG_ADDRESS_LOCAL = 0x119c,
        CL_KERNEL_ARG_ADDRESS_CONSTANT = 0x119d,
        CL_KERNEL_ARG_ADDRESS_PRIVATE = 0x119e,
        CL_KERNEL_ARG_ADDRESS_QUALIFIER = 0x1196,
        CL_KERNEL_ARG_TYPE_NAME = 0x1198,
        CL_KERNEL_ARG_TYPE_QUALIFIER = 0x1199,
        CL_KERNEL_NUM_ARGS = 0x1191,
        CL_KERNEL_WORK_GROUP_SIZE = 0x11b0,
        CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11b1,
        CL_KERNEL_LOCAL_MEM_SIZE = 0x11b2,
        CL_MEM_TYPE = 0x1100,
        CL_MEM_FLAGS = 0x1101,
        CL_MEM_SIZE = 0x1102,
        CL_MEM_CONTEXT = 0x1106,
        CL_MEM_ASSOCIATED_MEMOBJECT = 0x1107,
        CL_MEM_OFFSET = 0x1108,
        CL_MEM_ALLOC_TYPE_INTEL = 0x419a,
        CL_MEM_OBJECT_BUFFER = 0x10f0,
        CL_PLATFORM_VERSION = 0x0901,
        CL_PLATFORM_NAME = 0x0902,
        CL_PLATFORM_ICD_SUFFIX_KHR = 0x0920,
        CL_PROFILING_COMMAND_QUEUED = 0x1280,
        CL_PROFILING_COMMAND_START = 0x1282,
        CL_PROFILING_COMMAND_END = 0x1283,
        CL_PROGRAM_BUILD_LOG = 0x1183,
        CL_QUEUE_PRIORITY_HIGH_KHR = 1 << 0,
        CL_QUEUE_PRIORITY_MED_KHR = 1 << 1,
        CL_QUEUE_PRIORITY_LOW_KHR = 1 << 2,
        CL_MEM_TYPE_UNKNOWN_INTEL = 0x4196,
    }
    /// Flags and properties.
    cl_bitfield {
        CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR = 1 << 0,
        CL_COMMAND_BUFFER_MUTABLE_KHR = 1 << 1,
        CL_COMMAND_BUFFER_FLAGS_KHR = 0x1293,
        CL_MUTABLE_DISPATCH_UPDATABLE_FIELDS_KHR = 0x12b1,
        CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE = 1 << 0,
        CL_QUEUE_PROFILING_ENABLE = 1 << 1,
        CL_QUEUE_PRIORITY_KHR = 0x1096,
        CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR = 1 << 2,
        CL_DEVICE_SVM_FINE_GRAIN_BUFFER = 1 << 1,
        CL_DEVICE_TYPE_CPU = 1 << 1,
        CL_DEVICE_TYPE_GPU = 1 << 2,
        CL_DEVICE_TYPE_ACCELERATOR = 1 << 3,
        CL_DEVICE_TYPE_ALL = 0xffff_ffff,
        CL_KERNEL_ARG_TYPE_CONST = 1 << 0,
        CL_MAP_READ = 1 << 0,
        CL_MAP_WRITE = 1 << 1,
        CL_MEM_READ_WRITE = 1 << 0,
        CL_MEM_WRITE_ONLY = 1 << 1,
        CL_MEM_READ_ONLY = 1 << 2,
        CL_MEM_USE_HOST_PTR = 1 << 3,
        CL_MEM_ALLOC_HOST_PTR = 1 << 4,
        CL_MEM_HOST_WRITE_ONLY = 1 << 7,
        CL_MEM_HOST_READ_ONLY = 1 << 8,
        CL_MEM_HOST_NO_ACCESS = 1 << 9,
        CL_MUTABLE_DISPATCH_GLOBAL_OFFSET_KHR = 1 << 0,
        CL_MUTABLE_DISPATCH_GLOBAL_SIZE_KHR = 1 << 1,
        CL_MUTABLE_DISPATCH_LOCAL_SIZE_KHR = 1 << 2,
        CL_MUTABLE_DISPATCH_ARGUMENTS_KHR = 1 << 3,
        CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10,
    }
    /// Ways to divide a device.
    cl_device_partition_property {
        CL_DEVICE_PARTITION_BY_COUNTS_LIST_END = 0,
        CL_DEVICE_PARTITION_BY_COUNTS = 0x1087,
    }
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct cl_buffer_region {
    pub(crate) origin: usize,
    pub(crate) size: usize,
}

/// A new argument of a recorded kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct cl_mutable_dispatch_arg_khr {
    pub(crate) arg_index: cl_uint,
    pub(crate) arg_size: usize,
    pub(crate) arg_value: *const c_void,
}

/// Changes of a recorded kernel. Null pointers leave things as they are.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct cl_mutable_dispatch_config_khr {
    pub(crate) command: cl_mutable_command_khr,
    pub(crate) num_args: cl_uint,
    pub(crate) num_svm_args: cl_uint,
    pub(crate) num_exec_infos: cl_uint,
    pub(crate) work_dim: cl_uint,
    pub(crate) arg_list: *const cl_mutable_dispatch_arg_khr,
    pub(crate) arg_svm_list: *const cl_mutable_dispatch_arg_khr,
    pub(crate) exec_info_list: *const c_void,
    pub(crate) global_work_offset: *const usize,
    pub(crate) global_work_size: *const usize,
    pub(crate) local_work_size: *const usize,
}
