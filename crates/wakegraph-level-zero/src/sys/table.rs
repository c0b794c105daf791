//! The functions of the loader.
//!
//! Those of version 1.0 are required. The optional ones are newer, and the driver behind the loader
//! may be too old for a function that the loader has: whether one may be called is decided by what
//! the driver reports (`features.rs`). One that the loader does not have answers that it is not
//! supported.
#![allow(non_snake_case, reason = "the vendor's names")]

use std::ffi::{c_char, c_void};

use super::types::*;

/// Declares the table, and how to fill it from a library.
macro_rules! table {
    (
        required: { $($function:ident($($argument:ty),* $(,)?);)+ }
        optional: { $($newer:ident($($newer_argument:ty),* $(,)?);)+ }
    ) => {
        /// The functions of the loader.
        pub(crate) struct Api {
            $(pub(in crate) $function:
                unsafe extern "C" fn($($argument),*) -> ze_result_t,)+
            $(pub(in crate) $newer:
                unsafe extern "C" fn($($newer_argument),*) -> ze_result_t,)+
            /// The optional functions that the loader does not have.
            missing: Vec<&'static str>,
        }

        impl Api {
            /// The library stays loaded for good. The error is the name of a function that it does
            /// not have.
            pub(super) fn fill(library: libloading::Library) -> Result<Self, &'static str> {
                let mut missing = Vec::new();
                $(unsafe extern "C" fn $newer($(_: $newer_argument),*) -> ze_result_t {
                    ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                })+
                let table = Self {
                    $($function: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> ze_result_t>(
                                stringify!($function)
                            )
                        };
                        *found.map_err(|_| stringify!($function))?
                    },)+
                    $($newer: {
                        // SAFETY: this is how the vendor's headers declare the function.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($newer_argument),*) -> ze_result_t>(
                                stringify!($newer)
                            )
                        };
                        found.map_or_else(
                            |_| {
                                missing.push(stringify!($newer));
                                $newer as unsafe extern "C" fn($($newer_argument),*) -> ze_result_t
                            },
                            |function| *function,
                        )
                    },)+
                    missing,
                };
                // The functions are used for as long as the process lives.
                std::mem::forget(library);
                Ok(table)
            }
        }

        /// Each function with its arguments.
        #[cfg(test)]
        pub(super) const DECLARATIONS: &[(&str, &[&str])] = &[
            $((stringify!($function), &[$(stringify!($argument)),*]),)+
            $((stringify!($newer), &[$(stringify!($newer_argument)),*]),)+
        ];
    };
}

