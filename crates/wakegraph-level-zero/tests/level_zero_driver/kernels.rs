//! Modules and kernels. A kernel's arguments and sizes are the state of its handle, and a launch takes a
//! copy.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

use crate::Outcome;
use crate::misuse::misuse;
use crate::objects::{Exclusive, Handle};
use crate::opencl::Program;
use crate::pointers::{chain, give, list, read, text, write};
use crate::presets::{LARGEST_GROUP, LARGEST_GROUP_OF_A_KERNEL, LARGEST_GROUP_SIZES, LOCAL_MEMORY};
use crate::spirv::Parameter;
use crate::state::State;
use crate::types::*;

#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: Handle,
    device: Handle,
    program: Option<Arc<Program>>,
    kernels: BTreeMap<String, Vec<Parameter>>,
    /// The names for the program to read, which stay as long as the module.
    names: Vec<CString>,
}

#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    module: Handle,
    pub(crate) context: Handle,
    device: Handle,
    program: Arc<Program>,
    name: String,
    pub(crate) launch: Arguments,
}

/// What a launch is to use: the state of a kernel's handle.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) parameters: Vec<Parameter>,
    /// Each argument's bytes; of memory of the group, its size.
    pub(crate) values: Vec<Option<Vec<u8>>>,
    pub(crate) group: Option<[u32; 3]>,
    pub(crate) offset: [u32; 3],
}

pub(crate) fn create_module(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    desc: *const ze_module_desc_t,
    to: *mut ze_module_handle_t,
    log: *mut ze_module_build_log_handle_t,
) -> Outcome {
    state.contexts.get(context as Handle);
    state.fail_if_lost(device as Handle)?;
    let desc = read(desc)?;
    if desc.format != ZE_MODULE_FORMAT_IL_SPIRV {
        return Err(ZE_RESULT_ERROR_INVALID_NATIVE_BINARY);
    }
    let bytes = list(desc.pInputModule, desc.inputSize)?;
    let kernels = crate::spirv::kernels(&bytes);
    let (program, messages) = match kernels.is_empty() {
        true => (Ok(None), String::new()),
        false => match Program::build(&bytes) {
            Ok(program) => (Ok(Some(Arc::new(program))), String::new()),
            Err(log) => (Err(ZE_RESULT_ERROR_MODULE_BUILD_FAILURE), log),
        },
    };
    if !log.is_null() {
        let handle = state.logs.add(messages);
        write(log, handle as ze_module_build_log_handle_t)?;
    }
    let names = kernels.keys().map(|name| CString::new(name.as_str()).unwrap()).collect();
    let (context, device) = (context as Handle, device as Handle);
    let module = state.modules.add(Module { context, device, program: program?, kernels, names });
    write(to, module as ze_module_handle_t)
}

pub(crate) fn destroy_module(state: &mut State, module: ze_module_handle_t) -> Outcome {
    if state.kernels.iter().any(|(_, kernel)| kernel.module == module as Handle) {
        misuse!("the module has kernels");
    }
    state.modules.remove(module as Handle);
    Ok(())
}

pub(crate) fn kernel_names(
    state: &mut State,
    module: ze_module_handle_t,
    count: *mut u32,
    to: *mut *const c_char,
) -> Outcome {
    let names = &state.modules.get(module as Handle).names;
    give(count, to, &names.iter().map(|name| name.as_ptr()).collect::<Vec<_>>())
}

pub(crate) fn destroy_log(state: &mut State, log: ze_module_build_log_handle_t) -> Outcome {
    state.logs.remove(log as Handle);
    Ok(())
}

pub(crate) fn log_text(
    state: &mut State,
    log: ze_module_build_log_handle_t,
    size: *mut usize,
    to: *mut c_char,
) -> Outcome {
    let log = state.logs.get(log as Handle);
    let bytes = log.bytes().chain([0]);
    if !to.is_null() {
        let room = read(size)?;
        for (i, byte) in bytes.clone().take(room).enumerate() {
            write(to.wrapping_add(i), byte as c_char)?;
        }
    }
    write(size, bytes.count())
}

pub(crate) fn create(
    state: &mut State,
    module: ze_module_handle_t,
    desc: *const ze_kernel_desc_t,
    to: *mut ze_kernel_handle_t,
) -> Outcome {
    let name = text(read(desc)?.pKernelName)?;
    let Module { context, device, program, kernels, .. } = state.modules.get(module as Handle);
    let parameters = kernels.get(&name).ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)?.clone();
    let program = program.clone().ok_or(ZE_RESULT_ERROR_INVALID_KERNEL_NAME)?;
    let values = vec![None; parameters.len()];
    let launch = Arguments { parameters, values, group: None, offset: [0; 3] };
    let kernel =
        Kernel { module: module as Handle, context: *context, device: *device, program, name, launch };
    let kernel = state.kernels.add(kernel);
    write(to, kernel as ze_kernel_handle_t)
}

pub(crate) fn destroy(state: &mut State, kernel: ze_kernel_handle_t) -> Outcome {
    let _guard = Exclusive::use_of(kernel as Handle, "kernel");
    if let Some(call) = state.engine.user_of_kernel(kernel as Handle) {
        misuse!("a command of {call} that is in flight uses the kernel");
    }
    state.kernels.remove(kernel as Handle);
    Ok(())
}

pub(crate) fn set_argument(
    state: &mut State,
    kernel: ze_kernel_handle_t,
    index: u32,
    size: usize,
    value: *const c_void,
) -> Outcome {
    let arguments = &mut state.kernels.get(kernel as Handle).launch;
    let bytes = arguments.accept(index, size, value)?;
    arguments.values[index as usize] = Some(bytes);
    Ok(())
}

