//! Addresses of other libraries that use the same driver.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::{c_int, c_uint, c_void};

use wakegraph_hal::support::streams::DriverContext as _;
use wakegraph_hal::{Error, ErrorKind, Result};

use super::device_inner::CudaDeviceInner;
use super::sys::{
    CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CUdeviceptr, CUmemorytype, CudaFailure, call,
};

/// What the driver knows about an address.
#[derive(Default, Debug)]
struct AddressInfo {
    /// 0 for memory that the driver does not know.
    kind: CUmemorytype,
    context: usize,
    pool: usize,
    is_managed: c_uint,
    /// The device's number.
    device: c_int,
    /// Of the allocation.
    start: CUdeviceptr,
    /// 0 if the driver does not say.
    len: usize,
}

impl AddressInfo {
    fn query(device: &CudaDeviceInner, address: CUdeviceptr) -> Result<Self, CudaFailure> {
        let mut info = Self::default();
        let attributes = [
            (CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut info.kind).cast::<c_void>()),
            (CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut info.context).cast()),
            (CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (&raw mut info.pool).cast()),
            (CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut info.is_managed).cast()),
            (CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut info.device).cast()),
            (CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut info.start).cast()),
            (CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut info.len).cast()),
        ];
        let (names, places) = (attributes.map(|(name, _)| name), attributes.map(|(_, place)| place));
        let (count, names, places) = (attributes.len() as c_uint, names.as_ptr(), places.as_ptr());
        // SAFETY: each place has the size of its attribute.
        unsafe { call!(device.context.driver, cuPointerGetAttributes(count, names, places, address)) }?;
        Ok(info)
    }

    fn end(&self) -> CUdeviceptr {
        self.start.saturating_add(self.len as CUdeviceptr)
    }

    /// Whether the memory is mapped in parts, so that what follows may belong to it.
    fn is_mapped(&self) -> bool {
        self.context == 0 && self.pool == 0 && self.is_managed == 0 && self.kind == CU_MEMORYTYPE_DEVICE
    }
}

/// Checks that `len` bytes at `address` lie inside memory that the driver knows and that this device can use.
pub(super) fn check_address(device: &CudaDeviceInner, address: usize, len: usize) -> Result<()> {
    let _bound = device.context.bind()?;
    let mut part = AddressInfo::query(device, address as CUdeviceptr)?;
    check_owner(device, &part, address)?;
    let end = (address as CUdeviceptr).saturating_add(len as CUdeviceptr);
    let mut known_to = part.end();
    while part.len > 0 && known_to < end {
        let is_mapped = part.is_mapped();
        part = AddressInfo::query(device, known_to)?;
        if !is_mapped || !part.is_mapped() || part.end() <= known_to {
            let there = known_to - address as CUdeviceptr;
            let why = format!("the memory at {address:#x} ends after {there} bytes, and {len} are asked for");
            return Err(Error::new(ErrorKind::InvalidSize, why));
        }
        known_to = part.end();
    }
    Ok(())
}

fn check_owner(device: &CudaDeviceInner, info: &AddressInfo, address: usize) -> Result<()> {
    let own = device.context.device;
    let (why, help) = match info.kind {
        _ if info.is_managed != 0 => return Ok(()),
        CU_MEMORYTYPE_HOST => return Ok(()),
        CU_MEMORYTYPE_DEVICE if info.device == own => return Ok(()),
        CU_MEMORYTYPE_DEVICE => (
            format!("the memory at {address:#x} is of CUDA device {}, and this is device {own}", info.device),
            "import it on its own device",
        ),
        _ => (
            format!("the driver knows no memory at {address:#x}"),
            "pass an address on the device; memory of the host has to be registered with the driver",
        ),
    };
    Err(Error::new(ErrorKind::InvalidArgument, why).help(help))
}
