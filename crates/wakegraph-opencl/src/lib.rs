//! The OpenCL backend: every device of every platform that the system's loader finds.
//!
//! - A device is a device of a platform or a part of one. The whole devices of a platform share a
//!   context, and so do the parts of one device.
//! - Memory is fine-grained shared virtual memory with a buffer object over it; on a device without
//!   that, a buffer object, or plain host memory.
//! - A kernel is a built program and a name. Each recorded launch has a `cl_kernel` of its own.
//! - A command-buffer is a list of driver calls that is replayed, or a `cl_khr_command_buffer` of them.
//! - A queue is a `cl_command_queue`, and a second one for what is timed.
//! - An event has a signal: the driver's event of the last enqueue, and the signals that it depends on.
//!
//! # Two lowerings
//!
//! Every command-buffer has a list that can be replayed: an in-order queue takes its operations one by
//! one, with the wait list on the first and an event on the last. If the device has
//! `cl_khr_command_buffer` 0.9.5 or newer and can record every operation of the list, there may be a
//! recording beside it: on devices other than CPUs, which enqueue plain commands faster. The choice can be
//! [forced](OpenclOptions::lowering).
//!
//! # Failure
//!
//! Drivers do not agree on what an event reports whose wait list failed, so a signal keeps the signals
//! that it depends on, and inherits their failures.
//!
//! # Reading order
//!
//! Each file uses only files before it in this list. Of this workspace, they know `wakegraph-hal` only.
//!
//! | file | about |
//! |---|---|
//! | `sys` | OpenCL's types and functions |
//! | `error` | the meaning of the driver's error codes |
//! | `platform` | platforms, their devices and what these can do; questions to the driver |
//! | `context` | an opened device with its options, the driver's queues and callbacks |
//! | `memory` | allocations |
//! | `program`, `kernel` | built programs; kernels, and an instance for each launch |
//! | `lower` | commands become operations, which are enqueued or recorded |
//! | `events` | the signal of an enqueue |
//! | `foreign` | objects of other libraries |
//! | `recording` | both forms of a command-buffer on the device, and updates of either |
//! | `queue` | queues, and what is enqueued on them: command-buffers, single commands, stream tasks |
//! | `lib` | devices, and how they are found and opened |
#![expect(unsafe_code, reason = "calls the driver, and vouches for the backend")]

mod context;
mod error;
mod events;
mod foreign;
mod kernel;
mod lower;
mod memory;
mod platform;
mod program;
mod queue;
mod recording;
mod sys;
#[cfg(test)]
mod tests;

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::Arc;

use wakegraph_hal::support::library::OpenDevices;
use wakegraph_hal::{
    Backend, Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Error,
    ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, QueueOrder,
    Result, share_selectors,
};

use context::OpenclContext;
pub use context::{Lowering, OpenclOptions};
use events::OpenclEvent;
use kernel::OpenclKernel;
use memory::OpenclMemory;
use platform::{Id, Platform, PlatformDevice};
use queue::{OpenclCommandBuffer, OpenclQueue};
use sys::{DriverResult, OpenclFailure, SubDevice, call};

/// The backend that finds OpenCL's devices.
#[derive(Clone, Copy, Debug)]
pub struct OpenclBackend;

impl Backend for OpenclBackend {
    fn name(&self) -> &'static str {
        "opencl"
    }

    /// The devices of all platforms: first GPUs, then accelerators, then others, and CPUs last. Devices
    /// of the same kind are in the alphabetical order of their platforms' names and versions, and
    /// within a platform in the driver's order. The order in which the loader finds the platforms
    /// matters only if two of them have the same name and version.
    ///
    /// Each entry holds the names of the device, the vendor and the platform, and the platform's short
    /// name, such as `POCL`.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(platform::devices()?.iter().map(|found| found.names.clone()).collect())
    }

    fn gpu_count(&self) -> Result<usize> {
        Ok(platform::devices()?.iter().filter(|found| found.is_gpu()).count())
    }

    /// While a device is open and works, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<OpenclDevice> = OpenDevices::new();
        let open = || OpenclDevice::open(index, OpenclOptions::from_environment());
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

/// Opens the device with this index with options of its own. Each call returns a new object for the
/// same hardware. [`OpenclBackend`]'s [`device_names`](Backend::device_names) says in which order
/// devices are counted.
///
/// ```no_run
/// use wakegraph::backend::opencl::{self, Lowering, OpenclOptions};
/// let device = opencl::open(0, OpenclOptions::new().lowering(Lowering::Replay))?;
/// # Ok::<(), wakegraph::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without an OpenCL library, or without a device of this index.
pub fn open(index: usize, options: OpenclOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(OpenclDevice::open(index, options)?))
}

