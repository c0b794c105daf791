//! Objects of other libraries that use the same driver: events, streams and addresses.
//!
//! The driver counts no references, so an event's last record is taken over by an event of this backend at
//! once. The application may record or destroy its own afterwards.
#![expect(unsafe_code, reason = "calls the driver with handles that the caller vouches for")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use super::device_inner::HipDeviceInner;
use super::event::HipEvent;
use super::queue::signals;
use super::signal::{HipEventRecords, HipSignal, HipSignalEnd, HipSignalNeeds};
use super::stream::is_ready;
use super::sys::{
    HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, HIP_POINTER_ATTRIBUTE_IS_MANAGED,
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, HipFailure, call, hipErrorInvalidHandle, hipErrorInvalidValue,
    hipEvent_t, hipPointer_attribute, hipStream_t,
};
use crate::hal::Event;
use crate::types::{Error, ErrorKind, Result};

/// An event that is complete once the last record of another library's is.
///
/// # Safety
/// The handle is that of a live event.
pub(super) unsafe fn event(device: &Arc<HipDeviceInner>, handle: hipEvent_t) -> Result<HipEvent> {
    let _bound = device.context.bind()?;
    // SAFETY: the caller vouches for the event.
    let code = unsafe { (device.context.driver.hipEventQuery)(handle) };
    // An event that is recorded in a capture fails here, before a wait draws a stream of ours into it.
    is_ready("hipEventQuery", code).map_err(|failure| unknown("event", failure))?;
    let records = Arc::new(HipEventRecords::create(device, false)?);
    // SAFETY: as above.
    let following = unsafe { device.import_streams.follow(handle, &records.end) };
    let (stream, sequence) = following.map_err(|failure| unknown("event", failure))?;
    let (end, needs) = (HipSignalEnd::Recorded(sequence), HipSignalNeeds::default());
    let signal = HipSignal::new(device, &records, &stream, end, None, needs, None);
    Ok(HipEvent::signalled(device, &records, signal))
}

/// Makes what is enqueued on another library's stream from now on come after events of this backend, however
/// they end.
///
/// # Safety
/// The handle is that of a live stream, or one of the driver's own for default streams, such as null.
pub(super) unsafe fn order_after(
    device: &HipDeviceInner,
    stream: hipStream_t,
    events: &[&dyn Event],
) -> Result<()> {
    let (driver, signals) = (device.context.driver, signals(events)?);
    // Null stands for the default stream of this device.
    let _bound = device.context.bind()?;
    for signal in &signals {
        signal.order_by(false, |event| {
            // SAFETY: the event is alive; the caller vouches for the stream.
            let waits = unsafe { call!(driver, hipStreamWaitEvent(stream, event.raw(), 0)) };
            waits.map_err(|failure| unknown("stream", failure))
        })?;
    }
    Ok(())
}

/// The error of a call that was given a handle of another library.
fn unknown(what: &str, failure: HipFailure) -> Error {
    match failure.code {
        hipErrorInvalidValue | hipErrorInvalidHandle => {
            let why = format!("the handle is not that of a live {what} of this driver");
            Error::new(ErrorKind::InvalidArgument, why).caused_by(Error::from(failure))
        }
        _ => failure.into(),
    }
}

/// What the driver knows about an address.
#[derive(Default, Debug)]
struct HipAddressInfo {
    /// A number of `hipMemoryType`, which changed in version 6.
    kind: c_uint,
    is_managed: c_uint,
    /// The device's number.
    device: c_int,
    /// Of the allocation.
    start: usize,
    len: usize,
}

impl HipAddressInfo {
    fn query(device: &HipDeviceInner, address: usize) -> Result<Self, HipFailure> {
        let mut info = Self::default();
        let attributes: [(hipPointer_attribute, *mut c_void); 5] = [
            (HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut info.start).cast()),
            (HIP_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut info.len).cast()),
            (HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut info.kind).cast()),
            (HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut info.device).cast()),
            (HIP_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut info.is_managed).cast()),
        ];
        for (attribute, place) in attributes {
            let address = ptr::with_exposed_provenance_mut(address);
            // SAFETY: the place has the size of its attribute.
            unsafe { call!(device.context.driver, hipPointerGetAttribute(place, attribute, address)) }?;
        }
        Ok(info)
    }

    fn is_of_host(&self, version: c_int) -> bool {
        // `hipMemoryTypeHost`
        self.kind == if version >= 60_000_000 { 1 } else { 0 }
    }
}

/// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can use.
pub(super) fn check_address(device: &HipDeviceInner, address: usize, len: usize) -> Result<()> {
    let _bound = device.context.bind()?;
    let invalid = |why| Error::new(ErrorKind::InvalidArgument, why);
    let info = match HipAddressInfo::query(device, address) {
        Ok(info) => info,
        Err(failure) if failure.code == hipErrorInvalidValue => {
            return Err(invalid(format!("the driver knows no memory at {address:#x}")).help(
                "pass an address on the device; memory of the host has to be registered with the driver",
            ));
        }
        Err(failure) => return Err(failure.into()),
    };
    let own = device.context.device;
    if info.is_managed == 0 && !info.is_of_host(device.version) && info.device != own {
        let theirs = info.device;
        let why = format!("the memory at {address:#x} is of HIP device {theirs}, and this is device {own}");
        return Err(invalid(why).help("import it on its own device"));
    }
    let end = address.saturating_add(len);
    let known_to = info.start.saturating_add(info.len);
    if info.len > 0 && known_to < end {
        let there = known_to - address;
        let why = format!("the memory at {address:#x} ends after {there} bytes, and {len} are asked for");
        return Err(Error::new(ErrorKind::InvalidSize, why));
    }
    Ok(())
}
