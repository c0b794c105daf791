//! The driver's types, as far as this backend uses them, under the vendor's names.
//!
//! The public headers (`ze_api.h`, MIT) are where they come from, and a test compares them with the
//! headers where those are installed. Enumerations are numbers: a newer driver's values would not
//! be values of a Rust enum. The test driver in `tests/level_zero_driver` uses this file, too.
#![allow(
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    reason = "the vendor's names, documented in the headers; the test driver uses others than the backend"
)]

use std::ffi::{c_char, c_void};

/// Handles: pointers to what only the driver knows.
macro_rules! handles {
    ($($handle:ident = $object:ident;)+) => {$(
        #[derive(Debug)]
        pub(crate) enum $object {}
        pub(crate) type $handle = *mut $object;
    )+};
}

handles! {
    ze_command_list_handle_t = _ze_command_list_handle;
    ze_command_queue_handle_t = _ze_command_queue_handle;
    ze_context_handle_t = _ze_context_handle;
    ze_device_handle_t = _ze_device_handle;
    ze_driver_handle_t = _ze_driver_handle;
    ze_event_handle_t = _ze_event_handle;
    ze_event_pool_handle_t = _ze_event_pool_handle;
    ze_fence_handle_t = _ze_fence_handle;
    ze_kernel_handle_t = _ze_kernel_handle;
    ze_module_build_log_handle_t = _ze_module_build_log_handle;
    ze_module_handle_t = _ze_module_handle;
}

/// Enumerations and flags, with the values that are used.
macro_rules! numbers {
    ($($type:ident { $($name:ident = $value:literal,)* })+) => {
        $(
            pub(crate) type $type = u32;
            $(pub(crate) const $name: $type = $value;)*
        )+

        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, u32)] = &[$($((stringify!($name), $value),)*)+];
    };
}

