//! All that the driver knows, behind one lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::time::Instant;

use crate::Outcome;
use crate::devices::{Context, Device, Driver};
use crate::engine::Engine;
use crate::events::{Event, Pool};
use crate::faults::{Faults, hexadecimal};
use crate::kernels::{Kernel, Module};
use crate::lists::List;
use crate::memory::Space;
use crate::objects::{Handle, Objects};
use crate::presets::Preset;
use crate::queues::Queue;
use crate::types::*;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) is_initialized: bool,
    pub(crate) drivers: Objects<Driver>,
    pub(crate) devices: Objects<Device>,
    pub(crate) contexts: Objects<Context>,
    pub(crate) pools: Objects<Pool>,
    pub(crate) events: Objects<Event>,
    pub(crate) modules: Objects<Module>,
    pub(crate) logs: Objects<String>,
    pub(crate) kernels: Objects<Kernel>,
    pub(crate) lists: Objects<List>,
    pub(crate) queues: Objects<Queue>,
    pub(crate) memory: Space,
    pub(crate) engine: Engine,
    pub(crate) faults: Faults,
    pub(crate) device_id: u32,
}

/// The lock, and who waits for something to change.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Threads of the program, for an event or a queue.
    pub(crate) host: Condvar,
    /// Threads that carry out commands, for one that is ready.
    pub(crate) work: Condvar,
}

static SHARED: LazyLock<Shared> = LazyLock::new(|| {
    let mut state = State {
        is_initialized: false,
        drivers: Objects::new("driver"),
        devices: Objects::new("device"),
        contexts: Objects::new("context"),
        pools: Objects::new("event pool"),
        events: Objects::new("event"),
        modules: Objects::new("module"),
        logs: Objects::new("build log"),
        kernels: Objects::new("kernel"),
        lists: Objects::new("command list"),
        queues: Objects::new("command queue"),
        memory: Space::reserve(),
        engine: Engine::default(),
        faults: Faults::from_environment(),
        device_id: std::env::var("WAKEGRAPH_LZ_DEVICE_ID")
            .ok()
            .and_then(|id| hexadecimal(&id))
            .unwrap_or(0x1912),
    };
    for preset in Preset::chosen() {
        crate::devices::add(&mut state, preset);
    }
    Shared { state: Mutex::new(state), host: Condvar::new(), work: Condvar::new() }
});

pub(crate) fn shared() -> &'static Shared {
    &SHARED
}

/// The state, for as long as the guard lives.
pub(crate) fn lock() -> MutexGuard<'static, State> {
    SHARED.state.lock().unwrap_or_else(|_| std::process::abort())
}

impl State {
    /// How many objects and allocations there are that the program has to destroy.
    pub(crate) fn live(&self) -> usize {
        let lists = [self.lists.len(), self.queues.len(), self.pools.len(), self.events.len()];
        let others = [self.contexts.len(), self.modules.len(), self.logs.len(), self.kernels.len()];
        lists.iter().chain(&others).sum::<usize>() + self.memory.count()
    }

    pub(crate) fn fail_if_lost(&mut self, device: Handle) -> Outcome {
        if self.devices.get(device).is_lost { Err(ZE_RESULT_ERROR_DEVICE_LOST) } else { Ok(()) }
    }

    /// Fails if a device of the context's driver is lost.
    pub(crate) fn fail_if_any_lost(&mut self, context: Handle) -> Outcome {
        let driver = self.contexts.get(context).preset;
        let is_lost = self.devices.iter().any(|(_, device)| device.preset == driver && device.is_lost);
        if is_lost { Err(ZE_RESULT_ERROR_DEVICE_LOST) } else { Ok(()) }
    }

    pub(crate) fn preset_of(&mut self, context: Handle) -> Preset {
        let preset = self.contexts.get(context).preset;
        self.drivers.get(preset).preset
    }
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds since the driver's start.
pub(crate) fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

static SEED: LazyLock<u64> = LazyLock::new(|| {
    let given = std::env::var("WAKEGRAPH_LZ_SEED").ok().and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(|| {
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        time.map_or(1, |time| u64::from(time.subsec_nanos())) ^ u64::from(std::process::id()) << 32
    })
});

pub(crate) fn seed() -> u64 {
    *SEED
}

/// A random number below `limit`, which is not 0.
pub(crate) fn random(limit: u64) -> u64 {
    static DRAWS: AtomicU64 = AtomicU64::new(0);
    // SplitMix64 of a counter.
    let draw = DRAWS.fetch_add(1, Ordering::Relaxed);
    let mut z = seed().wrapping_add(draw.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) % limit
}

/// True once in so many times.
pub(crate) fn chance(one_in: u64) -> bool {
    random(one_in) == 0
}
