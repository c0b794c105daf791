//! Devices with their capabilities, and the backends that list them.
#![expect(unsafe_code, reason = "the implementer of a device vouches for it")]

use std::any::Any;
use std::ffi::c_void;
use std::fmt::Debug;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::{
    CommandBuffer, CommandBufferDesc, CommandKinds, DeviceId, Error, ErrorKind, Event, EventDesc, Kernel,
    KernelDesc, Memory, MemoryDesc, PlainMemory, Queue, QueueDesc, Result, UserMemory,
};

/// Finds and opens the devices of one driver stack.
pub trait Backend: Debug + Send + Sync {
    /// The backend's name: the part before the colon in `"host:0"`.
    fn name(&self) -> &'static str;

    /// The names of the devices that are there now, by index, without opening them. A selector
    /// such as `cuda:H200` selects the first whose names contain its second part, so each entry
    /// also has the vendor's and the platform's name where these tell devices apart.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when the library or driver is missing, with
    /// the remedy.
    fn device_names(&self) -> Result<Vec<String>>;

    /// The number of devices that are there now.
    ///
    /// # Errors
    /// As [`device_names`](Self::device_names).
    fn device_count(&self) -> Result<usize> {
        Ok(self.device_names()?.len())
    }

    /// Number of GPUs among the devices. They have the lowest indices.
    ///
    /// # Errors
    /// As [`device_names`](Self::device_names).
    fn gpu_count(&self) -> Result<usize> {
        Ok(0)
    }

    /// Opens the device with this index. Opening it twice gives two handles of the same hardware.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) when there is no such device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>>;
}

/// Descriptive data about a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// The id of this opened device.
    pub id: DeviceId,
    /// The backend's name.
    pub backend: &'static str,
    /// The selector that opens it, such as `host:0`.
    pub selector: String,
    /// The device's name as the vendor gives it.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
    /// Device memory in bytes, 0 when unknown.
    pub memory: u64,
    /// Compute units, cores or multiprocessors.
    pub compute_units: usize,
}

impl DeviceInfo {
    /// Data of a newly opened device, with a new id and without further details.
    pub fn new(backend: &'static str, selector: String, name: String) -> Self {
        let (id, driver) = (DeviceId::unique(), String::new());
        Self { id, backend, selector, name, driver, memory: 0, compute_units: 0 }
    }
}

/// The clocks of a device and of the host, read at the same time as nearly as the driver allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockSample {
    /// Time of the device's clock, in nanoseconds since an origin of its own.
    pub device: u64,
    /// Time of the host's clock.
    pub host: Instant,
    /// Maximum of the time between the two readings.
    pub error: Duration,
}

impl ClockSample {
    /// A sample of the two clocks without an error, as where the device's clock is the host's.
    pub const fn new(device: u64, host: Instant) -> Self {
        Self { device, host, error: Duration::ZERO }
    }

    /// A sample of a device's clock that `read` has read between its begin and its end.
    ///
    /// # Errors
    /// The errors of `read`.
    pub fn between<E>(read: impl FnOnce() -> std::result::Result<u64, E>) -> std::result::Result<Self, E> {
        let before = Instant::now();
        let device = read()?;
        let error = before.elapsed() / 2;
        Ok(Self { device, host: before + error, error })
    }
}

setters! { const ClockSample { error: Duration } }

