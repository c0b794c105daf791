//! Memory: at addresses that nothing else ever has, full of garbage when it is new, and gone when it is
//! freed.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use crate::Outcome;
use crate::misuse::misuse;
use crate::objects::Handle;
use crate::pointers::{find, read, write};
use crate::presets::{LARGEST_ALLOCATION, MEMORY};
use crate::state::State;
use crate::types::*;

const SPACE: usize = 1 << 40;
const PAGE: usize = 4096;
const GARBAGE: u8 = 0xcd;

const NO_ACCESS: c_int = 0;
const READ_AND_WRITE: c_int = 3;
const PRIVATE: c_int = 0x02;
const FIXED: c_int = 0x10;
const ANONYMOUS: c_int = 0x20;
const WITHOUT_RESERVE: c_int = 0x4000;

unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        len: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
}

fn map(at: usize, len: usize, access: c_int) -> Option<usize> {
    let fixed = if at == 0 { 0 } else { FIXED };
    let flags = PRIVATE | ANONYMOUS | WITHOUT_RESERVE | fixed;
    // SAFETY: either the kernel chooses the place, or it lies in the space that this driver has reserved,
    // where nothing else lives.
    let at = unsafe { mmap(at as *mut c_void, len, access, flags, -1, 0) };
    (at as isize != -1).then_some(at as usize)
}

#[derive(Debug)]
struct Allocation {
    len: usize,
    kind: ze_memory_type_t,
    context: Handle,
    device: Handle,
}

/// All memory of the process that comes from here.
#[derive(Debug)]
pub(crate) struct Space {
    all: Range<usize>,
    next: usize,
    allocations: BTreeMap<usize, Allocation>,
    bytes: u64,
}

impl Space {
    pub(crate) fn reserve() -> Self {
        // Under a checker of memory there is less.
        let sizes = [SPACE, SPACE >> 3, SPACE >> 6];
        let reserved = sizes.iter().find_map(|&len| map(0, len, NO_ACCESS).map(|start| start..start + len));
        let all = reserved.expect("address space");
        Self { next: all.start, all, allocations: BTreeMap::new(), bytes: 0 }
    }

    pub(crate) fn count(&self) -> usize {
        self.allocations.len()
    }

    pub(crate) fn is_used_by(&self, context: Handle) -> bool {
        self.allocations.values().any(|allocation| allocation.context == context)
    }

    fn allocate(&mut self, len: usize, allocation: Allocation) -> Outcome<usize> {
        let pages = len.next_multiple_of(PAGE);
        let at = self.next;
        // A page that is never mapped follows each allocation.
        if self.bytes + pages as u64 > MEMORY || at + pages + PAGE > self.all.end {
            return Err(ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY);
        }
        map(at, pages, READ_AND_WRITE).ok_or(ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY)?;
        self.next += pages + PAGE;
        self.bytes += pages as u64;
        // SAFETY: the memory has just been mapped.
        unsafe { std::ptr::write_bytes(at as *mut u8, GARBAGE, len) };
        self.allocations.insert(at, allocation);
        Ok(at)
    }

    fn find(&self, address: usize) -> Option<(usize, &Allocation)> {
        let (at, allocation) = self.allocations.range(..=address).next_back()?;
        (address <= at + allocation.len).then_some((*at, allocation))
    }

    /// Ends the process unless the memory may be used so. `system`: memory of the program will do as well.
    /// A length of 0 asks for the address only, which may stand right behind the memory.
    pub(crate) fn check_address(&self, context: Handle, address: usize, len: usize, system: bool) {
        if !self.all.contains(&address) {
            if system {
                return;
            }
            misuse!("{address:#x} is not memory of this driver");
        }
        let Some((at, found)) = self.find(address) else {
            misuse!("{address:#x} is memory that was never allocated, or has been freed")
        };
        if address + len > at + found.len {
            misuse!("{len} bytes at {address:#x} end {} behind the memory", address + len - at - found.len);
        }
        // Another driver's host memory is to a driver what the program's own is.
        let is_of_the_program = system && found.kind == ZE_MEMORY_TYPE_HOST;
        if found.context != context && !is_of_the_program {
            misuse!("{address:#x} is memory of another context");
        }
    }
}

