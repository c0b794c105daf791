//! Platforms, their devices in a stable order, and what each device can do.
#![expect(unsafe_code, reason = "calls the driver with places for its answers")]

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use bytemuck::{AnyBitPattern, NoUninit};
use parking_lot::Mutex;
use wakegraph_hal::support::library::keep_handlers;
use wakegraph_hal::{Capabilities, CommandKinds, Error, ErrorKind, Progress, Result, UpdateCapabilities};

use super::error::is_lost;
use super::sys::{self, Context, Core, DriverResult, Extensions, Owned, call, create};

/// The driver's handle of a device or platform. It stays valid for the life of the process, or, for a
/// part of a device, of its owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Id(pub(super) *mut c_void);

// SAFETY: an id is only ever handed back to the driver, which takes it on any thread.
unsafe impl Send for Id {}
// SAFETY: as for `Send`.
unsafe impl Sync for Id {}

impl Id {
    pub(super) fn raw(self) -> *mut c_void {
        self.0
    }
}

/// One vendor's OpenCL.
#[derive(Debug)]
pub(super) struct Platform {
    pub(super) core: &'static Core,
    #[cfg(test)]
    id: Id,
    pub(super) name: String,
    version: String,
    /// The vendor's short name for loaders, such as `POCL` or `INTEL`; empty where the driver has none.
    tag: String,
    /// All devices in the driver's order: the context is for these.
    pub(super) devices: Vec<Id>,
    pub(super) extensions: Extensions,
    /// The context that all whole devices share while one is open: buffers and events do not leave
    /// it, and no device can be added to it.
    context: Mutex<Weak<Owned<Context>>>,
}

impl Platform {
    fn new(core: &'static Core, id: Id) -> DriverResult<Self> {
        let all = sys::CL_DEVICE_TYPE_ALL;
        let devices = list_ids(sys::CL_DEVICE_NOT_FOUND, |room, places, count| {
            // SAFETY: the platform is the library's own; there is room for as many ids as `room` says.
            unsafe { call!(core, clGetDeviceIDs(id.raw(), all, room, places, count)) }
        })?;
        let query = query_platform(core, id.raw());
        Ok(Self {
            core,
            #[cfg(test)]
            id,
            name: query.text(sys::CL_PLATFORM_NAME)?,
            version: query.text(sys::CL_PLATFORM_VERSION)?,
            tag: query.text(sys::CL_PLATFORM_ICD_SUFFIX_KHR).unwrap_or_default(),
            devices,
            extensions: Extensions::of(core, id.raw()),
            context: Mutex::default(),
        })
    }

    /// This platform with a context of its own, for tests that replace its functions.
    #[cfg(test)]
    pub(super) fn again(&self) -> DriverResult<Self> {
        Self::new(self.core, self.id)
    }

    #[cfg(test)]
    pub(super) fn id(&self) -> *mut c_void {
        self.id.raw()
    }

    /// A context for one of the platform's whole devices, and whether it is the only one there: the
    /// context is that of all, unless the driver refuses that because of one of the others.
    pub(super) fn context(&self, device: Id) -> Result<(Arc<Owned<Context>>, bool)> {
        let (mut known, alone) = (self.context.lock(), self.devices.len() == 1);
        if let Some(context) = known.upgrade() {
            return Ok((context, alone));
        }
        let context = match create_context(self.core, &self.devices) {
            Err(failure) if !alone => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "no context for all devices of a platform");
                return Ok((Arc::new(create_context(self.core, &[device])?), true));
            }
            created => Arc::new(created?),
        };
        *known = Arc::downgrade(&context);
        Ok((context, alone))
    }
}

/// A context of these devices, which are all of one platform.
pub(super) fn create_context(core: &'static Core, devices: &[Id]) -> DriverResult<Owned<Context>> {
    let raw: Vec<_> = devices.iter().map(|device| device.raw()).collect();
    let count = raw.len() as sys::cl_uint;
    // Intel's CPU runtime takes signals over when it makes a context.
    keep_handlers(|| {
        // SAFETY: the devices are the library's own; no properties and no callback.
        unsafe { create!(core, clCreateContext(ptr::null(), count, raw.as_ptr(), None, ptr::null_mut())) }
    })
}

