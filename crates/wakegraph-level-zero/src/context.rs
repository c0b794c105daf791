//! An opened device, which all its objects share and keep alive.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::device_context::DeviceContext;
use wakegraph_hal::support::health::DeviceHealth;
use wakegraph_hal::support::program_cache::ProgramCache;
use wakegraph_hal::{Capabilities, ClockSample, DeviceId, DeviceInfo, Error, Result};

use super::clock::LevelZeroClock;
use super::driver::{self, DriverDevice};
use super::event_pool::EventPools;
use super::features::{self, LevelZeroFeatures};
use super::immediate_pool::ImmediatePool;
use super::options::{LevelZeroOptions, Lowering};
use super::sys::{self, Api, CommandList, CommandQueue, Context, DriverResult, Module, Owned, call, get};

/// An opened device. The fields are dropped in this order, the driver's context last.
#[derive(Debug)]
pub(super) struct LevelZeroContext {
    pub(super) api: &'static Api,
    pub(super) device: sys::ze_device_handle_t,
    pub(super) found: DriverDevice,
    pub(super) info: DeviceInfo,
    pub(super) capabilities: Capabilities,
    pub(super) features: LevelZeroFeatures,
    pub(super) options: LevelZeroOptions,
    /// How this device's command-buffers are lowered.
    pub(super) lowering: Lowering,
    /// `maxMemAllocSize`: larger allocations need relaxed limits.
    pub(super) strict_allocation: usize,
    /// The vendor's number of the device, for which sources are compiled.
    pub(super) product: u32,
    /// The modules by their code (`program.rs`).
    pub(super) modules: ProgramCache<Vec<u8>, Owned<Module>>,
    pub(super) health: DeviceHealth,
    clock: LevelZeroClock,
    /// Whether this device may use the memory of the devices with these handles.
    peers: Mutex<HashMap<usize, bool>>,
    /// For the backend's own fills and copies, once one has been needed.
    service: Mutex<Option<Service>>,
    /// The driver's events that are not in use (`event_pool.rs`).
    pub(super) events: EventPools,
    /// The immediate lists that no queue uses. After the events.
    pub(super) immediate_lists: ImmediatePool,
    /// The driver's context, which all devices of the driver share.
    raw: Arc<Owned<Context>>,
}

// SAFETY: the driver takes its handles on any thread, and the service list is behind a lock.
unsafe impl Send for LevelZeroContext {}
// SAFETY: as for `Send`.
unsafe impl Sync for LevelZeroContext {}

/// A list that is recorded for each use, and the queue on which it runs. An immediate list would
/// do, but the loader's validation layer refuses commands on one.
#[derive(Debug)]
struct Service {
    list: Owned<CommandList>,
    queue: Owned<CommandQueue>,
}

impl Service {
    fn create(context: &LevelZeroContext) -> DriverResult<Self> {
        let (api, raw, device) = (context.api, context.raw(), context.device);
        let mut desc = sys::ze_command_queue_desc_t::new();
        desc.ordinal = context.features.compute.ordinal;
        desc.mode = sys::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS;
        // SAFETY: context and device are of one driver.
        let queue = unsafe { get!(api, zeCommandQueueCreate(raw, device, &raw const desc)) }?;
        // SAFETY: the driver has just created the queue for this object.
        let queue = unsafe { Owned::new(api, queue) };
        let mut desc = sys::ze_command_list_desc_t::new();
        desc.commandQueueGroupOrdinal = context.features.compute.ordinal;
        // SAFETY: context and device are of one driver.
        let list = unsafe { get!(api, zeCommandListCreate(raw, device, &raw const desc)) }?;
        // SAFETY: the driver has just created the list for this object.
        Ok(Self { list: unsafe { Owned::new(api, list) }, queue })
    }

    fn run(
        &self,
        api: &Api,
        append: impl FnOnce(&Api, sys::ze_command_list_handle_t) -> DriverResult,
    ) -> DriverResult {
        let (mut list, queue) = (self.list.raw(), self.queue.raw());
        // SAFETY: the last use of the list is over, and the caller holds the lock.
        unsafe { call!(api, zeCommandListReset(list)) }?;
        append(api, list)?;
        // SAFETY: as above.
        unsafe { call!(api, zeCommandListClose(list)) }?;
        let (lists, no_fence) = (&raw mut list, ptr::null_mut());
        // SAFETY: one closed list, which is not in use.
        unsafe { call!(api, zeCommandQueueExecuteCommandLists(queue, 1, lists, no_fence)) }?;
        // SAFETY: the queue is alive.
        let synchronize = || unsafe { call!(api, zeCommandQueueSynchronize(queue, u64::MAX)) };
        synchronize().inspect_err(|_| {
            // The list uses memory that the caller frees after an error.
            let _ = synchronize();
        })
    }
}

/// Capacity of the cache of modules.
const MODULES: usize = 256;

