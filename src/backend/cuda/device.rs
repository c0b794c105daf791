//! The device: the factory of everything on it.
#![expect(unsafe_code, reason = "calls the driver, and vouches for the backend")]

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_int;
use std::num::NonZeroUsize;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::Mutex;

use super::clock::{self, Clock};
use super::command_buffer::CudaCommandBuffer;
use super::condition;
use super::context::{self, Context};
use super::event::CudaEvent;
use super::kernel::CudaKernel;
use super::launch::Limits;
use super::lower;
use super::memory::{CudaMemory, Pool};
use super::queue::CudaQueue;
use super::stream::Stream;
use super::sys::{CUdevice_attribute as Attribute, CUresult, Driver, Failure, call};
use super::tick::Ticks;
use crate::hal::{
    Capabilities, ClockSample, CommandBuffer, CommandBufferDesc, Device, DeviceInfo, Event, EventDesc,
    Kernel, KernelDesc, Memory, MemoryDesc, MemoryKind, Progress, Queue, QueueDesc, QueueOrder,
    UpdateCapabilities,
};
use crate::types::{CommandKinds, DeviceId, Error, ErrorKind, Result};

/// What everything on a device shares and keeps alive. The fields are dropped in this order, the
/// context last.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) limits: Limits,
    /// 90 for 9.0.
    pub(super) compute_capability: u32,
    /// Fills that the driver has no nodes for.
    fill: OnceLock<Arc<CudaKernel>>,
    /// Fills that can be switched off.
    set: OnceLock<Arc<CudaKernel>>,
    /// What decides about conditional nodes.
    condition: OnceLock<Arc<CudaKernel>>,
    /// Whether a conditional node may have a second body.
    pub(super) has_else: bool,
    /// Whether the devices with these ids may use this one's memory.
    peers: Mutex<HashMap<DeviceId, bool>>,
    pub(super) ticks: Ticks,
    pub(super) clock: Clock,
    pub(super) pool: Pool,
    /// For reads, writes and allocations: what must not queue behind the user's work.
    pub(super) service: Stream,
    pub(super) context: Arc<Context>,
}

/// Shared memory for the gaps between local-memory arguments, 15 bytes each.
const LOCAL_GAPS: usize = 1024;

impl Shared {
    fn open(driver: &'static Driver, index: usize) -> Result<Self> {
        let context = Arc::new(Context::retain(driver, index)?);
        let attribute = |attribute| context.attribute(attribute);
        let three = |attributes: [Attribute; 3]| -> Result<[usize; 3], Failure> {
            let [x, y, z] = attributes;
            Ok([attribute(x)?, attribute(y)?, attribute(z)?])
        };
        let limits = Limits {
            block: three([
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ])?,
            grid: three([
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ])?,
        };
        let version = version(driver)?;
        let info = info(&context, version)?;
        let capabilities = Capabilities {
            commands: commands(driver, version),
            update: UpdateCapabilities::all(),
            profiling: true,
            notifies: false,
            progress: Progress::Device,
            batches: true,
            out_of_order_queues: false,
            max_work_group_size: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_work_item_sizes: limits.block,
            max_work_groups: limits.grid,
            concurrent_parts: true,
            global_offset: true,
            view_alignment: 1,
            // Arguments begin at multiples of 16, so some is left for the gaps.
            local_memory: attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                .saturating_sub(LOCAL_GAPS),
            max_allocation: usize::try_from(info.memory).unwrap_or(usize::MAX),
        };
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(Self {
            info,
            capabilities,
            limits,
            compute_capability: (10 * major + minor) as u32,
            fill: OnceLock::new(),
            set: OnceLock::new(),
            condition: OnceLock::new(),
            has_else: version >= CONDITIONALS_WITH_ELSE,
            peers: Mutex::default(),
            ticks: Ticks::default(),
            clock: Clock::create(&context)?,
            pool: Pool::create(&context)?,
            service: Stream::create(&context)?,
            context,
        })
    }