/// A device of a platform.
#[derive(Clone, Debug)]
pub(super) struct PlatformDevice {
    pub(super) platform: Arc<Platform>,
    pub(super) id: Id,
    /// The names that a selector may use: its own, its vendor's and its platform's.
    pub(super) names: String,
    /// The place of its kind in the order in which devices are counted.
    rank: u8,
}

impl PlatformDevice {
    fn new(platform: &Arc<Platform>, id: Id) -> DriverResult<Self> {
        let query = query_device(platform.core, id.raw());
        let (name, vendor) = (query.text(sys::CL_DEVICE_NAME)?, query.text(sys::CL_DEVICE_VENDOR)?);
        let kind = query.value::<sys::cl_bitfield>(sys::CL_DEVICE_TYPE)?;
        let rank = match kind {
            kind if kind & sys::CL_DEVICE_TYPE_GPU != 0 => GPU,
            kind if kind & sys::CL_DEVICE_TYPE_ACCELERATOR != 0 => 1,
            kind if kind & sys::CL_DEVICE_TYPE_CPU != 0 => 3,
            _ => 2,
        };
        let Platform { name: platform_name, tag, .. } = &**platform;
        let separator = if tag.is_empty() { "" } else { ", " };
        let names = format!("{name} ({vendor}, {platform_name}{separator}{tag})");
        Ok(Self { platform: Arc::clone(platform), id, names, rank })
    }

    pub(super) fn is_gpu(&self) -> bool {
        self.rank == GPU
    }
}

/// The rank of a GPU.
const GPU: u8 = 0;

/// Sorts devices by their kind, then by their platform. Devices of one platform keep the driver's order.
///
/// The loader's order is ignored: it is the order of the files in a directory, which differs between
/// machines and changes when a runtime is installed again.
fn sort(devices: &mut [PlatformDevice]) {
    devices.sort_by_cached_key(|found| {
        let platform = &found.platform;
        (found.rank, platform.name.clone(), platform.version.clone())
    });
}

/// The devices of all platforms, in the order in which they are counted. They are found once; while
/// none has been found, every call searches again.
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without a library, a platform or a device, with the remedy.
pub(super) fn devices() -> Result<Arc<[PlatformDevice]>> {
    static FOUND: Mutex<Option<Arc<[PlatformDevice]>>> = Mutex::new(None);
    let mut found = FOUND.lock();
    if let Some(devices) = &*found {
        return Ok(devices.clone());
    }
    // PoCL takes signals over when it is asked for its platform.
    let devices = keep_handlers(find_devices)?;
    *found = Some(devices.clone());
    Ok(devices)
}

fn find_devices() -> Result<Arc<[PlatformDevice]>> {
    let core = sys::core().map_err(|why| {
        Error::new(ErrorKind::Unavailable, format!("the OpenCL library cannot be loaded: {why}")).help(
            "install an OpenCL loader, for instance Debian's ocl-icd-libopencl1, and a vendor's runtime",
        )
    })?;
    let ids = list_ids(sys::CL_PLATFORM_NOT_FOUND_KHR, |room, places, count| {
        // SAFETY: there is room for as many ids as `room` says.
        unsafe { call!(core, clGetPlatformIDs(room, places, count)) }
    });
    let ids = ids.map_err(|failure| {
        no_platform("the OpenCL loader finds no platform").caused_by(Error::from(failure))
    })?;
    let mut devices = Vec::new();
    for id in ids {
        let found = Platform::new(core, id).map(Arc::new).and_then(|platform| {
            let found = platform.devices.iter().map(|&device| PlatformDevice::new(&platform, device));
            found.collect::<DriverResult<Vec<_>>>()
        });
        match found {
            Ok(found) => devices.extend(found),
            Err(failure) => {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph::opencl", %error, "a platform is left out");
            }
        }
    }
    if devices.is_empty() {
        return Err(no_platform("no OpenCL platform has a device"));
    }
    sort(&mut devices);
    Ok(devices.into())
}

