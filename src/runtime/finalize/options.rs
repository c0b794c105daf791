//! Options for finalizing a graph.

use wakegraph_hal::Priority;

use crate::plan::{ExecutionOrder, PartitionPolicy};

/// Options for finalizing a graph.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct FinalizeOptions {
    /// Policy for grouping nodes into partitions.
    pub partition: PartitionPolicy,
    /// In which order a partition's commands are appended.
    pub order: ExecutionOrder,
    /// Run every partition's commands one after the other, without sync-points: a hint for graphs
    /// with little to run side by side.
    pub in_order: bool,
    /// Record times of nodes and partitions. Off, it costs nothing.
    pub profiling: bool,
    /// Let the executable be [updated](crate::ExecutableGraph::update). Off, it costs nothing.
    pub updatable: bool,
    /// How urgent the work is among what else runs on its devices. On a device that
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

    /// Sets how nodes are grouped into partitions.
    #[must_use]
    pub fn partition(self, partition: PartitionPolicy) -> Self {
        Self { partition, ..self }
    }

    /// Sets the order of a partition's commands.
    #[must_use]
    pub fn order(self, order: ExecutionOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets the in-order hint.
    #[must_use]
    pub fn in_order(self, in_order: bool) -> Self {
        Self { in_order, ..self }
    }

    /// Sets profiling.
    #[must_use]
    pub fn profiling(self, profiling: bool) -> Self {
        Self { profiling, ..self }
    }

    /// Sets whether the executable can be updated.
    #[must_use]
    pub fn updatable(self, updatable: bool) -> Self {
        Self { updatable, ..self }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }
}
