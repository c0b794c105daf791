//! A device, and the driver's objects that belong to it: streams and events. A device is made current for
//! each call, and remembered as lost once a fault has been reported.
//!
//! HIP's current device belongs to the thread, which other libraries share: what was current before
//! a call is current again after it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use wakegraph_hal::support::errors::DeviceHealth;
use wakegraph_hal::support::library::{ObjectKind, Owned};
use wakegraph_hal::support::streams::{
    CaptureContext, CaptureModes, CaptureRelaxed, DriverContext, DriverStream, RawEvent, StreamContext,
};
use wakegraph_hal::{Error, ErrorKind, Priority, Result};

use super::error::version;
use super::release::{HipAddressLock, ReleaseThread};
use super::sys::{
    Driver, HipFailure, HipLibrary, call, get, hipDevice_t, hipDeviceAttribute_t, hipErrorInvalidHandle,
    hipErrorInvalidValue, hipEvent_t, hipEventDefault, hipEventDisableTiming, hipGraph_t, hipGraphExec,
    hipStream_t, hipStreamCaptureModeRelaxed, hipStreamCaptureModeThreadLocal, hipStreamCaptureStatusNone,
    hipStreamNonBlocking, ihipEvent_t, ihipGraph, ihipMemPoolHandle_t, ihipModule_t, ihipStream_t,
};

/// A device of the driver. Every object of the device refers to it.
#[derive(Debug)]
pub(super) struct HipContext {
    pub(super) driver: &'static Driver,
    pub(super) device: hipDevice_t,
    /// The driver's version, 60443484 for 6.4.
    pub(super) version: c_int,
    pub(super) arguments: HipArgumentLock,
    pub(super) addresses: HipAddressLock,
    pub(super) health: DeviceHealth,
    /// For calls that wait for the device.
    pub(super) releases: ReleaseThread,
}

/// While this lives, the device is current on this thread, and the thread is [`CaptureRelaxed`].
#[must_use = "the device is current only as long as this lives"]
#[derive(Debug)]
pub(super) struct CurrentDevice<'a> {
    driver: &'a Driver,
    /// The device to make current again, if it is another one.
    before: Option<c_int>,
    _relaxed: CaptureRelaxed<'a, Driver>,
}

impl CaptureModes for Driver {
    type Codes = HipLibrary;
    const RELAXED: u32 = hipStreamCaptureModeRelaxed;

    fn exchange_mode(&self, mode: &mut u32) -> Result<(), HipFailure> {
        // SAFETY: the pointer is valid for a number, which is a mode.
        unsafe { call!(self, hipThreadExchangeStreamCaptureMode(mode)) }
    }
}

impl HipContext {
    pub(super) fn new(driver: &'static Driver, index: usize) -> Result<Self> {
        let device = device(driver, index)?;
        let version = version(driver)?;
        let arguments = HipArgumentLock::for_version(version);
        let addresses = HipAddressLock::for_devices(count(driver)?);
        let health = DeviceHealth::new(format!("hip:{index}"));
        let releases = ReleaseThread::start(driver, device)?;
        Ok(Self { driver, device, version, arguments, addresses, health, releases })
    }

    pub(super) fn attribute(&self, attribute: hipDeviceAttribute_t) -> Result<usize, HipFailure> {
        // SAFETY: the driver gave the device.
        let value: c_int = unsafe { get!(self.driver, hipDeviceGetAttribute(attribute, self.device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

impl DriverContext for HipContext {
    type Driver = Driver;
    type Entered<'a> = CurrentDevice<'a>;

    fn driver(&self) -> &'static Driver {
        self.driver
    }

    fn health(&self) -> &DeviceHealth {
        &self.health
    }

    fn enter(&self) -> Result<CurrentDevice<'_>, HipFailure> {
        let relaxed = CaptureRelaxed::enter(self.driver)?;
        // SAFETY: the driver is initialised.
        let current: c_int = unsafe { get!(self.driver, hipGetDevice()) }?;
        let before = (current != self.device).then_some(current);
        if before.is_some() {
            self.make_current()?;
        }
        Ok(CurrentDevice { driver: self.driver, before, _relaxed: relaxed })
    }

    /// Makes the device current in the place of the one that is current now.
    fn make_current(&self) -> Result<(), HipFailure> {
        // SAFETY: the driver gave the device.
        unsafe { call!(self.driver, hipSetDevice(self.device)) }
    }
}

impl Drop for CurrentDevice<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: this device was current.
            if let Err(failure) = unsafe { call!(self.driver, hipSetDevice(before)) } {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a thread's device could not be restored");
            }
        }
    }
}