fn no_platform(why: &str) -> Error {
    Error::new(ErrorKind::Unavailable, why).help(
        "install a vendor's OpenCL runtime, or for CPUs Debian's pocl-opencl-icd; `clinfo` lists platforms",
    )
}

/// All ids that `list` gives. It takes how many there is room for, the places for them, and the place
/// for their number; `none` is its code for an empty list.
fn list_ids(
    none: sys::cl_int,
    list: impl Fn(sys::cl_uint, *mut *mut c_void, *mut sys::cl_uint) -> DriverResult,
) -> DriverResult<Vec<Id>> {
    let mut count = 0;
    match list(0, ptr::null_mut(), &raw mut count) {
        Err(failure) if failure.code == none => return Ok(Vec::new()),
        other => other?,
    }
    let mut ids = vec![ptr::null_mut(); count as usize];
    if count > 0 {
        list(count, ids.as_mut_ptr(), ptr::null_mut())?;
    }
    Ok(ids.into_iter().map(Id).collect())
}

/// Features that only this backend needs to know.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenclFeatures {
    /// Memory is shared virtual memory that the host sees at all times.
    pub(super) shared_memory: bool,
    /// `cl_khr_command_buffer`.
    pub(super) recording: Option<RecordingFeatures>,
    /// Whether arguments can be parts of buffer objects (`clCreateSubBuffer`).
    pub(super) sub_buffers: bool,
    /// Alignment in bytes of such a part.
    pub(super) part_alignment: usize,
    /// Whether shared virtual memory can be moved to the device ahead of its use (2.1).
    pub(super) migrates_shared_memory: bool,
    /// Whether there may be memory of `cl_intel_unified_shared_memory`.
    pub(super) unified_memory: bool,
    /// Whether programs can be SPIR-V.
    pub(super) spirv: bool,
    /// Whether device and host clock can be read together.
    pub(super) timer: bool,
    /// Whether a queue can be created with properties (2.0), or only the old way.
    pub(super) queue_properties: bool,
    /// The version of OpenCL that the device has.
    pub(super) version: (u32, u32),
    /// Whether the driver's out-of-order queues can be used.
    pub(super) out_of_order_queues: bool,
    /// Whether the slices of a rectangle have to lie in the buffer object as a whole, with the bytes
    /// between the rectangle and the pitch.
    pub(super) whole_slices: bool,
    /// Whether the driver knows when markers and barriers began and ended.
    pub(super) marker_times: bool,
    /// Whether a write reads memory that is not the driver's when it has its turn, and not before.
    pub(super) defers_writes: bool,
    /// Whether the times of an event may become available a moment after it is complete.
    pub(super) late_times: bool,
    /// Whether the markers in a queue are complete when `clFinish` returns.
    pub(super) finish_completes_markers: bool,
    /// Whether a command that waits for an event that fails ends at once, the commands that wait for it are
    /// skipped and reported as complete, and those that come after either run.
    pub(super) failure_skips: bool,
    /// Whether a queue can be created with a priority.
    pub(super) queue_priorities: bool,
    /// Bytes of local memory that are left for the gaps between a kernel's arguments.
    pub(super) local_gaps: usize,
    /// Whether the driver's compiler takes one program at a time.
    pub(super) builds_alone: bool,
}

/// How a device records command-buffers.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordingFeatures {
    /// A recording can be enqueued again, behind its last run, while that is pending.
    pub(super) repeats: bool,
    /// Such a recording has to be made for simultaneous use.
    pub(super) simultaneous: bool,
    /// Fields that can be changed in a recording: bits of `CL_MUTABLE_DISPATCH_*`.
    pub(super) mutable: sys::cl_bitfield,
}

const fn version(major: u32, minor: u32, patch: u32) -> sys::cl_uint {
    (major << 22) | (minor << 12) | patch
}

