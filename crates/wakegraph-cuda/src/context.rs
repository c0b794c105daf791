//! A device's context, and the driver's objects that belong to it: streams and events. A context is made
//! current for each call, and remembered as lost once a fault has ended it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::any::Any;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use wakegraph_hal::support::errors::DeviceHealth;
use wakegraph_hal::support::library::{ObjectKind, Owned};
use wakegraph_hal::support::streams::{
    CaptureContext, CaptureModes, CaptureRelaxed, DriverContext, DriverStream, RawEvent, StreamContext,
};
use wakegraph_hal::{Error, ErrorKind, Priority, Result, share_selectors};

use super::share::{GreenContext, Multiprocessors};
use super::sys::{
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING,
    CU_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_STATUS_NONE,
    CU_STREAM_NON_BLOCKING, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE,
    CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_st, CUgraph, CUgraph_st, CUgraphExec_st,
    CUmemPoolHandle_st, CUmod_st, CUstream, CUstream_st, CudaFailure, CudaLibrary, Driver, call, get,
};

/// The primary context of a device, or one of the application's. Every object of the device keeps it alive.
/// Where the device is a share of the hardware, there is a green context beside the primary one.
#[derive(Debug)]
pub(super) struct CudaContext {
    pub(super) driver: &'static Driver,
    pub(super) device: CUdevice,
    pub(super) raw: CUcontext,
    pub(super) health: DeviceHealth,
    owner: ContextOwner,
    green: Option<GreenContext>,
}

/// Owner of a context.
#[derive(Debug)]
enum ContextOwner {
    /// The driver, which counts how often the primary context has been retained.
    Driver,
    /// The owner that the application has given. Contexts that it creates are not counted.
    Application { _keep_alive: Box<dyn Any + Send + Sync> },
}

// SAFETY: any thread may use a context, and several may do so at a time.
unsafe impl Send for CudaContext {}
// SAFETY: as for `Send`.
unsafe impl Sync for CudaContext {}

/// While this lives, the context is current on this thread, and the thread is [`CaptureRelaxed`].
#[must_use = "the context is current only as long as this lives"]
#[derive(Debug)]
pub(super) struct CurrentContext<'a> {
    driver: &'a Driver,
    pushed: bool,
    _relaxed: CaptureRelaxed<'a, Driver>,
}

impl CaptureModes for Driver {
    type Codes = CudaLibrary;
    const RELAXED: u32 = CU_STREAM_CAPTURE_MODE_RELAXED;

    fn exchange_mode(&self, mode: &mut u32) -> Result<(), CudaFailure> {
        // SAFETY: the pointer is valid for a number, which is a mode.
        unsafe { call!(self, cuThreadExchangeStreamCaptureMode(mode)) }
    }
}

impl CudaContext {
    pub(super) fn retain(driver: &'static Driver, index: usize) -> Result<Self> {
        Ok(Self::primary(driver, device(driver, index)?, format!("cuda:{index}"))?)
    }

    fn primary(driver: &'static Driver, device: CUdevice, selector: String) -> Result<Self, CudaFailure> {
        let _relaxed = CaptureRelaxed::enter(driver)?;
        // SAFETY: the driver gave the device.
        let raw = unsafe { get!(driver, cuDevicePrimaryCtxRetain(device)) }?;
        let health = DeviceHealth::new(selector);
        Ok(Self { driver, device, raw, health, owner: ContextOwner::Driver, green: None })
    }

    /// Contexts of at least `units` of the multiprocessors, and of the others.
    pub(super) fn share(&self, units: usize) -> Result<[Self; 2]> {
        let parts = self.multiprocessors()?.split(self.driver, units)?;
        let part = |selector, multiprocessors| -> Result<Self, CudaFailure> {
            let mut context = Self::primary(self.driver, self.device, selector)?;
            let green = {
                let _bound = context.bind()?;
                GreenContext::take(self.driver, self.device, multiprocessors)?
            };
            context.green = Some(green);
            Ok(context)
        };
        let [share, rest] = share_selectors(self.health.selector(), parts.map(|part| part.count()));
        Ok([part(share, parts[0])?, part(rest, parts[1])?])
    }

