//! A device's context: bound per call, and remembered as lost once a fault has ended it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;

use super::sys::{
    CUcontext, CUdevice, CUdevice_attribute, CUresult, CUstreamCaptureMode, Driver, Failure, call,
};
use crate::types::{Error, ErrorKind, Result};

/// The primary context of a device, which everything of the device keeps alive.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) driver: &'static Driver,
    pub(super) device: CUdevice,
    raw: CUcontext,
    selector: String,
    /// Why the device does not work any more.
    lost: OnceLock<Error>,
}

// SAFETY: a context may be used from any thread that has bound it, by several at a time.
unsafe impl Send for Context {}
// SAFETY: as for `Send`.
unsafe impl Sync for Context {}

/// The context is current on this thread until this is dropped, and the thread is [`Relaxed`].
#[must_use = "the context is current only as long as this lives"]
pub(super) struct Bound<'a> {
    driver: &'a Driver,
    pushed: bool,
    _relaxed: Relaxed<'a>,
}

/// Until this is dropped, calls of this thread and stream captures of other threads do not disturb
/// each other.
///
/// While any thread captures a stream in the default mode, as PyTorch does, the driver otherwise
/// refuses queries, allocations and instantiations on all threads, also for streams that have
/// nothing to do with the capture, and invalidates that capture.
#[must_use = "the thread is relaxed only as long as this lives"]
pub(super) struct Relaxed<'a> {
    driver: &'a Driver,
    /// The thread's own mode.
    before: c_uint,
    /// The mode is the thread's: this stays on it.
    thread: PhantomData<*const ()>,
}

const RELAXED: c_uint = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as c_uint;

impl<'a> Relaxed<'a> {
    pub(super) fn enter(driver: &'a Driver) -> Result<Self, Failure> {
        Ok(Self { driver, before: exchange_mode(driver, RELAXED)?, thread: PhantomData })
    }
}

impl Drop for Relaxed<'_> {
    fn drop(&mut self) {
        if self.before != RELAXED
            && let Err(failure) = exchange_mode(self.driver, self.before)
        {
            let error = Error::from(failure);
            tracing::warn!(target: "wakegraph", %error, "a thread's capture mode could not be put back");
        }
    }
}

