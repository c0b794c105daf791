//! Executables, submissions, host tasks and the reactor: the only user of tokio.
//!
//! Each folder imports only from those above it in this list, which `tests/layering.rs` checks:
//!
//! | folder | holds |
//! |---|---|
//! | `completion` | noticing that work has ended: the reactor, estimates, the latch that tasks wait for |
//! | `resource` | devices, memory, kernels |
//! | `execution` | executables, their runs, the order between them, host tasks, submissions |
//! | `builder` | the graph as users write it |
//! | `finalize` | from a graph and its plan to an executable |
//! | `queue` | queues, and recording their commands |
//! | `update` | changes of executables |
//!
//! The way of a submission:
//!
//! 1. [`Graph`] collects commands over [`Buffer`]s. `finalize` plans it and records one
//!    command-buffer per device partition, which makes an [`ExecutableGraph`].
//! 2. `execution::submit` orders a new run behind what it conflicts with (`execution::conflicts`) and
//!    starts it: partitions that need no help from the host are enqueued at once; the others are
//!    started by the host scheduler of the run when their predecessors have ended.
//! 3. Devices report completion to the run, by notification or through the reactor. The run
//!    starts what waited for a partition and, when its last partition has ended, wakes the tasks that
//!    wait for the [`Submission`].
//!
//! The run owns what the device may touch until its partitions have ended; the future owns nothing.

mod builder;
mod completion;
mod execution;
mod finalize;
mod queue;
mod resource;
mod update;

pub use builder::command_group::{CommandGroup, CommandGroupBuilder};
pub use builder::node::NodeBuilder;
pub use builder::parameter::{AnyParam, DynamicParam, ParamValue};
pub use builder::{Graph, NativeAccess, NativeAccesses};
pub(crate) use completion::tasks::{on_thread, take_turn};
pub use completion::tuning::WakePolicy;
pub(crate) use execution::deadline;
pub use execution::executable_graph::ExecutableGraph;
pub use execution::explain::{Explanation, LearnedDuration, PartitionExplanation, PartitionWait, WaitMode};
pub use execution::host_guard::{
    HostAccess, HostAccesses, HostMut, HostRef, ReadAccess, RunDataAccess, TaskClosure, TaskOutput,
    WriteAccess, read, run_data, write,
};
pub use execution::profile::{DeviceClock, NodeTimes, PartitionTimes, Profile, ProfileTimeline};
pub use execution::progress::{PartitionProgress, PartitionState, SubmissionProgress};
pub(crate) use execution::run::Predecessor;
pub use execution::run_data::RunData;
pub use execution::submission::{Event, Submission};
pub use execution::submit::SubmitBuilder;
pub use execution::timeline;
pub use finalize::options::FinalizeOptions;
pub(crate) use finalize::options::with_default_name;
pub use queue::{CommandBuilder, Loan, Queue, Recording};
pub use resource::buffer::Buffer;
pub use resource::device::Device;
pub use resource::health::Health;
pub(crate) use resource::health::HealthListener;
pub use resource::host_buffer::HostBuffer;
pub use resource::host_pool::HostPoolStats;
pub use resource::kernel::argument::Local;
pub use resource::kernel_explanation::KernelExplanation;
pub use resource::memory_arg::{CopySource, MemoryArg};
pub use resource::profiling::DeviceProfiling;
pub use resource::raw_memory::NativeEvent;
pub use resource::rect::{Layout, RectCopy};
pub use resource::registered::HostSource;
pub use resource::scratch::GraphMemory;
pub use resource::scratch::ScratchArena;
pub use resource::{dlpack, kernel};
pub use update::{Applied, Update};
