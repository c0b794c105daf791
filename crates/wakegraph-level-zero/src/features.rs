//! What a device can do, read from the driver.
//!
//! A driver's success proves nothing: old ones accept flags and structures that they do not know,
//! and ignore them. So everything that is newer than version 1.0 is decided by the version and the
//! extensions that the driver reports, and by the functions that the loader has.
#![expect(unsafe_code, reason = "calls the driver")]

use wakegraph_hal::{Capabilities, CommandKinds, UpdateCapabilities};

use super::driver::{DriverDevice, list};
use super::options::LevelZeroOptions;
use super::sys::{self, DriverResult, call, fill, version};

/// Engines of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineGroup {
    pub(super) ordinal: u32,
    /// The longest pattern that they fill with, in bytes.
    pub(super) longest_pattern: usize,
}

/// LevelZeroFeatures that only this backend needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelZeroFeatures {
    /// Whether closed lists can be appended to immediate ones.
    pub(super) immediate_append: bool,
    /// Whether to do so by `zeCommandListImmediateAppendCommandListsWithParameters`, the newer
    /// function.
    pub(super) append_with_parameters: bool,
    /// Whether lists can be in-order, and immediate ones can be waited for.
    pub(super) in_order_lists: bool,
    /// Whether there are events that are never reset, made by `zeEventCounterBasedCreate`.
    pub(super) counter_based_events: bool,
    /// What can be changed in a closed list.
    pub(super) mutable: sys::ze_mutable_command_exp_flags_t,
    /// Whether a launch can begin at an offset.
    pub(super) global_offset: bool,
    /// Whether there may be allocations above `maxMemAllocSize`.
    pub(super) relaxed_limits: bool,
    /// Whether the driver can put off a free until nothing uses the memory.
    pub(super) deferred_free: bool,
    /// Whether a kernel tells how large its work-groups may be.
    pub(super) kernel_group_size: bool,
    /// Engines that run every command.
    pub(super) compute: EngineGroup,
    /// Engines for copies, which run no kernels.
    pub(super) copy: Option<EngineGroup>,
}

impl LevelZeroFeatures {
    pub(super) fn read(device: DriverDevice, options: &LevelZeroOptions) -> DriverResult<Self> {
        let (driver, api) = (device.driver, device.driver.api);
        let groups = list(sys::ze_command_queue_group_properties_t::new(), |count, places| {
            // SAFETY: the driver gave the device; there is room for as many as `count` says.
            unsafe { call!(api, zeDeviceGetCommandQueueGroupProperties(device.raw, count, places)) }
        })?;
        let group = |has: u32, has_not: u32| {
            let mut groups = (0..).zip(&groups).filter(|(_, group)| group.numQueues > 0);
            let (ordinal, group) =
                groups.find(|(_, group)| group.flags & has != 0 && group.flags & has_not == 0)?;
            Some(EngineGroup { ordinal, longest_pattern: group.maxMemoryFillPatternSize })
        };
        let (compute, copy) = (
            sys::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE,
            sys::ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
        );
        let missing = EngineGroup { ordinal: 0, longest_pattern: 1 };
        let append = api.has("zeCommandListImmediateAppendCommandListsExp")
            && driver.has("ZE_experimental_immediate_command_list_append");
        Ok(Self {
            immediate_append: append,
            append_with_parameters: append
                && driver.version >= version(1, 15)
                && api.has("zeCommandListImmediateAppendCommandListsWithParameters"),
            in_order_lists: driver.version >= version(1, 7) && api.has("zeCommandListHostSynchronize"),
            counter_based_events: driver.version >= version(1, 15) && api.has("zeEventCounterBasedCreate"),
            mutable: match driver.has("ZE_experimental_mutable_command_list")
                && api.has("zeCommandListUpdateMutableCommandsExp")
            {
                true => mutable_flags(device)?,
                false => 0,
            },
            global_offset: driver.has("ZE_experimental_global_offset")
                && api.has("zeKernelSetGlobalOffsetExp"),
            relaxed_limits: driver.has("ZE_experimental_relaxed_allocation_limits")
                || driver.has("ZE_extension_relaxed_allocation_limits"),
            deferred_free: driver.has("ZE_extension_memory_free_policies") && api.has("zeMemFreeExt"),
            kernel_group_size: driver.has("ZE_extension_kernel_max_group_size_properties"),
            compute: group(compute, 0).unwrap_or(missing),
            copy: group(copy, compute).filter(|_| options.copy_engine),
        })
    }
}

fn mutable_flags(device: DriverDevice) -> DriverResult<sys::ze_mutable_command_exp_flags_t> {
    let mut mutable = sys::ze_mutable_command_list_exp_properties_t::new();
    let mut properties = sys::ze_device_properties_t::new();
    properties.pNext = (&raw mut mutable).cast();
    // SAFETY: the driver gave the device, and knows the structure behind the first.
    unsafe { call!(device.driver.api, zeDeviceGetProperties(device.raw, &raw mut properties)) }?;
    Ok(mutable.mutableCommandFlags)
}

/// Memory of the device in bytes.
pub(super) fn memory(device: DriverDevice) -> DriverResult<u64> {
    let memories = list(sys::ze_device_memory_properties_t::new(), |count, places| {
        // SAFETY: the driver gave the device; there is room for as many as `count` says.
        unsafe { call!(device.driver.api, zeDeviceGetMemoryProperties(device.raw, count, places)) }
    })?;
    Ok(memories.iter().map(|memory| memory.totalSize).sum())
}

/// `profiling` is whether the device's clock can be read.
pub(super) fn capabilities(
    device: DriverDevice,
    features: &LevelZeroFeatures,
    properties: &sys::ze_device_properties_t,
    memory: u64,
    profiling: bool,
) -> DriverResult<Capabilities> {
    let compute = sys::ze_device_compute_properties_t::new();
    // SAFETY: the driver gave the device.
    let compute = unsafe { fill!(device.driver.api, zeDeviceGetComputeProperties(device.raw), compute) }?;
    let sizes = |sizes: [u32; 3]| sizes.map(|size| size as usize);
    let largest = match features.relaxed_limits {
        true => memory.max(properties.maxMemAllocSize),
        false => properties.maxMemAllocSize,
    };
    // Level Zero has no control flow on the device.
    let commands = CommandKinds::all()
        - CommandKinds::HOST_TASK
        - CommandKinds::SUB_GRAPH
        - CommandKinds::STREAM_TASK
        - CommandKinds::IF
        - CommandKinds::WHILE;
    Ok(Capabilities {
        update: UpdateCapabilities::all(),
        profiling,
        notifies: false,
        batches: false,
        queue_priorities: true,
        stream_tasks: true,
        out_of_order_queues: true,
        max_work_group_size: compute.maxTotalGroupSize as usize,
        max_work_item_sizes: sizes([compute.maxGroupSizeX, compute.maxGroupSizeY, compute.maxGroupSizeZ]),
        max_work_groups: sizes([compute.maxGroupCountX, compute.maxGroupCountY, compute.maxGroupCountZ]),
        // Counts and offsets are 32 bits.
        max_global_index: u32::MAX as usize,
        concurrent_parts: true,
        global_offset: features.global_offset,
        view_alignment: 1,
        local_memory: compute.maxSharedLocalMemory as usize,
        max_allocation: usize::try_from(largest).unwrap_or(usize::MAX),
        ..Capabilities::new(commands)
    })
}