/// An opened device: the factory of everything that lives on it.
///
/// # Safety
/// Safe code hands memory to devices and gets it back when they say so:
/// `wakegraph::Device::from_hal` and all that is built on it. The implementer of the trait
/// vouches for the [contract](super#what-a-backend-must-provide), all points of it, for the device
/// and for every queue, event, memory, kernel, command-buffer, sub-device and share that it makes:
///
/// - memory is valid, zeroed if that was asked for, as long as it says, aligned and where
///   [`Memory::host_ptr`] says, until it is dropped: for everything that is enqueued from then on, on this
///   device or on one that [can access](Self::can_access) it, and for the host and other libraries once
///   [`Memory::wait_until_ready`] has returned;
/// - commands touch what their operands name, in the way that the command or the parameters
///   declare, and nothing else;
/// - nothing touches it before everything in the wait list is final, nor after the event has become
///   final, nor at all when an enqueue returned an error;
/// - an event is final only when that is so; [`can_wait_for`](Self::can_wait_for) and
///   [`can_access`](Self::can_access) say yes only where it holds across devices;
/// - a [`Notification`](crate::Notification) comes once, and only for an event that is final.
///
/// It may rely on the validation of [`ValidatedDevice`](crate::ValidatedDevice), and on what the
/// callers of `unsafe` methods promise.
pub unsafe trait Device: Any + Debug + Send + Sync {
    /// Descriptive data about the device.
    fn info(&self) -> &DeviceInfo;

    /// Capabilities of the device; constant.
    fn capabilities(&self) -> &Capabilities;

    /// Checks that the device still works.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost) once it does not; it stays so.
    fn status(&self) -> Result<()>;

    /// Whether work that was enqueued may still run, although the device is lost and the events have failed:
    /// the driver no longer tells. The caller keeps for ever what such work uses.
    ///
    /// The default suits devices on which nothing runs any more once they are lost.
    fn may_still_run(&self) -> bool {
        false
    }

    /// The device's clock, which all its profiling times are of, read together with the host's.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) on devices without
    /// [`profiling`](Capabilities::profiling); the driver's.
    fn clock(&self) -> Result<ClockSample>;

    /// Allocates memory, zeroed unless the description says otherwise. Does not wait for the device where
    /// streams order the allocation.
    ///
    /// # Errors
    /// [`OutOfMemory`](crate::ErrorKind::OutOfMemory),
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) for 0 bytes.
    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>>;

    /// Makes memory of the application's host memory of this device, which is no longer used when the last
    /// reference to it has gone; then its owner is dropped. Its address is as it comes, so
    /// [`host_ptr`](Memory::host_ptr) need not be aligned to 64 bytes. Nothing writes memory that is
    /// read-only.
    ///
    /// The default uses it in copies only, as memory that the driver does not know. So does a backend whose
    /// driver refuses it.
    ///
    /// # Errors
    /// [`DeviceLost`](crate::ErrorKind::DeviceLost).
    fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(PlainMemory::new(self.info().id, memory, false)))
    }

    /// Gives memory that the device keeps for later allocations back to the system. May wait for
    /// earlier frees.
    ///
    /// The default does nothing, which suits devices that keep nothing.
    ///
    /// # Errors
    /// The driver's.
    fn trim(&self) -> Result<()> {
        Ok(())
    }

    /// Loads (compiles) a kernel for this device.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) when the sources hold no
    /// variant for this device; [`InvalidArgument`](crate::ErrorKind::InvalidArgument) when one of
    /// them is empty; [`Driver`](crate::ErrorKind::Driver) with the build log when it does not
    /// compile.
    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>>;

    /// Creates a queue.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for an order the device does
    /// not have.
    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>>;

    /// Creates an event, which the first enqueue that signals it makes pending.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for a property the device
    /// does not have; the driver's.
    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>>;

    /// Creates an empty command-buffer.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) for a property the device
    /// does not have.
    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>>;

    /// Memory that another library has made in this device's driver and context, under the driver's handle:
    /// a `cl_mem` for OpenCL. The memory object has a reference of its own to it.
    ///
    /// The default refuses, which suits drivers whose memory has addresses only: those need no handles.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) without such handles;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for one of another context, and
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when it has fewer than `len` bytes.
    ///
    /// # Safety
    /// The handle is null or that of a live object of the kind.
    unsafe fn import_memory(&self, handle: *mut c_void, len: usize) -> Result<Arc<dyn Memory>> {
        let _ = (handle, len);
        Err(no_import("memory objects"))
    }

    /// Checks that commands on this device can use `len` bytes at an address, as far as the driver tells.
    ///
    /// The default accepts all.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for an address that the device cannot use, and
    /// [`InvalidSize`](crate::ErrorKind::InvalidSize) when the memory there ends earlier.
    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        let _ = (address, len);
        Ok(())
    }

    /// An event that another library has made in this device's driver, under the driver's handle:
    /// for OpenCL a `cl_event` of the device's context, for CUDA a `CUevent`. What counts is what
    /// the event tells of now: the event object does not need the library's any more.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) where the backend cannot do so;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for one that this device cannot wait for.
    ///
    /// # Safety
    /// The handle is null or that of a live object of the kind.
    unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        let _ = handle;
        Err(no_import("events"))
    }

    /// Has what another library enqueues on its queue from now on wait for events of this device,
    /// without the host. The queue is the driver's handle: for OpenCL a `cl_command_queue` of the
    /// device's context, for CUDA a `CUstream`, where null is the default stream of the device's
    /// context.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) where the backend cannot do so;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for one that cannot wait for this device.
    ///
    /// # Safety
    /// The handle is null or that of a live object of the kind.
    unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        let _ = (queue, events);
        Err(no_import("queues"))
    }

    /// Calls `work` with this thread prepared for the driver, so that the calls in it need not prepare it one
    /// by one, as by making a context current.
    ///
    /// The default only calls `work`.
    ///
    /// # Errors
    /// The driver's. `work` was not called then.
    fn bind_thread(&self, work: &mut dyn FnMut()) -> Result<()> {
        work();
        Ok(())
    }

    /// Whether commands on this device can use `memory` where it is, without a copy through the
    /// host.
    fn can_access(&self, memory: &dyn Memory) -> bool;

    /// Whether queues of this device can wait for events of `other` without the host.
    fn can_wait_for(&self, other: &dyn Device) -> bool;

    /// Splits the device into `count` devices of equal size.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) when it cannot be split so.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>>;

    /// Divides the compute units: a device that has at least `units` of them, and a device that has the
    /// others. No kernel of one runs on a unit of the other, except where code of the user's launches it on a
    /// stream or with a graph of its own. [`DeviceInfo::compute_units`] says how many each has. `units` is
    /// less than this device has, and not 0.
    ///
    /// The default refuses, which suits drivers that do not confine what graphs launch.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) where the driver cannot do so, or not
    /// with so many; the driver's.
    fn share(&self, units: usize) -> Result<[Arc<dyn Device>; 2]> {
        let _ = units;
        Err(cannot_share(self.info()))
    }
}

