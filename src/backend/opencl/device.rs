//! The device: the factory of everything on it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::any::Any;
use std::num::NonZeroUsize;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use super::choice::Choice;
use super::command_buffer::OpenclCommandBuffer;
use super::event::OpenclEvent;
use super::features::{self, Features, POCL};
use super::kernel::OpenclKernel;
use super::memory::OpenclMemory;
use super::options::OpenclOptions;
use super::platform::{self, Found, Id, Platform};
use super::program::Programs;
use super::query::{self, DeviceQuery};
use super::queue::{DriverQueue, OpenclQueue};
use super::sys::{self, Context, Core, Event, Failure, Owned, SubDevice, call};
use crate::hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, EventDesc, Kernel,
    KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, QueueOrder,
};
use crate::types::{DeviceId, Error, ErrorKind, Result};

/// What everything on a device shares and keeps alive.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) core: &'static Core,
    pub(super) platform: Arc<Platform>,
    pub(super) context: Arc<Owned<Context>>,
    pub(super) id: Id,
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) features: Features,
    pub(super) options: OpenclOptions,
    pub(super) programs: Programs,
    pub(super) choice: Choice,
    /// Why the device does not work any more.
    lost: OnceLock<Error>,
    /// An in-order queue without profiling: for reads, writes and recordings.
    service: OnceLock<DriverQueue>,
    /// The hold on a part of a device.
    part: Option<Owned<SubDevice>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // PoCL 3.1 frees a part whose last queue its threads are still busy with. A kilobyte for
        // each split stays behind.
        if self.platform.name == POCL {
            std::mem::forget(self.part.take());
        }
    }
}

impl Shared {
    /// `alone` is whether the device is the only one of the context.
    fn new(
        platform: &Arc<Platform>,
        context: &Arc<Owned<Context>>,
        alone: bool,
        id: Id,
        part: Option<Owned<SubDevice>>,
        selector: String,
        options: OpenclOptions,
    ) -> Result<Self, Failure> {
        let core = platform.core;
        let query = DeviceQuery { core, device: id.raw() };
        let features = Features::read(query, &platform.name, &options);
        let driver = query.text(sys::CL_DRIVER_VERSION)?;
        let info = DeviceInfo {
            id: DeviceId::unique(),
            backend: "opencl",
            selector,
            name: query.text(sys::CL_DEVICE_NAME)?,
            driver: format!("{} {driver}", platform.name),
            memory: query.value(sys::CL_DEVICE_GLOBAL_MEM_SIZE)?,
            compute_units: query.value::<u32>(sys::CL_DEVICE_MAX_COMPUTE_UNITS)? as usize,
        };
        Ok(Self {
            core,
            platform: Arc::clone(platform),
            context: Arc::clone(context),
            id,
            info,
            capabilities: features::capabilities(query, &platform.name, &features, alone)?,
            features,
            options,
            programs: Programs::default(),
            choice: Choice::default(),
            lost: OnceLock::new(),
            service: OnceLock::new(),
            part,
        })
    }

    pub(super) fn query(&self) -> DeviceQuery<'_> {
        DeviceQuery { core: self.core, device: self.id.raw() }
    }

    /// The device's own queue, for what must not queue behind the user's work.
    pub(super) fn service(&self) -> Result<&DriverQueue, Failure> {
        if let Some(queue) = self.service.get() {
            return Ok(queue);
        }
        let queue = DriverQueue::create(self, QueueOrder::InOrder, false)?;
        Ok(self.service.get_or_init(|| queue))
    }

    /// Keeps the first error that says the device is gone, and names the device in every error.
    pub(super) fn error(&self, error: impl Into<Error>) -> Error {
        let error = error.into().on_device(&self.info.selector);
        if error.kind() == ErrorKind::DeviceLost {
            let _ = self.lost.set(error.clone());
        }
        error
    }

    /// The time of a marker that has just run, for drivers that cannot read both clocks.
    fn marker_clock(&self) -> Result<ClockSample, Failure> {
        let queue = DriverQueue::create(self, QueueOrder::InOrder, true)?;
        let mut event = ptr::null_mut();
        // SAFETY: the queue is alive; there is nothing to wait for.
        unsafe {
            call!(self.core, clEnqueueMarkerWithWaitList(queue.raw(), 0, ptr::null(), &raw mut event))
        }?;
        let event = sys::object("clEnqueueMarkerWithWaitList", sys::CL_SUCCESS, event)?;
        // SAFETY: the event has just been created, for us.
        let event: Owned<Event> = unsafe { Owned::new(self.core, event) };
        queue.finish()?;
        let host = Instant::now();
        let device = query::event_time(self.core, event.raw(), sys::CL_PROFILING_COMMAND_END)?;
        Ok(ClockSample { device, host })
    }

    fn timer_clock(&self) -> Result<ClockSample, Failure> {
        let (mut device, mut host_time) = (0, 0);
        // SAFETY: the device is alive, both places are numbers.
        unsafe {
            call!(self.core, clGetDeviceAndHostTimer(self.id.raw(), &raw mut device, &raw mut host_time))
        }?;
        Ok(ClockSample { device, host: Instant::now() })
    }
}

/// A device. What is in flight holds what it shares, so the device itself may be dropped.
#[derive(Debug)]
pub(super) struct OpenclDevice {
    shared: Arc<Shared>,
}

impl OpenclDevice {
    pub(super) fn open(index: usize, options: OpenclOptions) -> Result<Self> {
        let devices = platform::devices()?;
        let Some(Found { platform, id, .. }) = devices.get(index) else {
            let why = format!("there is no OpenCL device {index}: there are {}", devices.len());
            return Err(Error::new(ErrorKind::Unavailable, why).help(
                "count from 0, or select by name; `opencl::open` says in which order devices are counted",
            ));
        };
        Self::of(platform, *id, format!("opencl:{index}"), options)
    }

