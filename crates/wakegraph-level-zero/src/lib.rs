//! The Level Zero backend: Intel's GPUs through the loader of their drivers, loaded at run time.
//!
//! What each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a device or sub-device of a driver. All devices of a driver share its context |
//! | memory | the device's, or the host's that all devices of the driver see, in one address space |
//! | kernel | a module and a kernel's name: SPIR-V, or C that `libocloc`, if it is there, compiles |
//! | queue | an immediate list to which closed lists are appended, or a queue that executes them |
//! | event | the driver's event of the last run that signals it: each run has one of its own |
//! | command-buffer | closed lists; another set of them where it is enqueued while it runs |
//!
//! # Reading order
//!
//! Each file uses only files before it in this list. Of this workspace, they know `wakegraph-hal` only.
//!
//! | file | about |
//! |---|---|
//! | `sys` | the vendor's types and functions |
//! | `error` | the meaning of the driver's result codes |
//! | `driver` | drivers, their devices and what these can do, the device's clock |
//! | `context` | an opened device with its options, and the driver's objects that it keeps |
//! | `memory` | allocations |
//! | `program`, `kernel` | modules and the compiler; kernels, and an instance for each launch |
//! | `lower` | commands become operations, which append to lists |
//! | `events` | the driver's events, run slots, and the signal of an enqueue |
//! | `recording` | closed lists that run as often as they are handed over, and changes of them in place |
//! | `handover` | both ways to hand a recording to the driver |
//! | `queue` | queues, and what is enqueued on them: command-buffers, single commands, stream tasks |
//! | `lib` | devices, and how they are found and opened |
#![expect(unsafe_code, reason = "vouches for the backend")]

mod context;
mod driver;
mod error;
mod events;
mod handover;
mod kernel;
mod lower;
mod memory;
mod program;
mod queue;
mod recording;
mod sys;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;

use wakegraph_hal::support::library::OpenDevices;
use wakegraph_hal::{
    Backend, Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Error,
    ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, Result,
};

use context::LevelZeroContext;
pub use context::{LevelZeroOptions, Lowering};
use driver::DriverDevice;
use events::LevelZeroEvent;
use kernel::LevelZeroKernel;
use memory::LevelZeroMemory;
use queue::{LevelZeroCommandBuffer, LevelZeroQueue};

/// The backend that finds the GPUs of Level Zero's drivers.
#[derive(Clone, Copy, Debug)]
pub struct LevelZeroBackend;

impl Backend for LevelZeroBackend {
    fn name(&self) -> &'static str {
        "level_zero"
    }

    /// The GPUs of all drivers, in the loader's order. `ZE_FLAT_DEVICE_HIERARCHY` decides whether
    /// the parts of a GPU are devices, and `ZE_AFFINITY_MASK` which ones there are.
    fn device_names(&self) -> Result<Vec<String>> {
        let name = |found: DriverDevice| {
            Ok(format!("{} ({})", driver::text(&found.properties()?.name), found.driver.name))
        };
        driver::devices()?.into_iter().map(name).collect()
    }

    fn device_count(&self) -> Result<usize> {
        Ok(driver::devices()?.len())
    }

    fn gpu_count(&self) -> Result<usize> {
        self.device_count()
    }

    /// While a device is open and works, opening its index again gives the same device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<LevelZeroDevice> = OpenDevices::new();
        let open = || LevelZeroDevice::open(index, LevelZeroOptions::from_environment());
        Ok(OPEN.get_or_open(index, |device| device.status().is_ok(), open)?)
    }
}

