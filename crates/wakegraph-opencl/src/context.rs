//! The context of a device, which all objects of the device share and keep alive.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use wakegraph_hal::support::device_context::DeviceContext;
use wakegraph_hal::support::health::DeviceHealth;
use wakegraph_hal::support::program_cache::ProgramCache;
use wakegraph_hal::{
    Capabilities, ClockSample, DeviceId, DeviceInfo, Error, ErrorKind, Priority, QueueDesc, QueueOrder,
    Result,
};

use super::driver_queue::DriverQueue;
use super::features::{self, OpenclFeatures, POCL};
use super::late_callbacks::LateCallbacks;
use super::options::OpenclOptions;
use super::platform::{Id, Platform};
use super::query::{self, Query as _};
use super::sys::{
    self, Context, Core, DriverResult, Event, MemObject, Owned, Program, SubDevice, call, create,
};

/// The context of a device.
#[derive(Debug)]
pub(super) struct OpenclContext {
    pub(super) core: &'static Core,
    pub(super) platform: Arc<Platform>,
    /// The driver's context, which the devices of a platform, or the parts of one device, share.
    pub(super) raw: Arc<Owned<Context>>,
    pub(super) id: Id,
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) features: OpenclFeatures,
    pub(super) options: OpenclOptions,
    /// The programs by their code (`program.rs`).
    pub(super) programs: ProgramCache<Vec<u8>, Owned<Program>>,
    /// Where a thread that waits makes late callbacks come earlier.
    pub(super) late_callbacks: Option<Arc<LateCallbacks>>,
    pub(super) health: DeviceHealth,
    /// An in-order queue without profiling for the backend's own reads, writes and recordings.
    service: OnceLock<DriverQueue>,
    /// Keeps a part of a device alive.
    part: Option<Owned<SubDevice>>,
}

/// Capacity of the cache of programs.
const PROGRAMS: usize = 256;

impl Drop for OpenclContext {
    fn drop(&mut self) {
        // PoCL 3.1 frees a part while its threads still work for the part's last queue. A kilobyte
        // leaks for each split.
        if self.platform.name == POCL {
            std::mem::forget(self.part.take());
        }
    }
}

impl DeviceContext for OpenclContext {
    fn id(&self) -> DeviceId {
        self.info.id
    }
}

