//! The host backend: kernels are Rust closures, a device is a pool of threads of its own.
//!
//! Always there, needs no driver, and is the reference that every conformance test passes on. What
//! each object is:
//!
//! | contract | here |
//! |---|---|
//! | device | a `thread_pool` of its own, never tokio's |
//! | memory | zeroed heap memory; both kinds are host-visible |
//! | kernel | the Rust code of its sources, called once per launch, or for blocks of it by all workers |
//! | command-buffer | an immutable `program` for the `interpreter`, on one worker or, as a graph, on many |
//! | queue | a serial chain: each enqueue starts after the one before (out-of-order: no chain) |
//! | event | a completion, made final by the worker that ends the last command |
//!
//! # How an enqueue travels
//!
//! One critical section links it behind what it must follow (the queue's last enqueue, the
//! command-buffer's last enqueue, pending events) or puts it into the ready queue. A worker takes
//! it, runs it with no lock held, and makes the event final. Then, in one critical section, the
//! worker releases the followers and picks its own next job, and last it calls the notification.
//! Nothing on this way allocates once the tables have grown to their working size.
//!
//! # Reading order
//!
//! Each file uses only files before it in this list. Of this workspace, they know `wakegraph-hal` only.
//!
//! | file | about |
//! |---|---|
//! | `events` | events and their completion, the clock |
//! | `memory` | allocations |
//! | `launch` | kernels, and how a launch is divided |
//! | `interpreter` | the effect of each command |
//! | `program` | commands with their order, as a run needs them |
//! | `thread_pool` | threads, and the schedule of what they run |
//! | `queue` | queues and command-buffers |
//! | `lib` | devices, and how they are opened |

mod events;
mod interpreter;
mod launch;
mod memory;
mod program;
mod queue;
mod thread_pool;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

pub use wakegraph_hal::CpuLevel;
use wakegraph_hal::support::library::OpenDevices;
use wakegraph_hal::{
    Backend, Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, CommandKinds, Device, DeviceId,
    DeviceInfo, Error, ErrorKind, Event, EventDesc, Kernel, KernelDesc, Memory, MemoryDesc, PlainMemory,
    Progress, Queue, QueueDesc, Result, UpdateCapabilities, UserMemory, setters, share_selectors,
};

use events::{HostEvent, clock_at};
use launch::HostKernel;
use memory::HostMemory;
use queue::{HostCommandBuffer, HostQueue};
use thread_pool::{Dependent, ThreadPool};

/// The backend that finds the host.
#[derive(Clone, Copy, Debug)]
pub struct HostBackend;

impl Backend for HostBackend {
    fn name(&self) -> &'static str {
        "host"
    }

    /// One, though any index can be opened: each is a pool of threads of its own.
    fn device_names(&self) -> Result<Vec<String>> {
        Ok(vec![HostOptions::new().name_or_threads()])
    }

    /// Opens the device with this index; while one is alive, opening its index again gives the same
    /// device.
    fn open(&self, index: usize) -> Result<Arc<dyn Device>> {
        static OPEN: OpenDevices<HostDevice> = OpenDevices::new();
        let start = || HostDevice::start(format!("host:{index}"), HostOptions::new());
        Ok(OPEN.get_or_open(index, |_| true, start)?)
    }
}

/// Options for a host device of one's own.
///
/// ```
/// use wakegraph::backend::host::{self, HostOptions};
/// let device = host::open(HostOptions::new().threads(2).polled(true))?;
/// assert!(!device.capabilities().notifies);
/// # Ok::<(), wakegraph::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct HostOptions {
    threads: Option<NonZeroUsize>,
    polled: bool,
    peer_access: bool,
    name: Option<String>,
    level: Option<CpuLevel>,
}

impl HostOptions {
    /// One thread per core that the machine offers, notifications, and access to other devices.
    pub fn new() -> Self {
        Self { threads: None, polled: false, peer_access: true, name: None, level: Some(CpuLevel::X86_64V4) }
    }