pub(crate) fn set_group_size(
    state: &mut State,
    kernel: ze_kernel_handle_t,
    x: u32,
    y: u32,
    z: u32,
) -> Outcome {
    let group = [x, y, z];
    check_group(group)?;
    state.kernels.get(kernel as Handle).launch.group = Some(group);
    Ok(())
}

pub(crate) fn check_group(group: [u32; 3]) -> Outcome {
    let items: u64 = group.iter().map(|size| u64::from(*size)).product();
    let fits = group.iter().zip(LARGEST_GROUP_SIZES).all(|(size, largest)| *size <= largest);
    if items == 0 || !fits || items > u64::from(LARGEST_GROUP) {
        return Err(ZE_RESULT_ERROR_INVALID_GROUP_SIZE_DIMENSION);
    }
    Ok(())
}

pub(crate) fn suggest_group_size(
    state: &mut State,
    kernel: ze_kernel_handle_t,
    global: [u32; 3],
    to: [*mut u32; 3],
) -> Outcome {
    state.kernels.get(kernel as Handle);
    let first = (1..=64).rev().find(|size| global[0].is_multiple_of(*size)).unwrap_or(1);
    to.into_iter().zip([first, 1, 1]).try_for_each(|(to, size)| write(to, size))
}

pub(crate) fn set_offset(state: &mut State, kernel: ze_kernel_handle_t, x: u32, y: u32, z: u32) -> Outcome {
    let kernel = state.kernels.get(kernel as Handle);
    if !state.devices.get(kernel.device).api.global_offset {
        misuse!("the driver has no global offsets");
    }
    kernel.launch.offset = [x, y, z];
    Ok(())
}

pub(crate) fn set_indirect_access(
    state: &mut State,
    kernel: ze_kernel_handle_t,
    _: ze_kernel_indirect_access_flags_t,
) -> Outcome {
    state.kernels.get(kernel as Handle);
    Ok(())
}

pub(crate) fn properties(
    state: &mut State,
    kernel: ze_kernel_handle_t,
    to: *mut ze_kernel_properties_t,
) -> Outcome {
    let kernel = state.kernels.get(kernel as Handle);
    let mut properties = read(to)?;
    properties.numKernelArgs = kernel.launch.parameters.len() as u32;
    properties.maxSubgroupSize = 8;
    let is_old = state.devices.get(kernel.device).api.api < version(1, 9);
    for (stype, at) in chain(properties.pNext) {
        if stype == ZE_STRUCTURE_TYPE_KERNEL_MAX_GROUP_SIZE_EXT_PROPERTIES && !is_old {
            let at = at.cast_mut().cast::<ze_kernel_max_group_size_properties_ext_t>();
            let mut largest = read(at)?;
            largest.maxGroupSize = LARGEST_GROUP_OF_A_KERNEL;
            write(at, largest)?;
        }
    }
    write(to, properties)
}

impl Kernel {
    /// An instance for one command.
    pub(crate) fn instance(&self) -> crate::opencl::Kernel {
        match self.program.kernel(&self.name) {
            Some(kernel) => kernel,
            None => misuse!("OpenCL does not have the kernel '{}'", self.name),
        }
    }
}

impl Arguments {
    /// The bytes of an argument, if the parameter takes them.
    pub(crate) fn accept(&self, index: u32, size: usize, value: *const c_void) -> Outcome<Vec<u8>> {
        let Some(parameter) = self.parameters.get(index as usize) else {
            return Err(ZE_RESULT_ERROR_INVALID_KERNEL_ARGUMENT_INDEX);
        };
        let expected = match parameter {
            Parameter::Pointer => size_of::<usize>(),
            Parameter::Value { size } => *size,
            Parameter::Local if !value.is_null() || size == 0 => {
                misuse!("argument {index} is memory of the group, which has a size and no value")
            }
            Parameter::Local if size > LOCAL_MEMORY as usize => return Err(ZE_RESULT_ERROR_INVALID_ARGUMENT),
            Parameter::Local => return Ok(size.to_ne_bytes().to_vec()),
        };
        if size != expected {
            misuse!("argument {index} has {size} bytes, and the kernel takes {expected}");
        }
        if value.is_null() {
            if *parameter != Parameter::Pointer {
                misuse!("argument {index} has no value");
            }
            return Ok(vec![0; size]);
        }
        list(value.cast::<u8>(), size)
    }

    /// The addresses among the arguments.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = usize> {
        let pointers = self.parameters.iter().zip(&self.values).filter(|(p, _)| **p == Parameter::Pointer);
        let addresses = pointers.filter_map(|(_, bytes)| bytes.as_ref());
        addresses.map(|bytes| usize::from_ne_bytes(bytes[..].try_into().unwrap())).filter(|at| *at != 0)
    }

    /// Ends the process unless everything is there for a launch.
    pub(crate) fn check_complete(&self) {
        if let Some(index) = self.values.iter().position(Option::is_none) {
            misuse!("argument {index} of the kernel is not set");
        }
        let Some(group) = self.group else { misuse!("the kernel's group size is not set") };
        let items: u32 = group.iter().product();
        if items > LARGEST_GROUP_OF_A_KERNEL {
            misuse!("a group of {group:?} is larger than the kernel's largest, {LARGEST_GROUP_OF_A_KERNEL}");
        }
    }
}
