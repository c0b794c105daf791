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
use crate::hal::{Memory, PlainMemory, UserMemory};
use crate::types::{Error, ErrorKind, Result};

/// Registers memory. What the driver refuses, as pages that another library has registered, and on some
/// hardware files that are mapped for reading only, stays as it is: the driver stages its copies, and kernels
/// cannot use it. The caller has bound the context.
pub(super) fn register(device: &Arc<CudaDeviceInner>, memory: UserMemory) -> Result<Arc<dyn Memory>> {
    let context = &device.context;
    let plain = |memory| Arc::new(PlainMemory::new(device.info.id, memory, false));
    if context.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM)? == 0 {
        return Ok(plain(memory));
    }
    let mut flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    if memory.is_read_only() && context.attribute(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED)? != 0
    {
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    }
    let (start, len) = (memory.start().as_ptr().cast(), memory.len());
    // SAFETY: the memory is valid until its owner is dropped, which is after it is unregistered.
    match unsafe { call!(context.driver, cuMemHostRegister(start, len, flags)) } {
        Ok(()) => Ok(Arc::new(CudaMemory::registered(device, memory))),
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
