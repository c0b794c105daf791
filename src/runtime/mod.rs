//! Layer 3: executables, submissions, host tasks, the reactor. The only user of tokio.
//!
//! The way of a submission through this module:
//!
//! 1. [`Graph`] (`graph/`) collects commands over [`Buffer`]s; `finalize.rs` plans it and records
//!    one command-buffer a device partition: an [`ExecutableGraph`].
//! 2. `submit/` orders a new run behind what it conflicts with (`ordering/`) and starts it:
//!    partitions that need no help from the host are enqueued at once, each other one becomes a
//!    task (`drive.rs`).
//! 3. Devices report completion to the [`Run`](run::Run), by notification or through the reactor;
//!    the run wakes partition tasks and, when all is final, the [`Submission`].
//!
//! The run owns what the device may touch until the device is done; the future owns nothing.

mod builder;
mod completion;
mod execution;
mod finalize;
mod resource;
mod update;

pub use builder::node::NodeBuilder;
pub use builder::{Graph, NativeAccess};
pub use completion::wake_policy::WakePolicy;
pub use execution::event::Event;
pub use execution::executable::{ExecutableGraph, FinalizeOptions};
pub use execution::host_task::{HostAccess, HostAccesses, ReadAccess, TaskOutput, WriteAccess, read, write};
pub use execution::profile::{NodeTimes, PartitionTimes, Profile, Timeline};
pub use execution::submission::{CancelOnDrop, Submission};
pub use execution::submit::SubmitBuilder;
pub use resource::allocation::MemoryArg;
pub use resource::buffer::Buffer;
pub use resource::device::Device;
pub use resource::host_buffer::{HostBuffer, HostMut, HostRef};
pub use resource::kernel;
pub use resource::rect::{Layout, RectCopy};
pub use resource::scratch::GraphMemory;
pub use update::{Applied, Update};
