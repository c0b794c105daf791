//! An opened device, which all its objects share and keep alive, and the driver's objects that it
//! keeps to be used again.
//!
//! An event of Intel's driver 26.27 keeps the address of the immediate list that has signalled it. A
//! reset of the event writes there, also when the list has been destroyed. So lists are kept beyond the
//! queues that used them, and are destroyed with the device, after its events.
#![expect(unsafe_code, reason = "calls the driver")]

use std::collections::HashMap;
use std::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use wakegraph_hal::support::errors::{DeviceContext, DeviceHealth};
use wakegraph_hal::support::sources::ProgramCache;
use wakegraph_hal::{
    Capabilities, ClockSample, DeviceId, DeviceInfo, Error, Priority, Progress, Result, setters,
};

use super::driver::{self, DriverDevice, EngineGroup, LevelZeroClock, LevelZeroFeatures};
use super::sys::{
    self, Api, CommandList, CommandQueue, Context, DriverResult, Event, EventPool, Module, Owned, call, get,
};

/// How closed lists reach the device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Lowering {
    /// The list is appended to an immediate list, with its wait list and its signal in the same
    /// call. Needs a driver with `ZE_experimental_immediate_command_list_append`; else as for
    /// `Execute`.
    Append,
    /// The list is executed on a queue between a prefix, which waits, and a suffix, which signals.
    Execute,
}

/// Options with which [`open`](super::open) opens a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LevelZeroOptions {
    pub(super) lowering: Option<Lowering>,
    pub(super) copy_engine: bool,
    progress: Progress,
}

/// Forces a lowering on devices that are opened by their selector.
const LOWERING_VARIABLE: &str = "WAKEGRAPH_LEVEL_ZERO_LOWERING";

impl LevelZeroOptions {
    /// The defaults: lists are appended where the driver can do so, and copies use a copy engine
    /// where there is one.
    pub fn new() -> Self {
        Self { lowering: None, copy_engine: true, progress: Progress::Device }
    }

    /// As [`new`](Self::new), with the lowering that `WAKEGRAPH_LEVEL_ZERO_LOWERING` names:
    /// `append` or `execute`.
    pub(super) fn from_environment() -> Self {
        let variable = LOWERING_VARIABLE;
        let lowering = match std::env::var(variable).unwrap_or_default().as_str() {
            "" => None,
            "append" => Some(Lowering::Append),
            "execute" => Some(Lowering::Execute),
            other => {
                let why = "neither 'append' nor 'execute'";
                tracing::warn!(target: "wakegraph::level_zero", variable, other, why);
                None
            }
        };
        Self { lowering, ..Self::new() }
    }
}

setters! {
    LevelZeroOptions {
        /// Uses this lowering, where the driver has it.
        lowering: Lowering,
        /// Whether copies and fills of out-of-order command-buffers use a copy engine on devices that
        /// have one, which is the default.
        copy_engine: bool,
        /// Sets the party that drives the device's work, by default the device itself. A driver that
        /// computes on the host's cores, as simulators do, needs them while others wait:
        /// [`HostCores`](Progress::HostCores).
        progress: Progress,
    }
}

