//! Which nodes of a graph queues have recorded: what their next commands come after.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::graph::NodeId;

/// Tells queues apart; never reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct RecordedQueueId(u64);

impl RecordedQueueId {
    pub(crate) fn unique() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The nodes that one queue has recorded, as far as its later commands come after them.
#[derive(Debug, Default)]
pub(crate) struct RecordedNodes {
    /// What the next command comes after: the previous one of an in-order queue, else the last barrier.
    pub(crate) last: Option<NodeId>,
    /// What an out-of-order queue has recorded since its last barrier.
    pub(crate) since_barrier: Vec<NodeId>,
}

/// Those of all queues that do not record into the graph at the moment.
#[derive(Debug, Default)]
pub(crate) struct RecordedQueues(HashMap<RecordedQueueId, RecordedNodes>);

impl RecordedQueues {
    /// Takes out what a queue has recorded so far.
    pub(crate) fn take(&mut self, queue: RecordedQueueId) -> RecordedNodes {
        self.0.remove(&queue).unwrap_or_default()
    }

    /// Keeps what a queue has recorded so far.
    pub(crate) fn keep(&mut self, queue: RecordedQueueId, nodes: RecordedNodes) {
        if nodes.last.is_some() || !nodes.since_barrier.is_empty() {
            self.0.insert(queue, nodes);
        }
    }
}
