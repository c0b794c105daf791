//! Resources that graphs work on: devices, their memory, and kernels.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod device;
pub mod dlpack;
pub(crate) mod health;
pub(crate) mod host_buffer;
pub(crate) mod host_pool;
pub mod kernel;
pub(crate) mod kernel_explanation;
pub(crate) mod memory_arg;
pub(crate) mod preparation;
pub(crate) mod profiling;
pub(crate) mod raw_memory;
pub(crate) mod rect;
pub(crate) mod registered;
pub(crate) mod scratch;
