//! The functions: as symbols, and in the tables that the loader asks for.
//!
//! A loader's tables are as long as its version has it, so that nothing is written behind what the version
//! asked for has. Older loaders take a driver only if it has all tables, those of functions included that it
//! does not have.

use std::ffi::{c_char, c_void};

use crate::misuse::enter;
use crate::objects::Handle;
use crate::pointers::{text, write};
use crate::state::{State, lock};
use crate::types::*;
use crate::{Outcome, devices, events, faults, kernels, lists, memory, mutable, queues};

/// A call of the program, with the lock.
fn locked(call: &'static str, f: impl FnOnce(&mut State) -> Outcome) -> ze_result_t {
    enter(call);
    let mut state = lock();
    code(state.faults.check(call).and_then(|()| f(&mut state)))
}

/// A call of the program, which takes the lock itself.
fn unlocked(call: &'static str, f: impl FnOnce() -> Outcome) -> ze_result_t {
    enter(call);
    let may_go_on = if faults::any() { lock().faults.check(call) } else { Ok(()) };
    code(may_go_on.and_then(|()| f()))
}

fn code(outcome: Outcome) -> ze_result_t {
    outcome.err().unwrap_or(ZE_RESULT_SUCCESS)
}

/// Sets a table's entry.
fn put(table: *mut *const c_void, index: usize, function: *const c_void) {
    // The loader's table has this entry in the version that it asks for.
    let _ = write(table.wrapping_add(index), function);
}

/// For each table its functions: the entry, the version that has brought it, and what it does, with the lock
/// or without. The symbols call the same functions as the tables; the loader has symbols of the same names.
macro_rules! tables {
    ($($table:ident {
        $($index:literal ($major:literal, $minor:literal) $name:ident($($argument:ident: $type:ty),* $(,)?)
            => $way:ident $body:expr;)*
    })+) => {
        #[allow(non_snake_case, reason = "the vendor's names")]
        mod functions {
            use super::*;
            $($(
                pub(super) extern "C" fn $name($($argument: $type),*) -> ze_result_t {
                    $way(stringify!($name), $body)
                }
            )*)+
        }

        #[allow(non_snake_case, reason = "the vendor's names")]
        mod symbols {
            use super::*;
            $($(
                // SAFETY: the vendor's name, with the vendor's declaration.
                #[unsafe(no_mangle)]
                extern "C" fn $name($($argument: $type),*) -> ze_result_t {
                    functions::$name($($argument),*)
                }
            )*)+
        }

        $(
            // SAFETY: as above.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, unused_variables, reason = "the vendor's names; some tables stay empty")]
            extern "C" fn $table(asked: ze_api_version_t, table: *mut *const c_void) -> ze_result_t {
                $(if asked >= version($major, $minor) {
                    put(table, $index, functions::$name as *const c_void);
                })*
                ZE_RESULT_SUCCESS
            }
        )+
    };
}