/// Opens the device with this index with options of its own. Each call returns a new object for the same
/// hardware. [`LevelZeroBackend`]'s [`device_names`](Backend::device_names) says in which order devices are
/// counted.
///
/// ```no_run
/// use wakegraph::backend::level_zero::{self, LevelZeroOptions, Lowering};
/// let device = level_zero::open(0, LevelZeroOptions::new().lowering(Lowering::Execute))?;
/// # Ok::<(), wakegraph::Error>(())
/// ```
///
/// # Errors
/// [`Unavailable`](ErrorKind::Unavailable) without a loader or a driver, or without a device of this index.
pub fn open(index: usize, options: LevelZeroOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(LevelZeroDevice::open(index, options)?))
}

/// A device. Its objects keep its context alive, so the device itself may be dropped before them.
#[derive(Debug)]
struct LevelZeroDevice {
    context: Arc<LevelZeroContext>,
}

impl LevelZeroDevice {
    fn open(index: usize, options: LevelZeroOptions) -> Result<Self> {
        let devices = driver::devices()?;
        let Some(found) = devices.get(index) else {
            let why = format!("there is no Level Zero device {index}: there are {}", devices.len());
            return Err(Error::new(ErrorKind::Unavailable, why)
                .help("count from 0, or select by name; ZE_FLAT_DEVICE_HIERARCHY changes what a device is"));
        };
        let selector = format!("level_zero:{index}");
        Self::of(*found, selector.clone(), options).map_err(|error| error.on_device(selector))
    }

    fn of(found: DriverDevice, selector: String, options: LevelZeroOptions) -> Result<Self> {
        Ok(Self { context: Arc::new(LevelZeroContext::new(found, selector, options)?) })
    }

    /// Creates an object, unless the device is lost. An error names the device.
    fn create<T, E: Into<Error>>(&self, create: impl FnOnce() -> std::result::Result<T, E>) -> Result<T> {
        self.context.health()?;
        create().map_err(|error| self.context.error(error))
    }
}

// SAFETY: the backend meets the contract, as the conformance suite shows on a driver that computes:
// memory is the driver's, zeroed if that was asked for, and lives as long as its object; work starts after
// its wait list; and an event is final once the driver says so of the last command.
unsafe impl Device for LevelZeroDevice {
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
        if !self.context.capabilities.profiling {
            let why = "the driver cannot read the device's clock";
            return Err(self.context.error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        self.create(|| self.context.clock())
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(self.create(|| LevelZeroMemory::allocate(&self.context, desc))?))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(self.create(|| LevelZeroKernel::load(&self.context, desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(self.create(|| LevelZeroQueue::create(&self.context, *desc))?))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(LevelZeroEvent::new(&self.context)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(LevelZeroCommandBuffer::new(&self.context, *desc)))
    }

    fn check_address(&self, address: usize, len: usize) -> Result<()> {
        self.create(|| memory::check_address(&self.context, address, len))
    }

    /// Memory does not leave its driver.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.downcast_ref::<LevelZeroMemory>().is_some_and(|memory| memory.is_open_to(&self.context))
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        let other = other.downcast_ref::<Self>();
        other.is_some_and(|other| self.context.can_wait_for(&other.context))
    }

    /// The parts that the hardware has. They share memory and events with each other and with the
    /// whole device.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let (found, count) = (self.context.found, count.get());
        let parts = self.create(|| found.parts())?;
        if parts.len() != count {
            let why = match parts.len() {
                0 => format!("the device has no parts, so it cannot be split into {count}"),
                fixed => format!("the device has {fixed} parts, so it cannot be split into {count}"),
            };
            return Err(self.context.error(Error::new(ErrorKind::FeatureNotSupported, why)).help(
                "split into as many devices as the hardware has; \
                     ZE_FLAT_DEVICE_HIERARCHY=COMPOSITE shows them",
            ));
        }
        let parts = parts.into_iter().enumerate().map(|(number, part)| {
            let selector = format!("{} (part {number} of {count})", self.context.info.selector);
            let device = Self::of(part, selector, self.context.options.clone());
            Ok(Arc::new(device.map_err(|error| self.context.error(error))?) as Arc<dyn Device>)
        });
        parts.collect()
    }
}
