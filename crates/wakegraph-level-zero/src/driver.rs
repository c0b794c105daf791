//! The drivers that the loader knows, their devices, and what each device can do.
//!
//! A driver's success proves nothing: old ones accept flags and structures that they do not know,
//! and ignore them. So everything that is newer than version 1.0 is decided by the version and the
//! extensions that the driver reports, and by the functions that the loader has.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char};
use std::ptr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use bytemuck::Zeroable;
use parking_lot::Mutex;
use wakegraph_hal::{Capabilities, CommandKinds, Error, Result, UpdateCapabilities};

use super::error::no_driver;
use super::sys::{self, Api, Context, DriverResult, Owned, call, fill, get, version};

/// One vendor's driver. Memory and events belong to its context and do not leave it.
#[derive(Debug)]
pub(super) struct LoadedDriver {
    pub(super) api: &'static Api,
    raw: sys::ze_driver_handle_t,
    /// The version of Level Zero that the driver implements. The loader may be newer.
    pub(super) version: sys::ze_api_version_t,
    pub(super) name: String,
    extensions: Vec<String>,
    devices: Vec<sys::ze_device_handle_t>,
    /// The context that all open devices of the driver share.
    context: Mutex<Weak<Owned<Context>>>,
}

// SAFETY: handles of drivers and devices are valid for the life of the process, on any thread.
unsafe impl Send for LoadedDriver {}
// SAFETY: as for `Send`.
unsafe impl Sync for LoadedDriver {}

impl LoadedDriver {
    fn new(api: &'static Api, raw: sys::ze_driver_handle_t) -> DriverResult<Self> {
        // SAFETY: the loader gave the driver.
        let version = unsafe { get!(api, zeDriverGetApiVersion(raw)) }?;
        let properties = sys::ze_driver_properties_t::new();
        // SAFETY: as above.
        let properties = unsafe { fill!(api, zeDriverGetProperties(raw), properties) }?;
        let extension = sys::ze_driver_extension_properties_t::zeroed();
        let extensions = list(extension, |count, places| {
            // SAFETY: as above; there is room for as many as `count` says.
            unsafe { call!(api, zeDriverGetExtensionProperties(raw, count, places)) }
        })?;
        let devices = list(ptr::null_mut(), |count, places| {
            // SAFETY: as above; there is room for as many as `count` says.
            unsafe { call!(api, zeDeviceGet(raw, count, places)) }
        })?;
        let own = properties.driverVersion;
        Ok(Self {
            api,
            raw,
            version,
            name: format!(
                "Level Zero {}.{}, driver {}.{}.{}",
                version >> 16,
                version & 0xffff,
                own >> 24,
                own >> 16 & 0xff,
                own & 0xffff
            ),
            extensions: extensions.iter().map(|extension| text(&extension.name)).collect(),
            devices,
            context: Mutex::default(),
        })
    }

    /// Whether the driver reports an extension of this name.
    pub(super) fn has(&self, extension: &str) -> bool {
        self.extensions.iter().any(|known| known == extension)
    }

    /// The context of the driver's devices.
    pub(super) fn context(&self) -> DriverResult<Arc<Owned<Context>>> {
        let mut known = self.context.lock();
        if let Some(context) = known.upgrade() {
            return Ok(context);
        }
        let (api, desc) = (self.api, sys::ze_context_desc_t::new());
        // SAFETY: the driver is there.
        let raw = unsafe { get!(api, zeContextCreate(self.raw, &raw const desc)) }?;
        // SAFETY: the driver has just created the context for this object.
        let context = Arc::new(unsafe { Owned::new(api, raw) });
        *known = Arc::downgrade(&context);
        Ok(context)
    }
}

/// A device of a driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriverDevice {
    pub(super) driver: &'static LoadedDriver,
    pub(super) raw: sys::ze_device_handle_t,
}

impl DriverDevice {
    /// The structure of version 1.2, in which the timer's resolution is in cycles per second, where
    /// the driver has it.
    pub(super) fn properties(self) -> DriverResult<sys::ze_device_properties_t> {
        let mut properties = sys::ze_device_properties_t::new();
        if self.driver.version >= sys::version(1, 2) {
            properties.stype = sys::ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES_1_2;
        }
        // SAFETY: the driver gave the device.
        unsafe { fill!(self.driver.api, zeDeviceGetProperties(self.raw), properties) }
    }