table! {
    required: {
    zeInit(ze_init_flags_t);
    zeDriverGet(*mut u32, *mut ze_driver_handle_t);
    zeDriverGetApiVersion(ze_driver_handle_t, *mut ze_api_version_t);
    zeDriverGetProperties(ze_driver_handle_t, *mut ze_driver_properties_t);
    zeDriverGetExtensionProperties(ze_driver_handle_t, *mut u32, *mut ze_driver_extension_properties_t);
    zeDeviceGet(ze_driver_handle_t, *mut u32, *mut ze_device_handle_t);
    zeDeviceGetSubDevices(ze_device_handle_t, *mut u32, *mut ze_device_handle_t);
    zeDeviceGetProperties(ze_device_handle_t, *mut ze_device_properties_t);
    zeDeviceGetComputeProperties(ze_device_handle_t, *mut ze_device_compute_properties_t);
    zeDeviceGetCommandQueueGroupProperties(
        ze_device_handle_t, *mut u32, *mut ze_command_queue_group_properties_t
    );
    zeDeviceGetMemoryProperties(ze_device_handle_t, *mut u32, *mut ze_device_memory_properties_t);
    zeDeviceCanAccessPeer(ze_device_handle_t, ze_device_handle_t, *mut ze_bool_t);
    zeDeviceGetStatus(ze_device_handle_t);
    zeDeviceGetGlobalTimestamps(ze_device_handle_t, *mut u64, *mut u64);
    zeContextCreate(ze_driver_handle_t, *const ze_context_desc_t, *mut ze_context_handle_t);
    zeContextDestroy(ze_context_handle_t);
    zeMemAllocDevice(
        ze_context_handle_t, *const ze_device_mem_alloc_desc_t, usize, usize, ze_device_handle_t,
        *mut *mut c_void
    );
    zeMemAllocHost(ze_context_handle_t, *const ze_host_mem_alloc_desc_t, usize, usize, *mut *mut c_void);
    zeMemFree(ze_context_handle_t, *mut c_void);
    zeMemGetAllocProperties(
        ze_context_handle_t, *const c_void, *mut ze_memory_allocation_properties_t,
        *mut ze_device_handle_t
    );
    zeMemGetAddressRange(ze_context_handle_t, *const c_void, *mut *mut c_void, *mut usize);
    zeModuleCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_module_desc_t, *mut ze_module_handle_t,
        *mut ze_module_build_log_handle_t
    );
    zeModuleDestroy(ze_module_handle_t);
    zeModuleBuildLogDestroy(ze_module_build_log_handle_t);
    zeModuleBuildLogGetString(ze_module_build_log_handle_t, *mut usize, *mut c_char);
    zeModuleGetKernelNames(ze_module_handle_t, *mut u32, *mut *const c_char);
    zeKernelCreate(ze_module_handle_t, *const ze_kernel_desc_t, *mut ze_kernel_handle_t);
    zeKernelDestroy(ze_kernel_handle_t);
    zeKernelSetGroupSize(ze_kernel_handle_t, u32, u32, u32);
    zeKernelSetArgumentValue(ze_kernel_handle_t, u32, usize, *const c_void);
    zeKernelSetIndirectAccess(ze_kernel_handle_t, ze_kernel_indirect_access_flags_t);
    zeKernelGetProperties(ze_kernel_handle_t, *mut ze_kernel_properties_t);
    zeCommandQueueCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_queue_desc_t,
        *mut ze_command_queue_handle_t
    );
    zeCommandQueueDestroy(ze_command_queue_handle_t);
    zeCommandQueueExecuteCommandLists(
        ze_command_queue_handle_t, u32, *mut ze_command_list_handle_t, ze_fence_handle_t
    );
    zeCommandQueueSynchronize(ze_command_queue_handle_t, u64);
    zeCommandListCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_list_desc_t,
        *mut ze_command_list_handle_t
    );
    zeCommandListCreateImmediate(
        ze_context_handle_t, ze_device_handle_t, *const ze_command_queue_desc_t,
        *mut ze_command_list_handle_t
    );
    zeCommandListDestroy(ze_command_list_handle_t);
    zeCommandListClose(ze_command_list_handle_t);
    zeCommandListReset(ze_command_list_handle_t);
    zeCommandListAppendLaunchKernel(
        ze_command_list_handle_t, ze_kernel_handle_t, *const ze_group_count_t, ze_event_handle_t,
        u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryCopy(
        ze_command_list_handle_t, *mut c_void, *const c_void, usize, ze_event_handle_t, u32,
        *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryCopyRegion(
        ze_command_list_handle_t, *mut c_void, *const ze_copy_region_t, u32, u32, *const c_void,
        *const ze_copy_region_t, u32, u32, ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryFill(
        ze_command_list_handle_t, *mut c_void, *const c_void, usize, usize, ze_event_handle_t,
        u32, *mut ze_event_handle_t
    );
    zeCommandListAppendMemoryPrefetch(ze_command_list_handle_t, *const c_void, usize);
    zeCommandListAppendMemAdvise(
        ze_command_list_handle_t, ze_device_handle_t, *const c_void, usize, ze_memory_advice_t
    );
    zeCommandListAppendBarrier(ze_command_list_handle_t, ze_event_handle_t, u32, *mut ze_event_handle_t);
    zeCommandListAppendEventReset(ze_command_list_handle_t, ze_event_handle_t);
    zeCommandListAppendQueryKernelTimestamps(
        ze_command_list_handle_t, u32, *mut ze_event_handle_t, *mut c_void, *const usize,
        ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeEventPoolCreate(
        ze_context_handle_t, *const ze_event_pool_desc_t, u32, *mut ze_device_handle_t,
        *mut ze_event_pool_handle_t
    );
    zeEventPoolDestroy(ze_event_pool_handle_t);
    zeEventCreate(ze_event_pool_handle_t, *const ze_event_desc_t, *mut ze_event_handle_t);
    zeEventDestroy(ze_event_handle_t);
    zeEventHostSignal(ze_event_handle_t);
    zeEventHostSynchronize(ze_event_handle_t, u64);
    zeEventHostReset(ze_event_handle_t);
    zeEventQueryKernelTimestamp(ze_event_handle_t, *mut ze_kernel_timestamp_result_t);
    }
    optional: {
    zeInitDrivers(*mut u32, *mut ze_driver_handle_t, *mut ze_init_driver_type_desc_t);
    zeMemFreeExt(ze_context_handle_t, *const ze_memory_free_ext_desc_t, *mut c_void);
    zeKernelSetGlobalOffsetExp(ze_kernel_handle_t, u32, u32, u32);
    zeCommandListHostSynchronize(ze_command_list_handle_t, u64);
    zeCommandListImmediateAppendCommandListsExp(
        ze_command_list_handle_t, u32, *mut ze_command_list_handle_t, ze_event_handle_t, u32,
        *mut ze_event_handle_t
    );
    zeCommandListImmediateAppendCommandListsWithParameters(
        ze_command_list_handle_t, u32, *mut ze_command_list_handle_t, *const c_void,
        ze_event_handle_t, u32, *mut ze_event_handle_t
    );
    zeCommandListGetNextCommandIdExp(
        ze_command_list_handle_t, *const ze_mutable_command_id_exp_desc_t, *mut u64
    );
    zeCommandListGetNextCommandIdWithKernelsExp(
        ze_command_list_handle_t, *const ze_mutable_command_id_exp_desc_t, u32,
        *mut ze_kernel_handle_t, *mut u64
    );
    zeCommandListUpdateMutableCommandsExp(ze_command_list_handle_t, *const ze_mutable_commands_exp_desc_t);
    zeCommandListUpdateMutableCommandKernelsExp(
        ze_command_list_handle_t, u32, *mut u64, *mut ze_kernel_handle_t
    );
    zeEventCounterBasedCreate(
        ze_context_handle_t, ze_device_handle_t, *const ze_event_counter_based_desc_t,
        *mut ze_event_handle_t
    );
    }
}

impl Api {
    /// Whether the loader has this optional function. The driver may be too old for it
    /// nevertheless.
    pub(crate) fn has(&self, function: &str) -> bool {
        !self.missing.contains(&function)
    }
}

impl std::fmt::Debug for Api {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("missing", &self.missing).finish_non_exhaustive()
    }
}