    pub(super) fn fill_kernel(&self) -> Result<Arc<dyn Kernel>> {
        if let Some(kernel) = self.fill.get() {
            return Ok(Arc::clone(kernel) as _);
        }
        let kernel = Arc::new(lower::load_fill_kernel(self)?);
        Ok(Arc::clone(self.fill.get_or_init(|| kernel)) as _)
    }

    pub(super) fn set_kernel(&self) -> Result<Arc<dyn Kernel>> {
        if let Some(kernel) = self.set.get() {
            return Ok(Arc::clone(kernel) as _);
        }
        let kernel = Arc::new(lower::load_set_kernel(self)?);
        Ok(Arc::clone(self.set.get_or_init(|| kernel)) as _)
    }

    pub(super) fn condition_kernel(&self) -> Result<Arc<dyn Kernel>> {
        if let Some(kernel) = self.condition.get() {
            return Ok(Arc::clone(kernel) as _);
        }
        let kernel = Arc::new(condition::load_kernel(self)?);
        Ok(Arc::clone(self.condition.get_or_init(|| kernel)) as _)
    }

    /// Whether `user` may use this device's memory; makes it so, the first time, where the hardware
    /// can. A failure counts for this once: the next time it is tried again.
    fn is_open_to(&self, user: &Self) -> bool {
        let mut peers = self.peers.lock();
        if let Some(open) = peers.get(&user.info.id) {
            return *open;
        }
        match self.open_to(user) {
            Ok(open) => *peers.entry(user.info.id).or_insert(open),
            Err(failure) => {
                let error = Error::from(failure);
                tracing::debug!(target: "wakegraph", %error, "no peer access");
                false
            }
        }
    }

    /// Calls `work`, and once more with what the pool can give back to the system if it runs out of
    /// memory: the driver allocates graphs, modules and host memory elsewhere than the pool. The
    /// caller has bound the context.
    pub(super) fn retry_with_room<T, E: Into<Error>>(
        &self,
        mut work: impl FnMut() -> Result<T, E>,
    ) -> Result<T> {
        match work().map_err(E::into) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.pool.trim(&self.service)?;
                work().map_err(E::into)
            }
            outcome => outcome,
        }
    }

    fn open_to(&self, user: &Self) -> Result<bool, Failure> {
        let (driver, mut can) = (self.context.driver, 0);
        let (from, to) = (user.context.device, self.context.device);
        // SAFETY: both devices are open; the place is a number's.
        unsafe { call!(driver, cuDeviceCanAccessPeer(&raw mut can, from, to)) }?;
        if can == 0 {
            return Ok(false);
        }
        let _bound = user.context.bind()?;
        // SAFETY: both contexts are alive; the flags are reserved.
        match unsafe { call!(driver, cuCtxEnablePeerAccess(self.context.raw(), 0)) } {
            Err(failure) if failure.code == CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED as u32 => {}
            outcome => outcome?,
        }
        self.pool.open_to(&user.context)?;
        Ok(true)
    }
}

/// The driver's version, 13000 for CUDA 13.0.
fn version(driver: &Driver) -> Result<c_int, Failure> {
    let mut version: c_int = 0;
    // SAFETY: the place is a number's.
    unsafe { call!(driver, cuDriverGetVersion(&raw mut version)) }?;
    Ok(version)
}

/// The first driver whose conditional nodes the kernels of `condition.ptx` can decide about.
const CONDITIONALS: c_int = 12_040;
const CONDITIONALS_WITH_ELSE: c_int = 12_080;

/// What a graph can hold.
fn commands(driver: &Driver, version: c_int) -> CommandKinds {
    let all = CommandKinds::all() - CommandKinds::HOST_TASK - CommandKinds::SUB_GRAPH;
    let conditionals = driver.cuGraphAddNode.is_some() && driver.cuGraphConditionalHandleCreate.is_some();
    match conditionals && version >= CONDITIONALS {
        true => all,
        false => all - CommandKinds::IF - CommandKinds::WHILE,
    }
}