downcast!(Device);

/// The error of dividing the compute units of a device that has no such thing.
#[cold]
pub(crate) fn cannot_share(info: &DeviceInfo) -> Error {
    let why = format!("devices of the backend '{}' have no shares of compute units", info.backend);
    Error::new(ErrorKind::FeatureNotSupported, why)
        .on_device(&*info.selector)
        .help("use a CUDA, OpenCL or host device, or executables of low and high priority")
}

/// Selectors of a share of a device and of the rest, which have so many compute units.
pub fn share_selectors(selector: &str, [share, rest]: [usize; 2]) -> [String; 2] {
    [format!("{selector} (share of {share})"), format!("{selector} (rest of {rest})")]
}

#[cold]
fn no_import(what: &str) -> Error {
    let why = format!("the backend does not take {what} of other libraries");
    Error::new(ErrorKind::FeatureNotSupported, why)
}

bitflags::bitflags! {
    /// The changes that [`CommandBuffer::update`](crate::CommandBuffer::update) can make on a device, bit by
    /// bit as in the specification.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct UpdateCapabilities: u32 {
        /// Arguments of a kernel command.
        const KERNEL_ARGUMENTS = 1 << 0;
        /// Work-group size of a kernel command.
        const LOCAL_WORK_SIZE = 1 << 1;
        /// Global size of a kernel command.
        const GLOBAL_WORK_SIZE = 1 << 2;
        /// Global offset of a kernel command.
        const GLOBAL_WORK_OFFSET = 1 << 3;
        /// The kernel of a command, among the alternatives registered at append.
        const KERNEL_HANDLE = 1 << 4;
        /// Whether a kernel, fill or copy is enabled.
        const ENABLED = 1 << 5;
        /// Operands of a fill or copy.
        const MEMORY_OPERANDS = 1 << 6;
        /// Flag and bodies of a conditional or loop.
        const BODIES = 1 << 7;
    }
}

