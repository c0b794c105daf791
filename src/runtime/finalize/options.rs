//! Choices that a caller makes when a graph is finalized.

use wakegraph_hal::{Priority, setters};

use crate::plan::{ExecutionOrder, PartitionPolicy};

/// Options of [`Graph::finalize_with`](crate::Graph::finalize_with): how a graph is split and ordered, and
/// what its executable can do.
///
/// ```
/// use wakegraph::{Device, FinalizeOptions, Graph};
///
/// # fn main() -> wakegraph::Result<()> {
/// let device = Device::open("host")?;
/// let mut graph = Graph::new(&device);
/// graph.fill(&device.buffer::<u32>(4)?, 1);
/// let exec = graph.finalize_with(FinalizeOptions::new().updatable(true).profiling(true))?;
/// # drop(exec);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FinalizeOptions {
    /// Policy for grouping nodes into partitions.
    pub partition: PartitionPolicy,
    /// Order in which a partition's commands are appended.
    pub order: ExecutionOrder,
    /// Run every partition's commands one after the other, without sync-points: a hint for graphs
    /// with little to run side by side.
    pub in_order: bool,
    /// Record times of nodes and partitions. Off, it costs nothing.
    pub profiling: bool,
    /// Let the executable be [updated](crate::ExecutableGraph::update). Off, it costs nothing.
    pub updatable: bool,
    /// Urgency of the work among what else runs on its devices. On a device that
    /// [has priorities](crate::capabilities::Capabilities::queue_priorities), work-groups that wait for
    /// room on it start in this order; what runs is not interrupted. On CUDA and HIP, low counts as
    /// normal. Other devices, such as the host, ignore it.
    pub priority: Priority,
}

impl FinalizeOptions {
    /// The defaults: signatures, depth-first, sync-points, no profiling, no updates, normal priority.
    pub fn new() -> Self {
        Self::default()
    }
}

setters! {
    FinalizeOptions {
        partition: PartitionPolicy, order: ExecutionOrder, in_order: bool,
        profiling: bool, updatable: bool, priority: Priority,
    }
}