    fn multiprocessors(&self) -> Result<Multiprocessors, CudaFailure> {
        match &self.green {
            Some(green) => Ok(green.multiprocessors),
            None => Multiprocessors::of_device(self.driver, self.device),
        }
    }

    pub(super) fn compute_units(&self) -> Result<usize, CudaFailure> {
        match &self.green {
            Some(green) => Ok(green.multiprocessors.count()),
            None => self.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        }
    }

    /// Calls `make`, which loads code, or makes nodes or changes them: on a share, the kernels keep to the
    /// share's multiprocessors. The caller has bound the context.
    pub(super) fn confined<T>(
        &self,
        make: impl FnOnce() -> Result<T, CudaFailure>,
    ) -> Result<T, CudaFailure> {
        let Some(green) = &self.green else { return make() };
        let _alone = green.alone.lock();
        let _current = enter(self.driver, green.context)?;
        make()
    }

    /// The context of the nodes that are made [so](Self::confined): all nodes in a conditional have one.
    pub(super) fn of_nodes(&self) -> CUcontext {
        self.green.as_ref().map_or(self.raw, |green| green.context)
    }

    /// A context that the application has created, and that lives as long as `keep_alive`.
    ///
    /// # Safety
    /// The context is null or live.
    pub(super) unsafe fn lent(
        driver: &'static Driver,
        raw: CUcontext,
        keep_alive: Box<dyn Any + Send + Sync>,
    ) -> Result<Self> {
        let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
        if raw.is_null() {
            return Err(invalid("a null handle is no context"));
        }
        let device: CUdevice = {
            let _bound = enter(driver, raw).map_err(|failure| match failure.code {
                CUDA_ERROR_INVALID_CONTEXT => {
                    invalid("the handle is not that of a context").caused_by(Error::from(failure))
                }
                _ => failure.into(),
            })?;
            // SAFETY: the context is current.
            unsafe { get!(driver, cuCtxGetDevice()) }?
        };
        for index in 0..count(driver)? {
            if self::device(driver, index)? == device {
                let health = DeviceHealth::new(format!("cuda:{index}"));
                let owner = ContextOwner::Application { _keep_alive: keep_alive };
                return Ok(Self { driver, device, raw, health, owner, green: None });
            }
        }
        Err(invalid("the context is of a device that the driver does not list"))
    }