/// The number of devices.
pub(super) fn count(driver: &Driver) -> Result<usize> {
    // SAFETY: the driver is initialised.
    let count: c_int = unsafe { get!(driver, hipGetDeviceCount()) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The name of a device, which need not be open.
pub(super) fn name(driver: &Driver, device: hipDevice_t) -> Result<String, HipFailure> {
    let mut name: [c_char; 256] = [0; 256];
    let (start, room) = (name.as_mut_ptr(), name.len() as c_int - 1);
    // SAFETY: there is room for so many bytes, and for a NUL after them.
    unsafe { call!(driver, hipDeviceGetName(start, room, device)) }?;
    // SAFETY: the text ends in NUL in any case, as the last byte was left out.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

/// The driver's number of a device.
pub(super) fn device(driver: &Driver, index: usize) -> Result<hipDevice_t> {
    let count = count(driver)?;
    if index >= count {
        let why = format!("there is no HIP device {index}: there are {count}");
        return Err(Error::new(ErrorKind::Unavailable, why).help(
            "count from 0 in the order of `rocminfo`'s GPUs, among the devices in HIP_VISIBLE_DEVICES",
        ));
    }
    Ok(index as hipDevice_t)
}

pub(super) type HipStream = DriverStream<HipContext>;
pub(super) type HipRawEvent = RawEvent<HipContext>;

/// The priority of a stream that is created without one.
const NORMAL_PRIORITY: c_int = 0;

fn highest_priority(driver: &Driver) -> Result<c_int, HipFailure> {
    let (mut lowest, mut highest) = (0, 0);
    // SAFETY: the context is bound, the places valid.
    unsafe { call!(driver, hipDeviceGetStreamPriorityRange(&raw mut lowest, &raw mut highest)) }?;
    Ok(highest)
}

impl StreamContext for HipContext {
    type StreamKind = ihipStream_t;
    type EventKind = ihipEvent_t;
    const BAD_HANDLE: &'static [u32] = &[hipErrorInvalidValue, hipErrorInvalidHandle];

    fn create_stream(context: &Arc<Self>, priority: Priority) -> Result<HipObject<ihipStream_t>, HipFailure> {
        let (driver, flags) = (context.driver, hipStreamNonBlocking);
        let priority = match priority {
            Priority::High => highest_priority(driver)?,
            _ => NORMAL_PRIORITY,
        };
        HipObject::create_by(context, |driver, place| {
            if priority == NORMAL_PRIORITY {
                // SAFETY: the context is bound, the place valid.
                return unsafe { call!(driver, hipStreamCreateWithFlags(place, flags)) };
            }
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipStreamCreateWithPriority(place, flags, priority)) }
        })
    }

    fn create_event(context: &Arc<Self>, timing: bool) -> Result<HipObject<ihipEvent_t>, HipFailure> {
        let flags = if timing { hipEventDefault } else { hipEventDisableTiming };
        HipObject::create_by(context, |driver, place| {
            // SAFETY: the context is bound, the place valid.
            unsafe { call!(driver, hipEventCreateWithFlags(place, flags)) }
        })
    }

    unsafe fn record(&self, event: hipEvent_t, stream: hipStream_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipEventRecord(event, stream)) }
    }

    unsafe fn wait(&self, stream: hipStream_t, event: hipEvent_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamWaitEvent(stream, event, 0)) }
    }

    unsafe fn query_event(&self, event: hipEvent_t) -> Result<bool, HipFailure> {
        // SAFETY: passed on to the caller.
        HipFailure::check_ready("hipEventQuery", unsafe { (self.driver.hipEventQuery)(event) })
    }

    unsafe fn query_stream(&self, stream: hipStream_t) -> Result<bool, HipFailure> {
        // SAFETY: passed on to the caller.
        HipFailure::check_ready("hipStreamQuery", unsafe { (self.driver.hipStreamQuery)(stream) })
    }

    unsafe fn synchronize(&self, stream: hipStream_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamSynchronize(stream)) }
    }

    unsafe fn elapsed(&self, from: hipEvent_t, to: hipEvent_t) -> Result<f32, HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { get!(self.driver, hipEventElapsedTime(from, to)) }
    }
}