impl DeviceContext for LevelZeroContext {
    fn id(&self) -> DeviceId {
        self.info.id
    }
}

impl LevelZeroContext {
    pub(super) fn new(found: DriverDevice, selector: String, options: LevelZeroOptions) -> Result<Self> {
        let (driver, health) = (found.driver, DeviceHealth::new(selector.clone()));
        let properties = found.properties()?;
        let memory = features::memory(found)?;
        let features = LevelZeroFeatures::read(found, &options)?;
        let clock = LevelZeroClock::new(found, &properties);
        // A driver that cannot read its clock has no times, and works otherwise.
        let profiling = clock.now(found).is_ok();
        let can_append = features.immediate_append && features.in_order_lists;
        let lowering = match options.lowering {
            Some(Lowering::Append) | None if can_append => Lowering::Append,
            _ => Lowering::Execute,
        };
        let units = u64::from(properties.numSlices)
            * u64::from(properties.numSubslicesPerSlice)
            * u64::from(properties.numEUsPerSubslice);
        let info = DeviceInfo {
            id: DeviceId::unique(),
            backend: "level_zero",
            selector,
            name: driver::text(&properties.name),
            driver: driver.name.clone(),
            memory,
            compute_units: usize::try_from(units).unwrap_or(usize::MAX),
        };
        Ok(Self {
            api: driver.api,
            device: found.raw,
            found,
            info,
            capabilities: Capabilities {
                progress: options.progress,
                ..features::capabilities(found, &features, &properties, memory, profiling)?
            },
            features,
            options,
            lowering,
            strict_allocation: usize::try_from(properties.maxMemAllocSize).unwrap_or(usize::MAX),
            product: properties.deviceId,
            modules: ProgramCache::new(MODULES),
            health,
            clock,
            peers: Mutex::default(),
            service: Mutex::default(),
            events: EventPools::new(),
            immediate_lists: ImmediatePool::default(),
            raw: driver.context()?,
        })
    }

    /// The driver's context.
    pub(super) fn raw(&self) -> sys::ze_context_handle_t {
        self.raw.raw()
    }

    /// Whether both devices are of one driver: they share memory and events.
    pub(super) fn shares_memory_with(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }

    /// Whether this device's queues can wait for the events of `other`. A closed list, which is how
    /// the one lowering waits, takes no counting event, which is what the other signals.
    pub(super) fn can_wait_for(&self, other: &Self) -> bool {
        self.shares_memory_with(other) && self.lowering == other.lowering
    }

    /// Whether commands on this device can use the memory of `owner`, a device of the same driver.
    pub(super) fn can_access(&self, owner: &Self) -> bool {
        if self.device == owner.device {
            return true;
        }
        let mut peers = self.peers.lock();
        *peers.entry(owner.device.addr()).or_insert_with(|| {
            // SAFETY: the driver gave both devices.
            let can = unsafe { get!(self.api, zeDeviceCanAccessPeer(self.device, owner.device)) };
            can.is_ok_and(|can: sys::ze_bool_t| can != 0)
        })
    }

    /// Has `append` record a list, executes it, and returns when that is done.
    pub(super) fn service(
        &self,
        append: impl FnOnce(&Api, sys::ze_command_list_handle_t) -> DriverResult,
    ) -> DriverResult {
        let mut service = self.service.lock();
        let service = match &*service {
            Some(service) => service,
            None => service.insert(Service::create(self)?),
        };
        service.run(self.api, append)
    }

    /// Names the device in the error, and remembers the first error that says that it is lost.
    #[cold]
    pub(super) fn error(&self, error: impl Into<Error>) -> Error {
        self.health.error(error)
    }

    /// Whether the device is known to be lost, and if so, why.
    pub(super) fn health(&self) -> Result<()> {
        self.health.status()
    }

    /// Whether the device works, and if not, why.
    pub(super) fn status(&self) -> Result<()> {
        self.health.status()?;
        // SAFETY: the driver gave the device.
        match unsafe { call!(self.api, zeDeviceGetStatus(self.device)) } {
            // The function is optional in drivers.
            Ok(()) | Err(sys::LevelZeroFailure { code: sys::ZE_RESULT_ERROR_UNSUPPORTED_FEATURE, .. }) => {
                Ok(())
            }
            Err(failure) => Err(self.error(failure)),
        }
    }

    /// The device's time now, in nanoseconds.
    pub(super) fn now(&self) -> DriverResult<u64> {
        self.clock.now(self.found)
    }

    /// As [`LevelZeroClock::kernel_times`].
    pub(super) fn kernel_times(&self, from: u64, span: u64) -> Option<impl Fn(u64) -> u64> {
        self.clock.kernel_times(from, span)
    }

    pub(super) fn clock(&self) -> DriverResult<ClockSample> {
        ClockSample::between(|| self.now())
    }
}
