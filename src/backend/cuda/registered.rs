//! Memory of the application's, registered with the driver: its pages stay where they are, so that the
//! device copies from and to them itself, and kernels may use them.
#![expect(unsafe_code, reason = "calls the driver")]

use std::sync::Arc;

use super::device_inner::CudaDeviceInner;
use super::memory::CudaMemory;
use super::sys::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, call,
};
use crate::hal::{Memory, UserMemory};
use crate::types::Result;

/// Registers memory, if the hardware and the driver can. Some hardware cannot register files that are mapped
/// for reading only. The caller has bound the context.
pub(super) fn register(device: &Arc<CudaDeviceInner>, memory: UserMemory) -> Result<Arc<dyn Memory>> {
    let context = &device.context;
    let can_register = context.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? != 0;
    let mut flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if can_register
        && memory.is_read_only()
        && context.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)? != 0
    {
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    }
    CudaMemory::of_user(device, memory, |memory| {
        if !can_register {
            return Ok(false);
        }
        let (start, len) = (memory.start().as_ptr().cast(), memory.len());
        // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
        unsafe { call!(context.driver, cuMemHostRegister(start, len, flags)) }.map(|()| true)
    })
}
