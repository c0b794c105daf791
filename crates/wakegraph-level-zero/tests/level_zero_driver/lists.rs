//! Command lists: closed ones, and those that execute at once.

use std::ffi::c_void;
use std::sync::Arc;

use crate::Outcome;
use crate::commands::{Command, Events, Launch, Operation, Order, Region, address, groups};
use crate::engine::Target;
use crate::events::SignalState;
use crate::misuse::{call, misuse};
use crate::objects::{Exclusive, Handle};
use crate::pointers::{find, list, read, write};
use crate::state::{State, lock};
use crate::types::*;

#[derive(Debug)]
pub(crate) struct List {
    pub(crate) context: Handle,
    pub(crate) device: Handle,
    pub(crate) ordinal: u32,
    pub(crate) in_order: bool,
    pub(crate) is_immediate: bool,
    is_synchronous: bool,
    pub(crate) is_mutable: bool,
    pub(crate) is_closed: bool,
    pub(crate) running: bool,
    pub(crate) commands: Vec<Arc<Command>>,
    /// What the next launch may change, and the kernels that it may change to.
    pub(crate) next: Option<(ze_mutable_command_exp_flags_t, Vec<Handle>)>,
}

/// The properties of an engine group; the process ends if the device has no such group.
fn group(state: &mut State, device: Handle, ordinal: u32) -> ze_command_queue_group_properties_t {
    match state.devices.get(device).groups().get(ordinal as usize) {
        Some(group) => *group,
        None => misuse!("the device has no engine group {ordinal}"),
    }
}

pub(crate) fn check_group_exists(state: &mut State, device: Handle, ordinal: u32, index: u32) {
    if index >= group(state, device, ordinal).numQueues {
        misuse!("the engine group has no queue {index}");
    }
}

pub(crate) fn create(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_command_list_desc_t,
    to: *mut ze_command_list_handle_t,
) -> Outcome {
    let (context, device, desc) = (context as Handle, device as Handle, read(desc)?);
    let preset = state.preset_of(context);
    state.fail_if_lost(device)?;
    group(state, device, desc.commandQueueGroupOrdinal);
    let mutable: Option<ze_mutable_command_list_exp_desc_t> =
        find(desc.pNext, ZE_STRUCTURE_TYPE_MUTABLE_COMMAND_LIST_EXP_DESC);
    let list = state.lists.add(List {
        context,
        device,
        ordinal: desc.commandQueueGroupOrdinal,
        in_order: preset.in_order && desc.flags & ZE_COMMAND_LIST_FLAG_IN_ORDER != 0,
        is_immediate: false,
        is_synchronous: false,
        is_mutable: mutable.is_some() && preset.mutable != 0,
        is_closed: false,
        running: false,
        commands: Vec::new(),
        next: None,
    });
    write(to, list as ze_command_list_handle_t)
}

pub(crate) fn create_immediate(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_command_queue_desc_t,
    to: *mut ze_command_list_handle_t,
) -> Outcome {
    let (context, device, desc) = (context as Handle, device as Handle, read(desc)?);
    let preset = state.preset_of(context);
    state.fail_if_lost(device)?;
    check_group_exists(state, device, desc.ordinal, desc.index);
    let list = state.lists.add(List {
        context,
        device,
        ordinal: desc.ordinal,
        in_order: preset.in_order && desc.flags & ZE_COMMAND_QUEUE_FLAG_IN_ORDER != 0,
        is_immediate: true,
        is_synchronous: desc.mode == ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS,
        is_mutable: false,
        is_closed: false,
        running: false,
        commands: Vec::new(),
        next: None,
    });
    state.engine.open(list);
    write(to, list as ze_command_list_handle_t)
}

pub(crate) fn destroy(state: &mut State, list: ze_command_list_handle_t) -> Outcome {
    let list = list as Handle;
    let _guard = Exclusive::use_of(list, "command list");
    if state.lists.get(list).running || !state.engine.is_idle(list) {
        misuse!("the list is in flight");
    }
    state.lists.remove(list);
    state.engine.close(list);
    Ok(())
}

