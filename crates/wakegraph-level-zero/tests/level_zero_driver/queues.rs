//! Command queues, and lists that are handed over.

use crate::Outcome;
use crate::commands::Events;
use crate::engine::{NodeId, Target};
use crate::events::{SignalState, wait_until};
use crate::lists::{at_rest, check_group_exists};
use crate::misuse::misuse;
use crate::objects::{Exclusive, Handle};
use crate::pointers::{list, read, write};
use crate::state::State;
use crate::types::*;

#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) context: Handle,
    device: Handle,
    ordinal: u32,
    is_synchronous: bool,
}

pub(crate) fn create(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_command_queue_desc_t,
    to: *mut ze_command_queue_handle_t,
) -> Outcome {
    let (context, device, desc) = (context as Handle, device as Handle, read(desc)?);
    state.contexts.get(context);
    state.fail_if_lost(device)?;
    check_group_exists(state, device, desc.ordinal, desc.index);
    let is_synchronous = desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS;
    let queue = state.queues.add(Queue { context, device, ordinal: desc.ordinal, is_synchronous });
    state.engine.open(queue);
    write(to, queue as ze_command_queue_handle_t)
}

pub(crate) fn destroy(state: &mut State, queue: ze_command_queue_handle_t) -> Outcome {
    let queue = queue as Handle;
    let _guard = Exclusive::use_of(queue, "command queue");
    state.queues.get(queue);
    if !state.engine.is_idle(queue) {
        misuse!("the queue has commands in flight");
    }
    state.queues.remove(queue);
    state.engine.close(queue);
    Ok(())
}

/// Closed lists at rest, of this context and engine group, each once.
fn check_lists(state: &mut State, lists: &[Handle], context: Handle, ordinal: u32) -> Outcome {
    if lists.is_empty() {
        return Err(ZE_RESULT_ERROR_INVALID_SIZE);
    }
    for (i, handle) in lists.iter().enumerate() {
        let list = at_rest(state, *handle);
        if !list.is_closed {
            misuse!("list {i} is not closed");
        }
        if lists[..i].contains(handle) {
            misuse!("list {i} is there twice");
        }
        if list.context != context {
            misuse!("list {i} is of another context");
        }
        if list.ordinal != ordinal {
            misuse!("list {i} is for engine group {}, not {ordinal}", list.ordinal);
        }
    }
    Ok(())
}

pub(crate) fn execute(
    state: &mut State,
    queue: ze_command_queue_handle_t,
    count: u32,
    lists: *mut ze_command_list_handle_t,
    fence: ze_fence_handle_t,
) -> Outcome<Option<(Handle, Handle)>> {
    if !fence.is_null() {
        misuse!("this driver has no fences");
    }
    let Queue { context, device, ordinal, is_synchronous } = *state.queues.get(queue as Handle);
    state.fail_if_lost(device)?;
    let lists: Vec<Handle> = list(lists.cast_const(), count as usize)?.iter().map(|l| *l as Handle).collect();
    check_lists(state, &lists, context, ordinal)?;
    let to = Target { device, context, stream: queue as Handle, in_order: false };
    state.execute(to, &lists, Vec::new(), None);
    Ok(is_synchronous.then_some((queue as Handle, device)))
}

pub(crate) fn append(
    state: &mut State,
    immediate: ze_command_list_handle_t,
    (count, lists): (u32, *mut ze_command_list_handle_t),
    signal: ze_event_handle_t,
    (waits, events): (u32, *mut ze_event_handle_t),
) -> Outcome {
    let stream = immediate as Handle;
    let list_object = state.lists.get(stream);
    let (context, device, ordinal) = (list_object.context, list_object.device, list_object.ordinal);
    let in_order = list_object.in_order;
    if !list_object.is_immediate {
        misuse!("the list is not immediate");
    }
    state.fail_if_lost(device)?;
    if !state.devices.get(device).api.immediate_append {
        misuse!("the driver cannot append lists");
    }
    let lists: Vec<Handle> = list(lists.cast_const(), count as usize)?.iter().map(|l| *l as Handle).collect();
    check_lists(state, &lists, context, ordinal)?;
    let events = Events::read(state, context, signal, waits, events)?;
    if let Some(signal) = events.signal
        && !in_order
        && matches!(state.events.get(signal).signal, SignalState::Counter(_))
    {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    state.execute(Target { device, context, stream, in_order }, &lists, events.waits, events.signal);
    Ok(())
}

/// Guards an immediate list during an append.
pub(crate) fn exclusive(list: ze_command_list_handle_t) -> Exclusive {
    Exclusive::use_of(list as Handle, "command list")
}

/// Waits until a stream is idle, or until one of its commands is over.
pub(crate) fn wait_for(stream: Handle, device: Handle, timeout: u64, command: Option<NodeId>) -> Outcome {
    wait_until(timeout, |state| {
        if command.map_or(state.engine.is_idle(stream), |id| state.engine.is_over(id)) {
            return state.fail_if_lost(device);
        }
        state.fail_if_lost(device)?;
        Err(ZE_RESULT_NOT_READY)
    })
}

pub(crate) fn synchronize(queue: ze_command_queue_handle_t, timeout: u64) -> Outcome {
    let device = crate::state::lock().queues.get(queue as Handle).device;
    wait_for(queue as Handle, device, timeout, None)
}

pub(crate) fn synchronize_list(list: ze_command_list_handle_t, timeout: u64) -> Outcome {
    let mut state = crate::state::lock();
    let object = state.lists.get(list as Handle);
    if !object.is_immediate {
        misuse!("the list is not immediate");
    }
    let device = object.device;
    if state.devices.get(device).api.api < version(1, 6) {
        misuse!("the driver is too old for this function");
    }
    drop(state);
    wait_for(list as Handle, device, timeout, None)
}
