//! An opened device, which all its objects share and keep alive, the driver's queues, and the driver's
//! callbacks.
#![expect(unsafe_code, reason = "calls the driver, which calls back")]

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use wakegraph_hal::support::errors::{DeviceContext, DeviceHealth};
use wakegraph_hal::support::sources::ProgramCache;
use wakegraph_hal::{
    Capabilities, ClockSample, DeviceId, DeviceInfo, Error, ErrorKind, Priority, QueueDesc, QueueOrder,
    Result, setters,
};

use super::platform::{
    Id, OpenclFeatures, POCL, Platform, Query as _, event_outcome, query_device, query_event_times,
};
use super::sys::{
    self, CommandQueue, Context, Core, DriverResult, Event, MemObject, OpenclFailure, Owned, Program,
    SubDevice, adopt_event, call, create,
};

/// The form of a command-buffer on the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lowering {
    /// Plain enqueues, one for each command.
    Replay,
    /// A `cl_khr_command_buffer`, where the device has it and can record every command; else as for `Replay`.
    CommandBuffer,
}

/// Options with which [`open`](super::open) opens a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenclOptions {
    pub(super) lowering: Option<Lowering>,
    pub(super) shared_memory: bool,
}

/// Forces a lowering on devices that are opened by their selector.
const LOWERING_VARIABLE: &str = "WAKEGRAPH_OPENCL_LOWERING";

impl OpenclOptions {
    /// The defaults: recordings on devices other than CPUs that have them, and shared virtual memory
    /// where the device has it.
    pub fn new() -> Self {
        Self { lowering: None, shared_memory: true }
    }

    /// As [`new`](Self::new), with the lowering that `WAKEGRAPH_OPENCL_LOWERING` names: `replay` or
    /// `command-buffer`.
    pub(super) fn from_environment() -> Self {
        let variable = LOWERING_VARIABLE;
        let lowering = match std::env::var(variable).unwrap_or_default().as_str() {
            "" => None,
            "replay" => Some(Lowering::Replay),
            "command-buffer" => Some(Lowering::CommandBuffer),
            other => {
                let why = "neither 'replay' nor 'command-buffer'";
                tracing::warn!(target: "wakegraph::opencl", variable, other, why);
                None
            }
        };
        Self { lowering, ..Self::new() }
    }
}

setters! {
    OpenclOptions {
        /// Uses this lowering.
        lowering: Lowering,
        /// Whether memory is shared virtual memory on devices that have it fine-grained, which is the
        /// default. If not, memory is buffer objects, as on devices without it, and there are no raw
        /// pointers.
        shared_memory: bool,
    }
}

impl Default for OpenclOptions {
    fn default() -> Self {
        Self::new()
    }
}

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
        let query = query_device(core, id.raw());
        let features = OpenclFeatures::read(&query, &platform.name, options.shared_memory);
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
            capabilities: features.capabilities(&query, &platform.name, alone)?,
            features,
            options,
            programs: ProgramCache::new(PROGRAMS),
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
            let mut list = [sys::CL_QUEUE_PROPERTIES as sys::cl_properties, bits, 0, 0, 0];
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
        match query_device(self.core, self.id.raw()).value::<u32>(sys::CL_DEVICE_AVAILABLE) {
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
    pub(super) fn event_time(&self, event: &Owned<Event>, what: sys::cl_uint) -> DriverResult<u64> {
        /// With the pauses between them, some milliseconds.
        const MOST_TRIES: usize = 50;
        let tries = if self.features.late_times { MOST_TRIES } else { 1 };
        until_available(tries, || query_event_times(self.core, event.raw()).value(what))
    }
}

/// Place where the bytes of a buffer object are.
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

/// A queue of the driver.
#[derive(Debug)]
pub(super) struct DriverQueue {
    pub(super) core: &'static Core,
    pub(super) raw: Owned<CommandQueue>,
    pub(super) order: QueueOrder,
    pub(super) profiling: bool,
    /// With profiling, where the driver's markers have no times: a byte, of which a fill stands in for a
    /// marker.
    marker_byte: Option<Owned<MemObject>>,
}

impl DriverQueue {
    pub(super) fn raw(&self) -> sys::cl_command_queue {
        self.raw.raw()
    }

    /// Flushes after an enqueue, which does not fail any more.
    pub(super) fn flush_enqueued(&self) {
        sys::report(self.flush(), "a queue was not flushed");
    }