/// A list that is not immediate, and not in flight.
pub(crate) fn at_rest(state: &mut State, list: Handle) -> &mut List {
    let list = state.lists.get(list);
    if list.is_immediate {
        misuse!("the list is immediate");
    }
    if list.running {
        misuse!("the list is in flight");
    }
    list
}

pub(crate) fn close(state: &mut State, list: ze_command_list_handle_t) -> Outcome {
    let _guard = Exclusive::use_of(list as Handle, "command list");
    let list = at_rest(state, list as Handle);
    if list.is_closed {
        misuse!("the list is closed already");
    }
    for command in &list.commands {
        if let Operation::Launch(launch) = &command.operation {
            launch.arguments.check_complete();
            if launch.groups.is_none() {
                misuse!("a launch has no group counts");
            }
        }
    }
    (list.is_closed, list.next) = (true, None);
    Ok(())
}

pub(crate) fn reset(state: &mut State, list: ze_command_list_handle_t) -> Outcome {
    let _guard = Exclusive::use_of(list as Handle, "command list");
    let list = at_rest(state, list as Handle);
    list.commands.clear();
    (list.is_closed, list.next) = (false, None);
    Ok(())
}

/// Appends a command: recorded, or in flight at once.
fn append(
    list: ze_command_list_handle_t,
    order: Order,
    signal: ze_event_handle_t,
    (count, waits): (u32, *mut ze_event_handle_t),
    operation: impl FnOnce(&mut State, Handle) -> Outcome<Operation>,
) -> Outcome {
    let handle = list as Handle;
    let _guard = Exclusive::use_of(handle, "command list");
    let mut guard = lock();
    let state = &mut *guard;
    let list = state.lists.get(handle);
    if list.is_closed {
        misuse!("the list is closed");
    }
    let (device, context) = (list.device, list.context);
    let (is_immediate, is_synchronous, in_order) = (list.is_immediate, list.is_synchronous, list.in_order);
    state.fail_if_lost(device)?;
    let Events { waits, signal } = Events::read(state, context, signal, count, waits)?;
    if let Some(signal) = signal
        && !in_order
        && matches!(state.events.get(signal).signal, SignalState::Counter(_))
    {
        return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT);
    }
    let operation = operation(state, handle)?;
    operation.check(state, context);
    // A barrier that waits for events waits for nothing else.
    let order = if order == Order::Barrier && !waits.is_empty() { Order::Blocks } else { order };
    let command = Command { call: call(), operation, waits, signal, order };
    if !is_immediate {
        state.lists.get(handle).commands.push(Arc::new(command));
        return Ok(());
    }
    let id = state.submit(Target { device, context, stream: handle, in_order }, command);
    drop(guard);
    if is_synchronous {
        crate::queues::wait_for(handle, device, u64::MAX, Some(id))?;
    }
    Ok(())
}

pub(crate) fn barrier(
    list: ze_command_list_handle_t,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    append(list, Order::Barrier, signal, (count, waits), |_, _| Ok(Operation::Nothing))
}

pub(crate) fn wait(list: ze_command_list_handle_t, count: u32, waits: *mut ze_event_handle_t) -> Outcome {
    append(list, Order::Blocks, std::ptr::null_mut(), (count, waits), |_, _| Ok(Operation::Nothing))
}

pub(crate) fn signal(list: ze_command_list_handle_t, event: ze_event_handle_t) -> Outcome {
    append(list, Order::Free, event, (0, std::ptr::null_mut()), |_, _| Ok(Operation::Nothing))
}

pub(crate) fn reset_event(list: ze_command_list_handle_t, event: ze_event_handle_t) -> Outcome {
    append(list, Order::Free, std::ptr::null_mut(), (0, std::ptr::null_mut()), |state, _| {
        match state.events.get(event as Handle).signal {
            SignalState::Flag(_) => Ok(Operation::Reset(event as Handle)),
            SignalState::Counter(_) => Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
        }
    })
}

pub(crate) fn copy(
    list: ze_command_list_handle_t,
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    let (to, from) = (address(to), address(from));
    append(list, Order::Free, signal, (count, waits), |_, _| {
        if to < from + len && from < to + len {
            return Err(ZE_RESULT_ERROR_OVERLAPPING_REGIONS);
        }
        Ok(Operation::Copy { to, from, len })
    })
}

