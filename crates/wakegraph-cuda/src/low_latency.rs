//! The low-latency form of a command-buffer: a kernel behind all nodes of the graph counts the run
//! in a completion counter.
//!
//! The host sees the count a microsecond before an event would be complete, without a driver call,
//! for a microsecond of the device's time. The creator asks for it
//! ([`CommandBufferDesc::low_latency`](wakegraph_hal::CommandBufferDesc::low_latency)). This serves only
//! command-buffers that use the device's memory alone:
//! - There is no fence between the commands and the counter. On the device, the driver's own order
//!   makes results visible to later work.
//! - A copy engine brings what comes from other memory. A graph that counts its runs behind such a copy
//!   takes 10 us longer than one that an event tells of (H100).
//!
//! Nothing reads the counter for a launch in a batch, so the kernel is disabled there.

use std::sync::Arc;

use wakegraph_hal::{Command, KernelArg, MemoryView, Result};

use super::builtin_kernels::BuiltinKernel;
use super::completion_counter::CompletionCounter;
use super::device_inner::CudaDeviceInner;
use super::graph::{CudaGraph, GraphNode, NewNode};
use super::memory::is_of;

/// With more commands, the last microsecond does not matter.
pub(super) const MOST_COMMANDS: usize = 128;

/// The kernel that counts the runs of a graph, and its counter.
#[derive(Debug)]
pub(super) struct CountingKernel {
    pub(super) node: GraphNode,
    pub(super) counter: Arc<CompletionCounter>,
    /// Whether launches run the kernel.
    pub(super) is_enabled: bool,
    /// Consecutive launches that might have counted, while the kernel was disabled.
    missed: u32,
}

/// After a batch, so many launches on their own have to follow before they are counted again: the driver
/// uploads a graph again after a node has been switched.
const LAUNCHES_AFTER_BATCH: u32 = 16;

impl CountingKernel {
    /// Adds the kernel behind these nodes. The caller has bound the context.
    pub(super) fn add(device: &CudaDeviceInner, graph: &mut CudaGraph, after: &[GraphNode]) -> Result<Self> {
        let counter = Arc::new(device.counters.take()?);
        let launch = BuiltinKernel::Count.launch(device, &counter.addresses(), 1)?;
        let node = graph.body().add(NewNode::Kernel(&launch), after)?;
        Ok(Self { node, counter, is_enabled: true, missed: 0 })
    }

    /// Whether the kernel should be enabled or disabled, before a launch that counts or does not.
    pub(super) fn is_due(&mut self, counts: bool) -> bool {
        self.missed = if counts && !self.is_enabled { self.missed + 1 } else { 0 };
        self.is_enabled != counts && (!counts || self.missed > LAUNCHES_AFTER_BATCH)
    }
}

/// Whether the command uses memory of this device only.
pub(super) fn stays_on_device(device: &CudaDeviceInner, command: &Command) -> bool {
    let is_here = |view: &MemoryView| is_of(device, view);
    match command {
        Command::Kernel(launch) => launch.args.iter().all(|arg| match arg {
            KernelArg::Value(_) | KernelArg::Local(_) => true,
            KernelArg::Memory(view) => is_here(view),
            // It may point anywhere.
            KernelArg::Usm(_) => false,
        }),
        Command::BufferCopy { src, dst } | Command::BufferCopyRect { src, dst, .. } => {
            is_here(src) && is_here(dst)
        }
        Command::BufferFill { dst, .. } => is_here(dst),
        Command::Empty => true,
        _ => false,
    }
}
