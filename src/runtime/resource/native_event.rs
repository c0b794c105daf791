//! Events of other libraries that submissions wait for.
#![expect(unsafe_code, reason = "takes handles that the caller vouches for")]

use std::ffi::c_void;
use std::sync::Arc;

use wakegraph_hal as hal;
use wakegraph_hal::Result;

use crate::runtime::resource::device::Device;

/// An event of another library that uses the same driver: what
/// [`SubmitBuilder::after_native`](crate::SubmitBuilder::after_native) waits for.
#[derive(Clone, Debug)]
pub struct NativeEvent {
    event: Arc<dyn hal::Event>,
}

impl Device {
    /// An event that another library has made in this device's driver, under the driver's handle: on OpenCL a
    /// `cl_event` of the device's context, on CUDA a `CUevent` of any context. What counts is what the event
    /// has been recorded for by now: it may be recorded again or released afterwards.
    ///
    /// # Errors
    /// [`FeatureNotSupported`](crate::ErrorKind::FeatureNotSupported) on other backends;
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for a null handle, and as far as the
    /// driver tells for one that is no event, or not one that the device can wait for. A `CUevent`
    /// that has been recorded in a capture is an error of the driver's.
    ///
    /// # Safety
    /// The handle is null or that of a live event.
    pub unsafe fn import_event(&self, handle: *mut c_void) -> Result<NativeEvent> {
        // SAFETY: passed on to the caller.
        Ok(NativeEvent { event: unsafe { self.hal().import_event(handle) }? })
    }
}

impl NativeEvent {
    pub(crate) fn hal(&self) -> &Arc<dyn hal::Event> {
        &self.event
    }
}
