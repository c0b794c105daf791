#![doc = include_str!("../README.md")]
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(
    not(feature = "unstable-hal"),
    allow(rustdoc::private_intra_doc_links, reason = "links into `hal` lead somewhere with all features")
)]

pub mod backend;
pub mod graph;
#[cfg(doctest)]
mod guide;
#[cfg(feature = "unstable-hal")]
pub mod hal;
#[cfg(not(feature = "unstable-hal"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "public with the feature `unstable-hal`")]
mod hal;
pub mod plan;
mod runtime;
pub mod service;
mod sync;
#[cfg(any(test, feature = "test-util"))]
pub mod testing;
mod types;
mod util;

pub use graph::{GraphId, GraphProperties, NodeId, NodePath};
pub use hal::{
    Advice, Capabilities, DeviceInfo, GraphSupport, NativeMemory, NativeStream, Progress, UpdateCapabilities,
    UsmPointer,
};
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
pub use types::{
    Access, AccessMode, BoxError, CommandKind, CommandKinds, DeviceId, Error, ErrorKind, Fault, Pitch,
    Priority, Range, RangeBound, Rect, ResourceId, Result,
};
