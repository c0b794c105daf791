//! Pass 9: the plan as a flat list of instructions.

use super::{Partition, PartitionKind, Plan};
use crate::types::DeviceId;

/// One step in carrying out a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction<'a> {
    /// Create a command-buffer.
    Begin {
        /// The partition it is for.
        partition: u32,
        /// Where it runs.
        device: DeviceId,
        /// Which of the device's queues it is enqueued on.
        lane: u16,
        /// Whether its commands run in the order of their appends.
        in_order: bool,
        /// The partitions that an enqueue waits for.
        after: &'a [u32],
    },
    /// Append a node to the command-buffer begun last.
    Append {
        /// The planned node.
        node: u32,
        /// Its sync-points: which appends since the last `Begin` it waits for, counting from 0.
        waits: &'a [u32],
    },
    /// Finalize the command-buffer begun last.
    Finalize {
        /// The partition it is for.
        partition: u32,
    },
    /// Run a host task.
    HostTask {
        /// Its partition.
        partition: u32,
        /// The planned node.
        node: u32,
        /// The partitions it waits for.
        after: &'a [u32],
    },
}

impl Plan {
    /// The plan as a flat list: command-buffers and host tasks in an order that respects all dependencies.
    pub fn instructions(&self) -> impl Iterator<Item = Instruction<'_>> {
        self.partitions.iter().enumerate().flat_map(|(index, &partition)| self.lowered(index, partition))
    }

    fn lowered(&self, index: usize, part: Partition) -> impl Iterator<Item = Instruction<'_>> {
        let (partition, after) = (index as u32, self.predecessors(index));
        let (first, appends, last) = match part.kind {
            PartitionKind::HostTask => {
                let node = self.nodes(index)[0];
                (Instruction::HostTask { partition, node, after }, 0, None)
            }
            PartitionKind::Device(device) => {
                let Partition { in_order, lane, .. } = part;
                let begin = Instruction::Begin { partition, device, lane, in_order, after };
                (begin, self.nodes(index).len(), Some(Instruction::Finalize { partition }))
            }
        };
        let append = move |position| Instruction::Append {
            node: self.nodes(index)[position],
            waits: self.waits(index, position),
        };
        std::iter::once(first).chain((0..appends).map(append)).chain(last)
    }
}
