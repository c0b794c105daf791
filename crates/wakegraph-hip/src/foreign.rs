//! Addresses of other libraries that use the same driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use wakegraph_hal::support::streams::DriverContext as _;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::device_inner::HipDeviceInner;
use super::sys::{
    HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL, HIP_POINTER_ATTRIBUTE_IS_MANAGED,
    HIP_POINTER_ATTRIBUTE_MEMORY_TYPE, HIP_POINTER_ATTRIBUTE_RANGE_SIZE,
    HIP_POINTER_ATTRIBUTE_RANGE_START_ADDR, HipFailure, call, hipErrorInvalidValue, hipPointer_attribute,
};

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
    if info.is_managed == 0 && !info.is_of_host(device.context.version) && info.device != own {
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