numbers! {
    ze_structure_type_t {
        ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES = 0x1,
        ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES = 0x3,
        ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES = 0x4,
        ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES = 0x5,
        ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES = 0x6,
        ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES = 0x7,
        ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES = 0x8,
        ZE_STRUCTURE_TYPE_CONTEXT_DESC = 0xd,
        ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC = 0xe,
        ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC = 0xf,
        ZE_STRUCTURE_TYPE_EVENT_POOL_DESC = 0x10,
        ZE_STRUCTURE_TYPE_EVENT_DESC = 0x11,
        ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC = 0x15,
        ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC = 0x16,
        ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES = 0x17,
        ZE_STRUCTURE_TYPE_MODULE_DESC = 0x1b,
        ZE_STRUCTURE_TYPE_KERNEL_DESC = 0x1d,
        ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES = 0x1e,
        ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC = 0x1000a,
        ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES = 0x10013,
        ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC = 0x20001,
        ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC = 0x20014,
        ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES = 0x20015,
        ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC = 0x20016,
        ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC = 0x20017,
        ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC = 0x20018,
        ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC = 0x20019,
        ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC = 0x2001a,
        ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC = 0x2001b,
        ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC = 0x2001c,
        ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC = 0x20021,
        ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_DESC = 0x2003a,
        ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2 = 0x20006,
    }
    ze_result_t {
        ZE_RESULT_SUCCESS = 0,
        ZE_RESULT_NOT_READY = 0x1,
        ZE_RESULT_ERROR_DEVICE_LOST = 0x70000001,
        ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY = 0x70000002,
        ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY = 0x70000003,
        ZE_RESULT_ERROR_MODULE_BUILD_FAILURE = 0x70000004,
        ZE_RESULT_ERROR_MODULE_LINK_FAILURE = 0x70000005,
        ZE_RESULT_ERROR_DEVICE_REQUIRES_RESET = 0x70000006,
        ZE_RESULT_ERROR_DEVICE_IN_LOW_POWER_STATE = 0x70000007,
        ZE_RESULT_ERROR_INSUFFICIENT_PERMISSIONS = 0x70010000,
        ZE_RESULT_ERROR_NOT_AVAILABLE = 0x70010001,
        ZE_RESULT_ERROR_DEPENDENCY_UNAVAILABLE = 0x70020000,
        ZE_RESULT_WARNING_DROPPED_DATA = 0x70020001,
        ZE_RESULT_ERROR_UNINITIALIZED = 0x78000001,
        ZE_RESULT_ERROR_UNSUPPORTED_VERSION = 0x78000002,
        ZE_RESULT_ERROR_UNSUPPORTED_FEATURE = 0x78000003,
        ZE_RESULT_ERROR_INVALID_ARGUMENT = 0x78000004,
        ZE_RESULT_ERROR_INVALID_NULL_HANDLE = 0x78000005,
        ZE_RESULT_ERROR_HANDLE_OBJECT_IN_USE = 0x78000006,
        ZE_RESULT_ERROR_INVALID_NULL_POINTER = 0x78000007,
        ZE_RESULT_ERROR_INVALID_SIZE = 0x78000008,
        ZE_RESULT_ERROR_UNSUPPORTED_SIZE = 0x78000009,
        ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT = 0x7800000a,
        ZE_RESULT_ERROR_INVALID_SYNCHRONIZATION_OBJECT = 0x7800000b,
        ZE_RESULT_ERROR_INVALID_ENUMERATION = 0x7800000c,
        ZE_RESULT_ERROR_UNSUPPORTED_ENUMERATION = 0x7800000d,
        ZE_RESULT_ERROR_UNSUPPORTED_IMAGE_FORMAT = 0x7800000e,
        ZE_RESULT_ERROR_INVALID_NATIVE_BINARY = 0x7800000f,
        ZE_RESULT_ERROR_INVALID_GLOBAL_NAME = 0x78000010,
        ZE_RESULT_ERROR_INVALID_KERNEL_NAME = 0x78000011,
        ZE_RESULT_ERROR_INVALID_FUNCTION_NAME = 0x78000012,
        ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION = 0x78000013,
        ZE_RESULT_ERROR_INVALID_GLOBAL_WIDTH_DIMENSION = 0x78000014,
        ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX = 0x78000015,
        ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_SIZE = 0x78000016,
        ZE_RESULT_ERROR_INVALID_KERNEL_ATTRIBUTE_VALUE = 0x78000017,
        ZE_RESULT_ERROR_INVALID_MODULE_UNLINKED = 0x78000018,
        ZE_RESULT_ERROR_INVALID_COMMAND_LIST_TYPE = 0x78000019,
        ZE_RESULT_ERROR_OVERLAPPING_REGIONS = 0x7800001a,
        ZE_RESULT_WARNING_ACTION_REQUIRED = 0x7800001b,
        ZE_RESULT_ERROR_INVALID_KERNEL_HANDLE = 0x7800001c,
        ZE_RESULT_ERROR_SURVIVABILITY_MODE_DETECTED = 0x78000020,
        ZE_RESULT_ERROR_ADDRESS_NOT_FOUND = 0x78000021,
        ZE_RESULT_ERROR_UNKNOWN = 0x7ffffffe,
    }
    ze_init_flags_t {
        ZE_INIT_FLAG_GPU_ONLY = 0x1,
        ZE_INIT_FLAG_VPU_ONLY = 0x2,
    }
    ze_init_driver_type_flags_t {
        ZE_INIT_DRIVER_TYPE_FLAG_GPU = 0x1,
        ZE_INIT_DRIVER_TYPE_FLAG_NPU = 0x2,
    }
    ze_api_version_t {}
    ze_device_type_t {
        ZE_DEVICE_TYPE_GPU = 0x1,
        ZE_DEVICE_TYPE_CPU = 0x2,
        ZE_DEVICE_TYPE_FPGA = 0x3,
        ZE_DEVICE_TYPE_MCA = 0x4,
        ZE_DEVICE_TYPE_VPU = 0x5,
    }
    ze_device_property_flags_t {
        ZE_DEVICE_PROPERTY_FLAG_INTEGRATED = 0x1,
        ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE = 0x2,
        ZE_DEVICE_PROPERTY_FLAG_ECC = 0x4,
        ZE_DEVICE_PROPERTY_FLAG_ONDEMANDPAGING = 0x8,
    }
    ze_device_module_flags_t {
        ZE_DEVICE_MODULE_FLAG_FP16 = 0x1,
        ZE_DEVICE_MODULE_FLAG_FP64 = 0x2,
        ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS = 0x4,
        ZE_DEVICE_MODULE_FLAG_DP4A = 0x8,
    }
    ze_command_queue_group_property_flags_t {
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE = 0x1,
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY = 0x2,
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COOPERATIVE_KERNELS = 0x4,
        ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_METRICS = 0x8,
    }
    ze_memory_access_cap_flags_t {
        ZE_MEMORY_ACCESS_CAP_FLAG_RW = 0x1,
        ZE_MEMORY_ACCESS_CAP_FLAG_ATOMIC = 0x2,
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT = 0x4,
        ZE_MEMORY_ACCESS_CAP_FLAG_CONCURRENT_ATOMIC = 0x8,
    }
    ze_command_queue_flags_t {
        ZE_COMMAND_QUEUE_FLAG_EXPLICIT_ONLY = 0x1,
        ZE_COMMAND_QUEUE_FLAG_IN_ORDER = 0x2,
        ZE_COMMAND_QUEUE_FLAG_COPY_OFFLOAD_HINT = 0x4,
    }
    ze_command_queue_mode_t {
        ZE_COMMAND_QUEUE_MODE_DEFAULT = 0,
        ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS = 0x1,
        ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS = 0x2,
    }
    ze_command_queue_priority_t {
        ZE_COMMAND_QUEUE_PRIORITY_NORMAL = 0,
        ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW = 0x1,
        ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH = 0x2,
    }
    ze_command_list_flags_t {
        ZE_COMMAND_LIST_FLAG_RELAXED_ORDERING = 0x1,
        ZE_COMMAND_LIST_FLAG_MAXIMIZE_THROUGHPUT = 0x2,
        ZE_COMMAND_LIST_FLAG_EXPLICIT_ONLY = 0x4,
        ZE_COMMAND_LIST_FLAG_IN_ORDER = 0x8,
        ZE_COMMAND_LIST_FLAG_EXP_CLONEABLE = 0x10,
        ZE_COMMAND_LIST_FLAG_COPY_OFFLOAD_HINT = 0x20,
    }
    ze_memory_advice_t {
        ZE_MEMORY_ADVICE_SET_READ_MOSTLY = 0,
        ZE_MEMORY_ADVICE_CLEAR_READ_MOSTLY = 0x1,
        ZE_MEMORY_ADVICE_SET_PREFERRED_LOCATION = 0x2,
        ZE_MEMORY_ADVICE_CLEAR_PREFERRED_LOCATION = 0x3,
        ZE_MEMORY_ADVICE_SET_NON_ATOMIC_MOSTLY = 0x4,
        ZE_MEMORY_ADVICE_CLEAR_NON_ATOMIC_MOSTLY = 0x5,
        ZE_MEMORY_ADVICE_BIAS_CACHED = 0x6,
        ZE_MEMORY_ADVICE_BIAS_UNCACHED = 0x7,
        ZE_MEMORY_ADVICE_SET_SYSTEM_MEMORY_PREFERRED_LOCATION = 0x8,
        ZE_MEMORY_ADVICE_CLEAR_SYSTEM_MEMORY_PREFERRED_LOCATION = 0x9,
    }
    ze_event_pool_flags_t {
        ZE_EVENT_POOL_FLAG_HOST_VISIBLE = 0x1,
        ZE_EVENT_POOL_FLAG_IPC = 0x2,
        ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP = 0x4,
        ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP = 0x8,
    }
    ze_event_scope_flags_t {
        ZE_EVENT_SCOPE_FLAG_SUBDEVICE = 0x1,
        ZE_EVENT_SCOPE_FLAG_DEVICE = 0x2,
        ZE_EVENT_SCOPE_FLAG_HOST = 0x4,
    }
    ze_event_counter_based_flags_t {
        ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE = 0x1,
        ZE_EVENT_COUNTER_BASED_FLAG_NON_IMMEDIATE = 0x2,
        ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE = 0x4,
        ZE_EVENT_COUNTER_BASED_FLAG_IPC = 0x8,
        ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP = 0x10,
        ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP = 0x20,
    }
    ze_device_mem_alloc_flags_t {
        ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_CACHED = 0x1,
        ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_UNCACHED = 0x2,
        ZE_DEVICE_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT = 0x4,
    }
    ze_host_mem_alloc_flags_t {
        ZE_HOST_MEM_ALLOC_FLAG_BIAS_CACHED = 0x1,
        ZE_HOST_MEM_ALLOC_FLAG_BIAS_UNCACHED = 0x2,
        ZE_HOST_MEM_ALLOC_FLAG_BIAS_WRITE_COMBINED = 0x4,
        ZE_HOST_MEM_ALLOC_FLAG_BIAS_INITIAL_PLACEMENT = 0x8,
        ZE_HOST_MEM_ALLOC_FLAG_MEM_READ_ONLY = 0x10,
    }
    ze_memory_type_t {
        ZE_MEMORY_TYPE_UNKNOWN = 0,
        ZE_MEMORY_TYPE_HOST = 0x1,
        ZE_MEMORY_TYPE_DEVICE = 0x2,
        ZE_MEMORY_TYPE_SHARED = 0x3,
        ZE_MEMORY_TYPE_HOST_IMPORTED = 0x4,
    }
    ze_module_format_t {
        ZE_MODULE_FORMAT_IL_SPIRV = 0,
        ZE_MODULE_FORMAT_NATIVE = 0x1,
    }
    ze_kernel_flags_t {
        ZE_KERNEL_FLAG_FORCE_RESIDENCY = 0x1,
        ZE_KERNEL_FLAG_EXPLICIT_RESIDENCY = 0x2,
    }
    ze_kernel_indirect_access_flags_t {
        ZE_KERNEL_INDIRECT_ACCESS_FLAG_HOST = 0x1,
        ZE_KERNEL_INDIRECT_ACCESS_FLAG_DEVICE = 0x2,
        ZE_KERNEL_INDIRECT_ACCESS_FLAG_SHARED = 0x4,
    }
    ze_relaxed_allocation_limits_exp_flags_t {
        ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE = 0x1,
    }
    ze_driver_memory_free_policy_ext_flags_t {
        ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_BLOCKING_FREE = 0x1,
        ZE_DRIVER_MEMORY_FREE_POLICY_EXT_FLAG_DEFER_FREE = 0x2,
    }
    ze_event_pool_counter_based_exp_flags_t {
        ZE_EVENT_POOL_COUNTER_BASED_EXP_FLAG_IMMEDIATE = 0x1,
        ZE_EVENT_POOL_COUNTER_BASED_EXP_FLAG_NON_IMMEDIATE = 0x2,
    }
    ze_mutable_command_exp_flags_t {
        ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS = 0x1,
        ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT = 0x2,
        ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE = 0x4,
        ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET = 0x8,
        ZE_MUTABLE_COMMAND_EXP_FLAG_SIGNAL_EVENT = 0x10,
        ZE_MUTABLE_COMMAND_EXP_FLAG_WAIT_EVENTS = 0x20,
        ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION = 0x40,
    }
    ze_mutable_command_list_exp_flags_t {
        ZE_MUTABLE_COMMAND_LIST_EXP_FLAG_RESERVED = 0x1,
    }
    ze_context_flags_t {}
    ze_device_fp_flags_t {}
    ze_device_memory_property_flags_t {}
}