    /// The device's parts, which the hardware fixes.
    pub(super) fn parts(self) -> DriverResult<Vec<Self>> {
        let parts = list(ptr::null_mut(), |count, places| {
            // SAFETY: the driver gave the device; there is room for as many as `count` says.
            unsafe { call!(self.driver.api, zeDeviceGetSubDevices(self.raw, count, places)) }
        })?;
        Ok(parts.into_iter().map(|raw| Self { raw, ..self }).collect())
    }

    /// Memory of the device in bytes.
    pub(super) fn memory(self) -> DriverResult<u64> {
        let memories = list(sys::ze_device_memory_properties_t::new(), |count, places| {
            // SAFETY: the driver gave the device; there is room for as many as `count` says.
            unsafe { call!(self.driver.api, zeDeviceGetMemoryProperties(self.raw, count, places)) }
        })?;
        Ok(memories.iter().map(|memory| memory.totalSize).sum())
    }
}

/// All GPUs of all drivers, in the loader's order.
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) without a loader or without a driver, with the
/// remedy.
pub(super) fn devices() -> Result<Vec<DriverDevice>> {
    static DRIVERS: OnceLock<Vec<LoadedDriver>> = OnceLock::new();
    // After a failure the next call tries again. Of two threads that come first, one's list is used.
    let drivers = match DRIVERS.get() {
        Some(drivers) => drivers,
        None => {
            let found = self::drivers()?;
            DRIVERS.get_or_init(|| found)
        }
    };
    let mut found = Vec::new();
    for driver in drivers {
        for raw in &driver.devices {
            let device = DriverDevice { driver, raw: *raw };
            if device.properties()?.type_ == sys::ZE_DEVICE_TYPE_GPU {
                found.push(device);
            }
        }
    }
    Ok(found)
}

fn drivers() -> Result<Vec<LoadedDriver>> {
    let api = sys::api().map_err(Error::from)?;
    let handles = handles(api).map_err(no_driver)?;
    let drivers = handles.into_iter().map(|raw| LoadedDriver::new(api, raw));
    Ok(drivers.collect::<DriverResult<_>>()?)
}

/// The drivers, by the new call where the loader has it. It fails on a loader whose drivers are too
/// old.
fn handles(api: &Api) -> DriverResult<Vec<sys::ze_driver_handle_t>> {
    let mut desc = sys::ze_init_driver_type_desc_t::new();
    desc.flags = sys::ZE_INIT_DRIVER_TYPE_FLAG_GPU;
    let new = list(ptr::null_mut(), |count, places| {
        // SAFETY: there is room for as many as `count` says.
        unsafe { call!(api, zeInitDrivers(count, places, &raw mut desc)) }
    });
    match new {
        Ok(handles) if !handles.is_empty() => Ok(handles),
        _ => {
            // SAFETY: the flag is one of the function's.
            unsafe { call!(api, zeInit(sys::ZE_INIT_FLAG_GPU_ONLY)) }?;
            list(ptr::null_mut(), |count, places| {
                // SAFETY: there is room for as many as `count` says.
                unsafe { call!(api, zeDriverGet(count, places)) }
            })
        }
    }
}

/// The items of a function that tells how many there are and then writes them. It writes over
/// `empty`.
pub(super) fn list<T: Copy>(
    empty: T,
    mut call: impl FnMut(*mut u32, *mut T) -> DriverResult,
) -> DriverResult<Vec<T>> {
    let mut count = 0;
    call(&raw mut count, ptr::null_mut())?;
    let mut items = vec![empty; count as usize];
    if count > 0 {
        call(&raw mut count, items.as_mut_ptr())?;
        items.truncate(count as usize);
    }
    Ok(items)
}

/// The text in an array, up to its NUL.
pub(super) fn text(chars: &[c_char]) -> String {
    // Some targets have signed characters, others unsigned ones.
    let bytes: &[u8] = bytemuck::cast_slice(chars);
    CStr::from_bytes_until_nul(bytes).map_or_else(
        |_| String::from_utf8_lossy(bytes).into_owned(),
        |text| text.to_string_lossy().into_owned(),
    )
}