impl OpenclFeatures {
    pub(super) fn read(device: &impl Query, platform: &str, shared_memory: bool) -> Self {
        let svm = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0);
        let numeric = device.text(sys::CL_DEVICE_VERSION).map_or((1, 2), |text| parse_version(&text));
        Self {
            shared_memory: shared_memory && svm & sys::CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0,
            recording: RecordingFeatures::read(device),
            // NVIDIA's driver (580) crashes when it releases some of those that several queues have used,
            // also if nothing uses them or their buffer object any more.
            sub_buffers: platform != NVIDIA,
            // The driver counts in bits.
            part_alignment: device
                .value::<u32>(sys::CL_DEVICE_MEM_BASE_ADDR_ALIGN)
                .map_or(1, |bits| (bits as usize / 8).max(1)),
            migrates_shared_memory: numeric >= (2, 1),
            unified_memory: extension(device, "cl_intel_unified_shared_memory").is_some(),
            spirv: device.text(sys::CL_DEVICE_IL_VERSION).is_ok_and(|il| il.contains("SPIR-V")),
            version: numeric,
            timer: numeric >= (2, 1),
            queue_properties: numeric >= (2, 0),
            // Intel's CPU runtime sometimes deadlocks while it releases one: its last task waits for
            // itself.
            out_of_order_queues: platform != INTEL,
            // NVIDIA's driver (580) refuses some rectangles that lie in the buffer by the specification's
            // formula.
            whole_slices: platform == NVIDIA,
            // That driver reports the times of something earlier, or none at all.
            marker_times: platform != NVIDIA,
            defers_writes: platform != NVIDIA,
            late_times: platform == NVIDIA,
            finish_completes_markers: platform != NVIDIA,
            failure_skips: platform == INTEL,
            queue_priorities: numeric >= (2, 0) && extension(device, "cl_khr_priority_hints").is_some(),
            // NVIDIA's driver aligns each argument, and counts the gaps, and a byte for an argument that is
            // not set.
            local_gaps: if platform == NVIDIA { 1024 } else { 0 },
            // Its compilers of one context work on the same state of LLVM's, without a lock.
            builds_alone: platform == OCLGRIND,
        }
    }

    /// Capabilities of a device with these features. `alone` is whether the device is the only one of its
    /// context.
    pub(super) fn capabilities(
        self,
        device: &impl Query,
        platform: &str,
        alone: bool,
    ) -> DriverResult<Capabilities> {
        // OpenCL has no control flow on the device, and cannot capture what others enqueue on a queue.
        let mut commands = CommandKinds::RECORDABLE - CommandKinds::CONTROL - CommandKinds::NATIVE;
        if !self.shared_memory {
            commands -= CommandKinds::USM_COPY
                | CommandKinds::USM_FILL
                | CommandKinds::USM_PREFETCH
                | CommandKinds::USM_ADVISE;
        }
        let nvidia = platform == NVIDIA;
        let bytes = |what| Ok(device.value::<u64>(what)?.try_into().unwrap_or(usize::MAX));
        let queues = device.value::<sys::cl_bitfield>(sys::CL_DEVICE_QUEUE_ON_HOST_PROPERTIES)?;
        let sizes = device.values::<usize>(sys::CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
        let is_cpu = is_cpu(device)?;
        Ok(Capabilities {
            commands,
            update: UpdateCapabilities::all(),
            profiling: true,
            // PoCL calls back on the thread that completes an event. A waiting task is then woken as soon as
            // by the driver's own wait, and no thread has to poll while kernels run on all cores. Intel's
            // CPU runtime takes longer for a callback than for a small kernel, and on a busy machine its
            // callbacks come late. Others may call back only while a thread waits for them, as oclgrind does.
            notifies: platform == POCL,
            progress: if is_cpu { Progress::HostCores } else { Progress::Device },
            batches: false,
            queue_priorities: self.queue_priorities,
            stream_tasks: true,
            out_of_order_queues: queues & sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE != 0,
            max_work_group_size: device.value(sys::CL_DEVICE_MAX_WORK_GROUP_SIZE)?,
            max_work_item_sizes: std::array::from_fn(|dimension| sizes.get(dimension).copied().unwrap_or(1)),
            max_work_groups: [usize::MAX; 3],
            // NVIDIA's driver (580) cuts an offset to 32 bits without a word.
            max_global_index: if nvidia { u32::MAX as usize } else { usize::MAX },
            // Unless it is shared virtual memory, the specification leaves undefined what happens to a
            // buffer object that several devices of a context use at once, or that one device uses
            // beside a part of it that is a buffer object of its own.
            concurrent_parts: self.shared_memory || alone && !self.sub_buffers,
            global_offset: true,
            // `lower.rs` passes a copy of a part that the driver does not accept.
            view_alignment: 1,
            local_memory: bytes(sys::CL_DEVICE_LOCAL_MEM_SIZE)?.saturating_sub(self.local_gaps),
            max_allocation: bytes(sys::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        })
    }
}

impl RecordingFeatures {
    fn read(device: &impl Query) -> Option<Self> {
        // Before 0.9.5 the functions had other signatures: such a device replays.
        let reported = extension(device, "cl_khr_command_buffer")?;
        if reported < version(0, 9, 5) {
            return None;
        }
        let bits = |what| device.value::<sys::cl_bitfield>(what).unwrap_or(0);
        if bits(sys::CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES_KHR) != 0 {
            // Recordings are made for in-order queues without profiling.
            return None;
        }
        let capabilities = bits(sys::CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR);
        // Before 0.9.2 updates were passed as a linked list: such a device makes a new recording.
        let updates = extension(device, "cl_khr_command_buffer_mutable_dispatch").unwrap_or(0);
        // From then on, simultaneous use is that of runs without an order between them, which there
        // are none of.
        let repeats_by_itself = reported >= version(0, 9, 8);
        let simultaneous = capabilities & sys::CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR != 0;
        Some(Self {
            repeats: repeats_by_itself || simultaneous,
            simultaneous: simultaneous && !repeats_by_itself,
            mutable: match updates >= version(0, 9, 2) {
                true => bits(sys::CL_DEVICE_MUTABLE_DISPATCH_CAPABILITIES_KHR),
                false => 0,
            },
        })
    }
}

fn is_cpu(device: &impl Query) -> DriverResult<bool> {
    Ok(device.value::<sys::cl_bitfield>(sys::CL_DEVICE_TYPE)? & sys::CL_DEVICE_TYPE_CPU != 0)
}

/// The two numbers in "OpenCL 3.0 some text"; without them, the oldest version that is supported.
fn parse_version(text: &str) -> (u32, u32) {
    let number = text.split_whitespace().nth(1).and_then(|number| number.split_once('.'));
    let parsed = number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parsed.unwrap_or((1, 2))
}

const INTEL: &str = "Intel(R) OpenCL";

const NVIDIA: &str = "NVIDIA CUDA";

const OCLGRIND: &str = "Oclgrind";

pub(super) const POCL: &str = "Portable Computing Language";

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
    query_platform: clGetPlatformInfo(platform: cl_platform_id);
    query_device: clGetDeviceInfo(device: cl_device_id);
    query_context: clGetContextInfo(context: cl_context);
    query_queue: clGetCommandQueueInfo(queue: cl_command_queue);
    query_memory: clGetMemObjectInfo(memory: cl_mem);
    query_program_on_device: clGetProgramBuildInfo(program: cl_program, device: cl_device_id);
    query_kernel: clGetKernelInfo(kernel: cl_kernel);
    query_kernel_on_device: clGetKernelWorkGroupInfo(kernel: cl_kernel, device: cl_device_id);
    query_kernel_argument: clGetKernelArgInfo(kernel: cl_kernel, index: cl_uint);
    query_event: clGetEventInfo(event: cl_event);
    query_event_times: clGetEventProfilingInfo(event: cl_event);
}

