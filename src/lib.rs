// The members with the packages that its examples use test them.
#![cfg_attr(not(doctest), doc = include_str!("../README.md"))]
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[cfg(doctest)]
mod guide;
mod rooms;
mod runtime;
mod sync;
mod util;

// Names that every program uses. All others are in the modules below, by what one does there.
#[doc(inline)]
pub use graph::NodeId;
pub use runtime::{
    Buffer, Device, Event, ExecutableGraph, FinalizeOptions, Graph, Health, HostBuffer, HostMut, HostRef,
    Local, NodeBuilder, Queue, Submission, SubmitBuilder, WakePolicy, read, write,
};
pub use wakegraph_hal::{BoxError, Error, ErrorKind, Fault, Range, Result};

// The modules.
pub mod backend;
pub mod graph;
pub mod plan;
pub use rooms::{
    capabilities, dlpack, host_task, interop, kernel, memory, profile, recording, timeline, update,
};
pub mod service;
pub use wakegraph_hal as hal;
#[cfg(any(test, feature = "test-util"))]
pub use wakegraph_hal::fake as testing;