pub(crate) fn device(
    state: &mut State,
    context: ze_context_handle_t,
    desc: *const ze_device_mem_alloc_desc_t,
    len: usize,
    alignment: usize,
    device: ze_device_handle_t,
    to: *mut *mut c_void,
) -> Outcome {
    let preset = state.devices.get(device as Handle).preset;
    if preset != state.contexts.get(context as Handle).preset {
        misuse!("the device is of another driver than the context");
    }
    state.fail_if_lost(device as Handle)?;
    let next = read(desc)?.pNext;
    allocate(state, context as Handle, device as Handle, next, (len, alignment), ZE_MEMORY_TYPE_DEVICE, to)
}

pub(crate) fn host(
    state: &mut State,
    context: ze_context_handle_t,
    desc: *const ze_host_mem_alloc_desc_t,
    len: usize,
    alignment: usize,
    to: *mut *mut c_void,
) -> Outcome {
    state.contexts.get(context as Handle);
    let next = read(desc)?.pNext;
    allocate(state, context as Handle, 0, next, (len, alignment), ZE_MEMORY_TYPE_HOST, to)
}

fn allocate(
    state: &mut State,
    context: Handle,
    device: Handle,
    next: *const c_void,
    (len, alignment): (usize, usize),
    kind: ze_memory_type_t,
    to: *mut *mut c_void,
) -> Outcome {
    let relaxed: Option<ze_relaxed_allocation_limits_exp_desc_t> =
        find(next, ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC);
    if len == 0 || len as u64 > LARGEST_ALLOCATION && relaxed.is_none_or(|relaxed| relaxed.flags == 0) {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    }
    if len as u64 > MEMORY {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_SIZE);
    }
    if alignment > PAGE || alignment & alignment.wrapping_sub(1) != 0 {
        return Err(ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT);
    }
    let at = state.memory.allocate(len, Allocation { len, kind, context, device })?;
    write(to, at as *mut c_void)
}

pub(crate) fn free(state: &mut State, context: ze_context_handle_t, address: *mut c_void) -> Outcome {
    let (context, address) = (context as Handle, address as usize);
    state.contexts.get(context);
    let Some(allocation) = state.memory.allocations.get(&address) else {
        misuse!("{address:#x} is no address that an allocation gave, or has been freed");
    };
    if allocation.context != context {
        misuse!("{address:#x} is memory of another context");
    }
    let range = address..address + allocation.len;
    if let Some(call) = state.engine.user_of(&range) {
        misuse!("a command of {call} that is in flight uses the memory at {address:#x}");
    }
    let pages = allocation.len.next_multiple_of(PAGE);
    state.memory.allocations.remove(&address);
    state.memory.bytes -= pages as u64;
    map(address, pages, NO_ACCESS).expect("a place that was mapped before");
    Ok(())
}

pub(crate) fn free_ext(
    state: &mut State,
    context: ze_context_handle_t,
    desc: *const ze_memory_free_ext_desc_t,
    address: *mut c_void,
) -> Outcome {
    read(desc)?;
    free(state, context, address)
}

pub(crate) fn properties(
    state: &mut State,
    context: ze_context_handle_t,
    address: *const c_void,
    to: *mut ze_memory_allocation_properties_t,
    device: *mut ze_device_handle_t,
) -> Outcome {
    state.contexts.get(context as Handle);
    let mut properties = read(to)?;
    let found = state.memory.find(address as usize).filter(|(_, found)| found.context == context as Handle);
    (properties.type_, properties.id) =
        found.map_or((ZE_MEMORY_TYPE_UNKNOWN, 0), |(at, a)| (a.kind, at as u64));
    properties.pageSize = PAGE as u64;
    if !device.is_null() {
        write(device, found.map_or(0, |(_, a)| a.device) as ze_device_handle_t)?;
    }
    write(to, properties)
}

pub(crate) fn range(
    state: &mut State,
    context: ze_context_handle_t,
    address: *const c_void,
    base: *mut *mut c_void,
    size: *mut usize,
) -> Outcome {
    state.contexts.get(context as Handle);
    let (at, found) = state.memory.find(address as usize).ok_or(ZE_RESULT_ERROR_INVALID_ARGUMENT)?;
    if !base.is_null() {
        write(base, at as *mut c_void)?;
    }
    if size.is_null() { Ok(()) } else { write(size, found.len) }
}

/// For `zeContextMakeMemoryResident` and `zeContextEvictMemory`, which have nothing to do here.
pub(crate) fn residency(
    state: &mut State,
    context: ze_context_handle_t,
    device: ze_device_handle_t,
    address: *mut c_void,
    len: usize,
) -> Outcome {
    state.devices.get(device as Handle);
    state.memory.check_address(context as Handle, address as usize, len, false);
    Ok(())
}