impl OpenclContext {
    /// `alone` says whether the device is the only one of the driver's context.
    pub(super) fn new(
        platform: &Arc<Platform>,
        raw: &Arc<Owned<Context>>,
        alone: bool,
        id: Id,
        part: Option<Owned<SubDevice>>,
        selector: String,
        options: OpenclOptions,
    ) -> DriverResult<Self> {
        let core = platform.core;
        let query = query::device(core, id.raw());
        let features = OpenclFeatures::read(&query, &platform.name, &options);
        let driver = query.text(sys::CL_DRIVER_VERSION)?;
        let health = DeviceHealth::new(selector.clone());
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
            raw: Arc::clone(raw),
            id,
            info,
            capabilities: features::capabilities(&query, &platform.name, &features, alone)?,
            features,
            options,
            programs: ProgramCache::new(PROGRAMS),
            late_callbacks: features.waiting_runs_kernels.then(Arc::default),
            health,
            service: OnceLock::new(),
            part,
        })
    }

    /// Whether both devices share the driver's context, and with it memory and events.
    pub(super) fn shares_memory_with(&self, other: &Self) -> bool {
        self.raw.raw() == other.raw.raw()
    }

    pub(super) fn create_queue(&self, desc: QueueDesc) -> DriverResult<DriverQueue> {
        let QueueDesc { order, profiling, priority, .. } = desc;
        // An in-order queue keeps every promise of an out-of-order one: what a command waits for was
        // enqueued before it.
        let order = if self.features.out_of_order_queues { order } else { QueueOrder::InOrder };
        let bit = |set: bool, bit| if set { bit } else { 0 };
        let bits = bit(order == QueueOrder::OutOfOrder, sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
            | bit(profiling, sys::CL_QUEUE_PROFILING_ENABLE);
        let (core, context, device) = (self.core, self.raw.raw(), self.id.raw());
        let raw = if self.features.queue_properties {
            let priority = match priority {
                Priority::High => sys::CL_QUEUE_PRIORITY_HIGH_KHR,
                Priority::Normal => sys::CL_QUEUE_PRIORITY_MED_KHR,
                Priority::Low => sys::CL_QUEUE_PRIORITY_LOW_KHR,
            };
            let mut list = [sys::CL_QUEUE_PROPERTIES as sys::cl_queue_properties, bits, 0, 0, 0];
            if self.features.queue_priorities && desc.priority != Priority::Normal {
                (list[2], list[3]) = (sys::CL_QUEUE_PRIORITY_KHR, priority.into());
            }
            // SAFETY: the device is one of the context's, and the list ends in 0.
            unsafe { create!(core, clCreateCommandQueueWithProperties(context, device, list.as_ptr())) }
        } else {
            // SAFETY: the device is one of the context's.
            unsafe { create!(core, clCreateCommandQueue(context, device, bits)) }
        }?;
        let needs_byte = profiling && !self.features.marker_times;
        let marker_byte = needs_byte.then(|| self.create_buffer(1, BufferPlace::Device)).transpose()?;
        Ok(DriverQueue { core, raw, order, profiling, marker_byte })
    }

    /// A buffer object of `len` bytes.
    pub(super) fn create_buffer(&self, len: usize, place: BufferPlace) -> DriverResult<Owned<MemObject>> {
        let (place, start) = match place {
            BufferPlace::Device => (0, ptr::null_mut()),
            BufferPlace::Host => (sys::CL_MEM_ALLOC_HOST_PTR, ptr::null_mut()),
            BufferPlace::Block(start) => (sys::CL_MEM_USE_HOST_PTR, start.as_ptr().cast()),
        };
        let (raw, flags) = (self.raw.raw(), sys::CL_MEM_READ_WRITE | place);
        // SAFETY: the context is alive, and the block has `len` bytes.
        unsafe { create!(self.core, clCreateBuffer(raw, flags, len, start)) }
    }

    /// The device's own queue, for work that must not queue behind the user's.
    pub(super) fn service(&self) -> DriverResult<&DriverQueue> {
        if let Some(queue) = self.service.get() {
            return Ok(queue);
        }
        let queue = self.create_queue(QueueDesc::new(QueueOrder::InOrder))?;
        Ok(self.service.get_or_init(|| queue))
    }

    /// An event that the host completes or fails.
    pub(super) fn user_event(&self) -> DriverResult<Owned<Event>> {
        // SAFETY: the context is alive.
        unsafe { create!(self.core, clCreateUserEvent(self.raw.raw())) }
    }

    /// An event that is complete.
    pub(super) fn completed_event(&self) -> DriverResult<Owned<Event>> {
        let (event, complete) = (self.user_event()?, sys::CL_COMPLETE as sys::cl_int);
        // SAFETY: the event is a user event whose status has not been set before.
        unsafe { call!(self.core, clSetUserEventStatus(event.raw(), complete)) }?;
        Ok(event)
    }

    /// Names the device in the error, and remembers the first error that says that it is lost.
    pub(super) fn error(&self, error: impl Into<Error>) -> Error {
        self.health.error(error)
    }

    /// Whether the device works, and if not, why.
    pub(super) fn status(&self) -> Result<()> {
        self.health.status()?;
        match query::device(self.core, self.id.raw()).value::<u32>(sys::CL_DEVICE_AVAILABLE) {
            Ok(0) => {
                let why = "the driver says that the device is not available";
                Err(self.error(Error::new(ErrorKind::DeviceLost, why)))
            }
            Ok(_) => Ok(()),
            Err(failure) => Err(self.error(failure)),
        }
    }

    pub(super) fn clock(&self) -> DriverResult<ClockSample> {
        if self.features.timer
            && let Ok(sample) = self.timer_clock()
        {
            return Ok(sample);
        }
        self.marker_clock()
    }

    fn timer_clock(&self) -> DriverResult<ClockSample> {
        ClockSample::between(|| {
            let (mut device, mut host) = (0, 0);
            let (id, places) = (self.id.raw(), (&raw mut device, &raw mut host));
            // SAFETY: the device is alive, both places are numbers.
            unsafe { call!(self.core, clGetDeviceAndHostTimer(id, places.0, places.1)) }?;
            Ok(device)
        })
    }

    /// The time of a marker that has just run, for drivers that cannot read both clocks.
    fn marker_clock(&self) -> DriverResult<ClockSample> {
        /// NVIDIA's driver leaves a marker without its time now and then.
        const MOST_MARKERS: usize = 10;
        let queue = self.create_queue(QueueDesc::new(QueueOrder::InOrder).profiling(true))?;
        until_available(MOST_MARKERS, || {
            ClockSample::between(|| {
                let event = queue.marker(&[])?.ok_or(sys::missing("clEnqueueMarkerWithWaitList"))?;
                queue.finish()?;
                self.event_time(&event, sys::CL_PROFILING_COMMAND_END)
            })
        })
    }

    /// One of the times of an event that is complete, in nanoseconds of the device's clock.
    pub(super) fn event_time(&self, event: &Owned<Event>, what: sys::cl_profiling_info) -> DriverResult<u64> {
        /// With the pauses between them, some milliseconds.
        const MOST_TRIES: usize = 50;
        let tries = if self.features.late_times { MOST_TRIES } else { 1 };
        until_available(tries, || query::event_times(self.core, event.raw()).value(what))
    }
}

/// Where the bytes of a buffer object are.
pub(super) enum BufferPlace {
    Device,
    /// Memory that the driver allocates on the host.
    Host,
    /// A block, which outlives the buffer object.
    Block(NonNull<u8>),
}

/// Reads a time, at most so many times, until the driver has it.
fn until_available<T>(most_tries: usize, mut read: impl FnMut() -> DriverResult<T>) -> DriverResult<T> {
    for _ in 1..most_tries {
        match read() {
            Err(failure) if failure.code == sys::CL_PROFILING_INFO_NOT_AVAILABLE => {}
            other => return other,
        }
        std::thread::sleep(Duration::from_micros(20));
    }
    read()
}