/// Engines of one kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct EngineGroup {
    pub(super) ordinal: u32,
    /// The longest pattern that they fill with, in bytes.
    pub(super) longest_pattern: usize,
}

/// Features of a device that only this backend needs to know.
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
    /// Flags of the values that can be changed in a closed list.
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
    pub(super) fn read(device: DriverDevice, copy_engine: bool) -> DriverResult<Self> {
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
            copy: group(copy, compute).filter(|_| copy_engine),
        })
    }

    /// Capabilities of a device with these features. `profiling` is whether the device's clock can be read.
    pub(super) fn capabilities(
        self,
        device: DriverDevice,
        properties: &sys::ze_device_properties_t,
        memory: u64,
        profiling: bool,
    ) -> DriverResult<Capabilities> {
        let compute = sys::ze_device_compute_properties_t::new();
        // SAFETY: the driver gave the device.
        let compute = unsafe { fill!(device.driver.api, zeDeviceGetComputeProperties(device.raw), compute) }?;
        let sizes = |sizes: [u32; 3]| sizes.map(|size| size as usize);
        let largest = match self.relaxed_limits {
            true => memory.max(properties.maxMemAllocSize),
            false => properties.maxMemAllocSize,
        };
        // Level Zero has no control flow on the device.
        let commands = CommandKinds::RECORDABLE - CommandKinds::CONTROL;
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
            global_offset: self.global_offset,
            view_alignment: 1,
            local_memory: compute.maxSharedLocalMemory as usize,
            max_allocation: usize::try_from(largest).unwrap_or(usize::MAX),
            ..Capabilities::new(commands)
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

/// Converts counts of cycles to times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TimerResolution {
    /// A cycle is this many nanoseconds, divided by `per`.
    nanoseconds: u64,
    per: u64,
}

impl TimerResolution {
    fn new(resolution: u64, in_cycles_per_second: bool) -> Self {
        match (resolution.max(1), in_cycles_per_second) {
            (frequency, true) => Self { nanoseconds: 1_000_000_000, per: frequency },
            (nanoseconds, false) => Self { nanoseconds, per: 1 },
        }
    }

    fn to_nanoseconds(self, cycles: u64) -> u64 {
        scale(cycles, self.nanoseconds, self.per)
    }

    fn to_cycles(self, nanoseconds: u64) -> u64 {
        scale(nanoseconds, self.per, self.nanoseconds)
    }
}

fn scale(value: u64, by: u64, per: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(by) / u128::from(per)).unwrap_or(u64::MAX)
}

/// The count that ends in the `bits` low bits of `value` and is nearest to `near`.
fn unwrap(value: u64, bits: u32, near: u64) -> u64 {
    if bits == 0 || bits >= 64 {
        return value;
    }
    let period = 1u64 << bits;
    let distance = value.wrapping_sub(near) & (period - 1);
    match distance <= period / 2 {
        true => near.saturating_add(distance),
        // Before the count begins there is no earlier one.
        false => near.checked_sub(period - distance).unwrap_or(near.saturating_add(distance)),
    }
}

/// The clock of a device.
#[derive(Debug)]
pub(super) struct LevelZeroClock {
    timer: TimerResolution,
    bits: u32,
    kernel_bits: u32,
    /// The last reading, in cycles, and when that was: from it, the next reading is expected.
    last: Mutex<Option<(u64, Instant)>>,
}

impl LevelZeroClock {
    pub(super) fn new(device: DriverDevice, properties: &sys::ze_device_properties_t) -> Self {
        let in_cycles_per_second = device.driver.version >= version(1, 2);
        Self {
            timer: TimerResolution::new(properties.timerResolution, in_cycles_per_second),
            bits: properties.timestampValidBits,
            kernel_bits: properties.kernelTimestampValidBits,
            last: Mutex::new(None),
        }
    }

