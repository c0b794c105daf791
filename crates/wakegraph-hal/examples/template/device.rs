//! The backend and its device. **Fill in:** load the vendor's library at run time, where a missing one is
//! `Unavailable` and names the remedy; list the devices, open a context on one, read its capabilities once,
//! and map a lost device to `DeviceLost`.
#![expect(unsafe_code, reason = "vouches for the backend")]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use wakegraph_hal::{
    Backend, Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, CommandKinds, Device, DeviceInfo,
    Error, ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, Queue, QueueDesc, Result,
    UpdateCapabilities,
};

use crate::command_buffer::TemplateCommandBuffer;
use crate::kernel::TemplateKernel;
use crate::memory::TemplateMemory;
use crate::queue::{TemplateEvent, TemplateQueue, now};

/// The backend, which opens devices. It runs nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TemplateBackend;

impl Backend for TemplateBackend {
    fn name(&self) -> &'static str {
        "template"
    }

    fn device_names(&self) -> Result<Vec<String>> {
        Ok(vec!["template".into()])
    }

    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        if index > 0 {
            let why = format!("there is no device {index} of the backend '{}'", self.name());
            return Err(Error::new(ErrorKind::Unavailable, why));
        }
        Ok(Arc::new(TemplateDevice::new("template:0".into())))
    }
}

/// Limits like those of a small GPU, so that tests of limits meet some.
const MAX_WORK_GROUP: usize = 1024;
const LOCAL_MEMORY: usize = 64 << 10;

/// A device that runs nothing.
#[derive(Debug)]
struct TemplateDevice {
    info: DeviceInfo,
    capabilities: Capabilities,
}

impl TemplateDevice {
    fn new(selector: String) -> Self {
        let name = selector.clone();
        let info = DeviceInfo { driver: "none".into(), ..DeviceInfo::new("template", selector, name) };
        let commands = CommandKinds::RECORDABLE;
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
unsafe impl Device for TemplateDevice {
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
        Ok(ClockSample::new(now(), Instant::now()))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(TemplateMemory::allocate(self.info.id, desc)?))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        Ok(Arc::new(TemplateKernel::load(desc, self.capabilities.max_work_group_size)))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(TemplateQueue::new(self.info.id, *desc)))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(TemplateEvent::new(self.info.id)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(TemplateCommandBuffer::new(self.info.id, *desc)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.device() == self.info.id
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.info().id == self.info.id
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let why = format!("the device cannot be split into {count}");
        Err(Error::new(ErrorKind::FeatureNotSupported, why).on_device(&self.info.selector))
    }
}
