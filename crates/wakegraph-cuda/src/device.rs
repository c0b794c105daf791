//! The state that all objects of a device share and keep alive, and its memory as the contract has it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use wakegraph_hal::support::streams::{
    DeviceParts, DriverContext as _, MemoryDevice, MemoryStream, PinnedMemories, StreamDevice, StreamMemory,
    stream_capabilities,
};
use wakegraph_hal::{
    Capabilities, CommandKinds, DeviceId, DeviceInfo, MemoryDesc, MemoryKind, MemoryView, Result, UserMemory,
};

use super::context::{self, CudaContext};
use super::error::version;
use super::events::{CountedRun, CounterPool, StoppableRun};
use super::memory::{CudaAllocation, MemoryPool, register};
use super::program::CudaFunction;
use super::sys::{
    self, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CUdevice_attribute, CUdeviceptr, CUstream, CudaFailure,
    Driver, call, get,
};

/// The private core of the contract's device. The fields are dropped in this
/// order, the context last.
#[derive(Debug)]
pub(super) struct CudaDeviceInner {
    /// 90 for 9.0.
    pub(super) compute_capability: u32,
    pub(super) overlap: OverlapPolicy,
    /// Whether a conditional node may have a second body.
    pub(super) has_else: bool,
    /// The backend's own kernels, by [`BuiltinKernel`](super::kernel::BuiltinKernel).
    pub(super) builtin_kernels: [OnceLock<CudaFunction>; 4],
    pub(super) counters: Arc<CounterPool>,
    pub(super) parts: DeviceParts<CudaContext>,
    pub(super) pool: Arc<MemoryPool>,
    pub(super) context: Arc<CudaContext>,
}

/// Shared memory for the gaps between local-memory arguments, 15 bytes each.
const LOCAL_GAPS: usize = 1024;

impl CudaDeviceInner {
    pub(super) fn open(context: CudaContext) -> Result<Self> {
        let (driver, context) = (context.driver, Arc::new(context));
        let attribute = |attribute| context.attribute(attribute);
        let three = |attributes: [CUdevice_attribute; 3]| -> Result<[usize; 3], CudaFailure> {
            let [x, y, z] = attributes;
            Ok([attribute(x)?, attribute(y)?, attribute(z)?])
        };
        let version = version(driver)?;
        let info = info(&context, version)?;
        let capabilities = Capabilities {
            max_work_group_size: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_work_item_sizes: three([
                sys::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                sys::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                sys::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ])?,
            max_work_groups: three([
                sys::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                sys::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                sys::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ])?,
            // Arguments begin at multiples of 16, so some memory is left for the gaps.
            local_memory: attribute(sys::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                .saturating_sub(LOCAL_GAPS),
            max_allocation: usize::try_from(info.memory).unwrap_or(usize::MAX),
            ..stream_capabilities(commands(driver, version))
        };
        let major = attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(sys::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let compute_capability = (10 * major + minor) as u32;
        let parts = DeviceParts::new(info, capabilities, &context)?;
        let pool = Arc::new(MemoryPool::create(&context)?);
        Ok(Self {
            compute_capability,
            overlap: OverlapPolicy::of(driver, compute_capability),
            has_else: version >= CONDITIONALS_WITH_ELSE,
            builtin_kernels: Default::default(),
            counters: Arc::new(CounterPool::new(&pool)),
            parts,
            pool,
            context,
        })
    }

    /// Lets `user` use this device's memory, if the hardware can.
    pub(super) fn open_to(&self, user: &Self) -> Result<bool, CudaFailure> {
        let (driver, from, to) = (self.context.driver, user.context.device, self.context.device);
        // The driver says that a device is not its own peer, but another object may be for it.
        if from == to {
            return Ok(true);
        }
        // SAFETY: both devices are open.
        let can_access: c_int = unsafe { get!(driver, cuDeviceCanAccessPeer(from, to)) }?;
        if can_access == 0 {
            return Ok(false);
        }
        let _bound = user.context.bind()?;
        // SAFETY: both contexts are alive; the flags are reserved.
        match unsafe { call!(driver, cuCtxEnablePeerAccess(self.context.raw, 0)) } {
            Err(failure) if failure.code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            outcome => outcome?,
        }
        self.pool.open_to(&user.context)?;
        Ok(true)
    }
}

pub(super) type CudaMemory = StreamMemory<CudaDeviceInner>;

impl StreamDevice for CudaDeviceInner {
    type Context = CudaContext;
    type Counted = CountedRun;
    type Loops = StoppableRun;

    fn parts(&self) -> &DeviceParts<CudaContext> {
        &self.parts
    }

    fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    fn memory_stream(&self) -> &MemoryStream<CudaContext> {
        &self.pool.stream
    }
}

/// Whether it is memory of this GPU, be it of a share or of another context, and not of the host.
pub(super) fn is_of(device: &CudaDeviceInner, view: &MemoryView) -> bool {
    let memory = view.memory().downcast_ref::<CudaMemory>();
    let is_on_device = view.memory().kind() == MemoryKind::Device;
    is_on_device && memory.is_some_and(|memory| memory.device.context.device == device.context.device)
}

impl MemoryDevice for CudaDeviceInner {
    type Allocation = CudaAllocation;

    fn allocate(&self, desc: &MemoryDesc) -> Result<CudaAllocation> {
        CudaAllocation::create(&self.pool, desc)
    }

    fn register(&self, memory: &UserMemory) -> Result<bool, CudaFailure> {
        register(&self.context, memory)
    }

    fn registered(&self, memory: UserMemory) -> CudaAllocation {
        CudaAllocation::registered(&self.pool, memory)
    }

    fn pinned() -> &'static PinnedMemories<CudaAllocation> {
        static PINNED: PinnedMemories<CudaAllocation> = PinnedMemories::new();
        &PINNED
    }

    fn trim(&self) -> Result<(), CudaFailure> {
        self.pool.trim()
    }

    unsafe fn copy_to_device(
        &self,
        to: CUdeviceptr,
        from: *const u8,
        len: usize,
        stream: CUstream,
    ) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, cuMemcpyHtoDAsync(to, from.cast(), len, stream)) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: CUdeviceptr,
        len: usize,
        stream: CUstream,
    ) -> Result<(), CudaFailure> {
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, cuMemcpyDtoHAsync(to.cast(), from, len, stream)) }
    }
}