impl CaptureContext for HipContext {
    type GraphKind = ihipGraph;
    const BACKEND: &'static str = "hip";

    fn native_context(&self) -> *mut c_void {
        ptr::null_mut()
    }

    unsafe fn begin_capture(&self, stream: hipStream_t) -> Result<(), HipFailure> {
        let mode = hipStreamCaptureModeThreadLocal;
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamBeginCapture(stream, mode)) }
    }

    unsafe fn end_capture(&self, stream: hipStream_t, graph: &mut hipGraph_t) -> Result<(), HipFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.driver, hipStreamEndCapture(stream, graph)) }
    }

    unsafe fn is_capturing(&self, stream: hipStream_t) -> Result<bool, HipFailure> {
        let mut status = hipStreamCaptureStatusNone;
        // SAFETY: passed on to the caller; the pointer is valid for a status.
        unsafe { call!(self.driver, hipStreamIsCapturing(stream, &raw mut status)) }?;
        Ok(status != hipStreamCaptureStatusNone)
    }
}

/// An object of the driver. It keeps the context alive.
///
/// Work in flight that uses a dropped object goes on: the driver keeps events and instantiated graphs
/// until then. Code, pools and streams are destroyed where that may wait.
pub(super) type HipObject<T> = Owned<T>;

macro_rules! kinds {
    (at_once: { $($kind:ident: $destroy:ident,)+ } waiting: { $($late:ident: $destroy_late:ident,)+ }) => {
        $(
            // SAFETY: any thread may use the driver's objects. Graphs, of which the driver takes one call
            // at a time, are behind locks or exclusive references.
            unsafe impl ObjectKind for $kind {
                type Handle = *mut Self;
                type Owner = Arc<HipContext>;

                unsafe fn destroy(context: &Arc<HipContext>, object: *mut Self) {
                    context.destroy(|| {
                        // SAFETY: passed on to the caller.
                        unsafe { call!(context.driver, $destroy(object)) }
                    });
                }
            }
        )+
        $(
            // SAFETY: any thread may use the driver's objects.
            unsafe impl ObjectKind for $late {
                type Handle = *mut Self;
                type Owner = Arc<HipContext>;

                unsafe fn destroy(context: &Arc<HipContext>, object: *mut Self) {
                    let object = object.expose_provenance();
                    context.releases.later(move |driver| {
                        // SAFETY: passed on to the caller.
                        unsafe { call!(driver, $destroy_late(ptr::with_exposed_provenance_mut(object))) }
                    });
                }
            }
        )+
    };
}

kinds! {
    at_once: {
        ihipEvent_t: hipEventDestroy,
        ihipGraph: hipGraphDestroy,
        hipGraphExec: hipGraphExecDestroy,
    }
    waiting: {
        ihipMemPoolHandle_t: hipMemPoolDestroy,
        ihipModule_t: hipModuleUnload,
        ihipStream_t: hipStreamDestroy,
    }
}

/// The first version, as the driver counts, whose nodes lock the place.
const FIRST_TO_LOCK: c_int = 60_300_000;

/// Lets one thread of a device at a time make the calls that read the arguments of kernels, on versions
/// before 6.3. There is no lock for others.
///
/// These versions copy the arguments of a launch to a place that belongs to the function, and from
/// there to the launch. Launches on a stream lock that place in between. Nodes of graphs do not,
/// neither when they are added or changed nor when their graph is launched: two threads that use one
/// function at the same time exchange their arguments.
///
/// The closures of native commands and stream tasks are not locked: with these versions, an application
/// does not launch a function in them that other threads use.
#[derive(Debug)]
pub(super) struct HipArgumentLock(Option<Mutex<()>>);

impl HipArgumentLock {
    fn for_version(version: c_int) -> Self {
        Self((version < FIRST_TO_LOCK).then(Mutex::default))
    }

    /// Waits for the other threads' calls.
    pub(super) fn hold(&self) -> Option<MutexGuard<'_, ()>> {
        self.0.as_ref().map(Mutex::lock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_versions_are_locked() {
        let is_locked = |version| HipArgumentLock::for_version(version).hold().is_some();
        assert!(is_locked(50_730_151) && is_locked(60_241_134));
        assert!(!is_locked(60_342_131) && !is_locked(60_443_484));
    }
}
