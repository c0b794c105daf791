//! A device, made current for each call and remembered as lost once a fault has been reported.
//!
//! HIP's current device belongs to the thread, which other libraries share: what was current before
//! a call is current again after it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;

use super::release::ReleaseThread;
use super::sys::{
    Driver, HipFailure, call, get, hipDevice_t, hipDeviceAttribute_t, hipErrorDeinitialized,
    hipStreamCaptureModeRelaxed,
};
use crate::hal::support::health::DeviceHealth;
use crate::types::{Error, ErrorKind, Result};

/// A device of the driver. Every object of the device refers to it.
#[derive(Debug)]
pub(super) struct HipContext {
    pub(super) driver: &'static Driver,
    pub(super) device: hipDevice_t,
    pub(super) health: DeviceHealth,
    /// For calls that wait for the device.
    pub(super) releases: ReleaseThread,
}

/// While this lives, the device is current on this thread, and the thread is [`HipCaptureRelaxed`].
#[must_use = "the device is current only as long as this lives"]
pub(super) struct HipBoundContext<'a> {
    driver: &'a Driver,
    /// The device to make current again, if it is another one.
    before: Option<c_int>,
    _relaxed: HipCaptureRelaxed<'a>,
}

/// While this lives, calls of this thread and stream captures of other threads do not disturb each
/// other.
///
/// While any thread captures a stream in the default mode, as PyTorch does, the driver otherwise
/// refuses allocations and the like on all threads, even for streams that have nothing to do with
/// the capture, and invalidates that capture.
#[must_use = "the thread's mode is relaxed only as long as this lives"]
pub(super) struct HipCaptureRelaxed<'a> {
    driver: &'a Driver,
    /// The mode to restore.
    before: c_uint,
    /// The mode belongs to the thread, so this value stays on it.
    thread: PhantomData<*const ()>,
}

const RELAXED: c_uint = hipStreamCaptureModeRelaxed;

impl<'a> HipCaptureRelaxed<'a> {
    pub(super) fn enter(driver: &'a Driver) -> Result<Self, HipFailure> {
        Ok(Self { driver, before: exchange_mode(driver, RELAXED)?, thread: PhantomData })
    }
}

impl Drop for HipCaptureRelaxed<'_> {
    fn drop(&mut self) {
        if self.before != RELAXED
            && let Err(failure) = exchange_mode(self.driver, self.before)
        {
            let error = Error::from(failure);
            tracing::warn!(target: "wakegraph", %error, "a thread's capture mode could not be restored");
        }
    }
}

/// Sets how this thread's calls and other threads' captures affect each other. Returns the mode
/// until now.
fn exchange_mode(driver: &Driver, mut mode: c_uint) -> Result<c_uint, HipFailure> {
    // SAFETY: the pointer is valid for a number, which is a mode.
    unsafe { call!(driver, hipThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
    Ok(mode)
}

impl HipContext {
    pub(super) fn new(driver: &'static Driver, index: usize) -> Result<Self> {
        let device = device(driver, index)?;
        let health = DeviceHealth::new(format!("hip:{index}"));
        Ok(Self { driver, device, health, releases: ReleaseThread::start(driver, device)? })
    }

    /// Makes the device current on this thread, as long as what is returned lives.
    pub(super) fn bind(&self) -> Result<HipBoundContext<'_>, HipFailure> {
        let relaxed = HipCaptureRelaxed::enter(self.driver)?;
        // SAFETY: the driver is initialised.
        let current: c_int = unsafe { get!(self.driver, hipGetDevice()) }?;
        let before = (current != self.device).then_some(current);
        if before.is_some() {
            self.make_current()?;
        }
        Ok(HipBoundContext { driver: self.driver, before, _relaxed: relaxed })
    }

    /// Makes the device current in the place of the one that is current now.
    pub(super) fn make_current(&self) -> Result<(), HipFailure> {
        // SAFETY: the driver gave the device.
        unsafe { call!(self.driver, hipSetDevice(self.device)) }
    }

    pub(super) fn attribute(&self, attribute: hipDeviceAttribute_t) -> Result<usize, HipFailure> {
        // SAFETY: the driver gave the device.
        let value: c_int = unsafe { get!(self.driver, hipDeviceGetAttribute(attribute, self.device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }

    /// Names the device in an error, and remembers the first one that says that it is lost.
    pub(super) fn error(&self, error: impl Into<Error>) -> Error {
        self.health.error(error)
    }

    /// Binds the context and calls `work`. An error names the device, as [`error`](Self::error)
    /// does.
    pub(super) fn run<T, E: Into<Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T> {
        let _bound = self.bind().map_err(|failure| self.error(failure))?;
        work().map_err(|error| self.error(error))
    }

    /// Destroys an object in its `drop`, with the context bound.
    pub(super) fn destroy(&self, destroy: impl FnOnce() -> Result<(), HipFailure>) {
        let Err(failure) = self.bind().and_then(|_bound| destroy()) else { return };
        // There is no caller to return it to. On a lost device all calls fail, and the driver is
        // unloaded before the last of a process's threads end.
        if self.health.lost().is_none() && failure.code != hipErrorDeinitialized {
            let error = self.error(failure);
            tracing::warn!(target: "wakegraph", %error, "a driver object could not be destroyed");
        }
    }
}

impl Drop for HipBoundContext<'_> {
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