/// Opens a device in a context that the application has, such as one of `opencl3`: memory objects and events
/// of that context can then be used in graphs (`Device::import_memory`,
/// `Device::import_event`), and its queues can wait for submissions. `context`
/// is a `cl_context` and `device` a `cl_device_id` of it, a whole device. The context is retained. Each call
/// returns a new object for the same hardware.
///
/// # Errors
/// [`InvalidArgument`](ErrorKind::InvalidArgument) when the context does not have the device, or the device
/// is only a part of one; [`Unavailable`](ErrorKind::Unavailable) without an OpenCL library.
///
/// # Safety
/// `context` is null or a live context of the OpenCL library that this crate loads.
pub unsafe fn open_in_context(
    context: *mut c_void,
    device: *mut c_void,
    options: OpenclOptions,
) -> Result<Arc<dyn Device>> {
    // SAFETY: passed on to the caller.
    Ok(Arc::new(unsafe { OpenclDevice::open_in_context(context, device, options) }?))
}

/// A device. Its objects keep its context alive, so the device itself may be dropped before them.
#[derive(Debug)]
struct OpenclDevice {
    context: Arc<OpenclContext>,
}

impl OpenclDevice {
    fn open(index: usize, options: OpenclOptions) -> Result<Self> {
        let devices = platform::devices()?;
        let Some(PlatformDevice { platform, id, .. }) = devices.get(index) else {
            let why = format!("there is no OpenCL device {index}: there are {}", devices.len());
            return Err(Error::new(ErrorKind::Unavailable, why).help(
                "count from 0, or select by name; `opencl::open` says in which order devices are counted",
            ));
        };
        Self::of(platform, *id, format!("opencl:{index}"), options)
    }

    fn of(platform: &Arc<Platform>, id: Id, selector: String, options: OpenclOptions) -> Result<Self> {
        let (raw, alone) = platform.context(id)?;
        let context = OpenclContext::new(platform, &raw, alone, id, None, selector, options)?;
        Ok(Self { context: Arc::new(context) })
    }

    /// A device in a context of the application's.
    ///
    /// # Safety
    /// The context is null or live.
    unsafe fn open_in_context(
        context: *mut c_void,
        device: *mut c_void,
        options: OpenclOptions,
    ) -> Result<Self> {
        let devices = platform::devices()?;
        let index = devices.iter().position(|found| found.id.raw() == device);
        let Some((index, found)) = index.and_then(|index| Some((index, devices.get(index)?))) else {
            let why = "the handle is not that of a whole device of any platform";
            return Err(Error::new(ErrorKind::InvalidArgument, why));
        };
        let platform = &found.platform;
        // SAFETY: passed on to the caller.
        let (raw, count) = unsafe { foreign::context(platform.core, context, device) }?;
        let selector = format!("opencl:{index}");
        let raw = Arc::new(raw);
        let context = OpenclContext::new(platform, &raw, count == 1, found.id, None, selector, options)?;
        Ok(Self { context: Arc::new(context) })
    }

    /// A device whose driver functions `change` has replaced.
    #[cfg(test)]
    fn open_changed(
        index: usize,
        options: OpenclOptions,
        change: impl FnOnce(&mut Platform),
    ) -> Result<Self> {
        let found = &platform::devices()?[index];
        let mut platform = found.platform.again()?;
        change(&mut platform);
        Self::of(&Arc::new(platform), found.id, format!("opencl:{index} (changed)"), options)
    }

    /// Parts, each with its selector and the number of its compute units.
    fn split(&self, wanted: Vec<(String, usize)>) -> DriverResult<Vec<Arc<dyn Device>>> {
        let OpenclContext { core, platform, id, options, .. } = &*self.context;
        let count = wanted.len();
        let mut properties = vec![sys::CL_DEVICE_PARTITION_BY_COUNTS];
        properties.extend(wanted.iter().map(|(_, units)| *units as sys::cl_device_partition_property));
        properties.extend([sys::CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0]);
        let mut raw = vec![ptr::null_mut(); count];
        let (room, mut found) = (count as sys::cl_uint, 0);
        let (from, list, places) = (id.raw(), properties.as_ptr(), raw.as_mut_ptr());
        // SAFETY: the list ends in 0, and there is room for as many devices as it asks for.
        unsafe { call!(core, clCreateSubDevices(from, list, room, places, &raw mut found)) }?;
        let parts = raw.into_iter().map(|part| {
            Ok(sys::adopt::<SubDevice>(core, sys::object("clCreateSubDevices", sys::CL_SUCCESS, part)?))
        });
        let parts = parts.collect::<DriverResult<Vec<_>>>()?;
        let ids: Vec<_> = parts.iter().map(|part| Id(part.raw())).collect();
        let (raw, alone) = (Arc::new(platform::create_context(core, &ids)?), count == 1);
        let devices = parts.into_iter().zip(ids).zip(wanted).map(|((part, id), (selector, _))| {
            let options = options.clone();
            let context = OpenclContext::new(platform, &raw, alone, id, Some(part), selector, options)?;
            Ok(Arc::new(Self { context: Arc::new(context) }) as Arc<dyn Device>)
        });
        devices.collect()
    }