/// How an event ended, once it has ended: 0, or an error code.
///
/// # Errors
/// Of the query. It says nothing about the work, which may still run.
pub(super) fn event_outcome(core: &Core, raw: sys::cl_event) -> DriverResult<Option<sys::cl_int>> {
    match query_event(core, raw).value(sys::CL_EVENT_COMMAND_EXECUTION_STATUS) {
        Ok(status) => Ok(Some(status).filter(|&status| status <= sys::CL_SUCCESS)),
        Err(failure) if is_lost(failure.code) => Ok(Some(failure.code)),
        Err(failure) => Err(failure),
    }
}

/// The version of an extension of a device, as OpenCL packs it; `None` without the extension, and 0 from a
/// driver that does not report versions.
pub(super) fn extension(device: &impl Query, name: &str) -> Option<sys::cl_uint> {
    /// A version in four bytes, then a name in 64.
    const ENTRY: usize = 4 + sys::CL_NAME_VERSION_MAX_NAME_SIZE;
    let versions = device.values::<u8>(sys::CL_DEVICE_EXTENSIONS_WITH_VERSION).unwrap_or_default();
    let versioned = versions.chunks_exact(ENTRY).find_map(|entry| {
        let (version, entry_name) = entry.split_first_chunk::<4>()?;
        let entry_name = entry_name.split(|&byte| byte == 0).next()?;
        (entry_name == name.as_bytes()).then(|| sys::cl_uint::from_ne_bytes(*version))
    });
    versioned.or_else(|| {
        let names = device.text(sys::CL_DEVICE_EXTENSIONS).ok()?;
        names.split_whitespace().any(|other| other == name).then_some(0)
    })
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    use super::*;

    #[test]
    fn the_order_of_devices_does_not_depend_on_the_loader() {
        let Ok(devices) = devices() else { return };
        let names =
            |devices: &[PlatformDevice]| devices.iter().map(|found| found.names.clone()).collect::<Vec<_>>();
        let mut platforms: Vec<Vec<PlatformDevice>> = Vec::new();
        for found in &*devices {
            match platforms.iter_mut().find(|known| Arc::ptr_eq(&known[0].platform, &found.platform)) {
                Some(platform) => platform.push(found.clone()),
                None => platforms.push(vec![found.clone()]),
            }
        }
        for _ in 0..platforms.len() {
            platforms.rotate_left(1);
            let mut other = platforms.concat();
            sort(&mut other);
            assert_eq!(names(&other), names(&devices));
        }
    }

    #[test]
    fn versions_are_read_from_texts() {
        assert_eq!(parse_version("OpenCL 3.0 PoCL HSTR: pthread"), (3, 0));
        assert_eq!(parse_version("OpenCL 1.2"), (1, 2));
        assert_eq!(parse_version("nonsense"), (1, 2));
    }

    /// A device that has version 0.9.`patch` of command-buffers, with these capabilities.
    fn recording(patch: u32, capabilities: sys::cl_bitfield) -> Option<RecordingFeatures> {
        let mut entry = version(0, 9, patch).to_ne_bytes().to_vec();
        entry.extend(b"cl_khr_command_buffer");
        entry.resize(4 + sys::CL_NAME_VERSION_MAX_NAME_SIZE, 0);
        let device = |what, size, place: *mut c_void, needed: *mut usize| {
            let answer = match what {
                sys::CL_DEVICE_EXTENSIONS_WITH_VERSION => entry.clone(),
                sys::CL_DEVICE_COMMAND_BUFFER_CAPABILITIES_KHR => capabilities.to_ne_bytes().to_vec(),
                _ => vec![0; size],
            };
            if !needed.is_null() {
                // SAFETY: the place is that of a number.
                unsafe { needed.write(answer.len()) };
            }
            if !place.is_null() {
                // SAFETY: the caller has asked for the size.
                unsafe { place.cast::<u8>().copy_from_nonoverlapping(answer.as_ptr(), answer.len()) };
            }
            Ok(())
        };
        RecordingFeatures::read(&device)
    }

    #[test]
    fn recordings_repeat_as_their_version_says() {
        let simultaneous = sys::CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE_KHR;
        assert!(recording(4, simultaneous).is_none());
        for (patch, capabilities, repeats, flag) in [
            (5, 0, false, false),
            (5, simultaneous, true, true),
            (7, 0, false, false),
            (8, 0, true, false),
            (8, simultaneous, true, false),
        ] {
            let found = recording(patch, capabilities).unwrap();
            assert_eq!((found.repeats, found.simultaneous), (repeats, flag), "0.9.{patch}");
        }
    }

    #[test]
    fn versions_are_packed_as_the_driver_does() {
        assert_eq!(version(1, 0, 0), 0x40_0000);
        assert_eq!(version(0, 9, 3), 0x9003);
    }
}
