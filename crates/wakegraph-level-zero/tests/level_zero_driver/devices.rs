//! Drivers, devices, contexts.

use crate::Outcome;
use crate::misuse::misuse;
use crate::objects::Handle;
use crate::pointers::{chain, give, put_text, read, write};
use crate::presets::*;
use crate::state::{State, now};
use crate::types::*;

#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) preset: Preset,
    pub(crate) devices: Vec<Handle>,
}

#[derive(Debug)]
pub(crate) struct Device {
    /// The driver.
    pub(crate) preset: Handle,
    pub(crate) api: Preset,
    name: String,
    /// Its number among the sub-devices of its device.
    part: Option<u32>,
    parts: Vec<Handle>,
    pub(crate) is_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Context {
    /// The driver.
    pub(crate) preset: Handle,
}

pub(crate) fn add(state: &mut State, preset: Preset) {
    let driver = state.drivers.add(Driver { preset, devices: Vec::new() });
    for index in 0..preset.devices {
        let device = |part: Option<u32>, parts| {
            let part_name = part.map(|part| format!(".{part}")).unwrap_or_default();
            let name = format!("wakegraph test device {}-{index}{part_name}", preset.name);
            Device { preset: driver, api: preset, name, part, parts, is_lost: false }
        };
        let parts = (0..preset.sub_devices).map(|part| state.devices.add(device(Some(part), Vec::new())));
        let parts = parts.collect();
        let whole = state.devices.add(device(None, parts));
        state.drivers.get(driver).devices.push(whole);
    }
}

impl Device {
    pub(crate) fn groups(&self) -> Vec<ze_command_queue_group_properties_t> {
        let mut compute = ze_command_queue_group_properties_t::new();
        compute.flags =
            ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE | ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        (compute.maxMemoryFillPatternSize, compute.numQueues) = (self.api.longest_pattern, 4);
        let mut copy = ze_command_queue_group_properties_t::new();
        copy.flags = ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY;
        (copy.maxMemoryFillPatternSize, copy.numQueues) = (LONGEST_COPY_PATTERN, 1);
        if self.api.has_copy_engine { vec![compute, copy] } else { vec![compute] }
    }

    fn kernel_bits(&self) -> u32 {
        if self.api.timestamp_bits == 64 { 64 } else { 32 }
    }

    /// A time of this driver as events of commands give it.
    pub(crate) fn kernel_cycles(&self, nanoseconds: u64) -> u64 {
        let cycles = self.cycles(nanoseconds);
        if self.kernel_bits() == 64 { cycles } else { cycles & u64::from(u32::MAX) }
    }

    fn bits(&self, value: u64) -> u64 {
        if self.api.timestamp_bits == 64 { value } else { value & ((1 << self.api.timestamp_bits) - 1) }
    }