tables! {
    zeGetGlobalProcAddrTable {
        0 (1, 0) zeInit(flags: ze_init_flags_t) => locked |s| devices::init(s, flags);
        1 (1, 10) zeInitDrivers(count: *mut u32, to: *mut ze_driver_handle_t, desc: *mut ze_init_driver_type_desc_t)
            => locked |s| devices::init_drivers(s, count, to, desc);
    }
    zeGetDriverProcAddrTable {
        0 (1, 0) zeDriverGet(count: *mut u32, to: *mut ze_driver_handle_t) => locked |s| devices::drivers(s, count, to);
        1 (1, 0) zeDriverGetApiVersion(driver: ze_driver_handle_t, to: *mut ze_api_version_t)
            => locked |s| devices::api_version(s, driver, to);
        2 (1, 0) zeDriverGetProperties(driver: ze_driver_handle_t, to: *mut ze_driver_properties_t)
            => locked |s| devices::driver_properties(s, driver, to);
        4 (1, 0) zeDriverGetExtensionProperties(
            driver: ze_driver_handle_t, count: *mut u32, to: *mut ze_driver_extension_properties_t,
        ) => locked |s| devices::extensions(s, driver, count, to);
    }
    zeGetDeviceProcAddrTable {
        0 (1, 0) zeDeviceGet(driver: ze_driver_handle_t, count: *mut u32, to: *mut ze_device_handle_t)
            => locked |s| devices::devices(s, driver, count, to);
        1 (1, 0) zeDeviceGetSubDevices(device: ze_device_handle_t, count: *mut u32, to: *mut ze_device_handle_t)
            => locked |s| devices::sub_devices(s, device, count, to);
        2 (1, 0) zeDeviceGetProperties(device: ze_device_handle_t, to: *mut ze_device_properties_t)
            => locked |s| devices::properties(s, device, to);
        3 (1, 0) zeDeviceGetComputeProperties(device: ze_device_handle_t, to: *mut ze_device_compute_properties_t)
            => locked |s| devices::compute_properties(s, device, to);
        4 (1, 0) zeDeviceGetModuleProperties(device: ze_device_handle_t, to: *mut ze_device_module_properties_t)
            => locked |s| devices::module_properties(s, device, to);
        5 (1, 0) zeDeviceGetCommandQueueGroupProperties(
            device: ze_device_handle_t, count: *mut u32, to: *mut ze_command_queue_group_properties_t,
        ) => locked |s| devices::queue_groups(s, device, count, to);
        6 (1, 0) zeDeviceGetMemoryProperties(
            device: ze_device_handle_t, count: *mut u32, to: *mut ze_device_memory_properties_t,
        ) => locked |s| devices::memory_properties(s, device, count, to);
        7 (1, 0) zeDeviceGetMemoryAccessProperties(
            device: ze_device_handle_t, to: *mut ze_device_memory_access_properties_t,
        ) => locked |s| devices::memory_access(s, device, to);
        12 (1, 0) zeDeviceCanAccessPeer(device: ze_device_handle_t, peer: ze_device_handle_t, to: *mut ze_bool_t)
            => locked |s| devices::can_access_peer(s, device, peer, to);
        13 (1, 0) zeDeviceGetStatus(device: ze_device_handle_t) => locked |s| devices::status(s, device);
        14 (1, 1) zeDeviceGetGlobalTimestamps(device: ze_device_handle_t, host: *mut u64, to: *mut u64)
            => locked |s| devices::global_timestamps(s, device, host, to);
    }
    zeGetContextProcAddrTable {
        0 (1, 0) zeContextCreate(
            driver: ze_driver_handle_t, desc: *const ze_context_desc_t, to: *mut ze_context_handle_t,
        ) => locked |s| devices::create_context(s, driver, desc, to);
        1 (1, 0) zeContextDestroy(context: ze_context_handle_t) => locked |s| devices::destroy_context(s, context);
        2 (1, 0) zeContextGetStatus(context: ze_context_handle_t) => locked |s| devices::context_status(s, context);
        4 (1, 0) zeContextMakeMemoryResident(
            context: ze_context_handle_t, device: ze_device_handle_t, at: *mut c_void, len: usize,
        ) => locked |s| memory::residency(s, context, device, at, len);
        5 (1, 0) zeContextEvictMemory(
            context: ze_context_handle_t, device: ze_device_handle_t, at: *mut c_void, len: usize,
        ) => locked |s| memory::residency(s, context, device, at, len);
    }
    zeGetCommandQueueProcAddrTable {
        0 (1, 0) zeCommandQueueCreate(
            context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_queue_desc_t,
            to: *mut ze_command_queue_handle_t,
        ) => locked |s| queues::create(s, context, device, desc, to);
        1 (1, 0) zeCommandQueueDestroy(queue: ze_command_queue_handle_t) => locked |s| queues::destroy(s, queue);
        2 (1, 0) zeCommandQueueExecuteCommandLists(
            queue: ze_command_queue_handle_t, count: u32, lists: *mut ze_command_list_handle_t,
            fence: ze_fence_handle_t,
        ) => unlocked || {
            let wait = queues::execute(&mut lock(), queue, count, lists, fence)?;
            wait.map_or(Ok(()), |(queue, device)| queues::wait_for(queue, device, u64::MAX, None))
        };
        3 (1, 0) zeCommandQueueSynchronize(queue: ze_command_queue_handle_t, timeout: u64)
            => unlocked || queues::synchronize(queue, timeout);
    }
    zeGetCommandListProcAddrTable {
        0 (1, 0) zeCommandListCreate(
            context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_list_desc_t,
            to: *mut ze_command_list_handle_t,
        ) => locked |s| lists::create(s, context, device, desc, to);
        1 (1, 0) zeCommandListCreateImmediate(
            context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_command_queue_desc_t,
            to: *mut ze_command_list_handle_t,
        ) => locked |s| lists::create_immediate(s, context, device, desc, to);
        2 (1, 0) zeCommandListDestroy(list: ze_command_list_handle_t) => locked |s| lists::destroy(s, list);
        3 (1, 0) zeCommandListClose(list: ze_command_list_handle_t) => locked |s| lists::close(s, list);
        4 (1, 0) zeCommandListReset(list: ze_command_list_handle_t) => locked |s| lists::reset(s, list);
        5 (1, 0) zeCommandListAppendWriteGlobalTimestamp(
            list: ze_command_list_handle_t, to: *mut u64, signal: ze_event_handle_t, count: u32,
            waits: *mut ze_event_handle_t,
        ) => unlocked || lists::write_clock(list, to, signal, count, waits);
        6 (1, 0) zeCommandListAppendBarrier(
            list: ze_command_list_handle_t, signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::barrier(list, signal, count, waits);
        8 (1, 0) zeCommandListAppendMemoryCopy(
            list: ze_command_list_handle_t, to: *mut c_void, from: *const c_void, len: usize,
            signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::copy(list, to, from, len, signal, count, waits);
        9 (1, 0) zeCommandListAppendMemoryFill(
            list: ze_command_list_handle_t, to: *mut c_void, pattern: *const c_void, size: usize, len: usize,
            signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::fill(list, to, (pattern, size), len, signal, count, waits);
        10 (1, 0) zeCommandListAppendMemoryCopyRegion(
            list: ze_command_list_handle_t, to: *mut c_void, to_region: *const ze_copy_region_t, to_pitch: u32,
            to_slice: u32, from: *const c_void, from_region: *const ze_copy_region_t, from_pitch: u32,
            from_slice: u32, signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || {
            let to = (to, (to_region, to_pitch, to_slice));
            lists::copy_region(list, to, (from, (from_region, from_pitch, from_slice)), signal, count, waits)
        };
        16 (1, 0) zeCommandListAppendMemoryPrefetch(list: ze_command_list_handle_t, at: *const c_void, len: usize)
            => unlocked || lists::prefetch(list, at, len);
        17 (1, 0) zeCommandListAppendMemAdvise(
            list: ze_command_list_handle_t, device: ze_device_handle_t, at: *const c_void, len: usize,
            advice: ze_memory_advice_t,
        ) => unlocked || lists::advise(list, device, at, len, advice);
        18 (1, 0) zeCommandListAppendSignalEvent(list: ze_command_list_handle_t, event: ze_event_handle_t)
            => unlocked || lists::signal(list, event);
        19 (1, 0) zeCommandListAppendWaitOnEvents(
            list: ze_command_list_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::wait(list, count, waits);
        20 (1, 0) zeCommandListAppendEventReset(list: ze_command_list_handle_t, event: ze_event_handle_t)
            => unlocked || lists::reset_event(list, event);
        21 (1, 0) zeCommandListAppendQueryKernelTimestamps(
            list: ze_command_list_handle_t, number: u32, events: *mut ze_event_handle_t, to: *mut c_void,
            offsets: *const usize, signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::query_timestamps(list, (events, number), (to, offsets), signal, count, waits);
        22 (1, 0) zeCommandListAppendLaunchKernel(
            list: ze_command_list_handle_t, kernel: ze_kernel_handle_t, groups: *const ze_group_count_t,
            signal: ze_event_handle_t, count: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || lists::launch(list, kernel, groups, signal, count, waits);
        28 (1, 6) zeCommandListHostSynchronize(list: ze_command_list_handle_t, timeout: u64)
            => unlocked || queues::synchronize_list(list, timeout);
        40 (1, 16) zeCommandListImmediateAppendCommandListsWithParameters(
            list: ze_command_list_handle_t, count: u32, lists: *mut ze_command_list_handle_t, _next: *const c_void,
            signal: ze_event_handle_t, number: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || {
            let _guard = queues::exclusive(list);
            queues::append(&mut lock(), list, (count, lists), signal, (number, waits))
        };
    }
    zeGetCommandListExpProcAddrTable {
        1 (1, 9) zeCommandListImmediateAppendCommandListsExp(
            list: ze_command_list_handle_t, count: u32, lists: *mut ze_command_list_handle_t,
            signal: ze_event_handle_t, number: u32, waits: *mut ze_event_handle_t,
        ) => unlocked || {
            let _guard = queues::exclusive(list);
            queues::append(&mut lock(), list, (count, lists), signal, (number, waits))
        };
        2 (1, 9) zeCommandListGetNextCommandIdExp(
            list: ze_command_list_handle_t, desc: *const ze_mutable_command_id_exp_desc_t, to: *mut u64,
        ) => locked |s| mutable::next_id(s, list, desc, Vec::new(), to);
        3 (1, 9) zeCommandListUpdateMutableCommandsExp(
            list: ze_command_list_handle_t, desc: *const ze_mutable_commands_exp_desc_t,
        ) => locked |s| mutable::update(s, list, desc);
        6 (1, 10) zeCommandListGetNextCommandIdWithKernelsExp(
            list: ze_command_list_handle_t, desc: *const ze_mutable_command_id_exp_desc_t, count: u32,
            kernels: *mut ze_kernel_handle_t, to: *mut u64,
        ) => locked |s| mutable::next_id(s, list, desc, mutable::kernels(count, kernels)?, to);
        7 (1, 10) zeCommandListUpdateMutableCommandKernelsExp(
            list: ze_command_list_handle_t, count: u32, ids: *mut u64, kernels: *mut ze_kernel_handle_t,
        ) => locked |s| mutable::update_kernels(s, list, count, ids, kernels);
    }
    zeGetEventPoolProcAddrTable {
        0 (1, 0) zeEventPoolCreate(
            context: ze_context_handle_t, desc: *const ze_event_pool_desc_t, _count: u32,
            _devices: *mut ze_device_handle_t, to: *mut ze_event_pool_handle_t,
        ) => locked |s| events::create_pool(s, context, desc, to);
        1 (1, 0) zeEventPoolDestroy(pool: ze_event_pool_handle_t) => locked |s| events::destroy_pool(s, pool);
    }
    zeGetEventProcAddrTable {
        0 (1, 0) zeEventCreate(pool: ze_event_pool_handle_t, desc: *const ze_event_desc_t, to: *mut ze_event_handle_t)
            => unlocked || {
                let _guard = crate::objects::Exclusive::use_of(pool as Handle, "event pool");
                events::create(&mut lock(), pool, desc, to)
            };
        1 (1, 0) zeEventDestroy(event: ze_event_handle_t) => locked |s| events::destroy(s, event);
        2 (1, 0) zeEventHostSignal(event: ze_event_handle_t) => locked |s| events::signal(s, event);
        3 (1, 0) zeEventHostSynchronize(event: ze_event_handle_t, timeout: u64)
            => unlocked || events::synchronize(event, timeout);
        4 (1, 0) zeEventQueryStatus(event: ze_event_handle_t) => locked |s| events::status(s, event);
        5 (1, 0) zeEventHostReset(event: ze_event_handle_t) => locked |s| events::reset(s, event);
        6 (1, 0) zeEventQueryKernelTimestamp(event: ze_event_handle_t, to: *mut ze_kernel_timestamp_result_t)
            => locked |s| events::query_timestamp(s, event, to);
        11 (1, 15) zeEventCounterBasedCreate(
            context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_event_counter_based_desc_t,
            to: *mut ze_event_handle_t,
        ) => locked |s| events::create_counter(s, context, device, desc, to);
    }
    zeGetMemProcAddrTable {
        1 (1, 0) zeMemAllocDevice(
            context: ze_context_handle_t, desc: *const ze_device_mem_alloc_desc_t, len: usize, alignment: usize,
            device: ze_device_handle_t, to: *mut *mut c_void,
        ) => locked |s| memory::device(s, context, desc, len, alignment, device, to);
        2 (1, 0) zeMemAllocHost(
            context: ze_context_handle_t, desc: *const ze_host_mem_alloc_desc_t, len: usize, alignment: usize,
            to: *mut *mut c_void,
        ) => locked |s| memory::host(s, context, desc, len, alignment, to);
        3 (1, 0) zeMemFree(context: ze_context_handle_t, at: *mut c_void) => locked |s| memory::free(s, context, at);
        4 (1, 0) zeMemGetAllocProperties(
            context: ze_context_handle_t, at: *const c_void, to: *mut ze_memory_allocation_properties_t,
            device: *mut ze_device_handle_t,
        ) => locked |s| memory::properties(s, context, at, to, device);
        5 (1, 0) zeMemGetAddressRange(
            context: ze_context_handle_t, at: *const c_void, base: *mut *mut c_void, size: *mut usize,
        ) => locked |s| memory::range(s, context, at, base, size);
        9 (1, 3) zeMemFreeExt(context: ze_context_handle_t, desc: *const ze_memory_free_ext_desc_t, at: *mut c_void)
            => locked |s| memory::free_ext(s, context, desc, at);
    }
    zeGetModuleProcAddrTable {
        0 (1, 0) zeModuleCreate(
            context: ze_context_handle_t, device: ze_device_handle_t, desc: *const ze_module_desc_t,
            to: *mut ze_module_handle_t, log: *mut ze_module_build_log_handle_t,
        ) => locked |s| kernels::create_module(s, context, device, desc, to, log);
        1 (1, 0) zeModuleDestroy(module: ze_module_handle_t) => locked |s| kernels::destroy_module(s, module);
        5 (1, 0) zeModuleGetKernelNames(module: ze_module_handle_t, count: *mut u32, to: *mut *const c_char)
            => locked |s| kernels::kernel_names(s, module, count, to);
    }
    zeGetModuleBuildLogProcAddrTable {
        0 (1, 0) zeModuleBuildLogDestroy(log: ze_module_build_log_handle_t) => locked |s| kernels::destroy_log(s, log);
        1 (1, 0) zeModuleBuildLogGetString(log: ze_module_build_log_handle_t, size: *mut usize, to: *mut c_char)
            => locked |s| kernels::log_text(s, log, size, to);
    }
    zeGetKernelProcAddrTable {
        0 (1, 0) zeKernelCreate(module: ze_module_handle_t, desc: *const ze_kernel_desc_t, to: *mut ze_kernel_handle_t)
            => locked |s| kernels::create(s, module, desc, to);
        1 (1, 0) zeKernelDestroy(kernel: ze_kernel_handle_t) => locked |s| kernels::destroy(s, kernel);
        3 (1, 0) zeKernelSetGroupSize(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32)
            => unlocked || {
                let _guard = crate::objects::Exclusive::use_of(kernel as Handle, "kernel");
                kernels::set_group_size(&mut lock(), kernel, x, y, z)
            };
        4 (1, 0) zeKernelSuggestGroupSize(
            kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32, to_x: *mut u32, to_y: *mut u32, to_z: *mut u32,
        ) => locked |s| kernels::suggest_group_size(s, kernel, [x, y, z], [to_x, to_y, to_z]);
        6 (1, 0) zeKernelSetArgumentValue(kernel: ze_kernel_handle_t, index: u32, size: usize, value: *const c_void)
            => unlocked || {
                let _guard = crate::objects::Exclusive::use_of(kernel as Handle, "kernel");
                kernels::set_argument(&mut lock(), kernel, index, size, value)
            };
        7 (1, 0) zeKernelSetIndirectAccess(kernel: ze_kernel_handle_t, flags: ze_kernel_indirect_access_flags_t)
            => locked |s| kernels::set_indirect_access(s, kernel, flags);
        10 (1, 0) zeKernelGetProperties(kernel: ze_kernel_handle_t, to: *mut ze_kernel_properties_t)
            => locked |s| kernels::properties(s, kernel, to);
    }
    zeGetKernelExpProcAddrTable {
        0 (1, 1) zeKernelSetGlobalOffsetExp(kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32)
            => locked |s| kernels::set_offset(s, kernel, x, y, z);
    }
    zeGetDeviceExpProcAddrTable {}
    zeGetImageProcAddrTable {}
    zeGetImageExpProcAddrTable {}
    zeGetFenceProcAddrTable {}
    zeGetEventExpProcAddrTable {}
    zeGetSamplerProcAddrTable {}
    zeGetPhysicalMemProcAddrTable {}
    zeGetVirtualMemProcAddrTable {}
    zeGetFabricVertexExpProcAddrTable {}
    zeGetFabricEdgeExpProcAddrTable {}
    zetGetDeviceProcAddrTable {}
    zetGetContextProcAddrTable {}
    zetGetCommandListProcAddrTable {}
    zetGetModuleProcAddrTable {}
    zetGetKernelProcAddrTable {}
    zetGetMetricGroupProcAddrTable {}
    zetGetMetricGroupExpProcAddrTable {}
    zetGetMetricProcAddrTable {}
    zetGetMetricStreamerProcAddrTable {}
    zetGetMetricQueryPoolProcAddrTable {}
    zetGetMetricQueryProcAddrTable {}
    zetGetTracerExpProcAddrTable {}
    zetGetDebugProcAddrTable {}
    zesGetDriverProcAddrTable {}
    zesGetDeviceProcAddrTable {}
    zesGetSchedulerProcAddrTable {}
    zesGetPerformanceFactorProcAddrTable {}
    zesGetPowerProcAddrTable {}
    zesGetFrequencyProcAddrTable {}
    zesGetEngineProcAddrTable {}
    zesGetStandbyProcAddrTable {}
    zesGetFirmwareProcAddrTable {}
    zesGetMemoryProcAddrTable {}
    zesGetFabricPortProcAddrTable {}
    zesGetTemperatureProcAddrTable {}
    zesGetPsuProcAddrTable {}
    zesGetFanProcAddrTable {}
    zesGetLedProcAddrTable {}
    zesGetRasProcAddrTable {}
    zesGetDiagnosticsProcAddrTable {}
    zeGetRTASBuilderProcAddrTable {}
    zeGetRTASBuilderExpProcAddrTable {}
    zeGetRTASParallelOperationProcAddrTable {}
    zeGetRTASParallelOperationExpProcAddrTable {}
    zeGetDriverExpProcAddrTable {}
    zeGetMemExpProcAddrTable {}
    zeGetGraphProcAddrTable {}
    zeGetExecutableGraphProcAddrTable {}
    zetGetMetricProgrammableExpProcAddrTable {}
    zetGetMetricTracerExpProcAddrTable {}
    zetGetMetricDecoderExpProcAddrTable {}
    zetGetDeviceExpProcAddrTable {}
    zetGetCommandListExpProcAddrTable {}
    zetGetMetricExpProcAddrTable {}
    zesGetGlobalProcAddrTable {}
    zesGetDeviceExpProcAddrTable {}
    zesGetDriverExpProcAddrTable {}
    zesGetOverclockProcAddrTable {}
    zesGetFirmwareExpProcAddrTable {}
    zesGetRasExpProcAddrTable {}
    zesGetVFManagementExpProcAddrTable {}
    zerGetGlobalProcAddrTable {}
}

/// For tests: makes calls fail (`fail NAME NUMBER CODE`), loses all devices (`lose`) and finds them again
/// (`find`), and tells how many objects the program has to destroy (`live`).
// SAFETY: no other library has a function of this name.
#[unsafe(no_mangle)]
extern "C" fn level_zero_driver_control(command: *const c_char) -> u64 {
    enter("level_zero_driver_control");
    let command = text(command).unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let mut state = lock();
    match words[..] {
        ["fail", ref plan @ ..] => u64::from(state.faults.plan(plan)),
        ["lose"] => devices::lose(&mut state),
        ["find"] => devices::find_again(&mut state),
        ["live"] => state.live() as u64,
        _ => crate::misuse::misuse!("there is no command '{command}'"),
    }
}
