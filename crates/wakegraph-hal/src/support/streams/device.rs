//! The contract's device, and the devices that may use its memory.
#![expect(unsafe_code, reason = "vouches for the backend, and takes handles that the caller vouches for")]

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::context::{ContextFailure, DriverContext as _};
use super::memory::{MemoryDevice, StreamMemory};
use super::queue::{LaunchDevice, StreamQueue, import_event, order_stream_after};
use super::signal::StreamEvent;
use super::stream::nanoseconds_at;
use crate::support::launch::{LaunchArguments, LaunchGeometry, LaunchLimits};
use crate::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceId, DeviceInfo, Error,
    ErrorKind, Event, EventDesc, Kernel, KernelDesc, KernelLaunch, Memory, MemoryDesc, MemoryKind, Queue,
    QueueDesc, QueueOrder, Result, UserMemory,
};

/// The types and calls that the devices of a backend are made of.
///
/// # Safety
/// The backend meets the contract: memory is the driver's, zeroed, and lives as long as its object; streams
/// and wait lists order work; an event is final when the driver says that its record is complete, or that
/// its context has ended.
pub unsafe trait GpuBackend: LaunchDevice + MemoryDevice {
    /// A loaded kernel.
    type Kernel: Kernel;
    /// A command-buffer.
    type CommandBuffer: CommandBuffer;
    /// The API's name, for errors.
    const NAME: &'static str;

    /// Capabilities of the device.
    fn capabilities(&self) -> &Capabilities;

    /// Loads a kernel from its sources.
    fn load_kernel(&self, desc: &KernelDesc<'_>) -> Result<Self::Kernel>;

    /// Creates an empty command-buffer.
    fn create_command_buffer(device: &Arc<Self>, desc: CommandBufferDesc) -> Result<Self::CommandBuffer>;

    /// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can
    /// use.
    fn check_address(&self, address: usize, len: usize) -> Result<()>;

    /// The devices that may use this device's memory.
    fn peers(&self) -> &PeerAccess;

    /// Lets `user` use this device's memory, if the hardware can.
    fn open_to(&self, user: &Self) -> Result<bool, ContextFailure<Self::Context>>;

    /// The error of splitting the device into so many, with the remedy.
    fn cannot_split(count: NonZeroUsize) -> Error;
}

/// Work-groups and arguments of a launch, whose kernel is of this device: in the portable dialect, or in the
/// vendor's language. A dimension has at most `items` work-items, and the hardware issues `warp` of them
/// together.
pub fn prepare_launch<D: GpuBackend>(
    device: &D,
    launch: &KernelLaunch,
    is_portable: bool,
    (items, warp): (usize, usize),
) -> Result<(LaunchGeometry, LaunchArguments)> {
    let KernelLaunch { kernel, range, args, .. } = launch;
    if range.global_offset() != [0; 3] && !is_portable {
        let why = format!("kernel '{}': {range} starts at an offset", kernel.name());
        return Err(Error::new(ErrorKind::FeatureNotSupported, why).help(format!(
            "{} knows no offset: pass it as an argument, or write the kernel in the portable C dialect",
            D::NAME
        )));
    }
    let Capabilities { max_work_item_sizes: block, max_work_groups: grid, .. } = *device.capabilities();
    let limits = LaunchLimits { block, grid, items, warp };
    let geometry = LaunchGeometry::of(range, kernel.max_work_group_size(), &limits)?;
    let address_of = StreamMemory::<D>::address_of;
    let arguments = match is_portable {
        true => LaunchArguments::portable(kernel.params(), args, range, &geometry, address_of)?,
        false => LaunchArguments::as_declared(args, address_of)?,
    };
    Ok((geometry, arguments))
}

/// A device. Its objects hold its private core, so the device itself may be dropped before them.
#[derive(Debug)]
pub struct GpuDevice<D> {
    inner: Arc<D>,
}

impl<D> GpuDevice<D> {
    /// The contract's device over its core.
    pub fn new(inner: D) -> Self {
        Self { inner: Arc::new(inner) }
    }

    /// The core that the device shares with its objects.
    pub fn inner(&self) -> &Arc<D> {
        &self.inner
    }
}

impl<D: GpuBackend> GpuDevice<D> {
    /// Creates an object, unless the device is lost. An error names the device.
    fn create<T, E: Into<Error>>(&self, create: impl FnOnce() -> Result<T, E>) -> Result<T> {
        self.status()?;
        create().map_err(|error| self.inner.context().error(error))
    }
}

// SAFETY: the backend promises it.
unsafe impl<D: GpuBackend> Device for GpuDevice<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn status(&self) -> Result<()> {
        self.inner.context().health().status()
    }

    fn may_still_run(&self) -> bool {
        self.inner.context().health().may_still_run()
    }

    /// The host's own clock: device times are converted to it.
    fn clock(&self) -> Result<ClockSample> {
        let host = Instant::now();
        let error = Duration::from_nanos(self.inner.clock().error());
        Ok(ClockSample::new(nanoseconds_at(host), host).error(error))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(self.create(|| StreamMemory::allocate(&self.inner, desc))?))
    }

    fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        self.status()?;
        self.inner.context().run(|| StreamMemory::of_user(&self.inner, memory))
    }

    /// Waits for the stream on which memory is freed.
    fn trim(&self) -> Result<()> {
        self.status()?;
        self.inner.context().run(|| self.inner.trim())
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(self.create(|| self.inner.load_kernel(desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        if desc.order == QueueOrder::OutOfOrder {
            let why = format!("{} has no out-of-order queues", D::NAME);
            return Err(self.inner.context().error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        Ok(Arc::new(self.create(|| StreamQueue::create(&self.inner, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(self.create(|| StreamEvent::create(&self.inner, desc.profiling))?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(self.create(|| D::create_command_buffer(&self.inner, *desc))?))
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.create(|| self.inner.check_address(address, len))
    }

    unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        // SAFETY: passed on to the caller.
        Ok(Arc::new(self.create(|| unsafe { import_event(&self.inner, handle.cast()) })?))
    }

    unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        // SAFETY: passed on to the caller.
        self.create(|| unsafe { order_stream_after(&*self.inner, queue.cast(), events) })
    }

    /// This device's memory, the host memory that the driver knows, and peers' memory.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.as_any().downcast_ref::<StreamMemory<D>>().is_some_and(|memory| {
            let owner = &memory.device;
            Arc::ptr_eq(owner, &self.inner)
                || memory.kind() == MemoryKind::Host
                || owner.peers().is_open_to(self.inner.id(), || owner.open_to(&self.inner))
        })
    }

    /// A stream can wait for events of all devices of the driver.
    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.as_any().is::<Self>()
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        Err(self.inner.context().error(D::cannot_split(count)))
    }
}

/// Whether the devices with these ids may.
#[derive(Default, Debug)]
pub struct PeerAccess(Mutex<HashMap<DeviceId, bool>>);

impl PeerAccess {
    /// Whether `user` may. The first call has `open` make it so, where the hardware can. A failure counts as
    /// no, and the next call tries again.
    pub fn is_open_to<E: Into<Error>>(&self, user: DeviceId, open: impl FnOnce() -> Result<bool, E>) -> bool {
        let mut peers = self.0.lock();
        if let Some(open) = peers.get(&user) {
            return *open;
        }
        match open() {
            Ok(open) => *peers.entry(user).or_insert(open),
            Err(failure) => {
                let error: Error = failure.into();
                tracing::debug!(target: "wakegraph", %error, "no peer access");
                false
            }
        }
    }
}