    pub(super) fn attribute(&self, attribute: CUdevice_attribute) -> Result<usize, CudaFailure> {
        // SAFETY: the driver gave the device.
        let value: c_int = unsafe { get!(self.driver, cuDeviceGetAttribute(attribute, self.device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

impl DriverContext for CudaContext {
    type Driver = Driver;
    type Entered<'a> = CurrentContext<'a>;

    fn driver(&self) -> &'static Driver {
        self.driver
    }

    fn health(&self) -> &DeviceHealth {
        &self.health
    }

    /// The context that is current on the thread now, if any, is so again afterwards: other libraries work
    /// with it, and the application may destroy a context that it has given us.
    fn enter(&self) -> Result<CurrentContext<'_>, CudaFailure> {
        enter(self.driver, self.raw)
    }

    fn make_current(&self) -> Result<(), CudaFailure> {
        // SAFETY: the context is alive.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.raw)) }
    }
}

impl Drop for CudaContext {
    fn drop(&mut self) {
        if let Some(green) = self.green.take() {
            green.give_back();
        }
        if matches!(self.owner, ContextOwner::Application { .. }) {
            return;
        }
        self.report(CaptureRelaxed::enter(self.driver).and_then(|_relaxed| {
            // SAFETY: retained once by `primary`, released once.
            unsafe { call!(self.driver, cuDevicePrimaryCtxRelease(self.device)) }
        }));
    }
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        if self.pushed {
            // SAFETY: `enter` pushed the context that is popped, on this thread.
            if let Err(failure) = unsafe { get!(self.driver, cuCtxPopCurrent()) } {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a context could not be unbound");
            }
        }
    }
}

/// As [`CudaContext::enter`](DriverContext::enter). The context is live.
fn enter(driver: &Driver, raw: CUcontext) -> Result<CurrentContext<'_>, CudaFailure> {
    let _relaxed = CaptureRelaxed::enter(driver)?;
    // SAFETY: the driver is initialised.
    let current: CUcontext = unsafe { get!(driver, cuCtxGetCurrent()) }?;
    let pushed = current != raw;
    if pushed {
        // SAFETY: the caller keeps the context.
        unsafe { call!(driver, cuCtxPushCurrent(raw)) }?;
    }
    Ok(CurrentContext { driver, pushed, _relaxed })
}

/// The number of devices.
pub(super) fn count(driver: &Driver) -> Result<usize> {
    // SAFETY: the driver is initialised.
    let count: c_int = unsafe { get!(driver, cuDeviceGetCount()) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The name of a device, which need not be open.
pub(super) fn name(driver: &Driver, device: CUdevice) -> Result<String, CudaFailure> {
    let mut name: [c_char; 256] = [0; 256];
    let (start, room) = (name.as_mut_ptr(), name.len() as c_int - 1);
    // SAFETY: there is room for so many bytes, and for a NUL after them.
    unsafe { call!(driver, cuDeviceGetName(start, room, device)) }?;
    // SAFETY: the text ends in NUL in any case, as the last byte was left out.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// The driver's handle of a device.
pub(super) fn device(driver: &Driver, index: usize) -> Result<CUdevice> {
    let count = count(driver)?;
    if index >= count {
        let why = format!("there is no CUDA device {index}: there are {count}");
        return Err(Error::new(ErrorKind::Unavailable, why).help(
            "count from 0 among the devices in CUDA_VISIBLE_DEVICES; the order is that of `nvidia-smi -L` \
             where CUDA_DEVICE_ORDER=PCI_BUS_ID is set, and else begins with the fastest device",
        ));
    }
    // SAFETY: the index is below the count, which came as such a number.
    Ok(unsafe { get!(driver, cuDeviceGet(index as c_int)) }?)
}

pub(super) type CudaStream = DriverStream<CudaContext>;
pub(super) type CudaRawEvent = RawEvent<CudaContext>;

impl StreamContext for CudaContext {
    type StreamKind = CUstream_st;
    type EventKind = CUevent_st;
    const BAD_HANDLE: &'static [u32] =
        &[CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE];

    fn create_stream(
        context: &Arc<Self>,
        priority: Priority,
    ) -> Result<CudaObject<CUstream_st>, CudaFailure> {
        let _alone = context.green.as_ref().map(|green| green.alone.lock());
        create_stream(context, priority)
    }

    fn try_create_stream(
        context: &Arc<Self>,
        priority: Priority,
    ) -> Option<Result<CudaObject<CUstream_st>, CudaFailure>> {
        let _alone = match &context.green {
            Some(green) => Some(green.alone.try_lock()?),
            None => None,
        };
        Some(create_stream(context, priority))
    }

    fn create_event(context: &Arc<Self>, timing: bool) -> Result<CudaObject<CUevent_st>, CudaFailure> {
        let flags = if timing { CU_EVENT_DEFAULT } else { CU_EVENT_DISABLE_TIMING };
        CudaObject::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, cuEventCreate(place, flags)) }
        })
    }

