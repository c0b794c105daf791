//! Memory of the application's, registered with the driver: its pages stay where they are, so that the
//! device copies from and to them itself, and kernels may use them.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use super::allocation::device_address;
use super::device_inner::HipDeviceInner;
use super::memory::HipMemory;
use super::sys::{HipFailure, call, hipHostRegisterMapped, hipHostRegisterPortable};
use crate::hal::{Memory, PlainMemory, UserMemory};
use crate::types::{Error, ErrorKind, Result};

/// Registers memory. What the driver refuses, as pages that another library has registered and pages that are
/// mapped for reading only, stays as it is: the driver stages its copies, and kernels cannot use it. The
/// caller has bound the context.
pub(super) fn register(device: &Arc<HipDeviceInner>, memory: UserMemory) -> Result<Arc<dyn Memory>> {
    let plain = |memory| Arc::new(PlainMemory::new(device.info.id, memory, false));
    match register_pages(device, &memory) {
        Ok(true) => Ok(Arc::new(HipMemory::registered(device, memory))),
        Ok(false) => Ok(plain(memory)),
        Err(failure) => {
            let error = Error::from(failure);
            if error.kind() == ErrorKind::DeviceLost {
                return Err(error);
            }
            let why = "memory is not registered: the driver stages its copies";
            tracing::warn!(target: "wakegraph", %error, "{why}");
            Ok(plain(memory))
        }
    }
}

/// Registers the pages of memory, if the device then sees it at the same address as the host: says whether it
/// does.
fn register_pages(device: &HipDeviceInner, memory: &UserMemory) -> Result<bool, HipFailure> {
    let driver = device.context.driver;
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    let flags = hipHostRegisterPortable | hipHostRegisterMapped;
    // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
    unsafe { call!(driver, hipHostRegister(start, len, flags)) }?;
    if device_address(driver, start).is_ok_and(|address| address == start) {
        return Ok(true);
    }
    // SAFETY: registered above.
    unsafe { call!(driver, hipHostUnregister(start)) }?;
    Ok(false)
}