    /// Sets the number of worker threads; 0 means one per core that the machine offers.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { threads: NonZeroUsize::new(threads), ..self }
    }

    /// The device's name, for people; without one it says how many threads a kernel may use.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    fn threads_or_cores(&self) -> NonZeroUsize {
        self.threads.unwrap_or_else(available_threads)
    }

    fn name_or_threads(&self) -> String {
        let threads = self.threads_or_cores();
        self.name.clone().unwrap_or_else(|| format!("Rust closures on {threads} threads"))
    }
}

setters! {
    HostOptions {
        /// Whether notifications are not called, so that completion must be polled, as on a GPU.
        polled: bool,
        /// Whether the device uses other devices' memory and waits for their events. Without it, graphs
        /// across devices go through the host, as on hardware without peer access.
        peer_access: bool,
        /// The newest generation of processors whose versions of kernels the device uses, where the processor
        /// belongs to it; `None` for the oldest. All versions compute the same bits.
        level: impl Into<Option<CpuLevel>>,
    }
}

impl Default for HostOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Opens a new device with threads of its own, which [`HostBackend`] does not hand out.
///
/// # Errors
/// [`Unavailable`](wakegraph_hal::ErrorKind::Unavailable) when the system starts no more threads.
pub fn open(options: HostOptions) -> Result<Arc<dyn Device>> {
    Ok(Arc::new(HostDevice::start("host (private)".into(), options)?))
}

/// The most work-items of a work-group. Closures need no limit, but a portable program should meet
/// here the limits that it meets on other devices: these are what OpenCL's CPU drivers report.
const MAX_WORK_GROUP: usize = 8192;
/// Bytes of local memory for each work-group.
const LOCAL_MEMORY: usize = 256 << 10;

/// A host device. Dropping it lets running and pending work finish; the threads end after that by themselves.
#[derive(Debug)]
struct HostDevice {
    pool: Arc<ThreadPool>,
    info: DeviceInfo,
    capabilities: Capabilities,
    options: HostOptions,
}

impl HostDevice {
    /// A device with `threads` of its own, and the other options of this one.
    fn part(&self, selector: String, threads: usize) -> Result<Arc<dyn Device>> {
        Ok(Arc::new(Self::start(selector, self.options.clone().threads(threads))?))
    }

    fn start(selector: String, options: HostOptions) -> Result<Self> {
        let threads = options.threads_or_cores();
        let pool = Arc::new(ThreadPool::start(threads, &selector)?);
        let info = DeviceInfo {
            id: DeviceId::unique(),
            backend: "host",
            selector,
            name: options.name_or_threads(),
            driver: concat!("wakegraph ", env!("CARGO_PKG_VERSION")).into(),
            memory: total_memory(),
            compute_units: threads.get(),
        };
        let capabilities = Capabilities {
            commands: CommandKinds::RECORDABLE - CommandKinds::NATIVE,
            update: UpdateCapabilities::all(),
            profiling: true,
            notifies: !options.polled,
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
        Ok(ClockSample::new(clock_at(host), host))
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
        match HostKernel::load(desc, MAX_WORK_GROUP, self.options.level) {
            Ok(kernel) => Ok(Arc::new(kernel)),
            Err(error) => Err(error.on_device(&self.info.selector)),
        }
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        Ok(Arc::new(HostQueue::new(
            self.info.id,
            &self.pool,
            *desc,
            self.capabilities.notifies,
            self.options.peer_access,
        )))
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
        other.downcast_ref::<Self>().is_some_and(|o| o.info.id == id || self.options.peer_access)
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
        let part = |part| self.part(format!("{} (part {part} of {count})", self.info.selector), share);
        (0..count.get()).map(part).collect()
    }

    /// Devices with threads of their own; this one keeps its threads too.
    fn share(&self, units: usize) -> Result<[Arc<dyn Device>; 2]> {
        let units = [units, self.info.compute_units - units];
        let [share, rest] = share_selectors(&self.info.selector, units);
        Ok([self.part(share, units[0])?, self.part(rest, units[1])?])
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
