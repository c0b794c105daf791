//! The state that all objects of a device share and keep alive, and its memory as the contract has it.
#![expect(unsafe_code, reason = "calls the driver")]

use std::convert::Infallible;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, OnceLock};

use wakegraph_hal::support::streams::{
    DeviceParts, DriverContext as _, MemoryDevice, MemoryStream, PinnedMemories, StreamDevice, StreamMemory,
    stream_capabilities,
};
use wakegraph_hal::{Capabilities, CommandKinds, DeviceId, DeviceInfo, MemoryDesc, Result, UserMemory};

use super::context::{self, HipContext};
use super::error::version_text;
use super::memory::{HipAllocation, HipMemoryPool, register};
use super::program::HipFunction;
use super::sys::{
    self, HipFailure, call, get, hipDeviceAttribute_t, hipErrorPeerAccessAlreadyEnabled,
    hipMemcpyDeviceToHost, hipMemcpyHostToDevice, hipStream_t,
};

/// The private core of the contract's device. The fields are dropped in this
/// order, the context last.
#[derive(Debug)]
pub(super) struct HipDeviceInner {
    /// The architecture that code is compiled for, such as `gfx90a:sramecc+:xnack-`.
    pub(super) architecture: String,
    /// Work-items that the hardware issues together: 32 or 64.
    pub(super) wavefront: usize,
    /// The kernel of [`fill`](super::kernel::fill).
    pub(super) fill: OnceLock<HipFunction>,
    /// The outcome of [`keep_their_values`](super::updates_in_flight::keep_their_values).
    pub(super) keeps_values: OnceLock<bool>,
    pub(super) parts: DeviceParts<HipContext>,
    pub(super) pool: Arc<HipMemoryPool>,
    pub(super) context: Arc<HipContext>,
}

/// Local memory for the gaps between arguments, 15 bytes each.
pub(super) const LOCAL_GAPS: usize = 1024;

impl HipDeviceInner {
    pub(super) fn open(context: HipContext) -> Result<Self> {
        let (driver, context) = (context.driver, Arc::new(context));
        let attribute = |attribute| context.attribute(attribute);
        let three = |attributes: [hipDeviceAttribute_t; 3]| -> Result<[usize; 3], HipFailure> {
            let [x, y, z] = attributes;
            Ok([attribute(x)?, attribute(y)?, attribute(z)?])
        };
        let info = info(&context)?;
        let capabilities = Capabilities {
            max_work_group_size: attribute(sys::hipDeviceAttributeMaxThreadsPerBlock)?,
            max_work_item_sizes: three([
                sys::hipDeviceAttributeMaxBlockDimX,
                sys::hipDeviceAttributeMaxBlockDimY,
                sys::hipDeviceAttributeMaxBlockDimZ,
            ])?,
            max_work_groups: three([
                sys::hipDeviceAttributeMaxGridDimX,
                sys::hipDeviceAttributeMaxGridDimY,
                sys::hipDeviceAttributeMaxGridDimZ,
            ])?,
            // Arguments begin at multiples of 16, so some memory is left for the gaps.
            local_memory: attribute(sys::hipDeviceAttributeMaxSharedMemoryPerBlock)?
                .saturating_sub(LOCAL_GAPS),
            max_allocation: usize::try_from(info.memory).unwrap_or(usize::MAX),
            ..stream_capabilities(commands())
        };
        let wavefront = attribute(sys::hipDeviceAttributeWarpSize)?;
        let pool = Arc::new(HipMemoryPool::create(&context)?);
        Ok(Self {
            architecture: driver.architecture(context.device)?,
            wavefront,
            fill: OnceLock::new(),
            keeps_values: OnceLock::new(),
            parts: DeviceParts::new(info, capabilities, &context)?,
            pool,
            context,
        })
    }

    /// Lets `user` use this device's memory, if the hardware can.
    pub(super) fn open_to(&self, user: &Self) -> Result<bool, HipFailure> {
        let (driver, from, to) = (self.context.driver, user.context.device, self.context.device);
        // The driver says that a device is not its own peer, but another object may be for it.
        if from == to {
            return Ok(true);
        }
        // SAFETY: both devices are open.
        let can_access: c_int = unsafe { get!(driver, hipDeviceCanAccessPeer(from, to)) }?;
        if can_access == 0 {
            return Ok(false);
        }
        let _bound = user.context.bind()?;
        // SAFETY: both devices are open; the flags are reserved.
        match unsafe { call!(driver, hipDeviceEnablePeerAccess(to, 0)) } {
            Err(failure) if failure.code == hipErrorPeerAccessAlreadyEnabled => {}
            outcome => outcome?,
        }
        self.pool.open_to(&user.context)?;
        Ok(true)
    }
}

impl StreamDevice for HipDeviceInner {
    type Context = HipContext;
    type Counted = Infallible;
    type Loops = Infallible;

    fn parts(&self) -> &DeviceParts<HipContext> {
        &self.parts
    }

    fn context(&self) -> &Arc<HipContext> {
        &self.context
    }

    fn memory_stream(&self) -> &MemoryStream<HipContext> {
        &self.pool.stream
    }
}

pub(super) type HipMemory = StreamMemory<HipDeviceInner>;

impl MemoryDevice for HipDeviceInner {
    type Allocation = HipAllocation;

    fn allocate(&self, desc: &MemoryDesc) -> Result<HipAllocation> {
        HipAllocation::create(&self.pool, desc)
    }

    fn register(&self, memory: &UserMemory) -> Result<bool, HipFailure> {
        register(&self.context, memory)
    }

    fn registered(&self, memory: UserMemory) -> HipAllocation {
        HipAllocation::registered(&self.pool, memory)
    }

    fn pinned() -> &'static PinnedMemories<HipAllocation> {
        static PINNED: PinnedMemories<HipAllocation> = PinnedMemories::new();
        &PINNED
    }

    fn trim(&self) -> Result<(), HipFailure> {
        self.pool.trim()
    }

    unsafe fn copy_to_device(
        &self,
        to: u64,
        from: *const u8,
        len: usize,
        stream: hipStream_t,
    ) -> Result<(), HipFailure> {
        let (to, kind) = (ptr::with_exposed_provenance_mut(to as usize), hipMemcpyHostToDevice);
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, hipMemcpyAsync(to, from.cast(), len, kind, stream)) }
    }

    unsafe fn copy_to_host(
        &self,
        to: *mut u8,
        from: u64,
        len: usize,
        stream: hipStream_t,
    ) -> Result<(), HipFailure> {
        let (from, kind) = (ptr::with_exposed_provenance(from as usize), hipMemcpyDeviceToHost);
        // SAFETY: passed on to the caller.
        unsafe { call!(self.context.driver, hipMemcpyAsync(to.cast(), from, len, kind, stream)) }
    }
}

/// The commands that a graph can hold. HIP has no conditional nodes.
fn commands() -> CommandKinds {
    CommandKinds::RECORDABLE - CommandKinds::CONTROL
}

fn info(context: &HipContext) -> Result<DeviceInfo, HipFailure> {
    let (driver, device) = (context.driver, context.device);
    let name = context::name(driver, device)?;
    // SAFETY: the driver gave the device.
    let memory: usize = unsafe { get!(driver, hipDeviceTotalMem(device)) }?;
    Ok(DeviceInfo {
        id: DeviceId::unique(),
        backend: "hip",
        selector: context.health.selector().into(),
        name,
        driver: format!("HIP {}", version_text(context.version)),
        memory: memory as u64,
        compute_units: context.attribute(sys::hipDeviceAttributeMultiprocessorCount)?,
    })
}
