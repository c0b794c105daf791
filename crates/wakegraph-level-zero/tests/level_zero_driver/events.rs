//! Event pools and events: those that are reset before they are used again, and those that count.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::Outcome;
use crate::faults;
use crate::misuse::misuse;
use crate::objects::{Exclusive, Flags, Handle};
use crate::pointers::{find, read, write};
use crate::state::{State, lock, shared};
use crate::types::*;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) context: Handle,
    is_host_visible: bool,
    has_times: bool,
    counts: bool,
    /// For each index, whether an event has it.
    places: Vec<bool>,
}

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Handle,
    /// The pool, and the place in it.
    place: Option<(Handle, usize)>,
    is_host_visible: bool,
    has_times: bool,
    /// Signals and waits reach the host's memory.
    is_in_host_scope: bool,
    pub(crate) signal: SignalState,
    /// The commands in flight that wait for it, signal it or reset it.
    pub(crate) uses: usize,
    /// Start and end of the command that has signalled it last, and the device that has.
    pub(crate) times: Option<(u64, u64, Handle)>,
}

#[derive(Debug)]
pub(crate) enum SignalState {
    Flag(bool),
    /// The last command that signals it, if there has been any.
    Counter(Option<Arc<Token>>),
}

/// One signal of an event that counts.
#[derive(Default, Debug)]
pub(crate) struct Token(AtomicBool);