    fn of(platform: &Arc<Platform>, id: Id, selector: String, options: OpenclOptions) -> Result<Self> {
        let context = platform.context()?;
        let shared = Shared::new(platform, &context, platform.has_one_device(), id, None, selector, options)?;
        Ok(Self { shared: Arc::new(shared) })
    }

    /// For tests that change what the driver does.
    #[cfg(test)]
    pub(super) fn open_changed(
        index: usize,
        options: OpenclOptions,
        change: impl FnOnce(&mut Platform),
    ) -> Result<Self> {
        let found = &platform::devices()?[index];
        let mut platform = found.platform.again()?;
        change(&mut platform);
        Self::of(&Arc::new(platform), found.id, format!("opencl:{index} (changed)"), options)
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// For tests that take a feature away.
    #[cfg(test)]
    pub(super) fn features_mut(&mut self) -> &mut Features {
        &mut Arc::get_mut(&mut self.shared).expect("nobody else has it").features
    }

    /// Parts of `units` compute units each.
    fn split(&self, count: usize, units: usize) -> Result<Vec<Arc<dyn Device>>, Failure> {
        let Shared { core, platform, id, options, info, .. } = &*self.shared;
        let mut properties = vec![sys::CL_DEVICE_PARTITION_BY_COUNTS];
        properties.extend(std::iter::repeat_n(units as sys::cl_device_partition_property, count));
        properties.extend([sys::CL_DEVICE_PARTITION_BY_COUNTS_LIST_END, 0]);
        let mut raw = vec![ptr::null_mut(); count];
        let (room, mut found) = (count as sys::cl_uint, 0);
        let (from, list, places) = (id.raw(), properties.as_ptr(), raw.as_mut_ptr());
        // SAFETY: the list ends in 0, and there is room for as many devices as it asks for.
        unsafe { call!(core, clCreateSubDevices(from, list, room, places, &raw mut found)) }?;
        let parts = raw.into_iter().map(|part| {
            let part = sys::object("clCreateSubDevices", sys::CL_SUCCESS, part)?;
            // SAFETY: the part has just been created, for us.
            Ok(unsafe { Owned::<SubDevice>::new(core, part) })
        });
        let parts = parts.collect::<Result<Vec<_>, Failure>>()?;
        let ids: Vec<_> = parts.iter().map(|part| Id::new(part.raw())).collect();
        let context = Arc::new(platform::create_context(core, &ids)?);
        let devices = parts.into_iter().zip(ids).enumerate().map(|(number, (part, id))| {
            let selector = format!("{} (part {number} of {count})", info.selector);
            let shared =
                Shared::new(platform, &context, count == 1, id, Some(part), selector, options.clone())?;
            Ok(Arc::new(Self { shared: Arc::new(shared) }) as Arc<dyn Device>)
        });
        devices.collect()
    }
}

// SAFETY: the backend meets the contract, as the conformance suite shows on two drivers: memory
// lives as long as its object, the driver starts work after its wait list, and an event is complete
// when the driver says so of the last command.
unsafe impl Device for OpenclDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn status(&self) -> Result<()> {
        if let Some(error) = self.shared.lost.get() {
            return Err(error.clone());
        }
        match self.shared.query().value::<u32>(sys::CL_DEVICE_AVAILABLE) {
            Ok(0) => Err(self.shared.error(Error::new(
                ErrorKind::DeviceLost,
                "the driver says that the device is not available",
            ))),
            Ok(_) => Ok(()),
            Err(failure) => Err(self.shared.error(failure)),
        }
    }

    fn clock(&self) -> Result<ClockSample> {
        let timer = self.shared.features.timer.then(|| self.shared.timer_clock());
        match timer {
            Some(Ok(sample)) => Ok(sample),
            _ => self.shared.marker_clock().map_err(|failure| self.shared.error(failure)),
        }
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        match OpenclMemory::allocate(&self.shared, desc) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(error) => Err(self.shared.error(error)),
        }
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        match OpenclKernel::load(&self.shared, desc) {
            Ok(kernel) => Ok(Arc::new(kernel)),
            Err(error) => Err(self.shared.error(error)),
        }
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        if desc.order == QueueOrder::OutOfOrder && !self.shared.capabilities.out_of_order_queues {
            let why = "the device has no out-of-order queues";
            return Err(self.shared.error(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        match OpenclQueue::create(&self.shared, *desc) {
            Ok(queue) => Ok(Arc::new(queue)),
            Err(failure) => Err(self.shared.error(failure)),
        }
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn crate::hal::Event>> {
        Ok(Arc::new(OpenclEvent::new(&self.shared)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(OpenclCommandBuffer::new(&self.shared, *desc)))
    }

    /// Memory does not leave its context.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.as_any().downcast_ref::<OpenclMemory>().is_some_and(|memory| memory.is_in(&self.shared))
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other
            .as_any()
            .downcast_ref::<Self>()
            .is_some_and(|other| Arc::ptr_eq(&other.shared.context, &self.shared.context))
    }

    /// Parts of equally many compute units. They share a context with each other, not with the whole device.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let units = self.shared.info.compute_units;
        let refused = |why: String| {
            self.shared
                .error(Error::new(ErrorKind::FeatureNotSupported, why))
                .help("split into at most as many devices as there are compute units")
        };
        if units / count == 0 {
            return Err(refused(format!("{units} compute units cannot be split into {count} devices")));
        }
        self.split(count.get(), units / count).map_err(|failure| {
            refused(format!("the driver does not split the device into {count}"))
                .caused_by(Error::from(failure))
        })
    }
}
