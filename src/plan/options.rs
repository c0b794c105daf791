//! What the caller can choose about a plan.

/// How device nodes are gathered into partitions. Host tasks are partitions of their own in each.
///
/// A partition of device nodes is one command-buffer. It starts when everything has ended that any of its
/// nodes waits for in other partitions, and it is waited for as a whole. So a node may wait for nodes that
/// are not its ancestors, and each policy says which it does not wait for. Partitions that share a queue, of
/// which a device has [a few](PlanOptions::max_lanes), also start in the order in which they are enqueued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PartitionPolicy {
    /// Nodes of one device that wait for the same host tasks and the same results of other devices share a
    /// partition. No node waits for a host task that is not its ancestor. A node may wait for device nodes
    /// that are not its ancestors, where those share a partition with one that is; so may a host task.
    #[default]
    Signature,
    /// Nodes of one device with the same number of crossings behind them share a partition: the fewest
    /// partitions, at the price of false waits between branches.
    Fewest,
    /// As [`Signature`](Self::Signature), split further by the host tasks that come after. In addition no
    /// host task waits for any node that is not its ancestor, at the price of more partitions. A device node
    /// may still wait for other device nodes.
    Eager,
}

/// In which of the possible orders nodes are appended to their partition's command-buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ExecutionOrder {
    /// A branch is followed to its end before the next one is begun.
    #[default]
    DepthFirst,
    /// Level by level: nodes that nothing keeps apart stand side by side.
    BreadthFirst,
}

/// Choices for [`Plan::new`](super::Plan::new).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PlanOptions {
    /// How nodes are gathered into partitions.
    pub partition: PartitionPolicy,
    /// In which order they are appended.
    pub order: ExecutionOrder,
    /// Commands are going to be timed one by one, so every one keeps its sync-points and no partition is
    /// in-order.
    pub profiling: bool,
    /// A hint: run the nodes of every partition one after the other, whatever its shape.
    pub in_order: bool,
    /// Lanes (queues) that the partitions of one device are spread over, at most; 0 counts as 1.
    pub max_lanes: u16,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            partition: PartitionPolicy::default(),
            order: ExecutionOrder::default(),
            profiling: false,
            in_order: false,
            max_lanes: 8,
        }
    }
}