    /// The time now.
    pub(super) fn now(&self, device: DriverDevice) -> DriverResult<u64> {
        let mut last = self.last.lock();
        let (mut host, mut cycles) = (0, 0);
        // SAFETY: the driver gave the device, both places are numbers.
        unsafe {
            call!(device.driver.api, zeDeviceGetGlobalTimestamps(device.raw, &raw mut host, &raw mut cycles))
        }?;
        let now = Instant::now();
        let cycles = match *last {
            None => unwrap(cycles, self.bits, cycles & mask(self.bits)),
            Some((before, then)) => {
                let elapsed = u64::try_from((now - then).as_nanos()).unwrap_or(u64::MAX);
                let expected = before.saturating_add(self.timer.to_cycles(elapsed));
                unwrap(cycles, self.bits, expected)
            }
        };
        *last = Some((cycles, now));
        Ok(self.timer.to_nanoseconds(cycles))
    }

    /// Converts the timestamps of kernels that ran between `from` and `span` nanoseconds later; `None` if the
    /// timestamps may mean several times in between.
    pub(super) fn kernel_times(&self, from: u64, span: u64) -> Option<impl Fn(u64) -> u64> {
        let (timer, bits) = (self.timer, self.kernel_bits);
        // A part of the period is left for readings of the clock that differ.
        let longest = if (1..64).contains(&bits) { mask(bits) / 8 * 7 } else { u64::MAX };
        let middle = timer.to_cycles(from.saturating_add(span / 2));
        let convert = move |cycles| timer.to_nanoseconds(unwrap(cycles, bits, middle));
        (timer.to_cycles(span) <= longest).then_some(convert)
    }
}

fn mask(bits: u32) -> u64 {
    1u64.checked_shl(bits).map_or(u64::MAX, |period| period.wrapping_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_the_resolution_depends_on_the_version() {
        let old = TimerResolution::new(83, false);
        assert_eq!((old.to_nanoseconds(10), old.to_cycles(830)), (830, 10));
        let new = TimerResolution::new(12_000_000, true);
        assert_eq!((new.to_nanoseconds(12), new.to_cycles(1000)), (1000, 12));
        assert_eq!(TimerResolution::new(0, true).to_nanoseconds(0), 0);
    }

    #[test]
    fn times_of_kernels_are_right_or_missing() {
        const MINUTE: u64 = 60_000_000_000;
        let timer = TimerResolution::new(83, false);
        let clock = LevelZeroClock { timer, bits: 64, kernel_bits: 32, last: Mutex::new(None) };
        let stamp = |time: u64| timer.to_cycles(time) & mask(32);
        // A period takes 5 minutes and 56 seconds.
        for from in [0, 3 * MINUTE, 5 * MINUTE, 100 * MINUTE] {
            for span in [0, 1_000_000, MINUTE, 3 * MINUTE, 4 * MINUTE, 5 * MINUTE] {
                let convert = clock.kernel_times(from, span).unwrap();
                for time in [from, from + span / 3, from + span] {
                    assert!(convert(stamp(time)).abs_diff(time) <= 83, "{time} of {from} + {span}");
                }
            }
            assert!(clock.kernel_times(from, 6 * MINUTE).is_none());
        }
        let wide = LevelZeroClock { kernel_bits: 64, ..clock };
        assert_eq!(wide.kernel_times(0, 100 * MINUTE).unwrap()(timer.to_cycles(83 * MINUTE)), 83 * MINUTE);
    }

    #[test]
    fn counts_are_unwrapped_to_the_nearest_to_what_is_expected() {
        let wrap = 1 << 32;
        assert_eq!(unwrap(5, 32, wrap - 3), wrap + 5);
        assert_eq!(unwrap(wrap - 3, 32, wrap + 5), wrap - 3);
        assert_eq!(unwrap(7, 32, 3 * wrap + 8), 3 * wrap + 7);
        assert_eq!(unwrap(7 | 0xff << 32, 32, 3 * wrap + 8), 3 * wrap + 7, "bits that are not valid");
        assert_eq!(unwrap(wrap - 1, 32, 0), wrap - 1, "there is nothing before zero");
        assert_eq!(unwrap(u64::MAX, 64, 0), u64::MAX);
        assert_eq!((mask(32), mask(64), mask(0)), (wrap - 1, u64::MAX, 0));
    }
}