/// The first compute capability that has the instructions of [`OverlapPolicy`].
pub(super) const OVERLAP_CAPABILITY: u32 = 90;

/// Programmatic dependent launch: a kernel is started while the one before it still runs.
///
/// Between two kernels in a row the device idles for most of a microsecond. From compute capability 9.0
/// on, a kernel behind a programmatic edge is started as soon as all work-groups of the one before it
/// have called `griddepcontrol.launch_dependents`, and goes on from its own `griddepcontrol.wait` when
/// that kernel has ended and its writes are visible. Entry points of the portable dialect execute both
/// instructions before anything else if the launch has the flag, so a kernel's own code runs after all
/// of its predecessors, as with an ordinary edge.
///
/// The two instructions cost each work-group some time, which a kernel of many rounds of work-groups
/// never gets back; so a launch overlaps only if the device can hold all of its work-groups twice: beside
/// those of a kernel before it that is as large.
/// `WAKEGRAPH_CUDA_OVERLAP` is `never` to have none overlap, and `always` to have all that can.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OverlapPolicy {
    Never,
    /// For launches that fit on the device beside another that is as large.
    IfSmall,
    Always,
}

impl OverlapPolicy {
    /// The environment's choice, on a device of this compute capability.
    fn of(driver: &Driver, compute_capability: u32) -> Self {
        match std::env::var("WAKEGRAPH_CUDA_OVERLAP").as_deref() {
            _ if compute_capability < OVERLAP_CAPABILITY || driver.cuGraphAddNode.is_none() => Self::Never,
            Ok("never") => Self::Never,
            Ok("always") => Self::Always,
            Ok(value) => {
                let why = "WAKEGRAPH_CUDA_OVERLAP is neither `never` nor `always`, and ignored";
                tracing::warn!(target: "wakegraph::cuda", value, "{why}");
                Self::IfSmall
            }
            Err(_) => Self::IfSmall,
        }
    }
}

/// The first driver that takes the kernels of `condition.ptx`, which decide about conditional
/// nodes.
const CONDITIONALS: c_int = 12_040;
/// The first driver with conditional nodes of more than one body.
const CONDITIONALS_WITH_ELSE: c_int = 12_080;

/// The commands that a graph can hold.
fn commands(driver: &Driver, version: c_int) -> CommandKinds {
    let all = CommandKinds::RECORDABLE;
    let conditionals = driver.cuGraphAddNode.is_some() && driver.cuGraphConditionalHandleCreate.is_some();
    match version {
        CONDITIONALS_WITH_ELSE.. if conditionals => all,
        CONDITIONALS.. if conditionals => all - CommandKinds::SWITCH,
        _ => all - CommandKinds::CONTROL,
    }
}

fn info(context: &CudaContext, version: c_int) -> Result<DeviceInfo, CudaFailure> {
    let (driver, device) = (context.driver, context.device);
    let name = context::name(driver, device)?;
    // SAFETY: the driver gave the device.
    let memory: usize = unsafe { get!(driver, cuDeviceTotalMem(device)) }?;
    Ok(DeviceInfo {
        id: DeviceId::unique(),
        backend: "cuda",
        selector: context.health.selector().into(),
        name,
        driver: format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        memory: memory as u64,
        compute_units: context.compute_units()?,
    })
}
