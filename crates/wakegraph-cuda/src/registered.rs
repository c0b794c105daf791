//! Memory of the application's, registered with the driver: its pages stay where they are, so that the
//! device copies from and to them itself, and kernels may use them.
#![expect(unsafe_code, reason = "calls the driver")]

use wakegraph_hal::UserMemory;

use super::context::CudaContext;
use super::sys::{
    CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM,
    CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, CU_MEMHOSTREGISTER_DEVICEMAP,
    CU_MEMHOSTREGISTER_PORTABLE, CU_MEMHOSTREGISTER_READ_ONLY, CudaFailure, call,
};

/// Registers memory, if the hardware can: says whether it does. Some hardware cannot register files that are
/// mapped for reading only. The caller has bound the context.
pub(super) fn register(context: &CudaContext, memory: &UserMemory) -> Result<bool, CudaFailure> {
    if context.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? == 0 {
        return Ok(false);
    }
    let mut flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if memory.is_read_only() && context.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)? != 0
    {
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    }
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
    unsafe { call!(context.driver, cuMemHostRegister(start, len, flags)) }.map(|()| true)
}