fn info(context: &Context, version: c_int) -> Result<DeviceInfo, Failure> {
    let (driver, device) = (context.driver, context.device);
    let name = context::name(driver, device)?;
    let mut memory = 0;
    // SAFETY: the place is a number's.
    unsafe { call!(driver, cuDeviceTotalMem(&raw mut memory, device)) }?;
    Ok(DeviceInfo {
        id: DeviceId::unique(),
        backend: "cuda",
        selector: context.selector().into(),
        name,
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        memory: memory as u64,
        compute_units: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
    })
}

/// A device. What was made on it holds what it shares, so the device itself may be dropped.
#[derive(Debug)]
pub(super) struct CudaDevice {
    shared: Arc<Shared>,
}

impl CudaDevice {
    pub(super) fn open(driver: &'static Driver, index: usize) -> Result<Self> {
        let shared = Shared::open(driver, index).map_err(|error| error.on_device(format!("cuda:{index}")))?;
        Ok(Self { shared: Arc::new(shared) })
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn here<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| self.shared.context.error(error))
    }
}

// SAFETY: the backend meets the contract: memory is the driver's, zeroed, and lives as long as its
// object; streams and wait lists order work; an event is final when the driver says that its record
// is complete, or that its context has ended.
unsafe impl Device for CudaDevice {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn info(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn capabilities(&self) -> &Capabilities {
        &self.shared.capabilities
    }

    fn status(&self) -> Result<()> {
        self.shared.context.status()
    }

    /// The host's own clock: device times are converted to it.
    fn clock(&self) -> Result<ClockSample> {
        let host = Instant::now();
        Ok(ClockSample { device: clock::at(host), host })
    }

    fn allocate(&self, desc: &MemoryDesc) -> Result<Arc<dyn Memory>> {
        self.status()?;
        Ok(Arc::new(self.here(CudaMemory::allocate(&self.shared, desc))?))
    }

    /// Waits for the device's own stream, on which memory is given back.
    fn trim(&self) -> Result<()> {
        self.status()?;
        let trim = || {
            let _bound = self.shared.context.bind()?;
            self.shared.pool.trim(&self.shared.service)
        };
        self.here(trim().map_err(Error::from))
    }

    fn create_kernel(&self, desc: &KernelDesc<'_>) -> Result<Arc<dyn Kernel>> {
        self.status()?;
        Ok(Arc::new(self.here(CudaKernel::load(&self.shared, desc))?))
    }

    fn create_queue(&self, desc: &QueueDesc) -> Result<Arc<dyn Queue>> {
        self.status()?;
        if desc.order == QueueOrder::OutOfOrder {
            let why = "CUDA has no out-of-order queues";
            return self.here(Err(Error::new(ErrorKind::FeatureNotSupported, why)));
        }
        Ok(Arc::new(self.here(CudaQueue::create(&self.shared, *desc))?))
    }

    fn create_event(&self, desc: &EventDesc) -> Result<Arc<dyn Event>> {
        self.status()?;
        let event = CudaEvent::create(&self.shared, desc.profiling).map_err(Error::from);
        Ok(Arc::new(self.here(event)?))
    }

    fn create_command_buffer(&self, desc: &CommandBufferDesc) -> Result<Box<dyn CommandBuffer>> {
        self.status()?;
        Ok(Box::new(self.here(CudaCommandBuffer::create(&self.shared, *desc))?))
    }

    /// This device's memory, the memory that CUDA has pinned, and peers' memory.
    fn can_access(&self, memory: &dyn Memory) -> bool {
        memory.as_any().downcast_ref::<CudaMemory>().is_some_and(|memory| {
            let owner = memory.shared();
            Arc::ptr_eq(owner, &self.shared)
                || memory.kind() == MemoryKind::Host
                || owner.is_open_to(&self.shared)
        })
    }

    /// A stream waits for events of any context.
    fn can_wait_for(&self, other: &dyn Device) -> bool {
        other.as_any().is::<Self>()
    }

    fn sub_devices(&self, count: NonZeroUsize) -> Result<Vec<Arc<dyn Device>>> {
        let why = format!("a CUDA device cannot be split into {count}");
        self.here(Err(Error::new(ErrorKind::FeatureNotSupported, why)
            .help("split it with MIG, and open the parts through CUDA_VISIBLE_DEVICES")))
    }
}
