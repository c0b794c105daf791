//! The common part of drivers with streams and events, as CUDA's and HIP's: everything but the calls.
//!
//! A backend implements the traits for its context and its device. Each file uses only files before it in
//! this list.
//!
//! | file | what it has |
//! |---|---|
//! | `context` | a device's context, made current for each call; calls of a driver that did not succeed |
//! | `stream` | streams and events of the driver, streams lent to closures, times on the host's clock |
//! | `signal` | one enqueue, and the contract's event; the backend's device as queues and events need it |
//! | `memory` | memory |
//! | `queue` | the contract's queue: commands, batches, stream tasks; events and streams of other libraries |
//! | `device` | the contract's device, and launches of its kernels |

mod context;
mod device;
mod memory;
mod queue;
mod signal;
mod stream;

pub use context::{CallFailure, CaptureModes, CaptureRelaxed, ContextFailure, DriverCodes, DriverContext};
pub use device::{GpuBackend, GpuDevice, PeerAccess, prepare_launch};
pub use memory::{
    MemoryDevice, PinnedMemories, PinnedMemory, StreamAllocation, StreamMemory, retry_with_room,
};
pub use queue::{LaunchDevice, StreamQueue};
pub use signal::{CountedEnd, Kept, Started, StoppableLoops, StreamDevice};
pub use stream::{
    CaptureContext, DeviceClock, DriverStream, ImportStreams, RawEvent, StreamContext, capture,
};
