//! The device. **Fill in:** open the driver's context, read the capabilities, map a lost device to
//! `DeviceLost`.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use super::command_buffer::NullCommandBuffer;
use super::event::{self, NullEvent};
use super::kernel::NullKernel;
use super::memory::NullMemory;
use super::queue::NullQueue;
use crate::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, CommandKinds, Device, DeviceInfo, Error,
    ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, Result,
    UpdateCapabilities,
};

/// Limits like those of a small GPU, so that tests of limits meet some.
const MAX_WORK_GROUP: usize = 1024;
const LOCAL_MEMORY: usize = 64 << 10;

/// A device that runs nothing.
#[derive(Debug)]
pub(super) struct NullDevice {
    info: DeviceInfo,
    capabilities: Capabilities,
}

impl NullDevice {
    pub(super) fn new(selector: String) -> Self {
        let name = selector.clone();
        let info = DeviceInfo { driver: "none".into(), ..DeviceInfo::new("null", selector, name) };
        let of_other_layers = CommandKinds::HOST_TASK | CommandKinds::SUB_GRAPH | CommandKinds::STREAM_TASK;
        let commands = CommandKinds::all() - of_other_layers;
        let capabilities = Capabilities {
            update: UpdateCapabilities::all(),
            profiling: true,
            notifies: true,
            out_of_order_queues: true,
            stream_tasks: true,
            max_work_group_size: MAX_WORK_GROUP,
            max_work_item_sizes: [MAX_WORK_GROUP, MAX_WORK_GROUP, 64],
            concurrent_parts: true,
            global_offset: true,
            local_memory: LOCAL_MEMORY,
            ..Capabilities::new(commands)
        };
        Self { info, capabilities }
    }
}

// SAFETY: memory is heap memory that lives as long as its object, and no command touches any.
#[expect(unsafe_code, reason = "vouches for the backend")]
unsafe impl Device for NullDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }

    fn clock(&self) -> Result<ClockSample> {
        Ok(ClockSample::new(event::now(), Instant::now()))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(NullMemory::allocate(self.info.id, desc)?))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(NullKernel::load(desc, self.capabilities.max_work_group_size)))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(NullQueue::new(self.info.id, *desc)))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(NullEvent::new(self.info.id)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(NullCommandBuffer::new(self.info.id, *desc)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.device() == self.info.id
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.info().id == self.info.id
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let why = format!("the null device cannot be split into {count}");
        Err(Error::new(ErrorKind::FeatureNotSupported, why).on_device(&self.info.selector))
    }
}
