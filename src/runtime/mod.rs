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

mod allocation;
mod batching;
mod buffer;
mod caught;
mod clock;
mod command;
mod control;
mod device;
mod drive;
mod event;
mod executable;
mod finalize;
mod gate;
mod graph;
mod host_buffer;
mod host_task;
pub mod kernel;
mod latch;
mod node;
mod ordering;
mod orphan;
mod outline;
mod prediction;
mod profile;
mod reactor;
mod rect;
mod run;
mod scratch;
mod spawn;
mod spin_budget;
mod submission;
mod submit;
mod update;
mod uses;
mod versioned;
mod wake_policy;

pub use allocation::MemoryArg;
pub use buffer::Buffer;
pub use device::Device;
pub use event::Event;
pub use executable::{ExecutableGraph, FinalizeOptions};
pub use graph::{Graph, NativeAccess};
pub use host_buffer::{HostBuffer, HostMut, HostRef};
pub use host_task::{HostAccess, HostAccesses, ReadAccess, TaskOutput, WriteAccess, read, write};
pub use node::NodeBuilder;
pub use profile::{NodeTimes, PartitionTimes, Profile, Timeline};
pub use rect::{Layout, RectCopy};
pub use scratch::GraphMemory;
pub use submission::{CancelOnDrop, Submission};
pub use submit::SubmitBuilder;
pub use update::{Applied, Update};
pub use wake_policy::WakePolicy;
