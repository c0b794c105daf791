//! Memory of the application's, registered with the driver: its pages stay where they are, so that the
//! device copies from and to them itself, and kernels may use them.
#![expect(unsafe_code, reason = "calls the driver")]

use wakegraph_hal::UserMemory;

use super::allocation::device_address;
use super::context::HipContext;
use super::sys::{HipFailure, call, hipHostRegisterMapped, hipHostRegisterPortable};

/// Registers memory, if the device then sees it at the same address as the host: says whether it does. The
/// caller has bound the context.
pub(super) fn register(context: &HipContext, memory: &UserMemory) -> Result<bool, HipFailure> {
    let driver = context.driver;
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    let _addresses = context.addresses.hold_to_allocate();
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