impl Token {
    pub(crate) fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn finish(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The events of which a poll by the host has nothing to report. So a loop of polls does not keep the lock
/// from the threads that it waits for.
static PENDING: Flags = Flags::new();

impl Event {
    /// Publishes a change of its state.
    pub(crate) fn publish(&self, own: Handle) {
        PENDING.set(own, self.is_host_visible && self.is_in_host_scope && !self.is_complete());
    }

    pub(crate) fn is_complete(&self) -> bool {
        match &self.signal {
            SignalState::Flag(is_set) => *is_set,
            SignalState::Counter(token) => token.as_ref().is_none_or(|token| token.is_done()),
        }
    }
}

pub(crate) fn create_pool(
    state: &mut State,
    context: ze_context_handle_t,
    desc: *const ze_event_pool_desc_t,
    to: *mut ze_event_pool_handle_t,
) -> Outcome {
    let preset = state.preset_of(context as Handle);
    let desc = read(desc)?;
    if desc.count == 0 {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    let counters: Option<ze_event_pool_counter_based_exp_desc_t> =
        find(desc.pNext, ZE_STRUCTURE_TYPE_COUNTER_BASED_EVENT_POOL_EXP_DESC);
    let has = |flag| desc.flags & flag != 0;
    let pool = state.pools.add(Pool {
        context: context as Handle,
        is_host_visible: has(ZE_EVENT_POOL_FLAG_HOST_VISIBLE),
        has_times: has(ZE_EVENT_POOL_FLAG_KERNEL_TIMESTAMP | ZE_EVENT_POOL_FLAG_KERNEL_MAPPED_TIMESTAMP),
        // A driver that has no such pools makes an ordinary one.
        counts: counters.is_some() && preset.counter_based,
        places: vec![false; desc.count as usize],
    });
    write(to, pool as ze_event_pool_handle_t)
}

pub(crate) fn destroy_pool(state: &mut State, pool: ze_event_pool_handle_t) -> Outcome {
    let _guard = Exclusive::use_of(pool as Handle, "event pool");
    if state.pools.get(pool as Handle).places.contains(&true) {
        misuse!("the pool has events");
    }
    state.pools.remove(pool as Handle);
    Ok(())
}

pub(crate) fn create(
    state: &mut State,
    pool_handle: ze_event_pool_handle_t,
    desc: *const ze_event_desc_t,
    to: *mut ze_event_handle_t,
) -> Outcome {
    let desc = read(desc)?;
    let pool = state.pools.get(pool_handle as Handle);
    match pool.places.get_mut(desc.index as usize) {
        Some(is_taken @ false) => *is_taken = true,
        Some(true) => misuse!("the pool has an event with index {}", desc.index),
        None => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
    }
    let signal = if pool.counts { SignalState::Counter(None) } else { SignalState::Flag(false) };
    let event = state.events.add(Event {
        context: pool.context,
        place: Some((pool_handle as Handle, desc.index as usize)),
        is_host_visible: pool.is_host_visible,
        has_times: pool.has_times,
        is_in_host_scope: desc.signal & ZE_EVENT_SCOPE_FLAG_HOST != 0,
        signal,
        uses: 0,
        times: None,
    });
    state.events.get(event).publish(event);
    write(to, event as ze_event_handle_t)
}

pub(crate) fn create_counter(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_event_counter_based_desc_t,
    to: *mut ze_event_handle_t,
) -> Outcome {
    if !state.preset_of(context as Handle).counter_based {
        misuse!("the driver has no events that count");
    }
    state.devices.get(device as Handle);
    let desc = read(desc)?;
    let times = ZE_EVENT_COUNTER_BASED_FLAG_DEVICE_TIMESTAMP | ZE_EVENT_COUNTER_BASED_FLAG_HOST_TIMESTAMP;
    let event = state.events.add(Event {
        context: context as Handle,
        place: None,
        is_host_visible: desc.flags & ZE_EVENT_COUNTER_BASED_FLAG_HOST_VISIBLE != 0,
        has_times: desc.flags & times != 0,
        is_in_host_scope: desc.signal & ZE_EVENT_SCOPE_FLAG_HOST != 0,
        signal: SignalState::Counter(None),
        uses: 0,
        times: None,
    });
    write(to, event as ze_event_handle_t)
}

pub(crate) fn destroy(state: &mut State, event: ze_event_handle_t) -> Outcome {
    let _guard = Exclusive::use_of(event as Handle, "event");
    if state.events.get(event as Handle).uses > 0 {
        misuse!("a command in flight uses the event");
    }
    PENDING.set(event as Handle, false);
    if let Some((pool, index)) = state.events.remove(event as Handle).place {
        state.pools.get(pool).places[index] = false;
    }
    Ok(())
}

pub(crate) fn signal(state: &mut State, event: ze_event_handle_t) -> Outcome {
    match &mut state.events.get(event as Handle).signal {
        SignalState::Counter(_) => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        SignalState::Flag(flag) => *flag = true,
    }
    state.events.get(event as Handle).publish(event as Handle);
    state.settle(event as Handle);
    Ok(())
}

pub(crate) fn reset(state: &mut State, handle: ze_event_handle_t) -> Outcome {
    let event = state.events.get(handle as Handle);
    match &mut event.signal {
        SignalState::Counter(_) => return Err(ZE_RESULT_ERROR_UNSUPPORTED_FEATURE),
        SignalState::Flag(_) if event.uses > 0 => misuse!("a command in flight uses the event"),
        SignalState::Flag(flag) => *flag = false,
    }
    event.publish(handle as Handle);
    Ok(())
}

fn host_status(state: &mut State, handle: Handle) -> Outcome {
    let event = state.events.get(handle);
    if !event.is_host_visible || !event.is_in_host_scope {
        misuse!("the host cannot see the event, or not what came before it");
    }
    if event.is_complete() {
        return Ok(());
    }
    let context = event.context;
    state.fail_if_any_lost(context)?;
    Err(ZE_RESULT_NOT_READY)
}

pub(crate) fn status(state: &mut State, event: ze_event_handle_t) -> Outcome {
    host_status(state, event as Handle)
}

/// Waits without holding the lock.
pub(crate) fn synchronize(event: ze_event_handle_t, timeout: u64) -> Outcome {
    if timeout == 0 && PENDING.get(event as Handle) && !faults::any() {
        return Err(ZE_RESULT_NOT_READY);
    }
    wait_until(timeout, |state| host_status(state, event as Handle))
}

/// Asks again until there is another answer than `NOT_READY`, or so many nanoseconds are over.
pub(crate) fn wait_until(timeout: u64, mut ask: impl FnMut(&mut State) -> Outcome) -> Outcome {
    let end = Instant::now().checked_add(Duration::from_nanos(timeout));
    let mut state = lock();
    loop {
        let answer = ask(&mut state);
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if answer != Err(ZE_RESULT_NOT_READY) || timeout == 0 || left == Some(Duration::ZERO) {
            return answer;
        }
        state = match left {
            Some(left) if timeout != u64::MAX => shared().host.wait_timeout(state, left).unwrap().0,
            _ => shared().host.wait(state).unwrap(),
        };
    }
}

pub(crate) fn timestamps(state: &mut State, event: Handle) -> Outcome<ze_kernel_timestamp_result_t> {
    let event = state.events.get(event);
    if !event.has_times {
        misuse!("the event has no times");
    }
    if !event.is_complete() {
        return Err(ZE_RESULT_NOT_READY);
    }
    let (start, end, device) = event.times.ok_or(ZE_RESULT_NOT_READY)?;
    let device = state.devices.get(device);
    let data = ze_kernel_timestamp_data_t {
        kernelStart: device.kernel_cycles(start),
        kernelEnd: device.kernel_cycles(end),
    };
    Ok(ze_kernel_timestamp_result_t { global: data, context: data })
}

pub(crate) fn query_timestamp(
    state: &mut State,
    event: ze_event_handle_t,
    to: *mut ze_kernel_timestamp_result_t,
) -> Outcome {
    let times = timestamps(state, event as Handle)?;
    write(to, times)
}
