//! The options of a plan.

/// Rule by which device nodes are grouped into partitions. Every host task and every stream task is a
/// partition of its own.
///
/// A partition of device nodes is one command-buffer. It starts when all nodes of other partitions that any
/// of its nodes depends on have ended, and other partitions wait for the whole of it. So a node may wait for
/// nodes that are not its ancestors; each policy limits which. Partitions on one queue, of which a device
/// has [a few](PlanOptions::max_queues), also start in the order in which they are enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PartitionPolicy {
    /// Nodes of one device that wait for the same host tasks, stream tasks and results of other
    /// devices share a partition. No node waits for a host task or stream task that is not its
    /// ancestor. A node may wait for device nodes that are not its ancestors, where those share a
    /// partition with one that is; so may a host task or a stream task.
    #[default]
    Signature,
    /// Nodes of one device with the same number of crossings behind them share a partition: the fewest
    /// partitions, at the price of false waits between branches.
    Fewest,
    /// Splits as [`Signature`](Self::Signature) does, and further by the host tasks that come after. In
    /// addition no host task waits for any node that is not its ancestor, at the price of more partitions. A
    /// device node may still wait for other device nodes.
    Eager,
}

/// The order in which nodes are appended to their partition's command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ExecutionOrder {
    /// Branch by branch: each branch ends before the next begins.
    #[default]
    DepthFirst,
    /// Level by level: independent nodes follow each other.
    BreadthFirst,
}

/// Choices for [`Plan::new`](super::Plan::new).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlanOptions {
    /// Policy for grouping nodes into partitions.
    pub partition: PartitionPolicy,
    /// The append order inside each partition.
    pub order: ExecutionOrder,
    /// Whether commands are timed one by one. Each then keeps its sync-points, and no partition is in-order.
    pub profiling: bool,
    /// Whether every partition is in-order, whatever its shape.
    pub in_order: bool,
    /// The most queues that the partitions of one device are spread over; 0 counts as 1.
    pub max_queues: u16,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            partition: PartitionPolicy::default(),
            order: ExecutionOrder::default(),
            profiling: false,
            in_order: false,
            max_queues: 8,
        }
    }
}
