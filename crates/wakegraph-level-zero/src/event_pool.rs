//! Pools of the driver's events that are not in use.
#![expect(unsafe_code, reason = "calls the driver")]

use std::ptr;

use parking_lot::Mutex;

use super::sys::{self, Api, DriverResult, Event, EventPool, Owned, get};

/// What an event of the driver can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DriverEventKind {
    /// Orders commands on the device. The host reads nothing behind it.
    Inner,
    /// The host may wait for it, and then read what was written before it.
    Plain,
    /// That, with the times of the command that signals it.
    Timed,
    /// As plain, for in-order immediate lists. It is never reset: each signal counts on. Before the first
    /// signal it is complete.
    Counting,
}

/// Where events are created.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventPlace {
    pub(super) api: &'static Api,
    pub(super) context: sys::ze_context_handle_t,
    pub(super) device: sys::ze_device_handle_t,
}

/// Number of events of a pool.
const POOL_SIZE: u32 = 64;

/// The events of a device that are not in use.
#[derive(Debug)]
pub(super) struct EventPools {
    kinds: [Mutex<FreeEvents>; 4],
}

#[derive(Debug, Default)]
struct FreeEvents {
    /// They may be signalled. Dropped before the pools that they are of.
    free: Vec<Owned<Event>>,
    pools: Vec<Owned<EventPool>>,
    /// Number of events that the newest pool can still give.
    left: u32,
}

impl EventPools {
    pub(super) fn new() -> Self {
        Self { kinds: std::array::from_fn(|_| Mutex::default()) }
    }

    /// An event, and whether it may be signalled already.
    pub(super) fn take(
        &self,
        place: EventPlace,
        kind: DriverEventKind,
    ) -> DriverResult<(Owned<Event>, bool)> {
        let mut events = self.kinds[kind as usize].lock();
        match events.free.pop() {
            Some(event) => Ok((event, true)),
            None => Ok((create(place, kind, &mut events)?, false)),
        }
    }

    /// Takes an event back. Nothing is going to signal it, and nothing waits for it.
    pub(super) fn give_back(&self, event: Owned<Event>, kind: DriverEventKind) {
        self.kinds[kind as usize].lock().free.push(event);
    }
}

fn create(place: EventPlace, kind: DriverEventKind, events: &mut FreeEvents) -> DriverResult<Owned<Event>> {
    const HOST: sys::ze_event_scope_flags_t = sys::ZE_EVENT_SCOPE_FLAG_HOST;
    let EventPlace { api, context: raw, device } = place;
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
