//! Pass 9: the plan as a flat list of instructions.

use wakegraph_hal::DeviceId;

use super::{Partition, PartitionKind, Plan};

/// One step of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Instruction<'a> {
    /// Create a command-buffer.
    Begin {
        /// The partition that the command-buffer is for.
        partition: u32,
        /// The device that runs it.
        device: DeviceId,
        /// Index of the device queue that it is enqueued on.
        queue: u16,
        /// Whether its commands run in append order.
        in_order: bool,
        /// The partitions that it waits for.
        after: &'a [u32],
    },
    /// Append a node to the current command-buffer.
    Append {
        /// The planned node.
        node: u32,
        /// Sync-points: the appends since the last `Begin` that it waits for, counting from 0.
        waits: &'a [u32],
    },
    /// Finalize the current command-buffer.
    Finalize {
        /// The partition that the command-buffer is for.
        partition: u32,
    },
    /// Call the closure of a stream task in every submission, with a queue of its device.
    StreamTask {
        /// The partition of the stream task.
        partition: u32,
        /// The device whose queue it gets.
        device: DeviceId,
        /// Index of the queue.
        queue: u16,
        /// The planned node.
        node: u32,
        /// The partitions it waits for.
        after: &'a [u32],
    },
    /// Run a host task.
    HostTask {
        /// The partition of the host task.
        partition: u32,
        /// The planned node.
        node: u32,
        /// The partitions it waits for.
        after: &'a [u32],
    },
}

impl Plan {
    /// The plan as a flat list: command-buffers, stream tasks and host tasks in an order that
    /// respects every dependency.
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
            PartitionKind::StreamTask(device) => {
                let (node, queue) = (self.nodes(index)[0], part.queue);
                (Instruction::StreamTask { partition, device, queue, node, after }, 0, None)
            }
            PartitionKind::Device(device) => {
                let Partition { in_order, queue, .. } = part;
                let begin = Instruction::Begin { partition, device, queue, in_order, after };
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