impl Default for LevelZeroOptions {
    fn default() -> Self {
        Self::new()
    }
}

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
    /// The driver's events that are not in use.
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
        let compute = &context.features.compute;
        let queue = context.create_queue(compute, Priority::Normal)?;
        Ok(Self { list: context.create_list(compute, false, false)?, queue })
    }

    fn run(
        &self,
        api: &Api,
        append: impl FnOnce(&Api, sys::ze_command_list_handle_t) -> DriverResult,
    ) -> DriverResult {
        let (mut list, queue) = (self.list.raw(), self.queue.raw());
        // SAFETY: the last use of the list has ended, and the caller holds the lock.
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
        let memory = found.memory()?;
        let features = LevelZeroFeatures::read(found, options.copy_engine)?;
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
                ..features.capabilities(found, &properties, memory, profiling)?
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
            events: EventPools::default(),
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

    /// Creates a queue that executes closed lists.
    pub(super) fn create_queue(
        &self,
        group: &EngineGroup,
        priority: Priority,
    ) -> DriverResult<Owned<CommandQueue>> {
        let desc = queue_desc(group.ordinal, false, priority);
        // SAFETY: context and device are of one driver, and the structure says what it is.
        let queue =
            unsafe { get!(self.api, zeCommandQueueCreate(self.raw(), self.device, &raw const desc)) }?;
        // SAFETY: the driver has just created the queue for this object.
        Ok(unsafe { Owned::new(self.api, queue) })
    }

    /// Creates a list that is recorded and closed. One that is in order needs no events and no barriers
    /// inside.
    pub(super) fn create_list(
        &self,
        group: &EngineGroup,
        in_order: bool,
        mutable: bool,
    ) -> DriverResult<Owned<CommandList>> {
        let mutability = sys::ze_mutable_command_list_exp_desc_t::new();
        let desc = sys::ze_command_list_desc_t {
            pNext: if mutable { (&raw const mutability).cast() } else { ptr::null() },
            commandQueueGroupOrdinal: group.ordinal,
            flags: if in_order { sys::ZE_COMMAND_LIST_FLAG_IN_ORDER } else { 0 },
            ..sys::ze_command_list_desc_t::new()
        };
        // SAFETY: context and device are of one driver, and the structures say what they are.
        let list = unsafe { get!(self.api, zeCommandListCreate(self.raw(), self.device, &raw const desc)) }?;
        // SAFETY: the driver has just created the list for this object.
        Ok(unsafe { Owned::new(self.api, list) })
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

/// Kind of an event of the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DriverEventKind {
    /// Orders commands on the device. The host reads nothing behind it.
    Inner,
    /// The host may wait for it, and then read what was written before it.
    Plain,
    /// As plain, with the times of the command that signals it.
    Timed,
    /// As plain, for in-order immediate lists. It is never reset: each signal counts on. Before the first
    /// signal it is complete.
    Counting,
}

/// Number of events of a pool.
const POOL_SIZE: u32 = 64;

/// The events of a device that are not in use.
#[derive(Debug, Default)]
pub(super) struct EventPools([Mutex<FreeEvents>; 4]);

#[derive(Debug, Default)]
struct FreeEvents {
    /// Events that may be signalled. Dropped before the pools that they are of.
    free: Vec<Owned<Event>>,
    pools: Vec<Owned<EventPool>>,
    /// Number of events that the newest pool can still give.
    left: u32,
}

impl EventPools {
    /// An event, and whether it may be signalled already.
    pub(super) fn take(
        &self,
        context: &LevelZeroContext,
        kind: DriverEventKind,
    ) -> DriverResult<(Owned<Event>, bool)> {
        let mut events = self.0[kind as usize].lock();
        match events.free.pop() {
            Some(event) => Ok((event, true)),
            None => Ok((create_event(context, kind, &mut events)?, false)),
        }
    }

    /// Takes an event back. Nothing is going to signal it, and nothing waits for it.
    pub(super) fn give_back(&self, event: Owned<Event>, kind: DriverEventKind) {
        self.0[kind as usize].lock().free.push(event);
    }
}

fn create_event(
    context: &LevelZeroContext,
    kind: DriverEventKind,
    events: &mut FreeEvents,
) -> DriverResult<Owned<Event>> {
    const HOST: sys::ze_event_scope_flags_t = sys::ZE_EVENT_SCOPE_FLAG_HOST;
    let (api, raw, device) = (context.api, context.raw(), context.device);
    if kind == DriverEventKind::Counting {
        let flags =
            sys::ZE_EVENT_COUNTER_BASED_FLAG_IMMEDIATE | sys::ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE;
        let desc = sys::ze_event_counter_based_desc_t {
            flags,
            signal: HOST,
            wait: HOST,
            ..sys::ze_event_counter_based_desc_t::new()
        };
        // SAFETY: context and device are alive, and the structure says what it is.
        let event = unsafe { get!(api, zeEventCounterBasedCreate(raw, device, &raw const desc)) }?;
        // SAFETY: the driver has just created the event for this object.
        return Ok(unsafe { Owned::new(api, event) });
    }
    if events.left == 0 {
        let timed = if kind == DriverEventKind::Timed { sys::ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP } else { 0 };
        let desc = sys::ze_event_pool_desc_t {
            flags: sys::ZE_EVENT_POOL_FLAG_HOST_VISIBLE | timed,
            count: POOL_SIZE,
            ..sys::ze_event_pool_desc_t::new()
        };
        let everywhere = ptr::null_mut();
        // SAFETY: the context is alive; without a list of devices the events are for all of the context's.
        let pool = unsafe { get!(api, zeEventPoolCreate(raw, &raw const desc, 0, everywhere)) }?;
        // SAFETY: the driver has just created the pool for this object.
        events.pools.push(unsafe { Owned::new(api, pool) });
        events.left = POOL_SIZE;
    }
    let Some(pool) = events.pools.last() else {
        return Err(sys::LevelZeroFailure { call: "zeEventPoolCreate", code: sys::ZE_RESULT_ERROR_UNKNOWN });
    };
    let scope = if kind == DriverEventKind::Inner { sys::ZE_EVENT_SCOPE_FLAG_DEVICE } else { HOST };
    let desc = sys::ze_event_desc_t {
        index: events.left - 1,
        signal: scope,
        wait: scope,
        ..sys::ze_event_desc_t::new()
    };
    // SAFETY: the pool is alive and locked, and no other event has the index.
    let event = unsafe { get!(api, zeEventCreate(pool.raw(), &raw const desc)) }?;
    events.left -= 1;
    // SAFETY: the driver has just created the event for this object.
    Ok(unsafe { Owned::new(api, event) })
}

/// Description of a queue or an immediate list.
pub(super) fn queue_desc(ordinal: u32, in_order: bool, priority: Priority) -> sys::ze_command_queue_desc_t {
    sys::ze_command_queue_desc_t {
        ordinal,
        flags: if in_order { sys::ZE_COMMAND_QUEUE_FLAG_IN_ORDER } else { 0 },
        mode: sys::ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS,
        priority: match priority {
            Priority::High => sys::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_HIGH,
            Priority::Normal => sys::ZE_COMMAND_QUEUE_PRIORITY_NORMAL,
            Priority::Low => sys::ZE_COMMAND_QUEUE_PRIORITY_PRIORITY_LOW,
        },
        ..sys::ze_command_queue_desc_t::new()
    }
}

/// Purpose of an immediate list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ImmediateKind {
    /// The group of engines that runs it.
    pub(super) ordinal: u32,
    pub(super) in_order: bool,
    pub(super) priority: Priority,
}

/// The immediate lists of a device that no queue uses. What they were given may still be in flight.
#[derive(Debug, Default)]
pub(super) struct ImmediatePool(Mutex<Vec<(ImmediateKind, Owned<CommandList>)>>);

impl ImmediatePool {
    pub(super) fn take(&self, kind: ImmediateKind) -> Option<Owned<CommandList>> {
        let mut free = self.0.lock();
        let found = free.iter().rposition(|(other, _)| *other == kind)?;
        Some(free.swap_remove(found).1)
    }

    pub(super) fn give_back(&self, kind: ImmediateKind, list: Owned<CommandList>) {
        self.0.lock().push((kind, list));
    }
}