    pub(super) fn flush(&self) -> DriverResult {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFlush(self.raw())) }
    }

    pub(super) fn finish(&self) -> DriverResult {
        // SAFETY: the queue is alive.
        unsafe { call!(self.core, clFinish(self.raw())) }
    }

    /// Waits until the event of a marker behind everything enqueued so far is complete.
    pub(super) fn wait_for_marker(&self) -> DriverResult {
        if let Some(marker) = self.marker(&[])? {
            wait_for(self.core, marker.raw());
        }
        Ok(())
    }

    /// Has everything that is enqueued from now on wait for these events. Gives an event of that moment, if
    /// one is wanted.
    pub(super) fn barrier(
        &self,
        wait: &[sys::cl_event],
        wants_event: bool,
    ) -> DriverResult<Option<Owned<Event>>> {
        if wait.is_empty() && !wants_event {
            return Ok(None);
        }
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let own_event = wants_event && self.marker_byte.is_none();
        let place = if own_event { &raw mut event } else { ptr::null_mut() };
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueBarrierWithWaitList(queue, waits, list, place)) }?;
        match &self.marker_byte {
            Some(byte) if wants_event => self.clear(byte, 1, &[]).map(Some),
            _ => own_event.then(|| adopt_event(self.core, event)).transpose(),
        }
    }

    /// The event of a marker behind `wait` or, if that is empty, behind everything enqueued so far.
    /// If the driver refuses even a marker, this blocks until both have ended, and there is no event.
    pub(super) fn marker(&self, wait: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        let Some(byte) = &self.marker_byte else { return self.plain_marker(wait) };
        if self.order == QueueOrder::InOrder || !wait.is_empty() {
            return self.clear(byte, 1, wait).map(Some).or_else(|_| self.plain_marker(wait));
        }
        // A fill without a wait list would not wait for what else is in the queue.
        let Some(marker) = self.plain_marker(&[])? else { return Ok(None) };
        Ok(Some(self.clear(byte, 1, &[marker.raw()]).unwrap_or(marker)))
    }

    /// The event of a marker behind an event that need not have ended before the call returns.
    pub(super) fn marker_behind(&self, event: &Owned<Event>) -> DriverResult<Owned<Event>> {
        let events = [event.raw()];
        match &self.marker_byte {
            Some(byte) => self.clear(byte, 1, &events).or_else(|_| self.enqueue_marker(&events)),
            None => self.enqueue_marker(&events),
        }
    }

    /// Fills memory that nothing else uses yet, of `len` bytes, with 0. Gives the event of the fill.
    pub(super) fn clear(
        &self,
        memory: &Owned<MemObject>,
        len: usize,
        wait: &[sys::cl_event],
    ) -> DriverResult<Owned<Event>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(wait), ptr::null_mut());
        let (to, zero, place) = (memory.raw(), 0_u8, &raw mut event);
        let from = (&raw const zero).cast();
        // SAFETY: the memory has as many bytes, nothing reads it, and the driver copies the pattern; the
        // events are alive.
        unsafe { call!(self.core, clEnqueueFillBuffer(queue, to, from, 1, 0, len, waits, list, place)) }?;
        adopt_event(self.core, event)
    }

    fn plain_marker(&self, events: &[sys::cl_event]) -> DriverResult<Option<Owned<Event>>> {
        if let Ok(event) = self.enqueue_marker(events) {
            return Ok(Some(event));
        }
        self.finish()?;
        for &event in events {
            wait_for(self.core, event);
        }
        Ok(None)
    }

    fn enqueue_marker(&self, events: &[sys::cl_event]) -> DriverResult<Owned<Event>> {
        let (queue, (waits, list), mut event) = (self.raw(), sys::list(events), ptr::null_mut());
        let place = &raw mut event;
        // SAFETY: the queue and the events are alive.
        unsafe { call!(self.core, clEnqueueMarkerWithWaitList(queue, waits, list, place)) }?;
        adopt_event(self.core, event)
    }
}

/// Calls `then` with the outcome of an event once it has ended: 0, or an error code. It is called on the
/// driver's thread, inside this call, or on this thread after a wait if the driver refuses the callback.
/// Callers hold no lock. `then` keeps the event alive, and does not panic.
pub(super) fn when_ended<F>(core: &Core, event: sys::cl_event, then: F)
where
    F: FnOnce(sys::cl_int) + Send + 'static,
{
    let (then, complete) = (Box::into_raw(Box::new(then)), sys::CL_COMPLETE as sys::cl_int);
    // SAFETY: the event is alive. The callback is called at most once, and takes the box then.
    let set = unsafe { call!(core, clSetEventCallback(event, complete, Some(on_event::<F>), then.cast())) };
    if let Err(OpenclFailure { call, code }) = set {
        tracing::warn!(target: "wakegraph::opencl", call, code, "a callback was refused");
        // SAFETY: made above; a refused callback is not called.
        let then = unsafe { Box::from_raw(then) };
        then(wait_for(core, event));
    }
}

/// Blocks until the event has ended, and gives its outcome: 0, or an error code.
pub(super) fn wait_for(core: &Core, event: sys::cl_event) -> sys::cl_int {
    loop {
        // SAFETY: the event is alive.
        let waited = unsafe { call!(core, clWaitForEvents(1, &raw const event)) };
        if let Ok(Some(outcome)) = event_outcome(core, event) {
            return outcome;
        }
        // The driver could not wait, or not say how the event ended.
        if let Err(OpenclFailure { call, code }) = waited {
            tracing::debug!(target: "wakegraph::opencl", call, code, "a wait failed");
        }
        thread::sleep(BETWEEN_WAITS);
    }
}

/// The pause after a wait that has failed.
const BETWEEN_WAITS: Duration = Duration::from_micros(100);

/// The driver's callback.
unsafe extern "C" fn on_event<F: FnOnce(sys::cl_int)>(
    _: sys::cl_event,
    code: sys::cl_int,
    then: *mut c_void,
) {
    // SAFETY: the box that `when_ended` gave to the driver, which gives it back once.
    let then = unsafe { Box::from_raw(then.cast::<F>()) };
    then(code.min(sys::CL_SUCCESS));
}