    /// The error for a failure of [`split`](Self::split): `refused`, if the driver says that it does not
    /// divide the device so.
    fn not_split(&self, failure: OpenclFailure, refused: Error) -> Error {
        match failure.code {
            sys::CL_DEVICE_PARTITION_FAILED
            | sys::CL_INVALID_DEVICE_PARTITION_COUNT
            | sys::CL_INVALID_VALUE
            | sys::MISSING_FUNCTION => refused.caused_by(Error::from(failure)),
            _ => self.context.error(failure),
        }
    }
}

// SAFETY: the backend meets the contract, as the conformance suite shows on two drivers: memory
// lives as long as its object, the driver starts work after its wait list, and an event is complete
// once the driver reports that for the last command.
unsafe impl Device for OpenclDevice {
    fn info(&self) -> &DeviceInfo {
        &self.context.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.context.capabilities
    }

    fn status(&self) -> Result<()> {
        self.context.status()
    }

    fn may_still_run(&self) -> bool {
        self.context.health.may_still_run()
    }

    fn clock(&self) -> Result<ClockSample> {
        self.context.clock().map_err(|failure| self.context.error(failure))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        let memory = OpenclMemory::allocate(&self.context, desc);
        Ok(Arc::new(memory.map_err(|error| self.context.error(error))?))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        let kernel = OpenclKernel::load(&self.context, desc);
        Ok(Arc::new(kernel.map_err(|error| self.context.error(error))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        if desc.order == QueueOrder::OutOfOrder && !self.context.capabilities.out_of_order_queues {
            let why = "the device has no out-of-order queues";
            return Err(self.context.error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        let queue = OpenclQueue::create(&self.context, *desc);
        Ok(Arc::new(queue.map_err(|failure| self.context.error(failure))?))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(OpenclEvent::new(&self.context)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(OpenclCommandBuffer::new(&self.context, *desc)))
    }

    unsafe fn import_memory(&self, handle: *mut c_void, len: usize) -> Result<Arc<dyn Memory>> {
        // SAFETY: passed on to the caller.
        Ok(Arc::new(unsafe { foreign::memory(&self.context, handle, len) }?))
    }

    unsafe fn import_event(&self, handle: *mut c_void) -> Result<Arc<dyn Event>> {
        // SAFETY: passed on to the caller.
        Ok(Arc::new(unsafe { foreign::event(&self.context, handle) }?))
    }

    unsafe fn order_after(&self, queue: *mut c_void, events: &[&dyn Event]) -> Result<()> {
        // SAFETY: passed on to the caller.
        unsafe { foreign::order_after(&self.context, queue, events) }
    }

    /// Memory does not leave its context.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.downcast_ref::<OpenclMemory>().is_some_and(|memory| memory.is_in(&self.context))
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.downcast_ref::<Self>().is_some_and(|other| other.context.shares_memory_with(&self.context))
    }

    /// Parts of equally many compute units. They share a context with each other, not with the whole device.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let units = self.context.info.compute_units;
        let refused = |why: String| {
            self.context
                .error(Error::new(ErrorKind::FeatureNotSupported, why))
                .help("split into at most as many devices as there are compute units")
        };
        if units / count == 0 {
            return Err(refused(format!("{units} compute units cannot be split into {count} devices")));
        }
        let selector = |number| format!("{} (part {number} of {count})", self.context.info.selector);
        let parts = (0..count.get()).map(|number| (selector(number), units / count)).collect();
        let refused = refused(format!("the driver does not split the device into {count}"));
        self.split(parts).map_err(|failure| self.not_split(failure, refused))
    }

    /// The two parts share a context with each other, not with the whole device.
    fn share(&self, units: usize) -> Result<[Arc<dyn Device>; 2]> {
        let DeviceInfo { selector, compute_units, .. } = &self.context.info;
        let units @ [share, rest] = [units, compute_units - units];
        let refused = || {
            let why =
                format!("the driver does not split {compute_units} compute units into {share} and {rest}");
            self.context.error(Error::new(ErrorKind::FeatureNotSupported, why))
        };
        let parts = self.split(share_selectors(selector, units).into_iter().zip(units).collect());
        let parts = parts.map_err(|failure| self.not_split(failure, refused()))?;
        parts.try_into().map_err(|_| refused())
    }
}
