//! What a device can do.

use crate::CommandKinds;

bitflags::bitflags! {
    /// What [`CommandBuffer::update`](super::CommandBuffer::update) can change on a device, bit by
    /// bit as in the specification.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
    pub struct UpdateCapabilities: u32 {
        /// Arguments of a kernel command.
        const KERNEL_ARGUMENTS = 1 << 0;
        /// Work-group size of a kernel command.
        const LOCAL_WORK_SIZE = 1 << 1;
        /// Global size of a kernel command.
        const GLOBAL_WORK_SIZE = 1 << 2;
        /// Global offset of a kernel command.
        const GLOBAL_WORK_OFFSET = 1 << 3;
        /// The kernel of a command, among the alternatives registered at append.
        const KERNEL_HANDLE = 1 << 4;
        /// Whether a kernel, fill or copy is enabled.
        const ENABLED = 1 << 5;
        /// Operands of a fill or copy.
        const MEMORY_OPERANDS = 1 << 6;
        /// Flag and bodies of a conditional or loop.
        const BODIES = 1 << 7;
    }
}

/// What drives a device's work, which decides how a thread may wait for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Progress {
    /// The device itself, such as a GPU. Waiting threads do not slow it down.
    #[default]
    Device,
    /// Threads of the driver, on the host's cores, which a thread that polls in a loop may keep from them.
    /// On a device that cannot notify, such a loop gives way.
    HostCores,
}

/// How much of the graph interface a device supports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GraphSupport {
    /// Command-buffers and their updates.
    Full,
    /// Command-buffers without updates.
    Limited,
    /// No command-buffers.
    None,
}

/// What a device can do. Read once when the device is opened, constant from then on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Capabilities {
    /// Commands that can be appended to a command-buffer or to a body.
    pub commands: CommandKinds,
    /// What an update can change. Empty if command-buffers cannot be updatable.
    pub update: UpdateCapabilities,
    /// Whether queues, events and command-buffers can be created with profiling.
    pub profiling: bool,
    /// Whether a [`Notify`](super::Notify) passed at enqueue is called. Where it is not, completion
    /// must be polled.
    pub notifies: bool,
    /// Whether a poll finds the end sooner than a notification comes, while there is a core for each
    /// thread. The runtime asks for notifications of such a device only where it does not poll.
    pub prefers_polls: bool,
    /// What drives the work while a thread waits for it.
    pub progress: Progress,
    /// Whether in-order queues take [batches](super::Queue::enqueue_batch).
    pub batches: bool,
    /// Whether it prefers the work of queues of higher [priority](super::QueueDesc::priority).
    pub queue_priorities: bool,
    /// Whether in-order queues run [stream tasks](super::Command::StreamTask).
    pub stream_tasks: bool,
    /// Whether out-of-order queues can be created.
    pub out_of_order_queues: bool,
    /// Largest number of work-items in a work-group.
    pub max_work_group_size: usize,
    /// Largest work-group size in each dimension.
    pub max_work_item_sizes: [usize; 3],
    /// Largest number of work-groups in each dimension.
    pub max_work_groups: [usize; 3],
    /// Largest global index that a work-item can have, its offset included.
    pub max_global_index: usize,
    /// Whether several queues, of this device and of others, may use different parts of one
    /// allocation of this device at the same time, also where one of them writes. Where they may
    /// not, accesses to one allocation have to be ordered whichever bytes they are to.
    pub concurrent_parts: bool,
    /// Whether a launch's indices can start at an offset.
    pub global_offset: bool,
    /// What the offset of a memory view in a kernel's argument must be a multiple of, in bytes; at
    /// least 1.
    pub view_alignment: usize,
    /// Local memory per work-group, in bytes.
    pub local_memory: usize,
    /// Largest allocation, in bytes.
    pub max_allocation: usize,
}

impl Capabilities {
    /// A device with command-buffers of these commands, and nothing that is optional: no updates,
    /// no profiling, no local memory, work-groups of one work-item.
    pub fn new(commands: CommandKinds) -> Self {
        Self {
            commands,
            update: UpdateCapabilities::empty(),
            profiling: false,
            notifies: false,
            prefers_polls: false,
            progress: Progress::Device,
            batches: false,
            queue_priorities: false,
            stream_tasks: false,
            out_of_order_queues: false,
            max_work_group_size: 1,
            max_work_item_sizes: [1; 3],
            max_work_groups: [usize::MAX; 3],
            max_global_index: usize::MAX,
            concurrent_parts: false,
            global_offset: false,
            view_alignment: 1,
            local_memory: 0,
            max_allocation: isize::MAX as usize,
        }
    }

    /// The graph support that follows from the other fields.
    pub fn graph_support(&self) -> GraphSupport {
        if self.commands.is_empty() {
            GraphSupport::None
        } else if self.update.is_empty() {
            GraphSupport::Limited
        } else {
            GraphSupport::Full
        }
    }
}
