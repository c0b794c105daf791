//! What drivers with streams and events have in common, as CUDA's and HIP's: everything but the calls.
//!
//! A backend implements the traits for its context and its device. Each file uses only files before it in
//! this list.
//!
//! | file | what it has |
//! |---|---|
//! | `call_failure` | calls of a driver that did not succeed |
//! | `capture_mode` | keeps this thread's calls and other threads' captures apart |
//! | `context` | a device's context, made current for each call |
//! | `stream` | streams and events of the driver |
//! | `clock` | times of events on the host's clock |
//! | `device` | what the backend's device gives its queues and events |
//! | `signal`, `event`, `queue` | one enqueue, and the contract's events and queues |
//! | `capture`, `stream_task` | streams that are lent to closures |
//! | `enqueue` | how queues launch commands |
//! | `foreign` | events and streams of other libraries |
//! | `memory`, `peer_access` | memory, and which devices may use it |
//! | `gpu_device` | the contract's device |

mod call_failure;
mod capture;
mod capture_mode;
mod clock;
mod context;
mod device;
mod enqueue;
mod event;
mod foreign;
mod gpu_device;
mod memory;
mod peer_access;
mod queue;
mod signal;
mod stream;
mod stream_task;

pub use call_failure::{CallFailure, DriverCodes};
pub use capture::{CaptureContext, capture};
pub use capture_mode::{CaptureModes, CaptureRelaxed};
pub use clock::DeviceClock;
pub use context::{ContextFailure, DriverContext};
pub use device::{CountedEnd, Started, StoppableLoops, StreamDevice};
pub use enqueue::LaunchDevice;
pub use gpu_device::{GpuBackend, GpuDevice};
pub use memory::{
    MemoryDevice, PinnedMemories, PinnedMemory, StreamAllocation, StreamMemory, retry_with_room,
};
pub use peer_access::PeerAccess;
pub use queue::StreamQueue;
pub use signal::Kept;
pub use stream::{DriverStream, ImportStreams, RawEvent, StreamContext};