/// The party that drives a device's work, which decides how a thread may wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The device itself, such as a GPU. Waiting threads do not slow it down.
    #[default]
    Device,
    /// Threads of the driver, on the host's cores, which a thread that polls in a loop may keep from them.
    /// On a device that cannot notify, such a loop gives way.
    HostCores,
}

/// Extent to which a device supports the graph interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GraphSupport {
    /// Command-buffers and their updates.
    Full,
    /// Command-buffers without updates.
    Limited,
    /// No command-buffers.
    None,
}

/// Capabilities of a device. Read once when the device is opened, constant from then on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Commands that can be appended to a command-buffer or to a body.
    pub commands: CommandKinds,
    /// The changes that an update can make. Empty if command-buffers cannot be updatable.
    pub update: UpdateCapabilities,
    /// Whether queues, events and command-buffers can be created with profiling.
    pub profiling: bool,
    /// Whether a [`Notify`](crate::Notify) passed at enqueue is called. Where it is not, completion
    /// must be polled.
    pub notifies: bool,
    /// The party that drives the work while a thread waits for it.
    pub progress: Progress,
    /// Whether in-order queues take [batches](crate::Queue::enqueue_batch).
    pub batches: bool,
    /// Whether it prefers the work of queues of higher [priority](crate::QueueDesc::priority).
    pub queue_priorities: bool,
    /// Whether in-order queues run [stream tasks](crate::Command::StreamTask).
    pub stream_tasks: bool,
    /// Whether out-of-order queues can be created.
    pub out_of_order_queues: bool,
    /// Largest number of work-items in a work-group.
    pub max_work_group_size: usize,
    /// Largest work-group size in each dimension.
    pub max_work_item_sizes: [usize; 3],
    /// Largest number of work-groups in each dimension.
    pub max_work_groups: [usize; 3],
    /// Largest global index that a work-item can have, its offset included.
    pub max_global_index: usize,
    /// Whether several queues, of this device and of others, may use different parts of one
    /// allocation of this device at the same time, also where one of them writes. Where they may
    /// not, accesses to one allocation have to be ordered whichever bytes they are to.
    pub concurrent_parts: bool,
    /// Whether a launch's indices can start at an offset.
    pub global_offset: bool,
    /// Alignment in bytes of the offset of a memory view in a kernel's argument; at least 1.
    pub view_alignment: usize,
    /// Local memory per work-group, in bytes.
    pub local_memory: usize,
    /// Largest allocation, in bytes.
    pub max_allocation: usize,
}

impl Capabilities {
    /// A device with command-buffers of these commands, and nothing that is optional: no updates,
    /// no profiling, no local memory, work-groups of one work-item.
    pub fn new(commands: CommandKinds) -> Self {
        Self {
            commands,
            update: UpdateCapabilities::empty(),
            profiling: false,
            notifies: false,
            progress: Progress::Device,
            batches: false,
            queue_priorities: false,
            stream_tasks: false,
            out_of_order_queues: false,
            max_work_group_size: 1,
            max_work_item_sizes: [1; 3],
            max_work_groups: [usize::MAX; 3],
            max_global_index: usize::MAX,
            concurrent_parts: false,
            global_offset: false,
            view_alignment: 1,
            local_memory: 0,
            max_allocation: isize::MAX as usize,
        }
    }

    /// The graph support that follows from the other fields.
    pub fn graph_support(&self) -> GraphSupport {
        if self.commands.is_empty() {
            GraphSupport::None
        } else if self.update.is_empty() {
            GraphSupport::Limited
        } else {
            GraphSupport::Full
        }
    }
}
