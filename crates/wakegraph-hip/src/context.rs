//! A device, made current for each call and remembered as lost once a fault has been reported.
//!
//! HIP's current device belongs to the thread, which other libraries share: what was current before
//! a call is current again after it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int};

use wakegraph_hal::support::health::DeviceHealth;
use wakegraph_hal::support::streams::{CaptureModes, CaptureRelaxed, DriverContext};
use wakegraph_hal::{Error, ErrorKind, Result};

use super::address_lock::HipAddressLock;
use super::argument_lock::HipArgumentLock;
use super::idle_streams::IdleStreams;
use super::release::ReleaseThread;
use super::sys::{
    Driver, HipFailure, HipLibrary, call, get, hipDevice_t, hipDeviceAttribute_t, hipStreamCaptureModeRelaxed,
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
    pub(super) idle_streams: IdleStreams,
    /// For calls that wait for the device.
    pub(super) releases: ReleaseThread,
}

/// While this lives, the device is current on this thread, and the thread is [`CaptureRelaxed`].
#[must_use = "the device is current only as long as this lives"]
pub(super) struct HipBoundContext<'a> {
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
        // SAFETY: the driver is initialised.
        let version = unsafe { get!(driver, hipDriverGetVersion()) }?;
        let arguments = HipArgumentLock::for_version(version);
        let addresses = HipAddressLock::for_devices(count(driver)?);
        let health = DeviceHealth::new(format!("hip:{index}"));
        let (idle_streams, releases) = (IdleStreams::default(), ReleaseThread::start(driver, device)?);
        Ok(Self { driver, device, version, arguments, addresses, health, idle_streams, releases })
    }

    pub(super) fn attribute(&self, attribute: hipDeviceAttribute_t) -> Result<usize, HipFailure> {
        // SAFETY: the driver gave the device.
        let value: c_int = unsafe { get!(self.driver, hipDeviceGetAttribute(attribute, self.device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }
}

impl DriverContext for HipContext {
    type Driver = Driver;
    type Bound<'a> = HipBoundContext<'a>;

    fn driver(&self) -> &'static Driver {
        self.driver
    }

    fn health(&self) -> &DeviceHealth {
        &self.health
    }

    /// Makes the device current on this thread, as long as what is returned lives.
    fn bind(&self) -> Result<HipBoundContext<'_>, HipFailure> {
        let relaxed = CaptureRelaxed::enter(self.driver)?;
        // SAFETY: the driver is initialised.
        let current: c_int = unsafe { get!(self.driver, hipGetDevice()) }?;
        let before = (current != self.device).then_some(current);
        if before.is_some() {
            self.make_current()?;
        }
        Ok(HipBoundContext { driver: self.driver, before, _relaxed: relaxed })
    }

    /// Makes the device current in the place of the one that is current now.
    fn make_current(&self) -> Result<(), HipFailure> {
        // SAFETY: the driver gave the device.
        unsafe { call!(self.driver, hipSetDevice(self.device)) }
    }
}

impl Drop for HipContext {
    fn drop(&mut self) {
        self.idle_streams.destroy(&self.releases);
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