/// Sets how this thread's calls and other threads' captures affect each other; gives the mode until now.
fn exchange_mode(driver: &Driver, mut mode: c_uint) -> Result<c_uint, Failure> {
    // SAFETY: the place is a number's, and holds a mode.
    unsafe { call!(driver, cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
    Ok(mode)
}

impl Context {
    pub(super) fn retain(driver: &'static Driver, index: usize) -> Result<Self> {
        let device = device(driver, index)?;
        let _relaxed = Relaxed::enter(driver)?;
        let mut raw = ptr::null_mut();
        // SAFETY: the device is one that the driver gave; the place is a pointer's.
        unsafe { call!(driver, cuDevicePrimaryCtxRetain(&raw mut raw, device)) }?;
        Ok(Self { driver, device, raw, selector: format!("cuda:{index}"), lost: OnceLock::new() })
    }

    pub(super) fn raw(&self) -> CUcontext {
        self.raw
    }

    pub(super) fn selector(&self) -> &str {
        &self.selector
    }

    /// Makes the context current on this thread. Another library's that is current is so again
    /// afterwards; a thread that has none keeps ours, so that the next call finds it there.
    pub(super) fn bind(&self) -> Result<Bound<'_>, Failure> {
        let driver = self.driver;
        let _relaxed = Relaxed::enter(driver)?;
        let mut current = ptr::null_mut();
        // SAFETY: the place is a pointer's.
        unsafe { call!(driver, cuCtxGetCurrent(&raw mut current)) }?;
        if current == self.raw {
            return Ok(Bound { driver, pushed: false, _relaxed });
        }
        if current.is_null() {
            // SAFETY: the context is alive as long as this object.
            unsafe { call!(driver, cuCtxSetCurrent(self.raw)) }?;
            return Ok(Bound { driver, pushed: false, _relaxed });
        }
        // SAFETY: the context is alive as long as this object.
        unsafe { call!(driver, cuCtxPushCurrent(self.raw)) }?;
        Ok(Bound { driver, pushed: true, _relaxed })
    }

    /// As [`bind`](Self::bind), in the place of what is current now.
    pub(super) fn make_current(&self) -> Result<(), Failure> {
        // SAFETY: the context is alive as long as this object.
        unsafe { call!(self.driver, cuCtxSetCurrent(self.raw)) }
    }

    pub(super) fn attribute(&self, attribute: CUdevice_attribute) -> Result<usize, Failure> {
        let mut value: c_int = 0;
        // SAFETY: the device is one that the driver gave; the place is a number's.
        unsafe { call!(self.driver, cuDeviceGetAttribute(&raw mut value, attribute, self.device)) }?;
        Ok(usize::try_from(value).unwrap_or(0))
    }

    /// Names the device in an error, and keeps the first that says it is gone.
    pub(super) fn error(&self, error: impl Into<Error>) -> Error {
        let error = error.into().on_device(&self.selector);
        if error.kind() == ErrorKind::DeviceLost {
            if self.lost.set(error.clone()).is_ok() {
                tracing::error!(target: "wakegraph", %error, "a device is lost");
            }
            // Everything that fails from here on fails for the first reason.
            return self.lost.get().cloned().unwrap_or(error);
        }
        error
    }

    /// Why the device is lost, if it is.
    pub(super) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    pub(super) fn status(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Reports what went wrong in a `drop`, where nobody can be given the error. On a lost device
    /// all calls fail.
    pub(super) fn dropped(&self, outcome: Result<(), Failure>) {
        if let Err(failure) = outcome {
            // The driver is unloaded before the last of a process's threads end.
            if self.lost.get().is_none() && failure.code != CUresult::CUDA_ERROR_DEINITIALIZED as u32 {
                let error = self.error(failure);
                tracing::warn!(target: "wakegraph", %error, "a driver object could not be destroyed");
            }
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let release = || {
            let _relaxed = Relaxed::enter(self.driver)?;
            // SAFETY: retained once by `retain`, released once.
            unsafe { call!(self.driver, cuDevicePrimaryCtxRelease(self.device)) }
        };
        self.dropped(release());
    }
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = ptr::null_mut();
            // SAFETY: what is popped is what `bind` pushed on this thread.
            let outcome = unsafe { call!(self.driver, cuCtxPopCurrent(&raw mut popped)) };
            if let Err(failure) = outcome {
                let error = Error::from(failure);
                tracing::warn!(target: "wakegraph", %error, "a context could not be unbound");
            }
        }
    }
}

/// How many devices there are.
pub(super) fn count(driver: &Driver) -> Result<usize> {
    let mut count: c_int = 0;
    // SAFETY: the place is a number's.
    unsafe { call!(driver, cuDeviceGetCount(&raw mut count)) }?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The name of a device, which need not be open.
pub(super) fn name(driver: &Driver, device: CUdevice) -> Result<String, Failure> {
    let mut name: [c_char; 256] = [0; 256];
    let (place, room) = (name.as_mut_ptr(), name.len() as c_int - 1);
    // SAFETY: there is room for so many bytes, and a NUL behind them.
    unsafe { call!(driver, cuDeviceGetName(place, room, device)) }?;
    // SAFETY: ends in NUL in any case, as the last byte was left out.
    Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

pub(super) fn device(driver: &Driver, index: usize) -> Result<CUdevice> {
    let count = count(driver)?;
    if index >= count {
        let why = format!("there is no CUDA device {index}: there are {count}");
        return Err(Error::new(ErrorKind::Unavailable, why)
            .help("count from 0 in the order of `nvidia-smi -L`, among what CUDA_VISIBLE_DEVICES names"));
    }
    let mut device = 0;
    // SAFETY: the index is below the count, which came as such a number; the place is a number's.
    unsafe { call!(driver, cuDeviceGet(&raw mut device, index as c_int)) }?;
    Ok(device)
}