pub(crate) type ze_bool_t = u8;

/// Structures that the driver reads or writes. One that begins with its type has a function `new`,
/// which gives it that type and leaves everything else zero.
macro_rules! structures {
    ($($name:ident $(= $stype:ident)? { $($field:ident: $type:ty,)+ })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug, bytemuck::Zeroable)]
            pub(crate) struct $name {
                $(pub(crate) $field: $type,)+
            }

            $(impl $name {
                pub(crate) fn new() -> Self {
                    Self { stype: $stype, ..bytemuck::Zeroable::zeroed() }
                }
            })?
        )+

        /// For each structure its name, its size, and each field with its offset.
        #[cfg(test)]
        pub(crate) const LAYOUTS: &[(&str, usize, &[(&str, usize)])] = &[$((
            stringify!($name),
            size_of::<$name>(),
            &[$((stringify!($field), std::mem::offset_of!($name, $field)),)+],
        ),)+];
    };
}

structures! {
    ze_command_list_desc_t = ZE_STRUCTURE_TYPE_COMMAND_LIST_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandQueueGroupOrdinal: u32,
        flags: ze_command_list_flags_t,
    }
    ze_command_queue_desc_t = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        ordinal: u32,
        index: u32,
        flags: ze_command_queue_flags_t,
        mode: ze_command_queue_mode_t,
        priority: ze_command_queue_priority_t,
    }
    ze_command_queue_group_properties_t = ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_command_queue_group_property_flags_t,
        maxMemoryFillPatternSize: usize,
        numQueues: u32,
    }
    ze_context_desc_t = ZE_STRUCTURE_TYPE_CONTEXT_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_context_flags_t,
    }
    ze_copy_region_t {
        originX: u32,
        originY: u32,
        originZ: u32,
        width: u32,
        height: u32,
        depth: u32,
    }
    ze_device_compute_properties_t = ZE_STRUCTURE_TYPE_DEVICE_COMPUTE_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        maxTotalGroupSize: u32,
        maxGroupSizeX: u32,
        maxGroupSizeY: u32,
        maxGroupSizeZ: u32,
        maxGroupCountX: u32,
        maxGroupCountY: u32,
        maxGroupCountZ: u32,
        maxSharedLocalMemory: u32,
        numSubGroupSizes: u32,
        subGroupSizes: [u32; 8],
    }
    ze_device_mem_alloc_desc_t = ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_device_mem_alloc_flags_t,
        ordinal: u32,
    }
    ze_device_memory_access_properties_t = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_ACCESS_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        hostAllocCapabilities: ze_memory_access_cap_flags_t,
        deviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedSingleDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedCrossDeviceAllocCapabilities: ze_memory_access_cap_flags_t,
        sharedSystemAllocCapabilities: ze_memory_access_cap_flags_t,
    }
    ze_device_memory_properties_t = ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        flags: ze_device_memory_property_flags_t,
        maxClockRate: u32,
        maxBusWidth: u32,
        totalSize: u64,
        name: [c_char; 256],
    }
    ze_native_kernel_uuid_t {
        id: [u8; 16],
    }
    ze_device_module_properties_t = ZE_STRUCTURE_TYPE_DEVICE_MODULE_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        spirvVersionSupported: u32,
        flags: ze_device_module_flags_t,
        fp16flags: ze_device_fp_flags_t,
        fp32flags: ze_device_fp_flags_t,
        fp64flags: ze_device_fp_flags_t,
        maxArgumentsSize: u32,
        printfBufferSize: u32,
        nativeKernelSupported: ze_native_kernel_uuid_t,
    }
    ze_device_uuid_t {
        id: [u8; 16],
    }
    ze_device_properties_t = ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        type_: ze_device_type_t,
        vendorId: u32,
        deviceId: u32,
        flags: ze_device_property_flags_t,
        subdeviceId: u32,
        coreClockRate: u32,
        maxMemAllocSize: u64,
        maxHardwareContexts: u32,
        maxCommandQueuePriority: u32,
        numThreadsPerEU: u32,
        physicalEUSimdWidth: u32,
        numEUsPerSubslice: u32,
        numSubslicesPerSlice: u32,
        numSlices: u32,
        timerResolution: u64,
        timestampValidBits: u32,
        kernelTimestampValidBits: u32,
        uuid: ze_device_uuid_t,
        name: [c_char; 256],
    }
    ze_driver_extension_properties_t {
        name: [c_char; 256],
        version: u32,
    }
    ze_driver_uuid_t {
        id: [u8; 16],
    }
    ze_driver_properties_t = ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        uuid: ze_driver_uuid_t,
        driverVersion: u32,
    }
    ze_event_counter_based_desc_t = ZE_STRUCTURE_TYPE_EVENT_COUNTER_BASED_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_event_counter_based_flags_t,
        signal: ze_event_scope_flags_t,
        wait: ze_event_scope_flags_t,
    }
    ze_event_desc_t = ZE_STRUCTURE_TYPE_EVENT_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        index: u32,
        signal: ze_event_scope_flags_t,
        wait: ze_event_scope_flags_t,
    }
    ze_event_pool_desc_t = ZE_STRUCTURE_TYPE_EVENT_POOL_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_event_pool_flags_t,
        count: u32,
    }
    ze_group_count_t {
        groupCountX: u32,
        groupCountY: u32,
        groupCountZ: u32,
    }
    ze_group_size_t {
        groupSizeX: u32,
        groupSizeY: u32,
        groupSizeZ: u32,
    }
    ze_host_mem_alloc_desc_t = ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_host_mem_alloc_flags_t,
    }
    ze_init_driver_type_desc_t = ZE_STRUCTURE_TYPE_INIT_DRIVER_TYPE_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_init_driver_type_flags_t,
    }
    ze_kernel_desc_t = ZE_STRUCTURE_TYPE_KERNEL_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_kernel_flags_t,
        pKernelName: *const c_char,
    }
    ze_kernel_uuid_t {
        kid: [u8; 16],
        mid: [u8; 16],
    }
    ze_kernel_properties_t = ZE_STRUCTURE_TYPE_KERNEL_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        numKernelArgs: u32,
        requiredGroupSizeX: u32,
        requiredGroupSizeY: u32,
        requiredGroupSizeZ: u32,
        requiredNumSubGroups: u32,
        requiredSubgroupSize: u32,
        maxSubgroupSize: u32,
        maxNumSubgroups: u32,
        localMemSize: u32,
        privateMemSize: u32,
        spillMemSize: u32,
        uuid: ze_kernel_uuid_t,
    }
    ze_kernel_timestamp_data_t {
        kernelStart: u64,
        kernelEnd: u64,
    }
    ze_kernel_timestamp_result_t {
        global: ze_kernel_timestamp_data_t,
        context: ze_kernel_timestamp_data_t,
    }
    ze_memory_allocation_properties_t = ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        type_: ze_memory_type_t,
        id: u64,
        pageSize: u64,
    }
    ze_memory_free_ext_desc_t = ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        freePolicy: ze_driver_memory_free_policy_ext_flags_t,
    }
    ze_module_desc_t = ZE_STRUCTURE_TYPE_MODULE_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        format: ze_module_format_t,
        inputSize: usize,
        pInputModule: *const u8,
        pBuildFlags: *const c_char,
        pConstants: *const c_void,
    }
    ze_mutable_command_id_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_ID_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_mutable_command_exp_flags_t,
    }
    ze_mutable_commands_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_COMMANDS_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: u32,
    }
    ze_mutable_command_list_exp_properties_t = ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        mutableCommandListFlags: ze_mutable_command_list_exp_flags_t,
        mutableCommandFlags: ze_mutable_command_exp_flags_t,
    }
    ze_kernel_max_group_size_properties_ext_t = ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
        maxGroupSize: u32,
    }
    ze_relaxed_allocation_limits_exp_desc_t = ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_relaxed_allocation_limits_exp_flags_t,
    }
    ze_event_pool_counter_based_exp_desc_t = ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_event_pool_counter_based_exp_flags_t,
    }
    ze_mutable_command_list_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        flags: ze_mutable_command_list_exp_flags_t,
    }
    ze_mutable_kernel_argument_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandId: u64,
        argIndex: u32,
        argSize: usize,
        pArgValue: *const c_void,
    }
    ze_mutable_group_count_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandId: u64,
        pGroupCount: *const ze_group_count_t,
    }
    ze_mutable_group_size_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandId: u64,
        groupSizeX: u32,
        groupSizeY: u32,
        groupSizeZ: u32,
    }
    ze_mutable_global_offset_exp_desc_t = ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC {
        stype: ze_structure_type_t,
        pNext: *const c_void,
        commandId: u64,
        offsetX: u32,
        offsetY: u32,
        offsetZ: u32,
    }
    ze_base_desc_t {
        stype: ze_structure_type_t,
        pNext: *const c_void,
    }
    ze_base_properties_t {
        stype: ze_structure_type_t,
        pNext: *mut c_void,
    }
}

/// `major.minor` as the driver writes versions.
pub(crate) const fn version(major: u32, minor: u32) -> ze_api_version_t {
    major << 16 | minor
}