    /// The device's clock at a time of this driver's.
    pub(crate) fn cycles(&self, nanoseconds: u64) -> u64 {
        let before = |seconds: u64| (1 << 32) - seconds * 1_000_000_000 / RESOLUTION;
        self.bits(nanoseconds / RESOLUTION + self.api.seconds_to_wrap.map_or(0, before))
    }
}

pub(crate) fn init(state: &mut State, _: ze_init_flags_t) -> Outcome {
    if !crate::opencl::is_there() {
        return Err(ZE_RESULT_ERROR_UNINITIALIZED);
    }
    if !std::mem::replace(&mut state.is_initialized, true) {
        eprintln!("level_zero_driver: seed {}", crate::state::seed());
    }
    Ok(())
}

pub(crate) fn init_drivers(
    state: &mut State,
    count: *mut u32,
    to: *mut ze_driver_handle_t,
    desc: *mut ze_init_driver_type_desc_t,
) -> Outcome {
    init(state, 0)?;
    if read(desc.cast_const())?.flags & ZE_INIT_DRIVER_TYPE_FLAG_GPU == 0 {
        return write(count, 0);
    }
    drivers(state, count, to)
}

pub(crate) fn drivers(state: &mut State, count: *mut u32, to: *mut ze_driver_handle_t) -> Outcome {
    if !state.is_initialized {
        return Err(ZE_RESULT_ERROR_UNINITIALIZED);
    }
    let mut all: Vec<Handle> = state.drivers.iter().map(|(handle, _)| *handle).collect();
    all.sort_unstable();
    give(count, to.cast::<Handle>(), &all)
}

pub(crate) fn api_version(
    state: &mut State,
    driver: ze_driver_handle_t,
    to: *mut ze_api_version_t,
) -> Outcome {
    write(to, state.drivers.get(driver as Handle).preset.api)
}

pub(crate) fn driver_properties(
    state: &mut State,
    driver: ze_driver_handle_t,
    to: *mut ze_driver_properties_t,
) -> Outcome {
    state.drivers.get(driver as Handle);
    let mut properties = read(to)?;
    properties.driverVersion = 1;
    write(to, properties)
}

pub(crate) fn extensions(
    state: &mut State,
    driver: ze_driver_handle_t,
    count: *mut u32,
    to: *mut ze_driver_extension_properties_t,
) -> Outcome {
    let names = state.drivers.get(driver as Handle).preset.extensions();
    let all = names.into_iter().map(|name| {
        let mut extension = ze_driver_extension_properties_t { name: [0; 256], version: version(1, 0) };
        put_text(&mut extension.name, name);
        extension
    });
    give(count, to, &all.collect::<Vec<_>>())
}

pub(crate) fn devices(
    state: &mut State,
    driver: ze_driver_handle_t,
    count: *mut u32,
    to: *mut ze_device_handle_t,
) -> Outcome {
    give(count, to.cast::<Handle>(), &state.drivers.get(driver as Handle).devices)
}

pub(crate) fn sub_devices(
    state: &mut State,
    device: ze_device_handle_t,
    count: *mut u32,
    to: *mut ze_device_handle_t,
) -> Outcome {
    give(count, to.cast::<Handle>(), &state.devices.get(device as Handle).parts)
}

pub(crate) fn properties(
    state: &mut State,
    device: ze_device_handle_t,
    to: *mut ze_device_properties_t,
) -> Outcome {
    let device_id = state.device_id;
    let device = state.devices.get(device as Handle);
    let mut properties = read(to)?;
    // Version 1.2 of the structure gives cycles a second.
    let is_frequency = properties.stype == ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
    properties.type_ = ZE_DEVICE_TYPE_GPU;
    (properties.vendorId, properties.deviceId) = (0x8086, device_id);
    properties.flags = if device.part.is_some() { ZE_DEVICE_PROPERTY_FLAG_SUBDEVICE } else { 0 };
    properties.subdeviceId = device.part.unwrap_or(0);
    properties.maxMemAllocSize = LARGEST_ALLOCATION;
    (properties.numSlices, properties.numSubslicesPerSlice) = (1, 1);
    (properties.numEUsPerSubslice, properties.numThreadsPerEU, properties.physicalEUSimdWidth) = (2, 1, 8);
    properties.timerResolution = if is_frequency { 1_000_000_000 / RESOLUTION } else { RESOLUTION };
    properties.timestampValidBits = device.api.timestamp_bits;
    properties.kernelTimestampValidBits = device.kernel_bits();
    put_text(&mut properties.name, &device.name);
    for (stype, at) in chain(properties.pNext) {
        if stype == ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_PROPERTIES {
            let at = at.cast_mut().cast::<ze_mutable_command_list_exp_properties_t>();
            let mut mutable = read(at)?;
            mutable.mutableCommandFlags = device.api.mutable;
            write(at, mutable)?;
        }
    }
    write(to, properties)
}

pub(crate) fn compute_properties(
    state: &mut State,
    device: ze_device_handle_t,
    to: *mut ze_device_compute_properties_t,
) -> Outcome {
    let api = state.devices.get(device as Handle).api.api;
    let mut properties = read(to)?;
    // A driver that cannot tell the largest group of a kernel names one that all kernels can have.
    properties.maxTotalGroupSize =
        if api < version(1, 9) { LARGEST_GROUP_OF_A_KERNEL } else { LARGEST_GROUP };
    [properties.maxGroupSizeX, properties.maxGroupSizeY, properties.maxGroupSizeZ] = LARGEST_GROUP_SIZES;
    [properties.maxGroupCountX, properties.maxGroupCountY, properties.maxGroupCountZ] = [u32::MAX; 3];
    properties.maxSharedLocalMemory = LOCAL_MEMORY;
    (properties.numSubGroupSizes, properties.subGroupSizes[0]) = (1, 8);
    write(to, properties)
}

pub(crate) fn module_properties(
    state: &mut State,
    device: ze_device_handle_t,
    to: *mut ze_device_module_properties_t,
) -> Outcome {
    state.devices.get(device as Handle);
    let mut properties = read(to)?;
    properties.spirvVersionSupported = version(1, 2);
    properties.flags = ZE_DEVICE_MODULE_FLAG_FP64 | ZE_DEVICE_MODULE_FLAG_INT64_ATOMICS;
    properties.maxArgumentsSize = 2048;
    write(to, properties)
}

pub(crate) fn queue_groups(
    state: &mut State,
    device: ze_device_handle_t,
    count: *mut u32,
    to: *mut ze_command_queue_group_properties_t,
) -> Outcome {
    give(count, to, &state.devices.get(device as Handle).groups())
}

pub(crate) fn memory_properties(
    state: &mut State,
    device: ze_device_handle_t,
    count: *mut u32,
    to: *mut ze_device_memory_properties_t,
) -> Outcome {
    state.devices.get(device as Handle);
    let mut memory = ze_device_memory_properties_t::new();
    memory.totalSize = MEMORY;
    put_text(&mut memory.name, "plain memory");
    give(count, to, &[memory])
}

pub(crate) fn memory_access(
    state: &mut State,
    device: ze_device_handle_t,
    to: *mut ze_device_memory_access_properties_t,
) -> Outcome {
    state.devices.get(device as Handle);
    let mut access = read(to)?;
    access.hostAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    access.deviceAllocCapabilities = ZE_MEMORY_ACCESS_CAP_FLAG_RW;
    write(to, access)
}

pub(crate) fn can_access_peer(
    state: &mut State,
    device: ze_device_handle_t,
    peer: ze_device_handle_t,
    to: *mut ze_bool_t,
) -> Outcome {
    let driver = state.devices.get(device as Handle).preset;
    if driver != state.devices.get(peer as Handle).preset {
        misuse!("the devices are of two drivers");
    }
    write(to, 1)
}

pub(crate) fn status(state: &mut State, device: ze_device_handle_t) -> Outcome {
    state.fail_if_lost(device as Handle)
}

pub(crate) fn global_timestamps(
    state: &mut State,
    device: ze_device_handle_t,
    host_time: *mut u64,
    device_time: *mut u64,
) -> Outcome {
    state.fail_if_lost(device as Handle)?;
    let now = now();
    write(host_time, now)?;
    write(device_time, state.devices.get(device as Handle).cycles(now))
}

pub(crate) fn create_context(
    state: &mut State,
    driver: ze_driver_handle_t,
    desc: *const ze_context_desc_t,
    to: *mut ze_context_handle_t,
) -> Outcome {
    state.drivers.get(driver as Handle);
    read(desc)?;
    let context = state.contexts.add(Context { preset: driver as Handle });
    write(to, context as ze_context_handle_t)
}

pub(crate) fn destroy_context(state: &mut State, context: ze_context_handle_t) -> Outcome {
    let context = context as Handle;
    state.contexts.get(context);
    if state.pools.iter().any(|(_, pool)| pool.context == context) {
        misuse!("the context has event pools");
    }
    if state.events.iter().any(|(_, event)| event.context == context) {
        misuse!("the context has events");
    }
    if state.modules.iter().any(|(_, module)| module.context == context) {
        misuse!("the context has modules");
    }
    if state.lists.iter().any(|(_, list)| list.context == context) {
        misuse!("the context has command lists");
    }
    if state.queues.iter().any(|(_, queue)| queue.context == context) {
        misuse!("the context has command queues");
    }
    if state.memory.is_used_by(context) {
        misuse!("the context has memory");
    }
    state.contexts.remove(context);
    Ok(())
}

pub(crate) fn context_status(state: &mut State, context: ze_context_handle_t) -> Outcome {
    let driver = state.contexts.get(context as Handle).preset;
    let devices = state.drivers.get(driver).devices.clone();
    devices.into_iter().try_for_each(|device| state.fail_if_lost(device))
}

/// All devices are lost, with what is in flight on them; how many.
pub(crate) fn lose(state: &mut State) -> u64 {
    let all: Vec<Handle> = state.devices.iter().map(|(handle, _)| *handle).collect();
    for device in &all {
        crate::faults::begin();
        state.devices.get(*device).is_lost = true;
        state.drop_commands_of(*device);
    }
    all.len() as u64
}

/// The devices are there again; how many.
pub(crate) fn find_again(state: &mut State) -> u64 {
    let all: Vec<Handle> = state.devices.iter().map(|(handle, _)| *handle).collect();
    all.iter().for_each(|device| state.devices.get(*device).is_lost = false);
    all.len() as u64
}
