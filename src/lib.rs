// The members with the packages that its examples use test them.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod backend;
pub mod graph;
#[cfg(doctest)]
mod guide;
pub mod plan;
mod runtime;
pub mod service;
mod sync;
mod util;

pub use graph::{GraphId, GraphProperties, NodeId, NodePath};
pub use plan::{ExecutionOrder, Instruction, Partition, PartitionKind, PartitionPolicy, Plan, Separation};
pub use runtime::timeline::{self, Timeline};
pub use runtime::{
    AnyParam, Applied, Buffer, CancelOnDrop, CommandBuilder, CommandGroup, CommandGroupBuilder, CopySource,
    Device, DeviceClock, DeviceProfiling, DynamicParam, Event, ExecutableGraph, Explanation, FinalizeOptions,
    Graph, GraphMemory, Health, HostAccess, HostAccesses, HostBuffer, HostMut, HostPoolStats, HostRef,
    HostSource, Layout, LearnedDuration, Loan, MemoryArg, NativeAccess, NativeEvent, NodeBuilder, NodeTimes,
    ParamValue, PartitionExplanation, PartitionProgress, PartitionState, PartitionTimes, PartitionWait,
    Profile, ProfileTimeline, Queue, ReadAccess, Recording, RectCopy, ScratchArena, Submission,
    SubmissionProgress, SubmitBuilder, TaskOutput, Update, WaitMode, WakePolicy, WriteAccess, dlpack, kernel,
    read, write,
};
pub use wakegraph_hal as hal;
#[cfg(any(test, feature = "test-util"))]
pub use wakegraph_hal::fake as testing;
pub use wakegraph_hal::{
    Access, AccessMode, Advice, BoxError, Capabilities, CommandKind, CommandKinds, DeviceId, DeviceInfo,
    Error, ErrorKind, Fault, GraphSupport, NativeMemory, NativeStream, Pitch, Priority, Progress, Range,
    RangeBound, Rect, ResourceId, Result, UpdateCapabilities, UsmPointer,
};
