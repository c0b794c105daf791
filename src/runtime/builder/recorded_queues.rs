//! Nodes of a graph that queues have recorded: what their next commands come after.

use std::collections::HashMap;
use std::fmt::Debug;
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
    /// Predecessor of the next command: the previous one of an in-order queue, else the last barrier.
    pub(crate) last: Option<NodeId>,
    /// Commands that an out-of-order queue has recorded since its last barrier.
    pub(crate) since_barrier: Vec<NodeId>,
}

/// States of all queues that do not record into the graph at the moment.
#[derive(Debug, Default)]
pub(crate) struct RecordedQueues {
    nodes: HashMap<RecordedQueueId, RecordedNodes>,
    /// Ends the recording that the graph has lent its contents to, when the graph is dropped.
    end: Option<Box<dyn Debug + Send + Sync>>,
}

impl RecordedQueues {
    /// Sets what ends a recording when it is dropped, with the graph or by the next call.
    pub(crate) fn set_end(&mut self, end: Option<Box<dyn Debug + Send + Sync>>) {
        self.end = end;
    }

    /// Takes out what a queue has recorded so far.
    pub(crate) fn take(&mut self, queue: RecordedQueueId) -> RecordedNodes {
        self.nodes.remove(&queue).unwrap_or_default()
    }

    /// Keeps what a queue has recorded so far.
    pub(crate) fn keep(&mut self, queue: RecordedQueueId, nodes: RecordedNodes) {
        if nodes.last.is_some() || !nodes.since_barrier.is_empty() {
            self.nodes.insert(queue, nodes);
        }
    }
}