    unsafe fn record(&self, event: CUevent, stream: CUstream) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuEventRecord(event, stream)) }
    }

    unsafe fn wait(&self, stream: CUstream, event: CUevent) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamWaitEvent(stream, event, 0)) }
    }

    unsafe fn query_event(&self, event: CUevent) -> Result<bool, CudaFailure> {
        // SAFETY: passed on to the caller.
        CudaFailure::check_ready("cuEventQuery", unsafe { (self.driver.cuEventQuery)(event) })
    }

    unsafe fn query_stream(&self, stream: CUstream) -> Result<bool, CudaFailure> {
        // SAFETY: passed on to the caller.
        CudaFailure::check_ready("cuStreamQuery", unsafe { (self.driver.cuStreamQuery)(stream) })
    }

    unsafe fn synchronize(&self, stream: CUstream) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamSynchronize(stream)) }
    }

    unsafe fn elapsed(&self, from: CUevent, to: CUevent) -> Result<f32, CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { get!(self.driver, cuEventElapsedTime(from, to)) }
    }
}

/// As [`create_stream`](StreamContext::create_stream). On a share, the caller holds the lock.
fn create_stream(
    context: &Arc<CudaContext>,
    priority: Priority,
) -> Result<CudaObject<CUstream_st>, CudaFailure> {
    let flags = CU_STREAM_NON_BLOCKING;
    CudaObject::create_by(context, |driver, place| {
        // Without a priority, a stream has the lowest one, 0.
        let (mut lowest, mut level) = (0, 0);
        if priority == Priority::High {
            // SAFETY: the context is bound, the places valid.
            unsafe { call!(driver, cuCtxGetStreamPriorityRange(&raw mut lowest, &raw mut level)) }?;
        }
        match &context.green {
            Some(green) => green.create_stream(place, level),
            // SAFETY: the context is bound, the place valid.
            None if level == 0 => unsafe { call!(driver, cuStreamCreate(place, flags)) },
            // SAFETY: as above.
            None => unsafe { call!(driver, cuStreamCreateWithPriority(place, flags, level)) },
        }
    })
}

impl CaptureContext for CudaContext {
    type GraphKind = CUgraph_st;
    const BACKEND: &'static str = "cuda";

    fn native_context(&self) -> *mut c_void {
        self.raw.cast()
    }

    unsafe fn begin_capture(&self, stream: CUstream) -> Result<(), CudaFailure> {
        let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamBeginCapture(stream, mode)) }
    }

    unsafe fn end_capture(&self, stream: CUstream, graph: &mut CUgraph) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, cuStreamEndCapture(stream, graph)) }
    }

    unsafe fn is_capturing(&self, stream: CUstream) -> Result<bool, CudaFailure> {
        let mut status = CU_STREAM_CAPTURE_STATUS_NONE;
        // SAFETY: passed on to the caller; the pointer is valid for a status.
        unsafe { call!(self.driver, cuStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != CU_STREAM_CAPTURE_STATUS_NONE)
    }
}

/// An object of the driver. It keeps the context alive.
///
/// Work in flight that uses a dropped object goes on: the driver keeps streams, events and
/// instantiated graphs until then. Code and pools are dropped after all that uses them.
pub(super) type CudaObject<T> = Owned<T>;

macro_rules! kinds {
    ($($kind:ident: $destroy:ident),+ $(,)?) => {$(
        // SAFETY: any thread may use the driver's objects. Graphs, of which the driver takes one call at a
        // time, are behind locks or exclusive references.
        unsafe impl ObjectKind for $kind {
            type Handle = *mut Self;
            type Owner = Arc<CudaContext>;

            unsafe fn destroy(context: &Arc<CudaContext>, object: *mut Self) {
                context.destroy(|| {
                    // SAFETY: passed on to the caller.
                    unsafe { call!(context.driver, $destroy(object)) }
                });
            }
        }
    )+};
}

kinds! {
    CUstream_st: cuStreamDestroy,
    CUevent_st: cuEventDestroy,
    CUgraph_st: cuGraphDestroy,
    CUgraphExec_st: cuGraphExecDestroy,
    CUmemPoolHandle_st: cuMemPoolDestroy,
    CUmod_st: cuModuleUnload,
}
