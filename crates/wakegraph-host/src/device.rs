//! The device: a pool of threads and the factory of what runs on it.

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use wakegraph_hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, CommandKinds, Device, DeviceId, DeviceInfo,
    Error, ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, PlainMemory, Progress, Queue,
    QueueDesc, Result, UpdateCapabilities, UserMemory,
};

use super::command_buffer::HostCommandBuffer;
use super::event::HostEvent;
use super::kernel::HostKernel;
use super::memory::HostMemory;
use super::queue::HostQueue;
use super::thread_pool::{Dependent, ThreadPool};
use super::{HostOptions, clock};

/// The most work-items of a work-group. Closures need no limit, but a portable program should meet
/// here the limits that it meets on other devices: these are what OpenCL's CPU drivers report.
const MAX_WORK_GROUP: usize = 8192;
/// Bytes of local memory for each work-group.
const LOCAL_MEMORY: usize = 256 << 10;

/// A host device. Dropping it lets running and pending work finish; the threads end after that by themselves.
#[derive(Debug)]
pub(super) struct HostDevice {
    pool: Arc<ThreadPool>,
    info: DeviceInfo,
    capabilities: Capabilities,
    options: HostOptions,
}

impl HostDevice {
    pub(super) fn start(selector: String, options: HostOptions) -> Result<Self> {
        let threads = options.threads.unwrap_or_else(available_threads);
        let pool = Arc::new(ThreadPool::start(threads, &selector)?);
        let info = DeviceInfo {
            id: DeviceId::unique(),
            backend: "host",
            selector,
            name: options.name.clone(),
            driver: concat!("wakegraph ", env!("CARGO_PKG_VERSION")).into(),
            memory: total_memory(),
            compute_units: threads.get(),
        };
        let capabilities = Capabilities {
            commands: CommandKinds::all()
                - CommandKinds::HOST_TASK
                - CommandKinds::SUB_GRAPH
                - CommandKinds::STREAM_TASK
                - CommandKinds::NATIVE,
            update: UpdateCapabilities::all(),
            profiling: true,
            notifies: !options.polled,
            prefers_polls: false,
            progress: Progress::HostCores,
            batches: false,
            queue_priorities: false,
            stream_tasks: true,
            out_of_order_queues: true,
            max_work_group_size: MAX_WORK_GROUP,
            max_work_item_sizes: [MAX_WORK_GROUP; 3],
            max_work_groups: [usize::MAX; 3],
            max_global_index: usize::MAX,
            concurrent_parts: true,
            global_offset: true,
            view_alignment: 1,
            local_memory: LOCAL_MEMORY,
            max_allocation: HostMemory::MAX_LEN,
        };
        Ok(Self { pool, info, capabilities, options })
    }
}

// SAFETY: the backend meets the contract, as the conformance suite shows: memory is heap memory
// that lives as long as its object, the schedule starts work after its wait list, and a worker
// makes an event final when the work is done.
#[expect(unsafe_code, reason = "vouches for the backend")]
unsafe impl Device for HostDevice {
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
        let host = Instant::now();
        Ok(ClockSample::new(clock::at(host), host))
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        match HostMemory::allocate(self.info.id, desc) {
            Ok(memory) => Ok(Arc::new(memory)),
            Err(error) => Err(error.on_device(&self.info.selector)),
        }
    }

    fn register(&self, memory: UserMemory) -> Result<Arc<dyn Memory>> {
        Ok(Arc::new(PlainMemory::new(self.info.id, memory, true)))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        match HostKernel::load(desc, MAX_WORK_GROUP) {
            Ok(kernel) => Ok(Arc::new(kernel)),
            Err(error) => Err(error.on_device(&self.info.selector)),
        }
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(HostQueue::new(self.info.id, &self.pool, *desc, &self.options)))
    }

    fn create_event(&self, _: &EventDesc) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(HostEvent::<Dependent>::new(self.info.id)))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        Ok(Box::new(HostCommandBuffer::new(self.info.id, &self.pool, *desc)))
    }

    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.device() == self.info.id || (self.options.peer_access && memory.host_ptr().is_some())
    }

    fn can_wait_for(&self, other: &dyn Device) -> bool {
        let id = self.info.id;
        other.as_any().downcast_ref::<Self>().is_some_and(|o| o.info.id == id || self.options.peer_access)
    }

    /// Devices with threads of their own, `threads / count` each; this one keeps its threads too.
    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let threads = self.info.compute_units;
        let share = threads / count.get();
        if share == 0 {
            let why = format!("{threads} threads cannot be split into {count} devices");
            return Err(Error::new(ErrorKind::FeatureNotSupported, why)
                .on_device(&self.info.selector)
                .help("split into at most as many devices as there are threads"));
        }
        (0..count.get())
            .map(|part| {
                let selector = format!("{} (part {part} of {count})", self.info.selector);
                let device = Self::start(selector, self.options.clone().threads(share))?;
                Ok(Arc::new(device) as Arc<dyn Device>)
            })
            .collect()
    }
}

fn available_threads() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Physical memory in bytes; 0 where the system does not say.
fn total_memory() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/meminfo") else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kibibytes.map_or(0, |n| n.saturating_mul(1024))
}