/// A region, and the pitches of rows and slices.
pub(crate) type Place = (*const ze_copy_region_t, u32, u32);

pub(crate) fn copy_region(
    list: ze_command_list_handle_t,
    (to, to_place): (*mut c_void, Place),
    (from, from_place): (*const c_void, Place),
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    append(list, Order::Free, signal, (count, waits), |_, _| {
        let pitches = |(_, pitch, slice): Place| [pitch as usize, slice as usize];
        let region = Region {
            to: address(to),
            to_region: read(to_place.0)?,
            to_pitches: pitches(to_place),
            from: address(from),
            from_region: read(from_place.0)?,
            from_pitches: pitches(from_place),
        };
        region.check()?;
        Ok(Operation::Region(Box::new(region)))
    })
}

pub(crate) fn fill(
    handle: ze_command_list_handle_t,
    to: *mut c_void,
    (pattern, size): (*const c_void, usize),
    len: usize,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    append(handle, Order::Free, signal, (count, waits), |state, handle| {
        let List { device, ordinal, .. } = *state.lists.get(handle);
        let longest = group(state, device, ordinal).maxMemoryFillPatternSize;
        if !size.is_power_of_two() || size > longest {
            misuse!("the engine takes patterns of powers of two up to {longest} bytes, and this has {size}");
        }
        if !len.is_multiple_of(size) {
            misuse!("{len} bytes are no multiple of the pattern's {size}");
        }
        Ok(Operation::Fill { to: address(to), pattern: list(pattern.cast(), size)?, len })
    })
}

/// Prefetch, which does nothing here.
pub(crate) fn prefetch(list: ze_command_list_handle_t, at: *const c_void, len: usize) -> Outcome {
    append(list, Order::Free, std::ptr::null_mut(), (0, std::ptr::null_mut()), |_, _| {
        Ok(Operation::Advice { at: address(at), len })
    })
}

/// Advice, which does nothing here.
pub(crate) fn advise(
    list: ze_command_list_handle_t,
    device: ze_device_handle_t,
    at: *const c_void,
    len: usize,
    _: ze_memory_advice_t,
) -> Outcome {
    lock().devices.get(device as Handle);
    prefetch(list, at, len)
}

pub(crate) fn launch(
    list: ze_command_list_handle_t,
    kernel: ze_kernel_handle_t,
    counts: *const ze_group_count_t,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    let _guard = Exclusive::use_of(kernel as Handle, "kernel");
    append(list, Order::Free, signal, (count, waits), |state, handle| {
        let List { device, ordinal, context, .. } = *state.lists.get(handle);
        if group(state, device, ordinal).flags & ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE == 0 {
            misuse!("the list's engine takes no kernels");
        }
        let object = state.kernels.get(kernel as Handle).clone();
        if object.context != context {
            misuse!("the kernel is of another context");
        }
        object.launch.check_complete();
        let (mutable, kernels) = state.lists.get(handle).next.take().unwrap_or_default();
        Ok(Operation::Launch(Box::new(Launch {
            kernel: kernel as Handle,
            instance: object.instance(),
            arguments: object.launch,
            groups: Some(groups(counts)?),
            mutable,
            kernels,
        })))
    })
}

pub(crate) fn query_timestamps(
    handle: ze_command_list_handle_t,
    (events, number): (*mut ze_event_handle_t, u32),
    (to, offsets): (*mut c_void, *const usize),
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    append(handle, Order::Free, signal, (count, waits), |state, _| {
        let events: Vec<Handle> =
            list(events.cast_const(), number as usize)?.iter().map(|e| *e as Handle).collect();
        if events.is_empty() {
            return Err(ZE_RESULT_ERROR_INVALID_SIZE);
        }
        for event in &events {
            state.events.get(*event);
        }
        let offsets = if offsets.is_null() { None } else { Some(list(offsets, number as usize)?) };
        Ok(Operation::Times { events, to: address(to), offsets })
    })
}

pub(crate) fn write_clock(
    list: ze_command_list_handle_t,
    to: *mut u64,
    signal: ze_event_handle_t,
    count: u32,
    waits: *mut ze_event_handle_t,
) -> Outcome {
    append(list, Order::Free, signal, (count, waits), |_, _| Ok(Operation::Clock { to: address(to) }))
}
