//! Changes of closed lists.

use std::sync::Arc;

use crate::Outcome;
use crate::commands::{Launch, Operation, groups};
use crate::kernels::check_group;
use crate::lists::{List, at_rest};
use crate::misuse::misuse;
use crate::objects::{Exclusive, Handle};
use crate::pointers::{chain, list, read, write};
use crate::state::State;
use crate::types::*;

pub(crate) fn next_id(
    state: &mut State,
    list: ze_command_list_handle_t,
    desc: *const ze_mutable_command_id_exp_desc_t,
    kernels: Vec<Handle>,
    to: *mut u64,
) -> Outcome {
    let _guard = Exclusive::use_of(list as Handle, "command list");
    let flags = read(desc)?.flags;
    for kernel in &kernels {
        state.kernels.get(*kernel);
    }
    let device = state.lists.get(list as Handle).device;
    let possible = state.devices.get(device).api.mutable;
    let list = at_rest(state, list as Handle);
    if !list.is_mutable || list.is_closed {
        misuse!("the list is not mutable, or closed");
    }
    if flags & !possible != 0 {
        misuse!("the device can change {possible:#x} of commands, not {flags:#x}");
    }
    list.next = Some((flags, kernels));
    write(to, list.commands.len() as u64 + 1)
}

/// A list for kernels that may take a command's place.
pub(crate) fn kernels(count: u32, kernels: *mut ze_kernel_handle_t) -> Outcome<Vec<Handle>> {
    Ok(list(kernels.cast_const(), count as usize)?.into_iter().map(|kernel| kernel as Handle).collect())
}

/// The launch with this number, if it may be changed so.
fn launch(list: &mut List, id: u64, flag: ze_mutable_command_exp_flags_t) -> &mut Launch {
    if !list.is_mutable {
        misuse!("the list is not mutable");
    }
    list.is_closed = false;
    let command = (id as usize).checked_sub(1).and_then(|index| list.commands.get_mut(index));
    let Some(command) = command else { misuse!("the list has no command {id}") };
    let Some(command) = Arc::get_mut(command) else { misuse!("command {id} is in flight") };
    match &mut command.operation {
        Operation::Launch(launch) if launch.mutable & flag != 0 => launch,
        _ => misuse!("command {id} was not appended with the flag {flag:#x}"),
    }
}

pub(crate) fn update(
    state: &mut State,
    list: ze_command_list_handle_t,
    desc: *const ze_mutable_commands_exp_desc_t,
) -> Outcome {
    let _guard = Exclusive::use_of(list as Handle, "command list");
    let list = at_rest(state, list as Handle);
    list.is_closed = false;
    for (stype, at) in chain(read(desc)?.pNext) {
        match stype {
            ZE_STRUCTURE_TYPE_MUTABLE_KERNEL_ARGUMENT_EXP_DESC => {
                let change: ze_mutable_kernel_argument_exp_desc_t = read(at.cast())?;
                let launch = launch(list, change.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_ARGUMENTS);
                let bytes = launch.arguments.accept(change.argIndex, change.argSize, change.pArgValue)?;
                launch.arguments.values[change.argIndex as usize] = Some(bytes);
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GROUP_COUNT_EXP_DESC => {
                let change: ze_mutable_group_count_exp_desc_t = read(at.cast())?;
                let counts = groups(change.pGroupCount)?;
                if counts.contains(&0) {
                    misuse!("an update to group counts of 0, which the specification does not have");
                }
                launch(list, change.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_COUNT).groups = Some(counts);
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GROUP_SIZE_EXP_DESC => {
                let change: ze_mutable_group_size_exp_desc_t = read(at.cast())?;
                let group = [change.groupSizeX, change.groupSizeY, change.groupSizeZ];
                check_group(group)?;
                let launch = launch(list, change.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_GROUP_SIZE);
                launch.arguments.group = Some(group);
            }
            ZE_STRUCTURE_TYPE_MUTABLE_GLOBAL_OFFSET_EXP_DESC => {
                let change: ze_mutable_global_offset_exp_desc_t = read(at.cast())?;
                let launch = launch(list, change.commandId, ZE_MUTABLE_COMMAND_EXP_FLAG_GLOBAL_OFFSET);
                launch.arguments.offset = [change.offsetX, change.offsetY, change.offsetZ];
            }
            other => misuse!("an update with a structure of type {other:#x}"),
        }
    }
    Ok(())
}

/// Other kernels for commands, which lose their arguments and sizes.
pub(crate) fn update_kernels(
    state: &mut State,
    handle: ze_command_list_handle_t,
    count: u32,
    ids: *mut u64,
    new: *mut ze_kernel_handle_t,
) -> Outcome {
    let _guard = Exclusive::use_of(handle as Handle, "command list");
    let ids = list(ids.cast_const(), count as usize)?;
    for (id, kernel) in ids.into_iter().zip(kernels(count, new)?) {
        let object = state.kernels.get(kernel).clone();
        let list = at_rest(state, handle as Handle);
        let launch = launch(list, id, ZE_MUTABLE_COMMAND_EXP_FLAG_KERNEL_INSTRUCTION);
        if !launch.kernels.contains(&kernel) {
            misuse!("command {id} was not appended with this kernel among its alternatives");
        }
        (launch.kernel, launch.instance) = (kernel, object.instance());
        launch.arguments = object.launch;
        launch.arguments.values.fill(None);
        (launch.arguments.group, launch.arguments.offset, launch.groups) = (None, [0; 3], None);
    }
    Ok(())
}
